//! The two keys of an event: the delivery's, for the door, and the operation's, for the worker.

use firstclaim::{Key, KeyError, key};
use serde_json::Value;

use crate::response::Problem;
use crate::sender::{Event, Operation, Sender};

/// The keys of one event.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The id of what a redelivery repeats.
    pub(crate) delivery: String,
    /// `<sender>#<operation id>`.
    pub(crate) operation: Key,
    /// The rule that could not name the operation, so that the delivery stands in for it.
    pub(crate) fallback: Option<Fallback>,
}

/// Which rule could not name the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// The configured `operation_key`.
    Configured,
    /// The scheme's own.
    Default,
}

impl Fallback {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Configured => "operation_key",
            Self::Default => "default",
        }
    }
}

impl Keys {
    /// Makes the keys. A rule that can't name the operation falls back to the delivery; where there
    /// is no delivery key either, the request has none.
    pub(crate) fn of(sender: &Sender, event: &Event) -> Result<Self, Problem> {
        let (rule, named) = match (&sender.rule, &event.operation) {
            (Some(rule), _) => {
                let document = event.document.as_ref();
                let found = document.and_then(|document| rule.id(document).ok());
                (Some(Fallback::Configured), found)
            }
            (None, Operation::Named(id)) => (Some(Fallback::Default), Some(id.clone())),
            (None, Operation::Unnamed) => (Some(Fallback::Default), None),
            (None, Operation::Delivery) => (None, None),
        };
        // An id with a control character in it names nothing either.
        let key = |id: &String| Key::new(sender.name.as_str(), id);
        let named = named.and_then(|id| Some((key(&id).ok()?, id)));
        let delivery = event.delivery.as_ref().map(|delivery| &delivery.key);
        Ok(match (named, delivery) {
            (Some((operation, id)), delivery) => Self {
                delivery: delivery.unwrap_or(&id).clone(),
                operation,
                fallback: None,
            },
            (None, Some(delivery)) => Self {
                delivery: delivery.clone(),
                operation: key(delivery).map_err(|_| Problem::MalformedKey)?,
                fallback: rule,
            },
            (None, None) => return Err(Problem::MissingKey),
        })
    }
}

/// The key that the door claims for an id of a sender.
pub(crate) fn door(sender: &Sender, id: &str) -> Result<Key, Problem> {
    Key::new(format!("accept.{}", sender.name), id).map_err(|_| Problem::MalformedKey)
}

/// The id that a text is. One that starts like joined parts is joined itself, so that no text can
/// be taken for them.
pub(crate) fn id_of_text(text: &str) -> Result<String, KeyError> {
    if text.starts_with('[') {
        return key::join(&[text.into()]);
    }
    Ok(text.to_owned())
}

/// The id that several parts make; `None` if one of them names nothing.
pub(crate) fn id_of_parts(parts: &[Value]) -> Option<String> {
    if !parts.iter().all(names) {
        return None;
    }
    key::join(parts).ok()
}

/// Below this, floats hold every whole number: 2 to the power of 53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Whether a value can be part of an identity. Null, nothing and zeros (the commit before the first
/// and behind the last) are not.
pub(crate) fn names(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) => true,
        // A whole number that only a float holds was rounded: another one may read the same.
        Value::Number(number) => {
            let whole = number.is_i64() || number.is_u64();
            whole || number.as_f64().is_some_and(|float| float.abs() < EXACT)
        }
        Value::String(text) => {
            let zeros = text.bytes().filter(|byte| *byte == b'0').count();
            let blank = text.bytes().all(|byte| matches!(byte, b'0' | b'-'));
            // A lone `0` is a number that was written as text.
            !blank || zeros == 1
        }
        Value::Array(parts) => !parts.is_empty() && parts.iter().all(names),
        Value::Object(members) => !members.is_empty() && members.values().all(names),
    }
}
