//! The call of the target, as it goes out and comes back.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstclaim::aws::{Patience, loopback_config};
use firstclaim::clock::EpochMillis;
use firstclaim::{Envelope, Fingerprint, Key, downstream_key};
use queue::Target;
use queue::config::{TargetSettings, TokenSource};
use queue::target::{ANSWER_LIMIT, Applied, Call, Class, Refusal, STEP};

use crate::rig::{NOW, Plan, Rig, record, returned};
use crate::stub::{Reply, Seen, Stub};

fn envelope(key: &str, body: &[u8]) -> Envelope {
    let headers = [
        ("x-github-event", "push"),
        ("user-agent", "sender"),
        ("host", "elsewhere.example"),
        ("authorization", "Bearer theirs"),
        ("idempotency-key", "theirs"),
        ("firstclaim-attempt", "99"),
        ("content-length", "0"),
        ("bad header", "x"),
        ("x-bad", "a\r\nx: b"),
    ];
    Envelope {
        key: Key::parse(key).unwrap(),
        sender: "github".to_owned(),
        scheme: "github".to_owned(),
        delivery: "guid/1 é".to_owned(),
        kind: "push".to_owned(),
        received_at: "2026-11-12T10:21:08.123Z".to_owned(),
        fingerprint: None,
        thread: None,
        content_type: "application/x-www-form-urlencoded".to_owned(),
        headers: headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: body.to_vec(),
    }
}

#[tokio::test]
async fn the_body_goes_out_byte_for_byte_with_our_headers() {
    let rig = Rig::new(Plan::default()).await;
    for body in [
        &b"a=1+2&b=%20"[..],
        b"\xff\x00\xfe",
        b"",
        &[b'x'; 300 * 1024],
    ] {
        let key = format!("github#{}", Fingerprint::of_raw(body));
        let sent = envelope(&key, body);
        assert_eq!(
            rig.handle(&[record("m", &sent.to_json())]).await,
            returned(&[])
        );
        let seen = rig.stub.seen().pop().unwrap();
        assert!(seen.body == body, "{} bytes", body.len());
        assert_eq!(seen.line, "POST /apply HTTP/1.1");
        let header = |name| seen.header(name);
        assert_eq!(
            header("content-type"),
            Some("application/x-www-form-urlencoded")
        );
        let downstream = downstream_key(&sent.key, 0, STEP);
        assert_eq!(
            header("idempotency-key"),
            Some(format!("\"{downstream}\"").as_str())
        );
        assert_eq!(
            header("firstclaim-key"),
            Some(key.replace('#', "%23").as_str())
        );
        assert_eq!(header("firstclaim-attempt"), Some("1"));
        assert_eq!(header("firstclaim-sender"), Some("github"));
        assert_eq!(header("firstclaim-kind"), Some("push"));
        assert_eq!(header("firstclaim-delivery"), Some("guid/1%20%C3%A9"));
        assert_eq!(header("x-github-event"), Some("push"));
        assert_eq!(header("authorization"), None);
        assert_eq!(header("x-bad"), None);
        assert!(header("host").is_some_and(|host| host.starts_with("127.0.0.1:")));
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Stub::new(|_| Reply::status(200)).await;
    let location = elsewhere.url.clone();
    let rig = Rig::answering(Plan::default(), move |_| Reply::Answer {
        status: 307,
        headers: vec![("location", location.clone())],
        body: Vec::new(),
    })
    .await;
    let message = record("m", &envelope("github#a", b"x").to_json());
    assert_eq!(rig.handle(&[message]).await, returned(&["m"]));
    assert_eq!(elsewhere.seen().len(), 0);
}

async fn applied(target: &Target, sender: &str, now: EpochMillis) -> Result<Applied, Refusal> {
    let key = Key::new("github", "k").unwrap();
    let headers = BTreeMap::new();
    let call = Call {
        sender,
        kind: "",
        delivery: "",
        key: &key,
        attempt: 1,
        downstream_key: "0",
        content_type: "text/plain",
        headers: &headers,
        body: b"x",
        trace: None,
    };
    let route = target.route(sender, now).await?;
    target
        .apply(&route, &call, Duration::from_secs(10), now)
        .await
}

async fn target(settings: TargetSettings, endpoint: &str) -> Target {
    crate::logs::listen();
    let sdk = loopback_config(endpoint, Patience::default()).await;
    Target::new(settings, &sdk).unwrap()
}

fn settings(stub: &Stub) -> TargetSettings {
    TargetSettings::to(stub.url.parse().unwrap())
}

#[tokio::test]
async fn a_long_answer_is_a_done_operation_without_its_body() {
    for (length, kept) in [(ANSWER_LIMIT, true), (ANSWER_LIMIT + 1, false)] {
        let stub = Stub::new(move |_| Reply::Answer {
            status: 201,
            headers: vec![("content-type", "application/json".to_owned())],
            body: vec![b'1'; length],
        })
        .await;
        let target = target(settings(&stub), "http://127.0.0.1:1").await;
        let applied = applied(&target, "github", NOW).await.unwrap();
        assert_eq!(applied.status, 201);
        assert_eq!(applied.content_type.as_deref(), Some("application/json"));
        assert_eq!(applied.body.map(|body| body.len()), kept.then_some(length));
        assert_eq!(applied.body_omitted.is_none(), kept);
    }
}

#[tokio::test]
async fn a_refusal_says_what_the_target_said_bounded_and_printable() {
    let stub = Stub::new(|_| Reply::Answer {
        status: 422,
        headers: Vec::new(),
        body: format!("no\u{1b}[31m{}", "x".repeat(100_000)).into_bytes(),
    })
    .await;
    let target = target(settings(&stub), "http://127.0.0.1:1").await;
    let refusal = applied(&target, "github", NOW).await.unwrap_err();
    assert_eq!(refusal.class, Class::Permanent);
    assert!(
        refusal
            .message
            .starts_with("the target answered 422: no [31mxxx")
    );
    assert!(refusal.message.len() < 600);
}

#[tokio::test]
async fn a_sender_has_its_own_target_which_does_not_learn_the_token() {
    let (one, other) = (
        Stub::new(|_| Reply::status(200)).await,
        Stub::new(|_| Reply::status(200)).await,
    );
    let mut settings = settings(&one);
    settings.token = TokenSource::Fixed("t0ken".to_owned());
    settings
        .senders
        .insert("shop".to_owned(), other.url.parse().unwrap());
    settings.senders.insert(
        "same".to_owned(),
        one.url.replace("/apply", "/same").parse().unwrap(),
    );
    let target = target(settings, "http://127.0.0.1:1").await;
    for sender in ["github", "shop", "same"] {
        applied(&target, sender, NOW).await.unwrap();
    }
    assert_eq!(other.seen().len(), 1);
    assert_eq!(other.seen()[0].header("authorization"), None);
    let seen = one.seen();
    assert_eq!(seen.len(), 2);
    assert!(
        seen.iter()
            .all(|seen| seen.header("authorization") == Some("Bearer t0ken"))
    );
    assert_eq!(seen[1].line, "POST /same HTTP/1.1");
    assert!(!format!("{target:?}").contains("t0ken"));
}

/// Secrets Manager with a secret that a test changes; `None` fails.
async fn secrets(secret: Arc<Mutex<Option<&'static str>>>) -> Stub {
    Stub::new(move |seen: &Seen| {
        assert_eq!(
            seen.header("x-amz-target"),
            Some("secretsmanager.GetSecretValue")
        );
        let secret = secret.lock().map(|secret| *secret).unwrap_or_default();
        let (status, body) = match secret {
            Some(secret) => (
                200,
                serde_json::json!({"Name": "t", "SecretString": secret}),
            ),
            None => (
                400,
                serde_json::json!({"__type": "ResourceNotFoundException"}),
            ),
        };
        Reply::Answer {
            status,
            headers: vec![("content-type", "application/x-amz-json-1.1".to_owned())],
            body: body.to_string().into_bytes(),
        }
    })
    .await
}

#[tokio::test]
async fn n20_a_rotated_token_is_read_again_after_a_refusal_once_a_minute() {
    let secret = Arc::new(Mutex::new(Some("old\n")));
    let valid = Arc::new(Mutex::new("Bearer old"));
    let manager = secrets(Arc::clone(&secret)).await;
    let accepts = Arc::clone(&valid);
    let stub = Stub::new(move |seen: &Seen| {
        let valid = accepts.lock().map(|valid| *valid).unwrap_or_default();
        Reply::status(if seen.header("authorization") == Some(valid) {
            200
        } else {
            401
        })
    })
    .await;
    let mut settings = settings(&stub);
    settings.token = TokenSource::SecretsManager("arn".to_owned());
    let target = target(settings, manager.url.trim_end_matches("/apply")).await;
    assert_eq!(manager.seen().len(), 0, "read when it is first needed");
    let at = |seconds: u64| NOW.after(Duration::from_secs(seconds));

    applied(&target, "github", at(0)).await.unwrap();
    applied(&target, "github", at(299)).await.unwrap();
    assert_eq!(manager.seen().len(), 1, "kept five minutes");
    applied(&target, "github", at(300)).await.unwrap();
    assert_eq!(manager.seen().len(), 2);

    // Rotated: refused, read again, and sent once more in the same attempt.
    *secret.lock().unwrap() = Some("new");
    *valid.lock().unwrap() = "Bearer new";
    let refusal = applied(&target, "github", at(330)).await.unwrap_err();
    assert_eq!(refusal.code, "target_401");
    assert_eq!(manager.seen().len(), 2, "read half a minute ago");
    applied(&target, "github", at(360)).await.unwrap();
    assert_eq!(manager.seen().len(), 3);
    assert_eq!(stub.seen().len(), 6);

    // A failing refresh keeps the old one, and is not tried each time.
    *secret.lock().unwrap() = None;
    applied(&target, "github", at(700)).await.unwrap();
    applied(&target, "github", at(701)).await.unwrap();
    assert_eq!(manager.seen().len(), 4);
}

#[tokio::test]
async fn without_a_token_that_can_be_read_nothing_is_sent() {
    for wrong in [None, Some(""), Some("two words"), Some("line\nbreak")] {
        let manager = secrets(Arc::new(Mutex::new(wrong))).await;
        let stub = Stub::new(|_| Reply::status(200)).await;
        let mut settings = settings(&stub);
        settings.token = TokenSource::SecretsManager("arn".to_owned());
        let target = target(settings, manager.url.trim_end_matches("/apply")).await;
        let refusal = applied(&target, "github", NOW).await.unwrap_err();
        assert_eq!(refusal.class, Class::DidNotHappen);
        assert_eq!(refusal.code, "token_unavailable");
        assert_eq!(stub.seen().len(), 0);
    }
}

#[tokio::test]
async fn connections_are_used_again_after_good_and_bad_answers() {
    let rig = Rig::new(Plan::default()).await;
    for (number, answer) in [200, 503, 429, 422, 401, 204, 200].into_iter().enumerate() {
        let body = crate::rig::body(&format!("k{number}"), answer);
        rig.handle(&[record("m", &body)]).await;
    }
    assert_eq!((rig.effects(), rig.stub.connections()), (7, 1));
}

#[tokio::test]
async fn the_trace_of_the_record_goes_on_in_both_forms_and_no_other() {
    let rig = Rig::new(Plan::default()).await;
    let header = "Root=1-6af5b0d4-f503ccbc3d52af6e56a47a21;Parent=f187cebb22cb0444;Sampled=1";
    let mut traced = record("a", &crate::rig::body("a", 200));
    traced["attributes"]["AWSTraceHeader"] = header.into();
    let mut theirs = envelope("github#x", b"x");
    for name in ["traceparent", "x-amzn-trace-id"] {
        theirs.headers.insert(name.to_owned(), "theirs".to_owned());
    }
    rig.handle(&[traced, record("b", &theirs.to_json())]).await;
    let seen = rig.stub.seen();
    let of = |key: &str| {
        let seen = seen
            .iter()
            .find(|seen| seen.header("firstclaim-key") == Some(key));
        let seen = seen.unwrap();
        ["traceparent", "x-amzn-trace-id"].map(|name| seen.header(name).map(str::to_owned))
    };
    let traceparent = "00-6af5b0d4f503ccbc3d52af6e56a47a21-f187cebb22cb0444-01";
    assert_eq!(
        of("queue%23a"),
        [Some(traceparent.to_owned()), Some(header.to_owned())]
    );
    assert_eq!(of("github%23x"), [None, None]);
}
