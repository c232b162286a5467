//! The end of a claim takes no longer than the claim has time, whatever the store does.

use std::future::Future;
use std::time::Duration;

use firstclaim::clock::Source;
use firstclaim::record::RELEASED;
use firstclaim::{
    Answer, ClaimError, EntryError, Failure, Policy, RunError, Status, StoreError, StoredFailure,
};

use crate::lab::{Broken, LEASE, Lab, Rule, SECOND, broken, held, operation_failure, quiet, until};

/// A lease of which the grace leaves one second.
const SHORT: Duration = Duration::from_secs(3);

/// What a late write gets all the same.
const LAST_TRY: Duration = Duration::from_secs(2);

fn failure() -> StoredFailure {
    StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    }
}

/// What a call ends with, and how long it took on the clock of the lab.
async fn timed<T: Send + 'static>(
    lab: &Lab,
    call: impl Future<Output = T> + Send + 'static,
) -> (T, Duration) {
    let started = lab.source.now();
    let call = tokio::spawn(call);
    lab.advance_until(SECOND / 10, "it ends", || call.is_finished())
        .await;
    (call.await.unwrap(), lab.source.now().since(started))
}

#[tokio::test]
async fn n38_a_completion_that_hangs_is_given_up_with_its_claim() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Hang(0));
    let ran = lab
        .once()
        .lease(SHORT)
        .run(|_work| async { Ok::<_, Failure<Broken>>(1) });
    let (ran, took) = timed(&lab, ran).await;
    assert_eq!(ran.unwrap().answer, Answer::NotRecorded(1));
    assert!(took <= SHORT, "{took:?}");
    assert_eq!(lab.wire.log(), ["claim", "finish"]);

    // With more time it is given that, and no more.
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Hang(0));
    let claim = held(lab.once()).await;
    let (outcome, took) = timed(&lab, claim.complete(1)).await;
    assert_eq!(outcome.answer, Answer::NotRecorded(1));
    assert_eq!(took, LEASE - 2 * SECOND);
}

#[tokio::test]
async fn p20_p12_a_completion_that_comes_late_gets_one_real_try_and_no_more() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.advance(10 * LEASE);
    lab.wire.rule("finish", Rule::HoldReply);
    let finish = tokio::spawn(claim.complete(1));
    until("it is sent", || lab.wire.count("finish") == 1).await;
    lab.advance(SECOND);
    quiet().await;
    lab.wire.clear("finish");
    assert_eq!(finish.await.unwrap().answer, Answer::Performed(1));

    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.advance(10 * LEASE);
    lab.wire.rule("finish", Rule::Hang(0));
    let (outcome, took) = timed(&lab, claim.complete(1)).await;
    assert_eq!(outcome.answer, Answer::NotRecorded(1));
    assert_eq!((took, lab.wire.count("finish")), (LAST_TRY, 1));
}

#[tokio::test]
async fn n38_an_end_of_any_kind_that_hangs_is_told_when_the_time_is_over() {
    for (end, call) in [(0, "finish"), (1, "release"), (2, "suspend")] {
        let lab = Lab::new();
        let claim = held(lab.once().lease(SHORT).policy(Policy::Hold)).await;
        lab.wire.rule(call, Rule::Hang(0));
        let ending = async move {
            match end {
                0 => claim.fail(failure()).await,
                1 => claim.release(failure()).await,
                _ => claim.give_up(failure()).await,
            }
        };
        let (ended, took) = timed(&lab, ending).await;
        let error = ended.unwrap_err();
        assert!(matches!(error, StoreError::Unanswered { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the store did not answer within 2s, all that the claim had left"
        );
        assert_eq!((took, lab.wire.count(call)), (LAST_TRY, 1));
    }
}

#[tokio::test]
async fn n38_a_failed_operation_tells_its_own_error_though_its_end_hangs() {
    let lab = Lab::new();
    lab.wire.rule("release", Rule::Hang(0));
    let ran = lab
        .once()
        .lease(SHORT)
        .run(|_work| async { Err::<usize, _>(Failure::unknown("timeout", broken("no answer"))) });
    let (ran, took) = timed(&lab, ran).await;
    let Err(RunError::Operation {
        failure, record, ..
    }) = ran
    else {
        panic!("{ran:?}");
    };
    assert_eq!(failure.error, broken("no answer"));
    assert!(matches!(record, Some(StoreError::Unanswered { .. })));
    assert!(took <= SHORT, "{took:?}");
}

#[tokio::test]
async fn p28_a_companion_that_hangs_leaves_time_for_the_record() {
    // Of the lease, two seconds are the grace.
    for lease in [3 * SECOND, 10 * SECOND, LEASE] {
        let lab = Lab::new();
        lab.wire.rule("put_companion", Rule::Hang(0));
        let claim = held(lab.once().lease(lease)).await;
        let (outcome, took) = timed(&lab, claim.complete("x".repeat(4096))).await;
        assert!(
            matches!(outcome.answer, Answer::Performed(_)),
            "{outcome:?}"
        );
        let left = lease - 2 * SECOND;
        assert!(took <= (left / 4).max(SECOND / 2), "{took:?} of {left:?}");
        assert_eq!(lab.record().status, Status::Completed);
    }
}

#[tokio::test]
async fn n38_a_claim_that_came_too_late_and_can_not_be_given_back_is_told() {
    let lab = Lab::new();
    lab.wire.rule("claim", Rule::HoldReply);
    lab.wire.rule("release", Rule::Hang(0));
    let claiming = tokio::spawn(lab.once().lease(SHORT).claim());
    until("it is sent", || lab.wire.count("claim") == 1).await;
    lab.advance(SHORT);
    lab.wire.clear("claim");
    let (claimed, took) = timed(&lab, async { claiming.await.unwrap() }).await;
    let error = claimed.unwrap_err();
    assert!(
        matches!(error, ClaimError::Store(StoreError::Unanswered { .. })),
        "{error:?}"
    );
    assert_eq!(took, LAST_TRY);
}

#[tokio::test]
async fn n38_a_mark_or_a_step_that_hangs_ends_with_the_claim() {
    let lab = Lab::new();
    let once = lab.once().policy(Policy::Hold).marks_entry();
    let ran = {
        lab.wire.rule("enter", Rule::Hang(0));
        once.run(|work| async move {
            match work.enter().await {
                Err(EntryError::Store(StoreError::Unanswered { .. })) => Err::<usize, _>(
                    Failure::did_not_happen("not_entered", broken("not entered")),
                ),
                other => panic!("{other:?}"),
            }
        })
    };
    let (ran, took) = timed(&lab, ran).await;
    operation_failure(ran);
    assert_eq!(took, LEASE - 2 * SECOND);
    assert_eq!(lab.record().lease, Some(RELEASED));

    let lab = Lab::new();
    lab.wire.rule("checkpoint", Rule::Hang(0));
    let claim = held(lab.once()).await;
    let step = async move {
        let step = claim.step("charge", || async { Ok::<_, Failure<Broken>>(1) });
        step.await.unwrap_err().code
    };
    let (code, took) = timed(&lab, step).await;
    assert_eq!(
        (code.as_str(), took),
        ("step_not_recorded", LEASE - 2 * SECOND)
    );
}
