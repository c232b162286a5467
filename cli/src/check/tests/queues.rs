//! Faults of the queues.

use serde_json::{Value, json};

use super::*;
use crate::dev::sqs;

fn run(queue: &str) -> Run {
    let mut run = Run::new();
    run.options.queue_url = Some(queue.to_owned());
    run
}

async fn local(queues: &[sqs::Settings]) -> sqs::Server {
    sqs::Server::start(queues, &sqs::Storage::Memory)
        .await
        .unwrap()
}

/// A service whose queues `work` and `dead` have these attributes, over those of a queue as it
/// should be.
async fn service(work: Value, dead: Value) -> stub::Stub {
    let answers = std::sync::Mutex::new([work, dead].into_iter());
    let service = stub::service(move |call| match call {
        "GetQueueUrl" => Ok(json!({ "QueueUrl": "http://127.0.0.1/0/dead" })),
        // The work queue is asked first.
        "GetQueueAttributes" => {
            let attributes = answers.lock().unwrap().next();
            Ok(json!({ "Attributes": attributes.unwrap_or_default() }))
        }
        _ => Err("UnsupportedOperation"),
    });
    service.await
}

fn queue(name: &str, changes: Value) -> Value {
    let mut attributes = json!({
        "QueueArn": format!("arn:aws:sqs:us-east-1:000000000000:{name}"),
        "VisibilityTimeout": "360",
        "MessageRetentionPeriod": "1209600",
        "ApproximateNumberOfMessages": "0",
    });
    for (name, value) in changes.as_object().unwrap() {
        attributes[name] = value.clone();
    }
    attributes
}

fn redrive(queue: &str, count: Value) -> Value {
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{queue}");
    let policy = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": count });
    json!({ "RedrivePolicy": policy.to_string() })
}

/// What is found with these attributes.
async fn found(work: Value, dead: Value) -> Report {
    let service = service(work, dead).await;
    let url = format!("{}/0/work", service.url);
    let mut run = run(&url);
    run.options.worker_timeout = Some(Duration::from_secs(60));
    run.report().await
}

#[tokio::test]
async fn queues_as_the_template_makes_them_have_no_fault() {
    for count in [json!(20), json!("20")] {
        let report = found(
            queue("work", redrive("dead", count)),
            queue("dead", json!({})),
        )
        .await;
        for check in [
            "queue",
            "visibility",
            "redrive",
            "retention",
            "dead-letters",
        ] {
            report.only(check).is(Status::Ok, &[]);
        }
        report
            .only("redrive")
            .is(Status::Ok, &["after 20 receives to dead"]);
        report
            .only("retention")
            .is(Status::Ok, &["14 d and 14 d", "31 d"]);
    }
}

#[tokio::test]
async fn the_local_queues_have_no_fault() {
    let local = local(&[
        sqs::Settings::new("dead"),
        sqs::Settings::new("work").redrive("dead", 10),
    ])
    .await;
    let report = run(&local.queue_url("work")).report().await;
    report.only("queue").is(Status::Ok, &["0 waiting"]);
    report.only("visibility").is(Status::Ok, &["30 s"]);
    report
        .only("redrive")
        .is(Status::Ok, &["after 10 receives to dead"]);
    let dead = report.only("dead-letters");
    dead.is(Status::Ok, &["empty"]);
    assert_eq!(dead.subject, Some(local.queue_url("dead")));

    let letter = sqs::Draft {
        body: "{}".to_owned(),
        ..sqs::Draft::default()
    };
    local
        .queue("dead")
        .unwrap()
        .send(letter, Duration::ZERO)
        .unwrap();
    let report = run(&local.queue_url("work")).report().await;
    report
        .only("dead-letters")
        .is(Status::Warning, &["1 waiting"]);
}

#[tokio::test]
async fn a_missing_queue_is_a_fault() {
    let local = local(&[sqs::Settings::new("work")]).await;
    let mut run = run(&local.queue_url("other"));
    let report = run.report().await;
    report.only("queue").is(Status::Fault, &["does not exist"]);
    report.only("redrive").is(Status::Skipped, &[]);

    run.options.queue_url = Some(local.queue_url("work"));
    run.options.dead_letter_url = Some(local.queue_url("other"));
    let report = run.report().await;
    report.only("queue").is(Status::Ok, &[]);
    report
        .only("dead-letters")
        .is(Status::Fault, &["does not exist"]);
}

#[tokio::test]
async fn no_redrive_policy_is_a_fault() {
    let local = local(&[sqs::Settings::new("work")]).await;
    let report = run(&local.queue_url("work")).report().await;
    report
        .only("redrive")
        .is(Status::Fault, &["no redrive policy", "RedrivePolicy"]);
    report.only("dead-letters").is(Status::Skipped, &[]);
    for policy in ["", "{}", "[]"] {
        let work = queue("work", json!({ "RedrivePolicy": policy }));
        let report = found(work, queue("dead", json!({}))).await;
        report.only("redrive").is(Status::Fault, &["can't be read"]);
    }
    let hasty = found(
        queue("work", redrive("dead", json!(1))),
        queue("dead", json!({})),
    )
    .await;
    hasty
        .only("redrive")
        .is(Status::Warning, &["after 1 receives", "maxReceiveCount"]);
}

#[tokio::test]
async fn a_visibility_shorter_than_the_worker_runs_is_a_fault() {
    for (visibility, status) in [
        ("59", Status::Fault),
        ("60", Status::Warning),
        ("360", Status::Ok),
    ] {
        let mut work = queue("work", redrive("dead", json!(20)));
        work["VisibilityTimeout"] = json!(visibility);
        let report = found(work, queue("dead", json!({}))).await;
        report.only("visibility").is(status, &[visibility, "60 s"]);
    }
}

#[tokio::test]
async fn messages_that_outlive_the_window_are_a_fault() {
    let service = service(
        queue("work", redrive("dead", json!(20))),
        queue("dead", json!({})),
    )
    .await;
    let report = run(&format!("{}/0/work", service.url))
        .env("CLAIMS_WINDOW", "28d")
        // A fault elsewhere changes nothing.
        .env("BODY_LIMIT", "none")
        .report()
        .await;
    report
        .only("retention")
        .is(Status::Fault, &["28 d", "CLAIMS_WINDOW"]);
}

#[tokio::test]
async fn a_dead_letter_queue_that_does_not_keep_is_a_fault() {
    let work = || queue("work", redrive("dead", json!(20)));
    let short = queue("dead", json!({ "MessageRetentionPeriod": "345600" }));
    let report = found(work(), short).await;
    report
        .only("dead-letters")
        .is(Status::Fault, &["4 d", "14 d", "gone at once"]);

    let fifo = found(work(), queue("dead.fifo", json!({}))).await;
    fifo.only("dead-letters").is(Status::Fault, &["FIFO"]);

    let other = found(work(), queue("elsewhere", json!({}))).await;
    other
        .only("dead-letters")
        .is(Status::Warning, &["elsewhere", "dead"]);
}

#[tokio::test]
async fn a_dead_letter_queue_that_is_the_work_queue_is_a_fault() {
    let local = local(&[sqs::Settings::new("work")]).await;
    let mut run = run(&local.queue_url("work"));
    run.options.dead_letter_url = Some(local.queue_url("work"));
    let report = run.report().await;
    report
        .only("dead-letters")
        .is(Status::Fault, &["the work queue itself"]);
}

#[tokio::test]
async fn what_is_denied_is_named() {
    let denied = stub::service(|_| Err("AccessDeniedException")).await;
    let report = run(&format!("{}/0/work", denied.url)).report().await;
    report
        .only("queue")
        .is(Status::Fault, &["grant sqs:GetQueueAttributes"]);
    assert_eq!(
        report.exit_code(),
        69,
        "of the store, which is not there in this test"
    );
}

#[tokio::test]
async fn a_queue_that_hangs_ends_its_check_alone() {
    let engine = engine().await;
    let silent = stub::silent();
    let mut run = Run::at(&engine.endpoint());
    run.options.queue_url = Some(format!("http://{}/0/work", silent.address));
    run.options.limit = Duration::from_secs(2);
    let report = run.report().await;
    report.only("queue").is(Status::Fault, &[]);
    report.only("claim").is(Status::Ok, &[]);
    assert_eq!(report.exit_code(), 1);
}
