//! What a verified request is about.

use firstclaim::envelope::Thread;
use firstclaim::{KeyError, key};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::keys::{self, Keys};

/// What a verified request is about.
#[derive(Debug)]
pub(crate) struct Event {
    /// What a redelivery repeats; `None` where the caller sent no key.
    pub(crate) delivery: Option<Delivery>,
    /// The event's kind; only characters that are safe in a log and a header.
    pub(crate) kind: String,
    /// What the scheme's own rule says of the operation.
    pub(crate) operation: Operation,
    /// The thread that it belongs to.
    pub(crate) thread: Option<Thread>,
    /// The body's JSON, for an `operation_key` rule.
    pub(crate) document: Option<Value>,
    /// Headers that the body contradicts, or that stand beside those that were signed; they are not
    /// passed on.
    pub(crate) withheld: &'static [&'static str],
}

impl Event {
    /// The delivery's id, for people.
    pub(crate) fn delivery_id<'a>(&'a self, keys: &'a Keys) -> &'a str {
        match &self.delivery {
            Some(delivery) => &delivery.id,
            None => &keys.delivery,
        }
    }
}

/// What a redelivery repeats.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The id in the keys.
    pub(crate) key: String,
    /// The id that people know.
    pub(crate) id: String,
}

impl Delivery {
    /// A delivery whose id is not signed: with the body's digest beside it, nobody can use up the id
    /// of a delivery that is still to come.
    pub(super) fn of_unsigned_id(id: &str, body: &[u8]) -> Result<Self, MalformedKey> {
        caller_key(id)?;
        let digest = hex::encode(Sha256::digest(body));
        Ok(Self {
            key: key::join(&[id.into(), digest.into()])?,
            id: id.to_owned(),
        })
    }
}

/// What a scheme's own rule says of the operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The delivery names it.
    Delivery,
    /// This id names it.
    Named(String),
    /// The rule can't name it exactly. The delivery stands in for it, and that is counted.
    Unnamed,
}

/// The kind of an event whose body does not say what it must.
pub(crate) const UNKNOWN_KIND: &str = "unknown";

/// The key that the caller sent is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedKey;

impl From<KeyError> for MalformedKey {
    fn from(_: KeyError) -> Self {
        Self
    }
}

/// The longest key that a caller may choose, in characters.
pub(super) const KEY_LIMIT: usize = 255;

/// The id that a key of the caller's choice is.
pub(super) fn caller_key(text: &str) -> Result<String, MalformedKey> {
    let fits = (1..=KEY_LIMIT).contains(&text.chars().count());
    if !fits || text.contains(char::is_control) {
        return Err(MalformedKey);
    }
    Ok(keys::id_of_text(text)?)
}

/// A header's value, if it can be passed on as it is.
pub(crate) fn plain(value: &str) -> Option<&str> {
    let fits = (1..=1024).contains(&value.len());
    let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (fits && printable).then_some(value)
}

/// A word of an event's kind, if it has only characters that are safe everywhere.
pub(super) fn word(text: &str) -> Option<&str> {
    let fits = (1..=100).contains(&text.len());
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (fits && text.bytes().all(safe)).then_some(text)
}
