//! A step that is called again in one attempt: after a time-out, after an error of the store, or by
//! two tasks at once.

use std::future;

use firstclaim::store::memory::Fault;
use firstclaim::{Ending, Failure, Work};

use crate::lab::{Broken, Done, LEASE, Lab, Rule, SECOND, Wire, held, until};

/// One step of an effect, whose number is its value.
async fn charge(lab: &Lab, work: &Work<Wire>) -> Done<usize> {
    work.step("charge", || async {
        Ok::<_, Failure<Broken>>(lab.effect())
    })
    .await
}

#[tokio::test]
async fn p27_a_step_whose_future_is_dropped_while_it_is_recorded_does_not_run_again() {
    // The request is lost; or it lands, and its answer is.
    for rule in [Rule::Hold, Rule::HoldReply] {
        let lab = Lab::new();
        let claim = held(lab.once()).await;
        lab.wire.rule("checkpoint", rule);
        tokio::select! {
            biased;
            done = charge(&lab, &claim) => panic!("it was recorded: {done:?}"),
            () = until("it is sent", || lab.wire.count("checkpoint") == 1) => {}
        }
        lab.wire.clear("checkpoint");
        assert_eq!(charge(&lab, &claim).await.unwrap(), 1);
        assert_eq!(lab.wire.log(), ["claim", "checkpoint", "checkpoint"]);
        assert_eq!(charge(&lab, &claim).await.unwrap(), 1);
        assert_eq!((lab.effects(), lab.wire.count("checkpoint")), (1, 2));
        assert_eq!(lab.record().checkpoints["charge"], "1");
    }
}

#[tokio::test]
async fn p27_a_step_that_could_not_be_recorded_is_sent_again_and_not_run_again() {
    for fault in [Fault::Refuse, Fault::LoseReply] {
        let lab = Lab::new();
        let claim = held(lab.once()).await;
        lab.failing.plan([fault; 4]);
        let (failed, ()) = tokio::join!(charge(&lab, &claim), lab.pass(5 * SECOND, SECOND / 20));
        assert_eq!(failed.unwrap_err().code, "step_not_recorded");
        assert_eq!(charge(&lab, &claim).await.unwrap(), 1);
        assert_eq!(lab.effects(), 1);
        assert_eq!(lab.record().checkpoints["charge"], "1");
        // Nothing was recorded under another name for it.
        assert_eq!(claim.checkpoints().len(), 1);
    }
}

#[tokio::test]
async fn of_two_calls_of_a_step_at_once_the_second_waits_for_the_first() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.wire.rule("checkpoint", Rule::Hold);
    let both = async { tokio::join!(charge(&lab, &claim), charge(&lab, &claim)) };
    let let_through = async {
        until("it is sent", || lab.wire.count("checkpoint") == 1).await;
        lab.wire.clear("checkpoint");
    };
    let ((first, second), ()) = tokio::join!(both, let_through);
    assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
    assert_eq!(lab.wire.log(), ["claim", "checkpoint"]);
}

#[tokio::test]
async fn whoever_waits_for_a_step_that_fails_or_is_dropped_runs_it() {
    for dropped in [false, true] {
        let lab = Lab::new();
        let claim = held(lab.once()).await;
        let fails = claim.step("charge", || async {
            if dropped {
                future::pending::<()>().await;
            }
            tokio::task::yield_now().await;
            Err::<usize, _>(Failure::did_not_happen(
                "busy",
                Broken("not now".to_owned()),
            ))
        });
        let first = async {
            tokio::select! {
                failed = fails => assert_eq!(failed.unwrap_err().code, "busy"),
                () = crate::lab::quiet() => assert!(dropped),
            }
        };
        let ((), second) = tokio::join!(first, charge(&lab, &claim));
        assert_eq!((second.unwrap(), lab.effects()), (1, 1));
    }
}

#[tokio::test]
async fn steps_of_other_names_do_not_wait() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let outer = claim.step("outer", || charge(&lab, &claim));
    assert_eq!(outer.await.unwrap(), 1);
    assert_eq!(lab.record().checkpoints.len(), 2);
}

#[tokio::test]
async fn a_step_that_waits_for_itself_waits_until_the_claims_end_and_no_longer() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let itself = claim.step("charge", || charge(&lab, &claim));
    let (ended, ()) = tokio::join!(itself, lab.pass(LEASE, SECOND));
    let failure = ended.unwrap_err();
    assert_eq!(failure.error.0, "the claim was lost during step `charge`");
    assert_eq!((failure.ending, lab.effects()), (Ending::Unknown, 0));
}

#[tokio::test]
async fn a_step_whose_value_can_not_be_kept_does_not_run_again() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let large = || async {
        lab.effect();
        Ok::<_, Failure<Broken>>("x".repeat(16 * 1024))
    };
    let failure = claim.step("charge", large).await.unwrap_err();
    assert_eq!(failure.code, "step_value");
    let failure = claim.step("charge", large).await.unwrap_err();
    assert_eq!(
        (failure.ending, failure.error.0.as_str()),
        (
            Ending::Permanent,
            "step `charge` has run in this attempt, and its value can't be kept"
        )
    );
    assert_eq!((lab.effects(), lab.wire.count("checkpoint")), (1, 0));
}

#[tokio::test]
async fn what_ran_and_was_not_recorded_is_not_sent_behind_the_end() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let work = claim.work().clone();
    lab.wire.rule("checkpoint", Rule::Hold);
    tokio::select! {
        biased;
        done = charge(&lab, &claim) => panic!("it was recorded: {done:?}"),
        () = until("it is sent", || lab.wire.count("checkpoint") == 1) => {}
    }
    lab.wire.clear("checkpoint");
    drop(claim);
    let failure = charge(&lab, &work).await.unwrap_err();
    assert_eq!(failure.error.0, "the claim was lost during step `charge`");
    assert_eq!((lab.effects(), lab.wire.count("checkpoint")), (1, 1));
}
