//! Under `hold`: the mark before the call tells what may run again from what may not.

use std::time::Duration;

use firstclaim::record::RELEASED;
use firstclaim::store::memory::Fault;
use firstclaim::{Claims, Policy, Status};
use queue::queues::Reason;

use crate::rig::{Plan, RUN, Rig, body, record, returned};

async fn rig() -> Rig {
    Rig::new(Plan {
        policy: Policy::Hold,
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn an_operation_costs_two_writes_under_rerun_and_three_under_hold() {
    for (policy, calls) in [(Policy::Rerun, 2), (Policy::Hold, 3)] {
        let rig = Rig::new(Plan {
            policy,
            ..Plan::default()
        })
        .await;
        assert_eq!(
            rig.handle(&[record("m", &body("k", 200))]).await,
            returned(&[])
        );
        assert_eq!(rig.store.calls(), calls);
    }
}

#[tokio::test]
async fn a3_what_was_lost_before_the_call_runs_again() {
    let rig = rig().await;
    // A worker claims, marking its entry, and is killed before the call.
    let claims = Claims::new(rig.store.clone(), rig.config.clone())
        .unwrap()
        .with_source(rig.source.clone());
    let key = firstclaim::Key::new("queue", "k").unwrap();
    let deadline = rig.source_now().after(RUN);
    let claimed = claims
        .once(key)
        .deadline(deadline)
        .marks_entry()
        .claim()
        .await;
    drop(claimed.unwrap());
    assert_eq!(
        rig.handle(&[record("m", &body("k", 200))]).await,
        returned(&["m"])
    );
    rig.source.advance(RUN + Duration::from_secs(2));
    assert_eq!(
        rig.handle(&[record("m", &body("k", 200))]).await,
        returned(&[])
    );
    assert_eq!(
        (rig.effects(), rig.status("queue#k")),
        (1, Some(Status::Completed))
    );
    assert_eq!(rig.queues.letters(), []);
}

#[tokio::test]
async fn a_mark_that_can_not_be_written_keeps_the_call_from_going_out() {
    let rig = rig().await;
    rig.store.plan([Fault::None]);
    rig.store.plan([Fault::Refuse; 4]);
    assert_eq!(
        rig.handle(&[record("m", &body("k", 200))]).await,
        returned(&["m"])
    );
    assert_eq!(rig.effects(), 0);
    assert_eq!(rig.record("queue#k").unwrap().lease, Some(RELEASED));
    assert_eq!(rig.queues.visibilities(), [], "the queue's own visibility");
    assert_eq!(
        rig.handle(&[record("m", &body("k", 200))]).await,
        returned(&[])
    );
    assert_eq!(rig.effects(), 1);
}

#[tokio::test]
async fn p21_a_mark_whose_reply_is_lost_lets_the_call_go_out_once() {
    let rig = rig().await;
    rig.store.plan([Fault::None, Fault::LoseReply]);
    assert_eq!(
        rig.handle(&[record("m", &body("k", 200))]).await,
        returned(&[])
    );
    assert_eq!(rig.effects(), 1);
}

#[tokio::test]
async fn a3_what_was_cut_off_in_its_call_stays_held() {
    let rig = rig().await;
    let records = serde_json::json!({"Records": [record("m", &body("k", 0))]});
    let killed = rig.cold();
    let event = rig.event_until(rig.source_now().after(RUN), records);
    let run = tokio::spawn(async move { killed.handle(event).await });
    crate::batches::wait_until(|| rig.effects() == 1).await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    rig.source.advance(RUN + Duration::from_secs(2));
    assert_eq!(
        rig.handle(&[record("m", &body("k", 0))]).await,
        returned(&[])
    );
    assert_eq!(rig.effects(), 1);
    assert_eq!(rig.queues.letters()[0].reason, Reason::Held);
}

#[tokio::test]
async fn n48_an_event_that_kills_each_worker_is_held_and_dead_lettered() {
    for policy in [Policy::Rerun, Policy::Hold] {
        let rig = Rig::new(Plan {
            policy,
            ..Plan::default()
        })
        .await;
        let claims = Claims::new(rig.store.clone(), rig.config.clone())
            .unwrap()
            .with_source(rig.source.clone());
        for _ in 0..rig.config.silent_limit {
            let key = firstclaim::Key::new("queue", "k").unwrap();
            let deadline = rig.source_now().after(RUN);
            let once = claims.once(key).deadline(deadline).marks_entry();
            drop(once.claim().await.unwrap());
            rig.source.advance(RUN + Duration::from_secs(3));
        }
        let answer = rig.handle(&[record("m", &body("k", 200))]).await;
        assert_eq!(answer, returned(&[]));
        assert_eq!(rig.queues.letters()[0].reason, Reason::Held);
        assert_eq!(rig.effects(), 0);
    }
}
