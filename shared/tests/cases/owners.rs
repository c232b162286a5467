//! Who may write: lost replies, late writes, losers.

use firstclaim::claims::{Resolution, Settling};
use firstclaim::metrics::Metric;
use firstclaim::protocol::Write;
use firstclaim::record::Data;
use firstclaim::store::Written;
use firstclaim::store::memory::Fault;
use firstclaim::{
    Answer, ClaimError, Ended, EntryError, Failure, Policy, RunError, Status, StepError, Store,
    StoreError, StoredFailure, Work,
};

use crate::lab::{
    Broken, LEASE, Lab, Rule, SECOND, Wire, answered, broken, held, operation_failure, quiet, until,
};

fn failure(code: &str) -> StoredFailure {
    StoredFailure {
        code: code.to_owned(),
        message: "told".to_owned(),
    }
}

#[tokio::test]
async fn p15_rejected_duplicates_leave_the_live_claim_alone() {
    let lab = Lab::new();
    let first = held(lab.once()).await;
    for _ in 0..2 {
        let answer = lab.answer(lab.once()).await;
        assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    }
    assert!(matches!(
        first.complete(7).await.answer,
        Answer::Performed(7)
    ));
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn p21_a13_a_lost_reply_does_not_make_the_owner_a_stranger() {
    let lab = Lab::new();
    // The client sends the claim again; the second copy is refused by the first.
    lab.failing.plan([Fault::Repeat]);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    assert_eq!((lab.record().attempt, lab.effects()), (1, 1));
}

#[tokio::test]
async fn p21_a_lost_reply_to_a_takeover_does_not_make_the_owner_a_stranger() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(2 * LEASE);
    lab.failing.plan([Fault::None, Fault::Repeat]);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    assert_eq!(lab.record().attempt, 2);
}

#[tokio::test]
async fn p21_n43_a_lost_reply_is_recognised_by_a_read_where_the_engine_returns_no_item() {
    let lab = Lab::new();
    let claims = lab.process();
    // The claim is in the table, but the answer to it says only that something stands there.
    lab.failing.plan([Fault::NoItem]);
    lab.crash(lab.once()).await;
    lab.advance(2 * LEASE);
    lab.failing.plan([Fault::NoItem, Fault::NoItem]);
    let once = claims.once(crate::lab::key()).lease(LEASE);
    assert_eq!(lab.answer(once).await, Answer::Performed(1));
    assert_eq!(lab.wire.count("read"), 1);
}

#[tokio::test]
async fn p21_a_lost_reply_to_the_completion_is_no_loss() {
    let lab = Lab::new();
    lab.failing.plan([Fault::None, Fault::Repeat]);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    assert_eq!(lab.record().data, Some(Data::Inline("1".to_owned())));
}

#[tokio::test]
async fn p21_an_unanswered_completion_that_landed_is_recognised() {
    let lab = Lab::new();
    lab.failing
        .plan([Fault::None, Fault::LoseReply, Fault::LoseReply]);
    let ran = lab.run(lab.once());
    let (ran, ()) = tokio::join!(ran, lab.pass(5 * SECOND, SECOND / 10));
    assert_eq!(ran.unwrap().answer, Answer::Performed(1));
    assert_eq!(lab.wire.count("finish"), 3);
}

#[tokio::test]
async fn p83_n43_a_store_that_does_not_answer_the_claim_is_not_a_lost_race() {
    let lab = Lab::new();
    for fault in [Fault::Refuse, Fault::LoseReply] {
        lab.failing.plan([fault]);
        let error = lab.run(lab.once()).await.unwrap_err();
        let RunError::Claim(ClaimError::Store(StoreError::Unavailable { .. })) = error else {
            panic!("{error:?}");
        };
    }
    assert_eq!(lab.effects(), 0);
    // The claim whose reply was lost stands, and lapses.
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn n43_a_read_that_misses_or_fails_is_not_a_lost_race() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.failing.plan([Fault::NoItem, Fault::Refuse]);
    let error = lab.run(lab.once()).await.unwrap_err();
    assert!(
        matches!(error, RunError::Claim(ClaimError::Store(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn p85_the_cause_of_a_failed_claim_stays_in_the_chain() {
    let lab = Lab::new();
    lab.failing.plan([Fault::Refuse]);
    let error = lab.once().claim().await.unwrap_err();
    let mut chain = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(&error);
    while let Some(link) = next {
        chain.push(link.to_string());
        next = link.source();
    }
    assert_eq!(
        chain,
        [
            "the key could not be claimed, so the operation did not run",
            "the store did not answer PutItem on table memory",
            "a planned fault",
        ]
    );
}

#[tokio::test]
async fn p20_a18_a_late_completion_changes_nothing_and_gets_the_winners_result() {
    let lab = Lab::new();
    let late = held(lab.once()).await;
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    let stands = lab.record();
    let outcome = late.complete(99_usize).await;
    assert_eq!(outcome.answer, Answer::Replayed(1));
    assert_eq!(outcome.attempt, 2);
    assert!(outcome.dropped);
    assert_eq!(outcome.name(), "superseded");
    assert_eq!(Metric::of(&outcome), Metric::Superseded);
    assert_eq!(lab.record(), stands);
    // A duplicate of which nothing ran is told apart from it.
    let duplicate = lab.run(lab.once()).await.unwrap();
    assert_eq!(duplicate.answer, outcome.answer);
    assert_eq!((duplicate.dropped, duplicate.name()), (false, "replayed"));
}

#[tokio::test]
async fn p20_a18_a_completion_while_the_new_owner_runs_is_refused() {
    let lab = Lab::new();
    let late = held(lab.once()).await;
    lab.advance(LEASE);
    let winner = held(lab.once()).await;
    let stands = lab.record();
    let outcome = late.complete(99).await;
    assert_eq!(outcome.answer, Answer::Superseded);
    assert_eq!((outcome.attempt, outcome.dropped), (2, true));
    assert_eq!(lab.record(), stands);
    assert_eq!(winner.complete(1).await.answer, Answer::Performed(1));
}

#[tokio::test]
async fn p20_n47_an_operation_that_was_overtaken_says_that_it_ran_and_was_dropped() {
    for completed in [false, true] {
        let lab = Lab::new();
        let ran = lab.once().run(|_work| {
            let lab = &lab;
            async move {
                lab.effect();
                lab.advance(LEASE);
                match completed {
                    true => assert_eq!(lab.answer(lab.once()).await, Answer::Performed(2)),
                    false => lab.crash(lab.once()).await,
                }
                Ok::<_, Failure<Broken>>(1)
            }
        });
        let outcome = ran.await.unwrap();
        let winners = match completed {
            true => Answer::Replayed(2),
            false => Answer::Superseded,
        };
        assert_eq!((outcome.answer, outcome.dropped), (winners, true));
    }
}

#[tokio::test]
async fn p20_n47_a_failure_that_comes_behind_a_takeover_says_that_it_was_dropped() {
    for (failure, overtaken) in [
        (Failure::permanent("declined", broken("no")), true),
        (Failure::did_not_happen("busy", broken("no")), true),
        (Failure::unknown("timeout", broken("no")), true),
        (Failure::permanent("declined", broken("no")), false),
    ] {
        let lab = Lab::new();
        let ran = lab.once().run(|_work| {
            let lab = &lab;
            async move {
                if overtaken {
                    lab.advance(LEASE);
                    lab.crash(lab.once()).await;
                }
                Err::<usize, _>(failure)
            }
        });
        let RunError::Operation {
            dropped, record, ..
        } = ran.await.unwrap_err()
        else {
            panic!("the operation ran");
        };
        assert_eq!(dropped, overtaken);
        assert!(record.is_none(), "{record:?}");
    }
}

#[tokio::test]
async fn an_owner_that_was_overtaken_before_it_entered_has_dropped_nothing() {
    let lab = Lab::new();
    lab.wire.rule("claim", Rule::HoldReply);
    let run = tokio::spawn(
        lab.once()
            .run(|_work| async { Ok::<_, Failure<Broken>>(1) }),
    );
    until("it is sent", || lab.wire.count("claim") == 1).await;
    lab.advance(LEASE);
    let mut taken_over = lab.record();
    taken_over.owner = Some(firstclaim::Owner::new("another"));
    taken_over.attempt = 2;
    lab.memory.put(taken_over);
    lab.wire.clear("claim");
    let outcome = run.await.unwrap().unwrap();
    assert_eq!(
        (outcome.answer, outcome.dropped),
        (Answer::Superseded, false)
    );
}

#[tokio::test]
async fn p20_a_late_failure_of_any_kind_changes_nothing() {
    for end in 0..3 {
        for completed in [false, true] {
            let lab = Lab::new();
            let late = held(lab.once()).await;
            lab.advance(LEASE);
            let winner = held(lab.once()).await;
            let _winner = match completed {
                true => {
                    winner.complete(1).await;
                    None
                }
                false => Some(winner),
            };
            let stands = lab.record();
            let ended = match end {
                0 => late.fail(failure("late")).await,
                1 => late.release(failure("late")).await,
                _ => late.give_up(failure("late")).await,
            };
            assert_eq!(ended.unwrap(), Ended::Superseded);
            assert_eq!(lab.record(), stands, "end {end}, completed {completed}");
        }
    }
}

#[tokio::test]
async fn p20_p12_a_completion_after_the_lease_stands_while_nobody_took_over() {
    let lab = Lab::new();
    let late = held(lab.once()).await;
    lab.advance(10 * LEASE);
    assert_eq!(late.complete(7).await.answer, Answer::Performed(7));
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(7));
}

#[tokio::test]
async fn p23_a_late_copy_of_a_release_leaves_the_next_owner_alone() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let release = Write::Release {
        owner: claim.owner().clone(),
        error: None,
    };
    claim.release(failure("busy")).await.unwrap();
    let next = held(lab.once()).await;
    let stands = lab.record();
    let written = lab.memory.write(&stands.id, &release).await.unwrap();
    assert!(matches!(written, Written::Refused(_)), "{written:?}");
    assert_eq!(lab.record(), stands);
    assert_eq!(next.complete(2).await.answer, Answer::Performed(2));
}

#[tokio::test]
async fn n37_a_release_whose_reply_was_lost_is_done() {
    let lab = Lab::new();
    lab.failing.plan([Fault::None, Fault::Repeat]);
    let ran = lab
        .once()
        .run(|_work| async { Err::<usize, _>(Failure::did_not_happen("busy", broken("not now"))) });
    operation_failure(ran.await);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn n42_twenty_processes_with_one_key_have_one_winner_and_only_it_may_end_the_claim() {
    let lab = Lab::new();
    let processes: Vec<_> = (0..20).map(|_| tokio::spawn(lab.once().claim())).collect();
    let mut winner = Vec::new();
    for process in processes {
        if let firstclaim::Claimed::Held(claim) = process.await.unwrap().unwrap() {
            winner.push(claim);
        }
    }
    assert_eq!(winner.len(), 1);
    let stands = lab.record();
    let stranger = firstclaim::Owner::new("a-guess");
    for write in [
        Write::Release {
            owner: stranger.clone(),
            error: None,
        },
        Write::Finish {
            owner: stranger.clone(),
            status: Status::Completed,
            data: Data::Inline("0".to_owned()),
            expiration: stands.expiration.unwrap(),
        },
    ] {
        let written = lab.memory.write(&stands.id, &write).await.unwrap();
        assert!(matches!(written, Written::Refused(_)), "{written:?}");
    }
    // A settle names what was seen, and a guess at the owner is not what is there.
    let guessed = firstclaim::Record {
        owner: Some(stranger),
        ..stands.clone()
    };
    let claims = lab.process();
    let settled = claims.settle(&guessed, Resolution::Forget, "ada", "a guess");
    assert!(matches!(settled.await.unwrap(), Settling::Changed(_)));
    assert_eq!(lab.record(), stands);
}

#[tokio::test]
async fn n43_a_loser_leaves_nothing_behind() {
    let lab = Lab::new();
    let winner = held(lab.once()).await;
    let stands = lab.record();
    answered(lab.once().activity("about to charge").event("other")).await;
    assert_eq!(lab.record(), stands);
    drop(winner);
}

#[tokio::test]
async fn n47_a_superseded_completion_under_hold_keeps_the_settled_result() {
    use firstclaim::protocol::Settlement;

    let lab = Lab::new();
    let late = held(lab.once().policy(Policy::Hold)).await;
    lab.advance(LEASE);
    let result = Data::Inline("1".to_owned());
    lab.settle(Settlement::Result(result)).await;
    let stands = lab.record();
    assert_eq!(late.complete(99).await.answer, Answer::Replayed(1));
    assert_eq!(lab.record(), stands);
}

#[tokio::test]
async fn p28_a_completion_that_is_never_answered_is_told_and_nothing_releases() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Refuse);
    let ran = lab.run(lab.once());
    let (ran, ()) = tokio::join!(ran, lab.pass(10 * SECOND, SECOND / 10));
    assert_eq!(ran.unwrap().answer, Answer::NotRecorded(1));
    assert_eq!(
        lab.wire.log(),
        [["claim"].as_slice(), &["finish"; 5]].concat()
    );
    // Until the lease lapses nobody runs it again, in this process or another.
    lab.wire.clear("finish");
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(2));
}

#[tokio::test]
async fn p28_an_unrecorded_permanent_failure_is_told_and_nothing_releases() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Refuse);
    let ran = lab.once().policy(Policy::Hold).run(|_work| async {
        Err::<usize, Failure<Broken>>(Failure::permanent("declined", broken("no")))
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
    assert_eq!(
        lab.wire.log(),
        [["claim"].as_slice(), &["finish"; 5]].concat()
    );
    lab.wire.clear("finish");
    lab.advance(LEASE);
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::Held { .. }), "{answer:?}");
}

#[tokio::test]
async fn p28_the_completion_is_sent_again_only_while_time_is_left() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::Refuse);
    let claim = held(lab.once()).await;
    lab.advance(LEASE - 2 * SECOND - SECOND / 20);
    let finish = tokio::spawn(claim.complete(1));
    until("it is sent", || finish.is_finished()).await;
    assert_eq!(finish.await.unwrap().answer, Answer::NotRecorded(1));
    assert_eq!(lab.wire.count("finish"), 1);
    quiet().await;
}

/// What a task that outlives its operation still does with the claim: nothing, and no call.
async fn nothing_can_be_done(lab: &Lab, work: &Work<Wire>) {
    let (stands, calls, effects) = (lab.memory.records(), lab.wire.log(), lab.effects());
    assert!(work.is_lost());
    work.lost().await;
    let step = work.step("charge", || async {
        Ok::<_, Failure<Broken>>(lab.effect())
    });
    let failure = step.await.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.error.0.as_str()),
        (
            "lease_lost",
            "the claim was lost before step `charge`, so the step did not run"
        )
    );
    let error = work.enter().await.unwrap_err();
    assert!(matches!(error, EntryError::Lost), "{error:?}");
    let error = work.checkpoint("late", &1).await.unwrap_err();
    assert!(matches!(error, StepError::Lost(_)), "{error:?}");
    let activity = work.set_activity(Some("still here")).await.unwrap();
    assert_eq!(activity, Ended::Superseded);
    assert_eq!(lab.memory.records(), stands);
    assert_eq!((lab.wire.log(), lab.effects()), (calls, effects));
}

#[tokio::test]
async fn p20_what_is_left_of_an_operation_does_nothing_after_its_end() {
    for end in 0..6 {
        let lab = Lab::new();
        let claim = held(lab.once().policy(Policy::Hold).marks_entry()).await;
        claim.enter().await.unwrap();
        let work = claim.work().clone();
        match end {
            0 => drop(claim.complete(1).await),
            1 => drop(claim.fail(failure("declined")).await.unwrap()),
            2 => drop(claim.fail_with(&"declined").await.unwrap()),
            3 => drop(claim.release(failure("busy")).await.unwrap()),
            4 => drop(claim.give_up(failure("timeout")).await.unwrap()),
            _ => drop(claim),
        }
        nothing_can_be_done(&lab, &work).await;
    }
}

#[tokio::test]
async fn p20_a_task_that_outlives_its_operation_repeats_no_effect() {
    let lab = Lab::new();
    let (hand, left) = tokio::sync::oneshot::channel();
    let ran = lab.once().run(|work| async move {
        hand.send(work).unwrap();
        Err::<usize, _>(Failure::unknown("timeout", broken("gave up waiting")))
    });
    operation_failure(ran.await);
    let again = lab.once().run(|work| {
        let lab = &lab;
        async move {
            work.step("charge", || async {
                Ok::<_, Failure<Broken>>(lab.effect())
            })
            .await
        }
    });
    assert_eq!(again.await.unwrap().answer, Answer::Performed(1));
    nothing_can_be_done(&lab, &left.await.unwrap()).await;
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn p20_what_is_left_of_an_operation_is_told_when_the_end_begins() {
    let lab = Lab::new();
    lab.wire.rule("finish", Rule::HoldReply);
    let claim = held(lab.once()).await;
    let work = claim.work().clone();
    let finish = tokio::spawn(claim.complete(1));
    until("it is sent", || lab.wire.count("finish") == 1).await;
    nothing_can_be_done(&lab, &work).await;
    lab.wire.clear("finish");
    assert_eq!(finish.await.unwrap().answer, Answer::Performed(1));
}

#[tokio::test]
async fn an_execution_that_resumes_with_another_payload_is_a_mismatch() {
    let lab = Lab::new();
    let owner = firstclaim::Owner::new("execution-7");
    let claim = |payload: &'static str| {
        let once = lab.once().owner(owner.clone());
        once.fingerprint(firstclaim::Fingerprint::of_bytes(payload.as_bytes()))
    };
    drop(held(claim("five")).await);
    // The same again is its own claim.
    drop(held(claim("five")).await);
    let outcome = crate::lab::answered(claim("fifty")).await;
    assert!(
        matches!(outcome.answer, Answer::Mismatch { .. }),
        "{outcome:?}"
    );
}
