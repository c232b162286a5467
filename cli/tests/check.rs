//! `firstclaim check` from outside: what it prints, and how it ends.
#![expect(clippy::unwrap_used, reason = "a failure is the test's failure")]

use std::net::TcpListener;
use std::process::{Command, Output};

use firstclaim_cli::dev::engine::{Engine, Missing, Storage, prepare_table};
use serde_json::Value;

#[test]
fn each_way_to_end_has_its_exit_code() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = runtime.block_on(async {
        let engine = Engine::start(Storage::Memory).await.unwrap();
        let client = engine.client().await;
        prepare_table(&client, "claims", Missing::Create)
            .await
            .unwrap();
        engine
    });
    let endpoint = engine.endpoint();

    let well = check(&["--table", "claims", "--endpoint", &endpoint]);
    assert_eq!(well.status.code(), Some(0), "{well:?}");
    let text = String::from_utf8(well.stdout).unwrap();
    assert!(text.contains("\nok       claim         one won"), "{text}");
    assert!(text.ends_with(" skipped\n"), "{text}");
    assert!(
        !text.contains('\u{1b}'),
        "no colours off a terminal: {text}"
    );

    let faulty = check(&["--table", "other", "--endpoint", &endpoint, "--json"]);
    assert_eq!(faulty.status.code(), Some(1), "{faulty:?}");
    let text = String::from_utf8(faulty.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let table = lines.iter().find(|line| line["check"] == "table").unwrap();
    assert_eq!(table["status"], "fault", "{table}");

    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let closed = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let unreachable = check(&["--table", "claims", "--endpoint", &closed]);
    assert_eq!(unreachable.status.code(), Some(69), "{unreachable:?}");
}

#[test]
fn wrong_arguments_are_a_usage_error() {
    for arguments in [
        &[][..],
        &["--table", "claims", "--endpoint", "localhost"],
        &["--table", "claims", "--limit", "0s"],
        &["--table", "claims", "--limit", "soon"],
        &["--table", "claims", "--senders", "/nowhere/senders.json"],
        &["--tabel", "claims"],
    ] {
        let output = check(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(
            !output.stderr.is_empty() && output.stdout.is_empty(),
            "{arguments:?}"
        );
    }
}

/// Runs the program without the environment of whoever runs the tests.
fn check(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstclaim"))
        .arg("check")
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

/// What the SDK says in several lines is shown in one.
#[test]
fn missing_credentials_are_told_in_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_firstclaim"))
        .args(["check", "--table", "t", "--limit", "5s"])
        .env_clear()
        .env("AWS_REGION", "eu-west-1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("set AWS_REGION and credentials"), "{text}");
    assert!(!text.contains(r"\n"), "{text}");
    // What helps is the advice, not where the SDK has looked.
    let found = "for want of a Region or credentials (no credentials found in chain)";
    assert!(text.contains(found), "{text}");
}
