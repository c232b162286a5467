//! Steps, checkpoints, downstream keys and activity.

use std::collections::HashMap;

use firstclaim::protocol::Settlement;
use firstclaim::store::memory::Fault;
use firstclaim::{Answer, Ending, Failure, Status, StepError, StoredFailure, downstream_key};

use crate::lab::{
    Broken, Done, LEASE, Lab, Rule, SECOND, Wire, broken, held, key, operation_failure,
};

/// One step of an effect, whose number is its value.
async fn step(lab: &Lab, work: &firstclaim::Work<Wire>, name: &str) -> Done<usize> {
    work.step(name, || async { Ok::<_, Failure<Broken>>(lab.effect()) })
        .await
}

#[tokio::test]
async fn p27_a_step_runs_once_across_attempts() {
    let lab = Lab::new();
    let ran = lab.once().run(|work| {
        let lab = &lab;
        async move {
            assert_eq!(step(lab, &work, "charge").await?, 1);
            Err::<usize, _>(Failure::unknown("mail", broken("mail is down")))
        }
    });
    operation_failure(ran.await);
    assert_eq!(lab.record().checkpoints["charge"], "1");

    let ran = lab.once().run(|work| {
        let lab = &lab;
        async move {
            assert_eq!(work.attempt(), 2);
            assert_eq!(step(lab, &work, "charge").await?, 1);
            step(lab, &work, "mail").await
        }
    });
    assert_eq!(ran.await.unwrap().answer, Answer::Performed(2));
    assert_eq!(lab.effects(), 2);
    assert_eq!(lab.record().checkpoints.len(), 2);
}

#[tokio::test]
async fn a_step_called_twice_in_one_attempt_runs_once() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    for _ in 0..2 {
        assert_eq!(step(&lab, claim.work(), "charge").await.unwrap(), 1);
    }
    assert_eq!(lab.wire.log(), ["claim", "checkpoint"]);
}

#[tokio::test]
async fn a_failed_step_is_not_recorded_and_its_failure_is_passed_on() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let failed = claim.step("charge", || async {
        Err::<usize, _>(Failure::permanent("declined", broken("no")))
    });
    let failure = failed.await.unwrap_err();
    assert_eq!(
        (failure.ending, failure.code.as_str()),
        (Ending::Permanent, "declined")
    );
    assert_eq!(lab.wire.count("checkpoint"), 0);
}

#[tokio::test]
async fn a_step_does_not_start_on_a_lost_claim() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.advance(LEASE - 2 * SECOND);
    let failure = step(&lab, claim.work(), "charge").await.unwrap_err();
    assert_eq!(
        (failure.ending, failure.code.as_str()),
        (Ending::Unknown, "lease_lost")
    );
    assert_eq!(
        failure.error.0,
        "the claim was lost before step `charge`, so the step did not run"
    );
    assert_eq!((lab.effects(), lab.wire.count("checkpoint")), (0, 0));
}

#[tokio::test]
async fn a_recorded_step_is_read_even_when_the_claim_is_lost() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    step(&lab, claim.work(), "charge").await.unwrap();
    lab.advance(LEASE);
    assert_eq!(step(&lab, claim.work(), "charge").await.unwrap(), 1);
}

#[tokio::test]
async fn a_step_that_was_overtaken_is_told_and_stops_the_next_ones() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let step_over = claim.step("charge", || {
        let lab = &lab;
        async move {
            lab.effect();
            lab.advance(LEASE);
            lab.crash(lab.once()).await;
            Ok::<_, Failure<Broken>>(1)
        }
    });
    let failure = step_over.await.unwrap_err();
    assert_eq!(failure.error.0, "the claim was lost during step `charge`");
    assert!(claim.is_lost());
    assert!(lab.record().checkpoints.is_empty());
    let failure = step(&lab, claim.work(), "mail").await.unwrap_err();
    assert_eq!((failure.code.as_str(), lab.effects()), ("lease_lost", 1));
}

#[tokio::test]
async fn a_value_that_can_never_be_kept_is_a_permanent_failure() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let large = claim.step("large", || async {
        Ok::<_, Failure<Broken>>("x".repeat(16 * 1024))
    });
    let failure = large.await.unwrap_err();
    assert_eq!(
        (failure.ending, failure.code.as_str()),
        (Ending::Permanent, "step_value")
    );
    assert_eq!(
        failure.error.0,
        "the value of step `large` has 16386 bytes of JSON; at most 16384 are kept"
    );
    let odd = claim.step("odd", || async {
        Ok::<_, Failure<Broken>>(HashMap::from([((1, 2), 3)]))
    });
    let failure = odd.await.unwrap_err();
    assert_eq!(
        (failure.ending, failure.code.as_str()),
        (Ending::Permanent, "step_value")
    );
    let fits = claim.step("fits", || async {
        Ok::<_, Failure<Broken>>("x".repeat(16 * 1024 - 2))
    });
    fits.await.unwrap();
}

#[tokio::test]
async fn p75_however_many_steps_there_are_the_end_finds_room_in_the_record() {
    // DynamoDB's item in bytes, and what must be left of it for the end.
    let (item, reserve) = (400 * 1024, 4 * 1024);
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let mut record = lab.record();
    let names = (0..3900).map(|number| format!("{number:064}"));
    record.checkpoints = names.map(|name| (name, "1".to_owned())).collect();
    lab.memory.put(record);
    lab.advance(LEASE);
    let claim = held(lab.once()).await;
    let mut refused = None;
    for number in 3900..10_000 {
        let name = format!("{number:064}");
        if let Err(failure) = step(&lab, claim.work(), &name).await {
            refused = Some((number, failure));
            break;
        }
    }
    let (steps, failure) = refused.unwrap();
    assert_eq!(
        (failure.ending, failure.code.as_str()),
        (Ending::Permanent, "step_value")
    );
    assert_eq!(
        failure.error.0,
        format!("the record has no room for step `{steps:064}`, so the step did not run")
    );
    assert_eq!(lab.effects(), steps - 3900);
    // Name, value and a byte for each, as the service counts them.
    let taken: usize = lab
        .record()
        .checkpoints
        .iter()
        .map(|(name, text)| name.len() + text.len() + 1)
        .sum();
    assert!((200 * 1024..item - reserve).contains(&taken), "{taken}");
    // What is recorded may still be replaced by something of its size.
    claim.checkpoint(&"0".repeat(64), &2).await.unwrap();
}

#[tokio::test]
async fn a_step_that_makes_the_record_too_large_is_a_permanent_failure_and_sent_once() {
    let lab = Lab::new();
    lab.wire.rule("checkpoint", Rule::TooLarge);
    let ran = lab.once().run(|work| {
        let lab = &lab;
        async move { step(lab, &work, "charge").await }
    });
    let (ran, ()) = tokio::join!(ran, lab.pass(5 * SECOND, SECOND / 20));
    let (failure, _) = operation_failure(ran);
    assert_eq!(failure.ending, Ending::Permanent);
    assert_eq!(lab.wire.count("checkpoint"), 1);
    // The next delivery must not charge again for it.
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::ReplayedFailure(_)), "{answer:?}");
    assert_eq!((lab.effects(), lab.record().status), (1, Status::Failed));
}

#[tokio::test]
async fn the_stored_value_of_another_type_is_told_and_the_step_not_repeated() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    step(&lab, claim.work(), "charge").await.unwrap();
    let other = claim.step("charge", || async {
        lab.effect();
        Ok::<_, Failure<Broken>>("text".to_owned())
    });
    let failure = other.await.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), lab.effects()),
        ("step_unreadable", 1)
    );
}

#[tokio::test]
async fn p98_names_of_steps_are_checked_and_reserved_words_are_names() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    for name in ["", &"x".repeat(65), "a\nb", "a\u{7f}"] {
        let failure = step(&lab, claim.work(), name).await.unwrap_err();
        assert_eq!(
            (failure.ending, failure.code.as_str()),
            (Ending::Permanent, "step_name")
        );
        let error = claim.checkpoint(name, &1).await.unwrap_err();
        assert!(matches!(error, StepError::Name(_)), "{error:?}");
    }
    assert_eq!(lab.effects(), 0);
    for name in [
        "status",
        "data",
        "a.b",
        "a-b[0]",
        "#s",
        "имя",
        &"x".repeat(64),
    ] {
        step(&lab, claim.work(), name).await.unwrap();
    }
    assert_eq!(lab.record().checkpoints.len(), 7);
}

#[tokio::test]
async fn an_unanswered_checkpoint_is_sent_again() {
    for fault in [Fault::Refuse, Fault::LoseReply, Fault::Repeat] {
        let lab = Lab::new();
        lab.failing.plan([Fault::None, fault]);
        let claim = held(lab.once()).await;
        let step = step(&lab, claim.work(), "charge");
        let (value, ()) = tokio::join!(step, lab.pass(2 * SECOND, SECOND / 20));
        assert_eq!(value.unwrap(), 1);
        assert_eq!(lab.record().checkpoints["charge"], "1");
    }
}

#[tokio::test]
async fn a_checkpoint_that_stays_unanswered_is_told_with_its_cause() {
    let lab = Lab::new();
    lab.wire.rule("checkpoint", Rule::Refuse);
    let claim = held(lab.once()).await;
    let step = step(&lab, claim.work(), "charge");
    let (value, ()) = tokio::join!(step, lab.pass(5 * SECOND, SECOND / 20));
    let failure = value.unwrap_err();
    assert_eq!(
        (failure.ending, failure.code.as_str()),
        (Ending::Unknown, "step_not_recorded")
    );
    assert_eq!(lab.wire.count("checkpoint"), 4);
}

#[test]
fn downstream_keys_are_fixed() {
    // Golden: SHA-256 of `["orders#order-42",0,"charge"]` and so on, as any language computes it.
    let golden = [
        (
            0,
            "charge",
            "ddf747ed8ffae1ea880b4a975c3adf323f7e50f8282ba11c2f5cf6e0563fc5e1",
        ),
        (
            1,
            "charge",
            "66a473e517ed1fd496823158dbfa28f7174c1035405caabb239ca9c57bf49a00",
        ),
        (
            0,
            "mail \"now\" é",
            "3dd915c853e6ab07c88c38b53864d809099c12abd6f67547b9ddee075fe08027",
        ),
    ];
    for (generation, step, wanted) in golden {
        assert_eq!(downstream_key(&key(), generation, step), wanted, "{step}");
    }
}

#[tokio::test]
async fn every_attempt_of_a_step_has_one_downstream_key_until_a_settle_asks_for_another() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let first = claim.downstream_key("charge");
    assert_eq!(first, downstream_key(&key(), 0, "charge"));
    assert_ne!(first, claim.downstream_key("mail"));
    drop(claim);
    lab.advance(LEASE);
    lab.settle(Settlement::Rerun {
        new_generation: false,
    })
    .await;
    let claim = held(lab.once()).await;
    assert_eq!(
        (claim.downstream_key("charge"), claim.attempt()),
        (first.clone(), 3)
    );
    drop(claim);
    lab.advance(LEASE);
    lab.settle(Settlement::Rerun {
        new_generation: true,
    })
    .await;
    let claim = held(lab.once()).await;
    assert_ne!(claim.downstream_key("charge"), first);
    assert_eq!(
        claim.downstream_key("charge"),
        downstream_key(&key(), 1, "charge")
    );
}

#[tokio::test]
async fn n45_activity_costs_no_call_and_a_takeover_clears_it() {
    let lab = Lab::new();
    lab.crash(lab.once().activity("charging the card")).await;
    assert_eq!(lab.failing.calls(), 1);
    assert_eq!(lab.record().activity.unwrap().text, "charging the card");
    let Answer::InProgress { activity, .. } = lab.answer(lab.once()).await else {
        panic!("nobody is at it");
    };
    assert_eq!(activity.as_deref(), Some("charging the card"));
    lab.advance(LEASE);
    lab.crash(lab.once()).await;
    assert_eq!(lab.record().activity, None);
    lab.advance(LEASE);
    lab.crash(lab.once().activity("again")).await;
    let activity = lab.record().activity.unwrap();
    assert_eq!(activity.text, "again");
    assert_eq!(activity.at, crate::lab::START.after(2 * LEASE));
}

#[tokio::test]
async fn activity_is_bounded_set_and_cleared_by_its_owner_only() {
    let lab = Lab::new();
    let claim = held(lab.once().activity("é".repeat(300))).await;
    assert_eq!(lab.record().activity.unwrap().text, "é".repeat(128));
    claim.set_activity(Some("mailing")).await.unwrap();
    assert_eq!(lab.record().activity.unwrap().text, "mailing");
    claim.set_activity(None).await.unwrap();
    assert_eq!(lab.record().activity, None);
    lab.advance(LEASE);
    let next = held(lab.once().activity("the next one")).await;
    claim.set_activity(Some("late")).await.unwrap();
    assert_eq!(lab.record().activity.unwrap().text, "the next one");
    next.complete(1).await;
    assert_eq!(lab.record().activity, None);
}

#[tokio::test]
async fn a_release_keeps_the_checkpoints_and_a_new_window_does_not() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    step(&lab, claim.work(), "charge").await.unwrap();
    let failure = StoredFailure {
        code: "busy".to_owned(),
        message: "later".to_owned(),
    };
    claim.release(failure).await.unwrap();
    let claim = held(lab.once()).await;
    assert_eq!(claim.checkpoints().len(), 1);
    claim.complete(1).await;
    lab.advance(32 * 24 * 3600 * SECOND);
    let claim = held(lab.once()).await;
    assert!(claim.checkpoints().is_empty());
    assert_eq!(claim.attempt(), 1);
}

#[tokio::test]
async fn the_owners_token_is_not_shown() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let token = claim.owner().expose().to_owned();
    assert!(!format!("{claim:?}").contains(&token));
    assert!(!format!("{:?}", lab.record()).contains(&token));
    // A large result lies under an id that carries it.
    claim.complete("x".repeat(4096)).await;
    assert!(!format!("{:?}", lab.record()).contains(&token));
}
