use std::sync::Mutex;

use lambda_runtime::LambdaEvent;

use super::super::sqs::{Count, Draft, Server, Settings, Storage};
use super::*;

const BOUND: Duration = Duration::from_secs(10);

async fn queue(visibility: Duration) -> (Server, Queue) {
    let settings = [Settings::new("work").visibility(visibility)];
    let server = Server::start(&settings, &Storage::Memory).await.unwrap();
    let queue = server.queue("work").unwrap();
    (server, queue)
}

fn send(queue: &Queue, body: &str) -> String {
    let draft = Draft {
        body: body.to_owned(),
        attributes: [("reason".to_owned(), Attribute::text("timeout"))].into(),
        group: Some("octo/hello#1".to_owned()),
        trace: None,
    };
    queue.send(draft, Duration::ZERO).unwrap()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, wait).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_batch_looks_as_lambda_sends_it() {
    let (_server, queue) = queue(BOUND).await;
    let id = send(&queue, "hello");
    let messages = queue.receive(BATCH, None).unwrap();
    let event = event(&queue, &messages);
    let record = &event["Records"][0];
    assert_eq!(record["messageId"], id);
    assert_eq!(record["receiptHandle"], messages[0].receipt);
    assert_eq!(record["body"], "hello");
    assert_eq!(record["md5OfBody"], "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(
        record["md5OfMessageAttributes"],
        "b6d5ddb4184a493e6e429dca43ad9c9f"
    );
    assert_eq!(record["attributes"]["ApproximateReceiveCount"], "1");
    assert_eq!(record["attributes"]["MessageGroupId"], "octo/hello#1");
    assert_eq!(
        record["attributes"]["SentTimestamp"],
        messages[0].sent.0.to_string()
    );
    assert_eq!(
        record["messageAttributes"],
        json!({"reason": {
            "dataType": "String",
            "stringValue": "timeout",
            "stringListValues": [],
            "binaryListValues": [],
        }})
    );
    assert_eq!(record["eventSource"], "aws:sqs");
    assert_eq!(
        record["eventSourceARN"],
        "arn:aws:sqs:us-east-1:000000000000:work"
    );
    assert_eq!(record["awsRegion"], "us-east-1");
}

#[tokio::test]
async fn what_is_not_returned_is_deleted_and_what_is_returned_comes_again() {
    let (_server, queue) = queue(Duration::from_millis(50)).await;
    let returned = send(&queue, "returned once");
    send(&queue, "done");
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let function = Function::new("queue", BOUND, {
        let seen = Arc::clone(&seen);
        move |event: LambdaEvent<Value>| {
            let mut failures = Vec::new();
            for record in event.payload["Records"].as_array().unwrap() {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let receives = text(&record["attributes"]["ApproximateReceiveCount"]);
                let id = text(&record["messageId"]);
                if receives == "1" && record["body"] == "returned once" {
                    failures.push(json!({"itemIdentifier": id}));
                }
                seen.lock().unwrap().push((id, receives));
            }
            async move { Ok(json!({"batchItemFailures": failures})) }
        }
    });
    let poller = Poller::start(queue.clone(), function);
    until("all is done", || queue.count() == Count::default()).await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.contains(&(returned, "2".to_owned())), "{seen:?}");
    assert!(poller.stop(BOUND).await);
}

#[tokio::test]
async fn a_batch_whose_function_panics_comes_again() {
    let (_server, queue) = queue(Duration::from_millis(50)).await;
    send(&queue, "panics once");
    let function = Function::new("queue", BOUND, |event: LambdaEvent<Value>| async move {
        let receives = &event.payload["Records"][0]["attributes"]["ApproximateReceiveCount"];
        assert_ne!(receives, "1", "the first time");
        Ok(Value::Null)
    });
    let poller = Poller::start(queue.clone(), function);
    until("it is done", || queue.count() == Count::default()).await;
    assert!(poller.stop(BOUND).await);
}

#[tokio::test]
async fn stopping_waits_for_what_runs_and_starts_nothing() {
    let (_server, queue) = queue(BOUND).await;
    let may_go = Arc::new(Semaphore::new(0));
    let entered = Arc::new(Semaphore::new(0));
    let function = Function::new("queue", BOUND, {
        let (may_go, entered) = (Arc::clone(&may_go), Arc::clone(&entered));
        move |_| {
            let (may_go, entered) = (Arc::clone(&may_go), Arc::clone(&entered));
            async move {
                entered.add_permits(1);
                may_go.acquire().await.unwrap().forget();
                Ok(Value::Null)
            }
        }
    });
    let poller = Poller::start(queue.clone(), function);
    send(&queue, "running");
    entered.acquire().await.unwrap().forget();
    poller.stop.send_replace(true);
    send(&queue, "too late");
    may_go.add_permits(1);
    assert!(poller.stop(BOUND).await);
    assert_eq!(
        queue.count(),
        Count {
            visible: 1,
            ..Count::default()
        }
    );
}

#[tokio::test]
async fn an_answer_is_read_as_lambda_reads_it() {
    let (_server, queue) = queue(BOUND).await;
    let ids = [send(&queue, "a"), send(&queue, "b")];
    let messages = queue.receive(BATCH, None).unwrap();
    let all = Ok(messages
        .iter()
        .map(|message| message.receipt.clone())
        .collect());
    for answer in [
        json!(null),
        json!({}),
        json!({"batchItemFailures": null}),
        json!({"batchItemFailures": []}),
    ] {
        assert_eq!(done(&messages, &answer), all, "{answer}");
    }
    let failures = |ids: &[&str]| {
        let items: Vec<Value> = ids.iter().map(|id| json!({"itemIdentifier": id})).collect();
        json!({"batchItemFailures": items})
    };
    let second = Ok(vec![messages[1].receipt.clone()]);
    assert_eq!(done(&messages, &failures(&[&ids[0], &ids[0]])), second);
    for answer in [
        failures(&[""]),
        failures(&[&ids[0], "foreign"]),
        json!({"batchItemFailures": [{"itemIdentifier": null}]}),
        json!({"batchItemFailures": [ids[0]]}),
        json!({"batchItemFailures": "all"}),
        json!("done"),
    ] {
        assert!(done(&messages, &answer).is_err(), "{answer}");
    }
}
