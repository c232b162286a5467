//! `operation_key` rules, and requests without a key.

use serde_json::{Value, json};

use crate::bench::{Bench, Request, problem, secret};

fn with_rule(rule: &str) -> Bench {
    let mut senders = Bench::senders();
    for name in ["github", "standard", "token"] {
        senders[name]["operation_key"] = json!(rule);
    }
    Bench::with_senders(&senders)
}

/// The operation id that a rule finds for a body; `None` if there is no key.
async fn found(rule: &str, body: &Value) -> Option<String> {
    let bench = with_rule(rule);
    let request = Request::operation("", &body.to_string()).without("idempotency-key");
    let response = bench.send(&request).await;
    if response.status_code == 400 {
        assert_eq!(problem(&response), "missing-key");
        return None;
    }
    assert_eq!(response.status_code, 202, "{}", response.body);
    Some(bench.queue.keys()[0].id().to_owned())
}

/// A limit of what GitHub's bodies say, and the way around it.
#[tokio::test]
async fn a_change_that_comes_again_within_a_second_is_one_operation_unless_each_delivery_is() {
    let body = |action: &str| {
        json!({
            "action": action, "label": {"id": 5}, "repository": {"id": 1, "full_name": "o/r"},
            "issue": {"id": 9, "number": 4, "updated_at": "2026-11-12T09:52:30Z"},
        })
    };
    let deliveries = [("1", "labeled"), ("2", "unlabeled"), ("3", "labeled")];
    for (bench, operations) in [(Bench::new(), 2), (with_rule("`null`"), 3)] {
        for (id, action) in deliveries {
            let request = Request::github("issues", id, &body(action));
            assert_eq!(bench.send(&request).await.status_code, 202);
        }
        assert_eq!(bench.queue.messages().len(), 3);
        assert_eq!(bench.queue.operations(), operations);
    }
}

#[tokio::test]
async fn p48_ids_keep_their_types_and_borders() {
    let body = json!({
        "one": 1, "text_one": "1", "bracket": "[1]", "yes": true, "text_yes": "true",
        "null": null, "text_null": "null", "empty": "", "ab": "ab", "c": "c", "a": "a", "bc": "bc",
        "zero": 0, "no": false, "half": 1.5, "long": 9_007_199_254_740_993_u64,
        "near": 9_007_199_254_740_992_u64, "zeros": "0000000", "text_zero": "0",
    });
    let body: Value = serde_json::from_str(&body.to_string().replacen(
        '{',
        "{\"rounded\":18446744073709551617,\"exact\":18446744073709551615,",
        1,
    ))
    .unwrap();
    let rules = [
        ("rounded", None),
        ("exact", Some("[18446744073709551615]")),
        ("{a: a, c: c}", Some("[{\"a\":\"a\",\"c\":\"c\"}]")),
        ("{a: a, n: null}", None),
        ("one", Some("[1]")),
        ("text_one", Some("1")),
        ("bracket", Some("[\"[1]\"]")),
        ("yes", Some("[true]")),
        ("text_yes", Some("true")),
        ("null", None),
        ("absent", None),
        ("text_null", Some("null")),
        ("empty", None),
        ("zeros", None),
        ("text_zero", Some("0")),
        ("zero", Some("[0]")),
        ("no", Some("[false]")),
        ("half", Some("[1.5]")),
        ("long", Some("[9007199254740993]")),
        ("near", Some("[9007199254740992]")),
        ("[ab, c]", Some("[\"ab\",\"c\"]")),
        ("[a, bc]", Some("[\"a\",\"bc\"]")),
        ("[one]", Some("[1]")),
        ("[text_one]", Some("[\"1\"]")),
        ("[ab, null]", None),
        ("[ab, empty]", None),
        ("[ab, zeros]", None),
        ("[absent, absent]", None),
        ("list[*].id", None),
    ];
    for (rule, id) in rules {
        assert_eq!(found(rule, &body).await.as_deref(), id, "{rule}");
    }
}

#[tokio::test]
async fn p37_n5_without_a_key_nothing_is_made_one() {
    let bench = Bench::new();
    let authorization = format!("Bearer {}", secret("token"));
    for path in ["/operations", "/webhooks/token"] {
        for _ in 0..2 {
            let request = Request::new("POST", path).with("authorization", &authorization);
            let response = bench.send(&request).await;
            assert_eq!(response.status_code, 400);
            assert_eq!(problem(&response), "missing-key");
        }
    }
    assert_eq!(bench.store.calls(), 0);
    assert!(bench.queue.messages().is_empty());
}

#[tokio::test]
async fn n3_a_rule_that_misses_falls_back_to_the_delivery() {
    let bench = with_rule("head_commit.no_such_field");
    let request = Request::of("github/push.json");
    let first = bench.send(&request).await;
    let again = bench.cold().send(&request).await;
    assert_eq!(again.body, first.body);
    assert_eq!(bench.queue.messages().len(), 1);
    let key = bench.queue.keys().remove(0);
    assert!(
        key.id()
            .starts_with("[\"9541d743-7ab7-4aef-a5c2-374338f8e904\",\""),
        "{key}"
    );
}

#[tokio::test]
async fn n10_a_rules_text_is_the_key_that_other_triggers_can_name() {
    let bench = with_rule("data.id");
    let now = crate::bench::vectors()["now"].to_string();
    let request = Request::unsigned("standard/user.created.json")
        .body(r#"{"type":"user.created","data":{"id":"user-42"}}"#)
        .signed_standard("msg_1", &now);
    bench.send(&request).await;
    assert_eq!(bench.queue.keys()[0].as_str(), "standard#user-42");
}

#[tokio::test]
async fn n1_a_rule_overrides_the_schemes_own_key() {
    let bench = with_rule("[data.id, version]");
    let now = crate::bench::vectors()["now"].to_string();
    for (delivery, version) in [("msg_1", 1), ("msg_2", 1), ("msg_3", 2)] {
        let body = json!({"data": {"id": 7}, "version": version}).to_string();
        let request = Request::unsigned("standard/user.created.json")
            .body(body)
            .signed_standard(delivery, &now);
        bench.send(&request).await;
    }
    assert_eq!(bench.queue.messages().len(), 3);
    assert_eq!(bench.queue.operations(), 2);
}

#[tokio::test]
async fn a_rule_reads_the_json_in_a_form() {
    let bench = with_rule("ref");
    bench.send(&Request::of("github/push.form.json")).await;
    assert_eq!(bench.queue.keys()[0].as_str(), "github#refs/heads/windows");
}

#[tokio::test]
async fn a_rule_that_errs_on_an_event_falls_back() {
    let bench = with_rule("join('-', commits)");
    let response = bench.send(&Request::of("github/push.json")).await;
    assert_eq!(response.status_code, 202);
    assert!(bench.queue.keys()[0].id().starts_with("[\"9541d743"));
}

#[tokio::test]
async fn an_id_with_a_control_character_falls_back() {
    let bench = with_rule("name");
    let request = Request::operation("chosen", "{\"name\":\"a\u{7f}b\"}");
    assert_eq!(bench.send(&request).await.status_code, 202);
    assert_eq!(bench.queue.keys()[0].as_str(), "token#chosen");
}
