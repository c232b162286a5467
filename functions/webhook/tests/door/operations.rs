//! `/operations`: submitted once, looked up by its caller.

use std::time::Duration;

use firstclaim::clock::{EpochMillis, Source};
use firstclaim::record::{Activity, AttemptError, Data, Origin, RELEASED, SUSPENDED};
use firstclaim::{Owner, Policy, Record, Status};
use serde_json::{Value, json};
use webhook::Options;

use crate::bench::{Bench, OTHER_TOKEN, Request, Sending, body, problem, secret, until};

const KEY: &str = "deploy-417";
const WORK: &str = "token#deploy-417";

fn look_up(location: &str) -> Request {
    Request::new("GET", "")
        .to(location)
        .with("authorization", &format!("Bearer {}", secret("token")))
}

async fn submitted(bench: &Bench) -> String {
    let response = bench.send(&Request::operation(KEY, "{\"a\":1}")).await;
    assert_eq!(response.status_code, 202, "{}", response.body);
    response.headers["location"].clone()
}

/// A worker's record.
fn work(status: Status, lease: Option<EpochMillis>, now: EpochMillis) -> Record {
    Record {
        id: WORK.to_owned(),
        status,
        expiration: Some(now.after(Duration::from_secs(60 * 60)).seconds()),
        lease,
        owner: Some(Owner::new("the-right-to-write")),
        attempt: 2,
        policy: Policy::Rerun,
        unentered: None,
        generation: 0,
        fingerprint: None,
        data: None,
        checkpoints: [("charge".to_owned(), "\"ch_1\"".to_owned())].into(),
        activity: Some(Activity {
            text: "charging".to_owned(),
            at: now,
        }),
        error: Some(AttemptError {
            code: "http_503".to_owned(),
            message: "inside".to_owned(),
            attempt: 1,
        }),
        origin: Origin::default(),
        settled: None,
    }
}

#[tokio::test]
async fn n36_the_same_again_gets_the_same_answer_and_the_replay_mark() {
    for public_url in [None, Some("https://hooks.example.com".to_owned())] {
        let bench = Bench::with_options(Options {
            public_url: public_url.clone(),
            ..Options::default()
        });
        let first = bench
            .send(&Request::operation(KEY, "{\"a\":1,\"b\":2}"))
            .await;
        let id = body(&first)["id"].as_str().unwrap().to_owned();
        assert_eq!(id.len(), 43);
        assert_eq!(
            first.body,
            format!(r#"{{"id":"{id}","key":"token#deploy-417","status":"queued"}}"#)
        );
        let base = public_url.unwrap_or_default();
        assert_eq!(first.headers["location"], format!("{base}/operations/{id}"));
        assert!(!first.headers.contains_key("idempotent-replayed"));

        // Quoted or bare is one key, and JSON has no order.
        let again = Request::operation(&format!("\"{KEY}\""), "{\"b\": 2, \"a\": 1}");
        bench.clock.advance(Duration::from_secs(30 * 24 * 60 * 60));
        let mut second = bench.cold().send(&again).await;
        assert_eq!(
            second.headers.remove("idempotent-replayed").as_deref(),
            Some("true")
        );
        assert_eq!(second, first);
        assert_eq!(bench.queue.messages().len(), 1);
    }
}

#[tokio::test]
async fn another_payload_under_the_key_is_a_mismatch() {
    for request in [
        Request::operation(KEY, "{}"),
        Request::operation(KEY, "{}").to("/webhooks/token"),
    ] {
        let bench = Bench::new();
        assert_eq!(bench.send(&request).await.status_code, 202);
        for other in [bench.clone(), bench.cold()] {
            let response = other.send(&request.clone().body("{\"a\":1}")).await;
            assert_eq!(response.status_code, 422);
            assert_eq!(problem(&response), "mismatch");
        }
        assert_eq!(bench.queue.messages().len(), 1);
    }
}

#[tokio::test]
async fn two_callers_may_choose_one_key() {
    let bench = Bench::new();
    let mine = bench.send(&Request::operation(KEY, "{}")).await;
    let request = Request::operation(KEY, "{\"other\":true}")
        .with("authorization", &format!("Bearer {OTHER_TOKEN}"));
    let other = bench.send(&request).await;
    assert_eq!(other.status_code, 202);
    assert_ne!(body(&mine)["id"], body(&other)["id"]);
    assert_eq!(bench.queue.keys()[1].as_str(), "other#deploy-417");
}

#[tokio::test]
async fn both_paths_of_one_caller_make_one_operation() {
    let bench = Bench::new();
    bench.send(&Request::operation(KEY, "{}")).await;
    let hook = bench
        .send(&Request::operation(KEY, "{}").to("/webhooks/token"))
        .await;
    assert_eq!(hook.body, r#"{"key":"token#deploy-417","status":"queued"}"#);
    assert_eq!(bench.queue.operations(), 1);
}

#[tokio::test]
async fn an_id_chosen_as_a_key_is_another_operation() {
    let bench = Bench::new();
    let first = bench.send(&Request::operation(KEY, "{}")).await;
    let id = body(&first)["id"].as_str().unwrap().to_owned();
    for key in [id.clone(), format!("[\"operations\",\"{id}\"]")] {
        let hook = bench
            .send(&Request::operation(&key, "{}").to("/webhooks/token"))
            .await;
        assert_eq!(hook.status_code, 202);
        assert!(!hook.headers.contains_key("idempotent-replayed"));
    }
    assert_eq!(bench.queue.operations(), 3);
}

#[tokio::test]
async fn n37_p91_in_flight_is_409_and_a_release_is_taken_up() {
    let chosen = [
        "plain",
        "\"quoted\"",
        "with#hash",
        "a:b",
        "[1]",
        &"long".repeat(60),
    ];
    for key in chosen {
        let bench = Bench::new();
        bench.queue.close();
        let (sending, request) = (bench.clone(), Request::operation(key, "{}"));
        let first = request.clone();
        let running = tokio::spawn(async move { sending.send(&first).await });
        until("it is claimed", || !bench.memory.records().is_empty()).await;
        let during = bench.cold().send(&request).await;
        assert_eq!(during.status_code, 409);
        assert_eq!(problem(&during), "in-flight");
        // Ten seconds of the invocation and the grace of two.
        assert_eq!(during.headers["retry-after"], "12");

        bench.queue.plan([Sending::Refuse]);
        bench.queue.open();
        assert_eq!(running.await.unwrap().status_code, 503);
        let after = bench.cold().send(&request).await;
        assert_eq!(after.status_code, 202, "{key}");
        assert_eq!(bench.queue.messages().len(), 1);
    }
}

#[tokio::test]
async fn retry_after_is_whole_seconds_from_1_to_60() {
    for (left, said) in [
        (1, "1"),
        (1000, "1"),
        (1001, "2"),
        (60_000, "60"),
        (800_000, "60"),
    ] {
        let bench = Bench::new();
        submitted(&bench).await;
        let mut record = bench.memory.records().remove(0);
        record.status = Status::InProgress;
        record.data = None;
        record.lease = Some(bench.clock.now().after(Duration::from_millis(left)));
        bench.memory.put(record);
        let response = bench
            .cold()
            .send(&Request::operation(KEY, "{\"a\":1}"))
            .await;
        assert_eq!(response.status_code, 409);
        assert_eq!(response.headers["retry-after"], said);
    }
}

#[tokio::test]
async fn an_operation_is_looked_up_by_its_location() {
    let bench = Bench::new();
    let location = submitted(&bench).await;
    let now = bench.clock.now();
    let calls = bench.store.calls();
    let queued = bench.send(&look_up(&location)).await;
    assert_eq!(queued.status_code, 200);
    assert_eq!(
        body(&queued),
        json!({"status": "queued", "attempt": null, "activity": null, "checkpoints": [], "result": null})
    );
    assert_eq!(queued.headers["cache-control"], "no-store");
    assert_eq!(bench.store.calls(), calls + 2);

    let later = Some(now.after(Duration::from_secs(5)));
    let lapsed = Some(now.before(Duration::from_secs(5)));
    let held = |record: Record| Record {
        policy: Policy::Hold,
        ..record
    };
    let with = |record: Record, data: &str| Record {
        data: Some(Data::Inline(data.to_owned())),
        ..record
    };
    let failure = r#"{"code":"refused","message":"no such account"}"#;
    let rows: [(Record, &str, Value, Value); 9] = [
        (
            work(Status::InProgress, later, now),
            "running",
            json!("charging"),
            json!(null),
        ),
        (
            work(Status::InProgress, None, now),
            "running",
            json!("charging"),
            json!(null),
        ),
        (
            work(Status::InProgress, Some(RELEASED), now),
            "waiting",
            json!(null),
            json!(null),
        ),
        (
            work(Status::InProgress, lapsed, now),
            "waiting",
            json!(null),
            json!(null),
        ),
        (
            held(work(Status::InProgress, lapsed, now)),
            "unknown",
            json!(null),
            json!(null),
        ),
        (
            held(work(Status::InProgress, Some(RELEASED), now)),
            "waiting",
            json!(null),
            json!(null),
        ),
        (
            work(Status::InProgress, Some(SUSPENDED), now),
            "unknown",
            json!(null),
            json!(null),
        ),
        (
            with(work(Status::Completed, None, now), r#"{"status":201}"#),
            "done",
            json!(null),
            json!({"status": 201}),
        ),
        (
            with(work(Status::Failed, None, now), failure),
            "failed",
            json!(null),
            json!({"code": "refused", "message": "no such account"}),
        ),
    ];
    for (record, status, activity, result) in rows {
        bench.memory.put(record);
        let response = bench.send(&look_up(&location)).await;
        let expected = json!({
            "status": status, "attempt": 2, "activity": activity,
            "checkpoints": ["charge"], "result": result,
        });
        assert_eq!(body(&response), expected);
        assert!(!response.body.contains("the-right-to-write"));
    }

    // Killed so often that nobody takes over any more.
    bench.memory.put(Record {
        attempt: 9,
        ..work(Status::InProgress, lapsed, now)
    });
    assert_eq!(
        body(&bench.send(&look_up(&location)).await)["status"],
        "unknown"
    );
}

#[tokio::test]
async fn a_large_result_is_looked_up_from_its_companion() {
    let bench = Bench::new();
    let location = submitted(&bench).await;
    let claims = firstclaim::Claims::new(bench.memory.clone(), firstclaim::Config::default())
        .unwrap()
        .with_source(bench.clock.clone());
    let key = firstclaim::Key::parse(WORK).unwrap();
    let result = json!({"body": "x".repeat(10_000)});
    let done = result.clone();
    claims
        .once(key)
        .lease(Duration::from_secs(60))
        .run(|_| async { Ok::<_, firstclaim::Failure<std::io::Error>>(done) })
        .await
        .unwrap();
    let standing = body(&bench.send(&look_up(&location)).await);
    assert_eq!(standing["status"], "done");
    assert_eq!(standing["result"], result);
}

#[tokio::test]
async fn unknown_ids_and_other_callers_ids_are_not_found() {
    let bench = Bench::new();
    let location = submitted(&bench).await;
    let strange = [
        look_up(&format!("/operations/{}", "A".repeat(43))),
        look_up(&location).with("authorization", &format!("Bearer {OTHER_TOKEN}")),
    ];
    for request in strange {
        let response = bench.send(&request).await;
        assert_eq!(response.status_code, 404);
        assert_eq!(problem(&response), "unknown-path");
    }
    let window = firstclaim::Config::default().window;
    bench.clock.advance(window + Duration::from_secs(60));
    assert_eq!(bench.send(&look_up(&location)).await.status_code, 404);
}

#[tokio::test]
async fn what_was_never_queued_is_not_found_and_what_may_be_is_unknown() {
    let bench = Bench::new();
    let location = submitted(&bench).await;
    let record = bench.memory.records().remove(0);
    let now = bench.clock.now();
    let standing = |lease| Record {
        status: Status::InProgress,
        data: None,
        lease: Some(lease),
        ..record.clone()
    };
    bench
        .memory
        .put(standing(now.after(Duration::from_secs(5))));
    assert_eq!(
        body(&bench.send(&look_up(&location)).await)["status"],
        "queued"
    );
    bench
        .memory
        .put(standing(now.before(Duration::from_secs(5))));
    assert_eq!(
        body(&bench.send(&look_up(&location)).await)["status"],
        "unknown"
    );
    bench.memory.put(standing(RELEASED));
    assert_eq!(bench.send(&look_up(&location)).await.status_code, 404);
}

#[tokio::test]
async fn a_rule_names_the_operation_and_the_key_its_submission() {
    let mut senders = Bench::senders();
    senders["token"]["operation_key"] = json!("revision");
    let bench = Bench::with_senders(&senders);
    let first = bench
        .send(&Request::operation("try-1", "{\"revision\":\"r1\"}"))
        .await;
    let second = bench
        .send(&Request::operation("try-2", "{\"revision\":\"r1\"}"))
        .await;
    assert_ne!(body(&first)["id"], body(&second)["id"]);
    assert_eq!(body(&first)["key"], "token#r1");
    assert_eq!(bench.queue.operations(), 1);
    let now = bench.clock.now();
    bench.memory.put(Record {
        id: "token#r1".to_owned(),
        ..work(Status::Completed, None, now)
    });
    for response in [first, second] {
        let standing = bench.send(&look_up(&response.headers["location"])).await;
        assert_eq!(body(&standing)["status"], "done");
    }
}
