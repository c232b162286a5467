//! Recorded batches, with the answers that their index fixes.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't read its samples fails"
)]

use std::path::Path;
use std::time::Duration;

use queue::queues::Reason;
use serde_json::Value;

use crate::rig::{NOW, Plan, RUN, Rig, returned};

pub(crate) fn sample(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/events")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// What the index says about a batch: the answer's text.
fn expected(name: &str) -> String {
    let index = sample("index.json");
    let listed = index["lambda"].as_array().unwrap();
    let entry = listed.iter().find(|entry| entry["file"] == name).unwrap();
    let ids = entry["returned"].as_array().unwrap();
    returned(
        &ids.iter()
            .map(|id| id.as_str().unwrap())
            .collect::<Vec<_>>(),
    )
}

async fn handle(rig: &Rig, name: &str) -> String {
    let event = rig.event_until(NOW.after(RUN), sample(name));
    serde_json::to_string(&rig.worker.handle(event).await).unwrap()
}

fn deliveries(rig: &Rig) -> Vec<String> {
    let seen = rig.stub.seen();
    seen.iter()
        .map(|seen| seen.header("firstclaim-key").unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn n26_a_standard_batch_is_answered_exactly_and_not_done_twice() {
    let name = "lambda/sqs-standard-batch.json";
    let rig = Rig::new(Plan {
        dead_letters: false,
        ..Plan::default()
    })
    .await;
    assert_eq!(handle(&rig, name).await, expected(name));
    // Ten records: five are bad, two of the good ones are one operation.
    assert_eq!(rig.effects(), 4);
    assert_eq!(rig.store.calls(), 8);
    assert_eq!(handle(&rig, name).await, expected(name));
    assert_eq!(rig.effects(), 4);
    let seen = rig.stub.seen();
    let first = seen
        .iter()
        .find(|seen| seen.header("firstclaim-sender") == Some("github"))
        .unwrap();
    assert_eq!(
        first.header("firstclaim-kind"),
        Some("issue_comment.created")
    );
    assert_eq!(
        first.header("firstclaim-delivery"),
        Some("6b384875-3188-4d14-ab58-ef0402e39dc5/487213905")
    );
    assert_eq!(
        first.header("traceparent"),
        Some("00-6af5b0d4f503ccbc3d52af6e56a47a21-f187cebb22cb0444-01")
    );
}

#[tokio::test]
async fn a21_with_a_dead_letter_queue_the_bad_records_of_a_batch_are_there() {
    let name = "lambda/sqs-standard-batch.json";
    let rig = Rig::new(Plan::default()).await;
    assert_eq!(handle(&rig, name).await, returned(&[]));
    let letters = rig.queues.letters();
    let bodies: Vec<_> = letters.iter().map(|letter| letter.body.as_str()).collect();
    // An empty body is no message that SQS takes: it goes as its JSON text.
    assert_eq!(
        bodies,
        [
            "not json at all",
            "\"\"",
            "{\"payload\":{\"no\":\"key\"}}",
            "[]",
            "{\"key\":null,\"payload\":{}}",
        ]
    );
    assert!(
        letters
            .iter()
            .all(|letter| letter.reason == Reason::Undecodable)
    );
    let codes: Vec<_> = letters.iter().map(|letter| letter.code.as_str()).collect();
    assert_eq!(
        codes,
        [
            "not_an_object",
            "no_body",
            "no_key",
            "not_an_object",
            "bad_key"
        ]
    );
}

#[tokio::test]
async fn n27_a_fifo_batch_is_answered_exactly_and_in_order() {
    let name = "lambda/sqs-fifo-batch.json";
    let rig = Rig::new(Plan {
        dead_letters: false,
        ..Plan::default()
    })
    .await;
    assert_eq!(handle(&rig, name).await, expected(name));
    let mut done = deliveries(&rig);
    let of_b: Vec<_> = done
        .iter()
        .filter(|key| key.contains("B-"))
        .cloned()
        .collect();
    assert_eq!(of_b, ["queue%23B-1", "queue%23B-2"]);
    done.sort();
    assert_eq!(
        done,
        ["queue%23A-1", "queue%23B-1", "queue%23B-2", "queue%23C-1"]
    );
}

#[tokio::test]
async fn n31_a_redriven_batch_is_replayed() {
    let rig = Rig::new(Plan {
        dead_letters: false,
        ..Plan::default()
    })
    .await;
    handle(&rig, "lambda/sqs-standard-batch.json").await;
    let effects = rig.effects();
    let name = "lambda/sqs-redriven-batch.json";
    rig.source.advance(Duration::from_secs(24 * 60 * 60));
    let event = rig.event_until(
        NOW.after(RUN + Duration::from_secs(24 * 60 * 60)),
        sample(name),
    );
    let answer = rig.cold().handle(event).await;
    assert_eq!(serde_json::to_string(&answer).unwrap(), expected(name));
    assert_eq!(rig.effects(), effects);
}
