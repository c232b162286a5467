//! What is lost on the way: nothing that was answered with 202, and no key for longer than a lease.

use std::time::Duration;

use firstclaim::Status;
use firstclaim::aws::{Patience, loopback_config};
use firstclaim::store::memory::Fault;
use serde_json::json;
use tokio::time::Instant;
use webhook::{ANSWERED_WITHIN, Message, Outbox, SendError, Sqs};

use crate::bench::{Bench, RUN, Request, Sending, problem, until};
use crate::endpoint::{Endpoint, Reply};

#[tokio::test]
async fn n24_202_only_after_the_queue_has_confirmed() {
    for (sending, queued) in [(Sending::Refuse, 0), (Sending::LoseReply, 1)] {
        for request in [
            Request::of("github/push.json"),
            Request::of("standard/user.created.json"),
            Request::of("token/operation.json"),
        ] {
            let bench = Bench::new();
            bench.queue.plan([sending]);
            let response = bench.send(&request).await;
            assert_eq!(response.status_code, 503);
            assert_eq!(problem(&response), "unavailable");
            assert_eq!(response.headers["retry-after"], "5");
            assert_eq!(bench.queue.messages().len(), queued);

            let again = bench.send(&request).await;
            assert_eq!(again.status_code, 202);
            assert!(!again.headers.contains_key("idempotent-replayed"));
            assert_eq!(bench.queue.operations(), 1);
        }
    }
}

#[tokio::test]
async fn a_queue_with_a_lower_limit_is_too_large_too() {
    let bench = Bench::new();
    bench.queue.plan([Sending::TooLarge]);
    let response = bench.send(&Request::of("github/push.json")).await;
    assert_eq!(response.status_code, 413);
}

#[tokio::test]
async fn a31_a_failed_acceptance_is_undone_and_the_next_one_is_whole() {
    let bench = Bench::new();
    bench.queue.plan([Sending::Refuse]);
    let request = Request::of("standard/user.created.json");
    assert_eq!(bench.send(&request).await.status_code, 503);
    let record = bench.memory.records().remove(0);
    assert!(record.released());
    assert_eq!(record.error.as_ref().unwrap().code, "not_queued");
    assert_eq!(bench.cold().send(&request).await.status_code, 202);
    let record = bench.memory.records().remove(0);
    assert_eq!((record.status, record.attempt), (Status::Completed, 2));
}

#[tokio::test]
async fn webhooks_never_lose_an_event_to_their_own_store() {
    // The claim is refused, its reply is lost; then the same for the completion.
    let plans: [&[Fault]; 4] = [
        &[Fault::Refuse],
        &[Fault::LoseReply],
        &[Fault::None, Fault::Refuse],
        &[Fault::None, Fault::LoseReply],
    ];
    for plan in plans {
        for file in ["github/push.json", "standard/user.created.json"] {
            let bench = Bench::new();
            bench.store.plan(plan.iter().copied());
            let response = bench.send(&Request::of(file)).await;
            assert_eq!(response.status_code, 202, "{plan:?}");
            assert_eq!(bench.queue.messages().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_written_does_not_cost_the_202() {
    let bench = Bench::new();
    bench
        .store
        .plan([[Fault::None].as_slice(), &[Fault::Refuse; 20]].concat());
    let request = Request::of("standard/user.created.json");
    let response = bench.send(&request).await;
    assert_eq!(response.status_code, 202);
    // Its lease lapses; then a duplicate is queued again, as the same operation.
    bench.clock.advance(RUN + Duration::from_secs(3));
    let again = bench.cold().send(&request).await;
    assert_eq!(again.status_code, 202);
    assert_eq!(bench.queue.operations(), 1);
}

#[tokio::test]
async fn neither_store_nor_queue_is_503() {
    let bench = Bench::new();
    bench.store.plan([Fault::Refuse]);
    bench.queue.plan([Sending::Refuse]);
    let response = bench.send(&Request::of("github/push.json")).await;
    assert_eq!(response.status_code, 503);
}

/// Slack waits for three seconds and counts what is late as an error; each of the calls may hang.
#[tokio::test(start_paused = true)]
async fn an_answer_is_out_in_time_whatever_hangs() {
    let event = || Request::of("slack/event_callback.message.json");
    let operation = || Request::operation("key", "{}");
    // The request, what the store does, whether the queue answers, the status, the messages.
    let cases: [(Request, &[Fault], bool, u16, usize); 7] = [
        (event(), &[Fault::Hang], true, 202, 1),
        (event(), &[Fault::None, Fault::Hang], true, 202, 1),
        (event(), &[], false, 503, 0),
        (event(), &[Fault::Hang], false, 503, 0),
        (event(), &[Fault::None, Fault::Hang], false, 503, 0),
        (operation(), &[Fault::Hang], true, 503, 0),
        (operation(), &[Fault::None, Fault::Hang], false, 503, 0),
    ];
    for (request, faults, answers, status, queued) in cases {
        let bench = Bench::new();
        bench.store.plan(faults.iter().copied());
        if !answers {
            bench.queue.close();
        }
        let started = Instant::now();
        let response = bench.send(&request).await;
        let took = started.elapsed();
        let case = format!("{faults:?}, the queue answers: {answers}");
        assert_eq!(response.status_code, status, "{case}");
        assert_eq!(bench.queue.messages().len(), queued, "{case}");
        assert!(took <= ANSWERED_WITHIN, "{case}: {took:?}");

        // Nothing is lost: once the services answer and the lease is over, the sender's next try
        // is whole.
        if !answers {
            bench.queue.open();
        }
        bench.clock.advance(RUN + Duration::from_secs(3));
        let again = bench.cold().send(&request).await;
        assert_eq!(again.status_code, 202, "{case}");
        assert_eq!(bench.queue.operations(), 1, "{case}");
    }
}

#[tokio::test]
async fn operations_fail_closed() {
    for fault in [Fault::Refuse, Fault::LoseReply] {
        let bench = Bench::new();
        bench.store.plan([fault]);
        let response = bench.send(&Request::operation("key", "{}")).await;
        assert_eq!(response.status_code, 503);
        assert!(response.headers.contains_key("retry-after"));
        assert!(bench.queue.messages().is_empty());
    }
    let bench = Bench::new();
    let location = bench.send(&Request::operation("key", "{}")).await.headers["location"].clone();
    let look_up = Request::operation("key", "").to(&location);
    let look_up = Request {
        method: "GET".to_owned(),
        ..look_up
    };
    bench.store.plan([Fault::Refuse]);
    assert_eq!(bench.send(&look_up).await.status_code, 503);
}

#[tokio::test]
async fn p21_a13_a_claim_whose_reply_was_lost_is_recognised() {
    for fault in [Fault::Repeat, Fault::NoItem] {
        let bench = Bench::new();
        bench.store.plan([fault, fault]);
        let response = bench.send(&Request::operation("key", "{}")).await;
        assert_eq!(response.status_code, 202, "{fault:?}");
        assert_eq!(bench.queue.messages().len(), 1);
        assert_eq!(bench.memory.records()[0].status, Status::Completed);
    }
}

#[tokio::test]
async fn a33_a_duplicate_in_flight_is_not_told_that_it_was_accepted() {
    let bench = Bench::new();
    let request = Request::of("standard/user.created.json");
    bench.queue.close();
    let (dying, first) = (bench.cold(), request.clone());
    let running = tokio::spawn(async move { dying.send(&first).await });
    until("it is claimed", || !bench.memory.records().is_empty()).await;
    let during = bench.cold().send(&request).await;
    assert_eq!(during.status_code, 409);
    assert_eq!(problem(&during), "in-flight");
    assert!(during.headers.contains_key("retry-after"));

    // The first is killed, so that only its lease tells of it.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    bench.queue.open();
    bench.clock.advance(RUN + Duration::from_secs(3));
    assert_eq!(bench.cold().send(&request).await.status_code, 202);
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn a33_github_never_retries_and_so_its_duplicate_in_flight_is_queued_again() {
    let bench = Bench::new();
    let request = Request::of("github/push.json");
    bench.queue.close();
    let (sending, first) = (bench.cold(), request.clone());
    let running = tokio::spawn(async move { sending.send(&first).await });
    until("it is claimed", || !bench.memory.records().is_empty()).await;
    let (sending, second) = (bench.cold(), request.clone());
    let duplicate = tokio::spawn(async move { sending.send(&second).await });
    until("the duplicate has asked", || bench.store.calls() == 2).await;
    bench.queue.open();
    let (first, duplicate) = (running.await.unwrap(), duplicate.await.unwrap());
    assert_eq!((first.status_code, duplicate.status_code), (202, 202));
    assert_eq!(first.body, duplicate.body);
    assert!(!duplicate.headers.contains_key("idempotent-replayed"));
    assert_eq!(bench.queue.messages().len(), 2);
    assert_eq!(bench.queue.operations(), 1);
}

#[tokio::test]
async fn a_held_door_queues_a_webhook_and_refuses_an_operation() {
    for (request, status) in [
        (Request::of("github/push.json"), 202),
        (Request::of("token/operation.json"), 503),
    ] {
        let bench = Bench::new();
        bench.send(&request).await;
        let mut record = bench.memory.records().remove(0);
        record.status = Status::InProgress;
        record.data = None;
        record.attempt = 9;
        record.lease = Some(firstclaim::clock::EpochMillis(2));
        bench.memory.put(record);
        assert_eq!(bench.cold().send(&request).await.status_code, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a34_a35_fifty_at_once_in_many_processes_are_queued_once() {
    let bench = Bench::new();
    let request = Request::of("standard/user.created.json");
    let mut running = tokio::task::JoinSet::new();
    for at in 0..50 {
        // Five processes.
        let bench = if at % 10 == 0 {
            bench.cold()
        } else {
            bench.clone()
        };
        let request = request.clone();
        running.spawn(async move { bench.send(&request).await.status_code });
    }
    let statuses = running.join_all().await;
    assert!(
        statuses.iter().all(|status| [202, 409].contains(status)),
        "{statuses:?}"
    );
    assert!(statuses.contains(&202));
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn a42_three_identical_triggers_are_queued_once() {
    let bench = Bench::new();
    let request = Request::of("token/operation.json");
    for _ in 0..3 {
        assert_eq!(bench.send(&request).await.status_code, 202);
    }
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn too_little_time_queues_a_webhook_unclaimed() {
    let bench = Bench::new();
    let event = Request::of("github/push.json").event();
    let mut context = lambda_runtime::Context::default();
    context.deadline = 1;
    let event = lambda_runtime::LambdaEvent::new(event, context);
    assert_eq!(bench.webhook.handle(event).await.status_code, 202);
    assert_eq!(bench.queue.messages().len(), 1);
}

async fn sqs(endpoint: &Endpoint, url: &str) -> Sqs {
    let patience = Patience {
        attempts: 2,
        attempt: Duration::from_millis(500),
        total: Duration::from_secs(2),
    };
    let config = loopback_config(&endpoint.url, patience).await;
    Sqs::new(aws_sdk_sqs::Client::new(&config), url)
}

fn message() -> Message {
    Message {
        body: "{}".to_owned(),
        group: "o/r#1".to_owned(),
    }
}

#[tokio::test]
async fn n24_the_queue_counts_as_confirmed_only_with_a_message_id() {
    let endpoint = Endpoint::start(Reply::Json(200, json!({"MessageId": "m-1"}))).await;
    let queue = sqs(&endpoint, "http://localhost/queue").await;
    queue.send(&message()).await.unwrap();

    let error = |code: &str| json!({"__type": code, "message": "stub"});
    endpoint.reply(Reply::Json(200, json!({})));
    assert!(matches!(
        queue.send(&message()).await,
        Err(SendError::Unanswered(_))
    ));
    endpoint.reply(Reply::Json(500, error("InternalFailure")));
    assert!(matches!(
        queue.send(&message()).await,
        Err(SendError::Unanswered(_))
    ));
    endpoint.reply(Reply::Drop);
    assert!(matches!(
        queue.send(&message()).await,
        Err(SendError::Unanswered(_))
    ));
    endpoint.reply(Reply::Json(403, error("AccessDenied")));
    assert!(matches!(
        queue.send(&message()).await,
        Err(SendError::Refused(_))
    ));
    endpoint.reply(Reply::Json(400, error("InvalidParameterValue")));
    assert!(matches!(
        queue.send(&message()).await,
        Err(SendError::Refused(_))
    ));
    let long = Message {
        body: "x".repeat(300 * 1024),
        ..message()
    };
    assert!(matches!(
        queue.send(&long).await,
        Err(SendError::TooLarge { .. })
    ));
}

#[tokio::test]
async fn a_fifo_queue_gets_a_fresh_deduplication_id_for_each_send() {
    let endpoint = Endpoint::start(Reply::Json(200, json!({"MessageId": "m-1"}))).await;
    let fifo = sqs(&endpoint, "http://localhost/queue.fifo").await;
    fifo.send(&message()).await.unwrap();
    fifo.send(&message()).await.unwrap();
    let standard = sqs(&endpoint, "http://localhost/queue").await;
    standard.send(&message()).await.unwrap();
    let calls = endpoint.calls();
    let id = |at: usize| calls[at]["MessageDeduplicationId"].as_str();
    assert!(id(0).is_some() && id(1).is_some());
    assert_ne!(id(0), id(1));
    assert_eq!(id(2), None);
    for call in &calls {
        assert_eq!(call["MessageGroupId"], "o/r#1");
        assert_eq!(call["MessageBody"], "{}");
    }
}

#[tokio::test]
async fn a_repeated_call_of_the_sdk_keeps_its_deduplication_id() {
    let endpoint = Endpoint::start(Reply::Drop).await;
    let fifo = sqs(&endpoint, "http://localhost/queue.fifo").await;
    assert!(fifo.send(&message()).await.is_err());
    let calls = endpoint.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], calls[1]);
}
