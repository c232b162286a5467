//! What holds for all claims of a process, checked at construction.

use std::time::Duration;

use crate::record::Policy;

/// One day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The most that `inline_limit` may be: well below the 400 KB that an item has.
const INLINE_LIMIT: usize = 128 * 1024;

/// What holds for all claims of a process. A single claim can narrow some of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a finished record answers duplicates. Default 31 days: longer than any large
    /// sender redelivers, and longer than a queue and its dead-letter queue keep a message.
    pub window: Duration,
    /// How far clocks may differ, and how late a killed worker may still act. Added to a deadline
    /// to make the lease. Default 2 s.
    pub grace: Duration,
    /// The least time that must be left to start an operation; with less, nothing is claimed.
    /// Default 0: even with no time left a lease is written.
    pub min_remaining: Duration,
    /// What may happen after a crash or an unknown outcome. Default [`Policy::Rerun`].
    pub policy: Policy,
    /// The longest lease that any claim may ask for. Default 16 minutes: a Lambda's longest run, the
    /// grace behind it, and clocks that differ. The window must be longer.
    pub longest_lease: Duration,
    /// After how many attempts in a row that ended without a word (the process was killed each
    /// time) nobody takes over any more and a person decides. Default 5.
    pub silent_limit: u32,
    /// The longest result that is kept in the record itself, in bytes of JSON text; larger ones go
    /// into a companion item. Every refused duplicate is billed by the record's size. Default
    /// 2 KiB, at most 128 KiB.
    pub inline_limit: usize,
    /// How many bytes of final records a process remembers. Default 1 MiB; 0 remembers nothing.
    pub cache_bytes: usize,
    /// How long a process remembers a final record: after that, a settle made elsewhere shows.
    /// Default 10 s.
    pub cache_age: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: 31 * DAY,
            grace: Duration::from_secs(2),
            min_remaining: Duration::ZERO,
            policy: Policy::Rerun,
            longest_lease: Duration::from_secs(16 * 60),
            silent_limit: 5,
            inline_limit: 2 * 1024,
            cache_bytes: 1024 * 1024,
            cache_age: Duration::from_secs(10),
        }
    }
}

/// What is wrong with a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A record could end before its lease.
    #[error("window {window:?} must be longer than the longest lease {lease:?}")]
    Window {
        /// The window.
        window: Duration,
        /// The longest lease.
        lease: Duration,
    },
    /// No attempt at all would be allowed.
    #[error("silent_limit is 0; at least one attempt must be allowed")]
    SilentLimit,
    /// No lease would be long enough to work under it.
    #[error(
        "grace {grace:?} and min_remaining {floor:?} leave nothing of the longest lease {lease:?}"
    )]
    NoTime {
        /// The grace.
        grace: Duration,
        /// The least time that must be left.
        floor: Duration,
        /// The longest lease.
        lease: Duration,
    },
    /// An item would have no room left for its checkpoints.
    #[error(
        "inline_limit {given} is more than {INLINE_LIMIT} bytes; larger results have an item of their own"
    )]
    InlineLimit {
        /// What was given, in bytes.
        given: usize,
    },
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.window <= self.longest_lease {
            return Err(ConfigError::Window {
                window: self.window,
                lease: self.longest_lease,
            });
        }
        if self.silent_limit == 0 {
            return Err(ConfigError::SilentLimit);
        }
        if self.grace.saturating_add(self.min_remaining) >= self.longest_lease {
            return Err(ConfigError::NoTime {
                grace: self.grace,
                floor: self.min_remaining,
                lease: self.longest_lease,
            });
        }
        if self.inline_limit > INLINE_LIMIT {
            return Err(ConfigError::InlineLimit {
                given: self.inline_limit,
            });
        }
        Ok(())
    }
}
