//! The store: two calls, and what holds after each.

use std::future::Future;
use std::time::Duration;

use crate::clock::EpochSeconds;
use crate::protocol::Write;
use crate::record::Record;

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;

/// Where records live.
///
/// A store carries out [`Write`]s atomically under their conditions and reads records. It decides
/// nothing and repeats only what is safe to repeat: every write is, because it names the owner it
/// expects (or makes).
pub trait Store: Clone + Send + Sync + 'static {
    /// Carries out one conditional write on the record `id`.
    ///
    /// After `Applied`, the write stands in the store. After `Refused`, it does not, unless an
    /// earlier copy of it did (the reply was lost): the record that comes back tells. After an
    /// error nothing is known: the write may have landed, or land later.
    fn write(
        &self,
        id: &str,
        write: &Write,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Reads the record `id`.
    ///
    /// With [`Read::Consistent`] the answer reflects every write that was acknowledged before the
    /// call; with [`Read::Eventual`] it may be older, at half the price.
    fn read(
        &self,
        id: &str,
        read: Read,
    ) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// [`write`](Self::write), and the service's own time as it said it in its answer; `None` where
    /// it says none. A process compares its clock with it once.
    fn write_timed(
        &self,
        id: &str,
        write: &Write,
    ) -> impl Future<Output = Result<(Written, Option<EpochSeconds>), StoreError>> + Send {
        async { Ok((self.write(id, write).await?, None)) }
    }

    /// Puts a companion: a large result, compressed, under an id of its own that nobody else
    /// writes. After `Ok` a consistent [`companion`](Self::companion) finds it until `expiration`.
    fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Reads a companion, consistently. `None` where there is none.
    fn companion(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It stands. A takeover and a settle bring the record as it is now.
    Applied(Option<Box<Record>>),
    /// Its condition did not hold. The record that it met; `None` where there is none, or where the
    /// engine returns none: a consistent read tells which.
    Refused(Option<Box<Record>>),
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Reflects every write acknowledged before it.
    Consistent,
    /// May be older.
    Eventual,
}

/// Why a store could not answer: one variant per thing that a caller or an operator does
/// differently. Nothing is known of a write that ended so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store limits the rate.
    #[error("the store is throttling {operation} on table {table}")]
    Throttled {
        /// The call.
        operation: &'static str,
        /// The table.
        table: String,
        /// The service's error.
        #[source]
        source: Cause,
    },
    /// No answer: refused connections, time-outs, the service's own failures.
    #[error("the store did not answer {operation} on table {table}")]
    Unavailable {
        /// The call.
        operation: &'static str,
        /// The table.
        table: String,
        /// The client's or service's error.
        #[source]
        source: Cause,
    },
    /// No answer within the time that the claim had left: it was not waited for any longer.
    #[error("the store did not answer within {within:?}, all that the claim had left")]
    Unanswered {
        /// How long it was waited for.
        within: Duration,
    },
    /// The table does not exist.
    #[error(
        "table {table} does not exist in this account and Region; create it or correct the name"
    )]
    NoTable {
        /// The table.
        table: String,
        /// The service's error.
        #[source]
        source: Cause,
    },
    /// The credentials may not do this.
    #[error("{operation} on table {table} is denied; grant dynamodb:{operation}")]
    Denied {
        /// The call.
        operation: &'static str,
        /// The table.
        table: String,
        /// The service's error.
        #[source]
        source: Cause,
    },
    /// The item would be larger than the store takes.
    #[error("the record would be larger than the store takes")]
    TooLarge {
        /// The service's error.
        #[source]
        source: Cause,
    },
    /// The service refuses the request itself: a wrong key schema, for example.
    #[error("the store refused {operation} on table {table}: {message}")]
    Invalid {
        /// The call.
        operation: &'static str,
        /// The table.
        table: String,
        /// What it said.
        message: String,
        /// The service's error.
        #[source]
        source: Cause,
    },
    /// The item in the table can't be read as a record.
    #[error(
        "attribute `{attribute}` of the record {id:?} is {found}; settle or remove the item by hand"
    )]
    Malformed {
        /// The record's id.
        id: String,
        /// Which attribute.
        attribute: &'static str,
        /// What was found.
        found: String,
    },
    /// The write and its record kept changing places with others' until the rounds were used up.
    #[error("the record {id:?} kept changing for {rounds} rounds")]
    Contended {
        /// The record's id.
        id: String,
        /// How often it was tried.
        rounds: u32,
    },
}

/// The error below a [`StoreError`].
pub type Cause = Box<dyn std::error::Error + Send + Sync + 'static>;
