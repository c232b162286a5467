//! Input that nobody should send. After each the same process still serves a good one.

use std::time::Duration;

use anyhow::ensure;
use integration::Lab;
use integration::deliveries::HttpAnswer;
use integration::lab::WORK;
use integration::process::Process;
use integration::queue_stub::returned;
use integration::runtime_api::Ended;
use serde_json::{Value, json};

use crate::registry::{Test, tests};
use crate::whole::{deliver, key_of};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            the_door_survives_bad_bodies,
            n32_null_and_absent_fields_are_alike,
            the_door_survives_events_of_no_known_form,
            a_key_of_two_thousand_characters,
            a21_the_worker_survives_bad_messages,
            a_missing_table_loses_nothing,
            a_refusing_store_returns_messages,
        ;
        race:
    ]
}

const LIMIT: Duration = Duration::from_secs(20);

/// A good delivery that was never sent before.
async fn serves_a_good_one(lab: &Lab, webhook: &Process, number: usize) -> anyhow::Result<()> {
    let delivery = lab.suite.deliveries.load("standard/user.created")?;
    let delivery = delivery
        .with_header("webhook-id", &format!("msg_good_{number}"))
        .signed()?;
    key_of(&deliver(webhook, &delivery).await?)?;
    Ok(())
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

async fn the_door_survives_bad_bodies(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let github = lab.suite.deliveries.load("github/issue_comment.created")?;
    let form = "application/x-www-form-urlencoded";
    let bodies: [(&str, Vec<u8>); 8] = [
        ("empty", Vec::new()),
        ("no JSON", b"{\"action\":".to_vec()),
        ("invalid UTF-8", b"{\"action\":\"\xff\xfe\"}".to_vec()),
        ("deep", nested(10_000).into_bytes()),
        (
            "deep in an object",
            format!("{{\"action\":{}}}", nested(10_000)).into_bytes(),
        ),
        ("a scalar", b"1".to_vec()),
        ("NUL", b"{\"action\":\"a\\u0000b\"}".to_vec()),
        ("6 MB", vec![b'a'; 6 * 1024 * 1024 + 1]),
    ];
    for (number, (name, body)) in bodies.into_iter().enumerate() {
        for delivery in [
            github.clone().with_body(body.clone()).signed()?,
            github.clone().with_body(body.clone()),
            github
                .clone()
                .with_body(body.clone())
                .with_header("content-type", form)
                .signed()?,
            lab.suite
                .deliveries
                .load("token/operation")?
                .with_body(body.clone())
                .signed()?,
        ] {
            let answer = deliver(&webhook, &delivery).await?;
            ensure!(
                matches!(answer.status, 202 | 400 | 401 | 413 | 422),
                "{name} for {}: {answer:?}",
                delivery.path
            );
            if answer.status == 202 {
                ensure!(
                    delivery
                        .headers
                        .keys()
                        .any(|key| key.contains("signature") || key == "authorization")
                );
            }
        }
        serves_a_good_one(lab, &webhook, number).await?;
    }
    ensure!(!lab.log.contains("panicked"), "a panic");
    Ok(())
}

async fn n32_null_and_absent_fields_are_alike(lab: &Lab) -> anyhow::Result<()> {
    let webhook = lab.webhook().await?;
    let good = lab
        .suite
        .deliveries
        .load("github/issue_comment.created")?
        .signed()?;
    for field in [
        "version",
        "routeKey",
        "rawPath",
        "rawQueryString",
        "headers",
        "requestContext",
        "body",
        "isBase64Encoded",
        "cookies",
        "pathParameters",
        "queryStringParameters",
        "stageVariables",
    ] {
        let mut statuses = Vec::new();
        for absent in [true, false] {
            let mut event = good.event();
            if absent {
                event.as_object_mut().map(|fields| fields.remove(field));
            } else {
                event[field] = Value::Null;
            }
            let answer = HttpAnswer::read(&webhook.invoke(&event).await?)?;
            ensure!(answer.status < 500, "{field}: {answer:?}");
            statuses.push(answer.status);
        }
        assert_eq!(statuses[0], statuses[1], "{field}");
    }
    let staged = lab
        .suite
        .deliveries
        .load("github/issue_comment.edited")?
        .signed()?;
    let mut event = staged.event();
    event["rawPath"] = json!("/prod/webhooks/github");
    event["requestContext"]["stage"] = json!("prod");
    event["rawQueryString"] = Value::Null;
    let answer = HttpAnswer::read(&webhook.invoke(&event).await?)?;
    key_of(&answer)?;
    serves_a_good_one(lab, &webhook, 0).await
}

async fn the_door_survives_events_of_no_known_form(lab: &Lab) -> anyhow::Result<()> {
    let mut webhook = lab.webhook().await?;
    let events = [
        "{}",
        "[]",
        "null",
        "0",
        "\"\"",
        "{\"Records\":[]}",
        "",
        "not json",
        &nested(10_000),
    ];
    for (number, event) in events.into_iter().enumerate() {
        // An answer or an error of the invocation: both leave the process alive.
        let ended = webhook.invoke_raw(event.as_bytes().to_vec(), LIMIT).await?;
        ensure!(
            ended != Ended::Killed && webhook.alive()?,
            "{event:.20} ended the process"
        );
        serves_a_good_one(lab, &webhook, number).await?;
    }
    ensure!(!lab.log.contains("panicked"), "a panic");
    Ok(())
}

async fn a_key_of_two_thousand_characters(lab: &Lab) -> anyhow::Result<()> {
    let (webhook, worker) = (lab.webhook().await?, lab.queue().await?);
    let long = "k".repeat(2000);
    let operation = lab.suite.deliveries.load("token/operation")?.signed()?;
    let refused = deliver(&webhook, &operation.with_header("idempotency-key", &long)).await?;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()?["type"],
        "urn:firstclaim:problem:malformed-key"
    );
    assert_eq!((lab.dynamodb.total(), lab.sqs.total()), (0, 0));

    // Where others choose the key and no limit is said, two long keys with one beginning stay two.
    for end in ["a", "b", "a"] {
        let message = json!({"key": format!("{long}{end}"), "payload": {}});
        lab.queues.send(WORK, &message.to_string());
    }
    lab.drain(&[worker]).await?;
    let effects = lab.target.effects();
    assert_eq!(
        effects.values().copied().collect::<Vec<_>>(),
        [1, 1],
        "{effects:?}"
    );
    Ok(())
}

async fn a21_the_worker_survives_bad_messages(lab: &Lab) -> anyhow::Result<()> {
    let mut variables = lab.queue_variables();
    variables.remove("DEAD_LETTER_URL");
    let mut worker = lab.process("queue", &variables).await?;
    let deep = nested(10_000);
    let deep_payload = format!(r#"{{"key":"deep","payload":{deep}}}"#);
    let bad = [
        "",
        "garbage",
        "null",
        "[]",
        "{}",
        "0",
        r#"{"key":""}"#,
        r#"{"key":null}"#,
        r#"{"key":["a"]}"#,
        r#"{"key":"a\nb","payload":{}}"#,
        r#"{"v":1}"#,
        r#"{"v":99,"key":"a#b"}"#,
        &deep,
    ];
    for (number, body) in bad.into_iter().enumerate() {
        lab.queues.send(
            WORK,
            &format!(r#"{{"key":"before {number}","payload":{{}}}}"#),
        );
        lab.queues.send(WORK, body);
        lab.queues.send(
            WORK,
            &format!(r#"{{"key":"after {number}","payload":{{}}}}"#),
        );
        let batch = lab.queues.receive(WORK, 3);
        let answer = worker.invoke(&batch.event()).await?;
        let failed: Vec<_> = returned(&answer)?.into_iter().collect();
        assert_eq!(failed, [batch.messages[1].id.clone()], "{body:.40}");
        assert_eq!(lab.target.effect_count(), 2 * (number + 1), "{body:.40}");
        // Only the bad one comes back, and it is put aside.
        lab.queues.settle(&batch, &answer)?;
        let left = lab.queues.receive(WORK, 10);
        lab.queues
            .settle(&left, &json!({"batchItemFailures": []}))?;
    }
    lab.queues.send(WORK, &deep_payload);
    let batch = lab.queues.receive(WORK, 1);
    worker.invoke(&batch.event()).await?;
    for event in [
        "{}",
        "[]",
        "null",
        "{\"Records\":null}",
        "{\"Records\":[null]}",
        "",
        &deep,
    ] {
        let ended = worker.invoke_raw(event.as_bytes().to_vec(), LIMIT).await?;
        ensure!(
            ended != Ended::Killed && worker.alive()?,
            "{event:.20} ended the process"
        );
    }
    ensure!(!lab.log.contains("panicked"), "a panic");
    Ok(())
}

async fn a_missing_table_loses_nothing(lab: &Lab) -> anyhow::Result<()> {
    let with_missing_table = |mut variables: std::collections::BTreeMap<String, String>| {
        variables.insert("CLAIMS_TABLE".to_owned(), "no-such-table".to_owned());
        variables
    };
    let webhook = lab
        .process("webhook", &with_missing_table(lab.webhook_variables()))
        .await?;
    let worker = lab
        .process("queue", &with_missing_table(lab.queue_variables()))
        .await?;
    let delivery = lab
        .suite
        .deliveries
        .load("github/issue_comment.created")?
        .signed()?;
    key_of(&deliver(&webhook, &delivery).await?)?;
    let operation = lab.suite.deliveries.load("token/operation")?.signed()?;
    assert_eq!(deliver(&webhook, &operation).await?.status, 503);
    assert_eq!(
        returned(&lab.work(&worker, 10).await?)?.len(),
        1,
        "it must stay in the queue"
    );
    assert_eq!(
        lab.target.received().len(),
        0,
        "nothing runs without a claim"
    );
    lab.drain(&[lab.queue().await?]).await?;
    assert_eq!(lab.target.effect_count(), 1);
    Ok(())
}

async fn a_refusing_store_returns_messages(lab: &Lab) -> anyhow::Result<()> {
    let worker = lab.queue().await?;
    for number in 0..3 {
        lab.queues.send(
            WORK,
            &json!({"key": number.to_string(), "payload": {}}).to_string(),
        );
    }
    lab.dynamodb.shut().await;
    assert_eq!(returned(&lab.work(&worker, 10).await?)?.len(), 3);
    assert_eq!(
        lab.target.received().len(),
        0,
        "nothing runs without a claim"
    );
    lab.dynamodb.reopen().await?;
    lab.drain(&[worker]).await?;
    assert_eq!(lab.target.effect_count(), 3);
    Ok(())
}
