//! One key, two payloads: told on every path, and never served.

use firstclaim::protocol::Settlement;
use firstclaim::record::Data;
use firstclaim::store::memory::Fault;
use firstclaim::{Answer, Fingerprint, Outcome};

use crate::lab::{LEASE, Lab, Ran, SECOND, held, key, quiet};

fn five() -> Fingerprint {
    Fingerprint::of_bytes(br#"{"amount":5}"#)
}

fn fifty() -> Fingerprint {
    Fingerprint::of_bytes(br#"{"amount":50}"#)
}

fn assert_mismatch(ran: Ran<usize>) -> Outcome<usize> {
    let outcome = ran.unwrap();
    let (stored, given) = (five(), fifty());
    assert_eq!(outcome.answer, Answer::Mismatch { stored, given });
    outcome
}

async fn completed() -> Lab {
    let lab = Lab::new();
    let first = lab.answer(lab.once().fingerprint(five())).await;
    assert_eq!(first, Answer::Performed(1));
    lab
}

#[tokio::test]
async fn p57_p61_another_payload_mismatches_a_completed_record_from_a_cold_process() {
    let lab = completed().await;
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
    let same = lab.answer(lab.once().fingerprint(five())).await;
    assert_eq!(same, Answer::Replayed(1));
}

#[tokio::test]
async fn p57_another_payload_mismatches_a_record_in_progress() {
    let lab = Lab::new();
    let claim = held(lab.once().fingerprint(five())).await;
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
    drop(claim);
}

#[tokio::test]
async fn p57_another_payload_mismatches_a_lapsed_and_a_released_record() {
    let lab = Lab::new();
    lab.crash(lab.once().fingerprint(five())).await;
    lab.advance(2 * LEASE);
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);

    let claim = held(lab.once().fingerprint(five())).await;
    claim.release(failure()).await.unwrap();
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
    assert_eq!(lab.effects(), 0);
}

#[tokio::test]
async fn p57_another_payload_mismatches_a_failed_record() {
    let lab = Lab::new();
    let claim = held(lab.once().fingerprint(five())).await;
    claim.fail(failure()).await.unwrap();
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
}

#[tokio::test]
async fn p57_another_payload_mismatches_in_the_process_that_has_the_record_cached() {
    let lab = Lab::new();
    let claims = lab.process();
    let once = |fingerprint| claims.once(key()).lease(LEASE).fingerprint(fingerprint);
    lab.answer(once(five())).await;
    assert_mismatch(lab.run(once(fifty())).await);
    assert_mismatch(lab.run(once(fifty()).redelivered(true)).await);
}

#[tokio::test]
async fn p57_another_payload_mismatches_a_record_that_had_to_be_read() {
    let lab = completed().await;
    lab.failing.plan([Fault::NoItem]);
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
    assert_eq!(lab.wire.count("read"), 1);
}

#[tokio::test]
async fn p57_another_payload_mismatches_a_record_found_by_the_hint() {
    let lab = completed().await;
    let calls = lab.failing.calls();
    let once = lab.once().fingerprint(fifty()).redelivered(true);
    assert_mismatch(lab.run(once).await);
    assert_eq!(lab.failing.calls(), calls + 1);
}

#[tokio::test]
async fn p57_another_payload_mismatches_while_it_waits() {
    let lab = Lab::new();
    // Claimed without a payload; a settle in between binds it.
    let claim = held(lab.once()).await;
    let waiting = {
        let lab = lab.clone();
        let once = lab.once().fingerprint(fifty()).wait_for(10 * SECOND);
        tokio::spawn(async move { lab.run(once).await })
    };
    quiet().await;
    let mut record = lab.record();
    record.fingerprint = Some(five());
    lab.memory.put(record);
    lab.advance_until(SECOND, "the waiter ends", || waiting.is_finished())
        .await;
    assert_mismatch(waiting.await.unwrap());
    drop(claim);
}

#[tokio::test]
async fn p58_a_rejected_record_is_not_cached_and_the_original_is_served() {
    let lab = completed().await;
    let claims = lab.process();
    let once = |fingerprint| claims.once(key()).lease(LEASE).fingerprint(fingerprint);
    assert_mismatch(lab.run(once(fifty())).await);
    let calls = lab.failing.calls();
    assert_eq!(lab.answer(once(five())).await, Answer::Replayed(1));
    // It came from the store: the mismatch left nothing in the cache.
    assert_eq!(lab.failing.calls(), calls + 1);
    assert_mismatch(lab.run(once(fifty())).await);
    assert_eq!(lab.effects(), 1);
}

#[tokio::test]
async fn p63_a_mismatch_names_the_record_that_stands() {
    let lab = Lab::new();
    lab.answer(lab.once().fingerprint(five()).event("delivery-1"))
        .await;
    let outcome = assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
    assert_eq!(outcome.key, key());
    assert_eq!(outcome.attempt, 1);
    assert_eq!(outcome.origin.event.as_deref(), Some("delivery-1"));
}

#[tokio::test]
async fn p57_without_a_payload_on_either_side_nothing_is_compared() {
    let lab = completed().await;
    assert_eq!(lab.answer(lab.once()).await, Answer::Replayed(1));
}

#[tokio::test]
async fn p57_a_takeover_binds_an_unbound_record_to_its_payload() {
    let lab = Lab::new();
    lab.crash(lab.once()).await;
    lab.advance(2 * LEASE);
    lab.crash(lab.once().fingerprint(five())).await;
    assert_eq!(lab.record().fingerprint, Some(five()));
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
}

#[tokio::test]
async fn p57_a_key_is_bound_for_its_window_only() {
    let lab = completed().await;
    lab.advance(32 * 24 * 3600 * SECOND);
    let next = lab.answer(lab.once().fingerprint(fifty())).await;
    assert_eq!(next, Answer::Performed(2));
}

#[tokio::test]
async fn p57_another_tools_fingerprint_is_not_compared() {
    let lab = completed().await;
    let mut record = lab.record();
    record.owner = None;
    lab.memory.put(record);
    let answer = lab.answer(lab.once().fingerprint(fifty())).await;
    assert_eq!(answer, Answer::Replayed(1));
}

/// Found by seeds 3703, 10724, 12931, 14154, 56676 and 73995 of the fault campaign: a takeover
/// without a payload left the other tool's hash in the record, where it passed for ours.
#[tokio::test]
async fn p57_another_tools_fingerprint_goes_with_its_record() {
    for settles in [false, true] {
        let lab = Lab::new();
        lab.crash(lab.once().fingerprint(five())).await;
        let mut record = lab.record();
        record.owner = None;
        lab.memory.put(record);
        lab.advance(2 * LEASE);
        if settles {
            let new_generation = false;
            lab.settle(Settlement::Rerun { new_generation }).await;
        } else {
            lab.crash(lab.once()).await;
            lab.advance(2 * LEASE);
        }
        assert_eq!(lab.record().fingerprint, None);
        let answer = lab.answer(lab.once().fingerprint(fifty())).await;
        assert_eq!(answer, Answer::Performed(1), "settled: {settles}");
        assert_eq!(lab.record().fingerprint, Some(fifty()));
    }
}

#[tokio::test]
async fn p57_a_forgotten_key_takes_another_payload_and_a_settled_result_keeps_the_binding() {
    let lab = completed().await;
    let result = Data::Inline("7".to_owned());
    lab.settle(Settlement::Result(result)).await;
    assert_mismatch(lab.run(lab.once().fingerprint(fifty())).await);
    let same = lab.answer(lab.once().fingerprint(five())).await;
    assert_eq!(same, Answer::Replayed(7));

    lab.settle(Settlement::Forget).await;
    let other = lab.answer(lab.once().fingerprint(fifty())).await;
    assert_eq!(other, Answer::Performed(2));
}

#[tokio::test]
async fn p57_a_loser_does_not_get_the_result_of_another_payload() {
    let lab = Lab::new();
    let late = held(lab.once().fingerprint(five())).await;
    lab.advance(32 * 24 * 3600 * SECOND);
    let other = lab.answer(lab.once().fingerprint(fifty())).await;
    assert_eq!(other, Answer::Performed(1));
    assert_eq!(late.complete(0_usize).await.answer, Answer::Superseded);
}

fn failure() -> firstclaim::StoredFailure {
    firstclaim::StoredFailure {
        code: "declined".to_owned(),
        message: "no".to_owned(),
    }
}

#[tokio::test]
async fn a9_a_rewritten_body_is_a_duplicate_when_canonical_and_a_mismatch_by_its_bytes() {
    let sent = br#"{"amount":5,"to":"ada"}"#;
    let again = br#"{ "to": "ada", "amount": 5 }"#;
    for (canonical, fingerprint) in [
        (true, Fingerprint::of_bytes as fn(&[u8]) -> Fingerprint),
        (false, Fingerprint::of_raw),
    ] {
        let lab = Lab::new();
        lab.answer(lab.once().fingerprint(fingerprint(sent))).await;
        let once = lab.once().fingerprint(fingerprint(again));
        let answer = lab.answer(once).await;
        match canonical {
            true => assert_eq!(answer, Answer::Replayed(1)),
            false => assert!(matches!(answer, Answer::Mismatch { .. }), "{answer:?}"),
        }
    }
}

#[tokio::test]
async fn p57_a_live_record_found_by_the_hint_is_no_answer_of_its_own() {
    // An eventual read may be older than a settle that unbound the key.
    let lab = Lab::new();
    let claim = held(lab.once().fingerprint(five())).await;
    let once = lab.once().fingerprint(fifty()).redelivered(true);
    assert_mismatch(lab.run(once).await);
    assert_eq!(lab.wire.log(), ["claim", "hint", "claim"]);
    drop(claim);
}
