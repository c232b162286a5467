//! Which messages name a thread, and which of them have the same key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

const WEBSITE: &str = "thread:teams/platform/website/42";

fn decode(body: &Value) -> Result<Operation, Undecoded> {
    asked_with(&body.to_string(), true).map(only)
}

fn key_of(body: &Value) -> Result<String, &'static str> {
    decode(body)
        .map(|operation| operation.key.as_str().to_owned())
        .map_err(|error| error.code())
}

fn envelope(key: &str, repo: &str, number: u64) -> Value {
    json!({
        "v": 1, "key": key, "sender": "github", "delivery": "d", "kind": "issues.opened",
        "thread": {"repo": repo, "number": number}, "fingerprint": null, "body": "{}",
    })
}

#[test]
fn a_message_that_names_a_thread_has_a_key_of_it() {
    let of = |more: Value| {
        let mut body = json!({"scopes": ["repo:teams", WEBSITE, 7, WEBSITE]});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        key_of(&body)
    };
    let website = "thread#teams/platform/website:42";
    for (more, revision) in [
        (
            json!({"revision": "a1b2c3", "id": "e", "key": "k"}),
            "a1b2c3",
        ),
        (json!({"revision": 17}), "17"),
        (json!({"revision": "a#b"}), "[\"a#b\"]"),
        (json!({"revision": "[x"}), "[\"[x\"]"),
        (json!({"id": "17", "key": "k"}), "[\"id\",\"17\"]"),
        (json!({"key": "17"}), "[\"key\",\"17\"]"),
        (json!({"key": 17}), "[\"key\",17]"),
        (
            json!({"revision": null, "id": null, "key": "k"}),
            "[\"key\",\"k\"]",
        ),
    ] {
        assert_eq!(of(more), Ok(format!("{website}:{revision}")));
    }
    for wrong in [
        json!({}),
        json!({"revision": ""}),
        json!({"revision": null}),
        json!({"revision": 1.5, "key": "k"}),
        json!({"revision": true}),
        json!({"id": {}}),
        json!({"revision": "x".repeat(256)}),
    ] {
        assert_eq!(of(wrong.clone()), Err("bad_revision"), "{wrong}");
    }
    assert_eq!(of(json!({"revision": "a\nb"})), Err("bad_key"));
    assert_eq!(of(json!({"key": []})), Err("bad_key"));
}

#[test]
fn the_same_event_has_the_same_key_and_two_events_never_share_one() {
    let same = [
        json!({"scopes": [WEBSITE], "revision": 17, "payload": {"a": 1}}),
        json!({"payload": {"a": 1}, "revision": "17", "key": "k", "scopes": ["x", WEBSITE]}),
    ];
    assert_eq!(key_of(&same[0]), key_of(&same[1]));
    let again = envelope("github#[\"x\"]", "o/r", 7);
    assert_eq!(key_of(&again), key_of(&again));
    let different = [
        json!({"scopes": [WEBSITE], "revision": "17"}),
        json!({"scopes": [WEBSITE], "revision": "18"}),
        json!({"scopes": ["thread:teams/platform/website/43"], "revision": "17"}),
        json!({"scopes": ["thread:teams/platform/42"], "revision": "17"}),
        json!({"scopes": ["thread:Teams/platform/website/42"], "revision": "17"}),
        json!({"scopes": [WEBSITE], "id": "17"}),
        json!({"scopes": [WEBSITE], "key": "17"}),
        json!({"scopes": [WEBSITE], "key": 17}),
        json!({"scopes": [WEBSITE], "revision": "[\"id\",\"17\"]"}),
        json!({"scopes": [WEBSITE], "revision": "[\"17\"]"}),
        json!({"scopes": [WEBSITE], "revision": "1:17"}),
        json!({"scopes": [WEBSITE], "revision": "github#1"}),
        json!({"scopes": [WEBSITE], "id": "[\"id\",\"17\"]"}),
        envelope("github#1", "teams/platform/website", 42),
        envelope("github#2", "teams/platform/website", 42),
        envelope("github#1", "teams/platform/website", 4),
        envelope("[\"github#1\"]", "teams/platform/website", 42),
        json!({"key": "thread#teams/platform/website:42:17"}),
    ];
    let keys: BTreeSet<_> = different.iter().map(|body| key_of(body).unwrap()).collect();
    assert_eq!(keys.len(), different.len(), "{keys:#?}");
}

#[test]
fn a_thread_that_can_not_be_is_a_dead_letter() {
    for scopes in [
        json!(["thread:"]),
        json!(["thread:42"]),
        json!(["thread:a/0"]),
        json!(["thread:a b/1"]),
        json!(["thread:a/1", "thread:a/2"]),
    ] {
        let body = json!({"key": "k", "revision": 1, "scopes": scopes});
        assert_eq!(key_of(&body), Err("bad_thread"), "{body}");
    }
    assert_eq!(key_of(&envelope("github#x", "o/r r", 1)), Err("bad_thread"));
    assert_eq!(key_of(&envelope("github#x", "o/r", 0)), Err("bad_thread"));
}

#[test]
fn what_names_no_thread_is_read_as_ever() {
    for scopes in [
        json!([]),
        json!("thread:a/1"),
        json!(null),
        json!(["repo:a"]),
        json!({}),
    ] {
        let body = json!({"key": "k", "scopes": scopes});
        assert_eq!(key_of(&body), Ok("queue#k".to_owned()), "{body}");
    }
    let mut body = envelope("github#x", "o/r", 7);
    body["thread"] = json!(null);
    assert_eq!(key_of(&body), Ok("github#x".to_owned()));
}

#[test]
fn without_a_threads_server_nothing_is_read_of_threads() {
    let off = |body: &Value| asked_with(&body.to_string(), false).map(only);
    let bad = json!({"key": "k", "scopes": ["thread:", WEBSITE]});
    let operation = off(&bad).unwrap();
    assert_eq!(operation.key.as_str(), "queue#k");
    assert_eq!(operation.thread, None);
    let operation = off(&envelope("github#x", "o/r", 7)).unwrap();
    assert_eq!(operation.key.as_str(), "github#x");
    assert_eq!(operation.thread, None);
    assert!(off(&json!({"scopes": [WEBSITE], "revision": 1})).is_err());
}

#[test]
fn a_message_through_a_topic_names_its_thread_too() {
    let message = json!({"scopes": [WEBSITE], "revision": 5, "payload": {"x": 1}}).to_string();
    let body = json!({
        "Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:us-east-1:0:t",
        "Message": message,
    });
    let operation = decode(&body).unwrap();
    assert_eq!(operation.key.as_str(), "thread#teams/platform/website:42:5");
    assert_eq!(operation.body, b"{\"x\":1}");
    assert_eq!(operation.thread.unwrap().number(), 42);
}
