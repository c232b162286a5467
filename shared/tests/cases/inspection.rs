//! `inspect`: asked after each claim and each takeover, before the work.

use firstclaim::record::{RELEASED, SUSPENDED};
use firstclaim::store::memory::Fault;
use firstclaim::{
    Answer, ClaimError, Config, Ending, Failure, Inspection, Policy, RunError, Status,
    StoredFailure,
};

use crate::lab::{
    Broken, LEASE, Lab, Ran, Rule, SECOND, broken, held, key, operation_failure, quiet, until,
};

type Found = Result<Inspection<usize>, Failure<Broken>>;

/// A run whose inspection finds this. How often it was asked is the second part.
async fn inspecting(lab: &Lab, policy: Policy, found: Found) -> (Ran<usize>, usize) {
    let once = lab.once().policy(policy);
    let mut asked = 0;
    let ran = once
        .run_inspecting(
            |_work| {
                asked += 1;
                std::future::ready(found)
            },
            |_work| async { Ok(lab.effect()) },
        )
        .await;
    (ran, asked)
}

fn stale() -> Answer<usize> {
    Answer::ReplayedFailure(StoredFailure {
        code: "stale".to_owned(),
        message: "closed meanwhile".to_owned(),
    })
}

fn stop() -> Found {
    Ok(Inspection::Stop("closed meanwhile".to_owned()))
}

/// A record whose owner died under `hold`.
async fn held_by_a_crash() -> Lab {
    let lab = Lab::new();
    lab.crash(lab.once().policy(Policy::Hold)).await;
    lab.advance(LEASE);
    lab
}

/// A record whose owners died too often.
async fn held_by_silence() -> Lab {
    let lab = Lab::new();
    for _ in 0..5 {
        lab.crash(lab.once()).await;
        lab.advance(LEASE);
    }
    lab
}

#[tokio::test]
async fn a_first_claim_is_inspected_and_does_as_it_says() {
    for (found, answer, effects, status) in [
        (
            Ok(Inspection::Proceed),
            Answer::Performed(1),
            1,
            Status::Completed,
        ),
        (
            Ok(Inspection::Done(9)),
            Answer::Replayed(9),
            0,
            Status::Completed,
        ),
        (stop(), stale(), 0, Status::Failed),
    ] {
        for policy in [Policy::Rerun, Policy::Hold] {
            let lab = Lab::new();
            let (ran, asked) = inspecting(&lab, policy, found.clone()).await;
            assert_eq!(ran.unwrap().answer, answer);
            assert_eq!((asked, lab.effects()), (1, effects));
            assert_eq!(lab.record().status, status);
            // A duplicate is answered by the record, not by another inspection.
            let (ran, asked) = inspecting(&lab, policy, Ok(Inspection::Proceed)).await;
            let again = ran.unwrap().answer;
            match answer {
                Answer::Performed(value) => assert_eq!(again, Answer::Replayed(value)),
                ref other => assert_eq!(&again, other),
            }
            assert_eq!(asked, 0);
        }
    }
}

#[tokio::test]
async fn a_takeover_under_rerun_is_inspected_again() {
    for (found, answer, effects) in [
        (Ok(Inspection::Proceed), Answer::Performed(1), 1),
        (Ok(Inspection::Done(9)), Answer::Replayed(9), 0),
        (stop(), stale(), 0),
    ] {
        let lab = Lab::new();
        lab.crash(lab.once()).await;
        lab.advance(LEASE);
        let (ran, asked) = inspecting(&lab, Policy::Rerun, found).await;
        assert_eq!(ran.unwrap().answer, answer);
        assert_eq!((asked, lab.effects()), (1, effects));
    }
}

#[tokio::test]
async fn a_held_record_is_inspected_and_never_entered() {
    for lab in [held_by_a_crash().await, held_by_silence().await] {
        let attempt = lab.record().attempt;
        let (ran, asked) = inspecting(&lab, Policy::Rerun, Ok(Inspection::Proceed)).await;
        assert!(matches!(ran.unwrap().answer, Answer::Held { .. }));
        assert_eq!((asked, lab.effects()), (1, 0));
        // It stays held, for those who inspect and those who don't.
        assert_eq!(lab.record().attempt, attempt + 1);
        assert_eq!(lab.record().lease, Some(SUSPENDED));
        let answer = lab.answer(lab.once()).await;
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
        let (ran, _) = inspecting(&lab, Policy::Rerun, Ok(Inspection::Done(9))).await;
        assert_eq!(ran.unwrap().answer, Answer::Replayed(9));
        assert_eq!(lab.effects(), 0);
        assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(9));
    }
}

#[tokio::test]
async fn a_held_record_is_stopped_by_an_inspection() {
    for lab in [held_by_a_crash().await, held_by_silence().await] {
        let (ran, _) = inspecting(&lab, Policy::Rerun, stop()).await;
        assert_eq!(ran.unwrap().answer, stale());
        assert_eq!(lab.answer(lab.once()).await, stale());
        assert_eq!(lab.effects(), 0);
    }
}

#[tokio::test]
async fn an_inspection_that_fails_before_the_work_gives_the_key_back() {
    for (ending, lease) in [
        (Ending::Unknown, RELEASED),
        (Ending::DidNotHappen, RELEASED),
    ] {
        let lab = Lab::new();
        let failure = Failure {
            ending,
            code: "unreachable".to_owned(),
            error: broken("no answer"),
        };
        let (ran, _) = inspecting(&lab, Policy::Hold, Err(failure)).await;
        assert_eq!(operation_failure(ran).0.error, broken("no answer"));
        assert_eq!(lab.record().lease, Some(lease));
    }
    let lab = Lab::new();
    let failure = Failure::permanent("gone", broken("no such order"));
    let (ran, _) = inspecting(&lab, Policy::Hold, Err(failure)).await;
    operation_failure(ran);
    assert_eq!(lab.record().status, Status::Failed);
}

#[tokio::test]
async fn an_inspection_that_fails_on_a_held_record_leaves_it_held() {
    for ending in [Ending::Unknown, Ending::DidNotHappen, Ending::Permanent] {
        for lab in [held_by_a_crash().await, held_by_silence().await] {
            let failure = Failure {
                ending,
                code: "unreachable".to_owned(),
                error: broken("no answer"),
            };
            let (ran, _) = inspecting(&lab, Policy::Rerun, Err(failure)).await;
            assert_eq!(operation_failure(ran).0.error, broken("no answer"));
            let answer = lab.answer(lab.once()).await;
            assert!(
                matches!(answer, Answer::Held { .. }),
                "{ending:?} {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_inspection_that_panics_on_a_held_record_leaves_it_held() {
    for lab in [held_by_a_crash().await, held_by_silence().await] {
        let once = lab.once();
        let run = tokio::spawn(once.run_inspecting(
            |_work| async {
                if true {
                    panic!("boom");
                }
                Ok::<_, Failure<Broken>>(Inspection::Proceed)
            },
            |_work| async { Ok::<usize, Failure<Broken>>(1) },
        ));
        assert!(run.await.unwrap_err().is_panic());
        let answer = lab.answer(lab.once()).await;
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
        assert_eq!(lab.effects(), 0);
    }
}

#[tokio::test]
async fn an_inspection_that_dies_on_a_held_record_leaves_it_held() {
    for lab in [held_by_a_crash().await, held_by_silence().await] {
        let once = lab.once();
        let run = tokio::spawn(once.run_inspecting(
            |_work| std::future::pending::<Found>(),
            |_work| async { Ok::<usize, Failure<Broken>>(1) },
        ));
        until("it is taken over", || lab.wire.count("takeover") > 0).await;
        quiet().await;
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        lab.advance(LEASE);
        let answer = lab.answer(lab.once()).await;
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
    }
}

#[tokio::test]
async fn a_released_record_is_entered_after_its_inspection_under_hold_too() {
    let lab = Lab::new();
    let claim = held(lab.once().policy(Policy::Hold)).await;
    let failure = StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    };
    claim.release(failure).await.unwrap();
    let (ran, asked) = inspecting(&lab, Policy::Hold, Ok(Inspection::Proceed)).await;
    assert_eq!((ran.unwrap().answer, asked), (Answer::Performed(1), 1));
}

#[tokio::test]
async fn a_takeover_of_a_held_record_whose_reply_was_lost_does_not_enter() {
    for lab in [held_by_a_crash().await, held_by_silence().await] {
        lab.failing.plan([Fault::None, Fault::Repeat]);
        let (ran, asked) = inspecting(&lab, Policy::Rerun, Ok(Inspection::Proceed)).await;
        assert!(matches!(ran.unwrap().answer, Answer::Held { .. }));
        assert_eq!((asked, lab.effects()), (1, 0));
    }
}

#[tokio::test]
async fn a_takeover_of_a_held_record_that_comes_too_late_leaves_it_held() {
    for lab in [held_by_a_crash().await, held_by_silence().await] {
        lab.wire.rule("takeover", Rule::HoldReply);
        let late = {
            let lab = lab.clone();
            let found = Ok(Inspection::Proceed);
            tokio::spawn(async move { inspecting(&lab, Policy::Rerun, found).await })
        };
        until("it is sent", || lab.wire.count("takeover") > 0).await;
        quiet().await;
        lab.advance(LEASE);
        lab.wire.clear("takeover");
        let (ran, asked) = late.await.unwrap();
        let error = ran.unwrap_err();
        assert!(
            matches!(error, RunError::Claim(ClaimError::NoTime { .. })),
            "{error:?}"
        );
        assert_eq!(asked, 0);
        let answer = lab.answer(lab.once()).await;
        assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
        assert_eq!(lab.effects(), 0);
    }
}

#[tokio::test]
async fn the_operation_is_not_entered_when_the_inspection_outlived_the_lease() {
    let lab = Lab::new();
    let run = {
        let lab = lab.clone();
        tokio::spawn(async move {
            let slow = lab.source.clone();
            lab.once()
                .run_inspecting(
                    |_work| async move {
                        use firstclaim::clock::Source;
                        slow.sleep(LEASE - 2 * SECOND).await;
                        Ok(Inspection::Proceed)
                    },
                    |_work| async { Ok::<_, Failure<Broken>>(lab.effect()) },
                )
                .await
        })
    };
    lab.advance_until(SECOND, "the run ends", || run.is_finished())
        .await;
    let error = run.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RunError::Claim(ClaimError::NoTime { .. })),
        "{error:?}"
    );
    assert_eq!(lab.effects(), 0);
    assert_eq!(lab.record().lease, Some(RELEASED));
}

#[tokio::test]
async fn an_inspection_knows_its_claim_and_its_steps() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    claim.checkpoint("charge", &"ch_1").await.unwrap();
    drop(claim);
    lab.advance(LEASE);
    let outcome = lab
        .once()
        .run_inspecting(
            |work| async move {
                assert_eq!(work.attempt(), 2);
                let charge = work.checkpoints().get("charge").cloned();
                assert_eq!(charge.as_deref(), Some("\"ch_1\""));
                Ok(Inspection::Done(5))
            },
            |_work| async { Ok::<usize, Failure<Broken>>(lab.effect()) },
        )
        .await;
    assert_eq!(outcome.unwrap().answer, Answer::Replayed(5));
}

#[tokio::test]
async fn an_inspected_result_that_can_not_be_recorded_is_told_and_nothing_ran() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Refuse);
    let run = inspecting(&lab, Policy::Rerun, Ok(Inspection::Done(9)));
    let ((ran, _), ()) = tokio::join!(run, lab.pass(10 * SECOND, SECOND / 10));
    assert_eq!(ran.unwrap().answer, Answer::NotRecorded(9));
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn an_inspection_is_not_held_off_by_one_who_does_not_inspect() {
    // In one process, at the same time: the leader's "held" is no answer for a follower who can
    // find out what became of it.
    let lab = held_by_a_crash().await;
    let claims = lab.process_with(Config::default());
    lab.wire.rule("claim", Rule::HoldReply);
    let leader = {
        let (lab, claims) = (lab.clone(), claims.clone());
        tokio::spawn(async move { lab.answer(claims.once(key()).lease(LEASE)).await })
    };
    until("the leader asks", || lab.wire.count("claim") == 2).await;
    let follower = tokio::spawn(claims.once(key()).lease(LEASE).run_inspecting(
        |_work| async { Ok(Inspection::Done(9)) },
        |_work| async { Ok::<usize, Failure<Broken>>(1) },
    ));
    quiet().await;
    lab.wire.clear("claim");
    assert!(matches!(leader.await.unwrap(), Answer::Held { .. }));
    assert_eq!(follower.await.unwrap().unwrap().answer, Answer::Replayed(9));
}
