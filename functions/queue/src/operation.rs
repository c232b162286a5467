//! What a message asks for: the operation, its key and its payload.

use std::collections::BTreeMap;

use firstclaim::envelope::EnvelopeError;
use firstclaim::{Envelope, Fingerprint, Key, KeyError};
use serde_json::value::RawValue;

use crate::message::{Body, Message};

/// The scope of the keys of messages that are no envelopes, and what the target is told in place
/// of their sender.
pub const FOREIGN_SCOPE: &str = "queue";

/// An operation to do once.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) key: Key,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) sender: String,
    pub(crate) kind: String,
    pub(crate) delivery: String,
    pub(crate) content_type: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Why a message asks for nothing that can be done here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecoded {
    /// An envelope of another version. A newer worker understands it, so it goes back.
    #[error("envelope version {0} is not known here")]
    Version(u64),
    #[error("the body is missing, empty or no text")]
    NoBody,
    #[error("the body is not a JSON object")]
    NotAnObject,
    #[error("the message has neither an envelope's `v` nor a `key`")]
    NoKey,
    #[error("the message's `key` is no text, number or boolean that can be a key")]
    BadKey(#[source] Option<KeyError>),
    /// Displayed by its place alone: the parser's message can quote what stands there.
    #[error("the envelope can't be read: {}", place(.0))]
    Envelope(#[source] EnvelopeError),
}

impl Undecoded {
    /// A stable, short name.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Version(_) => "unknown_version",
            Self::NoBody => "no_body",
            Self::NotAnObject => "not_an_object",
            Self::NoKey => "no_key",
            Self::BadKey(_) => "bad_key",
            Self::Envelope(_) => "bad_envelope",
        }
    }
}

fn place(error: &EnvelopeError) -> String {
    match error {
        EnvelopeError::Shape(error) => format!("line {}, column {}", error.line(), error.column()),
        EnvelopeError::Field { field, .. } => format!("field `{field}`"),
        EnvelopeError::Key(_) => "field `key`".to_owned(),
        _ => "unknown".to_owned(),
    }
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Operation {
    /// Reads an envelope (told by a whole number in `v`), or any JSON object with a `key`.
    pub(crate) fn decode(message: &Message) -> Result<Self, Undecoded> {
        let text = match &message.body {
            Body::Text(text) if !text.trim().is_empty() => text,
            _ => return Err(Undecoded::NoBody),
        };
        let members: Members<'_> =
            serde_json::from_str(text).map_err(|_| Undecoded::NotAnObject)?;
        let version = members.get("v").map(|v| v.get().parse::<u64>());
        if let Some(Ok(_)) = version {
            return match Envelope::from_json(text) {
                Ok(envelope) => Ok(Self::from_envelope(envelope)),
                Err(EnvelopeError::Version(version)) => Err(Undecoded::Version(version)),
                Err(error) => Err(Undecoded::Envelope(error)),
            };
        }
        // The body of SNS, EventBridge and S3 notifications would be unwrapped here.
        Self::from_foreign(text, &members, message)
    }

    fn from_envelope(envelope: Envelope) -> Self {
        Self {
            key: envelope.key,
            fingerprint: envelope.fingerprint,
            sender: envelope.sender,
            kind: envelope.kind,
            delivery: envelope.delivery,
            content_type: envelope.content_type,
            headers: envelope.headers,
            body: envelope.body,
        }
    }

    fn from_foreign(
        text: &str,
        members: &Members<'_>,
        message: &Message,
    ) -> Result<Self, Undecoded> {
        let key = members.get("key").ok_or(Undecoded::NoKey)?;
        let payload = members.get("payload").map_or(text, |payload| payload.get());
        Ok(Self {
            key: foreign_key(key)?,
            fingerprint: Some(Fingerprint::of_bytes(payload.as_bytes())),
            sender: FOREIGN_SCOPE.to_owned(),
            kind: String::new(),
            // For people only: a redrive changes it, so it has no part in the key.
            delivery: message.id.clone().unwrap_or_default(),
            content_type: "application/json".to_owned(),
            headers: BTreeMap::new(),
            body: payload.as_bytes().to_vec(),
        })
    }
}

/// A key of any JSON scalar. A text stands as it is; a number or boolean as the JSON array of it,
/// as [`Key::join`] writes it, so that `1` and `"1"` differ; and so does a text that looks like
/// such an array. Numbers keep the digits that were sent.
fn foreign_key(key: &RawValue) -> Result<Key, Undecoded> {
    let raw = key.get();
    let bad = |error| Undecoded::BadKey(Some(error));
    let id = match raw.as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(raw).map_err(|_| Undecoded::BadKey(None))?;
            if text.starts_with('[') {
                firstclaim::key::join(&[text.into()]).map_err(bad)?
            } else {
                text
            }
        }
        Some(b't' | b'f' | b'-' | b'0'..=b'9') => format!("[{raw}]"),
        _ => return Err(Undecoded::BadKey(None)),
    };
    Key::new(FOREIGN_SCOPE, id).map_err(bad)
}

#[cfg(test)]
mod tests;
