//! A request as a sender makes it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use webhook::signing::{self, Unsigned};

use super::{now, options, sample, secret, vectors};

/// A request, to be made an event.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: BTreeMap::new(),
            body: Vec::new(),
        }
    }

    /// A recorded delivery with the signature that the sender's own library made for it.
    pub(crate) fn of(file: &str) -> Self {
        let vectors = vectors();
        let all = vectors["vectors"].as_array().unwrap();
        let vector = all.iter().find(|vector| vector["file"] == file).unwrap();
        Self::unsigned(file).with_all(&vector["headers"])
    }

    /// A recorded delivery without its signature.
    pub(crate) fn unsigned(file: &str) -> Self {
        let sample = sample(file);
        let text = |field: &str| sample[field].as_str().unwrap();
        Self {
            method: text("method").to_owned(),
            path: text("path").to_owned(),
            headers: BTreeMap::new(),
            body: STANDARD.decode(text("body_base64")).unwrap(),
        }
        .with_all(&sample["headers"])
    }

    /// A delivery of GitHub, signed.
    pub(crate) fn github(event: &str, delivery: &str, body: &Value) -> Self {
        Self::new("POST", "/webhooks/github")
            .with("x-github-event", event)
            .with("x-github-delivery", delivery)
            .with("content-type", "application/json")
            .body(body.to_string())
            .signed()
    }

    /// An operation of the caller `token`.
    pub(crate) fn operation(key: &str, body: &str) -> Self {
        Self::new("POST", "/operations")
            .with("authorization", &format!("Bearer {}", secret("token")))
            .with("idempotency-key", key)
            .with("content-type", "application/json")
            .body(body)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub(crate) fn with_all(self, headers: &Value) -> Self {
        let headers = headers.as_object().unwrap();
        headers.iter().fold(self, |request, (name, value)| {
            request.with(name, value.as_str().unwrap())
        })
    }

    /// To this path, or whole address.
    pub(crate) fn to(mut self, address: &str) -> Self {
        let public_url = options().public_url.unwrap();
        let path = address.strip_prefix(&public_url).unwrap_or(address);
        path.clone_into(&mut self.path);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Signs the body as GitHub does.
    pub(crate) fn signed(self) -> Self {
        let mac = mac(secret("github").as_bytes(), &[&self.body]);
        self.with(
            "x-hub-signature-256",
            &format!("sha256={}", hex::encode(mac)),
        )
    }

    /// Signs with the sample secret of a scheme, now by the samples' clock.
    pub(crate) fn signed_by(self, scheme: &str) -> Self {
        self.signed_at(scheme, &secret(scheme), now())
    }

    /// Signs as the sender of a scheme does; the id is the one that it has already.
    pub(crate) fn signed_at(self, scheme: &str, secret: &str, at: EpochMillis) -> Self {
        let header = |name: &str| self.headers.get(name).map_or("", String::as_str);
        let public_url = options().public_url.unwrap();
        let delivery = Unsigned {
            url: &format!("{public_url}{}", self.path),
            content_type: header("content-type"),
            body: &self.body,
            id: signing::id_header(scheme).map_or("", header),
            at,
        };
        let signed = signing::sign(scheme, secret, &delivery).unwrap();
        let request = self.to(&signed.url);
        let headers = signed.headers.into_iter();
        // Where there was no id, none is made.
        let headers = headers.filter(|(_, value)| !value.is_empty());
        headers.fold(request, |request, (name, value)| request.with(name, &value))
    }

    /// Signs as Standard Webhooks do.
    pub(crate) fn signed_standard(self, id: &str, timestamp: &str) -> Self {
        let key = STANDARD
            .decode(secret("standard").trim_start_matches("whsec_"))
            .unwrap();
        let parts: [&[u8]; 5] = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &self.body];
        let signature = format!("v1,{}", STANDARD.encode(mac(&key, &parts)));
        self.with("webhook-id", id)
            .with("webhook-timestamp", timestamp)
            .with("webhook-signature", &signature)
    }

    /// The status of the answer if its event is accepted: to Slack's forms, which are commands and
    /// interactions, nothing is said.
    pub(crate) fn accepted(&self) -> u16 {
        let slack = self.headers.contains_key("x-slack-signature");
        let form = serde_json::from_slice::<Value>(&self.body).is_err();
        if slack && form { 200 } else { 202 }
    }

    /// The event as a Function URL makes it; a body that is not UTF-8 arrives as base64.
    pub(crate) fn event(&self) -> Value {
        let (body, encoded) = match std::str::from_utf8(&self.body) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (STANDARD.encode(&self.body), true),
        };
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": query,
            "headers": self.headers,
            "requestContext": {
                "http": {"method": self.method, "path": path},
                "stage": "$default",
            },
            "body": body,
            "isBase64Encoded": encoded,
        })
    }
}

pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}
