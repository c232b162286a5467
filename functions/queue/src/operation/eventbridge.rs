//! EventBridge events in a queue's messages.
//!
//! Source: "Events in Amazon EventBridge" in the EventBridge user guide: an event's `id` is a fresh
//! UUID, and stays the same on every delivery. Members of `detail` are never taken for a key: what
//! is called `key` there is the subject of many events (an issue, a parameter), and two events of
//! one subject must stay two. A rule whose sender has a key of its own says so by an input
//! transformer: `{"key": <detail.key>, "payload": <aws.events.event.json>}`.

use super::s3::Object;
use super::{Asked, Members, Operation, Undecoded, foreign, text};

/// Reads an event; `None` where the message is none.
pub(super) fn decode(message: &str, members: &Members<'_>) -> Result<Option<Asked>, Undecoded> {
    let (Some(id), Some(kind), Some(source), Some(detail)) = (
        text(members, "id"),
        text(members, "detail-type"),
        text(members, "source"),
        members.get("detail"),
    ) else {
        return Ok(None);
    };
    let object = match source.as_str() {
        "aws.s3" => Object::of_eventbridge(&kind, detail),
        _ => None,
    };
    let key = match object {
        Some(object) => object.key()?,
        None => foreign::joined(&["eventbridge".into(), id.as_str().into()])?,
    };
    let operation = Operation {
        kind,
        ..Operation::foreign(key, &id, message)
    };
    Ok(Some(operation.into()))
}
