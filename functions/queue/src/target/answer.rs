//! What the target's answers mean.

use std::fmt;
use std::time::Duration;

use aws_smithy_types::date_time::{DateTime, Format};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use serde::{Deserialize, Serialize};

/// The longest body of an answer that is stored, in bytes. The operation is done with a longer one
/// too; then the result says so in place of the body.
pub const ANSWER_LIMIT: usize = 64 * 1024;

/// The result of an operation: the target's answer, as it is stored and replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The status, 200 to 299.
    pub status: u16,
    /// The answer's content type.
    pub content_type: Option<String>,
    /// The body, where it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Why there is no body, where it was too long to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_omitted: Option<String>,
}

impl Applied {
    /// The result for an answer; `body` is `None` where it was longer than [`ANSWER_LIMIT`].
    pub(super) fn new(status: u16, content_type: Option<String>, body: Option<Vec<u8>>) -> Self {
        let mut applied = Self {
            status,
            content_type,
            body: None,
            body_base64: None,
            body_omitted: None,
        };
        match body.map(String::from_utf8) {
            Some(Ok(text)) => applied.body = Some(text),
            Some(Err(bytes)) => applied.body_base64 = Some(STANDARD.encode(bytes.as_bytes())),
            None => applied.body_omitted = Some(format!("longer than {ANSWER_LIMIT} bytes")),
        }
        applied
    }
}

/// What a refusal means for the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The target will never take this event.
    Permanent,
    /// Nothing was done; later it may be.
    DidNotHappen,
    /// Nobody knows whether it was done.
    Unknown,
    /// The target refused the call, not the event: an expired token, a wrong path, a redirect. It
    /// did not happen (a target that has done its work must say so by a 2xx), and it can succeed
    /// once the configuration is mended.
    Misconfigured,
}

/// An operation that the target did not confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it means.
    pub class: Class,
    /// A stable, short name: `target_503`, `timeout`.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// When the target wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Refusal {
    pub(super) fn status(
        class: Class,
        status: u16,
        excerpt: Option<&str>,
        retry_after: Option<Duration>,
    ) -> Self {
        let said = excerpt.map(|text| format!(": {text}")).unwrap_or_default();
        Self {
            class,
            code: format!("target_{status}"),
            message: format!("the target answered {status}{said}"),
            retry_after,
        }
    }

    /// A stable word for logs and metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self.class {
            Class::Permanent => "permanent",
            Class::Misconfigured => "target_misconfigured",
            Class::DidNotHappen | Class::Unknown => "retryable",
        }
    }

    /// Nothing was sent.
    pub(crate) fn unsent(code: &str, message: &str) -> Self {
        Self::without_answer(Class::DidNotHappen, code, message)
    }

    /// Something may have been sent.
    pub(super) fn unknown(code: &str, message: &str) -> Self {
        Self::without_answer(Class::Unknown, code, message)
    }

    fn without_answer(class: Class, code: &str, message: &str) -> Self {
        Self {
            class,
            code: code.to_owned(),
            message: message.to_owned(),
            retry_after: None,
        }
    }
}

/// What a status means; `None` for success.
pub(super) fn classify(status: u16) -> Option<Class> {
    match status {
        200..=299 => None,
        400 | 410 | 413 | 415 | 422 => Some(Class::Permanent),
        425 | 429 => Some(Class::DidNotHappen),
        408 | 409 | 500..=599 => Some(Class::Unknown),
        _ => Some(Class::Misconfigured),
    }
}

/// Reads `Retry-After`: whole seconds, or a date.
#[must_use]
pub fn retry_after(text: &str, now: EpochMillis) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number are a very long time.
        return Some(Duration::from_secs(
            text.parse().unwrap_or(u64::from(u32::MAX)),
        ));
    }
    let date = DateTime::from_str(text, Format::HttpDate).ok()?;
    Some(EpochMillis(date.to_millis().ok()?).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n35_every_status_has_one_meaning() {
        let permanent = [400, 410, 413, 415, 422];
        let did_not_happen = [425, 429];
        let unknown = [408, 409];
        for status in 100..=999 {
            let expected = match status {
                200..=299 => None,
                _ if permanent.contains(&status) => Some(Class::Permanent),
                _ if did_not_happen.contains(&status) => Some(Class::DidNotHappen),
                _ if unknown.contains(&status) => Some(Class::Unknown),
                500..=599 => Some(Class::Unknown),
                _ => Some(Class::Misconfigured),
            };
            assert_eq!(classify(status), expected, "{status}");
        }
        for status in [401, 403, 404, 405, 407, 301, 302, 303, 307, 308] {
            assert_eq!(classify(status), Some(Class::Misconfigured), "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = EpochMillis(1_794_478_868_000);
        let seconds = |text| retry_after(text, now).map(|left| left.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(
            seconds("99999999999999999999999"),
            Some(u64::from(u32::MAX))
        );
        assert_eq!(seconds("Thu, 12 Nov 2026 10:22:08 GMT"), Some(60));
        assert_eq!(seconds("Thu, 12 Nov 2020 10:22:08 GMT"), Some(0));
        for wrong in ["", "-1", "1.5", "soon", "Thu, 99 Nov 2026 10:22:08 GMT"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_result_keeps_text_as_text_and_the_rest_in_base64() -> Result<(), serde_json::Error> {
        let json = |body| serde_json::to_string(&Applied::new(201, None, body));
        assert_eq!(
            json(Some(b"ok".to_vec()))?,
            r#"{"status":201,"content_type":null,"body":"ok"}"#
        );
        assert_eq!(
            json(Some(vec![0xff]))?,
            r#"{"status":201,"content_type":null,"body_base64":"/w=="}"#
        );
        assert_eq!(
            json(None)?,
            r#"{"status":201,"content_type":null,"body_omitted":"longer than 65536 bytes"}"#
        );
        Ok(())
    }
}
