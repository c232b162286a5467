//! `firstclaim mcp`: lines that are no message, or none that can be read.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::lab::{Lab, until};

const KEY: &str = "thread#teams/platform/website:42:a1b2c3";

fn key() -> Value {
    json!({ "key": KEY })
}

#[test]
fn what_is_no_message_is_survived_and_a_cancelled_wait_stays_silent() {
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &[]);
    agent.get("claim", key(), "claimed");
    let mut other = Agent::start(&lab, &[]);
    for line in [
        "",
        "no JSON",
        "{\"jsonrpc\":\"2.0\",",
        "[]",
        "\u{0}\u{1b}[2J",
    ] {
        other.say(line);
    }
    let waiting = other.begin("wait", json!({ "key": KEY, "seconds": 300 }));
    other.progress(waiting);
    other.cancel(waiting);
    for (tool, wrong) in [
        ("get_claim", json!({})),
        ("get_claim", json!({ "key": 42 })),
        ("get_claim", json!({ "key": "thread#" })),
        ("get_claim", json!({ "key": "thread#a\nb" })),
        ("claim", json!({ "key": KEY, "lease_seconds": 1 })),
        ("claim", json!({ "key": KEY, "lease_seconds": 100_000 })),
        ("wait", json!({ "key": KEY, "seconds": 301 })),
    ] {
        let told = other.get(tool, wrong, "refused");
        assert!(told["problem"].is_string(), "{told:#}");
    }
    agent.get("complete", json!({ "key": KEY, "result": 1 }), "completed");
    other.get("wait", key(), "completed");
    let said = other.messages();
    assert!(!said.iter().any(|message| message["id"] == waiting));
    other.end().with(0);
}

/// Whoever asks gets an answer, also where the question can't be read.
#[test]
fn what_can_not_be_read_is_answered_by_its_id_where_it_has_one() {
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &[]);
    let call = |id: u64, value: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"checkpoint","arguments":{{"key":"k","name":"n","value":{value}}}}}}}"#
        )
    };
    let deep = "[".repeat(200) + &"]".repeat(200);
    for (id, value) in [(101, r#""\ud83d""#), (102, "1e400"), (103, &deep)] {
        agent.say(&call(id, value));
        let answer = agent.answer(id);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let mut bytes = call(104, "\"?\"").into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[at] = 0xff;
    bytes.push(b'\n');
    agent.say_bytes(&bytes);
    assert_eq!(agent.answer(104)["error"]["code"], -32602);
    // A call of another form is no unknown method.
    let id = agent.ask("tools/call", json!({ "name": "claim", "arguments": "str" }));
    let answer = agent.answer(id);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(answer.to_string().contains("`arguments` an object"));
    let id = agent.ask("no/such", json!({}));
    assert_eq!(agent.answer(id)["error"]["code"], -32601);
    // Without an id that can be read; a notification and an answer are never answered.
    agent.say("{\"jsonrpc\":\"2.0\",");
    until("the answer", || {
        let messages = agent.messages();
        let mut found = messages.iter().filter(|one| one["error"]["code"] == -32700);
        found
            .next()
            .map(|one| assert!(one["id"].is_null(), "{one}"))
    });
    agent.say(r#"{"jsonrpc":"2.0","method":"notifications/x","params":"\ud83d"}"#);
    agent.say(r#"{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"\ud83d"}}"#);
    agent.get("get_claim", key(), "absent");
    let errors = agent.messages().into_iter();
    assert_eq!(errors.filter(|one| one["error"].is_object()).count(), 7);
    let ended = agent.end().with(0);
    assert!(ended.stderr.contains("answered with -32700"), "{ended:?}");
    let dropped = ended.stderr.matches("nobody answers was dropped").count();
    assert_eq!(dropped, 2, "{ended:?}");
}

/// What is JSON and no request: an error of its own, with the id where there is one.
#[test]
fn what_is_no_request_is_answered_as_that() {
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &[]);
    agent.say(r#"{"jsonrpc":"2.0","id":201}"#);
    agent.say(r#"{"jsonrpc":"2.0","id":202,"params":{"name":"claim"}}"#);
    for id in [201, 202] {
        let answer = agent.answer(id);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    let long = "x".repeat(16 * 1024 * 1024);
    let odd = r#"{"jsonrpc":"2.0","id":[1],"method":"tools/list"}"#;
    for (count, line) in [(1, "[]"), (2, odd), (3, &long)] {
        agent.say(line);
        until("the answer", || {
            let messages = agent.messages().into_iter();
            let unnamed = messages.filter(|one| {
                let code = &one["error"]["code"];
                *code == -32600 && one["id"].is_null()
            });
            (unnamed.count() == count).then_some(())
        });
    }
    agent.get("get_claim", key(), "absent");
    agent.end().with(0);
}

#[test]
fn a_client_that_speaks_something_else_is_told_on_stderr() {
    let lab = Lab::new();
    let mut agent = Agent::silent(&lab, &[]);
    agent.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    let ended = agent.end().with(64);
    assert!(ended.stderr.contains("did not begin"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty());
    Agent::silent(&lab, &[]).end().with(0);
    lab.run(&["mcp", "--lease", "1s"]).with(64);
}
