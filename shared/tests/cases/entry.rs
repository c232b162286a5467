//! Under `hold`, the mark before the entry: a claim that was lost before it may run again, one that
//! was lost after it may not.

use firstclaim::record::{RELEASED, SUSPENDED};
use firstclaim::store::memory::Fault;
use firstclaim::{Answer, Claim, EntryError, Failure, Once, Policy, Status};

use crate::lab::{
    Broken, LEASE, Lab, Ran, Rule, SECOND, Wire, answered, broken, held, key, operation_failure,
    until,
};

/// A request under `hold` that marks its entry, of a process that has just started.
fn marking(lab: &Lab) -> Once<Wire> {
    lab.once().policy(Policy::Hold).marks_entry()
}

/// Runs the usual operation behind its mark.
async fn run(lab: &Lab, once: Once<Wire>) -> Ran<usize> {
    let ran = once.run(|work| async move {
        match work.enter().await {
            Ok(()) => Ok(lab.effect()),
            Err(error) => Err(not_entered(error)),
        }
    });
    ran.await
}

async fn answer(lab: &Lab, once: Once<Wire>) -> Answer<usize> {
    run(lab, once).await.unwrap().answer
}

fn not_entered(error: EntryError) -> Failure<Broken> {
    Failure::did_not_happen("not_entered", broken(&error.to_string()))
}

/// Claims the key and says that the operation is entered.
async fn entered(lab: &Lab) -> Claim<Wire> {
    let claim = held(marking(lab)).await;
    claim.enter().await.unwrap();
    claim
}

#[tokio::test]
async fn a3_a_claim_that_is_lost_before_its_entry_runs_again_under_hold() {
    for policy in [Policy::Hold, Policy::Rerun] {
        let lab = Lab::new();
        lab.crash(marking(&lab)).await;
        assert!(lab.record().untouched());
        let early = answer(&lab, marking(&lab)).await;
        assert!(matches!(early, Answer::InProgress { .. }), "{early:?}");
        lab.advance(LEASE);
        let next = lab.once().policy(policy).marks_entry();
        assert_eq!(answer(&lab, next).await, Answer::Performed(1));
        let record = lab.record();
        assert_eq!((record.status, record.attempt), (Status::Completed, 2));
        assert_eq!(record.unentered, None);
    }
}

#[tokio::test]
async fn a3_a_claim_that_is_lost_after_its_entry_is_held() {
    let lab = Lab::new();
    drop(entered(&lab).await);
    lab.effect();
    let lapse = lab.record().lease;
    lab.advance(LEASE);
    for once in [marking(&lab), lab.once()] {
        assert_eq!(answer(&lab, once).await, Answer::Held { since: lapse });
    }
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn the_mark_speaks_of_its_own_attempt_only() {
    let lab = Lab::new();
    lab.crash(marking(&lab)).await;
    lab.advance(LEASE);
    // The second owner promises nothing: what it leaves behind may have happened.
    lab.crash(lab.once().policy(Policy::Hold)).await;
    let record = lab.record();
    assert_eq!((record.attempt, record.untouched()), (2, false));
    lab.advance(LEASE);
    let answer = answer(&lab, marking(&lab)).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
}

#[tokio::test]
async fn p100_the_mark_costs_one_write_under_hold_and_nothing_under_rerun() {
    let lab = Lab::new();
    assert_eq!(answer(&lab, marking(&lab)).await, Answer::Performed(1));
    assert_eq!(lab.wire.log(), ["claim", "enter", "finish"]);

    let lab = Lab::new();
    let once = lab.once().marks_entry();
    assert_eq!(answer(&lab, once).await, Answer::Performed(1));
    assert_eq!(lab.wire.log(), ["claim", "finish"]);
    let lab = Lab::new();
    lab.crash(lab.once().marks_entry()).await;
    assert_eq!(lab.record().unentered, None);
}

#[tokio::test]
async fn an_owner_that_was_overtaken_before_its_entry_does_not_enter() {
    let lab = Lab::new();
    let late = held(marking(&lab)).await;
    lab.wire.rule("enter", Rule::Hold);
    let process = lab.process();
    let entering = tokio::spawn(async move { late.enter().await });
    until("the mark is on its way", || lab.wire.count("enter") == 1).await;
    lab.advance(LEASE);
    let next = held(
        process
            .once(key())
            .lease(LEASE)
            .policy(Policy::Hold)
            .marks_entry(),
    )
    .await;
    lab.wire.clear("enter");
    let error = entering.await.unwrap().unwrap_err();
    assert!(matches!(error, EntryError::Superseded), "{error:?}");
    assert!(lab.record().untouched(), "the late mark changed nothing");
    next.enter().await.unwrap();
}

#[tokio::test]
async fn a_takeover_that_a_mark_was_faster_than_is_refused() {
    let lab = Lab::new();
    let slow = held(marking(&lab)).await;
    lab.wire.rule("takeover", Rule::Hold);
    // Lapsed by the clock of the newcomer, a moment before its owner goes on.
    let ahead = i64::try_from(LEASE.as_millis()).unwrap();
    let newcomer = lab.process().with_source(lab.source.clone().off_by(ahead));
    let once = newcomer.once(key()).lease(LEASE).policy(Policy::Hold);
    let answer = tokio::spawn(answered(once.marks_entry()));
    until("the takeover is on its way", || {
        lab.wire.count("takeover") == 1
    })
    .await;
    slow.enter().await.unwrap();
    lab.effect();
    lab.wire.clear("takeover");
    let outcome = answer.await.unwrap();
    assert!(matches!(outcome.answer, Answer::Held { .. }), "{outcome:?}");
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn p21_a_mark_whose_reply_was_lost_is_recognised() {
    let lab = Lab::new();
    let claim = held(marking(&lab)).await;
    lab.failing.plan([Fault::LoseReply]);
    let entering = tokio::spawn(async move { claim.enter().await });
    lab.advance_until(SECOND / 10, "it is answered", || entering.is_finished())
        .await;
    entering.await.unwrap().unwrap();
    assert!(!lab.record().untouched());
    assert_eq!(lab.wire.count("enter"), 2);
}

#[tokio::test]
async fn what_can_not_be_marked_is_not_entered_and_given_back() {
    let lab = Lab::new();
    lab.wire.rule("enter", Rule::Refuse);
    let (process, once) = (lab.clone(), marking(&lab));
    let ran = tokio::spawn(async move { run(&process, once).await });
    lab.advance_until(SECOND / 10, "it gives up", || ran.is_finished())
        .await;
    let (failure, attempt) = operation_failure(ran.await.unwrap());
    assert_eq!((failure.code.as_str(), attempt), ("not_entered", 1));
    assert_eq!((lab.effects(), lab.record().lease), (0, Some(RELEASED)));
    lab.wire.clear("enter");
    assert_eq!(answer(&lab, marking(&lab)).await, Answer::Performed(1));
}

#[tokio::test]
async fn a_mark_that_is_answered_too_late_is_no_entry() {
    let lab = Lab::new();
    let claim = held(marking(&lab)).await;
    lab.wire.rule("enter", Rule::HoldReply);
    let entering = tokio::spawn(async move { claim.enter().await });
    until("the mark is on its way", || lab.wire.count("enter") == 1).await;
    lab.advance(LEASE);
    lab.wire.clear("enter");
    let error = entering.await.unwrap().unwrap_err();
    assert!(matches!(error, EntryError::Lost), "{error:?}");
}

#[tokio::test]
async fn p29_a_panic_before_the_entry_is_released_and_behind_it_held() {
    for (enters, lease) in [(false, RELEASED), (true, SUSPENDED)] {
        let lab = Lab::new();
        let once = marking(&lab);
        let run = tokio::spawn(once.run(move |work| async move {
            if enters {
                work.enter().await.unwrap();
            }
            if true {
                panic!("as planned");
            }
            Ok::<usize, Failure<Broken>>(1)
        }));
        assert!(run.await.unwrap_err().is_panic());
        assert_eq!(lab.record().lease, Some(lease));
    }
}

#[tokio::test]
async fn n48_claims_that_are_lost_before_their_entry_are_bounded_too() {
    let lab = Lab::new();
    for _ in 0..5 {
        lab.crash(marking(&lab)).await;
        lab.advance(LEASE);
    }
    let answer = answer(&lab, marking(&lab)).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
}

#[tokio::test]
async fn a3_a_step_marks_the_entry_itself_and_once() {
    let lab = Lab::new();
    let claim = held(marking(&lab)).await;
    for name in ["charge", "mail"] {
        let step = claim.step(name, || async { Ok::<_, Failure<Broken>>(lab.effect()) });
        step.await.unwrap();
    }
    assert_eq!(
        lab.wire.log(),
        ["claim", "enter", "checkpoint", "checkpoint"]
    );
    claim.complete(1).await;

    // An effect of which nobody knows whether it happened is not repeated.
    let lab = Lab::new();
    for _ in 0..2 {
        let ran = marking(&lab).run(|work| {
            let lab = &lab;
            async move {
                let effect = || async {
                    lab.effect();
                    Err::<usize, _>(Failure::unknown("timeout", broken("no answer")))
                };
                work.step("charge", effect).await
            }
        });
        let _ = ran.await;
    }
    let answer = answer(&lab, marking(&lab)).await;
    assert_eq!(answer, Answer::Held { since: None });
    assert_eq!((lab.effects(), lab.record().lease), (1, Some(SUSPENDED)));
}

#[tokio::test]
async fn a_step_whose_entry_can_not_be_marked_does_not_run_and_is_given_back() {
    let lab = Lab::new();
    lab.wire.rule("enter", Rule::Refuse);
    let ran = marking(&lab).run(|work| {
        let lab = &lab;
        async move {
            work.step("charge", || async {
                Ok::<_, Failure<Broken>>(lab.effect())
            })
            .await
        }
    });
    let (ran, ()) = tokio::join!(ran, lab.pass(5 * SECOND, SECOND / 20));
    let (failure, _) = operation_failure(ran);
    assert_eq!(
        (failure.code.as_str(), failure.error.0.as_str()),
        (
            "not_entered",
            "that the operation is entered could not be recorded, so step `charge` did not run"
        )
    );
    assert_eq!((lab.effects(), lab.record().lease), (0, Some(RELEASED)));
}
