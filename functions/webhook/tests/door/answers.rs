//! Status, headers and bytes of every answer, and what each costs.

use firstclaim::Status;
use serde_json::json;
use webhook::Options;

use crate::bench::{Bench, Request, body, problem, secret};

/// An answer: what is asked, by which method and path, and what must come back.
struct Row {
    what: &'static str,
    request: Request,
    status: u16,
    problem: &'static str,
    header: Option<(&'static str, &'static str)>,
}

fn refused() -> Vec<Row> {
    let token = format!("Bearer {}", secret("token"));
    let hook = || Request::of("github/push.json");
    let row = |what, request, status, problem, header| Row {
        what,
        request,
        status,
        problem,
        header,
    };
    let allow_post = Some(("allow", "POST"));
    let allow_get = Some(("allow", "GET"));
    let bearer = Some(("www-authenticate", "Bearer"));
    let signature = Some(("www-authenticate", "Signature"));
    let get = |path| Request::new("GET", path).with("authorization", &token);
    let id = "A".repeat(43);
    vec![
        row("root", hook().to("/"), 404, "unknown-path", None),
        row("no path", hook().to(""), 404, "unknown-path", None),
        row(
            "slash behind",
            hook().to("/webhooks/github/"),
            404,
            "unknown-path",
            None,
        ),
        row(
            "no name",
            hook().to("/webhooks/"),
            404,
            "unknown-path",
            None,
        ),
        row(
            "two names",
            hook().to("/webhooks/a/b"),
            404,
            "unknown-path",
            None,
        ),
        row(
            "unknown sender",
            hook().to("/webhooks/nobody"),
            404,
            "unknown-sender",
            None,
        ),
        row(
            "encoded name",
            hook().to("/webhooks/%67ithub"),
            404,
            "unknown-sender",
            None,
        ),
        row(
            "probe",
            Request::new("GET", "/webhooks/github"),
            405,
            "unknown-path",
            allow_post,
        ),
        row("list", get("/operations"), 405, "unknown-path", allow_post),
        row(
            "post to an id",
            Request::operation("k", "{}").to("/operations/x"),
            405,
            "unknown-path",
            allow_get,
        ),
        row(
            "no method",
            Request::new("", "/webhooks/github"),
            405,
            "unknown-path",
            allow_post,
        ),
        row(
            "no signature",
            hook().without("x-hub-signature-256"),
            401,
            "unauthorized",
            signature,
        ),
        row(
            "changed body",
            hook().body("{}"),
            401,
            "unauthorized",
            signature,
        ),
        row(
            "no token",
            Request::operation("k", "{}").without("authorization"),
            401,
            "unauthorized",
            bearer,
        ),
        row(
            "look up without token",
            Request::new("GET", "/operations/x"),
            401,
            "unauthorized",
            bearer,
        ),
        row(
            "a sender that is no caller",
            Request::operation("k", "{}")
                .with("authorization", &format!("Bearer {}", secret("github"))),
            401,
            "unauthorized",
            bearer,
        ),
        row("no id", get("/operations/x"), 404, "unknown-path", None),
        row("odd id", get("/operations/%41"), 404, "unknown-path", None),
        row(
            "no base64url",
            get(&format!("/operations/{}+", &id[..42])),
            404,
            "unknown-path",
            None,
        ),
        row(
            "no key",
            Request::operation("k", "{}").without("idempotency-key"),
            400,
            "missing-key",
            None,
        ),
        row(
            "empty key",
            Request::operation("", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "empty quoted key",
            Request::operation("\"\"", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "quote left open",
            Request::operation("\"k", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "text behind the quote",
            Request::operation("\"k\";a=1", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "two keys",
            Request::operation("\"k\",\"l\"", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "odd escape",
            Request::operation("\"a\\n\"", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "long key",
            Request::operation(&"k".repeat(256), "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "control character",
            Request::operation("a\u{7}b", "{}"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "delivery without an id",
            hook()
                .without("x-github-delivery")
                .without("x-github-event"),
            400,
            "missing-key",
            None,
        ),
        row(
            "delivery with an odd id",
            hook().with("x-github-delivery", "a\nb"),
            400,
            "malformed-key",
            None,
        ),
        row(
            "too large",
            hook().body(vec![b' '; 6 * 1024 * 1024 + 1]).signed(),
            413,
            "too-large",
            None,
        ),
    ]
}

#[tokio::test]
async fn a_refused_request_is_told_so_and_calls_nothing() {
    for row in refused() {
        let bench = Bench::new();
        let response = bench.send(&row.request).await;
        assert_eq!(
            response.status_code, row.status,
            "{}: {}",
            row.what, response.body
        );
        assert_eq!(problem(&response), row.problem, "{}", row.what);
        assert_eq!(response.headers["cache-control"], "no-store");
        assert_eq!(response.headers["x-content-type-options"], "nosniff");
        assert!(!response.is_base64_encoded);
        if let Some((name, value)) = row.header {
            assert_eq!(response.headers[name], value, "{}", row.what);
        }
        assert_eq!(bench.store.calls(), 0, "{}", row.what);
        assert!(bench.queue.messages().is_empty(), "{}", row.what);
    }
}

#[tokio::test]
async fn a_delivery_is_accepted_and_its_duplicate_gets_the_same_bytes() {
    let bench = Bench::new();
    let request = Request::of("standard/user.created.json");
    let first = bench.send(&request).await;
    let expected = r#"{"key":"standard#msg_2KWPBgLlAfxdpx2AI54pPJ85f4W","status":"queued"}"#;
    assert_eq!(first.status_code, 202);
    assert_eq!(first.body, expected);
    assert_eq!(first.headers["content-type"], "application/json");
    assert_eq!(first.headers["cache-control"], "no-store");
    assert_eq!(first.headers["x-content-type-options"], "nosniff");
    assert!(!first.headers.contains_key("idempotent-replayed"));

    let second = bench.cold().send(&request).await;
    assert_eq!(second.status_code, 202);
    assert_eq!(second.body, first.body);
    assert_eq!(second.headers["idempotent-replayed"], "true");
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn an_acceptance_costs_two_calls_and_its_duplicate_one_or_none() {
    let bench = Bench::new();
    let request = Request::of("github/push.json");
    bench.send(&request).await;
    assert_eq!(bench.store.calls(), 2);
    bench.cold().send(&request).await;
    assert_eq!(bench.store.calls(), 3);
    bench.send(&request).await;
    assert_eq!(bench.store.calls(), 3);
}

#[tokio::test]
async fn the_claim_at_the_door_ends_a_grace_after_the_invocation() {
    use firstclaim::clock::Source;
    let bench = Bench::new();
    bench.queue.close();
    let sending = bench.clone();
    let running = tokio::spawn(async move { sending.send(&Request::of("github/push.json")).await });
    crate::bench::until("it is claimed", || !bench.memory.records().is_empty()).await;
    let record = bench.memory.records().remove(0);
    let deadline = bench.clock.now().after(crate::bench::RUN);
    let grace = firstclaim::Config::default().grace;
    assert_eq!(record.status, Status::InProgress);
    assert_eq!(record.lease, Some(deadline.after(grace)));
    assert_eq!(record.origin.request.as_deref(), Some("request-1"));
    bench.queue.open();
    assert_eq!(running.await.unwrap().status_code, 202);
}

#[tokio::test]
async fn the_body_limit_is_exact() {
    let options = Options {
        body_limit: 4096,
        ..Options::default()
    };
    let bench = Bench::with_options(options);
    for (length, status) in [(4095, 202), (4096, 202), (4097, 413), (5000, 413)] {
        let request = Request::github("star", &format!("delivery-{length}"), &json!({}));
        // Not UTF-8, so that it arrives as base64.
        let mut bytes = vec![b'x'; length];
        bytes[0] = 0xff;
        for body in [vec![b'x'; length], bytes] {
            let response = bench.send(&request.clone().body(body).signed()).await;
            assert_eq!(response.status_code, status, "{length}");
        }
    }
}

#[tokio::test]
async fn a_large_body_is_queued_compressed_or_refused() {
    let bench = Bench::new();
    let limit = 6 * 1024 * 1024;
    let request = Request::github("star", "delivery-1", &json!({}));
    let compressible = request.clone().body(vec![b'x'; limit]).signed();
    assert_eq!(bench.send(&compressible).await.status_code, 202);
    assert_eq!(bench.queue.envelopes()[0].body, compressible.body);

    let calls = bench.store.calls();
    // A text without a pattern: each byte is as good as random.
    let mut state = 1_u64;
    let random = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u8::try_from(state >> 56).unwrap()
    });
    let incompressible = request
        .body(random.take(1024 * 1024).collect::<Vec<_>>())
        .signed();
    let response = bench.send(&incompressible).await;
    assert_eq!(response.status_code, 413);
    assert_eq!(problem(&response), "too-large");
    assert_eq!(bench.store.calls(), calls);
}

#[tokio::test]
async fn odd_bodies_get_an_answer() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let bodies: [Vec<u8>; 6] = [
        Vec::new(),
        deep.into_bytes(),
        vec![0xff, 0xfe, 0x00],
        b"payload=%7B".to_vec(),
        b"null".to_vec(),
        "{\"action\":\"\u{fffe}\u{ffff}\"}".into(),
    ];
    let now = crate::bench::vectors()["now"].to_string();
    for (at, odd) in bodies.into_iter().enumerate() {
        let bench = Bench::new();
        let github = Request::of("github/push.json").body(odd.clone()).signed();
        let standard = Request::unsigned("standard/user.created.json")
            .body(odd.clone())
            .signed_standard(&format!("msg_{at}"), &now);
        let operation = Request::operation("key", "").body(odd.clone());
        for request in [github, standard, operation] {
            let response = bench.send(&request).await;
            assert_eq!(response.status_code, 202, "body {at}: {}", response.body);
        }
        for message in bench.queue.messages() {
            // What SQS takes as a message: see the quotas of SendMessage.
            assert!(
                message
                    .body
                    .chars()
                    .all(|c| !matches!(c, '\u{fffe}' | '\u{ffff}' | '\0'..='\u{8}'))
            );
        }
        for envelope in bench.queue.envelopes() {
            assert_eq!(envelope.body, odd);
        }
    }
}

#[tokio::test]
async fn the_envelope_says_what_came_and_keeps_secrets_to_itself() {
    let bench = Bench::new();
    let request = Request::of("github/issue_comment.created.json");
    let response = bench.send(&request).await;
    let envelope = bench.queue.envelopes().remove(0);
    assert_eq!(body(&response)["key"], envelope.key.as_str());
    assert_eq!(envelope.sender, "github");
    assert_eq!(envelope.scheme, "github");
    assert_eq!(envelope.delivery, "6b384875-3188-4d14-ab58-ef0402e39dc5");
    assert_eq!(envelope.kind, "issue_comment.created");
    assert_eq!(envelope.received_at, "2026-11-12T10:21:40Z");
    assert_eq!(envelope.fingerprint, None);
    let thread = envelope.thread.unwrap();
    assert_eq!(
        (thread.repo.as_str(), thread.number),
        ("fc-sample-org/parcel-api", 418)
    );
    assert_eq!(envelope.content_type, "application/json");
    assert_eq!(envelope.body, request.body);
    let passed: Vec<&str> = envelope.headers.keys().map(String::as_str).collect();
    assert_eq!(
        passed,
        [
            "x-github-delivery",
            "x-github-event",
            "x-github-hook-id",
            "x-github-hook-installation-target-id",
            "x-github-hook-installation-target-type",
        ]
    );
    assert_eq!(
        bench.queue.messages()[0].group,
        "fc-sample-org/parcel-api#418"
    );

    bench.send(&Request::of("standard/user.created.json")).await;
    let standard = bench.queue.envelopes().remove(1);
    assert_eq!(standard.kind, "user.created");
    assert_eq!(
        standard.headers.keys().collect::<Vec<_>>(),
        ["webhook-id", "webhook-timestamp"]
    );
    assert_eq!(bench.queue.messages()[1].group, "standard");

    bench.send(&Request::of("token/operation.json")).await;
    let operation = bench.queue.envelopes().remove(2);
    assert_eq!(operation.kind, "operation");
    assert_eq!(operation.delivery, "deploy-2026-11-12-417");
    assert!(operation.headers.is_empty());
    assert_eq!(
        operation.fingerprint,
        Some(firstclaim::Fingerprint::of_bytes(&operation.body))
    );
    for message in bench.queue.messages() {
        for scheme in ["github", "standard", "token"] {
            assert!(!message.body.contains(&secret(scheme)));
        }
    }
}
