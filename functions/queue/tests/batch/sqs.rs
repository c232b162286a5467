//! The calls of SQS.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use firstclaim::aws::{Patience, loopback_config};
use queue::queues::{DeadLetter, QueueError, Queues, Reason, Sqs};
use serde_json::{Value, json};

use crate::rig::STANDARD;
use crate::stub::{Reply, Stub};

async fn server(status: u16) -> Stub {
    Stub::new(move |_| Reply::Answer {
        status,
        headers: vec![("content-type", "application/x-amz-json-1.0".to_owned())],
        body: br#"{"MessageId":"new"}"#.to_vec(),
    })
    .await
}

async fn queues(stub: &Stub, dead_letter_url: Option<&str>) -> Sqs {
    let endpoint = stub.url.trim_end_matches("/apply");
    let sdk = loopback_config(endpoint, Patience::default()).await;
    let client = aws_sdk_sqs::Client::new(&sdk);
    Sqs::new(client, dead_letter_url, Some(endpoint))
}

/// The one call that was made: its name and its JSON.
fn call(stub: &Stub) -> (String, Value) {
    let seen = stub.seen();
    assert_eq!(seen.len(), 1);
    let name = seen[0].header("x-amz-target").unwrap().to_owned();
    (name, serde_json::from_slice(&seen[0].body).unwrap())
}

fn letter() -> DeadLetter {
    DeadLetter {
        body: "{\"v\":1}".to_owned(),
        key: Some(format!("queue#\u{ffff}{}", "é".repeat(2000))),
        reason: Reason::Permanent,
        code: "target_422".to_owned(),
        attempt: Some(3),
        message_id: Some("m".to_owned()),
        group: Some("g".to_owned()),
    }
}

#[tokio::test]
async fn a_dead_letter_carries_its_body_and_five_attributes() {
    let stub = server(200).await;
    let url = "http://127.0.0.1/000000000000/dead";
    queues(&stub, Some(url))
        .await
        .dead_letter(letter())
        .await
        .unwrap();
    let (name, mut call) = call(&stub);
    assert_eq!(name, "AmazonSQS.SendMessage");
    // Bounded, and of characters that SQS takes.
    let key = call["MessageAttributes"]["firstclaim_key"].take();
    let key = key["StringValue"].as_str().unwrap();
    assert!(
        key.starts_with("queue#\u{fffd}é") && key.len() <= 1100,
        "{key}"
    );
    let text = |value: &str| json!({"DataType": "String", "StringValue": value});
    assert_eq!(
        call,
        json!({
            "QueueUrl": url,
            "MessageBody": "{\"v\":1}",
            "MessageAttributes": {
                "firstclaim_key": null,
                "reason": text("permanent"),
                "code": text("target_422"),
                "attempt": {"DataType": "Number", "StringValue": "3"},
                "message_id": text("m"),
            },
        })
    );
}

#[tokio::test]
async fn a_fifo_dead_letter_has_its_group_and_a_fresh_deduplication_id() {
    let mut ids = std::collections::BTreeSet::new();
    for (group, expected) in [(Some("g"), "g"), (None, "firstclaim"), (Some("g"), "g")] {
        let stub = server(200).await;
        let queues = queues(&stub, Some("http://127.0.0.1/000000000000/dead.fifo")).await;
        let group = group.map(str::to_owned);
        let undecodable = DeadLetter {
            key: None,
            attempt: None,
            group,
            ..letter()
        };
        queues.dead_letter(undecodable).await.unwrap();
        let (_, call) = call(&stub);
        assert_eq!(call["MessageGroupId"], expected);
        assert!(call["MessageAttributes"].get("firstclaim_key").is_none());
        assert!(call["MessageAttributes"].get("attempt").is_none());
        ids.insert(call["MessageDeduplicationId"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_visibility_is_set_at_the_queue_that_the_record_came_from() {
    let stub = server(200).await;
    let queues = queues(&stub, None).await;
    queues
        .set_visibility(STANDARD, "receipt", 63)
        .await
        .unwrap();
    let (name, call) = call(&stub);
    assert_eq!(name, "AmazonSQS.ChangeMessageVisibility");
    let base = stub.url.trim_end_matches("/apply");
    assert_eq!(
        call,
        json!({
            "QueueUrl": format!("{base}/000000000000/firstclaim-work"),
            "ReceiptHandle": "receipt",
            "VisibilityTimeout": 63,
        })
    );
}

#[tokio::test]
async fn n24_what_sqs_did_not_confirm_is_an_error() {
    let stub = server(500).await;
    let failing = queues(&stub, Some("http://127.0.0.1/000000000000/dead")).await;
    let refused = failing.dead_letter(letter()).await;
    assert!(matches!(refused, Err(QueueError::Service { .. })));
    let none = queues(&stub, None).await;
    assert!(!none.takes_dead_letters());
    assert!(matches!(
        none.dead_letter(letter()).await,
        Err(QueueError::NoQueue)
    ));
    let foreign = none.set_visibility("arn:aws:sns:x:y:z", "receipt", 1).await;
    assert!(matches!(foreign, Err(QueueError::NoQueue)));
}
