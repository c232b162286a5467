//! Twilio: the address that it signs, forms, and bodies that are none.

use serde_json::json;
use webhook::Options;

use crate::bench::{Bench, Request, options, sample, secret};
use crate::identity::events::twilio;

fn at(public_url: &str) -> Bench {
    Bench::with_options(Options {
        public_url: Some(public_url.to_owned()),
        ..Options::default()
    })
}

#[tokio::test]
async fn n18_with_and_without_its_port_and_nothing_else() {
    let request = Request::of("twilio/message-status.delivered.json");
    for (public_url, status) in [
        ("https://hooks.example.com", 202),
        ("https://hooks.example.com:443", 202),
        ("https://hooks.example.com:8443", 202),
        ("http://hooks.example.com", 401),
        ("https://hooks.example.org", 401),
        ("https://hooks.example.com/prefix", 401),
        ("https://hooks.example.com.", 401),
    ] {
        let response = at(public_url).send(&request).await;
        assert_eq!(response.status_code, status, "{public_url}");
    }
    // Signed with a port: that one, or the scheme's own.
    let signed = |url: &str| {
        let delivery = webhook::signing::Unsigned {
            url,
            content_type: "application/x-www-form-urlencoded",
            body: &request.body,
            id: "token",
            at: crate::bench::now(),
        };
        let signed = webhook::signing::sign("twilio", &secret("twilio"), &delivery).unwrap();
        let headers = signed.headers.into_iter();
        headers.fold(request.clone(), |request, (name, value)| {
            request.with(name, &value)
        })
    };
    for (url, public_url, status) in [
        (
            "https://hooks.example.com:443/webhooks/twilio",
            "https://hooks.example.com",
            202,
        ),
        (
            "https://hooks.example.com:8443/webhooks/twilio",
            "https://hooks.example.com:8443",
            202,
        ),
        (
            "https://hooks.example.com:8443/webhooks/twilio",
            "https://hooks.example.com",
            401,
        ),
        (
            "https://hooks.example.com:80/webhooks/twilio",
            "https://hooks.example.com",
            401,
        ),
        (
            "http://hooks.example.com:80/webhooks/twilio",
            "http://hooks.example.com",
            202,
        ),
        (
            "http://[::1]:9000/webhooks/twilio",
            "http://[::1]:9000",
            202,
        ),
        ("http://[::1]/webhooks/twilio", "http://[::1]:9000", 202),
        ("http://[::1]:80/webhooks/twilio", "http://[::1]", 202),
    ] {
        let response = at(public_url).send(&signed(url)).await;
        assert_eq!(response.status_code, status, "{url} at {public_url}");
    }
}

#[tokio::test]
async fn what_the_gateway_says_of_the_host_is_not_believed() {
    let bench = at("https://elsewhere.example.com");
    let request = Request::of("twilio/message-status.delivered.json")
        .with("host", "hooks.example.com")
        .with("x-forwarded-host", "hooks.example.com")
        .with("x-forwarded-proto", "https");
    assert_eq!(bench.send(&request).await.status_code, 401);
    // Without an address nothing can be verified.
    let bench = Bench::with_options(Options::default());
    assert_eq!(bench.send(&request).await.status_code, 401);
}

#[tokio::test]
async fn the_query_is_signed_as_it_came() {
    let bench = Bench::new();
    let path = "/webhooks/twilio?b=%41+c&a=1&a=1&empty=";
    let request = Request::of("twilio/message-status.sent.json")
        .to(path)
        .signed_by("twilio");
    assert_eq!(bench.send(&request).await.status_code, 202);
    for other in [
        "/webhooks/twilio?b=A+c&a=1&a=1&empty=",
        "/webhooks/twilio?a=1&a=1&b=%41+c&empty=",
        "/webhooks/twilio?b=%41+c&a=1&empty=",
        "/webhooks/twilio",
    ] {
        assert_eq!(
            bench.send(&request.clone().to(other)).await.status_code,
            401,
            "{other}"
        );
    }
}

#[tokio::test]
async fn a_parameter_that_repeats_with_one_value_counts_once() {
    let bench = Bench::new();
    // As Twilio signs: each name with each of its different values.
    let request = twilio("MediaUrl=b&MediaUrl=a&To=1");
    for (form, status) in [
        ("MediaUrl=b&MediaUrl=a&To=1", 202),
        ("To=1&MediaUrl=a&MediaUrl=b&MediaUrl=a", 202),
        ("MediaUrl=a&To=1", 401),
        ("MediaUrl=ab&To=1", 401),
        ("MediaUrl=b&MediaUrl=a&To=1&Empty", 401),
    ] {
        let response = bench.send(&request.clone().body(form)).await;
        assert_eq!(response.status_code, status, "{form}");
    }
}

#[tokio::test]
async fn empty_bodies_are_deliveries() {
    for (request, file) in [
        (twilio(""), "twilio"),
        (
            Request::of("shopify/orders-create.json")
                .body("")
                .signed_by("shopify"),
            "shopify",
        ),
        (
            Request::of("github/push.json").body("").signed_by("github"),
            "github",
        ),
    ] {
        let bench = Bench::new();
        let response = bench.send(&request).await;
        assert_eq!(response.status_code, 202, "{file}: {}", response.body);
        let envelope = bench.queue.envelopes().remove(0);
        assert_eq!(
            (envelope.kind.as_str(), envelope.body.len()),
            ("unknown", 0),
            "{file}"
        );
    }
    // A topic of which nothing is expected.
    let ping = Request::of("shopify/orders-create.json")
        .with("x-shopify-topic", "domains/create")
        .body("")
        .signed_by("shopify");
    assert_eq!(Bench::new().seen(&ping).await.kind, "domains/create");
}

#[tokio::test]
async fn a_body_that_no_signature_covers_is_refused() {
    let good = Request::of("twilio/event-streams.json");
    let bench = Bench::new();
    assert_eq!(bench.send(&good).await.status_code, 202);
    let (path, query) = good.path.split_once('?').unwrap();
    for other in [
        path.to_owned(),
        format!("{path}?{query}&{query}"),
        format!("{path}?bodySHA256="),
        format!("{path}?{}", query.to_lowercase()),
    ] {
        // Rightly signed each time, but for the digest.
        let mut request = good.clone().to(&other);
        let url = format!("{}{other}", options().public_url.unwrap());
        let key = ring::hmac::Key::new(
            ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            secret("twilio").as_bytes(),
        );
        use base64::Engine;
        let tag = ring::hmac::sign(&key, url.as_bytes());
        let tag = base64::engine::general_purpose::STANDARD.encode(tag);
        request = request.with("x-twilio-signature", &tag);
        assert_eq!(bench.send(&request).await.status_code, 401, "{other}");
    }
}

#[tokio::test]
async fn a_json_body_gets_its_digest_into_the_address() {
    let request = Request::new("POST", "/webhooks/twilio?a=b")
        .with("content-type", "application/json")
        .with("i-twilio-idempotency-token", "token")
        .body("[]")
        .signed_by("twilio");
    assert!(
        request.path.starts_with("/webhooks/twilio?a=b&bodySHA256="),
        "{}",
        request.path
    );
    let seen = Bench::new().seen(&request).await;
    assert_eq!((&*seen.kind, seen.fallback), ("unknown", Some("default")));
}

#[tokio::test]
async fn kinds_and_operations_of_forms() {
    let bench = Bench::new();
    let many = "a=1&".repeat(1001);
    let rows = [
        (
            "MessageSid=SM1&MessageStatus=sent",
            "message.sent",
            Some(r#"["MessageSid","SM1","sent"]"#),
        ),
        (
            "MessageSid=SM1&SmsStatus=received&Body=x",
            "message.received",
            None,
        ),
        ("MessageSid=SM1", "message", None),
        ("MessageSid=&MessageStatus=sent", "message.sent", None),
        ("MessageSid=SM1&MessageStatus=a%0Ab", "message", None),
        (
            "MessageSid=SM1&MessageSid=SM2&MessageStatus=sent",
            "unknown",
            None,
        ),
        (
            "CallSid=CA1&CallStatus=completed",
            "call.completed",
            Some(r#"["CallSid","CA1","completed"]"#),
        ),
        (
            "CallSid=CA1&CallStatus=busy&FromCity=x&To=1",
            "call.busy",
            Some(r#"["CallSid","CA1","busy"]"#),
        ),
        (
            "CallSid=CA1&CallStatus=completed&Digits=1",
            "call.completed",
            None,
        ),
        (
            "CallSid=CA1&CallStatus=in-progress",
            "call.in-progress",
            None,
        ),
        ("CallSid=CA1&CallStatus=ringing", "call.ringing", None),
        ("CallSid=CA1", "call", None),
        (
            "CallSid=CA1&CallStatus=ringing&CallbackSource=call-progress-events&SequenceNumber=1",
            "call.ringing",
            Some(r#"["CallSid","CA1","ringing","1"]"#),
        ),
        (
            "CallSid=CA1&CallStatus=ringing&CallbackSource=other",
            "call.ringing",
            None,
        ),
        ("Hello=1", "unknown", None),
    ];
    for (form, kind, operation) in rows {
        let seen = bench.seen(&twilio(form)).await;
        assert_eq!(seen.kind, kind, "{form}");
        match operation {
            Some(id) => assert_eq!((seen.operation.id(), seen.fallback), (id, None), "{form}"),
            None => assert_eq!(seen.fallback, Some("default"), "{form}"),
        }
    }
    // More fields than any sender has are no form to be sorted.
    let request = twilio("a=1").body(many);
    assert_eq!(bench.send(&request).await.status_code, 401);
}

#[tokio::test]
async fn a_rule_reads_a_forms_fields() {
    let mut senders = Bench::senders();
    senders["twilio"]["operation_key"] = json!("[AccountSid, MessageSid]");
    let bench = Bench::with_senders(&senders);
    let seen = bench
        .seen(&twilio("MessageSid=SM1&AccountSid=AC1&MessageStatus=sent"))
        .await;
    assert_eq!(seen.operation.id(), r#"["AC1","SM1"]"#);
    let seen = bench
        .seen(&twilio("MessageSid=SM1&MessageStatus=sent"))
        .await;
    assert_eq!(seen.fallback, Some("operation_key"));
    // What is no text names nothing.
    let seen = bench.seen(&twilio("MessageSid=SM1&AccountSid=%FF")).await;
    assert_eq!(seen.fallback, Some("operation_key"));
}

#[tokio::test]
async fn n32_the_samples_of_both_gateways() {
    for (file, public_url) in [
        (
            "lambda/function-url.twilio-message.base64.json",
            "https://fcs4mpl3url1d00000000000000000ab.lambda-url.us-east-1.on.aws",
        ),
        (
            "lambda/http-api.custom-domain.twilio-json.json",
            "https://hooks.example.com",
        ),
    ] {
        let mut event = sample(file);
        assert_eq!(
            at(public_url).event(event.clone()).await.status_code,
            202,
            "{file}"
        );
        event["rawQueryString"] = json!(null);
        let response = at(public_url).event(event).await;
        assert!([202, 401].contains(&response.status_code), "{file}");
    }
}

/// Without `I-Twilio-Idempotency-Token` what is signed names the delivery, where it is told apart
/// from every other one by itself.
#[tokio::test]
async fn without_a_token_a_signed_body_that_names_its_events_is_its_own_delivery() {
    const STREAM: &str = "/webhooks/twilio";
    let stream = |body: serde_json::Value| {
        Request::new("POST", STREAM)
            .with("content-type", "application/json")
            .body(body.to_string())
            .signed_by("twilio")
    };
    let form = |form: &str| {
        Request::new("POST", STREAM)
            .with("content-type", "application/x-www-form-urlencoded")
            .body(form)
            .signed_by("twilio")
    };
    let cloud_event = |id: &str| json!({"specversion": "1.0", "id": id, "type": "com.twilio.x"});
    let bench = Bench::new();
    let batches = [
        stream(json!([cloud_event("EZ1"), cloud_event("EZ2")])),
        stream(json!([cloud_event("EZ1")])),
        stream(json!([cloud_event("EZ3")])),
        form("MessageSid=SM1&SmsStatus=received&From=%2B1&To=%2B2&Body=hello"),
        form("MessageSid=SM2&SmsStatus=received&From=%2B1&To=%2B2&Body=hello"),
        form("MessageSid=SM1&SmsStatus=received&From=%2B1&To=%2B2&Body=hello&ErrorCode=11200"),
    ];
    for (number, request) in batches.iter().enumerate() {
        let seen = bench.seen(request).await;
        assert_eq!(seen.fallback, Some("default"), "{number}");
        let first = bench.send(request).await;
        assert_eq!(first.status_code, 202, "{number}: {}", first.body);
        let again = bench.cold().send(request).await;
        assert_eq!(again.headers["idempotent-replayed"], "true", "{number}");
        assert_eq!(bench.queue.messages().len(), number + 1);
    }
    assert_eq!(bench.queue.operations(), batches.len());
    // Nobody can take a delivery's place with a token of his own choice.
    let posed = batches[2].clone();
    let digest = bench.seen(&posed).await.delivery;
    let posed = posed.with("i-twilio-idempotency-token", "event-streams");
    let tokened = bench.seen(&posed).await;
    assert!(!tokened.door.id().contains("signed"), "{}", tokened.door);
    assert!(tokened.door.id().contains(&digest), "{}", tokened.door);

    // What can be the same text twice, and mean two things, still needs its token.
    for request in [
        stream(json!([{"specversion": "1.0", "type": "com.twilio.x"}])),
        stream(json!([cloud_event("EZ1"), cloud_event("")])),
        stream(json!([])),
        stream(json!({"id": "EZ1"})),
        form("CallSid=CA1&CallStatus=in-progress&From=%2B1&To=%2B2"),
        form("MessageSid=&SmsStatus=received&From=%2B1&To=%2B2"),
        form("MessageSid=SM1&SmsStatus=sent"),
        form("MessageSid=SM1&MessageStatus=a%0Ab&From=%2B1&To=%2B2"),
        form("Digits=1"),
    ] {
        let refused = bench.send(&request).await;
        assert_eq!(crate::bench::problem(&refused), "missing-key");
    }
    // A status names its operation, and so its delivery.
    let status = form("MessageSid=SM1&MessageStatus=sent&From=%2B1&To=%2B2");
    let seen = bench.seen(&status).await;
    assert_eq!(seen.operation.id(), r#"["MessageSid","SM1","sent"]"#);
    assert_eq!(bench.send(&status).await.status_code, 202);
}
