//! The real binary at its start.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::process::{Command, Output};

fn start(variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_webhook"))
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn all_faults_are_told_at_once_and_it_exits_with_1() {
    let secret = "too-short-secret".get(..9).unwrap();
    let senders = format!(
        r#"{{"Hooks":{{"scheme":"github","secrets":["{secret}"]}},
            "shop":{{"scheme":"shopware","secrets":["a-long-enough-secret"]}}}}"#
    );
    let output = start(&[
        ("CLAIMS_WINDOW", "1s"),
        ("MIN_REMAINING", "soon"),
        ("QUEUE_URL", "queue"),
        ("PUBLIC_URL", "hooks.example.com"),
        ("BODY_LIMIT", "7MB"),
        ("SENDERS", &senders),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let lines = lines(&output);
    let starts = [
        "CLAIMS_TABLE: ",
        "QUEUE_URL: ",
        "CLAIMS_WINDOW: ",
        "MIN_REMAINING: ",
        "SENDERS: sender \"Hooks\": a name",
        "SENDERS: sender \"Hooks\": secret 1 has 9 bytes",
        "SENDERS: sender \"shop\": scheme \"shopware\" is not known",
        "BODY_LIMIT: ",
        "PUBLIC_URL: ",
        "AWS_LAMBDA_RUNTIME_API: ",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }
    assert!(!lines.concat().contains(secret));
}

#[test]
fn a44_an_empty_secret_does_not_start() {
    let output = start(&[
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"),
        ("CLAIMS_TABLE", "claims"),
        ("QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/1/queue"),
        ("SENDERS", r#"{"hooks":{"scheme":"github","secrets":[""]}}"#),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        lines(&output),
        ["SENDERS: sender \"hooks\": secret 1 is empty"]
    );
}
