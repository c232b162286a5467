//! When two payloads are one.

use firstclaim::Fingerprint;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::lab::{Lab, START};
use firstclaim::clock::Source;

fn of(text: &str) -> Fingerprint {
    Fingerprint::of_bytes(text.as_bytes())
}

#[test]
fn p45_a9_member_order_and_white_space_do_not_matter_and_bytes_do_when_asked() {
    let one = r#"{"amount": 5, "to": "ada"}"#;
    let other = "\n{\"to\":\"ada\",\t\"amount\":5}";
    assert_eq!(of(one), of(other));
    assert_ne!(
        Fingerprint::of_raw(one.as_bytes()),
        Fingerprint::of_raw(other.as_bytes())
    );
}

#[test]
fn p46_nested_order_does_not_matter_and_array_order_does() {
    let one = r#"{"a":[{"x":1,"y":{"p":1,"q":2}}],"b":2}"#;
    let same = r#"{"b":2,"a":[{"y":{"q":2,"p":1},"x":1}]}"#;
    assert_eq!(of(one), of(same));
    assert_ne!(of("[1,2]"), of("[2,1]"));
}

#[test]
fn p48_types_are_told_apart() {
    for (one, other) in [
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":true}"#, r#"{"a":"true"}"#),
        (r#"{"a":null}"#, r#"{"a":"null"}"#),
        (r#"{"a":""}"#, r#"{"a":null}"#),
        (r#"{"a":null}"#, "{}"),
        ("1", "1.0"),
        ("9007199254740993", "9007199254740992"),
    ] {
        assert_ne!(of(one), of(other), "{one} {other}");
    }
}

#[test]
fn escapes_are_one_text_and_bad_json_is_bytes() {
    assert_eq!(of(r#""\u0041\/""#), of(r#""A/""#));
    assert_eq!(of(r#""\ud83d\ude00""#), of("\"😀\""));
    for text in [
        "{\"a\":1,\"a\":1}",
        "{\"a\":1",
        "not json",
        "\"\\ud800\"",
        "{} {}",
    ] {
        assert_eq!(of(text), Fingerprint::of_raw(text.as_bytes()), "{text}");
    }
    let bytes = [0xff, 0xfe, 0x00];
    assert_eq!(Fingerprint::of_bytes(&bytes), Fingerprint::of_raw(&bytes));
}

#[test]
fn an_object_that_names_a_member_twice_is_not_taken_for_one_that_does_not() {
    assert_ne!(of(r#"{"a":1,"a":2}"#), of(r#"{"a":2}"#));
    assert_ne!(of(r#"{"a":1,"\u0061":2}"#), of(r#"{"a":2}"#));
    // Behind the duplicate the whole payload is bytes, at any depth.
    assert_ne!(
        of(r#"{"b":{"a":1,"a":2},"c":1}"#),
        of(r#"{"c":1,"b":{"a":1,"a":2}}"#)
    );
}

#[test]
fn deep_nesting_ends_nobody() {
    for depth in [100, 127, 128, 129, 100_000] {
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let spaced = format!(" {text}");
        assert_eq!(of(&text) == of(&spaced), depth <= 128, "{depth}");
    }
}

#[test]
fn p55_p60_the_digest_is_a_documented_one() {
    // Golden: SHA-256 of `{"amount":5,"to":"ada"}`.
    assert_eq!(
        of(r#"{"to":"ada", "amount":5}"#).to_hex(),
        "a54de2e4acec043158d0cb93b13576cf5748b1783bf31da41b74630f3169bf35"
    );
    let value = json!({"to": "ada", "amount": 5});
    assert_eq!(Fingerprint::of(&value).unwrap(), of(&value.to_string()));
}

#[test]
fn p59_the_digest_is_read_back_as_it_was_written() {
    let fingerprint = of("{}");
    assert_eq!(
        Fingerprint::from_hex(&fingerprint.to_hex()),
        Some(fingerprint)
    );
    assert_eq!(
        Fingerprint::from_hex(&fingerprint.to_hex().to_uppercase()),
        None
    );
    assert_eq!(Fingerprint::from_hex(""), None);
    assert_eq!(Fingerprint::from_hex(&"0".repeat(63)), None);
}

#[tokio::test]
async fn p59_p60_a_duplicate_with_an_unvalidated_change_replays() {
    use firstclaim::Answer;

    let lab = Lab::new();
    assert_eq!(lab.source.now(), START);
    for (body, wanted) in [
        (
            json!({"to": "ada", "amount": 5, "sent": 1}),
            Answer::Performed(1),
        ),
        (
            json!({"to": "ada", "amount": 5, "sent": 2}),
            Answer::Replayed(1),
        ),
    ] {
        let bound = (&body["to"], &body["amount"]);
        let once = lab.once().fingerprint(Fingerprint::of(&bound).unwrap());
        assert_eq!(lab.answer(once).await, wanted);
    }
}

fn payload() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,4}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Writes JSON with members in reverse order, white space, and every character escaped.
fn awkwardly(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            out.push_str("{ ");
            let mut names: Vec<_> = members.keys().collect();
            names.sort_by(|one, other| other.cmp(one));
            for (at, name) in names.into_iter().enumerate() {
                if at > 0 {
                    out.push_str(" ,\n");
                }
                awkwardly(&Value::from(name.as_str()), out);
                out.push_str(" : ");
                awkwardly(&members[name], out);
            }
            out.push_str("\t}");
        }
        Value::Array(items) => {
            out.push_str("[ ");
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(" , ");
                }
                awkwardly(item, out);
            }
            out.push_str(" ]");
        }
        Value::String(text) => {
            out.push('"');
            for unit in text.encode_utf16() {
                out.push_str(&format!("\\u{unit:04X}"));
            }
            out.push('"');
        }
        other => out.push_str(&other.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn p45_p46_every_way_to_write_one_payload_is_one(value in payload()) {
        let mut text = String::new();
        awkwardly(&value, &mut text);
        prop_assert_eq!(of(&text), of(&value.to_string()));
    }

    #[test]
    fn two_payloads_are_two(one in payload(), other in payload()) {
        prop_assert_eq!(of(&one.to_string()) == of(&other.to_string()), one == other);
    }
}
