//! What a message asks for: the operations, their keys and their payloads.
//!
//! A message is read in this order; the first that fits counts:
//!
//! | message | key | body for the target |
//! | --- | --- | --- |
//! | an envelope: a whole number in `v` | the envelope's | the envelope's |
//! | a JSON object with `key` | `queue#<key>` | its `payload`, or the whole message |
//! | known [noise](Noise) | none: acknowledged and counted | |
//! | an S3 notification | `queue#["s3",…]` of bucket, object, version and sequencer, one for each of its records | an S3 notification with that record |
//! | an EventBridge event | `queue#["eventbridge",<id>]`; of an object's creation or deletion the same as in S3's own notification | the whole event |
//! | an SNS notification | by its `Message`, read as above; else `queue#["sns",<topic>,<message id>]` | as above; else its `Message` |
//!
//! What an SNS topic delivers raw is the message itself and has no id of its own, so that it needs
//! a `key`. Ids that are made here begin with `[`, which a sender's own text never does: see
//! [`foreign`].

use std::collections::BTreeMap;

use firstclaim::envelope::EnvelopeError;
use firstclaim::{Envelope, Fingerprint, Key, KeyError};
use serde_json::value::RawValue;

use crate::message::{Body, Message};

mod eventbridge;
mod foreign;
mod s3;
mod sns;

/// The scope of the keys of messages that are no envelopes, and what the target is told in place
/// of their sender.
pub const FOREIGN_SCOPE: &str = "queue";

/// What a message asks for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// To do these, each once. Only an S3 notification has more than one.
    Operations(Vec<Operation>),
    /// Nothing.
    Nothing(Noise),
}

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

/// What services send when they are wired up, or when there is nothing to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Noise {
    /// `s3:TestEvent`: somebody configured a bucket's notifications.
    S3Test,
    /// An S3 notification without a record.
    NoRecords,
    /// `autoscaling:TEST_NOTIFICATION`.
    AutoScalingTest,
    /// Amazon SES tried out a topic.
    SesTest,
}

impl Noise {
    /// A stable, short name.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::S3Test => "s3_test",
            Self::NoRecords => "no_records",
            Self::AutoScalingTest => "autoscaling_test",
            Self::SesTest => "ses_test",
        }
    }

    fn of(members: &Members<'_>) -> Option<Self> {
        match text(members, "Event")?.as_str() {
            "s3:TestEvent" => Some(Self::S3Test),
            "autoscaling:TEST_NOTIFICATION" => Some(Self::AutoScalingTest),
            _ => None,
        }
    }
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
    #[error("the message is no envelope, has no `key`, and no source that is known")]
    NoKey,
    #[error("the message's `key` is no text, number or boolean that can be a key")]
    BadKey(#[source] Option<KeyError>),
    /// Displayed by its place alone: the parser's message can quote what stands there.
    #[error("the envelope can't be read: {}", place(.0))]
    Envelope(#[source] EnvelopeError),
    #[error("a record of the S3 notification lacks what tells its event from others")]
    S3Record,
    /// Only a person can visit the address in it.
    #[error("an SNS topic asks for its subscription to be confirmed")]
    Subscription,
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
            Self::S3Record => "bad_s3_record",
            Self::Subscription => "sns_subscription",
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

impl Asked {
    /// Reads what a message asks for.
    pub(crate) fn decode(message: &Message) -> Result<Self, Undecoded> {
        let text = match &message.body {
            Body::Text(text) if !text.trim().is_empty() => text,
            _ => return Err(Undecoded::NoBody),
        };
        let members = members(text).ok_or(Undecoded::NotAnObject)?;
        // For people only: a redrive changes it, so it has no part in the key.
        let delivery = message.id.as_deref().unwrap_or_default();
        if let Some(asked) = Self::direct(text, &members, delivery)? {
            return Ok(asked);
        }
        match sns::Notification::of(&members)? {
            Some(notification) => notification.decode(),
            None => Err(Undecoded::NoKey),
        }
    }

    /// Reads a message as it was sent to its queue or topic; `None` where it is of no kind that
    /// is known.
    fn direct(
        text: &str,
        members: &Members<'_>,
        delivery: &str,
    ) -> Result<Option<Self>, Undecoded> {
        let version = members.get("v").map(|v| v.get().parse::<u64>());
        if let Some(Ok(_)) = version {
            return match Envelope::from_json(text) {
                Ok(envelope) => Ok(Some(Operation::from_envelope(envelope).into())),
                Err(EnvelopeError::Version(version)) => Err(Undecoded::Version(version)),
                Err(error) => Err(Undecoded::Envelope(error)),
            };
        }
        if let Some(key) = members.get("key") {
            let payload = members.get("payload").map_or(text, |payload| payload.get());
            let operation = Operation {
                fingerprint: Some(Fingerprint::of_bytes(payload.as_bytes())),
                ..Operation::foreign(foreign::key(key)?, delivery, payload)
            };
            return Ok(Some(operation.into()));
        }
        if let Some(noise) = Noise::of(members) {
            return Ok(Some(Self::Nothing(noise)));
        }
        if let Some(asked) = s3::decode(text, members, delivery)? {
            return Ok(Some(asked));
        }
        eventbridge::decode(text, members)
    }
}

impl From<Operation> for Asked {
    fn from(operation: Operation) -> Self {
        Self::Operations(vec![operation])
    }
}

impl Operation {
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

    /// An operation that somebody else than our door asks for. It has no fingerprint: a key that
    /// is made of the event's own identity binds nothing else.
    fn foreign(key: Key, delivery: &str, body: &str) -> Self {
        Self {
            key,
            fingerprint: None,
            sender: FOREIGN_SCOPE.to_owned(),
            kind: String::new(),
            delivery: delivery.to_owned(),
            content_type: "application/json".to_owned(),
            headers: BTreeMap::new(),
            body: body.as_bytes().to_vec(),
        }
    }
}

/// The members of a JSON object, unread; `None` where the text is none.
fn members(text: &str) -> Option<Members<'_>> {
    serde_json::from_str(text).ok()
}

/// A member that is a text and not empty.
fn text(members: &Members<'_>, name: &str) -> Option<String> {
    let text: String = serde_json::from_str(members.get(name)?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
