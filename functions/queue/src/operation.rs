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
//!
//! Where there is a threads server, the first two rows have a key of their [`thread`], if they name
//! one; a message that does needs no `key`.

use std::collections::BTreeMap;

use firstclaim::envelope::EnvelopeError;
use firstclaim::{Envelope, Fingerprint, Key, KeyError};
use serde_json::value::RawValue;

use crate::message::{Body, Message};
use crate::threads::{NameError, ThreadName};

mod eventbridge;
mod foreign;
mod s3;
mod sns;
mod thread;

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
    /// The thread that it is told to; never set where there is no threads server.
    pub(crate) thread: Option<ThreadName>,
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
    /// One that can't be, or several.
    #[error(
        "the message names {}",
        .0.map_or("several threads".to_owned(), |error| format!("no thread that can be: {error}"))
    )]
    Thread(Option<NameError>),
    #[error(
        "the message names a thread, and its first of `revision`, `id` and `key` is missing or no \
         text or whole number of 1 to 255 characters"
    )]
    NoRevision,
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
            Self::Thread(_) => "bad_thread",
            Self::NoRevision => "bad_revision",
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
    /// Reads what a message asks for; whether it names a thread only where `threads` says that
    /// there is a server to tell.
    pub(crate) fn decode(message: &Message, threads: bool) -> Result<Self, Undecoded> {
        let text = match &message.body {
            Body::Text(text) if !text.trim().is_empty() => text,
            _ => return Err(Undecoded::NoBody),
        };
        let members = members(text).ok_or(Undecoded::NotAnObject)?;
        // For people only: a redrive changes it, so it has no part in the key.
        let delivery = message.id.as_deref().unwrap_or_default();
        if let Some(asked) = Self::direct(text, &members, delivery, threads)? {
            return Ok(asked);
        }
        match sns::Notification::of(&members)? {
            Some(notification) => notification.decode(threads),
            None => Err(Undecoded::NoKey),
        }
    }

    /// Reads a message as it was sent to its queue or topic; `None` where it is of no kind that
    /// is known.
    fn direct(
        text: &str,
        members: &Members<'_>,
        delivery: &str,
        threads: bool,
    ) -> Result<Option<Self>, Undecoded> {
        let version = members.get("v").map(|v| v.get().parse::<u64>());
        if let Some(Ok(_)) = version {
            return match Envelope::from_json(text) {
                Ok(envelope) => Ok(Some(Operation::from_envelope(envelope, threads)?.into())),
                Err(EnvelopeError::Version(version)) => Err(Undecoded::Version(version)),
                Err(error) => Err(Undecoded::Envelope(error)),
            };
        }
        let thread = match threads {
            true => thread::named(members)?,
            false => None,
        };
        let key = match (&thread, members.get("key")) {
            (Some(thread), _) => Some(thread::key(thread, members)?),
            (None, Some(key)) => Some(foreign::key(key)?),
            (None, None) => None,
        };
        if let Some(key) = key {
            let payload = members.get("payload").map_or(text, |payload| payload.get());
            let operation = Operation {
                fingerprint: Some(Fingerprint::of_bytes(payload.as_bytes())),
                thread,
                ..Operation::foreign(key, delivery, payload)
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
    fn from_envelope(envelope: Envelope, threads: bool) -> Result<Self, Undecoded> {
        let (thread, key) = match envelope.thread.filter(|_| threads) {
            Some(thread) => {
                let (thread, key) = thread::of_envelope(&thread, &envelope.key)?;
                (Some(thread), key)
            }
            None => (None, envelope.key),
        };
        Ok(Self {
            key,
            fingerprint: envelope.fingerprint,
            sender: envelope.sender,
            kind: envelope.kind,
            delivery: envelope.delivery,
            content_type: envelope.content_type,
            headers: envelope.headers,
            body: envelope.body,
            thread,
        })
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
            thread: None,
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
