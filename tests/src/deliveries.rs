//! Sample deliveries: loaded from `tests/events`, signed as their senders do, wrapped in the event
//! that a Function URL makes of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::{Source, SystemSource};
use serde_json::{Value, json};
use webhook::signing::{self, Unsigned};

/// The secret of each scheme's sample sender, which is named like its scheme. They open nothing.
pub const SECRETS: [(&str, &str); 8] = [
    ("github", "github-bench-secret-0123456789"),
    ("gitlab", "gitlab-bench-token-0123456789"),
    ("stripe", "whsec_stripebench0123456789abcdef"),
    ("slack", "8f742231b10e8888abcd99yyyzzz85a5"),
    ("shopify", "shopify-bench-secret-0123456789"),
    (
        "standard",
        "whsec_c3RhbmRhcmQtYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk=",
    ),
    ("twilio", "twilio-bench-token-0123456789abcd"),
    ("token", "token-bench-0123456789abcdef"),
];

/// The address that the sample senders call, without the path.
pub const PUBLIC_URL: &str = "https://hooks.example.com";

/// The sample files.
#[derive(Clone, Debug)]
pub struct Deliveries(Arc<PathBuf>);

impl Default for Deliveries {
    fn default() -> Self {
        Self::new()
    }
}

impl Deliveries {
    /// The files in this package's `events`.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("events"),
        ))
    }

    /// A JSON file, by its path without the ending.
    ///
    /// # Errors
    ///
    /// It is not there or no JSON.
    pub fn json(&self, name: &str) -> anyhow::Result<Value> {
        let path = self.0.join(format!("{name}.json"));
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// A delivery, not signed yet.
    ///
    /// # Errors
    ///
    /// It is not there, or has not a delivery's form.
    pub fn load(&self, name: &str) -> anyhow::Result<Delivery> {
        let file = self.json(name)?;
        let text = |field: &str| {
            let text = file[field]
                .as_str()
                .with_context(|| format!("{name}: no {field}"));
            text.map(str::to_owned)
        };
        let headers = file["headers"].as_object().context("no headers")?;
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
        Ok(Delivery {
            scheme: text("scheme")?,
            method: text("method")?,
            path: text("path")?,
            headers: headers.collect(),
            body: STANDARD.decode(text("body_base64")?)?,
        })
    }

    /// What `index.json` says of a Lambda event.
    ///
    /// # Errors
    ///
    /// It says nothing.
    pub fn returned(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let index = self.json("index")?;
        let file = format!("{name}.json");
        let events = index["lambda"]
            .as_array()
            .context("no lambda in the index")?;
        let entry = events.iter().find(|entry| entry["file"] == file.as_str());
        let returned = entry.and_then(|entry| entry["returned"].as_array());
        let returned = returned.with_context(|| format!("no `returned` for {file}"))?;
        let ids = returned.iter().filter_map(Value::as_str).map(str::to_owned);
        Ok(ids.collect())
    }
}

/// One HTTP request of a sender.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The scheme that signs it.
    pub scheme: String,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The headers, lower case.
    pub headers: BTreeMap<String, String>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Delivery {
    /// Sets a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Leaves a header out.
    #[must_use]
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Changes the JSON body. It is written anew, so that the delivery must be signed after it.
    ///
    /// # Errors
    ///
    /// The body is no JSON.
    pub fn with_changed_body(self, change: impl FnOnce(&mut Value)) -> anyhow::Result<Self> {
        let mut body = serde_json::from_slice(&self.body)?;
        change(&mut body);
        Ok(self.with_body(body.to_string()))
    }

    /// Signs it now with its scheme's sample secret.
    ///
    /// # Errors
    ///
    /// A scheme that nobody knows.
    pub fn signed(self) -> anyhow::Result<Self> {
        let secret = SECRETS.iter().find(|(scheme, _)| *scheme == self.scheme);
        let (_, secret) = secret.with_context(|| format!("no secret for {}", self.scheme))?;
        let header = |name: &str| self.headers.get(name).map(String::as_str);
        let id = signing::id_header(&self.scheme).and_then(header);
        let id = id.or_else(|| header("svix-id"));
        let delivery = Unsigned {
            url: &format!("{PUBLIC_URL}{}", self.path),
            content_type: header("content-type").unwrap_or_default(),
            body: &self.body,
            id: id.unwrap_or_default(),
            at: SystemSource.now(),
        };
        let signed = signing::sign(&self.scheme, secret, &delivery)?;
        let path = signed
            .url
            .strip_prefix(PUBLIC_URL)
            .context("another host")?;
        // A sample may have no id, or one under another name.
        let headers = signed
            .headers
            .into_iter()
            .filter(|(_, value)| !value.is_empty());
        let path = path.to_owned();
        let signed = headers.fold(self, |signed, (name, value)| {
            signed.with_header(name, &value)
        });
        Ok(Self { path, ..signed })
    }

    /// The event, with the body as text; in base64 where it is not UTF-8.
    #[must_use]
    pub fn event(&self) -> Value {
        match std::str::from_utf8(&self.body) {
            Ok(text) => self.event_with(&json!(text), false),
            Err(_) => self.event_base64(),
        }
    }

    /// The event with the body in base64.
    #[must_use]
    pub fn event_base64(&self) -> Value {
        self.event_with(&json!(STANDARD.encode(&self.body)), true)
    }

    fn event_with(&self, body: &Value, base64: bool) -> Value {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": query,
            "headers": self.headers,
            "requestContext": {
                "accountId": "anonymous",
                "apiId": "test",
                "domainName": "test.lambda-url.us-east-1.on.aws",
                "domainPrefix": "test",
                "http": {
                    "method": self.method,
                    "path": path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": "192.0.2.44",
                    "userAgent": "test",
                },
                "requestId": uuid::Uuid::new_v4().to_string(),
                "routeKey": "$default",
                "stage": "$default",
                "time": "12/Nov/2026:10:21:08 +0000",
                "timeEpoch": 1_794_478_868_123_i64,
            },
            "body": body,
            "isBase64Encoded": base64,
        })
    }
}

/// The HTTP answer in a function's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// The headers, lower case.
    pub headers: BTreeMap<String, String>,
    /// The body's text.
    pub body: String,
}

impl HttpAnswer {
    /// Reads a function's response.
    ///
    /// # Errors
    ///
    /// It has not the form of payload format 2.0.
    pub fn read(response: &Value) -> anyhow::Result<Self> {
        let status = response["statusCode"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok());
        let body = response["body"].as_str().unwrap_or_default();
        let body = if response["isBase64Encoded"] == true {
            String::from_utf8(STANDARD.decode(body)?)?
        } else {
            body.to_owned()
        };
        let headers = response["headers"].as_object().into_iter().flatten();
        let headers = headers.map(|(name, value)| {
            (
                name.to_lowercase(),
                value.as_str().unwrap_or_default().to_owned(),
            )
        });
        Ok(Self {
            status: status.with_context(|| format!("no statusCode in {response}"))?,
            headers: headers.collect(),
            body,
        })
    }

    /// A header; empty where there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Whether it is marked as a repeated answer.
    #[must_use]
    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {:?}", self.body))
    }
}
