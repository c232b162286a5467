//! One event that arrives in several ways.

use serde_json::{Value, json};

use super::events::*;
use crate::bench::{Bench, Request, now, secret};

type Group = (&'static str, Vec<Request>);

/// A recorded delivery as a second subscription sends it: signed anew, under another id.
fn sent_again(file: &str) -> Request {
    let scheme = file.split('/').next().unwrap();
    let id = webhook::signing::id_header(scheme).unwrap();
    Request::of(file).with(id, "another-id").signed_by(scheme)
}

fn groups() -> Vec<Group> {
    let again = |file: &str| vec![Request::of(file), sent_again(file)];
    let both = |request: fn() -> Request| vec![request(), request()];
    let push = || github("push", &body_of("github/push.json"));
    let json = push();
    let escaped: String = json
        .body
        .iter()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let form = push()
        .with("content-type", "application/x-www-form-urlencoded")
        .body(format!("payload={escaped}"))
        .signed();
    let edited = |changes: Value| issue("edited", &json!({"changes": changes}));
    let stripe_retry = |seconds: i64| {
        let at = firstclaim::clock::EpochMillis(now().0 - seconds * 1000);
        Request::of("stripe/invoice.paid.json").signed_at("stripe", &secret("stripe"), at)
    };
    let second_endpoint = stripe("evt_1", "invoice.paid", &json!({"pending_webhooks": 1}));
    vec![
        (
            "a37_n11: two hooks and an App",
            [
                "github/issue_comment.created.json",
                "github/issue_comment.created.app.json",
                "github/issue_comment.created.hook-twice.json",
            ]
            .map(Request::of)
            .to_vec(),
        ),
        ("n21: as JSON and as a form", vec![json, form]),
        ("a push through two hooks", again("github/push.json")),
        (
            "an edited comment",
            again("github/issue_comment.edited.json"),
        ),
        ("a pull request", again("github/pull_request.opened.json")),
        (
            "commits of a pull request",
            again("github/pull_request.synchronize.json"),
        ),
        (
            "a review",
            again("github/pull_request_review.submitted.json"),
        ),
        ("a check", again("github/check_run.completed.json")),
        ("a workflow", again("github/workflow_run.completed.json")),
        (
            "changes in another order",
            vec![
                edited(json!({"title": {"from": "a"}, "body": {"from": "b"}})),
                edited(json!({"body": {"from": "b"}, "title": {"from": "a"}})),
            ],
        ),
        (
            "a label",
            both(|| issue("labeled", &json!({"label": {"id": 1}}))),
        ),
        (
            "n7: a job that ends again and again",
            (0..5)
                .map(|_| {
                    github(
                        "workflow_job",
                        &json!({
                            "action": "completed",
                            "workflow_job": {"id": 77, "run_id": 5, "run_attempt": 1},
                            "repository": {"id": 1},
                        }),
                    )
                })
                .collect(),
        ),
        (
            "a note of GitLab, resent by hand",
            ["gitlab/note.json", "gitlab/note.resent.json"]
                .map(Request::of)
                .to_vec(),
        ),
        (
            "a note through project and group",
            again("gitlab/note.json"),
        ),
        (
            "a merge request through project and group",
            again("gitlab/merge_request.open.json"),
        ),
        (
            "n1: an update through project and group",
            both(|| merge_request("update", &json!({"changes": {"title": {"current": "b"}}}))),
        ),
        (
            "a pipeline",
            both(|| pipeline("failed", "2026-11-12 10:20:11 UTC", 1)),
        ),
        ("a job of GitLab", both(|| job(1, "failed"))),
        (
            "Stripe's retry, signed anew",
            [0, 60, 299].map(stripe_retry).to_vec(),
        ),
        (
            "two endpoints of one account",
            vec![stripe("evt_1", "invoice.paid", &json!({})), second_endpoint],
        ),
        (
            "a29: Slack's retry",
            [
                "slack/event_callback.message.json",
                "slack/event_callback.message.retry-1.json",
            ]
            .map(Request::of)
            .to_vec(),
        ),
        (
            "two subscriptions of a shop",
            [
                "shopify/orders-create.json",
                "shopify/orders-create.second-subscription.json",
            ]
            .map(Request::of)
            .to_vec(),
        ),
        (
            "both names of the headers",
            [
                "standard/user.created.json",
                "standard/user.created.svix.json",
            ]
            .map(Request::of)
            .to_vec(),
        ),
        (
            "n13: a captured message status",
            again("twilio/message-status.delivered.json"),
        ),
        (
            "n13: a captured call",
            again("twilio/voice-status.completed.json"),
        ),
        (
            "a call's end",
            both(|| twilio("CallSid=CA1&CallStatus=no-answer&From=%2B1&FromCity=")),
        ),
        (
            "a key in quotes and bare",
            vec![operation("\"deploy-1\"", "{}"), operation("deploy-1", "{}")],
        ),
    ]
}

#[tokio::test]
async fn a29_a37_n7_n11_n13_one_event_is_one_operation_however_it_comes() {
    let bench = Bench::new();
    let groups = groups();
    for (what, requests) in &groups {
        let first = bench.seen(&requests[0]).await;
        for request in &requests[1..] {
            let again = bench.seen(request).await;
            assert_eq!(again.operation, first.operation, "{what}");
            assert_eq!(again.kind, first.kind, "{what}");
            assert_eq!(again.fallback, None, "{what}");
        }
    }
    assert!(groups.len() >= 25, "{} groups", groups.len());
}

/// All at once and in any order: as many operations as there are groups.
#[tokio::test]
async fn a37_groups_that_arrive_through_each_other_stay_apart() {
    let bench = Bench::new();
    let groups = groups();
    let longest = groups
        .iter()
        .map(|(_, requests)| requests.len())
        .max()
        .unwrap();
    for at in (0..longest).rev() {
        for (what, requests) in &groups {
            if let Some(request) = requests.get(at) {
                let response = bench.send(request).await;
                assert_eq!(response.status_code, 202, "{what}: {}", response.body);
            }
        }
    }
    // The form and the JSON of one push, and its second hook, are one event three times.
    let keys: std::collections::BTreeSet<_> = bench.queue.keys().into_iter().collect();
    let shared = [
        ("a push through two hooks", "n21: as JSON and as a form"),
        (
            "a note through project and group",
            "a note of GitLab, resent by hand",
        ),
    ];
    assert_eq!(keys.len(), groups.len() - shared.len());
}
