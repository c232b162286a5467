//! What a record answers to a request that does not own it.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Claims;
use super::kept;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::{Answer, MESSAGE_LIMIT, Outcome, StoredFailure, bounded};
use crate::protocol::Verdict;
use crate::record::{Data, Omitted, Record, Status};
use crate::store::{Store, StoreError};

/// The wait that is advised where a record tells no lease.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

impl<S: Store> Claims<S> {
    /// The JSON text of a record's result or remembered failure, for those who read a record and
    /// don't claim its key. A large one costs one more read. `None` where there is none, or where
    /// it could not be kept.
    ///
    /// # Errors
    ///
    /// The store could not answer.
    pub async fn result(&self, record: &Record) -> Result<Option<String>, StoreError> {
        Ok(match &record.data {
            Some(Data::Inline(text)) => Some(text.clone()),
            Some(Data::Companion { id, note }) => self.companion(id, note).await?,
            Some(Data::Omitted(_)) | None => None,
        })
    }

    /// The outcome that `record` gives. A large result costs one more read.
    pub(super) async fn answer(
        &self,
        key: Key,
        verdict: Verdict,
        record: &Record,
        given: Option<Fingerprint>,
    ) -> Result<Outcome<String>, StoreError> {
        let now = self.now();
        let answer = match (verdict, differs(record, given)) {
            (Verdict::Mismatch, Some((stored, given))) => Answer::Mismatch { stored, given },
            (Verdict::Final, _) => self.final_answer(record).await?,
            (Verdict::InProgress, _) => Answer::InProgress {
                activity: record
                    .activity
                    .as_ref()
                    .map(|activity| activity.text.clone()),
                retry_after: record.lease.map_or(UNKNOWN_WAIT, |end| end.since(now)),
            },
            (Verdict::Held, _) => Answer::Held {
                since: record.lease.filter(|lease| lease.0 > 1),
            },
            // The winner's result is the loser's answer, unless it answers another payload.
            (Verdict::Superseded, None)
                if record.status != Status::InProgress && record.in_window(now) =>
            {
                self.final_answer(record).await?
            }
            (Verdict::Superseded | Verdict::Mismatch, _) => Answer::Superseded,
        };
        Ok(Outcome {
            key,
            attempt: record.attempt,
            origin: record.origin.clone(),
            answer,
            dropped: false,
        })
    }

    async fn final_answer(&self, record: &Record) -> Result<Answer<String>, StoreError> {
        let text = match &record.data {
            Some(Data::Inline(text)) => text.clone(),
            // Another tool stores nothing for an empty result.
            None => "null".to_owned(),
            Some(Data::Omitted(omitted)) => return Ok(without_content(record, omitted.clone())),
            Some(Data::Companion { id, note }) => match self.companion(id, note).await? {
                Some(text) => text,
                None => {
                    let omitted = Omitted {
                        reason: "its companion item is missing or damaged".to_owned(),
                        ..note.clone()
                    };
                    return Ok(without_content(record, omitted));
                }
            },
        };
        if record.status == Status::Completed {
            return Ok(Answer::Replayed(text));
        }
        let failure = serde_json::from_str(&text).unwrap_or_else(|_| StoredFailure {
            code: "unreadable".to_owned(),
            message: bounded(&text, MESSAGE_LIMIT),
        });
        Ok(Answer::ReplayedFailure(failure))
    }

    async fn companion(&self, id: &str, note: &Omitted) -> Result<Option<String>, StoreError> {
        let packed = self.store.companion(id).await?;
        Ok(packed.and_then(|packed| kept::unpack(&packed, note)))
    }
}

/// The answer of a final record whose content is not there. A failure stays one.
fn without_content(record: &Record, omitted: Omitted) -> Answer<String> {
    if record.status == Status::Completed {
        return Answer::ResultOmitted(omitted);
    }
    let Omitted { bytes, reason, .. } = omitted;
    let message = format!("its description of {bytes} bytes is not here: {reason}");
    Answer::ReplayedFailure(StoredFailure {
        code: "omitted".to_owned(),
        message: bounded(&message, MESSAGE_LIMIT),
    })
}

/// The two payloads, where the record is bound to another one than was given.
pub(super) fn differs(
    record: &Record,
    given: Option<Fingerprint>,
) -> Option<(Fingerprint, Fingerprint)> {
    match (record.fingerprint, given) {
        (Some(stored), Some(given)) if stored != given && record.owner.is_some() => {
            Some((stored, given))
        }
        _ => None,
    }
}

impl Outcome<String> {
    /// Reads the JSON text of a record's answer as a `T`. One that can't be read as that becomes
    /// [`Answer::ResultOmitted`]: the operation was done, and must not run again for it.
    ///
    /// For answers that come from a record only: the text of a `Performed` could be no JSON.
    pub(super) fn typed<T: DeserializeOwned>(self) -> Outcome<T> {
        let answer = match self.answer {
            Answer::Replayed(text) => match serde_json::from_str(&text) {
                Ok(value) => Answer::Replayed(value),
                Err(error) => Answer::ResultOmitted(kept::note(
                    &text,
                    &format!("not of the asked type: {error}"),
                )),
            },
            Answer::ReplayedFailure(failure) => Answer::ReplayedFailure(failure),
            Answer::InProgress {
                activity,
                retry_after,
            } => Answer::InProgress {
                activity,
                retry_after,
            },
            Answer::Held { since } => Answer::Held { since },
            Answer::Mismatch { stored, given } => Answer::Mismatch { stored, given },
            Answer::ResultOmitted(omitted) => Answer::ResultOmitted(omitted),
            // A record never says these two of a result.
            Answer::Superseded | Answer::Performed(_) | Answer::NotRecorded(_) => {
                Answer::Superseded
            }
        };
        Outcome {
            key: self.key,
            attempt: self.attempt,
            origin: self.origin,
            answer,
            dropped: self.dropped,
        }
    }
}
