//! The built-in target: counts each effect once per `Idempotency-Key`, and shows them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

/// The longest body that is read, in bytes: as much as an event may hold.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The effects so far. Clones are the same ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects(Arc<Mutex<Ledger>>);

#[derive(Debug, Default)]
struct Ledger {
    effects: Vec<Effect>,
    by_key: BTreeMap<String, usize>,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Effect {
    /// 1 for the first.
    effect: usize,
    /// `Idempotency-Key`, as given.
    idempotency_key: Option<String>,
    /// `Firstclaim-Key`, decoded.
    key: Option<String>,
    /// `Firstclaim-Attempt` of the last request.
    attempt: Option<String>,
    sender: Option<String>,
    kind: Option<String>,
    /// How many requests came for it: all but the first changed nothing.
    requests: usize,
}

/// A target that keeps its effects in `effects`: `GET` shows them, `POST` makes one.
pub(super) fn router(effects: Effects) -> Router {
    Router::new().fallback(answer).with_state(effects)
}

async fn answer(State(effects): State<Effects>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match head.method {
        Method::GET => json_response(StatusCode::OK, &effects.shown()),
        Method::POST => match to_bytes(body, BODY_LIMIT).await {
            Ok(_) => json_response(StatusCode::OK, &effects.apply(&head.headers)),
            Err(_) => json_response(StatusCode::PAYLOAD_TOO_LARGE, &json!({})),
        },
        _ => {
            let mut response = json_response(StatusCode::METHOD_NOT_ALLOWED, &json!({}));
            let allow = HeaderValue::from_static("GET, POST");
            response.headers_mut().insert(header::ALLOW, allow);
            response
        }
    }
}

impl Effects {
    /// Makes the effect, unless its key was seen before; the answer is the same either way.
    fn apply(&self, headers: &HeaderMap) -> Value {
        let text = |name: &str| {
            let value = headers.get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let idempotency_key = text("idempotency-key");
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = idempotency_key
            .as_ref()
            .and_then(|key| ledger.by_key.get(key).copied());
        let at = known.unwrap_or(ledger.effects.len());
        if known.is_none() {
            ledger.effects.push(Effect {
                effect: at + 1,
                idempotency_key: idempotency_key.clone(),
                key: text("firstclaim-key").map(|key| percent_decoded(&key)),
                attempt: None,
                sender: text("firstclaim-sender"),
                kind: text("firstclaim-kind"),
                requests: 0,
            });
            if let Some(key) = idempotency_key {
                ledger.by_key.insert(key, at);
            }
        }
        let effect = &mut ledger.effects[at];
        effect.requests += 1;
        effect.attempt = text("firstclaim-attempt");
        tracing::info!(
            target: "firstclaim::target",
            effect = effect.effect,
            requests = effect.requests,
            key = effect.key.as_deref(),
            attempt = effect.attempt.as_deref(),
        );
        json!({ "effect": effect.effect })
    }

    fn shown(&self) -> Value {
        let ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "count": ledger.effects.len(), "effects": ledger.effects })
    }
}

fn json_response(status: StatusCode, json: &Value) -> Response {
    let mut response = Response::new(Body::from(format!("{json}\n")));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// `%41` is `A`; what is no such escape stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| first == b'%');
        let byte = escape
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
