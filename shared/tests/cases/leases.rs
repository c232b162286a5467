//! How long a claim lasts, in which unit, and who may follow.

use std::time::Duration;

use firstclaim::clock::{EpochMillis, EpochSeconds, Source};
use firstclaim::record::RELEASED;
use firstclaim::{Answer, ClaimError, Claims, Config, ConfigError, Invocation, RunError, Status};

use crate::lab::{LEASE, Lab, Rule, SECOND, START, held, key, quiet, until};

#[tokio::test]
async fn p1_a1_a_dead_invocation_blocks_its_key_until_its_lease_and_no_longer() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(LEASE - Duration::from_millis(1));
    let Answer::InProgress { retry_after, .. } = lab.answer(lab.once()).await else {
        panic!("taken over from the living");
    };
    assert_eq!(retry_after, Duration::from_millis(1));
    lab.advance(Duration::from_millis(1));
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    assert_eq!(lab.record().attempt, 2);
}

#[tokio::test]
async fn p2_p3_a_claim_with_no_time_left_writes_its_lease_and_does_not_start() {
    for remaining in [0, -500] {
        let lab = Lab::new();
        let deadline = EpochMillis(START.0 + remaining);
        let once = lab.process().once(key()).deadline(deadline);
        let error = lab.run(once).await.unwrap_err();
        assert!(
            matches!(error, RunError::Claim(ClaimError::NoTime { .. })),
            "{error:?}"
        );
        // Given back, so that the next one need not wait.
        assert_eq!(lab.record().lease, Some(RELEASED));
        assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
        assert_eq!(lab.effects(), 1);
    }
}

#[tokio::test]
async fn p4_p9_a2_each_time_stands_in_its_own_unit() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let record = lab.record();
    assert_eq!(record.lease, Some(EpochMillis(START.0 + 30_000)));
    let window = 31 * 24 * 3600;
    assert_eq!(
        record.expiration,
        Some(EpochSeconds(START.0 / 1000 + window))
    );
    assert_eq!(record.lease.unwrap().0.to_string().len(), 13);
    assert_eq!(record.expiration.unwrap().0.to_string().len(), 10);
}

#[tokio::test]
async fn p4_a2_a_lease_of_two_seconds_lasts_two_seconds() {
    for (passed, taken) in [(1_000, false), (1_999, false), (2_000, true), (3_000, true)] {
        let lab = Lab::new();
        let mut record = {
            lab.crash(lab.once()).await;
            lab.record()
        };
        record.lease = Some(EpochMillis(START.0 + 2_000));
        lab.memory.put(record);
        lab.advance(Duration::from_millis(passed));
        let answer = lab.answer(lab.once()).await;
        assert_eq!(
            answer == Answer::Performed(1),
            taken,
            "{passed}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn p7_p8_inside_an_invocation_the_deadline_is_the_lease_without_a_word() {
    let lab = Lab::new();
    let claims = lab.process();
    let invocation = Invocation {
        deadline: START.after(10 * SECOND),
        function: Some("queue".to_owned()),
        request: Some("r-1".to_owned()),
        trace: None,
    };
    async fn nested(lab: &Lab, claims: &Claims<crate::lab::Wire>) {
        lab.crash(claims.once(key())).await;
    }
    invocation.scope(nested(&lab, &claims)).await;
    let record = lab.record();
    assert_eq!(record.lease, Some(START.after(12 * SECOND)));
    assert_eq!(record.origin.function.as_deref(), Some("queue"));
    assert_eq!(record.origin.request.as_deref(), Some("r-1"));
}

#[tokio::test]
async fn p7_outside_an_invocation_a_lease_must_be_given() {
    let lab = Lab::new();
    let error = lab.process().once(key()).claim().await.unwrap_err();
    assert!(matches!(error, ClaimError::NoLease), "{error:?}");
    assert_eq!(lab.failing.calls(), 0);
}

#[tokio::test]
async fn p10_a_lease_may_be_longer_than_the_run() {
    let lab = Lab::new();
    let config = Config {
        longest_lease: Duration::from_secs(3600),
        ..Config::default()
    };
    let once = || {
        lab.process_with(config.clone())
            .once(key())
            .lease(3600 * SECOND)
    };
    lab.crash(once()).await;
    lab.advance(120 * SECOND);
    let answer = lab.answer(once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
}

#[test]
fn p11_a_window_that_does_not_exceed_the_longest_lease_is_refused_at_start() {
    let lab = Lab::new();
    let lease = Config::default().longest_lease;
    for (window, fits) in [(lease, false), (lease + SECOND, true)] {
        let config = Config {
            window,
            ..Config::default()
        };
        let made = Claims::new(lab.wire.clone(), config);
        match made {
            Ok(_) => assert!(fits),
            Err(error) => assert_eq!(
                (error, fits),
                (ConfigError::Window { window, lease }, false)
            ),
        }
    }
    let none = Config {
        silent_limit: 0,
        ..Config::default()
    };
    let error = Claims::new(lab.wire.clone(), none).err();
    assert_eq!(error, Some(ConfigError::SilentLimit));
}

#[test]
fn a_configuration_under_which_nothing_can_run_is_refused_at_start() {
    let lab = Lab::new();
    let usual = Config::default;
    for (config, named) in [
        (
            Config {
                grace: 20 * 60 * SECOND,
                ..usual()
            },
            "grace 1200s",
        ),
        (
            Config {
                min_remaining: 3600 * SECOND,
                ..usual()
            },
            "min_remaining 3600s",
        ),
        (
            Config {
                inline_limit: 128 * 1024 + 1,
                ..usual()
            },
            "inline_limit 131073",
        ),
    ] {
        let error = Claims::new(lab.wire.clone(), config).err();
        let said = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(named), "{said}");
    }
}

/// The longest function there is, on clocks that differ as they may.
#[tokio::test]
async fn a_run_of_fifteen_minutes_is_claimed_whatever_the_clocks_say() {
    for grace in [2 * SECOND, 20 * SECOND] {
        let lab = Lab::new();
        let config = Config {
            grace,
            ..Config::default()
        };
        let process = lab.process_with(config);
        let deadline = START.after(900 * SECOND + grace);
        let answer = lab.answer(process.once(key()).deadline(deadline)).await;
        assert_eq!(answer, Answer::Performed(1));
    }
}

#[tokio::test]
async fn p11_a_live_lease_wins_over_a_window_that_is_over() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    let mut record = lab.record();
    record.expiration = Some(EpochSeconds(1));
    lab.memory.put(record);
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    drop(claim);
}

#[tokio::test]
async fn p11_a_claims_own_window_must_exceed_the_longest_lease_too() {
    let lab = Lab::new();
    let short = lab.once().window(Duration::from_secs(902));
    let error = short.claim().await.unwrap_err();
    assert!(matches!(error, ClaimError::ShortWindow { .. }), "{error:?}");
    assert_eq!(lab.failing.calls(), 0);
}

#[tokio::test]
async fn a_claims_own_window_is_how_long_it_answers_duplicates() {
    let lab = Lab::new();
    let hour = 3600 * SECOND;
    lab.advance(7 * SECOND);
    lab.answer(lab.once().window(hour)).await;
    let end = lab.source.now().after(hour).seconds();
    assert_eq!(lab.record().expiration, Some(end));
    lab.advance(hour);
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(1));
    lab.advance(SECOND);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(2));
}

#[tokio::test]
async fn the_window_starts_again_at_the_completion() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    lab.advance(20 * SECOND);
    claim.complete(1).await;
    let end = START.after(20 * SECOND).after(31 * 24 * 3600 * SECOND);
    assert_eq!(lab.record().expiration, Some(end.seconds()));
}

#[tokio::test]
async fn p13_the_end_of_the_window_counts_and_not_when_the_item_goes() {
    let lab = Lab::new();
    lab.answer(lab.once()).await;
    let mut record = lab.record();
    for (ago, wanted) in [(0, Answer::Replayed(1)), (1, Answer::Performed(2))] {
        record.expiration = Some(EpochSeconds(lab.source.now().seconds().0 - ago));
        lab.memory.put(record.clone());
        assert_eq!(lab.answer(lab.once()).await, wanted, "{ago} s ago");
    }
    assert_eq!(lab.record().attempt, 1);
}

#[tokio::test]
async fn p25_a4_a_record_in_progress_without_a_lease_is_locked_until_its_end() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let mut record = lab.record();
    record.lease = None;
    record.owner = None;
    lab.memory.put(record);
    lab.advance(24 * 3600 * SECOND);
    let answer = lab.answer(lab.once()).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    lab.advance(32 * 24 * 3600 * SECOND);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn a_lapsed_record_of_another_tool_is_taken_over() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let mut record = lab.record();
    record.owner = None;
    lab.memory.put(record);
    lab.advance(LEASE);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    assert_eq!(
        (lab.record().attempt, lab.record().owner.is_some()),
        (2, true)
    );
}

/// Found by seeds 19115, 57276 and 94223 of the fault campaign: a request that had hung for longer
/// than it had asked for went on with the token and the lease that it had begun with. What it wrote
/// then could be taken for what it had written first.
#[tokio::test]
async fn a_request_whose_own_end_has_come_takes_nothing_any_more() {
    // The former claim has lapsed, and so has what the request asked for; then its window too.
    for hangs in [LEASE - 2 * SECOND, 32 * 24 * 3600 * SECOND] {
        let lab = Lab::new();
        lab.crash(lab.once().lease(LEASE / 2)).await;
        lab.wire.rule("claim", Rule::HoldReply);
        let hung = {
            let (lab, once) = (lab.clone(), lab.once());
            tokio::spawn(async move { lab.run(once).await })
        };
        until("it asks", || lab.wire.count("claim") == 2).await;
        quiet().await;
        lab.advance(hangs);
        lab.wire.clear("claim");
        let ended = hung.await.unwrap();
        assert!(
            matches!(ended, Err(RunError::Claim(ClaimError::NoTime { .. }))),
            "{ended:?}"
        );
        assert_eq!(lab.wire.log(), ["claim", "claim"]);
        // The key waits for nobody.
        assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
    }
}

#[tokio::test]
async fn a17_of_processes_that_try_once_each_one_takes_over_a_dead_claim() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let mut performed = 0;
    for _ in 0..40 {
        lab.advance(SECOND);
        if lab.answer(lab.once()).await == Answer::Performed(1) {
            performed += 1;
        }
    }
    assert_eq!((performed, lab.effects()), (1, 1));
}

#[tokio::test]
async fn a_takeover_never_shortens_the_window() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    let before = lab.record().expiration;
    lab.advance(LEASE);
    lab.crash(lab.once().window(3600 * SECOND)).await;
    assert_eq!(lab.record().expiration, before);
}

#[tokio::test]
async fn a_lease_outside_the_configured_limits_is_refused_before_any_call() {
    let lab = Lab::new();
    for (lease, refused) in [
        (Duration::ZERO, "short"),
        (2 * SECOND, "short"),
        (961 * SECOND, "long"),
        (Duration::MAX, "long"),
    ] {
        let error = lab.once().lease(lease).claim().await.unwrap_err();
        match error {
            ClaimError::ShortLease { asked, .. } => assert_eq!((asked, refused), (lease, "short")),
            ClaimError::LongLease { .. } => assert_eq!(refused, "long"),
            other => panic!("{other}"),
        }
    }
    let late = lab
        .process()
        .once(key())
        .deadline(START.after(3600 * SECOND));
    let error = late.claim().await.unwrap_err();
    assert!(matches!(error, ClaimError::LongLease { .. }), "{error:?}");
    assert_eq!(lab.failing.calls(), 0);
}

#[tokio::test]
async fn with_less_than_the_floor_left_nothing_is_claimed() {
    let lab = Lab::new();
    let config = Config {
        min_remaining: 5 * SECOND,
        ..Config::default()
    };
    for (left, runs) in [(4_999, false), (5_000, true)] {
        let deadline = START.after(Duration::from_millis(left));
        let once = lab
            .process_with(config.clone())
            .once(key())
            .deadline(deadline);
        match lab.run(once).await {
            Ok(outcome) => assert_eq!((outcome.answer, runs), (Answer::Performed(1), true)),
            Err(RunError::Claim(ClaimError::NoTime { remaining, floor })) => {
                assert_eq!(remaining, Duration::from_millis(left));
                assert_eq!((floor, runs), (5 * SECOND, false));
                assert_eq!(lab.failing.calls(), 0);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_claim_that_is_answered_after_its_end_is_not_entered_and_given_back() {
    let lab = Lab::new();
    lab.wire.rule("claim", Rule::HoldReply);
    let late = {
        let lab = lab.clone();
        tokio::spawn(async move { lab.run(lab.once()).await })
    };
    until("the claim is sent", || lab.wire.count("claim") == 1).await;
    quiet().await;
    lab.advance(LEASE - 2 * SECOND);
    lab.wire.clear("claim");
    let error = late.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RunError::Claim(ClaimError::NoTime { .. })),
        "{error:?}"
    );
    let record = lab.record();
    assert_eq!(
        (record.lease, record.status),
        (Some(RELEASED), Status::InProgress)
    );
    assert_eq!(record.error.unwrap().code, "too_late");
    assert_eq!(lab.effects(), 0);
    assert_eq!(lab.answer(lab.once()).await, Answer::Performed(1));
}

#[tokio::test]
async fn a_claim_that_is_answered_after_somebody_else_was_done_gets_its_result() {
    let lab = Lab::new();
    lab.wire.rule("claim", Rule::HoldReply);
    let late = {
        let lab = lab.clone();
        tokio::spawn(async move { lab.run(lab.once()).await })
    };
    until("the claim is sent", || lab.wire.count("claim") == 1).await;
    quiet().await;
    lab.advance(LEASE);
    let mut record = lab.record();
    record.status = Status::Completed;
    record.owner = Some(firstclaim::Owner::new("another"));
    record.data = Some(firstclaim::record::Data::Inline("9".to_owned()));
    record.lease = None;
    lab.memory.put(record);
    lab.wire.clear("claim");
    assert_eq!(late.await.unwrap().unwrap().answer, Answer::Replayed(9));
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn a_slow_clock_does_not_enter_on_a_lease_that_others_see_lapsed() {
    // The newcomer's clock is two seconds ahead, the grace: it takes over no earlier than the
    // owner, by its own clock, has stopped.
    let lab = Lab::new();
    let owner = held(lab.once()).await;
    lab.advance(LEASE - 2 * SECOND);
    assert!(owner.is_lost());
    let ahead = lab.process().with_source(lab.source.clone().off_by(2_000));
    let answer = lab.answer(ahead.once(key()).lease(LEASE)).await;
    assert_eq!(answer, Answer::Performed(1));
}

#[tokio::test]
async fn a_record_says_how_much_time_is_left() {
    let lab = Lab::new();
    let claim = held(lab.once()).await;
    assert_eq!(claim.remaining(), 28 * SECOND);
    assert_eq!(claim.ends(), START.after(28 * SECOND));
    lab.advance(27 * SECOND);
    assert!(!claim.is_lost());
    lab.advance(SECOND);
    assert!(claim.is_lost());
    assert_eq!(claim.remaining(), Duration::ZERO);
}

#[tokio::test]
async fn a38_a41_a42_a_redelivery_is_a_duplicate_for_as_long_as_the_window_is_open() {
    let lab = Lab::new();
    let same_process = lab.process();
    for hour in 0..72 {
        for claims in [lab.process(), same_process.clone()] {
            lab.answer(claims.once(key()).lease(LEASE)).await;
            assert_eq!(lab.effects(), 1, "hour {hour}");
        }
        lab.advance(3600 * SECOND);
    }
}

#[tokio::test]
async fn a28_a_call_sent_again_while_the_first_still_runs_is_told_and_then_replayed() {
    let lab = Lab::new();
    let first = held(lab.once()).await;
    lab.advance(SECOND);
    let Answer::InProgress { retry_after, .. } = lab.answer(lab.once()).await else {
        panic!("the first still runs");
    };
    assert_eq!(retry_after, LEASE - SECOND);
    lab.advance(4 * SECOND);
    first.complete(lab.effect()).await;
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(1));
}
