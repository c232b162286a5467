//! What each path costs in calls.

use firstclaim::store::memory::Fault;
use firstclaim::{Answer, Failure};

use crate::lab::{Broken, LEASE, Lab, SECOND, broken, held, key, operation_failure};

/// The names of the calls that the request makes.
macro_rules! calls_of {
    ($lab:expr, $request:expr) => {{
        let (log, calls) = ($lab.wire.log().len(), $lab.failing.calls());
        let answer = $request;
        let made = $lab.wire.log()[log..].to_vec();
        assert_eq!($lab.failing.calls() - calls, made.len());
        (made, answer)
    }};
}

async fn large(lab: &Lab) -> Answer<String> {
    let ran = lab.once().run(|_work| async {
        lab.effect();
        Ok::<_, Failure<Broken>>("x".repeat(5000))
    });
    ran.await.unwrap().answer
}

#[tokio::test]
async fn p100_a_first_execution_takes_two_calls() {
    let lab = Lab::new();
    let (calls, answer) = calls_of!(lab, lab.answer(lab.once().activity("working")).await);
    assert_eq!(
        (calls, answer),
        (vec!["claim", "finish"], Answer::Performed(1))
    );
}

#[tokio::test]
async fn p100_a_completed_duplicate_takes_one_call_and_none_in_the_same_process() {
    let lab = Lab::new();
    let claims = lab.process();
    let once = || claims.once(key()).lease(LEASE);
    lab.answer(once()).await;
    let (calls, _) = calls_of!(lab, lab.answer(lab.once()).await);
    assert_eq!(calls, ["claim"]);
    let (calls, _) = calls_of!(lab, lab.answer(once()).await);
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn p100_a_duplicate_with_a_large_result_takes_two_calls() {
    let lab = Lab::new();
    let (calls, _) = calls_of!(lab, large(&lab).await);
    assert_eq!(calls, ["claim", "put_companion", "finish"]);
    let (calls, answer) = calls_of!(lab, large(&lab).await);
    assert_eq!(calls, ["claim", "companion"]);
    assert!(matches!(answer, Answer::Replayed(_)), "{answer:?}");
}

#[tokio::test]
async fn p100_a_duplicate_in_flight_takes_one_call_and_none_in_the_same_process() {
    let lab = Lab::new();
    let claims = lab.process();
    let once = || claims.once(key()).lease(LEASE);
    let claim = held(once()).await;
    let (calls, _) = calls_of!(lab, lab.answer(lab.once()).await);
    assert_eq!(calls, ["claim"]);
    let (calls, _) = calls_of!(lab, lab.answer(once()).await);
    assert!(calls.is_empty(), "{calls:?}");
    drop(claim);
}

#[tokio::test]
async fn p100_an_engine_that_returns_no_item_costs_one_read_more() {
    let lab = Lab::new();
    lab.answer(lab.once()).await;
    lab.failing.plan([Fault::NoItem]);
    let (calls, answer) = calls_of!(lab, lab.answer(lab.once()).await);
    assert_eq!(
        (calls, answer),
        (vec!["claim", "read"], Answer::Replayed(1))
    );
}

#[tokio::test]
async fn p100_a_takeover_and_completion_take_three_calls() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(LEASE);
    let (calls, _) = calls_of!(lab, lab.answer(lab.once()).await);
    assert_eq!(calls, ["claim", "takeover", "finish"]);
}

#[tokio::test]
async fn p100_a_failure_and_its_retry_take_two_and_three_calls() {
    let lab = Lab::new();
    let failing = lab
        .once()
        .run(|_work| async { Err::<usize, _>(Failure::unknown("timeout", broken("no answer"))) });
    let (calls, ran) = calls_of!(lab, failing.await);
    operation_failure(ran);
    assert_eq!(calls, ["claim", "release"]);
    let (calls, _) = calls_of!(lab, lab.answer(lab.once()).await);
    assert_eq!(calls, ["claim", "takeover", "finish"]);
}

#[tokio::test]
async fn p100_a_hint_finds_a_final_record_with_one_read_and_goes_on_from_anything_else() {
    let lab = Lab::new();
    let hinted = || lab.once().redelivered(true);
    // Nothing there.
    let (calls, answer) = calls_of!(lab, lab.answer(hinted()).await);
    assert_eq!(
        (calls, answer),
        (vec!["hint", "claim", "finish"], Answer::Performed(1))
    );
    // A final record.
    let (calls, answer) = calls_of!(lab, lab.answer(hinted()).await);
    assert_eq!((calls, answer), (vec!["hint"], Answer::Replayed(1)));
    // A final record whose window is over.
    lab.advance(32 * 24 * 3600 * SECOND);
    let (calls, answer) = calls_of!(lab, lab.answer(hinted()).await);
    assert_eq!(
        (calls, answer),
        (vec!["hint", "claim", "finish"], Answer::Performed(2))
    );
    // Somebody at it, and somebody dead.
    lab.memory.remove(&key().stored());
    lab.crash(lab.once()).await;
    let (calls, answer) = calls_of!(lab, lab.answer(hinted()).await);
    assert_eq!(calls, ["hint", "claim"]);
    assert!(matches!(answer, Answer::InProgress { .. }), "{answer:?}");
    lab.advance(LEASE);
    let (calls, answer) = calls_of!(lab, lab.answer(hinted()).await);
    assert_eq!(calls, ["hint", "claim", "takeover", "finish"]);
    assert_eq!(answer, Answer::Performed(3));
}

#[tokio::test]
async fn p100_a_hint_that_is_not_answered_goes_on_to_the_claim() {
    let lab = Lab::new();
    lab.failing.plan([Fault::Refuse]);
    let answer = lab.answer(lab.once().redelivered(true)).await;
    assert_eq!(answer, Answer::Performed(1));
    assert_eq!(lab.wire.log(), ["hint", "claim", "finish"]);
}
