//! How an attempt ends, and what that leaves for the next one, under both policies.

use std::future::pending;

use firstclaim::protocol::Settlement;
use firstclaim::record::{RELEASED, SUSPENDED};
use firstclaim::{
    Answer, Config, Ending, Failure, Policy, RunError, Status, StoreError, StoredFailure,
};

use crate::lab::{
    Broken, LEASE, Lab, Rule, SECOND, broken, held, key, operation_failure, quiet, until,
};

async fn failing(lab: &Lab, policy: Policy, ending: Ending) -> (Failure<Broken>, u32) {
    let ran = lab.once().policy(policy).run(|_work| async {
        lab.effect();
        Err::<usize, _>(Failure {
            ending,
            code: "declined".to_owned(),
            error: broken("the card was declined"),
        })
    });
    operation_failure(ran.await)
}

#[tokio::test]
async fn p28_p88_the_caller_gets_its_own_error_whatever_the_ending() {
    for ending in [Ending::Permanent, Ending::DidNotHappen, Ending::Unknown] {
        for policy in [Policy::Rerun, Policy::Hold] {
            let lab = Lab::new();
            let (failure, attempt) = failing(&lab, policy, ending).await;
            assert_eq!(failure.error, broken("the card was declined"));
            assert_eq!((failure.ending, attempt), (ending, 1));
        }
    }
}

#[tokio::test]
async fn a_permanent_failure_answers_every_duplicate_under_both_policies() {
    for policy in [Policy::Rerun, Policy::Hold] {
        let lab = Lab::new();
        failing(&lab, policy, Ending::Permanent).await;
        assert_eq!(lab.record().status, Status::Failed);
        let answer = lab.answer(lab.once().policy(policy)).await;
        let remembered = StoredFailure {
            code: "declined".to_owned(),
            message: "the card was declined".to_owned(),
        };
        assert_eq!(answer, Answer::ReplayedFailure(remembered));
        assert_eq!(lab.effects(), 1);
    }
}

#[tokio::test]
async fn a31_a_failure_that_did_not_happen_is_released_under_both_policies() {
    for policy in [Policy::Rerun, Policy::Hold] {
        let lab = Lab::new();
        failing(&lab, policy, Ending::DidNotHappen).await;
        let record = lab.record();
        assert_eq!((record.lease, record.attempt), (Some(RELEASED), 1));
        let error = record.error.unwrap();
        assert_eq!((error.code.as_str(), error.attempt), ("declined", 1));
        // At once, by anybody.
        let once = lab.once().policy(policy);
        assert_eq!(lab.answer(once).await, Answer::Performed(2));
        assert_eq!(
            (lab.record().attempt, lab.record().status),
            (2, Status::Completed)
        );
    }
}

#[tokio::test]
async fn a31_an_unknown_outcome_is_released_under_rerun() {
    let lab = Lab::new();
    failing(&lab, Policy::Rerun, Ending::Unknown).await;
    assert_eq!(lab.record().lease, Some(RELEASED));
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(2));
}

#[tokio::test]
async fn a3_a40_an_unknown_outcome_is_held_under_hold() {
    let lab = Lab::new();
    failing(&lab, Policy::Hold, Ending::Unknown).await;
    assert_eq!(lab.record().lease, Some(SUSPENDED));
    // Also for those who would run it again.
    for policy in [Policy::Hold, Policy::Rerun] {
        let outcome = lab.run(lab.once().policy(policy)).await.unwrap();
        assert_eq!(outcome.answer, Answer::Held { since: None });
        assert_eq!(outcome.attempt, 1);
    }
    lab.advance(30 * 24 * 3600 * SECOND);
    let answer = lab.answer(lab.once()).await;
    assert_eq!(answer, Answer::Held { since: None });
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn a40_an_operator_settles_a_held_record() {
    use firstclaim::record::Data;

    for (settlement, wanted) in [
        (
            Settlement::Result(Data::Inline("7".to_owned())),
            Answer::Replayed(7),
        ),
        (
            Settlement::Rerun {
                new_generation: false,
            },
            Answer::Performed(2),
        ),
        (Settlement::Forget, Answer::Performed(2)),
    ] {
        let lab = Lab::new();
        failing(&lab, Policy::Hold, Ending::Unknown).await;
        lab.settle(settlement).await;
        let once = lab.once().policy(Policy::Hold);
        assert_eq!(lab.answer(once).await, wanted);
    }
}

#[tokio::test]
async fn a3_p27_after_a_crash_hold_keeps_the_effect_single_and_tells_since_when() {
    let lab = Lab::new();
    lab.crash(lab.once().policy(Policy::Hold)).await;
    lab.effect();
    let lapse = lab.record().lease;
    let before = lab.answer(lab.once()).await;
    assert!(matches!(before, Answer::InProgress { .. }), "{before:?}");
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Held { since: lapse });
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn a3_after_a_crash_under_rerun_the_target_sees_the_same_key_twice() {
    let lab = Lab::new();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let claim = held(lab.once()).await;
        keys.push(claim.downstream_key("charge"));
        drop(claim);
        lab.advance(LEASE);
    }
    assert_eq!(keys[0], keys[1]);
    assert_eq!(lab.record().attempt, 2);
}

#[tokio::test]
async fn a3_a_newcomer_under_hold_does_not_take_over_what_was_claimed_under_rerun() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(LEASE);
    let answer = lab.answer(lab.once().policy(Policy::Hold)).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn a_record_once_taken_over_under_hold_stays_under_hold() {
    let lab = Lab::new();
    failing(&lab, Policy::Rerun, Ending::DidNotHappen).await;
    lab.crash(lab.once().policy(Policy::Hold)).await;
    lab.advance(LEASE);
    let answer = lab.answer(lab.once().policy(Policy::Rerun)).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
}

#[tokio::test]
async fn a_record_claimed_under_hold_is_suspended_by_a_later_owner_under_rerun_too() {
    let lab = Lab::new();
    failing(&lab, Policy::Hold, Ending::DidNotHappen).await;
    failing(&lab, Policy::Rerun, Ending::Unknown).await;
    assert_eq!(lab.record().lease, Some(SUSPENDED));
}

#[tokio::test]
async fn p29_n38_a_panic_is_released_under_rerun_suspended_under_hold_and_goes_on() {
    for (policy, lease) in [(Policy::Rerun, RELEASED), (Policy::Hold, SUSPENDED)] {
        let lab = Lab::new();
        let run = {
            let once = lab.once().policy(policy);
            tokio::spawn(once.run(|_work| async {
                quiet().await;
                if true {
                    panic!("boom");
                }
                Ok::<usize, Failure<Broken>>(1)
            }))
        };
        let panic = run.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"boom"));
        let record = lab.record();
        assert_eq!(record.lease, Some(lease));
        assert_eq!(record.error.unwrap().code, "panic");
    }
}

#[tokio::test]
async fn p29_a_panic_before_the_first_await_is_caught_too_and_goes_on_if_the_store_is_gone() {
    fn explode() -> std::future::Ready<Result<usize, Failure<Broken>>> {
        panic!("early")
    }
    let lab = Lab::new();
    lab.wire.rule("release", Rule::Refuse);
    let run = tokio::spawn(lab.once().run(|_work| explode()));
    let panic = run.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"early"));
    assert_eq!(lab.wire.count("release"), 1);
    lab.wire.clear("release");
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn n38_a_dropped_run_lapses() {
    let lab = Lab::new();
    let run = tokio::spawn(
        lab.once()
            .run(|_work| pending::<Result<usize, Failure<Broken>>>()),
    );
    until("it is claimed", || !lab.memory.records().is_empty()).await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn p80_p88_an_end_that_can_not_be_written_does_not_hide_the_operations_error() {
    for (ending, write) in [
        (Ending::Unknown, "release"),
        (Ending::DidNotHappen, "release"),
        (Ending::Permanent, "finish"),
    ] {
        let lab = Lab::new();
        lab.wire.rule(write, Rule::Refuse);
        let ran = lab.once().run(|_work| async {
            Err::<usize, _>(Failure {
                ending,
                code: "declined".to_owned(),
                error: broken("no"),
            })
        });
        let (ran, ()) = tokio::join!(ran, lab.pass(10 * SECOND, SECOND / 10));
        let RunError::Operation {
            failure, record, ..
        } = ran.unwrap_err()
        else {
            panic!("the operation ran");
        };
        assert_eq!(failure.error, broken("no"));
        assert!(
            matches!(record, Some(StoreError::Unavailable { .. })),
            "{record:?}"
        );
    }
}

#[tokio::test]
async fn p87_a_request_refused_before_the_claim_makes_no_call() {
    let lab = Lab::new();
    lab.run(lab.process().once(key())).await.unwrap_err();
    assert_eq!((lab.failing.calls(), lab.effects()), (0, 0));
}

#[tokio::test]
async fn a_library_error_of_the_operation_is_one_of_its_own() {
    let lab = Lab::new();
    let inner = lab.once();
    let ran = lab.once().run(|_work| async {
        lab.effect();
        // The operation claims its own key: somebody (itself) is at it.
        let nested = inner.run(|_work| async { Ok::<usize, Failure<Broken>>(0) });
        match nested.await.unwrap().answer {
            Answer::InProgress { .. } => Err::<usize, Failure<Broken>>(broken("in use").into()),
            other => panic!("{other:?}"),
        }
    });
    let (failure, _) = operation_failure(ran.await);
    assert_eq!(
        (failure.ending, failure.error),
        (Ending::Unknown, broken("in use"))
    );
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn p17_a_nested_operation_has_a_record_of_its_own() {
    let lab = Lab::new();
    let claims = lab.process();
    let inner_key = firstclaim::Key::new("orders.inner", "order-42").unwrap();
    for (outer, inner) in [(Answer::Performed(1), 2), (Answer::Replayed(1), 2)] {
        let outcome = claims.once(key()).lease(LEASE).run(|_work| async {
            let number = lab.effect();
            let once = claims.once(inner_key.clone()).lease(LEASE);
            assert_eq!(lab.answer(once).await, Answer::Performed(inner));
            Ok::<usize, Failure<Broken>>(number)
        });
        assert_eq!(outcome.await.unwrap().answer, outer);
        let once = claims.once(inner_key.clone()).lease(LEASE);
        assert_eq!(lab.answer(once).await, Answer::Replayed(inner));
    }
}

#[tokio::test]
async fn n48_takeovers_of_an_operation_that_kills_its_worker_are_bounded() {
    let lab = Lab::new();
    for attempt in 1..=5 {
        let claim = held(lab.once()).await;
        assert_eq!(claim.attempt(), attempt);
        drop(claim);
        lab.advance(LEASE);
    }
    let outcome = lab.run(lab.once()).await.unwrap();
    assert!(matches!(outcome.answer, Answer::Held { .. }), "{outcome:?}");
    assert_eq!((outcome.attempt, lab.effects()), (5, 0));
}

#[tokio::test]
async fn n48_the_bound_is_configurable_and_counts_from_the_last_word() {
    let lab = Lab::new();
    let config = Config {
        silent_limit: 2,
        ..Config::default()
    };
    let once = || lab.process_with(config.clone()).once(key()).lease(LEASE);
    lab.crash(once()).await;
    lab.advance(LEASE);
    // A failure that is told starts the count again.
    let told = held(once()).await;
    let failure = StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    };
    told.give_up(failure).await.unwrap();
    for _ in 0..2 {
        lab.crash(once()).await;
        lab.advance(LEASE);
    }
    let answer = lab.answer(once()).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");

    // So does a settle.
    let rerun = Settlement::Rerun {
        new_generation: true,
    };
    lab.settle(rerun).await;
    for _ in 0..2 {
        lab.crash(once()).await;
        lab.advance(LEASE);
    }
    let answer = lab.answer(once()).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
}

#[tokio::test]
async fn messages_of_failures_are_bounded_at_a_characters_border() {
    let lab = Lab::new();
    let long = "ü".repeat(2000);
    let ran = lab.once().run(|_work| async {
        Err::<usize, _>(Failure::permanent("declined", Broken(long.clone())))
    });
    operation_failure(ran.await);
    let Answer::ReplayedFailure(failure) = lab.answer(lab.once()).await else {
        panic!("not remembered");
    };
    assert_eq!(failure.message, "ü".repeat(512));
}

#[tokio::test]
async fn a_settle_is_seen_by_a_claim_that_was_lost() {
    // The record was settled while its owner, thought dead, went on: its word comes too late.
    let lab = Lab::new();
    let zombie = held(lab.once().policy(Policy::Hold)).await;
    lab.advance(LEASE);
    lab.settle(Settlement::Rerun {
        new_generation: false,
    })
    .await;
    let stands = lab.record();
    assert_eq!(zombie.complete(1).await.answer, Answer::Superseded);
    assert_eq!(lab.record(), stands);
    let once = lab.once().policy(Policy::Hold);
    assert_eq!(lab.answer(once).await, Answer::Performed(1));
}
