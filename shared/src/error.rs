//! Why a claim, a step or a run could not be had.

use std::fmt;
use std::time::Duration;

use crate::outcome::Failure;
use crate::store::StoreError;

/// Why a key could not be claimed. The operation did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The store could not answer. Fail closed: nothing ran. (A claim whose reply was lost may
    /// stand; it lapses with its lease.)
    #[error("the key could not be claimed, so the operation did not run")]
    Store(#[from] StoreError),
    /// Neither a lease nor a deadline is known.
    #[error(
        "no lease: call `.lease(…)` or `.deadline(…)`, or run inside an invocation's scope (the \
         Lambda layer does)"
    )]
    NoLease,
    /// A longer lease than the configuration allows.
    #[error("a lease of {asked:?} is longer than the configured longest_lease {longest:?}")]
    LongLease {
        /// What was asked for.
        asked: Duration,
        /// The configured limit.
        longest: Duration,
    },
    /// A lease that the grace leaves nothing of.
    #[error("a lease of {asked:?} is not longer than the grace {grace:?}")]
    ShortLease {
        /// What was asked for.
        asked: Duration,
        /// The configured grace.
        grace: Duration,
    },
    /// A window that could end before the lease.
    #[error("a window of {asked:?} is not longer than the configured longest_lease {longest:?}")]
    ShortWindow {
        /// What was asked for.
        asked: Duration,
        /// The configured longest lease.
        longest: Duration,
    },
    /// The own clock and the service's differ by more than the grace: leases would mean nothing.
    /// Only claims with a [`lease`](crate::Once::lease) look; an invocation's deadline comes from
    /// the platform's clock.
    #[error(
        "this machine's clock is off by {off_by_ms} ms from the store's, more than the grace \
         {grace:?}; set it, or raise the grace"
    )]
    Clock {
        /// Own time less the service's, in milliseconds, to a second's precision.
        off_by_ms: i64,
        /// The configured grace.
        grace: Duration,
    },
    /// Too little time is left to run the operation.
    #[error("{remaining:?} are left, too little to run the operation; the floor is {floor:?}")]
    NoTime {
        /// What is left.
        remaining: Duration,
        /// The configured floor.
        floor: Duration,
    },
}

/// Why an operation must not be entered. Nothing of it has happened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The claim had ended, in any way.
    #[error("the claim was lost before the operation was entered")]
    Lost,
    /// Another owner has the key now.
    #[error("the key has another owner; the operation was not entered")]
    Superseded,
    /// The store did not answer, so that nobody would know that the operation was entered.
    #[error("that the operation is entered could not be recorded, so it was not")]
    Store(#[source] StoreError),
}

/// Why a step has no value. The caller's error type must be able to hold it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The step's name is empty, longer than 64 bytes, or has a control character in it.
    #[error("a step's name has 1 to 64 bytes and no control characters; found {0:?}")]
    Name(String),
    /// The claim had ended, in any way, before the step began. The step did not run.
    #[error("the claim was lost before step `{0}`, so the step did not run")]
    Lost(String),
    /// That the operation is entered could not be recorded, for a claim that
    /// [promised to](crate::Once::marks_entry). The step did not run.
    #[error("that the operation is entered could not be recorded, so step `{name}` did not run")]
    NotEntered {
        /// The step.
        name: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The record has no room for another step. The step did not run.
    #[error("the record has no room for step `{0}`, so the step did not run")]
    Full(String),
    /// The step ran, here or in another call, and the claim was lost before its value was recorded.
    #[error("the claim was lost during step `{0}`")]
    Superseded(String),
    /// The step ran, and its value is too large to keep.
    #[error("the value of step `{name}` has {bytes} bytes of JSON; at most {limit} are kept")]
    TooLarge {
        /// The step.
        name: String,
        /// The size of its value.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The step ran, and its value can't be written as JSON.
    #[error("the value of step `{name}` can't be written as JSON")]
    Unserialisable {
        /// The step.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The step ran before in this attempt, and its value can't be kept: it was told then, and it
    /// does not run again.
    #[error("step `{0}` has run in this attempt, and its value can't be kept")]
    NotKept(String),
    /// The stored value of the step is not of the asked type. The step did not run again.
    #[error("the stored value of step `{name}` is not of the asked type")]
    Unreadable {
        /// The step.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The step ran, and the store did not answer. Another call of it in this attempt sends its
    /// value again.
    #[error("step `{name}` ran, but its value could not be recorded")]
    Store {
        /// The step.
        name: String,
        /// Why.
        #[source]
        source: StoreError,
    },
}

/// Why [`Once::run`](crate::Once::run) has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E: fmt::Debug + fmt::Display> {
    /// The key could not be claimed; the operation did not run.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The operation's own error. How the key was left is in the record, unless `dropped` or `record`
    /// says otherwise.
    #[error("the operation failed ({}): {}", failure.code, failure.error)]
    Operation {
        /// What the operation returned.
        failure: Failure<E>,
        /// The attempt.
        attempt: u32,
        /// Whether somebody else has the key by now: nothing of this end was recorded.
        dropped: bool,
        /// Why its end could not be recorded; the lease is then left to lapse.
        record: Option<StoreError>,
    },
}
