//! Faults of the targets.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;

use super::*;

fn run(target: &str) -> Run {
    let mut run = Run::new().env("TARGET_URL", target);
    run.options.limit = Duration::from_secs(2);
    run
}

/// A target that answers `status`, and the requests that it got.
async fn target(status: StatusCode) -> (stub::Stub, Arc<Mutex<Vec<String>>>) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let router = Router::new().fallback(move |request: Request| {
        let request = format!(
            "{} {} {:?}",
            request.method(),
            request.uri(),
            request.headers()
        );
        seen.lock().unwrap().push(request);
        async move { (status, "") }
    });
    (stub::serve(router).await, requests)
}

#[tokio::test]
async fn a_target_is_asked_once_in_a_way_that_has_no_effect() {
    let (target, requests) = target(StatusCode::METHOD_NOT_ALLOWED).await;
    let report = run(&format!("{}/apply?code=secret-code", target.url))
        .env("TARGET_TOKEN", "a-token-of-the-target")
        .report()
        .await;
    let found = report.only("target");
    found.is(Status::Ok, &["405"]);
    assert!(
        !report.to_text(false).contains("secret-code"),
        "{report:#?}"
    );
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests[0].starts_with("OPTIONS /apply"), "{requests:?}");
    assert!(!requests[0].contains("a-token"), "{requests:?}");
}

#[tokio::test]
async fn what_an_answer_says_is_told() {
    for (status, expected) in [
        (StatusCode::NO_CONTENT, Status::Ok),
        (StatusCode::UNAUTHORIZED, Status::Ok),
        (StatusCode::NOT_FOUND, Status::Ok),
        (StatusCode::PERMANENT_REDIRECT, Status::Warning),
        (StatusCode::BAD_GATEWAY, Status::Warning),
    ] {
        let (target, _) = target(status).await;
        let report = run(&target.url).report().await;
        report.only("target").is(expected, &[status.as_str()]);
    }
}

#[tokio::test]
async fn a_target_that_can_not_be_reached_is_a_fault() {
    let report = run(&format!("http://{}/", stub::closed())).report().await;
    report
        .only("target")
        .is(Status::Fault, &["no connection", "refused"]);

    let report = run("https://no-such-host.invalid/").report().await;
    report.only("target").is(Status::Fault, &["no connection"]);

    let (plain, _) = target(StatusCode::OK).await;
    let report = run(&plain.url.replace("http:", "https:")).report().await;
    report.only("target").is(Status::Fault, &["no connection"]);

    let silent = stub::silent();
    let report = run(&format!("http://{}/", silent.address)).report().await;
    report.only("target").is(Status::Fault, &[]);
}

#[tokio::test]
async fn a_target_that_is_named_and_can_not_be_used_is_not_called_missing() {
    let mut run = Run::new();
    run.options.target_url = Some("http://example.com/".to_owned());
    run.options.limit = Duration::from_secs(2);
    let report = run.report().await;
    report
        .only("target")
        .is(Status::Skipped, &["can't be used"]);
    report.only("settings").is(Status::Fault, &["https"]);
    let report = Run::new().report().await;
    report
        .only("target")
        .is(Status::Skipped, &["there is no --target-url"]);
}
