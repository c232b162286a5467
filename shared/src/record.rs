//! The record: the one item for a key, as plain data.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;

/// The lease of a record that was released on purpose.
pub const RELEASED: EpochMillis = EpochMillis(0);

/// The lease of a record that was suspended: lapsed at once, but not released.
pub const SUSPENDED: EpochMillis = EpochMillis(1);

/// A random token, minted once per claim call: the right to write. Its `Debug` hides it, and it has
/// no `Display`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(String);

impl Owner {
    /// Wraps a token that came from [`Source::token`](crate::clock::Source::token) or was handed
    /// over by its holder.
    #[must_use]
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The token itself, for the one place that writes it to the record (or hands it to a child
    /// process).
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(…)")
    }
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Status {
    /// Claimed, and neither completed nor failed. Whether somebody works on it says the lease.
    InProgress,
    /// Done; the result answers every duplicate.
    Completed,
    /// Failed for good; the remembered failure answers every duplicate.
    Failed,
}

impl Status {
    /// The text in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "INPROGRESS",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// Reads the text in the record.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::InProgress, Self::Completed, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// What may happen after a crash or an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Policy {
    /// The next request takes over and runs the operation again.
    #[default]
    Rerun,
    /// Nobody takes over: a person or an `inspect` settles it.
    Hold,
}

/// What the owner says it is doing. For people only: never read to decide anything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Activity {
    /// One line.
    pub text: String,
    /// When it was said.
    pub at: EpochMillis,
}

/// The failure of an attempt that did not finish the operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptError {
    /// A stable, short name of the kind of failure.
    pub code: String,
    /// What happened, bounded.
    pub message: String,
    /// Which attempt.
    pub attempt: u32,
}

/// Who claimed the key first, and for which event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The function or program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The invocation's request id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The trace id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The id of the event that led to the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// Who settled the record by hand, when and why.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Settled {
    /// A person or program.
    pub who: String,
    /// When.
    pub at: EpochMillis,
    /// The reason that was given.
    pub why: String,
    /// The attempt number that the settle took.
    pub attempt: u32,
}

/// A result that could not be kept: what is known of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Omitted {
    /// Its size in bytes of JSON text; 0 where it could not be written as JSON.
    pub bytes: u64,
    /// The SHA-256 of the JSON text in hex; empty where there was none.
    pub sha256: String,
    /// Why it is not there.
    pub reason: String,
}

/// The result or the remembered failure, as it stands in the record. Its `Debug` hides the id of a
/// companion, which carries its owner's token.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Data {
    /// JSON text, byte for byte as it was first serialised.
    Inline(String),
    /// In a companion item, compressed.
    Companion {
        /// The companion's id.
        id: String,
        /// What the companion must unpack to.
        note: Omitted,
    },
    /// Not kept.
    Omitted(Omitted),
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(text) => f.debug_tuple("Inline").field(text).finish(),
            Self::Companion { id: _, note } => f
                .debug_struct("Companion")
                .field("id", &format_args!("…"))
                .field("note", note)
                .finish(),
            Self::Omitted(note) => f.debug_tuple("Omitted").field(note).finish(),
        }
    }
}

/// The record of one key, read leniently: attributes that another tool left out are `None`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Record {
    /// The `id` attribute: [`Key::stored`](crate::Key::stored).
    pub id: String,
    /// Where the operation stands.
    pub status: Status,
    /// The end of the window. Missing in a foreign record: never claimable.
    pub expiration: Option<EpochSeconds>,
    /// The end of the lease, while in progress. Missing on a record in progress: locked until
    /// `expiration`.
    pub lease: Option<EpochMillis>,
    /// Who may write. Missing: written by another tool.
    pub owner: Option<Owner>,
    /// The fencing number inside the window.
    pub attempt: u32,
    /// As its owner claimed it.
    pub policy: Policy,
    /// The attempt that has said, under `hold`, that it has not entered its operation yet: what it
    /// leaves behind may run again. Any other number says nothing.
    pub unentered: Option<u32>,
    /// Enters the downstream key; raised by a settle that asks for it.
    pub generation: u32,
    /// The payload that the key is bound to.
    pub fingerprint: Option<Fingerprint>,
    /// The result or the remembered failure.
    pub data: Option<Data>,
    /// Durable intermediate results: name to JSON text.
    pub checkpoints: BTreeMap<String, String>,
    /// Live intent.
    pub activity: Option<Activity>,
    /// The failure of the last attempt that said so.
    pub error: Option<AttemptError>,
    /// Who claimed first.
    pub origin: Origin,
    /// Who settled it.
    pub settled: Option<Settled>,
}

impl Record {
    /// Whether somebody is presumed to work on it: in progress, and the lease ends after `now`.
    #[must_use]
    pub fn running(&self, now: EpochMillis) -> bool {
        self.status == Status::InProgress && self.lease.is_some_and(|lease| lease > now)
    }

    /// Whether its window is open: `expiration` is not before the whole second of `now`. A record
    /// without an end is never over.
    #[must_use]
    pub fn in_window(&self, now: EpochMillis) -> bool {
        self.expiration.is_none_or(|end| end >= now.seconds())
    }

    /// Whether its last owner gave it back on purpose.
    #[must_use]
    pub fn released(&self) -> bool {
        self.status == Status::InProgress && self.lease == Some(RELEASED)
    }

    /// Whether its last owner has promised to say so before it enters the operation, and has not
    /// said so: nothing ran in this attempt.
    #[must_use]
    pub fn untouched(&self) -> bool {
        self.status == Status::InProgress && self.unentered == Some(self.attempt)
    }

    /// How many attempts in a row ended without a word: crashes, since the last failure that was
    /// told or the last settle.
    #[must_use]
    pub fn silent_attempts(&self) -> u32 {
        let told = self.error.as_ref().map_or(0, |error| error.attempt);
        let settled = self.settled.as_ref().map_or(0, |settled| settled.attempt);
        self.attempt.saturating_sub(told.max(settled))
    }
}
