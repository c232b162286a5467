use super::*;

fn post(effects: &Effects, key: Option<&str>, attempt: &str) -> Value {
    let mut headers = HeaderMap::new();
    headers.insert(
        "firstclaim-key",
        HeaderValue::from_static("token%23order%201%"),
    );
    headers.insert("firstclaim-attempt", attempt.parse().unwrap());
    if let Some(key) = key {
        headers.insert("idempotency-key", key.parse().unwrap());
    }
    effects.apply(&headers)
}

#[test]
fn a_key_has_one_effect_and_one_answer() {
    let effects = Effects::default();
    assert_eq!(post(&effects, Some("\"aa\""), "1"), json!({"effect": 1}));
    assert_eq!(post(&effects, Some("\"bb\""), "1"), json!({"effect": 2}));
    assert_eq!(post(&effects, Some("\"aa\""), "2"), json!({"effect": 1}));
    let shown = effects.shown();
    assert_eq!(shown["count"], 2);
    assert_eq!(shown["effects"][0]["requests"], 2);
    assert_eq!(shown["effects"][0]["attempt"], "2");
    assert_eq!(shown["effects"][0]["key"], "token#order 1%");
}

#[test]
fn without_a_key_each_request_is_an_effect() {
    let effects = Effects::default();
    assert_eq!(post(&effects, None, "1"), json!({"effect": 1}));
    assert_eq!(post(&effects, None, "1"), json!({"effect": 2}));
}

#[test]
fn only_whole_escapes_are_decoded() {
    assert_eq!(percent_decoded("a%23b%C3%A9%"), "a#b\u{e9}%");
    assert_eq!(percent_decoded("%zz%+1%4"), "%zz%+1%4");
}
