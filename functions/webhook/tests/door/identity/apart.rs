//! Different events that look alike. To take two for one is the worse fault: it is silent, and lasts
//! as long as the window.

use serde_json::json;

use super::events::*;
use crate::bench::{Bench, Request};

type Pair = (&'static str, Request, Request);

fn of_github() -> Vec<Pair> {
    let edited = |title: &str| issue("edited", &json!({"changes": {"title": {"from": title}}}));
    let at = |action: &str, second: &str| {
        issue(
            action,
            &json!({"issue/updated_at": format!("2026-11-12T09:52:{second}Z")}),
        )
    };
    let labeled = |action: &str, label: u64| issue(action, &json!({"label": {"id": label}}));
    let comment = |id: u64| {
        github(
            "issue_comment",
            &with(
                &body_of("github/issue_comment.created.json"),
                &json!({"comment/id": id}),
            ),
        )
    };
    let run = |action: &str, attempt: u64| {
        github(
            "workflow_run",
            &with(
                &body_of("github/workflow_run.completed.json"),
                &json!({"action": action, "workflow_run/run_attempt": attempt}),
            ),
        )
    };
    let check = |conclusion: &str, at: &str| {
        github(
            "check_run",
            &with(
                &body_of("github/check_run.completed.json"),
                &json!({"check_run/conclusion": conclusion, "check_run/completed_at": at}),
            ),
        )
    };
    let review = |id: u64, action: &str| {
        github(
            "pull_request_review",
            &with(
                &body_of("github/pull_request_review.submitted.json"),
                &json!({"review/id": id, "action": action}),
            ),
        )
    };
    let requested = |field: &str| {
        let reviewer = json!({field: {"id": 7}});
        pull_request("review_requested", &reviewer)
    };
    let synchronized = |before: &str, after: &str| {
        pull_request("synchronize", &json!({"before": before, "after": after}))
    };
    let status = |id: u64, state: &str| {
        github(
            "status",
            &json!({
                "id": id, "sha": "a", "state": state, "context": "ci",
                "updated_at": "2026-11-12T09:52:30Z", "repository": {"id": 1},
            }),
        )
    };
    let star = || {
        github(
            "star",
            &json!({"action": "created", "repository": {"id": 1}}),
        )
    };
    let issue_five = issue("opened", &json!({"repository/id": 2}));
    vec![
        ("an issue edited twice", edited("a"), edited("b")),
        (
            "closed, reopened, closed",
            at("closed", "30"),
            at("closed", "34"),
        ),
        (
            "closed and reopened in one second",
            at("closed", "30"),
            at("reopened", "30"),
        ),
        (
            "a second label in one second",
            labeled("labeled", 1),
            labeled("labeled", 2),
        ),
        (
            "a label set and taken away",
            labeled("labeled", 1),
            labeled("unlabeled", 1),
        ),
        (
            "two assignees in one second",
            issue("assigned", &json!({"assignee": {"id": 1}})),
            issue("assigned", &json!({"assignee": {"id": 2}})),
        ),
        (
            "one issue id in two repositories",
            issue("opened", &json!({})),
            issue_five,
        ),
        (
            "pinned twice",
            issue("pinned", &json!({})),
            issue("pinned", &json!({})),
        ),
        (
            "a label that is not said",
            labeled("labeled", 0),
            issue("labeled", &json!({})),
        ),
        ("two comments in one second", comment(1), comment(2)),
        (
            "a branch pushed there and there again",
            push("a", "b", 1000),
            push("a", "b", 2000),
        ),
        (
            "a branch pushed there and back",
            push("a", "b", 1000),
            push("b", "a", 1000),
        ),
        (
            "a branch deleted twice",
            push("a", "0", 1000),
            push("a", "0", 1000),
        ),
        (
            "a branch made twice",
            push("0", "a", 1000),
            push("0", "a", 1000),
        ),
        (
            "a workflow run again",
            run("completed", 1),
            run("completed", 2),
        ),
        (
            "a run requested and completed",
            run("requested", 1),
            run("completed", 1),
        ),
        (
            "a check that ended twice",
            check("failure", "2026-11-12T09:52:30Z"),
            check("success", "2026-11-12T09:59:30Z"),
        ),
        (
            "two reviews of one person",
            review(1, "submitted"),
            review(2, "submitted"),
        ),
        (
            "a review and its dismissal",
            review(1, "submitted"),
            review(1, "dismissed"),
        ),
        (
            "a user and a team with one id",
            requested("requested_reviewer"),
            requested("requested_team"),
        ),
        (
            "two pushes to a pull request",
            synchronized("a", "b"),
            synchronized("b", "c"),
        ),
        (
            "two statuses of a commit",
            status(1, "pending"),
            status(2, "success"),
        ),
        ("starred, unstarred, starred", star(), star()),
    ]
}

fn of_gitlab() -> Vec<Pair> {
    let updated = |at: &str, changes: &serde_json::Value| {
        merge_request(
            "update",
            &json!({
                "object_attributes/updated_at": at, "changes": changes,
            }),
        )
    };
    let first = "2026-11-12 10:20:11 UTC";
    let labels = json!({"labels": {"current": [{"id": 1}]}});
    let title = json!({"title": {"previous": "a", "current": "b"}});
    let pushed = |oldrev: &str, commit: &str| {
        merge_request(
            "update",
            &json!({
                "object_attributes/oldrev": oldrev, "object_attributes/last_commit/id": commit,
            }),
        )
    };
    let note = |text: &str| {
        let changes = json!({
            "object_attributes/action": "update", "object_attributes/note": text,
        });
        gitlab(&with(&body_of("gitlab/note.json"), &changes))
    };
    let gone = || {
        let changes = json!({"after": "0".repeat(40), "checkout_sha": null});
        gitlab(&with(&body_of("gitlab/push.json"), &changes))
    };
    let of_kind = |kind: &str| {
        gitlab(&with(
            &body_of("gitlab/merge_request.open.json"),
            &json!({"object_kind": kind}),
        ))
    };
    vec![
        (
            "n1: opened and updated",
            merge_request("open", &json!({})),
            updated(first, &title),
        ),
        (
            "n1: updated twice",
            updated(first, &title),
            updated("2026-11-12 10:21:11 UTC", &title),
        ),
        (
            "updated twice in one second",
            updated(first, &title),
            updated(first, &labels),
        ),
        (
            "updated and merged at once",
            updated(first, &title),
            merge_request("merge", &json!({})),
        ),
        (
            "two pushes to a merge request",
            pushed("a", "b"),
            pushed("b", "c"),
        ),
        (
            "approved by two",
            merge_request("approval", &json!({"user/id": 1})),
            merge_request("approval", &json!({"user/id": 2})),
        ),
        ("a note edited twice in one second", note("a"), note("b")),
        ("a branch deleted twice", gone(), gone()),
        (
            "a branch pushed there and there again",
            gitlab_push("a", "b"),
            gitlab_push("a", "b"),
        ),
        (
            "a pipeline that failed, ran again and failed",
            pipeline("failed", "2026-11-12 10:20:11 UTC", 1),
            pipeline("failed", "2026-11-12 10:40:11 UTC", 2),
        ),
        (
            "a pipeline that runs again",
            pipeline("running", "", 1),
            pipeline("running", "", 2),
        ),
        (
            "a job that was run again",
            job(1, "failed"),
            job(2, "failed"),
        ),
        ("a job skipped twice", job(1, "skipped"), job(1, "skipped")),
        (
            "an issue and a merge request of one id",
            of_kind("issue"),
            of_kind("merge_request"),
        ),
    ]
}

fn of_money() -> Vec<Pair> {
    let updated = "customer.subscription.updated";
    let nothing = json!({});
    let order = body_of("shopify/orders-create.json");
    let product = |id: u64| json!({"id": id, "variants": []});
    let uninstalled = || body_of("shopify/app-uninstalled.json");
    vec![
        (
            "n6: two updates of a subscription",
            stripe("evt_1", updated, &nothing),
            stripe("evt_2", updated, &nothing),
        ),
        (
            "n6: two events of one request",
            stripe("evt_1", "payment_intent.succeeded", &nothing),
            stripe("evt_2", "charge.succeeded", &nothing),
        ),
        (
            "n6: one event on two connected accounts",
            stripe("evt_1", "payout.paid", &json!({"account": "acct_1"})),
            stripe("evt_1", "payout.paid", &json!({"account": "acct_2"})),
        ),
        (
            "the platform's own and an account's",
            stripe("evt_1", "payout.paid", &nothing),
            stripe("evt_1", "payout.paid", &json!({"account": "acct_1"})),
        ),
        (
            "test and live mode",
            stripe("evt_1", updated, &json!({"livemode": false})),
            stripe("evt_1", updated, &nothing),
        ),
        (
            "a second event of one charge",
            Request::of("stripe/charge.succeeded.json"),
            Request::of("stripe/charge.succeeded.second-event.json"),
        ),
        (
            "two topics of one event",
            Request::of("shopify/orders-create.json"),
            Request::of("shopify/orders-paid.same-event-id.json"),
        ),
        (
            "two products changed at once",
            shopify("products/update", "event-1", &product(1)),
            shopify("products/update", "event-1", &product(2)),
        ),
        (
            "an app uninstalled twice",
            shopify("app/uninstalled", "event-1", &uninstalled()),
            shopify("app/uninstalled", "event-2", &uninstalled()),
        ),
        (
            "one body in two shops",
            shopify("orders/create", "event-1", &order),
            shopify("orders/create", "event-1", &order)
                .with("x-shopify-shop-domain", "two.myshopify.com"),
        ),
        (
            "one body twice, and nothing says which event",
            shopify("orders/create", "event-1", &order).without("x-shopify-event-id"),
            shopify("orders/create", "event-1", &order).without("x-shopify-event-id"),
        ),
    ]
}

fn of_talk() -> Vec<Pair> {
    let command =
        |trigger: &str| slack_form(&format!("command=%2Fdeploy&text=now&trigger_id={trigger}"));
    let click = |trigger: &str| {
        let payload = json!({"type": "block_actions", "trigger_id": trigger});
        let encoded = payload.to_string().replace('"', "%22");
        slack_form(&format!("payload={encoded}"))
    };
    let closed = |view: &str| {
        slack_form(&format!(
            "payload={{%22type%22:%22view_closed%22,%22view%22:%22{view}%22}}"
        ))
    };
    let gather = || twilio("CallSid=CA1&CallStatus=in-progress&Digits=1&From=%2B1&To=%2B2");
    let call = |status: &str, number: u64| {
        twilio(&format!(
            "CallSid=CA1&CallStatus={status}&CallbackSource=call-progress-events\
             &SequenceNumber={number}"
        ))
    };
    let action = || twilio("CallSid=CA1&CallStatus=completed&RecordingSid=RE1");
    let inbound = |sid: &str| twilio(&format!("MessageSid={sid}&SmsStatus=received&Body=stop"));
    vec![
        (
            "a mention, as mention and as message",
            slack_event("Ev1", "app_mention", "hello"),
            slack_event("Ev2", "message", "hello"),
        ),
        (
            "one text said twice",
            slack_event("Ev1", "message", "hello"),
            slack_event("Ev2", "message", "hello"),
        ),
        (
            "one command given twice",
            command("1.2.a"),
            command("1.2.b"),
        ),
        ("one button clicked twice", click("1.2.a"), click("1.2.b")),
        ("two views closed", closed("V1"), closed("V2")),
        (
            "sent and delivered",
            Request::of("twilio/message-status.sent.json"),
            Request::of("twilio/message-status.delivered.json"),
        ),
        ("one digit keyed in twice", gather(), gather()),
        (
            "two steps of a call",
            call("ringing", 1),
            call("in-progress", 2),
        ),
        (
            "two calls that ended",
            twilio("CallSid=CA1&CallStatus=busy"),
            twilio("CallSid=CA2&CallStatus=busy"),
        ),
        (
            "the end of a call and its recording",
            twilio("CallSid=CA1&CallStatus=completed"),
            action(),
        ),
        ("two recordings of a call that ended", action(), action()),
        ("one text received twice", inbound("SM1"), inbound("SM2")),
        (
            "a message without a status",
            inbound("SM1"),
            twilio("MessageSid=SM1&MessageStatus=sent"),
        ),
        (
            "one body under two ids",
            standard("msg_1", r#"{"type":"a"}"#),
            standard("msg_2", r#"{"type":"a"}"#),
        ),
        (
            "an id that looks like joined parts",
            standard(r#"["msg_1"]"#, "{}"),
            standard("msg_1", "{}"),
        ),
        (
            "one operation under two keys",
            operation("1", "{}"),
            operation("2", "{}"),
        ),
    ]
}

#[tokio::test]
async fn a36_n1_n2_n4_n6_events_that_only_look_alike_stay_two() {
    let pairs = [of_github(), of_gitlab(), of_money(), of_talk()].concat();
    let bench = Bench::new();
    let mut merged = Vec::new();
    for (what, first, second) in &pairs {
        let (first, second) = (bench.seen(first).await, bench.seen(second).await);
        if first.operation == second.operation || first.door == second.door {
            merged.push(*what);
        }
    }
    assert_eq!(merged, [""; 0]);
    assert!(pairs.len() >= 60, "{} pairs", pairs.len());
}
