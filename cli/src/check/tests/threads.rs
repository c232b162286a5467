//! Faults of the threads server.

use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::*;

const TOOLS: [&str; 4] = [
    "get_thread_context",
    "create_reply",
    "update_reply",
    "update_activity",
];

/// A server with these tools that knows one token.
async fn server(tools: &'static [&'static str]) -> stub::Stub {
    let router = Router::new().fallback(move |request: Request| async move {
        let token = request.headers().get("authorization");
        if token.is_none_or(|token| token != "Bearer the-token") {
            return (StatusCode::UNAUTHORIZED, String::new());
        }
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["method"], "tools/list", "nothing else is asked for");
        let tools: Vec<_> = tools.iter().map(|name| json!({"name": name})).collect();
        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": {"tools": tools}});
        (StatusCode::OK, answer.to_string())
    });
    stub::serve(router).await
}

fn run(url: &str, token: &str) -> Run {
    let mut run = Run::new()
        .env("THREADS_URL", &format!("{url}/mcp?s3cr3t"))
        .env("THREADS_TOKEN", token);
    run.options.limit = Duration::from_secs(2);
    run
}

#[tokio::test]
async fn the_threads_server_is_asked_for_its_tools() {
    let whole = server(&TOOLS).await;
    let report = run(&whole.url, "the-token").report().await;
    report.only("threads").is(Status::Ok, &["has the tools"]);
    let text = report.to_text(false);
    assert!(
        !text.contains("s3cr3t") && !text.contains("the-token"),
        "{text}"
    );
    let partial = server(&TOOLS[..2]).await;
    let report = run(&partial.url, "the-token").report().await;
    let parts = ["update_reply, update_activity"];
    report.only("threads").is(Status::Fault, &parts);
}

#[tokio::test]
async fn a_threads_server_that_refuses_or_is_away_is_told() {
    let server = server(&TOOLS).await;
    let report = run(&server.url, "another").report().await;
    report
        .only("threads")
        .is(Status::Fault, &["401", "THREADS_TOKEN"]);
    let away = run("http://127.0.0.1:1", "the-token").report().await;
    away.only("threads").is(Status::Fault, &["no connection"]);
    let none = Run::new().report().await;
    none.only("threads").is(Status::Skipped, &["THREADS_URL"]);
}
