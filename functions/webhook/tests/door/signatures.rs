//! Who is believed: the signatures that the senders' own libraries make, and their variants.

use firstclaim::clock::EpochMillis;
use serde_json::{Value, json};
use webhook::Options;
use webhook::signing::{self, Unsigned};

use crate::bench::{Bench, Request, problem, sample, secret, vectors};

#[tokio::test]
async fn deliveries_of_the_senders_own_libraries_are_accepted() {
    let vectors = vectors();
    let mut judged = 0;
    for vector in vectors["vectors"].as_array().unwrap() {
        let file = vector["file"].as_str().unwrap();
        assert_eq!(vector["expect"], "accept", "{file}");
        let mut request = Request::of(file);
        let mut senders = Bench::senders();
        match file {
            "gitlab/note.signing-token.json" => request = request.to("/webhooks/standard"),
            "standard/user.created.ed25519.json" => {
                senders["standard"]["secrets"] = json!([vectors["ed25519"]["public"]]);
            }
            _ => {}
        }
        let bench = Bench::with_senders(&senders);
        let response = bench.send(&request).await;
        // A probe is answered at once.
        let (status, queued) = match file {
            "slack/url_verification.json" => (200, 0),
            _ => (request.accepted(), 1),
        };
        assert_eq!(response.status_code, status, "{file}: {}", response.body);
        assert_eq!(bench.queue.messages().len(), queued, "{file}");
        judged += 1;
    }
    assert_eq!(judged, 40);
}

#[tokio::test]
async fn gitlab_signing_tokens_are_standard_webhooks() {
    let bench = Bench::new();
    let request = Request::of("gitlab/note.signing-token.json").to("/webhooks/standard");
    assert_eq!(bench.send(&request).await.status_code, 202);
}

#[tokio::test]
async fn ed25519_alone_is_refused_while_only_an_hmac_secret_is_configured() {
    let bench = Bench::new();
    let response = bench
        .send(&Request::of("standard/user.created.ed25519.json"))
        .await;
    assert_eq!(response.status_code, 401);
}

#[tokio::test]
async fn variants_are_judged_as_documented() {
    let vectors = vectors();
    let mut judged = 0;
    for variant in vectors["variants"].as_array().unwrap() {
        let file = variant["file"].as_str().unwrap();
        let mut bench = Bench::new();
        let mut request = Request::unsigned(file).with_all(&variant["headers"]);
        if let Some(url) = variant["url"].as_str() {
            let at = url.find("/webhooks/").unwrap();
            bench = Bench::with_options(Options {
                public_url: Some(url[..at].to_owned()),
                ..Options::default()
            });
            request = request.to(&url[at..]);
        }
        if let Some(body) = variant["body_base64"].as_str() {
            use base64::Engine;
            let bytes = base64::engine::general_purpose::STANDARD.decode(body);
            request = request.body(bytes.unwrap());
        }
        let response = bench.send(&request).await;
        let accepted = variant["ours"] == "accept";
        let status = if accepted { request.accepted() } else { 401 };
        assert_eq!(response.status_code, status, "{file}: {}", variant["case"]);
        if !accepted {
            assert_eq!(problem(&response), "unauthorized");
            assert!(response.headers.contains_key("www-authenticate"));
            assert_eq!(bench.store.calls(), 0);
            assert!(bench.queue.messages().is_empty());
        }
        judged += 1;
    }
    assert_eq!(judged, 67);
}

/// An answer that a sender documents, as a request to a sender of its scheme; and when it was sent.
fn known(answer: &Value) -> (Request, Option<EpochMillis>) {
    let text = |field: &str| answer[field].as_str().unwrap_or_default();
    let header = text("header");
    let request = Request::new("POST", "/webhooks/sender").body(text("body"));
    let seconds = answer["timestamp"].as_i64();
    let timestamp = seconds.unwrap_or_default().to_string();
    let request = match text("scheme") {
        "github" => request
            .with("x-github-delivery", "delivery-1")
            .with("x-hub-signature-256", header),
        "standard" => request
            .with("webhook-id", text("id"))
            .with("webhook-timestamp", &timestamp)
            .with("webhook-signature", header),
        "slack" => request
            .with("x-slack-request-timestamp", &timestamp)
            .with("x-slack-signature", header),
        other => panic!("{other}"),
    };
    (request, seconds.map(|seconds| EpochMillis(seconds * 1000)))
}

#[tokio::test]
async fn answers_known_from_the_senders_documentation_are_accepted() {
    let vectors = vectors();
    let mut judged = 0;
    for answer in vectors["known_answers"].as_array().unwrap() {
        // Too short a secret to be configured; see below.
        if answer["scheme"] == "twilio" {
            continue;
        }
        let sender = json!({"scheme": answer["scheme"], "secrets": [answer["secret"]]});
        let bench = Bench::with_senders(&json!({"sender": sender}));
        let (request, at) = known(answer);
        if let Some(at) = at {
            bench.clock.set(at);
        }
        let response = bench.send(&request).await;
        assert_eq!(response.status_code, request.accepted(), "{answer}");
        let changed = request.clone().body([&request.body[..], b" "].concat());
        assert_eq!(bench.send(&changed).await.status_code, 401, "{answer}");
        judged += 1;
    }
    assert_eq!(judged, 4);
}

#[test]
fn answers_known_from_the_senders_documentation_are_made() {
    let vectors = vectors();
    let mut judged = 0;
    for answer in vectors["known_answers"].as_array().unwrap() {
        let text = |field: &str| answer[field].as_str().unwrap_or_default();
        // Who verifies with a public key can't sign.
        if text("secret").starts_with("whpk_") {
            continue;
        }
        let delivery = Unsigned {
            url: text("url"),
            content_type: "application/x-www-form-urlencoded",
            body: text("body").as_bytes(),
            id: text("id"),
            at: EpochMillis(answer["timestamp"].as_i64().unwrap_or_default() * 1000),
        };
        let signed = signing::sign(text("scheme"), text("secret"), &delivery).unwrap();
        assert_eq!(signed.url, text("url"));
        let values: Vec<&str> = signed.headers.iter().map(|(_, value)| &**value).collect();
        assert!(values.contains(&text("header")), "{answer}: {values:?}");
        judged += 1;
    }
    assert_eq!(judged, 4);
}

#[test]
fn signing_makes_the_headers_that_the_senders_own_libraries_make() {
    let vectors = vectors();
    for vector in vectors["vectors"].as_array().unwrap() {
        let file = vector["file"].as_str().unwrap();
        let unsigned = Request::unsigned(file);
        let scheme = match file {
            "gitlab/note.signing-token.json" => "standard",
            _ => file.split('/').next().unwrap(),
        };
        let secret = match file {
            "standard/user.created.ed25519.json" => vectors["ed25519"]["secret"].clone(),
            _ => vectors["secrets"][scheme].clone(),
        };
        let header = |name: &str| vector["headers"][name].as_str().map(str::to_owned);
        // These libraries signed some seconds before `now`.
        let at = header("stripe-signature")
            .map(|value| value[2..12].to_owned())
            .or_else(|| header("webhook-timestamp"))
            .or_else(|| header("svix-timestamp"))
            .or_else(|| header("x-slack-request-timestamp"));
        let at = at.map_or(0, |seconds| seconds.parse::<i64>().unwrap() * 1000);
        let id = ["webhook-id", "svix-id"]
            .iter()
            .find_map(|name| unsigned.headers.get(*name));
        let public_url = vectors["public_url"].as_str().unwrap();
        let url = format!("{public_url}{}", unsigned.path);
        let delivery = Unsigned {
            url: &url,
            content_type: &unsigned.headers["content-type"],
            body: &unsigned.body,
            id: id.map_or("the-id", String::as_str),
            at: EpochMillis(at),
        };
        let signed = signing::sign(scheme, secret.as_str().unwrap(), &delivery).unwrap();
        assert_eq!(signed.url, url);
        for (name, value) in vector["headers"].as_object().unwrap() {
            // The other names of the same headers.
            let name = match file {
                "shopify/events.product-update.json" => format!("x-{name}"),
                _ => name.replace("svix-", "webhook-"),
            };
            let made = signed.headers.iter().find(|(made, _)| *made == name);
            assert_eq!(made.unwrap().1, value.as_str().unwrap(), "{file}: {name}");
        }
    }
}

#[tokio::test]
async fn ids_and_time_stamps_cannot_move_the_dots() {
    let now = vectors()["now"].to_string();
    let odd = [
        ("msg.1", now.clone()),
        ("", now.clone()),
        ("msg_1", format!("{now}.0")),
        ("msg_1", format!(" {now}")),
        ("msg_1", format!("+{now}")),
        ("msg_1", format!("{now} ")),
        ("msg_1", format!("00{now}")),
        ("msg_1", String::new()),
    ];
    for (id, timestamp) in odd {
        let bench = Bench::new();
        let request =
            Request::unsigned("standard/user.created.json").signed_standard(id, &timestamp);
        let response = bench.send(&request).await;
        assert_eq!(response.status_code, 401, "{id:?} {timestamp:?}");
    }
}

#[tokio::test]
async fn n14_headers_of_another_scheme_change_nothing() {
    let bench = Bench::new();
    let plain = Request::of("standard/user.created.json");
    let first = bench.send(&plain).await;
    let forged = plain
        .with("x-github-delivery", "forged")
        .with("x-github-event", "push")
        .with("idempotency-key", "forged")
        .with("svix-id", "forged");
    let second = bench.send(&forged).await;
    assert_eq!(first.body, second.body);
    assert_eq!(second.headers["idempotent-replayed"], "true");
    let key = "standard#msg_2KWPBgLlAfxdpx2AI54pPJ85f4W";
    assert_eq!(bench.queue.keys()[0].as_str(), key);
}

/// The target gets the headers that were signed, and none of the other name beside them.
#[tokio::test]
async fn n14_only_the_name_that_was_verified_is_passed_on() {
    for (file, own, other) in [
        ("standard/user.created.json", "webhook", "svix"),
        ("standard/user.created.svix.json", "svix", "webhook"),
    ] {
        let bench = Bench::new();
        let forged = Request::of(file)
            .with(&format!("{other}-id"), "forged")
            .with(&format!("{other}-timestamp"), "1");
        assert_eq!(bench.send(&forged).await.status_code, 202);
        let passed_on = bench.queue.envelopes().remove(0).headers;
        let names: Vec<&str> = passed_on.keys().map(String::as_str).collect();
        assert_eq!(names, [format!("{own}-id"), format!("{own}-timestamp")]);
    }
}

#[tokio::test]
async fn both_names_of_the_standard_headers_are_one_delivery() {
    let bench = Bench::new();
    let first = bench.send(&Request::of("standard/user.created.json")).await;
    let second = bench
        .send(&Request::of("standard/user.created.svix.json"))
        .await;
    assert_eq!(first.body, second.body);
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn n16_a_decoded_and_a_raw_secret_both_verify() {
    let decoded = secret("standard");
    let raw = "whsec_an-older-secret-that-is-the-key-as-text";
    let senders = json!({
        "standard": {"scheme": "standard", "secrets": [decoded, format!("raw:{raw}")]},
    });
    let bench = Bench::with_senders(&senders);
    let request = Request::of("standard/user.created.json");
    assert_eq!(bench.send(&request).await.status_code, 202);

    use base64::Engine;
    let now = vectors()["now"].to_string();
    let parts: [&[u8]; 5] = [b"msg_raw", b".", now.as_bytes(), b".", &request.body];
    let mac = crate::bench::mac(raw.as_bytes(), &parts);
    let signature = base64::engine::general_purpose::STANDARD.encode(mac);
    let request = request
        .with("webhook-id", "msg_raw")
        .with("webhook-timestamp", &now)
        .with("webhook-signature", &format!("v1,{signature}"));
    assert_eq!(bench.send(&request).await.status_code, 202);
}

#[tokio::test]
async fn n17_malformed_proofs_are_refused_and_the_next_good_one_is_not() {
    let bench = Bench::new();
    let schemes = [
        ("github/ping.json", "x-hub-signature-256", "sha256="),
        ("gitlab/push.json", "x-gitlab-token", "gitlab-"),
        (
            "stripe/invoice.paid.json",
            "stripe-signature",
            "t=1794478867,v1=",
        ),
        ("slack/slash_command.json", "x-slack-signature", "v0="),
        ("shopify/orders-create.json", "x-shopify-hmac-sha256", ""),
        ("standard/user.created.json", "webhook-signature", "v1,"),
        ("standard/user.created.json", "webhook-signature", "v1a,"),
        (
            "twilio/message-status.delivered.json",
            "x-twilio-signature",
            "",
        ),
        ("token/operation.json", "authorization", "Bearer "),
    ];
    for (file, header, prefix) in schemes {
        let good = Request::of(file);
        let lengths = (0..=200).map(|length| "a".repeat(length));
        let odd = [
            "ü".repeat(32),
            "💥".repeat(16),
            "a\u{0}b".to_owned(),
            "a".repeat(2 << 20),
        ];
        let many = [' ', ','].map(|between| format!("{prefix}AAAA{between}").repeat(100_000));
        for text in lengths.chain(odd).chain(many) {
            for value in [text.clone(), format!("{prefix}{text}")] {
                let response = bench.send(&good.clone().with(header, &value)).await;
                assert_eq!(response.status_code, 401, "{file} {} bytes", value.len());
            }
        }
        assert_eq!(bench.store.calls(), 0);
    }
    for (file, ..) in schemes {
        let good = Request::of(file);
        let response = bench.send(&good).await;
        assert_eq!(response.status_code, good.accepted(), "{file}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_base64_is_not_verified() {
    for file in ["github/ping.json", "token/operation.json"] {
        let bench = Bench::new();
        let mut event = Request::of(file).event();
        event["body"] = json!("%%%");
        event["isBase64Encoded"] = json!(true);
        assert_eq!(bench.event(event).await.status_code, 401);
        assert_eq!(bench.store.calls(), 0);
    }
}

#[tokio::test]
async fn a_signature_header_that_a_gateway_joined_is_refused() {
    let bench = Bench::new();
    let event = sample("lambda/http-api.duplicate-signature-header.json");
    assert_eq!(bench.event(event).await.status_code, 401);
}

#[tokio::test]
async fn a_bearer_token_may_be_announced_in_any_case() {
    let bench = Bench::new();
    let token = secret("token");
    for (value, status) in [
        (format!("bearer {token}"), 202),
        (format!("BEARER {token}"), 202),
        (format!("Bearer  {token}"), 401),
        (format!("Basic {token}"), 401),
        (token, 401),
    ] {
        let request = Request::operation("key", "{}").with("authorization", &value);
        assert_eq!(bench.send(&request).await.status_code, status, "{value}");
    }
}
