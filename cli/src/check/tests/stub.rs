//! A service of AWS that answers each call as the test says, and one that never answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A running stub.
pub(super) struct Stub {
    pub(super) url: String,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A service that gives `answer` the call's name, and answers what comes back: an error's code, or
/// the result.
pub(super) async fn service(
    answer: impl Fn(&str) -> Result<Value, &'static str> + Send + Sync + 'static,
) -> Stub {
    let answer = Arc::new(answer);
    let router = Router::new().fallback(move |request: Request| {
        let answer = Arc::clone(&answer);
        async move {
            match answer(&call(&request)) {
                Ok(body) => response(StatusCode::OK, body.to_string()),
                Err(code) => refused(code),
            }
        }
    });
    serve(router).await
}

/// The service at `endpoint`, with one call denied.
pub(super) async fn without(endpoint: &str, denied: &'static str) -> Stub {
    let endpoint = endpoint.to_owned();
    let http = super::super::target::client(Duration::from_secs(10)).unwrap();
    let router = Router::new().fallback(move |request: Request| {
        let (http, endpoint) = (http.clone(), endpoint.clone());
        async move {
            if call(&request) == denied {
                return refused("AccessDeniedException");
            }
            let (head, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let forwarded = http.post(endpoint).headers(head.headers).body(body);
            let answer = forwarded.send().await.unwrap();
            response(answer.status(), answer.bytes().await.unwrap())
        }
    });
    serve(router).await
}

fn call(request: &Request) -> String {
    let target = request.headers().get("x-amz-target");
    let target = target
        .and_then(|target| target.to_str().ok())
        .unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

fn refused(code: &str) -> Response {
    let body = json!({ "__type": format!("com.amazonaws#{code}"), "message": "so it is" });
    response(StatusCode::BAD_REQUEST, body.to_string())
}

fn response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

/// A server of `router`.
pub(super) async fn serve(router: Router) -> Stub {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    Stub {
        url,
        serving: tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
    }
}

/// A port where connections are taken and nothing is ever said.
pub(super) struct Silent {
    pub(super) address: String,
    _listener: std::net::TcpListener,
}

pub(super) fn silent() -> Silent {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    Silent {
        address: listener.local_addr().unwrap().to_string(),
        _listener: listener,
    }
}

/// A port where nobody listens.
pub(super) fn closed() -> String {
    silent().address
}
