//! Events of all senders, small and whole enough for their rules. A new delivery each time, as a
//! second subscription or a later event makes it.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::bench::{Request, sample};

/// A number that no other delivery has.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// `value` with the members of `changes` in place of its own; null takes one away.
pub(crate) fn with(value: &Value, changes: &Value) -> Value {
    let mut value = value.clone();
    for (pointer, change) in changes.as_object().unwrap() {
        let mut at = &mut value;
        for name in pointer.split('/') {
            at = &mut at[name];
        }
        *at = change.clone();
    }
    value
}

/// The body of a recorded delivery.
pub(crate) fn body_of(file: &str) -> Value {
    let body = sample(file)["body_base64"].as_str().unwrap().to_owned();
    serde_json::from_slice(&STANDARD.decode(body).unwrap()).unwrap()
}

/// A delivery of GitHub under an id of its own.
pub(crate) fn github(event: &str, body: &Value) -> Request {
    Request::github(event, &format!("delivery-{}", fresh()), body)
}

/// An event of an issue.
pub(crate) fn issue(action: &str, changes: &Value) -> Request {
    let body = json!({
        "action": action,
        "issue": {"id": 9, "number": 4, "updated_at": "2026-11-12T09:52:30Z"},
        "repository": {"id": 1, "full_name": "o/r"},
    });
    github("issues", &with(&body, changes))
}

/// An event of a pull request.
pub(crate) fn pull_request(action: &str, changes: &Value) -> Request {
    let body = json!({
        "action": action,
        "number": 4,
        "pull_request": {"id": 9, "number": 4, "updated_at": "2026-11-12T09:52:30Z"},
        "repository": {"id": 1, "full_name": "o/r"},
    });
    github("pull_request", &with(&body, changes))
}

/// A push to a branch: from one commit to another, at a second.
pub(crate) fn push(before: &str, after: &str, pushed_at: u64) -> Request {
    let body = json!({
        "ref": "refs/heads/deploy",
        "before": before.repeat(40),
        "after": after.repeat(40),
        "repository": {"id": 1, "full_name": "o/r", "pushed_at": pushed_at},
    });
    github("push", &body)
}

/// A delivery of GitLab under an id of its own.
pub(crate) fn gitlab(body: &Value) -> Request {
    Request::new("POST", "/webhooks/gitlab")
        .with("content-type", "application/json")
        .with("idempotency-key", &format!("idempotency-{}", fresh()))
        .body(body.to_string())
        .signed_by("gitlab")
}

/// An event of a merge request of GitLab.
pub(crate) fn merge_request(action: &str, changes: &Value) -> Request {
    let body = with(
        &body_of("gitlab/merge_request.open.json"),
        &json!({"object_attributes/action": action}),
    );
    gitlab(&with(&body, changes))
}

/// A push to a branch of GitLab.
pub(crate) fn gitlab_push(before: &str, after: &str) -> Request {
    let changes = json!({"before": before.repeat(40), "after": after.repeat(40)});
    gitlab(&with(&body_of("gitlab/push.json"), &changes))
}

/// A pipeline of GitLab that reached a status, with one job.
pub(crate) fn pipeline(status: &str, finished_at: &str, job: u64) -> Request {
    gitlab(&json!({
        "object_kind": "pipeline",
        "object_attributes": {"id": 31, "iid": 3, "status": status, "finished_at": finished_at},
        "project": {"id": 40117},
        "builds": [{"id": job, "status": status}],
    }))
}

/// A job of GitLab that reached a status.
pub(crate) fn job(id: u64, status: &str) -> Request {
    gitlab(&json!({
        "object_kind": "build", "build_id": id, "build_status": status, "project_id": 40117,
    }))
}

/// An event of Stripe.
pub(crate) fn stripe(id: &str, kind: &str, changes: &Value) -> Request {
    let body = json!({
        "id": id,
        "object": "event",
        "type": kind,
        "livemode": true,
        "data": {"object": {"id": "sub_1"}},
        "request": {"id": "req_1"},
    });
    Request::new("POST", "/webhooks/stripe")
        .with("content-type", "application/json")
        .body(with(&body, changes).to_string())
        .signed_by("stripe")
}

/// A request of Slack with a JSON body.
pub(crate) fn slack(body: &Value) -> Request {
    Request::new("POST", "/webhooks/slack")
        .with("content-type", "application/json")
        .body(body.to_string())
        .signed_by("slack")
}

/// An event of Slack.
pub(crate) fn slack_event(id: &str, kind: &str, text: &str) -> Request {
    slack(&json!({
        "type": "event_callback", "event_id": id, "event": {"type": kind, "text": text},
    }))
}

/// A request of Slack with a form for a body.
pub(crate) fn slack_form(form: &str) -> Request {
    Request::new("POST", "/webhooks/slack")
        .with("content-type", "application/x-www-form-urlencoded")
        .body(form)
        .signed_by("slack")
}

/// A delivery of Shopify: of an event, under an id of its own.
pub(crate) fn shopify(topic: &str, event: &str, body: &Value) -> Request {
    Request::new("POST", "/webhooks/shopify")
        .with("content-type", "application/json")
        .with("x-shopify-topic", topic)
        .with("x-shopify-shop-domain", "one.myshopify.com")
        .with("x-shopify-event-id", event)
        .with("x-shopify-webhook-id", &format!("webhook-{}", fresh()))
        .body(body.to_string())
        .signed_by("shopify")
}

/// A request of Twilio with a token of its own.
pub(crate) fn twilio(form: &str) -> Request {
    Request::new("POST", "/webhooks/twilio")
        .with("content-type", "application/x-www-form-urlencoded")
        .with("i-twilio-idempotency-token", &format!("token-{}", fresh()))
        .body(form)
        .signed_by("twilio")
}

/// A message of Standard Webhooks.
pub(crate) fn standard(id: &str, body: &str) -> Request {
    Request::new("POST", "/webhooks/standard")
        .with("content-type", "application/json")
        .with("webhook-id", id)
        .body(body)
        .signed_by("standard")
}

/// An operation of a caller at `/webhooks`.
pub(crate) fn operation(key: &str, body: &str) -> Request {
    Request::operation(key, body).to("/webhooks/token")
}
