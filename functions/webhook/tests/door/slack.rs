//! What Slack asks before it sends events, and the three forms of its bodies.

use firstclaim::store::memory::Fault;
use serde_json::{Value, json};

use crate::bench::{Bench, Request, problem};
use crate::identity::events::{slack, slack_event, slack_form};

#[tokio::test]
async fn a_url_verification_is_answered_once_it_is_verified() {
    let bench = Bench::new();
    let request = Request::of("slack/url_verification.json");
    let response = bench.send(&request).await;
    assert_eq!(response.status_code, 200);
    assert_eq!(response.headers["content-type"], "text/plain");
    assert_eq!(response.headers["x-content-type-options"], "nosniff");
    assert_eq!(
        response.body,
        "bb064b23223dff9b805313cdafc355acc64f1642fae5a0ea0a9d"
    );
    // Whoever can't sign learns nothing.
    for forged in [
        request.clone().without("x-slack-signature"),
        request
            .clone()
            .with("x-slack-request-timestamp", "1794478868"),
        request
            .clone()
            .body(r#"{"type":"url_verification","challenge":"mine"}"#),
    ] {
        let response = bench.send(&forged).await;
        assert_eq!(problem(&response), "unauthorized");
        assert!(!response.body.contains("mine"));
    }
    assert_eq!(bench.store.calls(), 0);
    assert!(bench.queue.messages().is_empty());
}

#[tokio::test]
async fn a_challenge_that_is_none_is_not_sent_back() {
    let challenge =
        |challenge: Value| slack(&json!({"type": "url_verification", "challenge": challenge}));
    let long = "a".repeat(513);
    for odd in [
        json!(""),
        json!(null),
        json!(7),
        json!("<b> "),
        json!("a\nb"),
        json!("ü"),
        json!(long),
    ] {
        let bench = Bench::new();
        let response = bench.send(&challenge(odd.clone())).await;
        // It is an event then, of a kind that no rule knows.
        assert_eq!(response.status_code, 202, "{odd}");
        assert_eq!(bench.queue.envelopes()[0].kind, "url_verification");
    }
    let padded = json!({"type": "url_verification", "challenge": "a", "x": "y".repeat(5000)});
    assert_eq!(Bench::new().send(&slack(&padded)).await.status_code, 202);
    let longest = Bench::new().send(&challenge(json!("a".repeat(512)))).await;
    assert_eq!((longest.status_code, longest.body.len()), (200, 512));
}

#[tokio::test]
async fn a_certificate_check_is_answered() {
    let bench = Bench::new();
    let response = bench.send(&slack_form("ssl_check=1&token=t")).await;
    assert_eq!((response.status_code, &*response.body), (200, ""));
    assert!(bench.queue.messages().is_empty());
    let forged = slack_form("ssl_check=1").with("x-slack-signature", "v0=00");
    assert_eq!(bench.send(&forged).await.status_code, 401);
}

/// A retry says nothing of whether the first one worked.
#[tokio::test]
async fn a29_a33_a_retry_runs_if_the_first_one_failed_and_only_then() {
    let bench = Bench::new();
    let first = Request::of("slack/event_callback.message.json");
    let retry = Request::of("slack/event_callback.message.retry-1.json");
    bench.queue.plan([crate::bench::Sending::Refuse]);
    assert_eq!(bench.send(&first).await.status_code, 503);
    assert_eq!(bench.cold().send(&retry).await.status_code, 202);
    assert_eq!(bench.queue.messages().len(), 1);
    let third = bench.send(&retry).await;
    assert_eq!(third.headers["idempotent-replayed"], "true");
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn n21_a_command_of_several_words_is_one_delivery_plain_and_encoded() {
    let bench = Bench::new();
    let plain = bench.send(&Request::of("slack/slash_command.json")).await;
    let encoded = crate::bench::sample("lambda/function-url.slack-slash-command.base64.json");
    let encoded = bench.event(encoded).await;
    assert_eq!((plain.status_code, encoded.status_code), (200, 200));
    assert_eq!(encoded.headers["idempotent-replayed"], "true");
    let envelope = bench.queue.envelopes().remove(0);
    assert_eq!(envelope.content_type, "application/x-www-form-urlencoded");
    assert_eq!(envelope.body, Request::of("slack/slash_command.json").body);
}

/// What is answered to a command is shown to the person who gave it; a dialog takes it for an error.
#[tokio::test]
async fn a_command_and_an_interaction_are_answered_with_200_and_nothing() {
    for request in [
        Request::of("slack/slash_command.json"),
        Request::of("slack/interactive.block_actions.json"),
        slack_form("payload={%22type%22:%22view_closed%22}"),
    ] {
        let bench = Bench::new();
        let first = bench.send(&request).await;
        assert_eq!((first.status_code, &*first.body), (200, ""));
        assert_eq!(bench.queue.messages().len(), 1);
        // By this process, and by one that reads what is stored.
        for bench in [&bench, &bench.cold()] {
            let again = bench.send(&request).await;
            assert_eq!((again.status_code, &*again.body), (200, ""));
            assert_eq!(again.headers["idempotent-replayed"], "true");
            assert_eq!(bench.queue.messages().len(), 1);
        }
        // Where the table can't be reached, it is queued all the same.
        bench.store.plan([Fault::Refuse; 20]);
        let unclaimed = bench.cold().send(&request).await;
        assert_eq!((unclaimed.status_code, &*unclaimed.body), (200, ""));
    }
    // A refusal says what it is.
    let bench = Bench::new();
    bench.queue.plan([crate::bench::Sending::Refuse]);
    let refused = bench.send(&Request::of("slack/slash_command.json")).await;
    assert_eq!(problem(&refused), "unavailable");
    // An event is answered as everybody's is.
    let event = Request::of("slack/event_callback.message.json");
    let accepted = bench.send(&event).await;
    assert_eq!(accepted.status_code, 202);
    assert_eq!(crate::bench::body(&accepted)["status"], "queued");
}

#[tokio::test]
async fn what_has_no_id_goes_by_the_second_in_which_it_was_sent() {
    let bench = Bench::new();
    let limited = json!({"type": "app_rate_limited", "minute_rate_limited": 1});
    for (request, kind) in [
        (slack(&limited), "app_rate_limited"),
        (
            slack(&json!({"type": "event_callback", "event": {"type": "message"}})),
            "unknown",
        ),
        (slack(&json!({"event_id": "Ev1"})), "unknown"),
        (slack(&json!([1])), "unknown"),
        (slack_form("command=%2Fdeploy"), "unknown"),
        (slack_form("command=%2Fdeploy&trigger_id="), "unknown"),
        (
            slack_form("command=%2Fdeploy&trigger_id=1&trigger_id=2"),
            "unknown",
        ),
        (
            slack_form("payload={%22type%22:%22view_closed%22}"),
            "view_closed",
        ),
        (slack_form("payload=no"), "unknown"),
        (slack_form(""), "unknown"),
        (slack_form(&"a&".repeat(2000)), "unknown"),
    ] {
        let seen = bench.seen(&request).await;
        assert_eq!(seen.kind, kind);
        assert_eq!(seen.fallback, Some("default"), "{kind}");
        assert!(
            seen.door.id().starts_with("[\"1794478900\",\""),
            "{}",
            seen.door
        );
    }
}

/// By a rule, what a mention arrives as is no matter.
#[tokio::test]
async fn a_rule_makes_a_mention_one_operation() {
    let mut senders = Bench::senders();
    senders["slack"]["operation_key"] = json!("[team_id, event.channel, event.event_ts]");
    let bench = Bench::with_senders(&senders);
    for (id, kind) in [("Ev1", "app_mention"), ("Ev2", "message")] {
        let request = slack(&json!({
            "type": "event_callback", "event_id": id, "team_id": "T1",
            "event": {"type": kind, "channel": "C1", "event_ts": "1794478867.417733"},
        }));
        bench.send(&request).await;
    }
    assert_eq!(bench.queue.messages().len(), 2);
    assert_eq!(bench.queue.operations(), 1);
    // What the rule does not find is told by its id.
    let seen = bench.seen(&slack_event("Ev3", "message", "hello")).await;
    assert_eq!(
        (seen.operation.id(), seen.fallback),
        ("Ev3", Some("operation_key"))
    );
}
