//! What callers and the table say, in the words of the rules.

use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::record::{Data, Status};
use firstclaim::{Answer, Fingerprint, Key, Outcome, Record, StoredFailure};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::reference::rules::{self, Entry, Stage};

/// What is compared of a record.
pub(crate) type Compared = (
    Status,
    Option<EpochMillis>,
    Option<EpochSeconds>,
    u32,
    Option<Fingerprint>,
    Option<Data>,
);

pub(crate) fn table_says(record: &Record) -> Compared {
    let data = record.data.clone();
    (
        record.status,
        record.lease,
        record.expiration,
        record.attempt,
        record.fingerprint,
        data,
    )
}

pub(crate) fn rules_say(entry: &Entry) -> Compared {
    let (status, lease, data) = match &entry.stage {
        Stage::Owned { lease, .. } => (Status::InProgress, Some(*lease), None),
        Stage::Released => (Status::InProgress, Some(0), None),
        Stage::Suspended => (Status::InProgress, Some(1), None),
        Stage::Completed(value) => (Status::Completed, None, Some(value.to_string())),
        Stage::Failed => (Status::Failed, None, serde_json::to_string(&failure()).ok()),
    };
    let ends = Some(EpochSeconds(entry.ends));
    let payload = entry.payload.map(fingerprint);
    (
        status,
        lease.map(EpochMillis),
        ends,
        entry.attempt,
        payload,
        data.map(Data::Inline),
    )
}

pub(crate) fn answer(outcome: Outcome<String>) -> Result<rules::Answer, TestCaseError> {
    Ok(match outcome.answer {
        Answer::InProgress { retry_after, .. } => rules::Answer::InProgress {
            rest_ms: i64::try_from(retry_after.as_millis()).unwrap(),
        },
        Answer::Held { .. } => rules::Answer::Held,
        Answer::Mismatch { .. } => rules::Answer::Mismatch,
        Answer::Replayed(text) => rules::Answer::Replayed(text.parse().unwrap()),
        Answer::ReplayedFailure(stored) => {
            prop_assert_eq!(stored, failure());
            rules::Answer::ReplayedFailure
        }
        other => return Err(TestCaseError::fail(format!("a request got {other:?}"))),
    })
}

pub(crate) fn key_of(key: usize) -> Key {
    Key::new("orders", key.to_string()).unwrap()
}

pub(crate) fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::of_raw(&[payload])
}

pub(crate) fn failure() -> StoredFailure {
    StoredFailure {
        code: "refused".to_owned(),
        message: "the card was refused".to_owned(),
    }
}
