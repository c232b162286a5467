//! A Lambda HTTP event (payload format 2.0) as a request. Any JSON value is one.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::config::Options;
use crate::response::Problem;

/// An HTTP request as the gateway passed it on.
#[derive(Debug)]
pub(crate) struct Request {
    method: String,
    path: String,
    stage: Option<String>,
    query: String,
    /// The address that senders use.
    public_url: Option<String>,
    headers: BTreeMap<String, String>,
    body: Body,
    budget: Budget,
}

/// The body, as far as it could be had.
#[derive(Debug)]
enum Body {
    Bytes(Vec<u8>),
    /// Longer than the limit.
    TooLarge,
    /// Said to be base64 and not so.
    Undecodable,
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// `/webhooks/{name}`
    Webhook(&'a str),
    /// `/operations`
    Operations,
    /// `/operations/{id}`
    Operation(&'a str),
}

impl Request {
    /// Reads an event. What is absent, null or of another type counts as not there, so that any
    /// value whatsoever is a request that can be answered.
    pub(crate) fn read(event: Value, options: &Options) -> Self {
        let Value::Object(mut event) = event else {
            return Self::read(Value::Object(Map::new()), options);
        };
        let context = event.get("requestContext");
        let http = context.and_then(|context| context.get("http"));
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let method = text(http.and_then(|http| http.get("method"))).unwrap_or_default();
        let path = text(event.get("rawPath"))
            .or_else(|| text(http.and_then(|http| http.get("path"))))
            .unwrap_or_default();
        let stage = text(context.and_then(|context| context.get("stage")))
            .filter(|stage| !stage.is_empty() && stage != "$default");
        let query = text(event.get("rawQueryString")).unwrap_or_default();
        let headers = match event.remove("headers") {
            Some(Value::Object(headers)) => read_headers(headers),
            _ => BTreeMap::new(),
        };
        let encoded = event.get("isBase64Encoded").and_then(Value::as_bool) == Some(true);
        let body = match event.remove("body") {
            Some(Value::String(body)) => read_body(body, encoded, options.body_limit),
            _ => Body::Bytes(Vec::new()),
        };
        Self {
            method,
            path,
            stage,
            query,
            public_url: options.public_url.clone(),
            headers,
            body,
            budget: Budget::start(),
        }
    }

    /// The time that it has.
    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// A header's value by its lower-case name; repeated ones arrive joined by commas.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The query as it came, without its question mark.
    pub(crate) fn query(&self) -> &str {
        &self.query
    }

    /// The address that the sender called, as far as `PUBLIC_URL` is configured: what the gateway
    /// says of the host can be forged. A stage in the path is in the address too; it counts once
    /// where `PUBLIC_URL` ends with it.
    pub(crate) fn url(&self) -> Option<String> {
        let base = self.public_url.as_deref()?;
        let staged = self.stage.as_deref().and_then(|stage| {
            base.strip_suffix(stage)?.strip_suffix('/')?;
            self.without_stage()
        });
        let path = staged.unwrap_or(&self.path);
        let mark = if self.query.is_empty() { "" } else { "?" };
        Some(format!("{base}{path}{mark}{}", self.query))
    }

    /// Refuses every method but this one.
    pub(crate) fn check_method(&self, allow: &'static str) -> Result<(), Problem> {
        if self.method == allow {
            Ok(())
        } else {
            Err(Problem::WrongMethod { allow })
        }
    }

    /// Refuses a body over the limit.
    pub(crate) fn check_size(&self) -> Result<(), Problem> {
        match self.body {
            Body::TooLarge => Err(Problem::TooLarge),
            Body::Bytes(_) | Body::Undecodable => Ok(()),
        }
    }

    /// The body's bytes as the sender sent them; `None` if they could not be had.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Bytes(bytes) => Some(bytes),
            Body::TooLarge | Body::Undecodable => None,
        }
    }

    /// Gives the body away.
    pub(crate) fn into_body(self) -> Vec<u8> {
        match self.body {
            Body::Bytes(bytes) => bytes,
            Body::TooLarge | Body::Undecodable => Vec::new(),
        }
    }

    /// Where the request goes. An HTTP API puts a named stage in front of the path; it is taken
    /// off, unless only the path with it leads somewhere (a custom domain has no stage in it).
    pub(crate) fn route(&self) -> Option<Route<'_>> {
        self.without_stage()
            .and_then(route)
            .or_else(|| route(&self.path))
    }

    /// The path behind the stage, if it starts with it.
    fn without_stage(&self) -> Option<&str> {
        let stage = self.stage.as_deref()?;
        self.path.strip_prefix('/')?.strip_prefix(stage)
    }
}

fn route(path: &str) -> Option<Route<'_>> {
    if path == "/operations" {
        return Some(Route::Operations);
    }
    let (start, name) = path.strip_prefix('/')?.split_once('/')?;
    if name.is_empty() || name.contains('/') {
        return None;
    }
    match start {
        "webhooks" => Some(Route::Webhook(name)),
        "operations" => Some(Route::Operation(name)),
        _ => None,
    }
}

fn read_headers(headers: Map<String, Value>) -> BTreeMap<String, String> {
    headers
        .into_iter()
        .filter_map(|(name, value)| match value {
            Value::String(text) => Some((name.to_ascii_lowercase(), text)),
            _ => None,
        })
        .collect()
}

fn read_body(body: String, encoded: bool, limit: usize) -> Body {
    if !encoded {
        if body.len() > limit {
            return Body::TooLarge;
        }
        return Body::Bytes(body.into_bytes());
    }
    // Four characters stand for three bytes, so that this many can't be within the limit.
    if body.len() / 4 > limit / 3 + 1 {
        return Body::TooLarge;
    }
    match STANDARD.decode(body) {
        Ok(bytes) if bytes.len() > limit => Body::TooLarge,
        Ok(bytes) => Body::Bytes(bytes),
        Err(_) => Body::Undecodable,
    }
}
