use serde_json::json;

use super::*;

const STREAM: &str = "https://threads.example.com/events";

fn filter() -> Filter {
    Filter {
        scopes: vec!["thread:teams/platform/website".to_owned()],
        kinds: Vec::new(),
        gaps: vec!["gap".to_owned()],
    }
}

fn at(id: Option<&str>) -> Source<'_> {
    Source {
        stream: STREAM,
        id,
        event: "",
    }
}

fn wanted(id: Option<&str>, data: &str) -> Event {
    match filter().read(at(id), data) {
        Read::Wanted(event) => *event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_event_with_a_key_is_handed_on_as_it_came() {
    let data = r#"{ "key":"thread#teams/platform/website:42:7",
        "scopes": ["thread:teams/platform/website/42"], "kind":"reply.created", "n": 9007199254740993 }"#;
    let event = wanted(Some("9"), data);
    assert_eq!(event.body, data);
    assert_eq!(event.key, "thread#teams/platform/website:42:7");
    assert_eq!(event.delivery, event.key);
    assert_eq!(event.group, "teams/platform/website#42");
    assert_eq!(event.kind, "reply.created");
    assert_eq!(event.scope, "thread:teams/platform/website/42");
}

#[test]
fn a_key_is_made_of_the_thread_and_the_event_s_revision() {
    let data =
        r#"{"scopes":["thread:teams/platform/website/42"],"revision":"7","n":1.50,"key":null}"#;
    let event = wanted(Some("9"), data);
    assert_eq!(event.key, "thread#teams/platform/website:42:7");
    assert_eq!(
        event.body,
        r#"{"key":"thread#teams/platform/website:42:7","n":1.50,"revision":"7","scopes":["thread:teams/platform/website/42"]}"#
    );
    // The same event in another form and under another id, as a restarted server may replay it.
    let again = r#"{"revision":7, "n":1.50, "scopes":["thread:teams/platform/website/42"]}"#;
    assert_eq!(wanted(Some("1009"), again).key, event.key);
}

/// Each pair differs in what makes it another event.
#[test]
fn n1_two_events_never_share_a_key() {
    let thread = |repo: &str, revision: &str| {
        let scope = format!("thread:teams/platform/website/{repo}");
        json!({ "scopes": [scope], "revision": revision }).to_string()
    };
    let bare = json!({ "scopes": ["thread:teams/platform/website"] }).to_string();
    let own = json!({ "scopes": ["thread:teams/platform/website"], "id": "7" }).to_string();
    let two = json!({
        "scopes": ["thread:teams/platform/website/1", "thread:teams/platform/website/2"],
        "revision": 7,
    });
    let odd = json!({ "scopes": ["thread:teams/platform/website/a:1/2"], "revision": 3 });
    let keys = [
        wanted(Some("1"), &thread("1", "7")).key,
        wanted(Some("1"), &thread("1", "8")).key,
        wanted(Some("1"), &thread("2", "7")).key,
        wanted(Some("1"), &thread("a/1", "2:3")).key,
        wanted(Some("2"), &odd.to_string()).key,
        wanted(Some("7"), &bare).key,
        wanted(Some("8"), &bare).key,
        wanted(None, &own).key,
        wanted(Some("9"), &own.replace('7', "9")).key,
        wanted(Some("10"), &two.to_string()).key,
    ];
    let mut different = keys.to_vec();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), keys.len(), "{keys:#?}");
    assert!(matches!(filter().read(at(None), &bare), Read::Broken(_)));
}

#[test]
fn scopes_and_kinds_are_chosen_at_their_borders() {
    let mut filter = filter();
    filter.kinds = vec!["reply.*".to_owned(), "closed".to_owned()];
    let read = |scope: &str, kind: &str| {
        let data = json!({ "key": "k", "scopes": ["agent:1", scope], "kind": kind }).to_string();
        matches!(filter.read(at(Some("1")), &data), Read::Wanted(_))
    };
    for scope in [
        "thread:teams/platform/website",
        "thread:teams/platform/website/42",
    ] {
        assert!(
            read(scope, "reply.created") && read(scope, "closed"),
            "{scope}"
        );
        assert!(!read(scope, "reply") && !read(scope, "closed.again") && !read(scope, ""));
    }
    for other in [
        "thread:teams/platform/website2/42",
        "thread:teams/platform",
        "",
        "xthread:teams",
    ] {
        assert!(!read(other, "closed"), "{other}");
    }
    filter.scopes = vec!["thread:".to_owned()];
    let data = json!({ "key": "k", "scopes": ["thread:a/1"] }).to_string();
    let of_type = Source {
        event: "closed",
        ..at(Some("1"))
    };
    assert!(matches!(filter.read(of_type, &data), Read::Wanted(_)));
}

#[test]
fn what_is_no_event_of_ours_is_passed_and_what_can_not_be_read_is_kept() {
    let read = |id, data: &str| filter().read(at(id), data);
    for other in [
        r#"{}"#,
        r#"{"scopes":null}"#,
        r#"{"scopes":[]}"#,
        r#"{"hello":"you"}"#,
    ] {
        assert_eq!(read(Some("1"), other), Read::Other, "{other}");
    }
    // Without an id it can't be replayed, so it is a notice.
    assert_eq!(read(None, "connected"), Read::Other);
    let ours = r#""scopes":["thread:teams/platform/website/42"]"#;
    for broken in [
        "connected".to_owned(),
        "[1]".to_owned(),
        r#"{"scopes":"thread:teams/platform/website/42"}"#.to_owned(),
        format!(r#"{{"key":{{}},{ours}}}"#),
        format!(r#"{{"key":"",{ours}}}"#),
        format!(r#"{{"key":"a\u0000b",{ours}}}"#),
    ] {
        assert!(
            matches!(read(Some("1"), &broken), Read::Broken(_)),
            "{broken}"
        );
    }
}

#[test]
fn a_gap_is_told_by_type_or_kind() {
    let kind = filter().read(at(Some("1")), r#"{"kind":"gap"}"#);
    assert!(matches!(kind, Read::Gap(_)));
    let source = Source {
        event: "gap",
        ..at(None)
    };
    assert!(matches!(filter().read(source, "from 3 to 9"), Read::Gap(_)));
}

#[test]
fn a_delivery_s_id_can_be_signed_and_stays_apart() {
    let id = |key: Value| {
        let data = json!({ "key": key, "scopes": ["thread:teams/platform/website"] }).to_string();
        wanted(Some("1"), &data).delivery
    };
    assert_eq!(id(json!("thread#a/b:1:2")), "thread#a/b:1:2");
    let digests = [
        id(json!("thread#a/b.rs:1:2")),
        id(json!("thread#a/b.rs:1:3")),
        id(json!(7)),
        id(json!("x".repeat(256))),
        id(json!("sha256-00")),
        id(json!("h\u{e9}llo \"you\"")),
    ];
    for (at, digest) in digests.iter().enumerate() {
        assert!(digest.starts_with(DIGEST) && digest.len() == 71, "{digest}");
        assert!(!digests[..at].contains(digest));
    }
    assert_eq!(id(json!("7")), "7");
}

#[test]
fn what_a_queue_would_refuse_is_escaped() {
    let data =
        "{\"key\":\"k\",\"scopes\":[\"thread:teams/platform/website\"],\"t\":\"\u{ffff}\u{fffe}\"}";
    let event = wanted(Some("1"), data);
    assert!(event.body.contains(r"\uffff\ufffe"), "{}", event.body);
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(value(&event.body), value(data));
}
