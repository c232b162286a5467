//! Answers: the payload-2.0 response, and the problems that can be told outside.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::door::Outcome;
use crate::sender::Unverified;

/// An HTTP answer; serialises as the response of payload format 2.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The HTTP status.
    pub status_code: u16,
    /// The headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The body: JSON text, except where a sender asked for another.
    pub body: String,
    /// Always false: the body is text.
    pub is_base64_encoded: bool,
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &str, body: String) -> Self {
        let mut response = Self {
            status_code: status,
            headers: BTreeMap::new(),
            body,
            is_base64_encoded: false,
        };
        response.set("content-type", content_type);
        response.set("cache-control", "no-store");
        response.set("x-content-type-options", "nosniff");
        response
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.headers.insert(name.to_owned(), value.into());
    }
}

/// What a refused request is told. Nothing of it comes from inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    MissingKey,
    MalformedKey,
    /// Signature, time stamp or token: which one is not said.
    Unauthorized {
        /// The value of `WWW-Authenticate`.
        challenge: &'static str,
        /// What was not right; only for the log.
        why: Unverified,
    },
    UnknownSender,
    UnknownPath,
    WrongMethod {
        /// The value of `Allow`.
        allow: &'static str,
    },
    InFlight {
        /// The rest of the other request's lease.
        retry_after: Duration,
    },
    TooLarge,
    Mismatch,
    Unavailable {
        /// What could not be reached; only for the log.
        what: &'static str,
    },
}

/// How long a sender is asked to wait when a service could not be reached.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(5);

impl Problem {
    /// What it counts as.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::InFlight { .. } => Outcome::InFlight,
            Self::Mismatch => Outcome::Mismatch,
            Self::Unavailable { .. } => Outcome::Unavailable,
            _ => Outcome::Refused,
        }
    }

    /// The reason for the log.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unauthorized { why, .. } => why.reason(),
            Self::WrongMethod { .. } => "wrong_method",
            Self::Unavailable { what } => what,
            _ => self.name(),
        }
    }

    /// The last part of the problem's type.
    fn name(&self) -> &'static str {
        match self {
            Self::MissingKey => "missing-key",
            Self::MalformedKey => "malformed-key",
            Self::Unauthorized { .. } => "unauthorized",
            Self::UnknownSender => "unknown-sender",
            Self::UnknownPath | Self::WrongMethod { .. } => "unknown-path",
            Self::InFlight { .. } => "in-flight",
            Self::TooLarge => "too-large",
            Self::Mismatch => "mismatch",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::MissingKey | Self::MalformedKey => 400,
            Self::Unauthorized { .. } => 401,
            Self::UnknownSender | Self::UnknownPath => 404,
            Self::WrongMethod { .. } => 405,
            Self::InFlight { .. } => 409,
            Self::TooLarge => 413,
            Self::Mismatch => 422,
            Self::Unavailable { .. } => 503,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::MissingKey => "The request needs an idempotency key",
            Self::MalformedKey => "The key must have 1 to 255 characters and no control characters",
            Self::Unauthorized { .. } => "The request could not be verified",
            Self::UnknownSender => "There is no such sender",
            Self::UnknownPath => "There is nothing at this path",
            Self::WrongMethod { .. } => "This path does not take this method",
            Self::InFlight { .. } => "The first request with this key is still being accepted",
            Self::TooLarge => "The body is too large",
            Self::Mismatch => "The key was used before with another payload",
            Self::Unavailable { .. } => "The request could not be accepted now; send it again",
        }
    }

    pub(crate) fn into_response(self) -> Response {
        let body = json!({
            "type": format!("urn:firstclaim:problem:{}", self.name()),
            "title": self.title(),
            "status": self.status(),
        });
        let mut response =
            Response::new(self.status(), "application/problem+json", body.to_string());
        match self {
            Self::Unauthorized { challenge, .. } => response.set("www-authenticate", challenge),
            Self::WrongMethod { allow } => response.set("allow", allow),
            Self::InFlight { retry_after } => {
                response.set("retry-after", whole_seconds(retry_after));
            }
            Self::Unavailable { .. } => response.set("retry-after", whole_seconds(UNAVAILABLE_FOR)),
            _ => {}
        }
        response
    }
}

/// `Retry-After`: whole seconds, rounded up, from 1 to 60.
fn whole_seconds(wait: Duration) -> String {
    let up = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(up).clamp(1, 60).to_string()
}
