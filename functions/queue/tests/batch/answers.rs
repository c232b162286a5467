//! What the target answers, and what becomes of the record and its message.

use std::time::Duration;

use firstclaim::record::{RELEASED, SUSPENDED};
use firstclaim::{Policy, Status};
use queue::queues::Reason;

use crate::rig::{Plan, Rig, answer_in_body, body, record, returned, target_at};
use crate::stub::Reply;

const PERMANENT: [u16; 5] = [400, 410, 413, 415, 422];
const DID_NOT_HAPPEN: [u16; 2] = [425, 429];
/// 0 hangs, 1 closes without an answer, 2 breaks off in the answer's body.
const UNKNOWN: [u16; 8] = [408, 409, 500, 502, 503, 0, 1, 2];
const MISCONFIGURED: [u16; 9] = [401, 403, 404, 405, 407, 301, 302, 308, 418];

fn plan(policy: Policy, dead_letters: bool) -> Plan {
    Plan {
        policy,
        dead_letters,
        timeout: Duration::from_secs(1),
        ..Plan::default()
    }
}

async fn answered(policy: Policy, dead_letters: bool, answer: u16) -> (Rig, String) {
    let rig = Rig::new(plan(policy, dead_letters)).await;
    let text = rig.handle(&[record("m", &body("k", answer))]).await;
    assert_eq!(rig.effects(), 1, "{answer}");
    (rig, text)
}

#[tokio::test]
async fn a_2xx_answer_is_the_result() {
    for answer in [200, 201, 202, 204, 299] {
        let (rig, text) = answered(Policy::Hold, true, answer).await;
        assert_eq!(text, "{\"batchItemFailures\":[]}");
        assert_eq!(rig.status("queue#k"), Some(Status::Completed));
        assert_eq!(rig.queues.visibilities(), []);
        assert_eq!(rig.queues.letters(), []);
    }
}

#[tokio::test]
async fn n35_a_permanent_refusal_is_dead_lettered_then_stored_then_acknowledged() {
    for policy in [Policy::Rerun, Policy::Hold] {
        for answer in PERMANENT {
            let (rig, text) = answered(policy, true, answer).await;
            assert_eq!(text, returned(&[]), "{answer}");
            assert_eq!(rig.status("queue#k"), Some(Status::Failed), "{answer}");
            let letters = rig.queues.letters();
            assert_eq!(letters.len(), 1);
            assert_eq!(letters[0].reason, Reason::Permanent);
            assert_eq!(letters[0].code, format!("target_{answer}"));
            assert_eq!(letters[0].attempt, Some(1));
            assert_eq!(letters[0].key.as_deref(), Some("queue#k"));
            assert_eq!(letters[0].message_id.as_deref(), Some("m"));
            assert_eq!(letters[0].body, body("k", answer));
            // When the letter was sent, FAILED was not yet stored.
            assert_eq!(rig.queues.statuses(), [Some(Status::InProgress)]);
            // Delivered again: acknowledged without another call or letter.
            let cold = rig.cold();
            let again = cold
                .handle(rig.event(&[record("m2", &body("k", answer))]))
                .await;
            assert_eq!(again.batch_item_failures, []);
            assert_eq!((rig.effects(), rig.queues.letters().len()), (1, 1));
        }
    }
}

#[tokio::test]
async fn without_a_dead_letter_queue_a_permanent_refusal_is_returned_each_time() {
    let (rig, text) = answered(Policy::Hold, false, 422).await;
    assert_eq!(text, returned(&["m"]));
    // Stored as FAILED, the next receive would be acknowledged and the event be lost.
    let kept = rig.record("queue#k").unwrap();
    assert_eq!(
        (kept.status, kept.lease),
        (Status::InProgress, Some(RELEASED))
    );
    assert_eq!(
        kept.error.map(|error| error.code).as_deref(),
        Some("target_422")
    );
    assert_eq!(
        rig.handle(&[record("m", &body("k", 422))]).await,
        returned(&["m"])
    );
    assert_eq!(rig.effects(), 2);
}

#[tokio::test]
async fn a_dead_letter_that_can_not_be_sent_leaves_the_message_with_its_queue() {
    let rig = Rig::new(plan(Policy::Hold, true)).await;
    rig.queues.refuse();
    let text = rig
        .handle(&[record("m", &body("k", 422)), record("bad", "not json")])
        .await;
    assert_eq!(text, returned(&["m", "bad"]));
    assert_eq!(rig.record("queue#k").unwrap().lease, Some(RELEASED));
}

#[tokio::test]
async fn what_did_not_happen_is_released_under_both_policies() {
    for policy in [Policy::Rerun, Policy::Hold] {
        for answer in DID_NOT_HAPPEN.into_iter().chain(MISCONFIGURED) {
            let (rig, text) = answered(policy, true, answer).await;
            assert_eq!(text, returned(&["m"]), "{answer}");
            assert_eq!(
                rig.record("queue#k").unwrap().lease,
                Some(RELEASED),
                "{answer}"
            );
            assert_eq!(rig.queues.letters(), [], "{answer}");
            let wait = rig.queues.visibility("m").unwrap();
            assert!((15..=30).contains(&wait), "{answer}: {wait}");
        }
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_released_under_rerun() {
    for answer in UNKNOWN {
        let (rig, text) = answered(Policy::Rerun, true, answer).await;
        assert_eq!(text, returned(&["m"]), "{answer}");
        assert_eq!(
            rig.record("queue#k").unwrap().lease,
            Some(RELEASED),
            "{answer}"
        );
        assert_eq!(rig.queues.letters(), [], "{answer}");
        assert!(rig.queues.visibility("m").is_some(), "{answer}");
    }
}

#[tokio::test]
async fn a3_an_unknown_outcome_is_held_and_dead_lettered_under_hold() {
    for answer in UNKNOWN {
        let (rig, text) = answered(Policy::Hold, true, answer).await;
        assert_eq!(text, returned(&[]), "{answer}");
        assert_eq!(
            rig.record("queue#k").unwrap().lease,
            Some(SUSPENDED),
            "{answer}"
        );
        let letters = rig.queues.letters();
        assert_eq!(letters.len(), 1, "{answer}");
        assert_eq!(letters[0].reason, Reason::Held, "{answer}");
        // The next message of the key meets the held record.
        assert_eq!(
            rig.handle(&[record("m2", &body("k", answer))]).await,
            returned(&[])
        );
        assert_eq!(
            (rig.effects(), rig.queues.letters().len()),
            (1, 2),
            "{answer}"
        );
    }
    let (rig, text) = answered(Policy::Hold, false, 503).await;
    assert_eq!(text, returned(&["m"]));
    assert_eq!(
        rig.handle(&[record("m", &body("k", 503))]).await,
        returned(&["m"])
    );
    assert_eq!(rig.effects(), 1);
}

#[tokio::test]
async fn a_refused_connection_did_not_happen() {
    for policy in [Policy::Rerun, Policy::Hold] {
        let rig = Rig::new(plan(policy, true)).await;
        // A port that was free a moment ago.
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", closed.local_addr().unwrap());
        drop(closed);
        let worker = rig.cold_to(target_at(&url, Duration::from_secs(5)));
        let event = rig.event(&[record("m", &body("k", 200))]);
        let answer = worker.handle(event).await;
        assert_eq!(answer.batch_item_failures.len(), 1);
        let kept = rig.record("queue#k").unwrap();
        assert_eq!(kept.lease, Some(RELEASED));
        assert_eq!(kept.error.unwrap().code, "connect");
    }
}

#[tokio::test]
async fn n35_a_mended_configuration_runs_what_was_refused() {
    for answer in [401, 404] {
        let mended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let healthy = std::sync::Arc::clone(&mended);
        let rig = Rig::answering(Plan::default(), move |_| {
            let healthy = healthy.load(std::sync::atomic::Ordering::SeqCst);
            Reply::status(if healthy { 200 } else { answer })
        })
        .await;
        assert_eq!(
            rig.handle(&[record("m", &body("k", 0))]).await,
            returned(&["m"])
        );
        mended.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(
            rig.handle(&[record("m", &body("k", 0))]).await,
            returned(&[])
        );
        assert_eq!(rig.status("queue#k"), Some(Status::Completed));
        // Both attempts presented the same downstream key.
        let seen = rig.stub.seen();
        let keys: Vec<_> = seen
            .iter()
            .map(|seen| seen.header("idempotency-key"))
            .collect();
        assert_eq!(keys[0], keys[1]);
        let attempts: Vec<_> = seen
            .iter()
            .map(|seen| seen.header("firstclaim-attempt"))
            .collect();
        assert_eq!(attempts, [Some("1"), Some("2")]);
    }
}

#[tokio::test]
async fn retry_after_is_honoured() {
    for (text, expected) in [("120", 120), ("0", 1), ("999999", 42_300)] {
        let rig = Rig::answering(Plan::default(), move |_| Reply::Answer {
            status: 429,
            headers: vec![("retry-after", text.to_owned())],
            body: Vec::new(),
        })
        .await;
        rig.handle(&[record("m", &body("k", 0))]).await;
        assert_eq!(rig.queues.visibility("m"), Some(expected), "{text}");
    }
}

#[tokio::test]
async fn the_wait_grows_with_the_receives() {
    for (receives, full) in [("1", 30), ("3", 120), ("20", 3600)] {
        let rig = Rig::new(Plan::default()).await;
        let mut message = record("m", &body("k", 503));
        message["attributes"]["ApproximateReceiveCount"] = receives.into();
        rig.handle(&[message]).await;
        let wait = rig.queues.visibility("m").unwrap();
        assert!((full / 2..=full).contains(&wait), "{receives}: {wait}");
    }
}

#[tokio::test]
async fn a_slow_target_is_given_up_before_the_claim_ends() {
    let plan = Plan {
        timeout: Duration::from_secs(600),
        ..Plan::default()
    };
    let rig = Rig::answering(plan, answer_in_body).await;
    let deadline = crate::rig::NOW.after(Duration::from_secs(4));
    let records = serde_json::json!({"Records": [record("m", &body("k", 0))]});
    let answer = rig.worker.handle(rig.event_until(deadline, records)).await;
    assert_eq!(answer.batch_item_failures.len(), 1);
    // Given up by its own time-out, with time to record it: not cut off by the deadline.
    let kept = rig.record("queue#k").unwrap();
    assert_eq!(kept.lease, Some(RELEASED));
    assert_eq!(kept.error.unwrap().code, "timeout");
}
