//! Keys in the scope of foreign messages.
//!
//! A sender's own text is the id as it is, unless it begins with `[`; then, and for numbers and
//! booleans, the id is the JSON array of it alone, as [`Key::join`] writes it, so that `1`, `"1"`
//! and `"[1]"` differ. Ids that are made of an event's parts are arrays of at least two: no sender's
//! key can be taken for one.

use firstclaim::Key;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{FOREIGN_SCOPE, Undecoded};

/// A key of any JSON scalar. Numbers keep the digits that were sent.
pub(super) fn key(key: &RawValue) -> Result<Key, Undecoded> {
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

/// A key of the parts that tell an event from every other: at least two.
pub(super) fn joined(parts: &[Value]) -> Result<Key, Undecoded> {
    Key::join(FOREIGN_SCOPE, parts).map_err(|error| Undecoded::BadKey(Some(error)))
}
