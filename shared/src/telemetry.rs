//! What is said about every claim: a span while it is held, and one event for each answer, with key,
//! attempt and outcome.
//!
//! Events have the target `firstclaim::outcome`, so that a subscriber can show just them.

use std::time::Duration;

use tracing::Span;

use crate::invocation::Invocation;
use crate::key::Key;
use crate::outcome::{Ending, Outcome};
use crate::store::StoreError;

/// The span of a claim that is held: the operation's own log lines carry its key and attempt. It
/// has the names of the invocation too, called as the Lambda runtime's own span calls them: a log
/// that shows only the innermost span keeps them. Its outcome is recorded when it ends.
pub(crate) fn span(key: &Key, attempt: u32) -> Span {
    let invocation = Invocation::current();
    let invocation = invocation.as_ref();
    tracing::info_span!(
        target: "firstclaim::claim",
        "claim",
        key = key.as_str(),
        attempt,
        outcome = tracing::field::Empty,
        requestId = invocation.and_then(|it| it.request.as_deref()),
        xrayTraceId = invocation.and_then(|it| it.trace.as_deref()),
    )
}

pub(crate) fn outcome<T>(outcome: &Outcome<T>, took: Duration) {
    tracing::info!(
        target: "firstclaim::outcome",
        key = outcome.key.as_str(),
        attempt = outcome.attempt,
        outcome = outcome.name(),
        ms = millis(took),
        winner_function = outcome.origin.function.as_deref(),
        winner_request = outcome.origin.request.as_deref(),
        winner_event = outcome.origin.event.as_deref(),
    );
}

/// The word for how an operation failed.
pub(crate) fn word(ending: Ending) -> &'static str {
    match ending {
        Ending::Permanent => "failed",
        Ending::DidNotHappen => "did_not_happen",
        Ending::Unknown => "unknown",
    }
}

pub(crate) fn failed(key: &Key, attempt: u32, ending: Ending, code: &str, took: Duration) {
    let outcome = word(ending);
    tracing::warn!(
        target: "firstclaim::outcome",
        key = key.as_str(),
        attempt,
        outcome,
        code,
        ms = millis(took),
    );
}

/// The operation ran, but somebody else's result stands: what was dropped, by digest.
pub(crate) fn dropped(key: &Key, attempt: u32, sha256: &str) {
    tracing::warn!(
        target: "firstclaim::claim",
        key = key.as_str(),
        attempt,
        sha256,
        "superseded: the result of this attempt was dropped",
    );
}

/// A release or suspension came too late: somebody else has the key.
pub(crate) fn changed_nothing(key: &Key, attempt: u32) {
    tracing::warn!(
        target: "firstclaim::claim",
        key = key.as_str(),
        attempt,
        "superseded: giving the key up changed nothing",
    );
}

/// The operation ran, but that could not be written.
pub(crate) fn not_recorded(key: &Key, attempt: u32, error: &StoreError) {
    tracing::error!(
        target: "firstclaim::claim",
        key = key.as_str(),
        attempt,
        error = error as &dyn std::error::Error,
        "the operation ran, but its result could not be recorded",
    );
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
