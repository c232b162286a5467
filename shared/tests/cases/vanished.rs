//! A record that is gone while somebody owns it, and owners that come back.

use firstclaim::store::memory::Fault;
use firstclaim::{Answer, ClaimError, Owner, Policy, RunError, Status, StoredFailure};

use crate::lab::{LEASE, Lab, Rule, SECOND, held, key, until};

fn failure(code: &str) -> StoredFailure {
    StoredFailure {
        code: code.to_owned(),
        message: "told".to_owned(),
    }
}

#[tokio::test]
async fn p90_a_record_that_vanished_before_the_read_is_claimed() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.failing.plan([Fault::NoItem]);
    lab.wire.rule("read", Rule::Hold);
    let again = {
        let lab = lab.clone();
        tokio::spawn(async move { lab.answer(lab.once()).await })
    };
    until("the record is read", || lab.wire.count("read") == 1).await;
    lab.memory.remove(&key().stored());
    lab.wire.clear("read");
    assert_eq!(again.await.unwrap(), Answer::Performed(1));
    assert_eq!(lab.record().attempt, 1);
}

#[tokio::test]
async fn p12_p20_n34_a_record_that_vanished_is_restored_by_its_completion() {
    let lab = Lab::new();
    let claim = held(lab.once().event("delivery-1")).await;
    claim.checkpoint("charge", &"ch_1").await.unwrap();
    lab.memory.remove(&key().stored());
    assert_eq!(claim.complete(7).await.answer, Answer::Performed(7));
    let record = lab.record();
    assert_eq!(record.status, Status::Completed);
    assert_eq!(record.origin.event.as_deref(), Some("delivery-1"));
    assert_eq!(record.checkpoints["charge"], "\"ch_1\"");
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(7));
}

#[tokio::test]
async fn p12_a_record_that_vanished_and_was_claimed_by_another_is_not_overwritten() {
    let lab = Lab::new();
    let late = held(lab.once()).await;
    lab.memory.remove(&key().stored());
    let other = held(lab.once()).await;
    let stands = lab.record();
    assert_eq!(late.complete(7).await.answer, Answer::Superseded);
    assert_eq!(lab.record(), stands);
    drop(other);
}

#[tokio::test]
async fn p12_n34_behind_its_window_a_vanished_record_is_not_restored() {
    // The window that the owner knows of ends 31 days after the claim; a grace before it the
    // record may be restored no more.
    let window = 31 * 24 * 3600 * SECOND;
    for (early, restored) in [(3 * SECOND, true), (2 * SECOND, false)] {
        let lab = Lab::new();
        let late = held(lab.once()).await;
        lab.memory.remove(&key().stored());
        lab.advance(window - early);
        let answer = late.complete(7).await.answer;
        let wanted = match restored {
            true => Answer::Performed(7),
            false => Answer::Superseded,
        };
        assert_eq!(answer, wanted, "{early:?}");
        assert_eq!(lab.memory.records().len(), usize::from(restored));
    }
}

#[tokio::test]
async fn p12_a_release_of_a_vanished_record_is_done_and_a_checkpoint_on_it_is_lost() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.memory.remove(&key().stored());
    let error = claim.checkpoint("charge", &1).await.unwrap_err();
    assert_eq!(error.to_string(), "the claim was lost during step `charge`");
    assert!(claim.is_lost());
    claim.release(failure("busy")).await.unwrap();
    assert!(lab.memory.records().is_empty());
}

#[tokio::test]
async fn n43_a_record_that_was_away_for_a_moment_is_completed() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let record = lab.record();
    lab.memory.remove(&record.id);
    lab.wire.rule("read", Rule::Hold);
    let finish = tokio::spawn(claim.complete(7));
    until("the record is read", || lab.wire.count("read") == 1).await;
    // Back before the read, as after a refusal by a replica that was behind.
    lab.memory.put(record);
    lab.wire.clear("read");
    assert_eq!(finish.await.unwrap().answer, Answer::Performed(7));
    assert_eq!(lab.wire.log(), ["claim", "finish", "read", "finish"]);
    assert_eq!(lab.record().status, Status::Completed);
}

#[tokio::test]
async fn p30_a7_an_execution_that_resumes_re_enters_its_own_claim_and_nobody_elses() {
    let lab = Lab::new();
    let own = Owner::new("execution-1");
    let resumed = || lab.once().owner(own.clone());
    lab.crash(resumed()).await;
    lab.advance(10 * SECOND);
    let other = Owner::new("execution-2");
    let answer = lab.answer(lab.once().owner(other)).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    let outcome = lab.run(resumed()).await.unwrap();
    assert_eq!((outcome.answer, outcome.attempt), (Answer::Performed(1), 1));
    assert_eq!(lab.answer(resumed()).await, Answer::Replayed(1));
}

#[tokio::test]
async fn a7_an_execution_that_resumes_too_late_gives_its_key_back_under_rerun_only() {
    for (policy, suspend) in [
        (Policy::Rerun, false),
        (Policy::Hold, false),
        (Policy::Hold, true),
    ] {
        let lab = Lab::new();
        let own = Owner::new("execution-1");
        let resumed = || lab.once().owner(own.clone()).policy(policy);
        let claim = held(resumed()).await;
        match suspend {
            true => drop(claim.give_up(failure("timeout")).await.unwrap()),
            false => drop(claim),
        }
        lab.advance(LEASE);
        let error = lab.run(resumed()).await.unwrap_err();
        assert!(
            matches!(error, RunError::Claim(ClaimError::NoTime { .. })),
            "{error:?}"
        );
        let answer = lab.answer(lab.once()).await;
        match policy {
            Policy::Rerun => assert_eq!(answer, Answer::Performed(1)),
            Policy::Hold => assert!(matches!(answer, Answer::Held { .. }), "{answer:?}"),
        }
    }
}

#[tokio::test]
async fn a7_an_execution_that_gave_its_key_back_takes_it_over_like_anybody() {
    let lab = Lab::new();
    let resumed = || lab.once().owner(Owner::new("execution-1"));
    let claim = held(resumed()).await;
    claim.release(failure("busy")).await.unwrap();
    let outcome = lab.run(resumed()).await.unwrap();
    assert_eq!((outcome.answer, outcome.attempt), (Answer::Performed(1), 2));
}
