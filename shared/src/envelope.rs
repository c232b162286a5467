//! The envelope: what the webhook puts on the queue and the worker takes from it.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyError};

/// The version that this code writes.
pub const VERSION: u64 = 1;

/// A body longer than this is compressed on the queue, in bytes.
pub const COMPRESS_OVER: usize = 200 * 1024;

/// The longest body that an envelope may unpack to, in bytes: the most that a Lambda is sent.
pub const BODY_LIMIT: usize = 6 * 1024 * 1024;

/// One verified event on its way to the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The operation key.
    pub key: Key,
    /// The configured sender's name.
    pub sender: String,
    /// The scheme that verified it.
    pub scheme: String,
    /// The delivery's id, for people.
    pub delivery: String,
    /// The event's kind, `issue_comment.created` for example.
    pub kind: String,
    /// When it was received, RFC 3339.
    pub received_at: String,
    /// Set where the caller chose the key.
    pub fingerprint: Option<Fingerprint>,
    /// The thread that it belongs to.
    pub thread: Option<Thread>,
    /// The body's content type as sent.
    pub content_type: String,
    /// The sender's headers that are passed on, lower case; never secrets.
    pub headers: BTreeMap<String, String>,
    /// The body, byte for byte as sent.
    pub body: Vec<u8>,
}

/// A thread of a repository: an issue or a pull request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// `owner/name`, or deeper.
    pub repo: String,
    /// The thread's number in it.
    pub number: u64,
}

/// Why a text is no envelope.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// It has the form of an envelope but a version that this code does not know. It must go back
    /// to the queue: a newer deployment will understand it.
    #[error("envelope version {0} is unknown; this worker knows {VERSION}")]
    Version(u64),
    /// It is not an envelope at all.
    #[error("not an envelope: {0}")]
    Shape(#[source] serde_json::Error),
    /// A field has the right type and a wrong content.
    #[error("envelope field `{field}`: {found}")]
    Field {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        found: String,
    },
    /// The key is not one.
    #[error("envelope field `key`")]
    Key(#[from] KeyError),
}

impl Envelope {
    /// The JSON text for the queue. The body stands in `body` as text where it is UTF-8, in
    /// `body_base64` where it is not, and gzipped in `body_base64` where it is longer than
    /// [`COMPRESS_OVER`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let (body, body_base64, encoding) = if self.body.len() > COMPRESS_OVER {
            (
                None,
                Some(STANDARD.encode(gzip(&self.body))),
                Some("gzip".to_owned()),
            )
        } else {
            match std::str::from_utf8(&self.body) {
                Ok(text) => (Some(text.to_owned()), None, None),
                Err(_) => (None, Some(STANDARD.encode(&self.body)), None),
            }
        };
        let wire = Wire {
            v: VERSION,
            key: self.key.as_str().to_owned(),
            sender: self.sender.clone(),
            scheme: self.scheme.clone(),
            delivery: self.delivery.clone(),
            kind: self.kind.clone(),
            received_at: self.received_at.clone(),
            fingerprint: self.fingerprint.map(Fingerprint::to_hex),
            thread: self.thread.clone(),
            content_type: Some(self.content_type.clone()),
            headers: self.headers.clone(),
            body,
            body_base64,
            encoding,
            payload: None,
        };
        // Only texts, numbers and maps with text keys: writing it can't fail.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads an envelope.
    ///
    /// # Errors
    ///
    /// [`EnvelopeError::Version`] for a version from the future, before anything else is looked at;
    /// else which field is wrong, and how.
    pub fn from_json(text: &str) -> Result<Self, EnvelopeError> {
        let head: Head = serde_json::from_str(text).map_err(EnvelopeError::Shape)?;
        if head.v != VERSION {
            return Err(EnvelopeError::Version(head.v));
        }
        let wire: Wire = serde_json::from_str(text).map_err(EnvelopeError::Shape)?;
        let fingerprint = match wire.fingerprint.as_deref() {
            None => None,
            Some(hex) => Some(Fingerprint::from_hex(hex).ok_or(EnvelopeError::Field {
                field: "fingerprint",
                found: "not 64 lower-case hex digits".to_owned(),
            })?),
        };
        let content_type = wire
            .content_type
            .unwrap_or_else(|| "application/json".to_owned());
        let body = unpack(wire.body, wire.body_base64, wire.encoding, wire.payload)?;
        Ok(Self {
            key: Key::parse(&wire.key)?,
            sender: wire.sender,
            scheme: wire.scheme,
            delivery: wire.delivery,
            kind: wire.kind,
            received_at: wire.received_at,
            fingerprint,
            thread: wire.thread,
            content_type,
            headers: wire.headers,
            body,
        })
    }
}

#[derive(Deserialize)]
struct Head {
    v: u64,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u64,
    key: String,
    sender: String,
    #[serde(default)]
    scheme: String,
    #[serde(default)]
    delivery: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    received_at: String,
    #[serde(default)]
    fingerprint: Option<String>,
    #[serde(default)]
    thread: Option<Thread>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    /// Some producers put the event in as JSON instead of a body; it is applied as that JSON text.
    #[serde(default, skip_serializing)]
    payload: Option<Box<serde_json::value::RawValue>>,
}

fn unpack(
    body: Option<String>,
    body_base64: Option<String>,
    encoding: Option<String>,
    payload: Option<Box<serde_json::value::RawValue>>,
) -> Result<Vec<u8>, EnvelopeError> {
    let packed = match (body, body_base64, payload) {
        (Some(text), None, None) => text.into_bytes(),
        (None, Some(text), None) => {
            STANDARD
                .decode(text)
                .map_err(|error| EnvelopeError::Field {
                    field: "body_base64",
                    found: error.to_string(),
                })?
        }
        (None, None, Some(payload)) => payload.get().as_bytes().to_vec(),
        _ => {
            return Err(EnvelopeError::Field {
                field: "body",
                found: "exactly one of `body`, `body_base64` and `payload` must be there"
                    .to_owned(),
            });
        }
    };
    match encoding.as_deref() {
        None => Ok(packed),
        Some("gzip") => gunzip(&packed).map_err(|found| EnvelopeError::Field {
            field: "encoding",
            found,
        }),
        Some(other) => Err(EnvelopeError::Field {
            field: "encoding",
            found: format!("{other:?} is not known; only \"gzip\" is"),
        }),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // Writing to memory can't fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .take(BODY_LIMIT as u64 + 1)
        .read_to_end(&mut body)
        .map_err(|error| format!("gzip: {error}"))?;
    if body.len() > BODY_LIMIT {
        return Err(format!("unpacks to more than {BODY_LIMIT} bytes"));
    }
    Ok(body)
}
