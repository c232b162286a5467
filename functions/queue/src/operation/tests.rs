use serde_json::json;

use super::*;
use crate::message::read_batch;

mod threads;

fn asked(body: &str) -> Result<Asked, Undecoded> {
    asked_with(body, false)
}

fn asked_with(body: &str, threads: bool) -> Result<Asked, Undecoded> {
    let event = json!({"Records": [{"messageId": "m-1", "body": body}]});
    Asked::decode(&read_batch(event).unwrap().remove(0), threads)
}

/// The only operation of a message.
fn decode(body: &str) -> Result<Operation, Undecoded> {
    asked(body).map(only)
}

fn only(asked: Asked) -> Operation {
    match asked {
        Asked::Operations(mut operations) if operations.len() == 1 => operations.remove(0),
        other => panic!("{other:?}"),
    }
}

fn key_of(key: &str) -> Result<String, &'static str> {
    decode(&format!("{{\"key\":{key}}}"))
        .map(|operation| operation.key.as_str().to_owned())
        .map_err(|error| error.code())
}

#[test]
fn p42_any_json_scalar_is_a_key() {
    assert_eq!(key_of("\"a\""), Ok("queue#a".to_owned()));
    assert_eq!(key_of("\"a#b\""), Ok("queue#a#b".to_owned()));
    assert_eq!(key_of("0"), Ok("queue#[0]".to_owned()));
    assert_eq!(key_of("1.5"), Ok("queue#[1.5]".to_owned()));
    assert_eq!(key_of("-7"), Ok("queue#[-7]".to_owned()));
    assert_eq!(key_of("false"), Ok("queue#[false]".to_owned()));
    assert_eq!(key_of("true"), Ok("queue#[true]".to_owned()));
    for none in ["null", "\"\"", "[]", "[1]", "{}", "\"a\\n\"", "\"\\u0000\""] {
        assert_eq!(key_of(none), Err("bad_key"), "{none}");
    }
}

#[test]
fn p48_scalars_of_different_types_are_different_keys() {
    let texts = [
        "1",
        "\"1\"",
        "1.0",
        "true",
        "\"true\"",
        "\"null\"",
        "\"[1]\"",
        "\"[true]\"",
        "\"[\\\"[1]\\\"]\"",
        "9007199254740993",
        "9007199254740992",
        "18446744073709551617",
        "18446744073709551618",
    ];
    let keys: std::collections::BTreeSet<_> =
        texts.iter().map(|text| key_of(text).unwrap()).collect();
    assert_eq!(keys.len(), texts.len(), "{keys:?}");
}

#[test]
fn a_foreign_message_brings_its_payload_or_itself() {
    let with = decode("{\"key\":\"a\", \"payload\": {\"b\": [1, 2]} }").unwrap();
    assert_eq!(with.body, b"{\"b\": [1, 2]}");
    assert_eq!(with.content_type, "application/json");
    assert_eq!(with.sender, "queue");
    assert_eq!(with.delivery, "m-1");
    assert_eq!(
        with.fingerprint,
        Some(Fingerprint::of_bytes(br#"{"b":[1,2]}"#))
    );
    let without = decode("{\"key\":\"a\",\"n\":1}").unwrap();
    assert_eq!(without.body, b"{\"key\":\"a\",\"n\":1}");
    let null = decode("{\"key\":\"a\",\"payload\":null}").unwrap();
    assert_eq!(null.body, b"null");
}

#[test]
fn an_envelope_is_told_by_its_version() {
    let envelope = |v: &str| {
        format!(
            "{{\"v\":{v},\"key\":\"github#x\",\"sender\":\"github\",\"delivery\":\"d\",\
             \"kind\":\"push\",\"fingerprint\":null,\"content_type\":\"text/plain\",\
             \"headers\":{{\"x-a\":\"b\"}},\"body\":\"hello\"}}"
        )
    };
    let known = decode(&envelope("1")).unwrap();
    assert_eq!(known.key.as_str(), "github#x");
    assert_eq!(known.fingerprint, None);
    assert_eq!(known.body, b"hello");
    assert_eq!(known.content_type, "text/plain");
    assert!(matches!(decode(&envelope("2")), Err(Undecoded::Version(2))));
    assert!(matches!(
        decode("{\"v\":7,\"whatever\":1}"),
        Err(Undecoded::Version(7))
    ));
    // A foreign message may have a `v` of its own that is no version number.
    let foreign = decode(&envelope("\"blue\"")).unwrap();
    assert_eq!(foreign.key.as_str(), "queue#github#x");
    // One that says it is an envelope and isn't is not taken for something else.
    assert_eq!(
        decode("{\"v\":1,\"key\":\"a\"}").unwrap_err().code(),
        "bad_envelope"
    );
}

#[test]
fn a21_what_asks_for_nothing_says_why() {
    for (body, code) in [
        ("", "no_body"),
        (" \n", "no_body"),
        ("not json", "not_an_object"),
        ("[]", "not_an_object"),
        ("null", "not_an_object"),
        ("\"text\"", "not_an_object"),
        ("{\"key\":\"a\"} x", "not_an_object"),
        ("{}", "no_key"),
        ("{\"Records\":[{}]}", "no_key"),
        ("{\"Records\":{}}", "no_key"),
        (
            "{\"Records\":[{\"eventSource\":\"aws:s3\"}]}",
            "bad_s3_record",
        ),
        (
            "{\"Type\":\"SubscriptionConfirmation\",\"MessageId\":\"m\",\"TopicArn\":\"t\"}",
            "sns_subscription",
        ),
    ] {
        assert_eq!(decode(body).unwrap_err().code(), code, "{body}");
    }
}
