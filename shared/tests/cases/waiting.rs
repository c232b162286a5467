//! Waiting for the winner.

use std::time::Duration;

use firstclaim::clock::Source;
use firstclaim::{Answer, Claimed, Claims, Config, Failure, Invocation, Policy, StoredFailure};
use tokio::task::JoinHandle;

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, START, Wire, held, key, quiet, until};

fn waiter(lab: &Lab, once: firstclaim::Once<Wire>) -> JoinHandle<Answer<usize>> {
    let lab = lab.clone();
    tokio::spawn(async move { lab.answer(once).await })
}

async fn ended(lab: &Lab, task: JoinHandle<Answer<usize>>) -> Answer<usize> {
    lab.advance_until(SECOND / 10, "the waiter ends", || task.is_finished())
        .await;
    task.await.unwrap()
}

#[tokio::test]
async fn n12_a_waiter_gets_the_winners_result_and_does_not_run() {
    let lab = Lab::new();
    let winner = held(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(20 * SECOND));
    lab.pass(5 * SECOND, SECOND / 10).await;
    winner.complete(7).await;
    assert_eq!(ended(&lab, waiting).await, Answer::Replayed(7));
    assert!(
        lab.source.now() <= START.after(8 * SECOND),
        "{:?}",
        lab.source.now()
    );
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn a_waiter_gets_the_winners_failure() {
    let lab = Lab::new();
    let winner = held(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(20 * SECOND));
    quiet().await;
    let failure = StoredFailure {
        code: "declined".to_owned(),
        message: "no".to_owned(),
    };
    winner.fail(failure.clone()).await.unwrap();
    assert_eq!(ended(&lab, waiting).await, Answer::ReplayedFailure(failure));
}

#[tokio::test]
async fn a1_a_waiter_takes_over_from_the_dead_at_the_end_of_their_lease() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(2 * LEASE));
    assert_eq!(ended(&lab, waiting).await, Answer::Performed(1));
    let taken = lab.source.now().since(START);
    assert!(taken >= LEASE && taken <= LEASE + SECOND, "{taken:?}");
    assert_eq!(lab.record().attempt, 2);
}

#[tokio::test]
async fn a_waiter_takes_over_what_was_released() {
    let lab = Lab::new();
    let first = held(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(LEASE));
    lab.pass(3 * SECOND, SECOND / 10).await;
    let failure = StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    };
    first.release(failure).await.unwrap();
    assert_eq!(ended(&lab, waiting).await, Answer::Performed(1));
    assert!(lab.source.now() <= START.after(6 * SECOND));
}

#[tokio::test]
async fn a_waiter_whose_record_goes_claims_the_key() {
    let lab = Lab::new();
    let first = held(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(LEASE));
    quiet().await;
    lab.memory.remove(&key().stored());
    assert_eq!(ended(&lab, waiting).await, Answer::Performed(1));
    drop(first);
}

#[tokio::test]
async fn a_waiter_meets_what_is_held() {
    let lab = Lab::new();
    lab.crash(lab.once().policy(Policy::Hold)).await;
    let waiting = waiter(&lab, lab.once().wait_for(2 * LEASE));
    let answer = ended(&lab, waiting).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
}

#[tokio::test]
async fn at_the_end_of_its_budget_a_waiter_is_told_that_somebody_is_at_it() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(10 * SECOND));
    let Answer::InProgress { retry_after, .. } = ended(&lab, waiting).await else {
        panic!("somebody is at it");
    };
    assert_eq!(lab.source.now(), START.after(10 * SECOND));
    assert_eq!(retry_after, 20 * SECOND);
}

#[tokio::test]
async fn a_waiter_never_waits_beyond_its_own_deadline() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let once = lab.process().once(key()).deadline(START.after(5 * SECOND));
    let waiting = waiter(&lab, once.wait_for(LEASE));
    let answer = ended(&lab, waiting).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    assert_eq!(lab.source.now(), START.after(5 * SECOND));
}

#[tokio::test]
async fn a_waiter_with_too_little_time_left_to_run_still_gets_a_result() {
    let lab = Lab::new();
    let config = Config {
        min_remaining: 10 * SECOND,
        ..Config::default()
    };
    let once = || {
        let once = lab.process_with(config.clone()).once(key());
        once.deadline(START.after(15 * SECOND)).wait_for(LEASE)
    };
    let winner = held(lab.once()).await;
    let replaying = waiter(&lab, once());
    let timing_out = waiter(&lab, once());
    // 7 seconds are left, fewer than the floor: nothing can be claimed, and nothing need be.
    lab.pass(8 * SECOND, SECOND / 10).await;
    winner.complete(7).await;
    for waiting in [replaying, timing_out] {
        assert_eq!(ended(&lab, waiting).await, Answer::Replayed(7));
    }
}

#[tokio::test]
async fn a_waiter_that_can_not_run_any_more_leaves_the_lapsed_key_alone() {
    let lab = Lab::new();
    lab.crash(lab.process().once(key()).lease(8 * SECOND)).await;
    let config = Config {
        min_remaining: 10 * SECOND,
        ..Config::default()
    };
    let once = lab.process_with(config).once(key());
    let once = once.deadline(START.after(15 * SECOND)).wait_for(LEASE);
    let run = {
        let lab = lab.clone();
        tokio::spawn(async move { lab.run(once).await })
    };
    lab.advance_until(SECOND / 10, "the waiter ends", || run.is_finished())
        .await;
    let error = run.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("are left"), "{error}");
    assert_eq!((lab.effects(), lab.record().attempt), (0, 1));
}

#[tokio::test]
async fn a_waiter_may_wait_for_hours() {
    let lab = Lab::new();
    let hours = Duration::from_secs(3 * 3600);
    let winner = {
        let lab = lab.clone();
        let once = lab.once().renewed(2 * hours);
        tokio::spawn(once.run(move |_work| async move {
            lab.source.sleep(hours).await;
            Ok::<_, Failure<Broken>>(lab.effect())
        }))
    };
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    let waiting = waiter(&lab, lab.once().wait_for(2 * hours));
    lab.advance_until(2 * SECOND, "the waiter ends", || waiting.is_finished())
        .await;
    assert_eq!(waiting.await.unwrap(), Answer::Replayed(1));
    assert_eq!(winner.await.unwrap().unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn a_waiter_reads_consistently_with_growing_pauses() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let waiting = waiter(&lab, lab.once().wait_for(20 * SECOND));
    ended(&lab, waiting).await;
    let reads = lab.wire.count("read");
    assert!((10..=30).contains(&reads), "{reads}");
    // Two claims that met the record, and reads.
    assert_eq!(lab.wire.count("claim"), 2);
    assert_eq!(lab.failing.calls(), reads + 2);
}

#[tokio::test]
async fn a_store_that_fails_while_waiting_is_told_and_nothing_ran() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.wire.rule("read", Rule::Refuse);
    let run = {
        let lab = lab.clone();
        let once = lab.once().wait_for(20 * SECOND);
        tokio::spawn(async move { lab.run(once).await })
    };
    lab.advance_until(SECOND / 10, "the waiter ends", || run.is_finished())
        .await;
    assert!(run.await.unwrap().is_err());
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn of_many_waiters_in_many_processes_one_takes_over() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let claims: Vec<Claims<Wire>> = (0..10).map(|_| lab.process()).collect();
    let waiting: Vec<_> = claims
        .iter()
        .map(|claims| waiter(&lab, claims.once(key()).lease(LEASE).wait_for(3 * LEASE)))
        .collect();
    let mut performed = 0;
    for task in waiting {
        match ended(&lab, task).await {
            Answer::Performed(1) => performed += 1,
            answer => assert_eq!(answer, Answer::Replayed(1)),
        }
    }
    assert_eq!((performed, lab.effects(), lab.record().attempt), (1, 1, 2));
}

#[tokio::test]
async fn a_waiter_with_a_lease_of_its_own_waits_no_longer_than_its_invocation() {
    let lab = Lab::new();
    let winner = held(lab.once().lease(10 * LEASE)).await;
    let deadline = lab.source.now().after(10 * SECOND);
    let waits = lab.once().wait_for(60 * SECOND).claim();
    let waiter = tokio::spawn(Invocation::until(deadline).scope(waits));
    lab.advance_until(SECOND, "it is told", || waiter.is_finished())
        .await;
    let claimed = waiter.await.unwrap().unwrap();
    let Claimed::Answered(outcome) = claimed else {
        panic!("{claimed:?}");
    };
    assert!(
        matches!(outcome.answer, Answer::InProgress { .. }),
        "{outcome:?}"
    );
    assert!(lab.source.now() <= deadline, "{:?}", lab.source.now());
    drop(winner);
}
