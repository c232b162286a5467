//! S3 event notifications in a queue's messages.
//!
//! Source: "Event message structure" in the Amazon S3 user guide. An event that creates or deletes
//! an object has a sequencer, which tells it from every other event of that object. Other events
//! (tags, a restore, an access list) are told apart by their time and the request that caused them:
//! the object and its version alone would take two of them for one.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Asked, Members, Noise, Operation, Undecoded, foreign};

/// What happened to an object.
#[derive(Debug)]
pub(super) struct Object {
    bucket: String,
    name: Value,
    version: Option<String>,
    event: Event,
}

/// What tells one event of an object from the others.
#[derive(Debug)]
enum Event {
    /// A creation or deletion, `ObjectCreated` or `ObjectRemoved`, by its sequencer.
    Sequenced {
        family: &'static str,
        sequencer: String,
    },
    /// Another one, by its name, its time and its request.
    Requested {
        name: String,
        time: String,
        request: String,
    },
}

const CREATED: &str = "ObjectCreated";
const REMOVED: &str = "ObjectRemoved";

impl Object {
    /// The object of an EventBridge event, where that is a creation or deletion. Its key is not
    /// URL-encoded, unlike in a notification.
    pub(super) fn of_eventbridge(kind: &str, detail: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Detail {
            bucket: Bucket,
            object: Named,
        }
        #[derive(Deserialize)]
        struct Named {
            key: String,
            #[serde(default, rename = "version-id")]
            version: Option<String>,
            #[serde(default)]
            sequencer: Option<String>,
        }
        let family = match kind {
            "Object Created" => CREATED,
            "Object Deleted" => REMOVED,
            _ => return None,
        };
        let detail: Detail = serde_json::from_str(detail.get()).ok()?;
        if detail.object.key.chars().any(char::is_control) {
            return None;
        }
        Some(Self {
            bucket: detail.bucket.name,
            name: detail.object.key.into(),
            version: filled(detail.object.version),
            event: Event::Sequenced {
                family,
                sequencer: filled(detail.object.sequencer)?,
            },
        })
    }

    /// The operation's key.
    pub(super) fn key(&self) -> Result<firstclaim::Key, Undecoded> {
        let mut parts = vec!["s3".into(), self.bucket.as_str().into(), self.name.clone()];
        let version = self.version.as_ref();
        parts.extend(version.map(|version| json!(["version", version])));
        match &self.event {
            Event::Sequenced { family, sequencer } => {
                parts.push((*family).into());
                parts.push(json!(["sequencer", sequencer]));
            }
            Event::Requested {
                name,
                time,
                request,
            } => {
                parts.push(name.as_str().into());
                parts.push(json!(["time", time]));
                parts.push(json!(["request", request]));
            }
        }
        foreign::joined(&parts)
    }
}

/// Reads a notification: an operation for each of its records. `None` where the message is none.
pub(super) fn decode(
    message: &str,
    members: &Members<'_>,
    delivery: &str,
) -> Result<Option<Asked>, Undecoded> {
    let records = members.get("Records");
    let records = records.and_then(|list| serde_json::from_str::<Vec<&RawValue>>(list.get()).ok());
    let Some(records) = records else {
        return Ok(None);
    };
    if records.is_empty() {
        return Ok(Some(Asked::Nothing(Noise::NoRecords)));
    }
    let of_s3 = |record: &&RawValue| {
        let source = serde_json::from_str::<Source>(record.get());
        source.is_ok_and(|source| source.event_source.ends_with(":s3"))
    };
    if !records.iter().all(of_s3) {
        return Ok(None);
    }
    let operations = records.iter().map(|record| {
        let read: Record = serde_json::from_str(record.get()).map_err(|_| Undecoded::S3Record)?;
        let request = filled(read.response.and_then(|response| response.request));
        let operation = Operation {
            kind: read.name.clone(),
            ..Operation::foreign(
                object(read.name, read.time, &request, read.s3)?.key()?,
                request.as_deref().unwrap_or(delivery),
                &match records.len() {
                    1 => message.to_owned(),
                    _ => format!("{{\"Records\":[{}]}}", record.get()),
                },
            )
        };
        Ok(operation)
    });
    let operations: Result<Vec<_>, Undecoded> = operations.collect();
    Ok(Some(Asked::Operations(operations?)))
}

#[derive(Deserialize)]
struct Source {
    #[serde(rename = "eventSource")]
    event_source: String,
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "eventName")]
    name: String,
    #[serde(default, rename = "eventTime")]
    time: Option<String>,
    #[serde(default, rename = "responseElements")]
    response: Option<Response>,
    s3: Entity,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default, rename = "x-amz-request-id")]
    request: Option<String>,
}

#[derive(Deserialize)]
struct Entity {
    bucket: Bucket,
    object: Encoded,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
struct Encoded {
    key: String,
    #[serde(default, rename = "versionId")]
    version: Option<String>,
    #[serde(default)]
    sequencer: Option<String>,
}

fn object(
    name: String,
    time: Option<String>,
    request: &Option<String>,
    entity: Entity,
) -> Result<Object, Undecoded> {
    let family = [CREATED, REMOVED]
        .into_iter()
        .find(|family| name.split(':').next() == Some(family));
    let event = match (family, filled(entity.object.sequencer)) {
        (Some(family), Some(sequencer)) => Event::Sequenced { family, sequencer },
        _ => Event::Requested {
            name,
            time: filled(time).ok_or(Undecoded::S3Record)?,
            request: request.clone().ok_or(Undecoded::S3Record)?,
        },
    };
    Ok(Object {
        bucket: entity.bucket.name,
        name: decoded(&entity.object.key),
        version: filled(entity.object.version),
        event,
    })
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// An object's name as it is, from its form in a notification. One with characters that no key can
/// have stays encoded, marked so that it is not taken for another one's name.
fn decoded(encoded: &str) -> Value {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match (first, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, tail @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = tail;
                    high << 4 | low
                }
                _ => b'%',
            },
            (other, _) => *other,
        });
    }
    match String::from_utf8(bytes) {
        Ok(name) if !name.chars().any(char::is_control) => name.into(),
        _ => json!(["encoded", encoded]),
    }
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}
