//! Messages of services that people wire up: each event has one key, however it comes.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use firstclaim::Status;
use queue::queues::Reason;
use serde_json::{Value, json};

use crate::rig::{NOW, Plan, RUN, Rig, record, returned};
use crate::samples::sample;

/// The keys of what the target saw, in their order.
fn keys(rig: &Rig) -> Vec<String> {
    let mut records: Vec<_> = rig.memory.records().into_iter().collect();
    records.sort_by_key(|record| record.id.clone());
    records.into_iter().map(|record| record.id).collect()
}

async fn handle(rig: &Rig, name: &str) -> String {
    let event = rig.event_until(NOW.after(RUN), sample(name));
    serde_json::to_string(&rig.worker.handle(event).await).unwrap()
}

async fn without_dead_letters() -> Rig {
    Rig::new(Plan {
        dead_letters: false,
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn sns_wraps_a_message_whose_own_key_counts_and_else_its_own_id() {
    let rig = without_dead_letters().await;
    assert_eq!(
        handle(&rig, "lambda/sns-to-sqs.wrapped.json").await,
        returned(&[])
    );
    let topic = "arn:aws:sns:us-east-1:000000000000:fc-sample-topic";
    let fallback = format!("queue#[\"sns\",\"{topic}\",\"a2cea2c3-7cd6-4d95-a109-4780ffc94d37\"]");
    assert_eq!(
        keys(&rig),
        [fallback.as_str(), "queue#nightly-report:2026-11-12"]
    );
    let seen = rig.stub.seen();
    let of = |body: &[u8]| seen.iter().find(|seen| seen.body == body).unwrap();
    let keyed = of(br#"{"day": "2026-11-12"}"#);
    assert_eq!(
        keyed.header("firstclaim-delivery"),
        Some("3b54a251-74a3-4ef7-ad91-f90bc5228e8a")
    );
    let plain = of(b"plain words, no JSON");
    assert_eq!(
        plain.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    // Delivered raw it is the same operation: the same key, and no other payload.
    let raw = rig.event_until(NOW.after(RUN), sample("lambda/sns-to-sqs.raw.json"));
    assert_eq!(rig.cold().handle(raw).await.batch_item_failures, []);
    assert_eq!(rig.effects(), 2);
}

#[tokio::test]
async fn eventbridge_events_are_known_by_their_id_and_never_by_what_is_called_key_in_them() {
    let rig = without_dead_letters().await;
    assert_eq!(
        handle(&rig, "lambda/eventbridge-to-sqs.json").await,
        returned(&[])
    );
    assert_eq!(
        keys(&rig),
        [
            "queue#[\"eventbridge\",\"a8ba8bcb-7953-453c-a7ca-abe5421be424\"]",
            "queue#[\"eventbridge\",\"bbce1415-b027-44fb-a613-fce9cfb68be7\"]",
            "queue#[\"s3\",\"fc-sample-uploads\",\"labels/größe M.pdf\",[\"version\",\"vR1xSaMpLe\"],\
             \"ObjectCreated\",[\"sequencer\",\"0069147F5460F1B0A1\"]]",
        ]
    );
    let kinds: Vec<_> = rig
        .stub
        .seen()
        .iter()
        .map(|seen| seen.header("firstclaim-kind").unwrap().to_owned())
        .collect();
    assert!(kinds.contains(&"Parcel%20Scanned".to_owned()), "{kinds:?}");
    // The same object's creation as S3 itself tells it.
    handle(&rig, "lambda/s3-to-sqs.json").await;
    assert_eq!(rig.effects(), 3 + 3);
}

#[tokio::test]
async fn a21_s3_notifications_are_an_operation_for_each_record_and_tests_are_noise() {
    let rig = without_dead_letters().await;
    assert_eq!(handle(&rig, "lambda/s3-to-sqs.json").await, returned(&[]));
    let object = "queue#[\"s3\",\"fc-sample-uploads\",\"labels/größe M.pdf\"";
    assert_eq!(
        keys(&rig),
        [
            format!("{object},\"ObjectRemoved\",[\"sequencer\",\"0069147FA0AA01B0C2\"]]"),
            format!("{object},[\"version\",\"vR1xSaMpLe\"],\"ObjectCreated\",[\"sequencer\",\"0069147F5460F1B0A1\"]]"),
            format!("{object},[\"version\",\"vR2xSaMpLe\"],\"ObjectCreated\",[\"sequencer\",\"0069147F99AA01B0C2\"]]"),
            "queue#[\"s3\",\"fc-sample-uploads\",\"scans/2026/11/12/0001.json\",\"ObjectCreated\",[\"sequencer\",\"0069147F5460F1B0FF\"]]".to_owned(),
        ]
    );
    // Each call brings a notification with the one record that it is about.
    for seen in rig.stub.seen() {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(body["Records"].as_array().map(Vec::len), Some(1));
    }
    assert_eq!(
        handle(&rig, "lambda/s3-test-event.json").await,
        returned(&[])
    );
    let mut metrics = Vec::new();
    rig.worker.flush_metrics(&mut metrics).unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("\"Ignored\":3"), "{metrics}");
    assert_eq!(rig.effects(), 4);
}

/// An S3 record of which one member is changed.
fn s3(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut record = json!({
        "eventSource": "aws:s3",
        "eventName": name,
        "eventTime": "2026-11-12T10:21:07.021Z",
        "responseElements": {"x-amz-request-id": "R1"},
        "s3": {
            "bucket": {"name": "b"},
            "object": {"key": "k", "versionId": "v", "sequencer": "s"},
        },
    });
    change(&mut record);
    record
}

fn notification(records: &[Value]) -> String {
    json!({"Records": records}).to_string()
}

#[tokio::test]
async fn two_events_of_one_object_are_never_taken_for_one() {
    let same = |_: &mut Value| {};
    let events = [
        s3("ObjectCreated:Put", same),
        s3("ObjectRemoved:Delete", same),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["sequencer"] = "t".into()
        }),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["versionId"] = "w".into()
        }),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["key"] = "k%2B".into()
        }),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["key"] = "k+".into()
        }),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["key"] = "k%7F".into()
        }),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["key"] = "k%257F".into()
        }),
        s3("ObjectCreated:Put", |event| {
            event["s3"]["bucket"]["name"] = "c".into()
        }),
        // Tags: the sequencer does not tell two of them apart.
        s3("ObjectTagging:Put", same),
        s3("ObjectTagging:Put", |event| {
            event["responseElements"]["x-amz-request-id"] = "R2".into()
        }),
        s3("ObjectTagging:Put", |event| {
            event["eventTime"] = "2026-11-12T10:21:08.021Z".into()
        }),
    ];
    let rig = without_dead_letters().await;
    let messages: Vec<_> = events
        .iter()
        .enumerate()
        .map(|(at, event)| {
            record(
                &format!("m{at}"),
                &notification(std::slice::from_ref(event)),
            )
        })
        .collect();
    assert_eq!(rig.handle(&messages).await, returned(&[]));
    assert_eq!(
        (keys(&rig).len(), rig.effects()),
        (events.len(), events.len())
    );
    // And each again, wrapped by SNS: none of them runs.
    let wrapped: Vec<_> = events
        .iter()
        .map(|event| {
            let message = json!({
                "Type": "Notification",
                "MessageId": "another",
                "TopicArn": "topic",
                "Message": notification(std::slice::from_ref(event)),
            });
            record("w", &message.to_string())
        })
        .collect();
    rig.handle(&wrapped).await;
    assert_eq!(rig.effects(), events.len());
}

#[tokio::test]
async fn a_senders_key_is_never_taken_for_one_that_is_made_here() {
    let rig = without_dead_letters().await;
    let theirs = json!({"key": "[\"eventbridge\",\"e1\"]"}).to_string();
    let ours = json!({"id": "e1", "detail-type": "t", "source": "s", "detail": {}}).to_string();
    rig.handle(&[record("a", &theirs), record("b", &ours)])
        .await;
    assert_eq!(keys(&rig).len(), 2);
}

#[tokio::test]
async fn n26_of_a_message_with_two_operations_only_what_is_not_done_runs_again() {
    let rig = Rig::answering(Plan::default(), |seen| {
        let first = String::from_utf8_lossy(&seen.body).contains("\"bad\"");
        crate::stub::Reply::status(if first { 503 } else { 200 })
    })
    .await;
    let named = |name: &str| {
        s3("ObjectCreated:Put", |event| {
            event["s3"]["object"]["key"] = name.into()
        })
    };
    let message = [record("m", &notification(&[named("bad"), named("good")]))];
    assert_eq!(rig.handle(&message).await, returned(&["m"]));
    assert_eq!(rig.effects(), 2, "a bad record never hurts the others");
    assert_eq!(rig.handle(&message).await, returned(&["m"]));
    assert_eq!(rig.effects(), 3);
    let done = rig
        .memory
        .records()
        .into_iter()
        .filter(|record| record.status == Status::Completed);
    assert_eq!(done.count(), 1);
}

#[tokio::test]
async fn what_only_a_person_can_answer_is_a_dead_letter() {
    let rig = Rig::new(Plan::default()).await;
    let confirm = json!({
        "Type": "SubscriptionConfirmation", "MessageId": "m", "TopicArn": "t",
        "Message": "You have chosen to subscribe", "SubscribeURL": "https://sns.example/",
    });
    let noise = json!({
        "Type": "Notification", "MessageId": "m", "TopicArn": "t",
        "Message": "Successfully validated SNS topic for Amazon SES event publishing.",
    });
    let scaling = json!({"Service": "AWS Auto Scaling", "Event": "autoscaling:TEST_NOTIFICATION"});
    let batch = [confirm, noise, scaling].map(|body| record("m", &body.to_string()));
    assert_eq!(rig.handle(&batch).await, returned(&[]));
    let letters = rig.queues.letters();
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (letters[0].reason, letters[0].code.as_str()),
        (Reason::Undecodable, "sns_subscription")
    );
    assert_eq!(rig.effects(), 0);
}
