//! What the webhook puts on the queue comes out as it went in.

use std::collections::BTreeMap;

use firstclaim::envelope::{BODY_LIMIT, COMPRESS_OVER, Envelope, EnvelopeError, Thread};
use firstclaim::{Fingerprint, Key};
use proptest::prelude::*;
use serde_json::{Value, json};

fn envelope(body: Vec<u8>) -> Envelope {
    Envelope {
        key: Key::new("github-main", "issue_comment.created:42").unwrap(),
        sender: "github-main".to_owned(),
        scheme: "github".to_owned(),
        delivery: "72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned(),
        kind: "issue_comment.created".to_owned(),
        received_at: "2026-11-12T09:15:00Z".to_owned(),
        fingerprint: None,
        thread: None,
        content_type: "application/json".to_owned(),
        headers: BTreeMap::new(),
        body,
    }
}

fn wire(change: impl FnOnce(&mut Value)) -> Result<Envelope, EnvelopeError> {
    let mut json = serde_json::from_str(&envelope(b"{}".to_vec()).to_json()).unwrap();
    change(&mut json);
    Envelope::from_json(&json.to_string())
}

fn wrong_field(read: Result<Envelope, EnvelopeError>) -> &'static str {
    match read.unwrap_err() {
        EnvelopeError::Field { field, .. } => field,
        other => panic!("{other}"),
    }
}

#[test]
fn bodies_of_every_kind_and_size_come_back_byte_for_byte() {
    for body in [
        Vec::new(),
        b"{\"a\": 1.0}\r\n".to_vec(),
        vec![0xff, 0x00, 0xfe],
        "ключ 🔑 \u{0}".as_bytes().to_vec(),
        vec![b'x'; COMPRESS_OVER],
        vec![b'x'; COMPRESS_OVER + 1],
        vec![0xff; COMPRESS_OVER + 1],
        vec![b'x'; BODY_LIMIT],
    ] {
        let sent = envelope(body);
        let text = sent.to_json();
        let compressed = text.contains("\"encoding\":\"gzip\"");
        assert_eq!(compressed, sent.body.len() > COMPRESS_OVER);
        assert_eq!(Envelope::from_json(&text).unwrap(), sent);
    }
}

#[test]
fn a_version_from_the_future_is_told_before_anything_else() {
    for text in [r#"{"v":2}"#, r#"{"v":2,"key":7,"body":null}"#] {
        let error = Envelope::from_json(text).unwrap_err();
        assert!(matches!(error, EnvelopeError::Version(2)), "{error}");
    }
}

#[test]
fn what_is_no_envelope_is_told_so() {
    for text in [
        "",
        "[]",
        "not json",
        r#"{"key":"a#b"}"#,
        r#"{"v":1}"#,
        r#"{"v":"1"}"#,
    ] {
        let error = Envelope::from_json(text).unwrap_err();
        assert!(matches!(error, EnvelopeError::Shape(_)), "{text}: {error}");
    }
}

#[test]
fn wrong_fields_are_named() {
    assert_eq!(
        wrong_field(wire(|json| json["fingerprint"] = json!("AB"))),
        "fingerprint"
    );
    assert_eq!(
        wrong_field(wire(|json| json["body_base64"] = json!("e30="))),
        "body"
    );
    assert_eq!(wrong_field(wire(|json| json["body"] = Value::Null)), "body");
    let not_base64 = wire(|json| {
        json["body"] = Value::Null;
        json["body_base64"] = json!("%");
    });
    assert_eq!(wrong_field(not_base64), "body_base64");
    assert_eq!(
        wrong_field(wire(|json| json["encoding"] = json!("br"))),
        "encoding"
    );
    assert_eq!(
        wrong_field(wire(|json| json["encoding"] = json!("gzip"))),
        "encoding"
    );
    let key = wire(|json| json["key"] = json!("no separator"));
    assert!(matches!(key.unwrap_err(), EnvelopeError::Key(_)));
}

#[test]
fn a_body_that_unpacks_to_more_than_the_limit_is_refused() {
    let sent = envelope(vec![b'x'; BODY_LIMIT + 1]).to_json();
    assert_eq!(wrong_field(Envelope::from_json(&sent)), "encoding");
}

#[test]
fn unknown_fields_and_absent_optional_ones_are_no_fault() {
    let short = json!({"v": 1, "key": "orders#42", "sender": "shop", "body": "{}", "new": [1]});
    let read = Envelope::from_json(&short.to_string()).unwrap();
    assert_eq!(read.content_type, "application/json");
    assert_eq!((read.fingerprint, read.thread), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_envelope_comes_back_as_it_went(
        id in "[^\\p{Cc}]{1,20}",
        texts in prop::array::uniform5(any::<String>()),
        fingerprint in any::<Option<[u8; 8]>>(),
        thread in any::<Option<(String, u64)>>(),
        headers in prop::collection::btree_map("[a-z-]{1,10}", any::<String>(), 0..4),
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let [scheme, delivery, kind, received_at, content_type] = texts;
        let sent = Envelope {
            key: Key::new("sender", id).unwrap(),
            scheme,
            delivery,
            kind,
            received_at,
            fingerprint: fingerprint.map(|bytes| Fingerprint::of_raw(&bytes)),
            thread: thread.map(|(repo, number)| Thread { repo, number }),
            content_type,
            headers,
            ..envelope(body)
        };
        prop_assert_eq!(Envelope::from_json(&sent.to_json()).unwrap(), sent);
    }
}
