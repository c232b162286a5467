//! What happens to the records of a batch beside each other.

use std::time::Duration;

use firstclaim::clock::EpochSeconds;
use firstclaim::protocol::Write;
use firstclaim::store::memory::{Fault, Memory};
use firstclaim::store::{Read, Written};
use firstclaim::{Policy, Record, Status, Store, StoreError};
use queue::queues::Reason;
use serde_json::{Value, json};

use crate::rig::{Kept, NOW, Plan, RUN, Rig, body, record, returned, worker};

#[tokio::test]
async fn n25_each_kind_of_failure_alone_is_exactly_what_is_returned() {
    for (bad, letter) in [
        (record("bad", &body("bad", 503)), false),
        (record("bad", &body("bad", 404)), false),
        (record("bad", "{\"v\":99}"), false),
        (record("bad", "not json"), true),
        (record("bad", &body("bad", 422)), true),
        (record("bad", "{\"key\":null}"), true),
        (json!({"messageId": "bad", "body": null}), true),
        (json!({"messageId": "bad"}), true),
    ] {
        for dead_letters in [true, false] {
            let rig = Rig::new(Plan {
                dead_letters,
                ..Plan::default()
            })
            .await;
            let batch = [
                record("a", &body("a", 200)),
                bad.clone(),
                record("b", &body("b", 200)),
            ];
            let text = rig.handle(&batch).await;
            let dead = letter && dead_letters;
            let expected: &[&str] = if dead { &[] } else { &["bad"] };
            assert_eq!(text, returned(expected), "{bad}");
            assert_eq!(rig.queues.letters().len(), usize::from(dead), "{bad}");
            assert_eq!(rig.status("queue#a"), Some(Status::Completed));
            assert_eq!(rig.status("queue#b"), Some(Status::Completed));
        }
    }
}

#[tokio::test]
async fn an_event_that_is_no_batch_is_answered() {
    let rig = Rig::new(Plan::default()).await;
    for event in [
        json!(null),
        json!({}),
        json!([]),
        json!({"Records": null}),
        json!({"Records": []}),
    ] {
        let answer = rig
            .worker
            .handle(rig.event_until(NOW.after(RUN), event))
            .await;
        assert_eq!(answer.batch_item_failures, []);
    }
}

#[tokio::test]
async fn p94_a_record_without_an_id_is_dead_lettered_where_it_would_be_returned() {
    let without_id = |body: &str| {
        let mut record = record("x", body);
        record["messageId"].take();
        record
    };
    for (answer, reason) in [
        (200, None),
        (503, Some(Reason::Unreturnable)),
        (422, Some(Reason::Permanent)),
    ] {
        let rig = Rig::new(Plan::default()).await;
        let batch = [
            record("a", &body("a", 503)),
            without_id(&body("x", answer)),
            record("b", &body("b", 200)),
        ];
        assert_eq!(rig.handle(&batch).await, returned(&["a"]));
        let reasons: Vec<_> = rig
            .queues
            .letters()
            .iter()
            .map(|letter| letter.reason)
            .collect();
        assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>());
        assert_eq!(rig.effects(), 3);
    }
    // With nowhere to go it is at least no empty identifier, which would fail the whole batch.
    let rig = Rig::new(Plan {
        dead_letters: false,
        ..Plan::default()
    })
    .await;
    assert_eq!(
        rig.handle(&[without_id("garbage"), Value::Null]).await,
        returned(&[])
    );
}

#[tokio::test]
async fn a_mismatch_is_dead_lettered_and_the_record_stays() {
    let rig = Rig::new(Plan::default()).await;
    let one = "{\"key\":\"k\",\"payload\":{\"amount\":5,\"to\":\"a\"}}";
    let same = "{\"key\":\"k\",\"payload\": {\"to\":\"a\", \"amount\":5} }";
    let other = "{\"key\":\"k\",\"payload\":{\"amount\":6}}";
    let batch = [record("1", one), record("2", other), record("3", same)];
    assert_eq!(rig.handle(&batch).await, returned(&[]));
    let letters = rig.queues.letters();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].reason, Reason::Mismatch);
    assert_eq!(letters[0].message_id.as_deref(), Some("2"));
    assert_eq!(rig.effects(), 1);
    // Without a dead-letter queue it is returned, and does not take the others with it.
    let rig = Rig::new(Plan {
        dead_letters: false,
        ..Plan::default()
    })
    .await;
    assert_eq!(rig.handle(&batch).await, returned(&["2"]));
}

#[tokio::test]
async fn p92_each_record_is_an_operation_of_its_own() {
    let rig = Rig::new(Plan::default()).await;
    let message = |n: u8| record(&format!("m{n}"), &body(&format!("k{n}"), 200));
    rig.handle(&[message(1), message(2)]).await;
    assert_eq!(rig.handle(&[message(2), message(3)]).await, returned(&[]));
    assert_eq!(rig.effects(), 3);
}

#[tokio::test]
async fn duplicates_in_a_batch_share_one_execution_and_its_calls() {
    let rig = Rig::new(Plan::default()).await;
    let message = |id: &str| record(id, &body("k", 200));
    assert_eq!(rig.handle(&[message("1")]).await, returned(&[]));
    assert_eq!(rig.store.calls(), 2, "a first execution");
    let cold = rig.cold();
    cold.handle(rig.event(&[message("2")])).await;
    assert_eq!(rig.store.calls(), 3, "a duplicate in another process");
    // In one batch the duplicates cost nothing: the process knows the result.
    let rig = Rig::new(Plan::default()).await;
    let batch: Vec<_> = ["1", "2", "3", "4"].map(message).to_vec();
    assert_eq!(rig.handle(&batch).await, returned(&[]));
    assert_eq!((rig.effects(), rig.store.calls()), (1, 2));
}

#[tokio::test]
async fn duplicates_in_a_batch_share_a_return_too() {
    let rig = Rig::new(Plan::default()).await;
    let batch: Vec<_> = ["1", "2", "3"]
        .map(|id| record(id, &body("k", 503)))
        .to_vec();
    assert_eq!(rig.handle(&batch).await, returned(&["1", "2", "3"]));
    assert_eq!(rig.effects(), 1);
    let first = rig.queues.visibility("1");
    assert!(first.is_some());
    assert_eq!(
        (rig.queues.visibility("2"), rig.queues.visibility("3")),
        (first, first)
    );
}

#[tokio::test]
async fn a20_one_key_that_somebody_holds_is_one_failure() {
    let rig = Rig::new(Plan::default()).await;
    // Another process is at `k3`; it never ends.
    let elsewhere = rig.cold();
    let event = rig.event(&[record("other", &body("k3", 0))]);
    let held = tokio::spawn(async move { elsewhere.handle(event).await });
    wait_until(|| rig.effects() == 1).await;
    rig.source.advance(Duration::from_millis(500));
    let batch: Vec<_> = (0..10)
        .map(|n| {
            record(
                &format!("m{n}"),
                &body(&format!("k{n}"), if n == 3 { 0 } else { 200 }),
            )
        })
        .collect();
    assert_eq!(rig.handle(&batch).await, returned(&["m3"]));
    assert_eq!(rig.effects(), 10);
    // The rest of the lease (60 s and the grace of 2 s, half a second ago), rounded up, and 1 s.
    assert_eq!(rig.queues.visibility("m3"), Some(63));
    held.abort();
}

#[tokio::test]
async fn a25_a_second_receive_during_the_first_is_returned_for_later() {
    let rig = Rig::new(Plan::default()).await;
    let elsewhere = rig.cold();
    let event = rig.event(&[record("m", &body("k", 0))]);
    let first = tokio::spawn(async move { elsewhere.handle(event).await });
    wait_until(|| rig.effects() == 1).await;
    let mut second = record("m", &body("k", 0));
    second["receiptHandle"] = "receipt-new".into();
    second["attributes"]["ApproximateReceiveCount"] = "2".into();
    assert_eq!(rig.handle(&[second]).await, returned(&["m"]));
    assert_eq!(rig.effects(), 1);
    assert_eq!(rig.queues.visibilities(), [("receipt-new".to_owned(), 63)]);
    first.abort();
}

#[tokio::test]
async fn a1_a_killed_run_is_taken_over_when_its_lease_has_lapsed() {
    for (policy, effects) in [(Policy::Rerun, 2), (Policy::Hold, 1)] {
        let rig = Rig::answering(
            Plan {
                policy,
                ..Plan::default()
            },
            {
                let calls = std::sync::atomic::AtomicUsize::new(0);
                move |_| match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                    0 => crate::stub::Reply::Hang,
                    _ => crate::stub::Reply::status(200),
                }
            },
        )
        .await;
        let killed = rig.cold();
        let event = rig.event(&[record("m", &body("k", 0))]);
        let run = tokio::spawn(async move { killed.handle(event).await });
        wait_until(|| rig.effects() == 1).await;
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        rig.source.advance(Duration::from_secs(61));
        assert_eq!(
            rig.handle(&[record("m", &body("k", 0))]).await,
            returned(&["m"])
        );
        assert_eq!(rig.queues.visibility("m"), Some(2));
        rig.source.advance(Duration::from_secs(1));
        assert_eq!(
            rig.handle(&[record("m", &body("k", 0))]).await,
            returned(&[])
        );
        // P3, A3: with `rerun` the target sees the same key twice, with `hold` nobody runs again.
        let seen = rig.stub.seen();
        assert_eq!(seen.len(), effects);
        let keys: std::collections::BTreeSet<_> = seen
            .iter()
            .map(|seen| seen.header("idempotency-key"))
            .collect();
        assert_eq!(keys.len(), 1);
        match policy {
            Policy::Rerun => assert_eq!(seen[1].header("firstclaim-attempt"), Some("2")),
            Policy::Hold => assert_eq!(rig.queues.letters()[0].reason, Reason::Held),
        }
    }
}

#[tokio::test]
async fn a24_two_processes_with_one_fifo_event_do_it_once() {
    let rig = Rig::new(Plan::default()).await;
    let batch: Vec<_> = (0..8)
        .map(|n| {
            crate::rig::fifo(
                &format!("m{n}"),
                &format!("g{}", n % 4),
                &body(&format!("k{n}"), 200),
            )
        })
        .collect();
    let (one, two) = (rig.cold(), rig.cold());
    let (event, again) = (rig.event(&batch), rig.event(&batch));
    let (one, two) = tokio::join!(one.handle(event), two.handle(again));
    // What one of them returned, the other did or will: delivered once more, all is done.
    assert!(one.batch_item_failures.len() + two.batch_item_failures.len() <= 16);
    assert_eq!(rig.handle(&batch).await, returned(&[]));
    assert_eq!(rig.effects(), 8);
}

#[tokio::test]
async fn an_unavailable_store_returns_the_record_with_the_queues_own_visibility() {
    let rig = Rig::new(Plan::default()).await;
    rig.store.plan([Fault::Refuse]);
    let batch = [record("m", &body("k", 200)), record("n", &body("n", 200))];
    assert_eq!(rig.handle(&batch).await, returned(&["m"]));
    assert_eq!(rig.effects(), 1);
    assert_eq!(rig.queues.visibilities(), []);
}

#[tokio::test]
async fn what_was_done_and_not_recorded_is_not_asked_for_again() {
    let rig = Rig::new(Plan::default()).await;
    rig.store.plan([Fault::None]);
    rig.store.plan([Fault::Refuse; 20]);
    assert_eq!(
        rig.handle(&[record("m", &body("k", 200))]).await,
        returned(&[])
    );
    assert_eq!(rig.effects(), 1);
    assert_eq!(rig.status("queue#k"), Some(Status::InProgress));
}

#[tokio::test]
async fn a_permanent_failure_that_can_not_be_stored_is_returned() {
    let rig = Rig::new(Plan::default()).await;
    rig.store.plan([Fault::None]);
    rig.store.plan([Fault::Refuse; 20]);
    assert_eq!(
        rig.handle(&[record("m", &body("k", 422))]).await,
        returned(&["m"])
    );
    assert_eq!(rig.queues.letters().len(), 1);
}

#[tokio::test]
async fn a_visibility_that_can_not_be_set_changes_nothing_else() {
    let rig = Rig::new(Plan::default()).await;
    rig.queues.refuse();
    let batch = [record("m", &body("k", 503)), record("n", &body("n", 200))];
    assert_eq!(rig.handle(&batch).await, returned(&["m"]));
}

#[tokio::test]
async fn nothing_is_claimed_with_less_time_than_the_floor() {
    let rig = Rig::new(Plan {
        min_remaining: Duration::from_secs(10),
        ..Plan::default()
    })
    .await;
    let records = json!({"Records": [record("m", &body("k", 200)), record("bad", "x")]});
    let deadline = NOW.after(Duration::from_millis(9_999));
    let answer = rig.worker.handle(rig.event_until(deadline, records)).await;
    assert_eq!(serde_json::to_string(&answer).unwrap(), returned(&["m"]));
    assert_eq!((rig.store.calls(), rig.effects()), (0, 0));
}

#[tokio::test]
async fn p2_with_no_time_left_the_record_is_claimable_at_once() {
    for left in [0, -500] {
        let rig = Rig::new(Plan::default()).await;
        let records = json!({"Records": [record("m", &body("k", 200))]});
        let deadline = firstclaim::clock::EpochMillis(NOW.0 + left);
        let answer = rig.worker.handle(rig.event_until(deadline, records)).await;
        assert_eq!(answer.batch_item_failures.len(), 1);
        assert_eq!(rig.effects(), 0);
        assert!(rig.record("queue#k").unwrap().lease.is_some());
        assert_eq!(
            rig.handle(&[record("m", &body("k", 200))]).await,
            returned(&[])
        );
        assert_eq!(rig.effects(), 1);
    }
}

#[tokio::test]
async fn p8_each_claim_takes_its_lease_from_the_invocation() {
    let rig = Rig::new(Plan::default()).await;
    let cold = rig.cold();
    let event = rig.event(&[record("m", &body("k", 0))]);
    let run = tokio::spawn(async move { cold.handle(event).await });
    wait_until(|| rig.effects() == 1).await;
    let kept = rig.record("queue#k").unwrap();
    assert_eq!(kept.lease, Some(NOW.after(RUN + rig.config.grace)));
    assert_eq!(kept.origin.request.as_deref(), Some("request-1"));
    assert_eq!(kept.origin.event.as_deref(), Some("m"));
    run.abort();
}

#[tokio::test]
async fn a_panic_is_one_failed_record() {
    let rig = Rig::new(Plan::default()).await;
    rig.queues.panic_on("p");
    let batch = [
        record("a", &body("a", 200)),
        record("p", "not json"),
        record("b", &body("b", 503)),
        record("c", &body("c", 422)),
    ];
    assert_eq!(rig.handle(&batch).await, returned(&["p", "b"]));
    assert_eq!(rig.effects(), 3);
}

#[tokio::test]
async fn a_panic_inside_the_operation_leaves_a_claim_that_others_can_take() {
    let rig = Rig::new(Plan::default()).await;
    rig.queues.panic_on("p");
    let batch = [record("p", &body("k", 422)), record("q", &body("k", 422))];
    assert_eq!(rig.handle(&batch).await, returned(&["p", "q"]));
    let kept = rig.record("queue#k").unwrap();
    assert_eq!(kept.lease, Some(firstclaim::record::RELEASED));
    assert_eq!(kept.error.unwrap().code, "panic");
    assert_eq!(crate::logs::told("p"), ["panicked", "queue#k"]);
    assert_eq!(crate::logs::told("q"), ["same_key_returned", "queue#k"]);
}

/// A store that hangs for one key and is fine for the others.
#[derive(Clone, Debug)]
struct Hanging(Memory);

impl Store for Hanging {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        if id == "queue#hangs" {
            std::future::pending::<()>().await;
        }
        self.0.write(id, write).await
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        self.0.read(id, read).await
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        self.0.put_companion(id, packed, expiration).await
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.companion(id).await
    }
}

#[tokio::test]
async fn a_record_that_hangs_does_not_keep_the_answer_of_the_others() {
    let rig = Rig::new(Plan::default()).await;
    let store = Hanging(Memory::new());
    let queues = Kept::default();
    let target = rig.target.clone();
    let hanging = worker(target, &rig.source, &store, &queues, &rig.config);
    let records = json!({"Records": [
        record("a", &body("a", 200)),
        record("h", &body("hangs", 200)),
        record("b", &body("b", 200)),
    ]});
    let time = Duration::from_secs(4);
    let deadline = NOW.after(time);
    let started = tokio::time::Instant::now();
    let answer = hanging.handle(rig.event_until(deadline, records)).await;
    assert_eq!(serde_json::to_string(&answer).unwrap(), returned(&["h"]));
    assert!(started.elapsed() < time, "before the deadline");
}

/// Waits for a condition that another task brings about.
pub(crate) async fn wait_until(mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the condition never came"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
