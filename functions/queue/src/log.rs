//! What may stand in a log line.

use std::borrow::Cow;
use std::error::Error;

/// The longest foreign text in a log line, in bytes.
const LIMIT: usize = 512;

/// A foreign text for a log line: bounded, without control characters.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let bounded = &text[..text.floor_char_boundary(LIMIT.min(text.len()))];
    if bounded.chars().any(char::is_control) {
        Cow::Owned(bounded.replace(char::is_control, "\u{fffd}"))
    } else {
        Cow::Borrowed(bounded)
    }
}

/// An error with all its causes, for the one line that tells of it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    printable(&text).into_owned()
}
