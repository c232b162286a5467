//! Messages, their attributes, and the digests that SQS gives of both.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use serde::{Deserialize, Serialize};

/// A message as its sender gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// The body.
    pub body: String,
    /// Message attributes by name.
    #[serde(default)]
    pub attributes: BTreeMap<String, Attribute>,
    /// `MessageGroupId`, which standard queues take too (fair queues).
    #[serde(default)]
    pub group: Option<String>,
    /// `AWSTraceHeader`.
    #[serde(default)]
    pub trace: Option<String>,
}

/// A message attribute, in the service's own JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, with an optional label: `Number.int`.
    pub data_type: String,
    /// The value of a `String` or `Number`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    /// The value of a `Binary`, in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<String>,
}

/// A message as the queue keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) draft: Draft,
    pub(super) sent_ms: i64,
    pub(super) first_received_ms: Option<i64>,
    pub(super) receives: u32,
    /// Hidden until then.
    pub(super) visible_ms: i64,
    /// The handle of the last receive.
    pub(super) receipt: Option<String>,
    /// The queue that gave it up, for a dead letter.
    #[serde(default)]
    pub(super) source_queue: Option<String>,
}

/// A message as a receiver gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `MessageId`.
    pub id: String,
    /// `ReceiptHandle`, which deletes it or changes its visibility.
    pub receipt: String,
    /// What was sent.
    pub draft: Draft,
    /// `SentTimestamp`.
    pub sent: EpochMillis,
    /// `ApproximateFirstReceiveTimestamp`.
    pub first_received: EpochMillis,
    /// `ApproximateReceiveCount`: 1 for the first time.
    pub receives: u32,
    /// `DeadLetterQueueSourceArn`.
    pub source_arn: Option<String>,
}

impl Received {
    /// The system attributes by name.
    #[must_use]
    pub fn system_attributes(&self) -> BTreeMap<&'static str, String> {
        let mut attributes = BTreeMap::from([
            ("ApproximateReceiveCount", self.receives.to_string()),
            ("SentTimestamp", self.sent.0.to_string()),
            ("SenderId", "AIDAFIRSTCLAIMDEV".to_owned()),
            (
                "ApproximateFirstReceiveTimestamp",
                self.first_received.0.to_string(),
            ),
        ]);
        let optional = [
            ("MessageGroupId", &self.draft.group),
            ("AWSTraceHeader", &self.draft.trace),
            ("DeadLetterQueueSourceArn", &self.source_arn),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                attributes.insert(name, value.clone());
            }
        }
        attributes
    }
}

impl Draft {
    /// What counts against the size limit, in bytes: body, attribute names, types and values.
    pub(super) fn size(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, attribute)| {
            name.len()
                + attribute.data_type.len()
                + attribute.value().map_or(0, |value| value.len())
        });
        self.body.len() + attributes.sum::<usize>()
    }
}

impl Attribute {
    /// A `String` attribute.
    #[must_use]
    pub fn text(value: impl Into<String>) -> Self {
        Self {
            data_type: "String".to_owned(),
            string_value: Some(value.into()),
            binary_value: None,
        }
    }

    /// The value's bytes; `None` where it does not fit the type.
    pub(super) fn value(&self) -> Option<Vec<u8>> {
        let kind = self.data_type.split('.').next().unwrap_or_default();
        match (kind, &self.string_value, &self.binary_value) {
            ("String" | "Number", Some(text), None) if !text.is_empty() => {
                Some(text.as_bytes().to_vec())
            }
            ("Binary", None, Some(text)) => {
                STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())
            }
            _ => None,
        }
    }

    fn is_binary(&self) -> bool {
        self.data_type.starts_with("Binary")
    }
}

/// The digest of a body, in hex.
pub(in crate::dev) fn body_digest(body: &str) -> String {
    format!("{:x}", md5::compute(body))
}

/// The digest of message attributes as SQS defines it, in hex; `None` where there are none. Each
/// text stands behind its length; the kind of the value is one byte.
pub(in crate::dev) fn attributes_digest<'a>(
    attributes: impl IntoIterator<Item = (&'a String, &'a Attribute)>,
) -> Option<String> {
    let sorted: BTreeMap<_, _> = attributes.into_iter().collect();
    if sorted.is_empty() {
        return None;
    }
    let mut hashed = Vec::new();
    for (name, attribute) in sorted {
        put_sized(&mut hashed, name.as_bytes());
        put_sized(&mut hashed, attribute.data_type.as_bytes());
        hashed.push(if attribute.is_binary() { 2 } else { 1 });
        put_sized(&mut hashed, &attribute.value().unwrap_or_default());
    }
    Some(format!("{:x}", md5::compute(hashed)))
}

fn put_sized(hashed: &mut Vec<u8>, bytes: &[u8]) {
    // A message has at most 1 MiB.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    hashed.extend_from_slice(&length.to_be_bytes());
    hashed.extend_from_slice(bytes);
}
