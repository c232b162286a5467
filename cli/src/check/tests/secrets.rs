//! Faults of the senders and of the target's token.

use serde_json::json;

use super::*;

const SECRET: &str = "never-to-be-shown-secret";

fn senders(scheme: &str) -> String {
    json!({ "shop": { "scheme": scheme, "secrets": [SECRET] } }).to_string()
}

/// A Secrets Manager that gives each secret this text.
async fn manager(text: &str) -> stub::Stub {
    let text = text.to_owned();
    stub::service(move |call| match call {
        "GetSecretValue" => Ok(json!({ "SecretString": text })),
        _ => Err("InvalidRequestException"),
    })
    .await
}

#[tokio::test]
async fn n20_senders_are_named_with_the_generation_that_the_log_names() {
    let inline = Run::new().env("SENDERS", &senders("github")).report().await;
    let manager = manager(&senders("github")).await;
    let managed = Run::new()
        .env("SENDERS_SECRET_ARN", "arn:of:senders")
        .env("AWS_ENDPOINT_URL_SECRETS_MANAGER", &manager.url)
        .report()
        .await;
    let generation = webhook::Senders::from_json(&senders("github"), Duration::from_secs(902))
        .unwrap()
        .generation()
        .unwrap();
    for (report, subject) in [(inline, "SENDERS"), (managed, "arn:of:senders")] {
        let found = report.only("senders");
        found.is(Status::Ok, &["shop (github)", &generation]);
        assert_eq!(found.subject.as_deref(), Some(subject));
        assert!(!report.to_text(false).contains(SECRET), "{report:#?}");
    }
}

#[tokio::test]
async fn settings_that_do_not_fit_the_senders_are_a_fault() {
    let twilio = Run::new().env("SENDERS", &senders("twilio"));
    let report = twilio.report().await;
    let fault = report.only("settings");
    fault.is(Status::Fault, &["shop"]);
    assert_eq!(fault.subject.as_deref(), Some("PUBLIC_URL"));
    report.only("senders").is(Status::Ok, &["shop (twilio)"]);

    let report = twilio
        .env("PUBLIC_URL", "https://hooks.example.com")
        .report()
        .await;
    report.only("settings").is(Status::Ok, &[]);

    let both = Run::new()
        .env("SENDERS", &senders("github"))
        .env("SENDERS_SECRET_ARN", "arn:of:senders");
    let report = both.report().await;
    let fault = report.only("settings");
    assert_eq!(fault.subject.as_deref(), Some("SENDERS"), "{fault:?}");
}

#[tokio::test]
async fn senders_that_are_not_well_formed_are_a_fault_that_does_not_tell_the_secret() {
    for (json, part) in [
        (senders("morse"), "morse"),
        (
            json!({ "shop": { "scheme": "standard", "secrets": [SECRET] } }).to_string(),
            "secret 1",
        ),
        (format!("{{\"{SECRET}"), "no JSON"),
        (
            json!({ "a b": { "scheme": "github", "secrets": [SECRET] } }).to_string(),
            "a-z",
        ),
    ] {
        let manager = manager(&json).await;
        let inline = Run::new().env("SENDERS", &json);
        let managed = Run::new()
            .env("SENDERS_SECRET_ARN", "arn:of:senders")
            .env("AWS_ENDPOINT_URL", &manager.url);
        for run in [inline, managed] {
            let report = run.report().await;
            report.only("senders").is(Status::Fault, &[part]);
            assert!(!report.to_text(false).contains(SECRET), "{report:#?}");
        }
    }
}

#[tokio::test]
async fn a_secret_that_can_not_be_read_is_a_fault() {
    for (code, parts) in [
        (
            "AccessDeniedException",
            "grant secretsmanager:GetSecretValue",
        ),
        ("ResourceNotFoundException", "no such secret"),
        ("DecryptionFailure", "DecryptionFailure"),
    ] {
        let manager = stub::service(move |_| Err(code)).await;
        let report = Run::new()
            .env("SENDERS_SECRET_ARN", "arn:of:senders")
            .env("TARGET_TOKEN_SECRET_ARN", "arn:of:token")
            .env("AWS_ENDPOINT_URL_SECRETS_MANAGER", &manager.url)
            .report()
            .await;
        report.only("senders").is(Status::Fault, &[parts]);
        report.only("target-token").is(Status::Fault, &[parts]);
    }
    let binary = stub::service(|_| Ok(json!({ "SecretBinary": "AAAA" }))).await;
    let report = Run::new()
        .env("SENDERS_SECRET_ARN", "arn:of:senders")
        .env("AWS_ENDPOINT_URL_SECRETS_MANAGER", &binary.url)
        .report()
        .await;
    report.only("senders").is(Status::Fault, &["binary"]);
}

#[tokio::test]
async fn a_token_is_read_but_not_shown() {
    for (text, status) in [
        ("a-token-of-the-target\n", Status::Ok),
        ("", Status::Fault),
        ("\n", Status::Fault),
        ("two words", Status::Fault),
        ("a-t\u{f6}ken", Status::Fault),
    ] {
        let manager = manager(text).await;
        let report = Run::new()
            .env("TARGET_TOKEN_SECRET_ARN", "arn:of:token")
            .env("AWS_ENDPOINT_URL_SECRETS_MANAGER", &manager.url)
            .report()
            .await;
        report.only("target-token").is(status, &[]);
        assert!(!report.to_json().contains("a-t"), "{report:#?}");
    }
}

#[tokio::test]
async fn the_workers_own_senders_have_targets_only() {
    let worker = json!({ "shop": { "target": "https://shop.invalid/apply" } }).to_string();
    let mut run = Run::new().env("SENDERS", &worker);
    run.options.limit = Duration::from_secs(2);
    let report = run.report().await;
    report
        .only("senders")
        .is(Status::Skipped, &["targets only"]);
    let target = report.only("target");
    assert_eq!(
        target.subject.as_deref(),
        Some("https://shop.invalid/apply (sender shop)")
    );
}

#[tokio::test]
async fn senders_of_a_file_stand_in_for_those_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("senders.json");
    std::fs::write(&path, senders("token")).unwrap();
    let mut run = Run::new().env("SENDERS_SECRET_ARN", "arn:of:senders");
    run.options.senders = Some(path);
    let report = run.report().await;
    report.only("senders").is(Status::Ok, &["shop (token)"]);

    run.options.senders = Some(folder.path().join("none.json"));
    let error = check(run.options, |_| None, SystemSource)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Senders { .. }), "{error:?}");
    assert_eq!(error.exit_code(), 64);
}
