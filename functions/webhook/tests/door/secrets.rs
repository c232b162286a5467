//! Senders from Secrets Manager: read late, kept, and read again.

use std::time::Duration;

use firstclaim::aws::{Patience, loopback_config};
use serde_json::{Value, json};
use webhook::{Options, Senders};

use crate::bench::{Bench, Request, problem};
use crate::endpoint::{Endpoint, Reply};

pub(crate) fn secret_reply(senders: &Value) -> Reply {
    Reply::Json(200, json!({"SecretString": senders.to_string()}))
}

pub(crate) fn github(secret: &str) -> Value {
    json!({"github": {"scheme": "github", "secrets": [secret]}})
}

pub(crate) async fn bench(endpoint: &Endpoint) -> Bench {
    let patience = Patience {
        attempts: 1,
        ..Patience::default()
    };
    let config = loopback_config(&endpoint.url, patience).await;
    let client = aws_sdk_secretsmanager::Client::new(&config);
    Bench::over(
        Senders::from_secret(client, "arn:senders"),
        Options::default(),
    )
}

pub(crate) async fn status(bench: &Bench) -> u16 {
    bench
        .send(&Request::of("github/push.json"))
        .await
        .status_code
}

#[tokio::test]
async fn the_secret_is_read_with_the_first_event_and_kept_five_minutes() {
    let right = crate::bench::secret("github");
    let endpoint = Endpoint::start(secret_reply(&github(&right))).await;
    let bench = bench(&endpoint).await;
    assert!(endpoint.calls().is_empty());
    for _ in 0..3 {
        assert_eq!(status(&bench).await, 202);
    }
    assert_eq!(endpoint.calls(), [json!({"SecretId": "arn:senders"})]);
    bench.clock.advance(Duration::from_secs(299));
    status(&bench).await;
    assert_eq!(endpoint.calls().len(), 1);
    bench.clock.advance(Duration::from_secs(1));
    status(&bench).await;
    assert_eq!(endpoint.calls().len(), 2);
}

#[tokio::test]
async fn n20_a_rotated_secret_takes_effect_without_a_deployment() {
    let right = crate::bench::secret("github");
    let endpoint = Endpoint::start(secret_reply(&github("a-former-secret-0123456789"))).await;
    let bench = bench(&endpoint).await;
    assert_eq!(status(&bench).await, 401);
    endpoint.reply(secret_reply(&github(&right)));
    // It was read less than a minute ago.
    assert_eq!(status(&bench).await, 401);
    assert_eq!(endpoint.calls().len(), 1);
    bench.clock.advance(Duration::from_secs(60));
    assert_eq!(status(&bench).await, 202);
    assert_eq!(endpoint.calls().len(), 2);
}

#[tokio::test]
async fn refused_requests_read_the_secret_once_a_minute_at_the_most() {
    let endpoint = Endpoint::start(secret_reply(&github("another-secret-0123456789"))).await;
    let bench = bench(&endpoint).await;
    for _ in 0..30 {
        assert_eq!(status(&bench).await, 401);
        bench.clock.advance(Duration::from_secs(10));
    }
    assert_eq!(endpoint.calls().len(), 5);
}

#[tokio::test]
async fn a_failing_refresh_keeps_the_old_ones() {
    let right = crate::bench::secret("github");
    let endpoint = Endpoint::start(secret_reply(&github(&right))).await;
    let bench = bench(&endpoint).await;
    assert_eq!(status(&bench).await, 202);
    let broken = [
        Reply::Json(500, json!({"__type": "InternalServiceError"})),
        Reply::Json(200, json!({"SecretString": "{"})),
        Reply::Json(200, json!({"SecretString": github("short").to_string()})),
        Reply::Json(200, json!({})),
    ];
    for reply in broken {
        endpoint.reply(reply);
        bench.clock.advance(Duration::from_secs(301));
        let calls = endpoint.calls().len();
        assert_eq!(status(&bench).await, 202);
        // Tried once, and not again for each event.
        assert_eq!(status(&bench).await, 202);
        assert_eq!(endpoint.calls().len(), calls + 1);
    }
}

#[tokio::test]
async fn without_any_senders_a_request_is_to_be_sent_again() {
    let endpoint = Endpoint::start(Reply::Json(400, json!({"__type": "AccessDenied"}))).await;
    let bench = bench(&endpoint).await;
    let response = bench.send(&Request::of("github/push.json")).await;
    assert_eq!(response.status_code, 503);
    assert_eq!(problem(&response), "unavailable");
    assert_eq!(bench.store.calls(), 0);
    endpoint.reply(secret_reply(&github(&crate::bench::secret("github"))));
    assert_eq!(status(&bench).await, 202);
}
