//! The headers of a call.

use std::fmt::Write;

use firstclaim::Key;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::Call;

/// The longest kind or delivery id that is passed on, in bytes.
const TEXT_LIMIT: usize = 1024;

/// The longest trace header that is passed on, in bytes.
const TRACE_LIMIT: usize = 256;

/// Headers of the sender that would change how the call is sent, or that are ours to set.
const OURS: [&str; 16] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "traceparent",
    "tracestate",
    "x-amzn-trace-id",
];

/// All headers of `call`.
pub(super) fn of(call: &Call<'_>, token: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in call.headers {
        // One that can't be sent is left out: it must not keep the event from its target.
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        ) && !OURS.contains(&name.as_str())
            && !name.as_str().starts_with("firstclaim-")
        {
            headers.insert(name, value);
        }
    }
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value)
            && !value.is_empty()
        {
            headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, call.content_type);
    let idempotency_key = format!("\"{}\"", call.downstream_key);
    set(HeaderName::from_static("idempotency-key"), &idempotency_key);
    set(
        HeaderName::from_static("firstclaim-key"),
        &encoded_key(call.key),
    );
    let attempt = call.attempt.to_string();
    set(HeaderName::from_static("firstclaim-attempt"), &attempt);
    set(
        HeaderName::from_static("firstclaim-sender"),
        &visible(call.sender),
    );
    set(
        HeaderName::from_static("firstclaim-kind"),
        &visible(call.kind),
    );
    set(
        HeaderName::from_static("firstclaim-delivery"),
        &visible(call.delivery),
    );
    if let Some(traceparent) = call.trace.and_then(traceparent) {
        set(HeaderName::from_static("traceparent"), &traceparent);
    }
    if let Some(trace) = call.trace.filter(|trace| trace.len() <= TRACE_LIMIT) {
        set(HeaderName::from_static("x-amzn-trace-id"), trace);
    }
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, token.clone());
    }
    headers
}

/// The key, percent-encoded; of one that is too long for a header, the record's id, which is
/// bounded and as unique.
fn encoded_key(key: &Key) -> String {
    percent_encoded(&key.stored(), |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
    })
}

/// A text as it is, but with everything that is no visible ASCII character percent-encoded.
fn visible(text: &str) -> String {
    let bounded = &text[..text.floor_char_boundary(TEXT_LIMIT.min(text.len()))];
    percent_encoded(bounded, |byte| byte.is_ascii_graphic() && byte != b'%')
}

/// A text with every byte percent-encoded that is not `plain`.
pub(crate) fn percent_encoded(text: &str, plain: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text can't fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The W3C form of an X-Ray trace header: `Root=1-<8 hex>-<24 hex>;Parent=<16 hex>;Sampled=1`.
fn traceparent(header: &str) -> Option<String> {
    let field = |name: &str| {
        header.split(';').find_map(|part| {
            let (field, value) = part.trim().split_once('=')?;
            (field == name).then_some(value)
        })
    };
    let hex = |text: &str, length: usize| {
        text.len() == length
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|byte| byte != b'0')
    };
    let (time, random) = field("Root")?.strip_prefix("1-")?.split_once('-')?;
    let parent = field("Parent")?;
    let trace = format!("{time}{random}");
    let flags = if field("Sampled") == Some("1") {
        "01"
    } else {
        "00"
    };
    (time.len() == 8 && hex(&trace, 32) && hex(parent, 16))
        .then(|| format!("00-{trace}-{parent}-{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_percent_encoded_and_bounded() -> Result<(), firstclaim::KeyError> {
        let key = Key::new("github", "o/r:é 1%")?;
        assert_eq!(encoded_key(&key), "github%23o%2Fr%3A%C3%A9%201%25");
        let long = Key::new("queue", "é".repeat(100_000))?;
        let encoded = encoded_key(&long);
        assert!(encoded.len() <= 3 * 1024, "{}", encoded.len());
        assert_ne!(
            encoded,
            encoded_key(&Key::new("queue", "é".repeat(99_999))?)
        );
        Ok(())
    }

    #[test]
    fn texts_can_not_leave_their_header() {
        assert_eq!(visible("orders/create"), "orders/create");
        assert_eq!(visible("a\r\nHost: b%é"), "a%0D%0AHost:%20b%25%C3%A9");
    }

    #[test]
    fn a_trace_header_becomes_a_traceparent() {
        let root = "Root=1-6af5b0d4-f503ccbc3d52af6e56a47a21";
        assert_eq!(
            traceparent(&format!("{root};Parent=f187cebb22cb0444;Sampled=1")).as_deref(),
            Some("00-6af5b0d4f503ccbc3d52af6e56a47a21-f187cebb22cb0444-01")
        );
        assert_eq!(
            traceparent(&format!("Parent=f187cebb22cb0444; {root}")).as_deref(),
            Some("00-6af5b0d4f503ccbc3d52af6e56a47a21-f187cebb22cb0444-00")
        );
        for wrong in [
            "",
            root,
            "Root=1-6af5b0d4-f503;Parent=f187cebb22cb0444",
            "Root=1-6af5b0d4-f503ccbc3d52af6e56a47a21;Parent=0000000000000000",
            "Root=1-6af5b0d4-f503ccbc3d52af6e56a47a2G;Parent=f187cebb22cb0444",
        ] {
            assert_eq!(traceparent(wrong), None, "{wrong}");
        }
    }
}
