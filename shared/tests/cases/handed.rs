//! Claims that are handed over by their owner token, and records that a person settles.

use firstclaim::claims::{Resolution, Settling};
use firstclaim::store::memory::Fault;
use firstclaim::{
    Answer, Claim, Ended, Owner, Policy, Record, Resumed, Status, StoreError, StoredFailure,
};

use crate::lab::*;

fn failure() -> StoredFailure {
    StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    }
}

/// A process picks up the lab's claim by a token.
async fn resumed(lab: &Lab, token: &Owner) -> Claim<Wire> {
    match lab.process().resume(key(), token.clone()).await.unwrap() {
        Resumed::Owned(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// Claims in a process that ends, and keeps the token.
async fn handed_over(lab: &Lab) -> Owner {
    held(lab.once()).await.owner().clone()
}

#[tokio::test]
async fn another_process_ends_a_claim_by_its_token() {
    let lab = Lab::new();
    let token = handed_over(&lab).await;
    let claim = resumed(&lab, &token).await;
    claim.checkpoint("plan", &"p-1").await.unwrap();
    assert_eq!(claim.complete(7).await.answer, Answer::Performed(7));
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(7));
    // Said again, for example because the first reply was lost, it is done; something else is not.
    let again = resumed(&lab, &token).await;
    assert_eq!(again.complete(7).await.answer, Answer::Performed(7));
    let other = resumed(&lab, &token).await;
    assert_eq!(other.complete(8).await.answer, Answer::Replayed(7));
}

#[tokio::test]
async fn n42_a_token_that_is_not_the_records_gets_nothing_and_claims_nothing() {
    let lab = Lab::new();
    let stranger = Owner::new("stranger");
    let resumed = lab.process().resume(key(), stranger.clone()).await.unwrap();
    assert!(matches!(resumed, Resumed::Gone), "{resumed:?}");
    assert_eq!(lab.memory.records(), vec![]);
    let _claim = held(lab.once()).await;
    let stands = lab.record();
    let resumed = lab.process().resume(key(), stranger).await.unwrap();
    assert!(matches!(resumed, Resumed::Foreign(_)), "{resumed:?}");
    assert_eq!(lab.record(), stands);
}

#[tokio::test]
async fn n43_a_read_that_fails_does_not_make_an_owner_a_stranger() {
    let lab = Lab::new();
    let token = handed_over(&lab).await;
    lab.failing.plan([Fault::Refuse]);
    let resumed = lab.process().resume(key(), token).await;
    assert!(
        matches!(resumed, Err(StoreError::Unavailable { .. })),
        "{resumed:?}"
    );
}

#[tokio::test]
async fn a_claim_that_was_handed_over_is_extended_and_never_shortened() {
    let lab = Lab::new();
    let token = handed_over(&lab).await;
    let first = lab.record().lease.unwrap();
    let claim = resumed(&lab, &token).await;
    assert_eq!(claim.extend(SECOND).await.unwrap(), Ended::Recorded);
    assert_eq!(lab.record().lease, Some(first));
    lab.advance(LEASE);
    assert_eq!(claim.extend(LEASE).await.unwrap(), Ended::Recorded);
    assert_eq!(lab.record().lease, Some(first.after(LEASE)));
    assert!(!claim.is_lost());

    claim.release(failure()).await.unwrap();
    let late = resumed(&lab, &token).await;
    assert_eq!(late.extend(LEASE).await.unwrap(), Ended::Superseded);
}

#[tokio::test]
async fn the_end_of_a_claim_says_whether_it_stands() {
    for end in 0..3 {
        let lab = Lab::new();
        let claim = held(lab.once()).await;
        let ended = match end {
            0 => claim.fail(failure()).await,
            1 => claim.release(failure()).await,
            _ => claim.give_up(failure()).await,
        };
        assert_eq!(ended.unwrap(), Ended::Recorded);
    }
}

fn result(text: &str) -> Resolution {
    Resolution::Result(serde_json::value::RawValue::from_string(text.to_owned()).unwrap())
}

async fn settle(lab: &Lab, seen: &Record, resolution: Resolution) -> Settling {
    let claims = lab.process();
    let settled = claims.settle(seen, resolution, "ada", "looked it up");
    settled.await.unwrap()
}

#[tokio::test]
async fn a40_an_operator_settles_exactly_what_was_shown() {
    for resolution in [
        result("7"),
        Resolution::Rerun {
            new_generation: true,
        },
        Resolution::Forget,
    ] {
        let lab = Lab::new();
        lab.crash(lab.once().policy(Policy::Hold)).await;
        lab.advance(LEASE);
        let shown = lab.record();
        let settling = settle(&lab, &shown, resolution.clone()).await;
        assert!(matches!(settling, Settling::Recorded(_)), "{settling:?}");
        let settled = lab.record();
        let told = settled.settled.clone().unwrap();
        assert_eq!((told.who.as_str(), told.attempt), ("ada", 2));
        match resolution {
            Resolution::Result(_) => assert_eq!(settled.status, Status::Completed),
            Resolution::Rerun { .. } => assert_eq!((settled.generation, settled.attempt), (1, 2)),
            Resolution::Forget => assert!(settled.released()),
        }
        // What was shown is not what stands there any more.
        let again = settle(&lab, &shown, result("8")).await;
        assert!(matches!(again, Settling::Changed(Some(_))), "{again:?}");
        assert_eq!(lab.record(), settled);
    }
}

#[tokio::test]
async fn a_settle_that_a_live_owner_outruns_changes_nothing() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let shown = lab.record();
    claim.extend(2 * LEASE).await.unwrap();
    let stands = lab.record();
    let settling = settle(&lab, &shown, result("7")).await;
    assert!(matches!(settling, Settling::Changed(_)), "{settling:?}");
    assert_eq!(lab.record(), stands);
    assert_eq!(claim.complete(1).await.answer, Answer::Performed(1));
}

#[tokio::test]
async fn a_settle_whose_reply_was_lost_is_recognised() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.failing.plan([Fault::Repeat]);
    let settling = settle(&lab, &lab.record(), result("7")).await;
    assert!(matches!(settling, Settling::Recorded(_)), "{settling:?}");
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(7));
}

#[tokio::test]
async fn a_large_settled_result_is_replayed_byte_for_byte() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let text = "x".repeat(5000);
    let settling = settle(&lab, &lab.record(), result(&format!("{text:?}"))).await;
    assert!(matches!(settling, Settling::Recorded(_)), "{settling:?}");
    let replayed = lab
        .once()
        .run(|_work| async { Ok::<String, firstclaim::Failure<Broken>>(String::new()) });
    assert_eq!(replayed.await.unwrap().answer, Answer::Replayed(text));
}

#[tokio::test]
async fn a_failure_may_say_more_than_its_code_and_message() {
    for filler in ["", &"x".repeat(5000)] {
        let lab = Lab::new();
        let told = serde_json::json!({"code": "exit_3", "message": "no", "more": filler});
        let claim = held(lab.once()).await;
        assert_eq!(claim.fail_with(&told).await.unwrap(), Ended::Recorded);
        let failure = StoredFailure {
            code: "exit_3".to_owned(),
            message: "no".to_owned(),
        };
        let answer = lab.answer(lab.once()).await;
        assert_eq!(answer, Answer::ReplayedFailure(failure));
        let text = lab.process().result(&lab.record()).await.unwrap().unwrap();
        assert_eq!(text, told.to_string());
    }
}

#[tokio::test]
async fn a_failure_whose_description_is_gone_stays_a_failure() {
    let lab = Lab::new();
    let told = serde_json::json!({"code": "exit_3", "message": "no", "more": "x".repeat(5000)});
    let claim = held(lab.once()).await;
    assert_eq!(claim.fail_with(&told).await.unwrap(), Ended::Recorded);
    lab.memory.remove_companions();
    let Answer::ReplayedFailure(failure) = lab.answer(lab.once()).await else {
        panic!("it was not done");
    };
    assert_eq!(failure.code, "omitted");
    assert!(
        failure.message.contains("missing or damaged"),
        "{failure:?}"
    );
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn a_settle_shows_at_once_in_its_own_process() {
    let lab = Lab::new();
    let claims = lab.process();
    let request = || claims.once(crate::lab::key()).lease(LEASE);
    assert_eq!(lab.answer(request()).await, Answer::Performed(1));
    let seen = lab.record();
    let again = Resolution::Rerun {
        new_generation: false,
    };
    let settled = claims.settle(&seen, again, "ada", "once more").await;
    assert!(matches!(settled.unwrap(), Settling::Recorded(_)));
    assert_eq!(lab.answer(request()).await, Answer::Performed(2));
}
