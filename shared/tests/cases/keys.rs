//! What makes a key, and what it keeps apart.

use std::collections::HashSet;

use firstclaim::{Answer, Key, KeyError};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::lab::{LEASE, Lab};

async fn runs(keys: &[Key]) -> usize {
    let lab = Lab::new();
    for key in keys {
        let once = lab.process().once(key.clone()).lease(LEASE);
        lab.answer(once).await;
    }
    lab.effects()
}

fn key(scope: &str, id: &str) -> Key {
    Key::new(scope, id).unwrap()
}

fn joined(parts: &[Value]) -> Key {
    Key::join("orders", parts).unwrap()
}

#[tokio::test]
async fn p31_the_scope_keeps_two_functions_on_one_table_apart() {
    assert_eq!(
        runs(&[key("billing", "42"), key("shipping", "42")]).await,
        2
    );
}

#[tokio::test]
async fn p32_p36_two_operations_of_one_process_do_not_share_a_record() {
    let lab = Lab::new();
    let claims = lab.process();
    for key in [
        key("orders", "42"),
        Key::join("refunds", &["42".into(), 7.into()]).unwrap(),
        key("orders", "42"),
    ] {
        lab.answer(claims.once(key).lease(LEASE)).await;
    }
    assert_eq!((lab.effects(), lab.memory.records().len()), (2, 2));
}

#[tokio::test]
async fn p33_operations_of_one_short_name_are_told_apart_by_their_qualified_scope() {
    let keys = [
        key("billing.Invoice.send", "42"),
        key("mail.Invoice.send", "42"),
    ];
    assert_eq!(runs(&keys).await, 2);
}

#[tokio::test]
async fn p35_equal_calls_in_one_process_make_equal_keys() {
    let lab = Lab::new();
    let claims = lab.process();
    for _ in 0..3 {
        lab.answer(claims.once(key("orders", "42")).lease(LEASE))
            .await;
    }
    assert_eq!(
        (lab.effects(), lab.record().id),
        (1, "orders#42".to_owned())
    );
}

#[test]
fn p37_a8_no_id_is_no_key() {
    assert_eq!(Key::new("orders", ""), Err(KeyError::EmptyId));
    assert_eq!(Key::join("orders", &[]), Err(KeyError::EmptyId));
    assert_eq!(
        Key::join("orders", &[Value::Null]),
        Err(KeyError::MissingPart(0))
    );
    assert_eq!(Key::new("", "42"), Err(KeyError::EmptyScope));
    assert_eq!(Key::parse("order-42"), Err(KeyError::NoScope));
}

#[tokio::test]
async fn p40_a_key_of_two_parts_is_accepted() {
    assert_eq!(runs(&[joined(&["ada".into(), 5.into()])]).await, 1);
}

#[test]
fn p41_a_partly_missing_key_is_refused() {
    for missing in [
        json!(null),
        json!(""),
        json!([null, null]),
        json!({"a": {"b": ""}}),
    ] {
        let parts = [json!("ada"), missing];
        assert_eq!(Key::join("orders", &parts), Err(KeyError::MissingPart(1)));
    }
    let whole = [json!("ada"), json!([0, {"a": false}])];
    assert!(Key::join("orders", &whole).is_ok());
}

#[test]
fn p42_p43_p44_every_scalar_is_a_part_falsy_ones_too() {
    let parts = [
        json!(0),
        json!(1),
        json!(false),
        json!(true),
        json!(1.5),
        json!(-1),
        json!("0"),
        json!([]),
        json!({}),
        json!(u64::MAX),
        json!(i64::MIN),
    ];
    let keys: HashSet<_> = parts
        .iter()
        .map(|part| joined(std::slice::from_ref(part)))
        .collect();
    assert_eq!(keys.len(), parts.len());
}

#[test]
fn p48_a_part_keeps_its_type() {
    for (one, other) in [
        (json!(1), json!("1")),
        (json!(true), json!("true")),
        (json!([1]), json!("[1]")),
        (json!({}), json!("{}")),
    ] {
        assert_ne!(joined(&[one]), joined(&[other]));
    }
    assert!(Key::join("orders", &[Value::Null]).is_err());
    assert!(Key::join("orders", &["null".into()]).is_ok());
}

#[test]
fn p49_a_key_is_made_of_a_types_own_json_form() {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Channel {
        PartnerPortal,
    }
    struct Id(uuid::Uuid);
    impl Serialize for Id {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&self.0)
        }
    }
    #[derive(Serialize)]
    struct Parts(Id, Channel, std::net::Ipv4Addr, u128);

    let parts = Parts(
        Id(uuid::Uuid::nil()),
        Channel::PartnerPortal,
        std::net::Ipv4Addr::LOCALHOST,
        12,
    );
    let Value::Array(parts) = serde_json::to_value(parts).unwrap() else {
        panic!("a tuple is an array");
    };
    assert_eq!(
        joined(&parts).as_str(),
        r#"orders#["00000000-0000-0000-0000-000000000000","partner_portal","127.0.0.1",12]"#
    );
}

#[test]
fn p50_p51_p55_keys_are_what_the_caller_says_and_nothing_else() {
    // Golden: a change here runs every operation of a deployed table again.
    assert_eq!(key("orders", "42").stored(), "orders#42");
    assert_eq!(
        joined(&["a#b".into(), 7.into(), 1.5.into()]).stored(),
        r#"orders#["a#b",7,1.5]"#
    );
    assert_eq!(
        key("accept.github-main", "a-1").stored(),
        "accept.github-main#a-1"
    );
    let long = key("orders", &"x".repeat(2000));
    let digest = hex::encode(Sha256::digest(long.as_str().as_bytes()));
    let stored = long.stored();
    assert_eq!(stored.len(), 1024);
    assert!(stored.starts_with("orders#xxx"));
    assert!(stored.ends_with(&format!("\u{1f}{digest}")), "{stored}");
}

#[tokio::test]
async fn p56_a_qualifier_in_the_scope_keeps_two_versions_apart_and_nothing_else_does() {
    assert_eq!(
        runs(&[key("orders.blue", "42"), key("orders.green", "42")]).await,
        2
    );
    assert_eq!(runs(&[key("orders", "42"), key("orders", "42")]).await, 1);
}

#[test]
fn p84_a_missing_key_is_not_a_store_error() {
    let error = Key::join("orders", &[json!(0), Value::Null]).unwrap_err();
    assert!(error.to_string().starts_with("part 1 of the key is null"));
}

#[test]
fn a_scope_can_not_be_forged_by_an_id() {
    assert_eq!(Key::new("orders#42", "7"), Err(KeyError::Separator));
    let key = Key::parse("orders#42#7").unwrap();
    assert_eq!((key.scope(), key.id()), ("orders", "42#7"));
}

#[test]
fn control_characters_are_refused_where_they_stand() {
    let refused = Key::new("orders", "ab\u{1f}c").unwrap_err();
    assert_eq!(refused, KeyError::Control { code: 0x1f, at: 2 });
    assert!(Key::new("or\nders", "42").is_err());
    assert!(Key::new("orders", "\u{85}").is_err());
    assert!(Key::new("orders", "ключ 🔑").is_ok());
}

#[tokio::test]
async fn n37_keys_of_every_form_are_released_and_claimed_again() {
    use firstclaim::Failure;

    use crate::lab::{broken, operation_failure};

    for id in ["\"quoted\"", "bare", "a#b:c", "#", &"ö".repeat(3000)] {
        let lab = Lab::new();
        let key = key("orders", id);
        let failed = lab
            .process()
            .once(key.clone())
            .lease(LEASE)
            .run(|_work| async {
                Err::<usize, _>(Failure::did_not_happen("busy", broken("not now")))
            });
        operation_failure(failed.await);
        let again = lab.process().once(key).lease(LEASE);
        assert_eq!(lab.answer(again).await, Answer::Performed(1), "{id}");
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no others", |number| number.is_finite())
            .prop_map(Value::from),
        "[a-c\",\\[\\]#0-9]{1,4}".prop_map(Value::from),
    ]
}

/// Whether two lists of parts are the same. 0.0 and -0.0 are equal as numbers, and two parts all the
/// same: when in doubt, two operations are two.
fn same(one: &[Value], other: &[Value]) -> bool {
    let text = |part: &Value| part.to_string();
    let alike = |(one, other): (&Value, &Value)| text(one) == text(other);
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

proptest! {
    #[test]
    fn joined_parts_are_told_apart(
        one in prop::collection::vec(scalar(), 1..4),
        other in prop::collection::vec(scalar(), 1..4),
    ) {
        prop_assert_eq!(joined(&one) == joined(&other), same(&one, &other));
    }

    #[test]
    fn parsing_gives_back_the_key(scope in "[a-z.-]{1,20}", id in "[^\\p{Cc}]{1,40}") {
        let key = Key::new(scope.clone(), &id).unwrap();
        prop_assert_eq!(Key::parse(key.as_str()).unwrap(), key.clone());
        prop_assert_eq!((key.scope(), key.id()), (scope.as_str(), id.as_str()));
    }

    #[test]
    fn long_keys_stay_distinct_readable_and_short(
        start in "[^\\p{Cc}]{1,8}",
        one in "[a-z ]{900,1200}",
        other in "[a-zä-ö]{900,1200}",
    ) {
        let one = key("orders", &format!("{start}{one}"));
        let other = key("orders", &format!("{start}{other}"));
        for key in [&one, &other] {
            let prefix = format!("orders#{start}");
            prop_assert!(key.stored().len() <= 1024);
            prop_assert!(key.stored().starts_with(&prefix));
        }
        prop_assert_eq!(one.stored() == other.stored(), one == other);
    }
}

#[test]
fn a_key_is_read_back_as_it_was_written_and_nothing_else_is_one() {
    for key in [
        Key::new("orders", "order-42").unwrap(),
        Key::new("accept.github", "a#b#c").unwrap(),
        Key::new("orders", "\"quoted\" \\ имя").unwrap(),
        Key::new("orders", "x".repeat(5000)).unwrap(),
        Key::join("orders", &["ab".into(), 1.into()]).unwrap(),
    ] {
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<Key>(&json).unwrap(), key);
        let value = serde_json::to_value(&key).unwrap();
        assert_eq!(serde_json::from_value::<Key>(value).unwrap(), key);
        let read: Key = key.to_string().parse().unwrap();
        assert_eq!((read.scope(), read.id()), (key.scope(), key.id()));
        assert_eq!(read.stored(), key.stored());
    }
    for text in [
        "",
        "orders",
        "#id",
        "orders#",
        "orders#a\nb",
        "orders#a\u{1f}b",
    ] {
        let json = serde_json::to_string(text).unwrap();
        let error = serde_json::from_str::<Key>(&json).unwrap_err();
        let told = text.parse::<Key>().unwrap_err();
        assert!(error.to_string().starts_with(&told.to_string()), "{error}");
    }
    assert!(serde_json::from_str::<Key>("7").is_err());
}
