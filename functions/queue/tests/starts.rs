//! The binary starts only with a whole configuration.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use std::process::{Command, Output};

fn start(variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_queue"))
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn a_wrong_environment_is_told_whole_and_ends_the_process() {
    let output = start(&[
        ("CLAIMS_WINDOW", "soon"),
        ("TARGET_URL", "http://target.example/"),
        ("TARGET_TOKEN", "s3cr3t \u{e9}"),
        ("BATCH_CONCURRENCY", "101"),
        ("THREADS_TOKEN", "s3cr3t"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let told = String::from_utf8_lossy(&output.stderr);
    let named: Vec<_> = told
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(
        named,
        [
            "CLAIMS_TABLE",
            "CLAIMS_WINDOW",
            "TARGET_URL",
            "TARGET_TOKEN",
            "BATCH_CONCURRENCY",
            "THREADS_TOKEN",
            "AWS_LAMBDA_RUNTIME_API",
        ],
        "{told}"
    );
    assert!(!told.contains("s3cr3t"), "{told}");
}

#[test]
fn outside_lambda_it_says_so_and_does_not_panic() {
    let output = start(&[
        ("CLAIMS_TABLE", "claims"),
        ("TARGET_URL", "http://127.0.0.1:1/"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.starts_with("AWS_LAMBDA_RUNTIME_API: is not set"),
        "{told}"
    );
    assert!(!told.contains("panicked"), "{told}");
}
