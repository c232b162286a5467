//! Events that name a thread, and their keys.
//!
//! The key is `thread#<repo>:<number>:<revision>`. The revision is the first of these that the
//! message has, so that the same event has the same key each time:
//!
//! | from | revision | note |
//! | --- | --- | --- |
//! | an envelope | its operation key, `github#…` | |
//! | the member `revision`, a text or a whole number | `a1b2c3`, `17` | `17` and `"17"` are one |
//! | else the member `id`, likewise | `["id","17"]` | |
//! | else the member `key` | `["key","17"]`, `["key",17]` | as [`foreign`] tells scalars apart |
//!
//! No two rows make the same revision: an envelope's contains a `#` and does not begin with a
//! bracket, a plain revision contains none (one that does, or begins with a bracket, is written as
//! the JSON array of it alone), and the others are arrays of two.

use firstclaim::Key;
use firstclaim::envelope::Thread;
use firstclaim::key::join;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Members, Undecoded, foreign};
use crate::threads::ThreadName;

/// What a scope that names a thread begins with.
const PREFIX: &str = "thread:";

/// The longest revision, in characters: as long as a caller's key may be.
const REVISION_LIMIT: usize = 255;

/// The thread that the message's `scopes` name, if they name one.
///
/// # Errors
///
/// They name one that can't be, or several: an event is told to one thread, and which of them is
/// nobody's guess.
pub(super) fn named(members: &Members<'_>) -> Result<Option<ThreadName>, Undecoded> {
    // Whatever else a message calls its scopes is its own.
    let scopes = members.get("scopes");
    let scopes: Vec<Value> = scopes
        .and_then(|scopes| serde_json::from_str(scopes.get()).ok())
        .unwrap_or_default();
    let mut named: Option<ThreadName> = None;
    for scope in scopes.iter().filter_map(Value::as_str) {
        let Some(name) = scope.strip_prefix(PREFIX) else {
            continue;
        };
        let name = ThreadName::parse(name).map_err(|error| Undecoded::Thread(Some(error)))?;
        if named.as_ref().is_some_and(|other| *other != name) {
            return Err(Undecoded::Thread(None));
        }
        named = Some(name);
    }
    Ok(named)
}

/// The key of a message of `thread`.
pub(super) fn key(thread: &ThreadName, members: &Members<'_>) -> Result<Key, Undecoded> {
    // A member that is null is as good as none.
    let member = |name: &str| members.get(name).filter(|raw| raw.get() != "null");
    let revision = match (member("revision"), member("id"), member("key")) {
        (Some(raw), _, _) => plain(scalar(raw)?)?,
        (None, Some(raw), _) => joined("id", Value::String(scalar(raw)?))?,
        (None, None, Some(raw)) => {
            // Checked as every other message's, and as different from each other.
            foreign::key(raw)?;
            let value = serde_json::from_str::<Value>(raw.get());
            match value.map_err(|_| Undecoded::BadKey(None))? {
                Value::String(text) => joined("key", Value::String(text))?,
                // Numbers keep the digits that were sent.
                _ => format!("[\"key\",{}]", raw.get()),
            }
        }
        (None, None, None) => return Err(Undecoded::NoRevision),
    };
    bound(thread, &revision)
}

/// The thread and the key of an envelope.
pub(super) fn of_envelope(thread: &Thread, key: &Key) -> Result<(ThreadName, Key), Undecoded> {
    let name = ThreadName::new(&thread.repo, thread.number);
    let name = name.map_err(|error| Undecoded::Thread(Some(error)))?;
    let text = key.as_str();
    // No sender can be called so; but who may send to the queue can say anything.
    let revision = match text.starts_with('[') {
        true => joined("operation", text.into())?,
        false => text.to_owned(),
    };
    let key = bound(&name, &revision)?;
    Ok((name, key))
}

/// A text, or a whole number by its digits.
fn scalar(raw: &RawValue) -> Result<String, Undecoded> {
    let raw = raw.get();
    let text = match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).unwrap_or_default(),
        Some(b'-' | b'0'..=b'9') if !raw.contains(['.', 'e', 'E']) => raw.to_owned(),
        _ => String::new(),
    };
    let fine = !text.is_empty() && text.chars().count() <= REVISION_LIMIT;
    fine.then_some(text).ok_or(Undecoded::NoRevision)
}

fn plain(text: String) -> Result<String, Undecoded> {
    if text.starts_with('[') || text.contains('#') {
        return join(&[text.into()]).map_err(|error| Undecoded::BadKey(Some(error)));
    }
    Ok(text)
}

fn joined(from: &str, value: Value) -> Result<String, Undecoded> {
    join(&[from.into(), value]).map_err(|error| Undecoded::BadKey(Some(error)))
}

fn bound(thread: &ThreadName, revision: &str) -> Result<Key, Undecoded> {
    let key = thread.key(revision);
    key.map_err(|error| Undecoded::BadKey(Some(error)))
}
