//! What one process knows: which of its own requests is at a key (single flight), and final records
//! (a bounded cache). Never a live record of somebody else.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::EpochMillis;
use crate::protocol::Verdict;
use crate::record::{Data, Record};

/// What a record takes in memory beside its texts, about.
const OVERHEAD: usize = 256;

#[derive(Debug)]
pub(super) struct ProcessMemory {
    flights: Mutex<HashMap<String, watch::Receiver<Stage>>>,
    cache: Mutex<Cache>,
    clock_was_right: AtomicBool,
}

/// How far the leader of a flight has come.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// It is asking the store.
    Claiming,
    /// Somebody is at it: the leader itself, or another process that it waits for.
    Busy(Arc<Record>),
    /// The record was the answer: it serves everybody who asked meanwhile.
    Answered(Verdict, Arc<Record>),
    /// The store did not answer the leader.
    Unanswered,
    /// It is over, with the final record if there is one.
    Over(Option<Arc<Record>>),
}

/// What a request finds when it enters.
pub(super) enum Entry {
    /// Nobody of this process is at the key: the caller leads.
    Leads(Flight),
    /// Somebody is: watch.
    Follows(watch::Receiver<Stage>),
}

/// The leader's side of a flight. When it goes, the flight is over.
#[derive(Debug)]
pub(super) struct Flight {
    id: String,
    memory: Arc<ProcessMemory>,
    stage: watch::Sender<Stage>,
}

impl ProcessMemory {
    pub(super) fn new(bytes: usize, age: Duration) -> Self {
        Self {
            flights: Mutex::default(),
            cache: Mutex::new(Cache {
                limit: bytes,
                age,
                bytes: 0,
                entries: HashMap::new(),
                order: VecDeque::new(),
            }),
            clock_was_right: AtomicBool::new(false),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, id: &str) -> Entry {
        let mut flights = lock(&self.flights);
        if let Some(watched) = flights.get(id) {
            return Entry::Follows(watched.clone());
        }
        let (stage, watched) = watch::channel(Stage::Claiming);
        flights.insert(id.to_owned(), watched);
        Entry::Leads(Flight {
            id: id.to_owned(),
            memory: Arc::clone(self),
            stage,
        })
    }

    /// Whether the clock has been compared with the service's.
    pub(super) fn clock_was_right(&self) -> bool {
        self.clock_was_right.load(Ordering::Relaxed)
    }

    pub(super) fn clock_is_right(&self) {
        self.clock_was_right.store(true, Ordering::Relaxed);
    }

    /// A final record that was seen not long ago.
    pub(super) fn recall(&self, id: &str, now: EpochMillis) -> Option<Arc<Record>> {
        lock(&self.cache).get(id, now)
    }

    pub(super) fn keep(&self, record: Arc<Record>, now: EpochMillis) {
        lock(&self.cache).put(record, now);
    }

    pub(super) fn forget(&self, id: &str) {
        lock(&self.cache).remove(id);
    }
}

impl Flight {
    pub(super) fn reached(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // First out of the map, then told: whoever is told and enters again finds it gone.
        lock(&self.memory.flights).remove(&self.id);
        self.stage.send_modify(|stage| {
            if matches!(stage, Stage::Claiming | Stage::Busy(_)) {
                *stage = Stage::Over(None);
            }
        });
    }
}

/// Final records by id, bounded by bytes and by age; the oldest go first.
#[derive(Debug)]
struct Cache {
    limit: usize,
    age: Duration,
    bytes: usize,
    entries: HashMap<String, Entered>,
    order: VecDeque<(String, EpochMillis)>,
}

#[derive(Debug)]
struct Entered {
    record: Arc<Record>,
    at: EpochMillis,
    bytes: usize,
}

impl Cache {
    fn get(&mut self, id: &str, now: EpochMillis) -> Option<Arc<Record>> {
        let entered = self.entries.get(id)?;
        // A clock that went back makes an entry look young; `since` is zero then, and the entry
        // goes when the clock has caught up.
        let fresh = now.since(entered.at) < self.age && now >= entered.at;
        if fresh && entered.record.in_window(now) {
            return Some(Arc::clone(&entered.record));
        }
        self.remove(id);
        None
    }

    fn put(&mut self, record: Arc<Record>, now: EpochMillis) {
        let bytes = size(&record);
        self.remove(&record.id.clone());
        if bytes > self.limit {
            return;
        }
        self.order.push_back((record.id.clone(), now));
        self.bytes += bytes;
        let id = record.id.clone();
        let at = now;
        self.entries.insert(id, Entered { record, at, bytes });
        while self.bytes > self.limit {
            let Some((oldest, at)) = self.order.pop_front() else {
                break;
            };
            // A newer entry of the same id has its own place in the order.
            if self
                .entries
                .get(&oldest)
                .is_some_and(|entered| entered.at == at)
            {
                self.remove(&oldest);
            }
        }
        self.tidy();
    }

    fn remove(&mut self, id: &str) {
        if let Some(gone) = self.entries.remove(id) {
            self.bytes -= gone.bytes;
        }
    }

    /// Places in the order whose entries are gone are dropped, so that the order stays as small as
    /// the entries.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.order
                .retain(|(id, at)| entries.get(id).is_some_and(|entered| entered.at == *at));
        }
    }
}

fn size(record: &Record) -> usize {
    let data = match &record.data {
        Some(Data::Inline(text)) => text.len(),
        _ => 0,
    };
    let checkpoints: usize = record
        .checkpoints
        .iter()
        .map(|(name, text)| name.len() + text.len())
        .sum();
    OVERHEAD + record.id.len() + data + checkpoints
}

/// A panic elsewhere must not stop the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
