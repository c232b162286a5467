//! What a request for a key ends with.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::EpochMillis;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::record::{Omitted, Origin, Policy};

/// The longest message of a failure that is stored, in bytes.
pub const MESSAGE_LIMIT: usize = 1024;

/// What a request for a key ended with, and whose answer it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// The key.
    pub key: Key,
    /// The attempt that the answer speaks of: one's own where its result is the answer, else the
    /// record's.
    pub attempt: u32,
    /// Who claimed the key first, so that a log can name the winner.
    pub origin: Origin,
    /// The answer itself.
    pub answer: Answer<T>,
    /// Whether this request held the key and was overtaken before it could record its end: its
    /// operation ran (or its inspection found something), and what came of it was dropped. The
    /// answer is then that of the new owner: its result, or [`Answer::Superseded`] while it has
    /// none. The effect may have happened twice; what was dropped is logged by its digest.
    pub dropped: bool,
}

/// The answer to a request for a key. Where it says that nothing ran, it speaks of this request;
/// only where the outcome says [`dropped`](Outcome::dropped), something did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer<T> {
    /// The operation ran here, now, and its result is stored.
    Performed(T),
    /// The operation had been done before; this is its stored result. Nothing ran.
    Replayed(T),
    /// The operation had failed for good before; this is the remembered failure. Nothing ran.
    ReplayedFailure(StoredFailure),
    /// Somebody is at it. Nothing ran.
    InProgress {
        /// What the owner says it is doing.
        activity: Option<String>,
        /// The rest of its lease: asking earlier is of no use.
        retry_after: Duration,
    },
    /// The last attempt ended without a known outcome, and the policy forbids a takeover: a person
    /// or an `inspect` settles it. Nothing ran.
    Held {
        /// Since when nobody works on it; `None` where it was given up on purpose.
        since: Option<EpochMillis>,
    },
    /// The key is bound to another payload. Nothing ran.
    Mismatch {
        /// The payload that the key is bound to.
        stored: Fingerprint,
        /// The payload that was given.
        given: Fingerprint,
    },
    /// Another owner has taken the key over and has no result yet. Whether the operation ran here
    /// says [`Outcome::dropped`].
    Superseded,
    /// The operation ran here, or its inspection found that it had been done, but the result could
    /// not be recorded: once the lease has lapsed, the policy decides whether it runs again.
    NotRecorded(T),
    /// The operation had been done before, but its result could not be kept, or can't be read as
    /// what was asked for (JSON has no NaN and no infinities). Nothing ran.
    ResultOmitted(Omitted),
}

impl<T> Outcome<T> {
    /// A stable word for logs and metrics: `superseded` also where the new owner's result is the
    /// answer.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.dropped {
            return "superseded";
        }
        match self.answer {
            Answer::Performed(_) => "performed",
            Answer::Replayed(_) => "replayed",
            Answer::ReplayedFailure(_) => "replayed_failure",
            Answer::InProgress { .. } => "in_flight",
            Answer::Held { .. } => "held",
            Answer::Mismatch { .. } => "mismatch",
            Answer::Superseded => "superseded",
            Answer::NotRecorded(_) => "not_recorded",
            Answer::ResultOmitted(_) => "result_omitted",
        }
    }

    /// The result, whether it was made here or replayed.
    pub fn into_result(self) -> Option<T> {
        match self.answer {
            Answer::Performed(value) | Answer::Replayed(value) | Answer::NotRecorded(value) => {
                Some(value)
            }
            _ => None,
        }
    }
}

/// A failure that was stored to answer every duplicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFailure {
    /// A stable, short name of the kind of failure.
    pub code: String,
    /// What happened, at most [`MESSAGE_LIMIT`] bytes.
    pub message: String,
}

/// How an operation failed: what that means for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It will never succeed: the failure is stored and replayed.
    Permanent,
    /// It did not happen (refused before anything was done): released under both policies.
    DidNotHappen,
    /// Nobody knows whether it happened: released under `rerun`, suspended under `hold`.
    Unknown,
}

impl Ending {
    /// Whether the key is given back for another attempt under `policy`.
    #[must_use]
    pub fn releases(self, policy: Policy) -> bool {
        match self {
            Self::Permanent => false,
            Self::DidNotHappen => true,
            Self::Unknown => policy == Policy::Rerun,
        }
    }
}

/// The error of an operation, with what it means for the key. An error that is turned into one by
/// `?` is [`Ending::Unknown`]: the careful reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<E> {
    /// What it means.
    pub ending: Ending,
    /// A stable, short name of the kind of failure, kept in the record.
    pub code: String,
    /// The operation's own error, which the caller gets back.
    pub error: E,
}

impl<E> Failure<E> {
    /// It will never succeed; the failure is stored and answers every duplicate.
    pub fn permanent(code: impl Into<String>, error: E) -> Self {
        Self {
            ending: Ending::Permanent,
            code: code.into(),
            error,
        }
    }

    /// It did not happen; the next request may run it under either policy.
    pub fn did_not_happen(code: impl Into<String>, error: E) -> Self {
        Self {
            ending: Ending::DidNotHappen,
            code: code.into(),
            error,
        }
    }

    /// Nobody knows whether it happened.
    pub fn unknown(code: impl Into<String>, error: E) -> Self {
        Self {
            ending: Ending::Unknown,
            code: code.into(),
            error,
        }
    }
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Self::unknown("error", error)
    }
}

/// `text` cut to at most `limit` bytes at a character's border.
pub(crate) fn bounded(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit.min(text.len()))].to_owned()
}
