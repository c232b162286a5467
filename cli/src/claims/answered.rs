//! What is said to one who did not get the key.

use firstclaim::{Answer, Outcome};

use super::duration::about;
use super::exit;
use crate::escape::Quoted;

/// An exit code, and the words that go with it.
pub(super) struct Answered {
    pub(super) code: u8,
    pub(super) text: String,
}

impl Answered {
    /// `store` is what brings a command to the same store, as options.
    pub(super) fn of<T>(outcome: &Outcome<T>, store: &str) -> Self {
        let (key, attempt) = (&outcome.key, outcome.attempt);
        let pasted = pasted(key.as_str());
        let by = outcome.origin.request.as_deref();
        let by = by.map_or_else(String::new, |request| format!(", claimed by {request}"));
        let (code, text) = match &outcome.answer {
            Answer::InProgress {
                activity,
                retry_after,
            } => {
                let doing = activity.as_ref().map(|text| format!(", doing: {text}"));
                let rest = about(*retry_after);
                let text = format!(
                    "in flight: {key}, attempt {attempt}{by}{}; its lease ends in {rest}",
                    doing.unwrap_or_default()
                );
                (exit::IN_FLIGHT, text)
            }
            Answer::Held { .. } => (
                exit::HELD,
                format!(
                    "held: what became of attempt {attempt} of {key}{by} is unknown, and nobody \
                     may take over; a person looks and settles it: firstclaim settle{store} --why \
                     'the reason' --rerun {pasted}, or --forget or --result 'the result' in place \
                     of --rerun",
                ),
            ),
            Answer::Mismatch { stored, given } => (
                exit::MISMATCH,
                format!(
                    "mismatch: {key} is bound to the payload {stored}, and {given} was given; \
                     nothing ran"
                ),
            ),
            Answer::Superseded => (
                exit::SUPERSEDED,
                format!("superseded: somebody else has {key} now, attempt {attempt}{by}"),
            ),
            Answer::ReplayedFailure(failure) => (
                exit::NO,
                format!(
                    "failed already: {key}, attempt {attempt}{by}: {} ({})",
                    failure.message, failure.code
                ),
            ),
            Answer::ResultOmitted(omitted) => (
                exit::NO,
                format!(
                    "done already: {key}, attempt {attempt}{by}; its result of {} bytes is not \
                     here: {}",
                    omitted.bytes, omitted.reason
                ),
            ),
            _ => (
                exit::NO,
                format!(
                    "done already: {key}, attempt {attempt}{by}; to see it: firstclaim get{store} \
                     {pasted}",
                ),
            ),
        };
        Self { code, text }
    }

    /// The same for programs.
    pub(super) fn json<T>(&self, outcome: &Outcome<T>) -> String {
        let mut shown = serde_json::json!({
            "id": outcome.key,
            "outcome": outcome.name(),
            "attempt": outcome.attempt,
            "origin": outcome.origin,
            "exit_code": self.code,
        });
        match &outcome.answer {
            Answer::InProgress {
                activity,
                retry_after,
            } => {
                shown["activity"] = serde_json::json!(activity);
                shown["retry_after_ms"] = serde_json::json!(retry_after.as_millis() as u64);
            }
            Answer::Mismatch { stored, given } => {
                shown["validation"] = serde_json::json!(stored.to_hex());
                shown["given"] = serde_json::json!(given.to_hex());
            }
            Answer::ReplayedFailure(failure) => shown["error"] = serde_json::json!(failure),
            _ => {}
        }
        shown.to_string()
    }
}

/// The key as the last argument of a command that is pasted: one that begins with a hyphen is no
/// option.
fn pasted(key: &str) -> String {
    match key.starts_with('-') {
        true => format!("-- {}", Quoted(key)),
        false => Quoted(key).to_string(),
    }
}
