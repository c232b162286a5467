//! A store in memory with the full semantics, and a wrapper that makes any store fail.

use std::collections::{HashMap, VecDeque};
use std::future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Read, Store, StoreError, Written};
use crate::clock::EpochSeconds;
use crate::protocol::Write;
use crate::record::Record;

/// Records in memory, shared by clones. It runs the protocol's own conditions, so that it can't
/// drift from them.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    records: Arc<Mutex<HashMap<String, Record>>>,
    companions: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Every record, for a test to look at.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        lock(&self.records).values().cloned().collect()
    }

    /// Puts a record unconditionally, as another tool would.
    pub fn put(&self, record: Record) {
        lock(&self.records).insert(record.id.clone(), record);
    }

    /// Deletes every companion, as the TTL does.
    pub fn remove_companions(&self) {
        lock(&self.companions).clear();
    }

    /// Deletes a record, as the TTL does.
    pub fn remove(&self, id: &str) {
        lock(&self.records).remove(id);
    }
}

impl Store for Memory {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        let mut items = lock(&self.records);
        let found = items.get(id);
        if !write.applies(found) {
            return Ok(Written::Refused(found.cloned().map(Box::new)));
        }
        let after = write.apply(found);
        if let Some(record) = after.clone() {
            items.insert(id.to_owned(), record);
        }
        Ok(Written::Applied(after.map(Box::new)))
    }

    async fn read(&self, id: &str, _read: Read) -> Result<Option<Record>, StoreError> {
        Ok(lock(&self.records).get(id).cloned())
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        _expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        lock(&self.companions).insert(id.to_owned(), packed);
        Ok(())
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(lock(&self.companions).get(id).cloned())
    }
}

/// What a [`Failing`] store does with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Passes it on.
    None,
    /// Does not pass it on, and answers with an error.
    Refuse,
    /// Passes it on and loses the reply: the caller sees an error.
    LoseReply,
    /// Passes a write on twice and gives the second answer, as a client does whose first reply was
    /// lost.
    Repeat,
    /// Passes a write on and withholds the item that a refusal returns, as an older engine does.
    NoItem,
    /// Never answers.
    Hang,
}

/// A wrapper around any store that fails by a plan: one [`Fault`] a call, then none.
#[derive(Clone, Debug)]
pub struct Failing<S> {
    inner: S,
    plan: Arc<Mutex<VecDeque<Fault>>>,
    calls: Arc<AtomicUsize>,
}

impl<S: Store> Failing<S> {
    /// Wraps a store; nothing fails yet.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            plan: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// What happens to the next calls, in order.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.plan).extend(faults);
    }

    /// From now on nothing fails.
    pub fn mend(&self) {
        lock(&self.plan).clear();
    }

    /// How many calls were made, failed ones too.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn next(&self) -> Fault {
        self.calls.fetch_add(1, Ordering::SeqCst);
        lock(&self.plan).pop_front().unwrap_or(Fault::None)
    }
}

impl<S: Store> Store for Failing<S> {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        match self.next() {
            Fault::Hang => future::pending().await,
            Fault::None => self.inner.write(id, write).await,
            Fault::Refuse => Err(planned()),
            Fault::LoseReply => {
                self.inner.write(id, write).await?;
                Err(planned())
            }
            Fault::Repeat => {
                self.inner.write(id, write).await?;
                self.inner.write(id, write).await
            }
            Fault::NoItem => match self.inner.write(id, write).await? {
                Written::Refused(_) => Ok(Written::Refused(None)),
                applied @ Written::Applied(_) => Ok(applied),
            },
        }
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        match self.next() {
            Fault::Hang => future::pending().await,
            Fault::Refuse | Fault::LoseReply => Err(planned()),
            Fault::None | Fault::Repeat | Fault::NoItem => self.inner.read(id, read).await,
        }
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        match self.next() {
            Fault::Hang => future::pending().await,
            Fault::Refuse => Err(planned()),
            Fault::LoseReply => {
                self.inner.put_companion(id, packed, expiration).await?;
                Err(planned())
            }
            _ => self.inner.put_companion(id, packed, expiration).await,
        }
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.next() {
            Fault::Hang => future::pending().await,
            Fault::Refuse | Fault::LoseReply => Err(planned()),
            _ => self.inner.companion(id).await,
        }
    }
}

/// A panic elsewhere must not hide what it left behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn planned() -> StoreError {
    StoreError::Unavailable {
        operation: "PutItem",
        table: "memory".to_owned(),
        source: "a planned fault".into(),
    }
}
