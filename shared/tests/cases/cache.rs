//! What a process remembers of final records.

use std::time::Duration;

use firstclaim::protocol::Settlement;
use firstclaim::record::Data;
use firstclaim::store::memory::Fault;
use firstclaim::{Answer, Claims, Config, Failure, Key, Once, StoredFailure};

use crate::lab::{Broken, LEASE, Lab, SECOND, Wire, broken, held, key, operation_failure};

fn request(claims: &Claims<Wire>) -> Once<Wire> {
    claims.once(key()).lease(LEASE)
}

#[tokio::test]
async fn p76_p79_a5_a_cached_duplicate_replays_without_a_call() {
    let lab = Lab::new();
    let claims = lab.process();
    assert_eq!(lab.answer(request(&claims)).await, Answer::Performed(1));
    let calls = lab.failing.calls();
    for _ in 0..3 {
        assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(1));
    }
    assert_eq!((calls, lab.failing.calls()), (2, 2));
}

#[tokio::test]
async fn p79_what_was_replayed_from_the_store_is_remembered_too() {
    let lab = Lab::new();
    lab.answer(lab.once()).await;
    for hint in [false, true] {
        let claims = lab.process();
        let calls = lab.failing.calls();
        for _ in 0..3 {
            let once = request(&claims).redelivered(hint);
            assert_eq!(lab.answer(once).await, Answer::Replayed(1));
        }
        assert_eq!(lab.failing.calls(), calls + 1);
    }
}

#[tokio::test]
async fn a_permanent_failure_is_remembered_too() {
    let lab = Lab::new();
    let claims = lab.process();
    let ran = request(&claims)
        .run(|_work| async { Err::<usize, _>(Failure::permanent("declined", broken("no"))) });
    operation_failure(ran.await);
    let calls = lab.failing.calls();
    let answer = lab.answer(request(&claims)).await;
    assert!(matches!(answer, Answer::ReplayedFailure(_)), "{answer:?}");
    assert_eq!(lab.failing.calls(), calls);
}

#[tokio::test]
async fn p78_a_live_record_is_never_remembered() {
    let lab = Lab::new();
    let elsewhere = held(lab.once()).await;
    let claims = lab.process();
    for _ in 0..2 {
        let answer = lab.answer(request(&claims)).await;
        assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    }
    elsewhere.complete(7).await;
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(7));
}

#[tokio::test]
async fn a31_p80_a_failure_leaves_nothing_in_the_cache() {
    let lab = Lab::new();
    let claims = lab.process();
    let ran = request(&claims)
        .run(|_work| async { Err::<usize, _>(Failure::unknown("timeout", broken("no answer"))) });
    assert_eq!(operation_failure(ran.await).0.error, broken("no answer"));
    assert_eq!(lab.answer(request(&claims)).await, Answer::Performed(1));
}

#[tokio::test]
async fn an_unrecorded_result_is_not_remembered() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.failing.plan([Fault::None]);
    lab.failing.plan([Fault::Refuse; 5]);
    let run = lab.run(request(&claims));
    let (ran, ()) = tokio::join!(run, lab.pass(5 * SECOND, SECOND / 10));
    assert_eq!(ran.unwrap().answer, Answer::NotRecorded(1));
    let answer = lab.answer(request(&claims)).await;
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
}

#[tokio::test]
async fn p81_a_settle_made_elsewhere_shows_after_the_caches_age() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.answer(request(&claims)).await;
    lab.settle(Settlement::Result(Data::Inline("7".to_owned())))
        .await;
    lab.advance(Duration::from_millis(9_999));
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(1));
    lab.advance(Duration::from_millis(1));
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(7));

    // Forgotten: it runs again, in this process as in any other.
    lab.settle(Settlement::Forget).await;
    lab.advance(10 * SECOND);
    assert_eq!(lab.answer(request(&claims)).await, Answer::Performed(2));
}

#[tokio::test]
async fn a_duplicate_does_not_make_a_remembered_record_younger() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.answer(request(&claims)).await;
    lab.settle(Settlement::Result(Data::Inline("7".to_owned())))
        .await;
    for _ in 0..9 {
        lab.advance(SECOND);
        assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(1));
    }
    lab.advance(SECOND);
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(7));
}

#[tokio::test]
async fn the_end_of_the_window_is_honoured() {
    let lab = Lab::new();
    let config = Config {
        cache_age: Duration::from_secs(10 * 24 * 3600),
        ..Config::default()
    };
    let claims = lab.process_with(config);
    let hour = 3600 * SECOND;
    lab.answer(request(&claims).window(hour)).await;
    lab.advance(hour);
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(1));
    assert_eq!(lab.failing.calls(), 2);
    lab.advance(SECOND);
    assert_eq!(lab.answer(request(&claims)).await, Answer::Performed(2));
}

#[tokio::test]
async fn a_clock_that_goes_back_makes_no_record_older_than_it_is() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.answer(request(&claims)).await;
    lab.settle(Settlement::Result(Data::Inline("7".to_owned())))
        .await;
    lab.source.set(crate::lab::START.before(3600 * SECOND));
    assert_eq!(lab.answer(request(&claims)).await, Answer::Replayed(7));
}

#[tokio::test]
async fn clones_share_the_memory_and_processes_do_not() {
    let lab = Lab::new();
    let claims = lab.process();
    lab.answer(request(&claims)).await;
    let calls = lab.failing.calls();
    lab.answer(request(&claims.clone())).await;
    assert_eq!(lab.failing.calls(), calls);
    lab.answer(lab.once()).await;
    assert_eq!(lab.failing.calls(), calls + 1);
}

/// Completes `number` keys with results of a kilobyte, and counts the calls of a second round.
async fn calls_of_a_second_round(config: Config, number: usize) -> usize {
    let lab = Lab::new();
    let claims = lab.process_with(config);
    let mut before = 0;
    for round in 0..2 {
        if round == 1 {
            before = lab.failing.calls();
        }
        // Backwards the second time: the youngest first, so that a hit evicts nothing.
        for number in 0..number {
            let number = if round == 0 { number } else { 99 - number };
            let key = Key::new("orders", number.to_string()).unwrap();
            let ran = claims
                .once(key)
                .lease(LEASE)
                .run(|_work| async { Ok::<_, Failure<Broken>>("x".repeat(1000)) });
            ran.await.unwrap();
        }
    }
    lab.failing.calls() - before
}

#[tokio::test]
async fn the_memory_is_bounded_by_bytes_and_the_oldest_go_first() {
    let with = |cache_bytes| Config {
        cache_bytes,
        ..Config::default()
    };
    assert_eq!(calls_of_a_second_round(with(1024 * 1024), 100).await, 0);
    assert_eq!(calls_of_a_second_round(with(0), 100).await, 100);
    let missed = calls_of_a_second_round(with(64 * 1024), 100).await;
    assert!((45..60).contains(&missed), "{missed}");
}

#[tokio::test]
async fn a_record_larger_than_the_memory_is_not_remembered_and_evicts_nothing() {
    let lab = Lab::new();
    let config = Config {
        cache_bytes: 2000,
        inline_limit: 10_000,
        ..Config::default()
    };
    let claims = lab.process_with(config);
    lab.answer(request(&claims)).await;
    for _ in 0..2 {
        let large = Key::new("orders", "large").unwrap();
        let ran = claims
            .once(large)
            .lease(LEASE)
            .run(|_work| async { Ok::<_, Failure<Broken>>("x".repeat(5000)) });
        ran.await.unwrap();
    }
    assert_eq!(lab.failing.calls(), 2 + 2 + 1);
    lab.answer(request(&claims)).await;
    assert_eq!(lab.failing.calls(), 5);
}

#[tokio::test]
async fn a_remembered_record_answers_a_request_that_would_wait_or_fail_for_good() {
    let lab = Lab::new();
    let claims = lab.process();
    let claim = held(request(&claims)).await;
    let failure = StoredFailure {
        code: "declined".to_owned(),
        message: "no".to_owned(),
    };
    claim.fail(failure.clone()).await.unwrap();
    let calls = lab.failing.calls();
    let answer = lab.answer(request(&claims).wait_for(LEASE)).await;
    assert_eq!(answer, Answer::ReplayedFailure(failure));
    assert_eq!(lab.failing.calls(), calls);
}
