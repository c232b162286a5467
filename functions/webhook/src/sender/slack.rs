//! Scheme `slack`: Slack's Events API, slash commands and interactions.

use firstclaim::clock::EpochMillis;
use firstclaim::key;
use serde::de::IgnoredAny;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::event::{Delivery, Event, MalformedKey, Operation, UNKNOWN_KIND, caller_key, word};
use super::form::Form;
use super::secret::{MacKeys, Secret, lower_hex, mac};
use super::{Acknowledgement, Scheme, Unverified, stamp};
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// The longest body that is looked at for a probe, in bytes; Slack's have about 130.
const PROBE_LIMIT: usize = 4096;

/// The longest challenge that is sent back, in bytes; Slack's have about 50.
const CHALLENGE_LIMIT: usize = 512;

/// A sender that signs time stamp and body.
#[derive(Debug)]
pub(crate) struct Slack(MacKeys);

impl Scheme for Slack {
    const NAME: &'static str = "slack";
    const PASSED_ON: &'static [&'static str] = &["x-slack-retry-num", "x-slack-retry-reason"];
    const ID_HEADER: Option<&'static str> = None;

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        MacKeys::of_texts(secrets).map(Self)
    }

    fn verify(&self, request: &Request, body: &[u8], now: EpochMillis) -> Result<(), Unverified> {
        let header = |name| request.header(name).ok_or(Unverified::NoSignature);
        let signature = header("x-slack-signature")?;
        let timestamp = header(TIMESTAMP)?;
        let given = signature
            .strip_prefix("v0=")
            .and_then(lower_hex)
            .ok_or(Unverified::Malformed)?;
        stamp::check(timestamp, now)?;
        if self
            .0
            .made(&[b"v0:", timestamp.as_bytes(), b":", body], &[given])
        {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let Said { kind, id, document } = Said::read(body);
        let (delivery, operation) = match id {
            Some(id) => {
                let key = caller_key(&id)?;
                (Delivery { key, id }, Operation::Delivery)
            }
            // Few requests have no id (`view_closed`, `app_rate_limited`). Slack's signature covers
            // the second in which it sent them.
            None => {
                let timestamp = request.header(TIMESTAMP).unwrap_or_default();
                let digest = hex::encode(Sha256::digest(body));
                let key = key::join(&[timestamp.into(), digest.as_str().into()])?;
                (Delivery { key, id: digest }, Operation::Unnamed)
            }
        };
        Ok(Event {
            delivery: Some(delivery),
            kind,
            operation,
            thread: None,
            document,
            withheld: &[],
        })
    }

    /// Slack asks whether the address is ours before it sends events to it, and from time to time
    /// whether its certificate is good.
    fn probed(&self, body: &[u8]) -> Option<String> {
        if body.len() > PROBE_LIMIT {
            return None;
        }
        if let Ok(document) = serde_json::from_slice::<Value>(body) {
            if document.get("type")?.as_str()? != "url_verification" {
                return None;
            }
            let challenge = document.get("challenge")?.as_str()?;
            let fits = (1..=CHALLENGE_LIMIT).contains(&challenge.len());
            let plain = challenge.bytes().all(|byte| byte.is_ascii_graphic());
            return (fits && plain).then(|| challenge.to_owned());
        }
        (Form::read(body)?.text("ssl_check")? == "1").then(String::new)
    }

    /// Events are JSON, and any 2xx will do. To a command and an interaction, both forms, the body is
    /// what a person is shown, and a dialog takes one that it does not know for an error; Slack wants
    /// 200 and nothing where there is nothing to say.
    fn acknowledgement(&self, body: &[u8]) -> Acknowledgement {
        match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Acknowledgement::Queued,
            Err(_) => Acknowledgement::Empty,
        }
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        let timestamp = delivery.at.seconds().0.to_string();
        let parts: [&[u8]; 4] = [b"v0:", timestamp.as_bytes(), b":", delivery.body];
        let digest = hex::encode(mac(secret.as_bytes(), &parts)?);
        Ok(vec![
            (TIMESTAMP, timestamp),
            ("x-slack-signature", format!("v0={digest}")),
        ])
    }
}

const TIMESTAMP: &str = "x-slack-request-timestamp";

/// What a body says: events are JSON, commands a form, interactions JSON in a form.
struct Said {
    kind: String,
    /// What a retry repeats: an event's id, or what a person set off.
    id: Option<String>,
    document: Option<Value>,
}

impl Said {
    fn read(body: &[u8]) -> Self {
        if let Ok(document) = serde_json::from_slice(body) {
            return Self::event(document);
        }
        let Some(form) = Form::read(body) else {
            return Self::unknown(None);
        };
        let payload = form.bytes("payload");
        if let Some(document) = payload.and_then(|json| serde_json::from_slice(json).ok()) {
            return Self::interaction(document);
        }
        let document = Some(form.document());
        match (form.text("command"), form.text("trigger_id")) {
            (Some(_), Some(id)) if !id.is_empty() => Self {
                kind: "slash_command".to_owned(),
                id: Some(id.to_owned()),
                document,
            },
            _ => Self::unknown(document),
        }
    }

    fn event(document: Value) -> Self {
        let kind = document
            .pointer("/type")
            .and_then(Value::as_str)
            .and_then(word);
        match kind {
            Some("event_callback") => {
                let id = text(&document, "/event_id");
                let about = document.pointer("/event/type").and_then(Value::as_str);
                match about.and_then(word) {
                    Some(about) if id.is_some() => Self {
                        kind: format!("event_callback.{about}"),
                        id,
                        document: Some(document),
                    },
                    _ => Self {
                        id,
                        ..Self::unknown(Some(document))
                    },
                }
            }
            Some(kind) => Self {
                kind: kind.to_owned(),
                id: None,
                document: Some(document),
            },
            None => Self::unknown(Some(document)),
        }
    }

    fn interaction(document: Value) -> Self {
        let kind = document
            .pointer("/type")
            .and_then(Value::as_str)
            .and_then(word);
        Self {
            kind: kind.unwrap_or(UNKNOWN_KIND).to_owned(),
            id: text(&document, "/trigger_id"),
            document: Some(document),
        }
    }

    fn unknown(document: Option<Value>) -> Self {
        Self {
            kind: UNKNOWN_KIND.to_owned(),
            id: None,
            document,
        }
    }
}

fn text(document: &Value, pointer: &str) -> Option<String> {
    let text = document.pointer(pointer)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}
