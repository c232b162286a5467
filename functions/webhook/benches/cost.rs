//! What it costs to verify a delivery and to make its keys, against the least that it can cost: one
//! HMAC, one parse and one SHA-256 over the same body. `cargo bench -p webhook --bench cost`
//!
//! Both are measured in one run and by turns; the fastest of many rounds counts, so that what else
//! the machine does falls on neither.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement prints its figures and stops at what it did not expect"
)]

use std::hint::black_box;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use firstclaim::store::memory::Memory;
use firstclaim::{Claims, Config};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use webhook::signing::{SCHEMES, Unsigned, sign};
use webhook::{Message, Options, Outbox, SendError, Senders, Webhook};

const ROUNDS: usize = 200;
const REPEATS: usize = 20;
const SECRET: &str = "whsec_c3RhbmRhcmQtYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk=";
const PUBLIC_URL: &str = "https://hooks.example.com";
const NOW: EpochMillis = EpochMillis(1_794_478_900_000);

/// The most that it may cost, as a multiple of the least.
const LIMIT: f64 = 1.5;

/// Nothing is sent.
#[derive(Clone, Debug)]
struct Nowhere;

impl Outbox for Nowhere {
    async fn send(&self, _message: &Message) -> Result<(), SendError> {
        Err(SendError::Refused("nothing is sent".into()))
    }
}

fn main() {
    println!("one delivery of about 25 KB, the fastest of {ROUNDS} rounds by turns");
    println!(
        "{:<10} {:>8} {:>12} {:>12} {:>8}",
        "scheme", "bytes", "least", "ours", "ratio"
    );
    let webhook = webhook();
    let mut worst: f64 = 0.0;
    for scheme in SCHEMES {
        let body = body(scheme);
        let event = event(scheme, &body);
        let (least, ours) = measured(&webhook, &body, &event);
        let ratio = ours.as_secs_f64() / least.as_secs_f64();
        worst = worst.max(ratio);
        println!(
            "{scheme:<10} {:>8} {least:>12.1?} {ours:>12.1?} {ratio:>8.2}",
            body.len()
        );
    }
    println!("worst: {worst:.2} times the least, at most {LIMIT} are allowed");
    assert!(worst <= LIMIT, "too dear");
}

fn webhook() -> Webhook<Memory, Nowhere> {
    let senders: serde_json::Map<_, _> = SCHEMES
        .iter()
        .map(|scheme| {
            let sender = json!({"scheme": scheme, "secrets": [SECRET]});
            ((*scheme).to_owned(), sender)
        })
        .collect();
    let config = Config::default();
    let senders = Senders::from_json(&json!(senders).to_string(), config.longest_lease).unwrap();
    let options = Options {
        public_url: Some(PUBLIC_URL.to_owned()),
        ..Options::default()
    };
    let claims = Claims::new(Memory::new(), config).unwrap();
    Webhook::new(senders, claims, Nowhere, options)
}

/// A recorded pull request, with what the scheme's rules look for around it.
fn body(scheme: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/events/github/pull_request.opened.json");
    let sample: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let recorded = STANDARD
        .decode(sample["body_base64"].as_str().unwrap())
        .unwrap();
    let inner = || serde_json::from_slice::<Value>(&recorded).unwrap();
    let whole = match scheme {
        "gitlab" => {
            let mut whole = inner();
            whole["object_kind"] = "merge_request".into();
            whole["object_attributes"] =
                json!({"id": 1, "action": "open", "updated_at": "2026-11-12 10:20:11 UTC"});
            whole["project"] = json!({"id": 1});
            whole
        }
        "stripe" => json!({"id": "evt_1", "livemode": true, "type": "a", "data": inner()}),
        "slack" => {
            json!({"type": "event_callback", "event_id": "Ev1", "event": {"type": "a", "data": inner()}})
        }
        "shopify" => json!({"id": 1, "variants": inner()}),
        "standard" => json!({"type": "a", "data": inner()}),
        "twilio" => json!([inner()]),
        _ => return recorded,
    };
    whole.to_string().into_bytes()
}

/// The event that a Function URL makes of a signed delivery.
fn event(scheme: &str, body: &[u8]) -> Value {
    let url = format!("{PUBLIC_URL}/webhooks/{scheme}");
    let delivery = Unsigned {
        url: &url,
        content_type: "application/json",
        body,
        id: "delivery-1",
        at: NOW,
    };
    let signed = sign(scheme, SECRET, &delivery).unwrap();
    let mut headers: serde_json::Map<_, _> = signed
        .headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
        .collect();
    for (name, value) in [
        ("x-github-event", "pull_request"),
        ("x-shopify-topic", "products/create"),
        ("x-shopify-shop-domain", "one.myshopify.com"),
        ("x-shopify-event-id", "event-1"),
        ("content-type", "application/json"),
    ] {
        headers.insert(name.to_owned(), value.into());
    }
    let address = signed.url.strip_prefix(PUBLIC_URL).unwrap();
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    json!({
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default"},
        "body": std::str::from_utf8(body).unwrap(),
        "isBase64Encoded": false,
    })
}

/// The fastest round of each, for one delivery.
fn measured(
    webhook: &Webhook<Memory, Nowhere>,
    body: &[u8],
    event: &Value,
) -> (Duration, Duration) {
    let (mut least, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..REPEATS {
            floor(black_box(body));
        }
        least = least.min(started.elapsed());
        // The events are the gateway's: they are made before the clock runs.
        let events = vec![event.clone(); REPEATS];
        let started = Instant::now();
        for event in events {
            inspect(webhook, black_box(event));
        }
        ours = ours.min(started.elapsed());
    }
    let repeats = u32::try_from(REPEATS).unwrap();
    (least / repeats, ours / repeats)
}

fn floor(body: &[u8]) {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body);
    black_box(mac.finalize());
    black_box(serde_json::from_slice::<Value>(body).unwrap());
    black_box(Sha256::digest(body));
}

fn inspect(webhook: &Webhook<Memory, Nowhere>, event: Value) {
    let inspected = pin!(webhook.inspect(event, NOW));
    match inspected.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(inspected)) => drop(black_box(inspected)),
        Poll::Ready(Err(response)) => panic!("{}", response.body),
        Poll::Pending => panic!("something was waited for"),
    }
}
