//! Leases that are renewed while their work runs.

use std::time::Duration;

use firstclaim::clock::{EpochMillis, Source};
use firstclaim::record::RELEASED;
use firstclaim::{Answer, Failure, Inspection, Policy};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::lab::{Broken, LEASE, Lab, Ran, Rule, SECOND, START, Wire, broken, key, quiet, until};

const HOUR: Duration = Duration::from_secs(3600);

/// How an operation of these tests ended, and what it knew.
type Working = (
    JoinHandle<Ran<usize>>,
    oneshot::Sender<()>,
    oneshot::Receiver<EpochMillis>,
);

/// An operation that works until it is told to end; when its claim is lost it says at what time and
/// goes on working.
fn work(lab: &Lab, once: firstclaim::Once<Wire>) -> Working {
    let (end, ended) = oneshot::channel::<()>();
    let (lost, when_lost) = oneshot::channel();
    let lab = lab.clone();
    let task = tokio::spawn(once.run(|work| async move {
        let watching = {
            let (work, source) = (work.clone(), lab.source.clone());
            tokio::spawn(async move {
                work.lost().await;
                let _ = lost.send(source.now());
            })
        };
        let _ = ended.await;
        watching.abort();
        Ok::<_, Failure<Broken>>(lab.effect())
    }));
    (task, end, when_lost)
}

#[tokio::test]
async fn n29_a_long_operation_under_a_short_lease_is_never_taken_over() {
    let lab = Lab::new();
    let (task, end, _lost) = work(&lab, lab.once().renewed(HOUR));
    for _ in 0..20 {
        lab.pass(10 * SECOND, SECOND).await;
        let answer = lab.answer(lab.once()).await;
        assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    }
    // At a third of the lease, 200 seconds long.
    assert_eq!(lab.wire.count("renew"), 20);
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn a15_nothing_is_written_or_left_running_after_the_end() {
    let lab = Lab::new();
    let (task, end, _lost) = work(&lab, lab.once().renewed(HOUR));
    lab.pass(25 * SECOND, SECOND).await;
    end.send(()).unwrap();
    task.await.unwrap().unwrap();
    let log = lab.wire.log();
    assert_eq!(log, ["claim", "renew", "renew", "finish"]);
    lab.pass(HOUR, 60 * SECOND).await;
    assert_eq!(lab.wire.log(), log);
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert_eq!(tasks, 0);
}

#[tokio::test]
async fn a15_a_renewal_that_hangs_does_not_hold_up_the_end() {
    let lab = Lab::new();
    let (task, end, _lost) = work(&lab, lab.once().renewed(HOUR));
    lab.wire.rule("renew", Rule::Hold);
    lab.advance_until(SECOND, "it is renewed", || lab.wire.count("renew") == 1)
        .await;
    end.send(()).unwrap();
    until("the run ends", || task.is_finished()).await;
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
    lab.wire.clear("renew");
    quiet().await;
    assert_eq!(lab.record().lease, None);
}

#[tokio::test]
async fn a14_a_renewal_whose_reply_was_lost_is_a_renewal() {
    use firstclaim::store::memory::Fault;

    let lab = Lab::new();
    lab.failing
        .plan([Fault::None, Fault::Repeat, Fault::LoseReply]);
    let (task, end, _lost) = work(&lab, lab.once().renewed(HOUR));
    lab.pass(3 * LEASE, SECOND).await;
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn a19_a_store_that_refuses_for_half_a_lease_loses_nothing() {
    let lab = Lab::new();
    let (task, end, mut lost) = work(&lab, lab.once().renewed(HOUR));
    lab.pass(9 * SECOND, SECOND).await;
    lab.wire.rule("renew", Rule::Refuse);
    lab.pass(15 * SECOND, SECOND / 2).await;
    assert!(lab.wire.count("renew") > 3, "{:?}", lab.wire.log());
    lab.wire.clear("renew");
    lab.pass(2 * LEASE, SECOND / 2).await;
    assert!(lost.try_recv().is_err());
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn a19_a_store_that_refuses_for_a_whole_lease_ends_the_claim_before_others_see_it_lapse() {
    for rule in [Rule::Refuse, Rule::Hold] {
        let lab = Lab::new();
        let (task, end, mut lost) = work(&lab, lab.once().renewed(HOUR));
        lab.pass(12 * SECOND, SECOND / 10).await;
        let stored = lab.record().lease.unwrap();
        assert_eq!(stored, START.after(10 * SECOND).after(LEASE));
        lab.wire.rule("renew", rule);
        let mut when = None;
        lab.advance_until(SECOND / 10, "the loss is told", || {
            when = when.or_else(|| lost.try_recv().ok());
            when.is_some()
        })
        .await;
        // A grace before the stored end.
        assert_eq!(when, Some(stored.before(2 * SECOND)));
        // The last renewal that was sent is over too: nothing is tried any more.
        let renewals = lab.wire.count("renew");
        lab.pass(LEASE, SECOND).await;
        assert_eq!(lab.wire.count("renew"), renewals);
        lab.wire.clear("renew");
        assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
        end.send(()).unwrap();
        // The operation was let end, and its result dropped for the winner's.
        assert_eq!(task.await.unwrap().unwrap().answer, Answer::Replayed(1));
    }
}

#[tokio::test]
async fn n29_an_owner_that_was_taken_over_learns_it_at_its_next_renewal() {
    let lab = Lab::new();
    let (task, end, mut lost) = work(&lab, lab.once().renewed(HOUR));
    lab.pass(3 * SECOND, SECOND).await;
    let mut record = lab.record();
    record.owner = Some(firstclaim::Owner::new("somebody-else"));
    lab.memory.put(record);
    lab.advance_until(SECOND, "the loss is told", || lost.try_recv().is_ok())
        .await;
    assert_eq!(lab.wire.count("renew"), 1);
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Superseded);
}

#[tokio::test]
async fn the_total_is_capped() {
    let lab = Lab::new();
    let total = 45 * SECOND;
    let (task, end, mut lost) = work(&lab, lab.once().renewed(total));
    let mut when = None;
    lab.advance_until(SECOND / 10, "the loss is told", || {
        when = when.or_else(|| lost.try_recv().ok());
        when.is_some()
    })
    .await;
    assert_eq!(lab.record().lease, Some(START.after(total)));
    assert_eq!(when, Some(START.after(total).before(2 * SECOND)));
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn the_total_counts_from_the_claim_and_not_from_the_wait_for_it() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let once = lab.once().renewed(LEASE + 20 * SECOND).wait_for(HOUR);
    let (task, end, mut lost) = work(&lab, once);
    lab.advance_until(SECOND, "it is taken over", || lab.record().attempt == 2)
        .await;
    let taken = lab.source.now();
    lab.pass(LEASE + 10 * SECOND, SECOND / 10).await;
    assert!(lost.try_recv().is_err());
    assert!(lab.record().lease.unwrap() > taken.after(LEASE));
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn a_lease_that_is_hardly_longer_than_the_grace_is_renewed_in_time() {
    let lab = Lab::new();
    let once = lab.process().once(key()).lease(2500 * SECOND / 1000);
    let (task, end, mut lost) = work(&lab, once.renewed(HOUR));
    lab.pass(20 * SECOND, SECOND / 10).await;
    assert!(lost.try_recv().is_err());
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn the_window_stays_behind_a_renewed_lease() {
    let lab = Lab::new();
    let window = 961 * SECOND;
    let once = lab.once().window(window).renewed(HOUR);
    let (task, end, _lost) = work(&lab, once);
    for _ in 0..60 {
        lab.pass(30 * SECOND, SECOND).await;
        let record = lab.record();
        assert!(record.expiration.unwrap().millis() > record.lease.unwrap());
    }
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn an_inspection_is_renewed_like_the_work() {
    let lab = Lab::new();
    let run = {
        let lab = lab.clone();
        tokio::spawn(async move {
            let source = lab.source.clone();
            lab.once()
                .renewed(HOUR)
                .run_inspecting(
                    |_work| async move {
                        source.sleep(2 * LEASE).await;
                        Ok(Inspection::Proceed)
                    },
                    |_work| async {
                        lab.source.sleep(2 * LEASE).await;
                        Ok::<_, Failure<Broken>>(lab.effect())
                    },
                )
                .await
        })
    };
    lab.advance_until(SECOND, "the run ends", || run.is_finished())
        .await;
    assert_eq!(run.await.unwrap().unwrap().answer, Answer::Performed(1));
    assert_eq!((lab.wire.count("renew"), lab.record().attempt), (11, 1));
}

#[tokio::test]
async fn a_renewal_on_its_way_when_the_claim_was_released_revives_nothing() {
    let lab = Lab::new();
    lab.wire.rule("renew", Rule::Hold);
    let failing = lab
        .once()
        .policy(Policy::Hold)
        .renewed(HOUR)
        .run(|_work| async {
            lab.source.sleep(11 * SECOND).await;
            Err::<usize, _>(Failure::did_not_happen("busy", broken("later")))
        });
    let (ran, ()) = tokio::join!(failing, lab.pass(15 * SECOND, SECOND));
    ran.unwrap_err();
    assert_eq!(lab.wire.count("renew"), 1);
    lab.wire.clear("renew");
    quiet().await;
    assert_eq!(lab.record().lease, Some(RELEASED));
}

#[tokio::test]
async fn a_deadline_is_not_renewed() {
    let lab = Lab::new();
    let once = lab
        .process()
        .once(key())
        .deadline(START.after(LEASE))
        .renewed(HOUR);
    let (task, end, _lost) = work(&lab, once);
    lab.pass(25 * SECOND, SECOND).await;
    assert_eq!(lab.wire.log(), ["claim"]);
    end.send(()).unwrap();
    assert_eq!(task.await.unwrap().unwrap().answer, Answer::Performed(1));
}
