//! Why the threads server did not do what it was asked for.

use std::time::Duration;

use firstclaim::clock::EpochMillis;

use crate::target::{Class, Refusal, retry_after};

/// Why a call has no result. What the server says in words is in none of them: it is foreign text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// No connection was made.
    #[error("no connection to the threads server")]
    Unreachable,
    /// The answer did not come in time.
    #[error("the threads server did not answer in time")]
    TimedOut,
    /// The connection ended before the answer.
    #[error("the connection to the threads server ended before the answer")]
    CutOff,
    /// There was no time left for a call.
    #[error("no time was left for a call of the threads server")]
    NoTime,
    /// The token could not be read.
    #[error("the token for the threads server could not be read from Secrets Manager")]
    NoToken,
    /// The server can't answer now.
    #[error("the threads server answered {status}")]
    Unwell {
        /// The HTTP status.
        status: u16,
        /// `Retry-After` as it was sent.
        retry_after: Option<String>,
    },
    /// The server refused the caller, or redirects.
    #[error("the threads server answered {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// The server refused the request as it is.
    #[error("the threads server refused the request ({status}{})", shown(*code))]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The JSON-RPC error's code.
        code: Option<i64>,
    },
    /// The tool says that it failed.
    #[error("the tool of the threads server failed")]
    Tool,
    /// The answer is not what the protocol or the tool says.
    #[error("the threads server's answer can't be read: {0}")]
    Malformed(&'static str),
}

fn shown(code: Option<i64>) -> String {
    code.map(|code| format!(", JSON-RPC {code}"))
        .unwrap_or_default()
}

/// The codes from which on a JSON-RPC server says what only it knows; with the one for its own
/// faults they can pass.
const SERVER_CODES: std::ops::RangeInclusive<i64> = -32099..=-32000;

/// The server's own fault.
const INTERNAL: i64 = -32603;

impl ThreadsError {
    /// Whether nothing was done at the server for certain.
    #[must_use]
    pub fn not_done(&self) -> bool {
        match self {
            Self::Unreachable | Self::NoTime | Self::NoToken | Self::Refused { .. } => true,
            Self::Unwell { status, .. } => matches!(status, 425 | 429),
            Self::Rejected { .. } => self.is_misconfigured(),
            Self::TimedOut | Self::CutOff | Self::Tool | Self::Malformed(_) => false,
        }
    }

    /// Whether it will be so until somebody mends a configuration.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Rejected { code, .. } => {
                code.is_none_or(|code| code != INTERNAL && !SERVER_CODES.contains(&code))
            }
            _ => false,
        }
    }

    /// A stable, short name.
    #[must_use]
    pub fn code(&self) -> String {
        match self {
            Self::Unreachable => "threads_connect".to_owned(),
            Self::TimedOut => "threads_timeout".to_owned(),
            Self::CutOff => "threads_reset".to_owned(),
            Self::NoTime => "threads_no_time".to_owned(),
            Self::NoToken => "threads_token_unavailable".to_owned(),
            Self::Unwell { status, .. } | Self::Refused { status } => format!("threads_{status}"),
            Self::Rejected { status, .. } => format!("threads_rejected_{status}"),
            Self::Tool => "threads_tool".to_owned(),
            Self::Malformed(_) => "threads_malformed".to_owned(),
        }
    }

    /// What it means for the event: nothing was done for it, and it comes back.
    pub(crate) fn refusal(&self, now: EpochMillis) -> Refusal {
        let mut refusal = Refusal::unsent(&self.code(), &self.to_string());
        if self.is_misconfigured() {
            refusal.class = Class::Misconfigured;
        }
        if let Self::Unwell {
            retry_after: Some(text),
            ..
        } = self
        {
            refusal.retry_after = retry_after(text, now).map(|wait| wait.min(LONGEST_WISH));
        }
        refusal
    }
}

/// The longest wait that the server can ask for.
const LONGEST_WISH: Duration = Duration::from_secs(60 * 60);

impl From<&reqwest::Error> for ThreadsError {
    fn from(error: &reqwest::Error) -> Self {
        if error.is_connect() || error.is_builder() {
            Self::Unreachable
        } else if error.is_timeout() {
            Self::TimedOut
        } else {
            Self::CutOff
        }
    }
}
