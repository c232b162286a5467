//! One line for each request, and nothing unchecked in it.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, Request, SCHEMES, secret};
use crate::endpoint::{Endpoint, Reply};
use crate::secrets::{self, github, secret_reply, status};

thread_local! {
    /// What this thread logged: each test has a thread of its own, and subscribers of single
    /// threads miss events that another thread met first.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the test's thread logs, as JSON lines.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> Self {
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(|| Self)
            .finish();
        // The first test's serves all.
        let _ = tracing::subscriber::set_global_default(subscriber);
        Self
    }

    fn text(&self) -> String {
        LOGGED.with_borrow(|logged| String::from_utf8(logged.clone()).unwrap())
    }

    /// The fields of the events of the door.
    fn door(&self) -> Vec<Value> {
        self.of("firstclaim::door")
    }

    /// The fields of the events of this target.
    fn of(&self, target: &str) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["target"] == target)
            .map(|line| line["fields"].clone())
            .collect()
    }

    /// What our own events say. (At this level the SDK's own say what it was answered.)
    fn door_and_senders(&self) -> String {
        let events = [self.door(), self.of("webhook::senders")].concat();
        Value::from(events).to_string()
    }
}

#[tokio::test]
async fn each_request_is_one_event() {
    let log = Log::start();
    let bench = Bench::new();
    let request = Request::of("standard/user.created.json");
    bench.send(&request).await;
    bench.send(&request).await;
    bench.send(&request.clone().body("{}")).await;
    bench.send(&request.to("/webhooks/nobody")).await;
    bench.send(&Request::new("GET", "/favicon.ico")).await;
    let events = log.door();
    assert_eq!(events.len(), 5);
    let key = "standard#msg_2KWPBgLlAfxdpx2AI54pPJ85f4W";
    for (event, outcome) in events.iter().zip(["accepted", "replayed"]) {
        assert_eq!(event["outcome"], outcome);
        assert_eq!(event["status"], 202);
        assert_eq!(event["sender"], "standard");
        assert_eq!(event["kind"], "user.created");
        assert_eq!(event["key"], key);
        assert_eq!(event["secrets"].as_str().unwrap().len(), 8);
        assert_eq!(event.get("key_fallback"), None);
    }
    for (event, (status, reason)) in events[2..].iter().zip([
        (401, "wrong_signature"),
        (404, "unknown-sender"),
        (404, "unknown-path"),
    ]) {
        assert_eq!(event["outcome"], "refused");
        assert_eq!(event["status"], status);
        assert_eq!(event["reason"], reason);
        assert_eq!(event.get("sender"), None);
        assert_eq!(event.get("key"), None);
    }
}

#[tokio::test]
async fn n3_a_fallback_names_the_sender_the_kind_and_the_rule() {
    let log = Log::start();
    let mut senders = Bench::senders();
    senders["github-2"]["operation_key"] = json!("no_such_field");
    let bench = Bench::with_senders(&senders);
    bench.send(&Request::of("github/ping.json")).await;
    bench
        .send(&Request::of("github/push.json").to("/webhooks/github-2"))
        .await;
    let events = log.door();
    assert_eq!(events[0]["key_fallback"], "default");
    assert_eq!(events[0]["kind"], "ping");
    assert_eq!(events[1]["key_fallback"], "operation_key");
    assert_eq!(events[1]["kind"], "push");
    assert_eq!(events[1]["sender"], "github-2");

    let mut metrics = Vec::new();
    bench.webhook.flush_metrics(&mut metrics).unwrap();
    let lines: Vec<Value> = String::from_utf8(metrics)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        assert_eq!(line["KeyFallback"], 1);
        assert_eq!(line["Performed"], 1);
        assert_eq!(line["service"], "webhook");
    }
}

/// The generation of the secrets is a short digest, which tells nothing of them.
#[tokio::test]
async fn n20_a_rotation_is_seen_in_the_log() {
    let log = Log::start();
    let (former, right) = ("a-former-secret-0123456789", secret("github"));
    let endpoint = Endpoint::start(secret_reply(&github(former))).await;
    let bench = secrets::bench(&endpoint).await;
    assert_eq!(status(&bench).await, 401);
    endpoint.reply(secret_reply(&github(&right)));
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(status(&bench).await, 202);
    // Read again, and the same.
    bench.clock.advance(Duration::from_secs(300));
    assert_eq!(status(&bench).await, 202);

    let used: Vec<String> = log
        .door()
        .iter()
        .map(|event| event["secrets"].as_str().unwrap().to_owned())
        .collect();
    assert_ne!(used[0], used[1]);
    assert_eq!(used[1], used[2]);
    let read: Vec<String> = log
        .of("webhook::senders")
        .iter()
        .map(|event| event["generation"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(read, used[..2]);
    assert!(used.iter().all(|generation| generation.len() == 8));
    assert!(!log.door_and_senders().contains(former));
    assert!(!log.door_and_senders().contains(&right));
}

#[tokio::test]
async fn a_failing_refresh_is_said_once_until_it_works_again() {
    let log = Log::start();
    let right = secret_reply(&github(&secret("github")));
    let endpoint = Endpoint::start(right.clone()).await;
    let bench = secrets::bench(&endpoint).await;
    assert_eq!(status(&bench).await, 202);
    let mut said = Vec::new();
    for round in 0..2 {
        endpoint.reply(Reply::Json(500, json!({"__type": "InternalServiceError"})));
        for _ in 0..3 {
            bench.clock.advance(Duration::from_secs(301));
            assert_eq!(status(&bench).await, 202, "round {round}");
        }
        endpoint.reply(right.clone());
        bench.clock.advance(Duration::from_secs(301));
        assert_eq!(status(&bench).await, 202);
        let failures = log.of("webhook::senders");
        let failures = failures.iter().filter(|event| event.get("error").is_some());
        said.push(failures.count());
    }
    assert_eq!(said, [1, 2]);
}

/// Once, whoever asks: anybody can send what fits no signature.
#[tokio::test]
async fn n18_an_address_that_no_signature_fits_is_said_once_without_its_values() {
    let log = Log::start();
    let bench = Bench::new();
    let request = Request::of("twilio/message-status.sent.json");
    for path in [
        "/webhooks/twilio?token=hidden&\u{1b}[2J=hidden&bare",
        "/webhooks/twilio?other=hidden",
    ] {
        let response = bench.send(&request.clone().to(path)).await;
        assert_eq!(response.status_code, 401);
    }
    let said = log.of("webhook::sender::twilio");
    assert_eq!(said.len(), 1);
    assert_eq!(
        said[0]["url"],
        "https://hooks.example.com/webhooks/twilio?token&…&bare"
    );
    assert!(!log.text().contains("hidden"));
}

#[tokio::test]
async fn a_refused_request_names_no_dimension() {
    let bench = Bench::new();
    for name in ["nobody", "github"] {
        let request = Request::of("github/push.json")
            .body("{}")
            .to(&format!("/webhooks/{name}"));
        bench.send(&request).await;
    }
    let mut metrics = Vec::new();
    bench.webhook.flush_metrics(&mut metrics).unwrap();
    let line: Value = serde_json::from_slice(&metrics).unwrap();
    assert_eq!(line["Refused"], 2);
    assert_eq!(line.get("sender"), None);
}

#[tokio::test]
async fn nothing_unchecked_and_no_secret_is_logged() {
    let log = Log::start();
    let bench = Bench::new();
    let foul = "FOUL\u{1b}[2J\n\u{202e}";
    let github = Request::of("github/push.json");
    bench
        .send(&github.clone().with("x-github-event", foul))
        .await;
    bench
        .send(&github.clone().with("x-github-delivery", foul))
        .await;
    bench
        .send(&github.clone().with("x-hub-signature-256", foul))
        .await;
    bench.send(&github.clone().with("user-agent", foul)).await;
    bench.send(&github.to(&format!("/webhooks/{foul}"))).await;
    bench
        .send(&Request::github("star", "d-1", &json!({"action": foul})))
        .await;
    bench.send(&Request::operation(foul, "{}")).await;
    bench.send(&Request::operation("key", foul)).await;
    bench
        .send(&Request::operation("key", "{}").with("authorization", foul))
        .await;
    let body = json!({"type": foul, "object_kind": foul, "id": "evt_1"}).to_string();
    let files = [
        "standard/user.created.json",
        "gitlab/push.json",
        "stripe/invoice.paid.json",
        "slack/event_callback.message.json",
        "shopify/orders-create.json",
        "twilio/message-status.sent.json",
    ];
    for file in files {
        let scheme = file.split('/').next().unwrap();
        let request = Request::of(file).body(body.clone()).signed_by(scheme);
        assert_eq!(bench.send(&request).await.status_code, 202, "{file}");
    }
    let shop = Request::of("shopify/orders-create.json");
    bench
        .send(&shop.clone().with("x-shopify-topic", foul))
        .await;
    bench.send(&shop.with("x-shopify-event-id", foul)).await;
    let text = log.text();
    assert_eq!(log.door().len(), 17);
    assert!(!text.contains("FOUL"), "{text}");
    for scheme in SCHEMES {
        assert!(!text.contains(&secret(scheme)));
    }
}
