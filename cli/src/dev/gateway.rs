//! The gateway: HTTP in, a Function URL's event to the function, its answer out.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::{EpochMillis, Source, SystemSource};
use serde::Deserialize;
use serde_json::{Value, json};

use super::function::{Function, Handler};

/// The longest body that is read, in bytes. More than the 6 MB that the function takes, so that it
/// is the function which refuses a longer one.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The routes that lead to `function`: all of them.
pub(super) fn router<H: Handler>(function: Function<H>) -> Router {
    Router::new().fallback(pass::<H>).with_state(function)
}

async fn pass<H: Handler>(
    State(function): State<Function<H>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "Request Too Long");
    };
    let event = event(&head, &body, caller, SystemSource.now());
    let answer = match function.invoke(event).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "no answer from the webhook"
            );
            return plain(StatusCode::BAD_GATEWAY, "Internal Server Error");
        }
    };
    match response(answer) {
        Ok(response) => response,
        Err(found) => {
            tracing::error!(found, "the webhook's answer is no HTTP answer");
            plain(StatusCode::BAD_GATEWAY, "Internal Server Error")
        }
    }
}

/// The event that a Function URL makes of a request: payload format 2.0.
fn event(head: &Parts, body: &[u8], caller: SocketAddr, now: EpochMillis) -> Value {
    let headers = joined(&head.headers);
    let path = head.uri.path();
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": head.uri.query().unwrap_or_default(),
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "dev",
            "domainName": headers.get("host"),
            "domainPrefix": "dev",
            "http": {
                "method": head.method.as_str(),
                "path": path,
                "protocol": protocol(head.version),
                "sourceIp": caller.ip().to_string(),
                "userAgent": headers.get("user-agent"),
            },
            "requestId": uuid::Uuid::new_v4().to_string(),
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": now.0,
        },
        "isBase64Encoded": false,
    });
    if !body.is_empty() {
        let text = std::str::from_utf8(body).ok();
        let (body, encoded) = match text.filter(|_| is_text(headers.get("content-type"))) {
            Some(text) => (text.to_owned(), false),
            None => (STANDARD.encode(body), true),
        };
        event["body"] = body.into();
        event["isBase64Encoded"] = encoded.into();
    }
    event
}

/// Headers by lower-case name; repeated ones joined with commas.
fn joined(headers: &HeaderMap) -> BTreeMap<&str, String> {
    let mut joined: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        joined
            .entry(name.as_str())
            .and_modify(|all| {
                all.push(',');
                all.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    joined
}

/// Whether a Function URL passes bodies of this content type as text; all others are encoded, forms
/// too.
fn is_text(content_type: Option<&String>) -> bool {
    let Some(content_type) = content_type else {
        return false;
    };
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence.starts_with("text/")
        || matches!(
            essence.as_str(),
            "application/json" | "application/javascript" | "application/xml"
        )
        || (essence.starts_with("application/")
            && (essence.ends_with("+json") || essence.ends_with("+xml")))
}

fn protocol(version: Version) -> &'static str {
    if version == Version::HTTP_10 {
        "HTTP/1.0"
    } else {
        "HTTP/1.1"
    }
}

/// A function's answer in payload format 2.0.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

fn response(answer: Value) -> Result<Response, String> {
    let answer: Answer = serde_json::from_value(answer).map_err(|error| error.to_string())?;
    let body = answer.body.unwrap_or_default();
    let body = if answer.is_base64_encoded {
        STANDARD.decode(body).map_err(|error| error.to_string())?
    } else {
        body.into_bytes()
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status_code).map_err(|error| error.to_string())?;
    for (name, value) in &answer.headers {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests;
