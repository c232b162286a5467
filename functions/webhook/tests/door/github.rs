//! GitHub's two keys: what is one event, and what are two.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::bench::{Bench, Request, sample};

const ONE_EVENT: [&str; 3] = [
    "github/issue_comment.created.json",
    "github/issue_comment.created.app.json",
    "github/issue_comment.created.hook-twice.json",
];

fn body_of(file: &str) -> Value {
    let bytes = STANDARD
        .decode(sample(file)["body_base64"].as_str().unwrap())
        .unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The operation key of one delivery.
async fn key(event: &str, delivery: &str, body: &Value) -> String {
    let bench = Bench::new();
    let response = bench.send(&Request::github(event, delivery, body)).await;
    assert_eq!(response.status_code, 202, "{event}: {}", response.body);
    bench.queue.keys()[0].as_str().to_owned()
}

/// Whether two deliveries, each under its own id, are one operation.
async fn one_operation(event: &str, first: &Value, second: &Value) -> bool {
    key(event, "delivery-1", first).await == key(event, "delivery-2", second).await
}

#[tokio::test]
async fn the_samples_are_the_operations_that_the_index_says() {
    let index = sample("index.json");
    let mut labels = BTreeMap::new();
    for delivery in index["deliveries"].as_array().unwrap() {
        let file = delivery["file"].as_str().unwrap();
        if !file.starts_with("github/") {
            continue;
        }
        let bench = Bench::new();
        bench.send(&Request::of(file)).await;
        let envelope = bench.queue.envelopes().remove(0);
        assert_eq!(envelope.kind, delivery["kind"], "{file}");
        let label = delivery["operation"].as_str().unwrap();
        let known = labels
            .entry(label.to_owned())
            .or_insert(envelope.key.clone());
        assert_eq!(*known, envelope.key, "{file}");
    }
    let mut keys: Vec<_> = labels.values().collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 10);
}

#[tokio::test]
async fn a37_n11_one_event_through_two_hooks_and_an_app_is_one_operation() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let bench = Bench::new();
        for at in order {
            let response = bench.send(&Request::of(ONE_EVENT[at])).await;
            assert_eq!(response.status_code, 202);
            assert!(!response.headers.contains_key("idempotent-replayed"));
        }
        assert_eq!(bench.queue.operations(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a37_n11_also_at_once() {
    let bench = Bench::new();
    let mut running = tokio::task::JoinSet::new();
    for file in ONE_EVENT {
        let bench = bench.cold();
        running.spawn(async move { bench.send(&Request::of(file)).await.status_code });
    }
    assert_eq!(running.join_all().await, [202, 202, 202]);
    assert_eq!(bench.queue.operations(), 1);
}

#[tokio::test]
async fn a37_the_same_event_through_two_sender_names_is_two_operations() {
    let bench = Bench::new();
    bench.send(&Request::of(ONE_EVENT[0])).await;
    bench
        .send(&Request::of(ONE_EVENT[0]).to("/webhooks/github-2"))
        .await;
    assert_eq!(bench.queue.operations(), 2);
}

#[tokio::test]
async fn n2_deleting_a_branch_twice_is_two_operations() {
    let mut deletion = body_of("github/push.json");
    deletion["after"] = json!("0".repeat(40));
    deletion["deleted"] = json!(true);
    assert!(!one_operation("push", &deletion, &deletion).await);
    // A pushed commit is named exactly.
    let push = body_of("github/push.json");
    assert!(one_operation("push", &push, &push).await);
    let mut again = push.clone();
    again["repository"]["pushed_at"] = json!(1_794_476_468);
    assert!(!one_operation("push", &push, &again).await);
}

#[tokio::test]
async fn n4_two_comments_in_one_second_are_two_operations() {
    let first = body_of(ONE_EVENT[0]);
    let mut second = first.clone();
    second["comment"]["id"] = json!(3_421_879_293_u64);
    assert!(!one_operation("issue_comment", &first, &second).await);
}

#[tokio::test]
async fn n7_a_job_that_ends_again_and_again_is_one_operation_for_each_attempt() {
    let job = |attempt: u32| {
        json!({
            "action": "completed",
            "workflow_job": {"id": 77, "run_id": 5, "run_attempt": attempt},
            "repository": {"id": 1, "full_name": "o/r"},
        })
    };
    let bench = Bench::new();
    for delivery in 0..5 {
        bench
            .send(&Request::github(
                "workflow_job",
                &format!("first-{delivery}"),
                &job(1),
            ))
            .await;
    }
    assert_eq!(bench.queue.operations(), 1);
    bench
        .send(&Request::github("workflow_job", "second", &job(2)))
        .await;
    assert_eq!(bench.queue.operations(), 2);
}

#[tokio::test]
async fn n13_the_same_signed_body_under_a_new_id_is_the_same_operation_where_a_rule_knows_it() {
    for file in [
        "github/push.json",
        "github/pull_request.opened.json",
        ONE_EVENT[0],
    ] {
        let bench = Bench::new();
        bench.send(&Request::of(file)).await;
        bench
            .send(&Request::of(file).with("x-github-delivery", "captured"))
            .await;
        assert_eq!(bench.queue.operations(), 1, "{file}");
    }
}

#[tokio::test]
async fn n13_an_event_name_that_the_body_contradicts_is_not_believed() {
    for (file, event) in [
        (ONE_EVENT[0], "issues"),
        (ONE_EVENT[0], "push"),
        ("github/push.json", "issue_comment"),
        ("github/pull_request_review.submitted.json", "pull_request"),
        ("github/check_run.completed.json", "check_suite"),
        ("github/ping.json", "pull_request"),
    ] {
        let bench = Bench::new();
        bench
            .send(&Request::of(file).with("x-github-event", event))
            .await;
        let envelope = bench.queue.envelopes().remove(0);
        assert_eq!(envelope.kind, "unknown", "{file} as {event}");
        assert!(!envelope.headers.contains_key("x-github-event"));
        assert_eq!(envelope.thread, None);
    }
}

#[tokio::test]
async fn what_changed_tells_events_of_one_second_apart() {
    let base = |action: &str| {
        json!({
            "action": action,
            "issue": {"id": 9, "number": 4, "updated_at": "2026-11-12T09:52:30Z"},
            "repository": {"id": 1, "full_name": "o/r"},
        })
    };
    let with = |action: &str, field: &str, value: Value| {
        let mut body = base(action);
        body[field] = value;
        body
    };
    let different = [
        (base("opened"), base("closed")),
        (
            with("labeled", "label", json!({"id": 1})),
            with("labeled", "label", json!({"id": 2})),
        ),
        (
            with("labeled", "label", json!({"id": 1})),
            with("unlabeled", "label", json!({"id": 1})),
        ),
        (
            with("assigned", "assignee", json!({"id": 1})),
            with("assigned", "assignee", json!({"id": 2})),
        ),
        (
            with("edited", "changes", json!({"title": {"from": "a"}})),
            with("edited", "changes", json!({"body": {"from": "a"}})),
        ),
        // No rule: pinning does not move `updated_at`.
        (base("pinned"), base("pinned")),
        // The label that should be there is not.
        (base("labeled"), base("labeled")),
        (
            with("labeled", "label", json!({"id": null})),
            with("labeled", "label", json!({"id": null})),
        ),
    ];
    for (first, second) in different {
        assert!(
            !one_operation("issues", &first, &second).await,
            "{first} {second}"
        );
    }
    let same = [
        (
            base("opened"),
            with("opened", "installation", json!({"id": 5})),
        ),
        (
            with(
                "edited",
                "changes",
                json!({"title": {"from": "a"}, "body": {"from": "b"}}),
            ),
            with(
                "edited",
                "changes",
                json!({"body": {"from": "b"}, "title": {"from": "a"}}),
            ),
        ),
    ];
    for (first, second) in same {
        assert!(
            one_operation("issues", &first, &second).await,
            "{first} {second}"
        );
    }
}

#[tokio::test]
async fn a_user_and_a_team_with_one_id_are_two_reviewers() {
    let review = |field: &str| {
        json!({
            "action": "review_requested",
            "pull_request": {"id": 9, "number": 4, "updated_at": "2026-11-12T09:52:30Z"},
            field: {"id": 7},
            "repository": {"id": 1, "full_name": "o/r"},
        })
    };
    let (user, team) = (review("requested_reviewer"), review("requested_team"));
    assert!(one_operation("pull_request", &user, &user).await);
    assert!(one_operation("pull_request", &team, &team).await);
    assert!(!one_operation("pull_request", &user, &team).await);
}

#[tokio::test]
async fn an_unknown_kind_goes_by_its_delivery() {
    let star = json!({"action": "created", "repository": {"id": 1}});
    assert!(!one_operation("star", &star, &star).await);
    let first = key("star", "delivery-1", &star).await;
    assert_eq!(first, key("star", "delivery-1", &star).await);
    assert!(first.starts_with("github#[\"delivery-1\",\""), "{first}");
}

#[tokio::test]
async fn one_id_with_another_body_is_another_delivery() {
    let bench = Bench::new();
    let star = |number: u32| json!({"action": "created", "number": number});
    bench
        .send(&Request::github("star", "guessed", &star(1)))
        .await;
    let response = bench
        .send(&Request::github("star", "guessed", &star(2)))
        .await;
    assert!(!response.headers.contains_key("idempotent-replayed"));
    assert_eq!(bench.queue.operations(), 2);
}

#[tokio::test]
async fn the_form_says_the_same_as_the_json_in_it() {
    let file = "github/push.json";
    let json = STANDARD
        .decode(sample(file)["body_base64"].as_str().unwrap())
        .unwrap();
    let encoded: String = json.iter().map(|byte| format!("%{byte:02X}")).collect();
    let bench = Bench::new();
    bench.send(&Request::of(file)).await;
    // The content type is not signed, so that the body alone tells the form.
    for content_type in ["application/x-www-form-urlencoded", "application/json"] {
        let form = Request::of(file)
            .with("content-type", content_type)
            .with("x-github-delivery", content_type)
            .body(format!("a=1&payload={encoded}&b=2"))
            .signed();
        assert_eq!(bench.send(&form).await.status_code, 202);
    }
    assert_eq!(bench.queue.messages().len(), 3);
    assert_eq!(bench.queue.operations(), 1);
}

#[tokio::test]
async fn a_delivery_without_an_id_is_known_by_its_operation() {
    let bench = Bench::new();
    let request = Request::of("github/push.json").without("x-github-delivery");
    assert_eq!(bench.send(&request).await.status_code, 202);
    let again = bench.send(&request).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
}

#[tokio::test]
async fn a38_a41_a_redelivery_after_days_is_still_a_duplicate() {
    let bench = Bench::new();
    let request = Request::of("github/ping.json");
    let first = bench.send(&request).await;
    for _ in 0..71 {
        bench.clock.advance(std::time::Duration::from_secs(60 * 60));
        let again = bench.cold().send(&request).await;
        assert_eq!(again.body, first.body);
        assert_eq!(again.headers["idempotent-replayed"], "true");
    }
    assert_eq!(bench.queue.messages().len(), 1);
}
