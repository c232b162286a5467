//! The bench: processes over one store in memory, a wire between them that can be cut, held and
//! listened to, and a clock that is moved by hand.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, EpochSeconds, ManualSource, Source};
use firstclaim::protocol::{Seen, Settlement, Write};
use firstclaim::record::{Data, Settled};
use firstclaim::store::memory::{Failing, Memory};
use firstclaim::store::{Read, Written};
use firstclaim::{
    Answer, Claim, Claimed, Claims, Config, Failure, Key, Once, Outcome, Record, RunError,
    StepError, Store, StoreError,
};
use tokio::sync::watch;

/// When every test begins, in epoch milliseconds; not on a whole second.
pub(crate) const START: EpochMillis = EpochMillis(1_794_478_900_250);

/// The lease of most claims; the operation must end two seconds (the grace) before it.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn key() -> Key {
    Key::new("orders", "order-42").unwrap()
}

/// The error of the operations here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StepError> for Broken {
    fn from(error: StepError) -> Self {
        Self(error.to_string())
    }
}

pub(crate) fn broken(text: &str) -> Broken {
    Broken(text.to_owned())
}

/// What every operation here returns.
pub(crate) type Done<T> = Result<T, Failure<Broken>>;

/// What every run here ends with.
pub(crate) type Ran<T> = Result<Outcome<T>, RunError<Broken>>;

/// One table, one clock, and a counter of effects.
#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) memory: Memory,
    pub(crate) failing: Failing<Memory>,
    pub(crate) wire: Wire,
    pub(crate) source: ManualSource,
    effects: Arc<AtomicUsize>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let memory = Memory::new();
        let failing = Failing::new(memory.clone());
        Self {
            wire: Wire::new(failing.clone()),
            failing,
            memory,
            source: ManualSource::at(START).driven(),
            effects: Arc::default(),
        }
    }

    /// A process that has just started: it shares the table and the clock with the others, and no
    /// memory.
    pub(crate) fn process(&self) -> Claims<Wire> {
        self.process_with(Config::default())
    }

    pub(crate) fn process_with(&self, config: Config) -> Claims<Wire> {
        Claims::new(self.wire.clone(), config)
            .unwrap()
            .with_source(self.source.clone())
    }

    /// A request of a process that has just started.
    pub(crate) fn once(&self) -> Once<Wire> {
        self.process().once(key()).lease(LEASE)
    }

    /// Does the effect; how many there were, this one included.
    pub(crate) fn effect(&self) -> usize {
        self.effects.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    /// The whole operation of most tests: one effect, whose number is the result.
    pub(crate) async fn run(&self, once: Once<Wire>) -> Ran<usize> {
        once.run(|_work| async { Ok(self.effect()) }).await
    }

    /// Runs the usual operation, and nothing may go wrong with it.
    pub(crate) async fn answer(&self, once: Once<Wire>) -> Answer<usize> {
        self.run(once).await.unwrap().answer
    }

    /// The only record.
    pub(crate) fn record(&self) -> Record {
        let mut records = self.memory.records();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.source.advance(duration);
    }

    /// Moves the clock in steps until the condition is met; all tasks go on between the steps.
    pub(crate) async fn advance_until(
        &self,
        step: Duration,
        what: &str,
        mut met: impl FnMut() -> bool,
    ) {
        for _ in 0..10_000 {
            quiet().await;
            if met() {
                return;
            }
            self.advance(step);
        }
        panic!("it never came to be that {what}");
    }

    /// Moves the clock in steps for `total`.
    pub(crate) async fn pass(&self, total: Duration, step: Duration) {
        let end = self.source.now().after(total);
        self.advance_until(step, "time passes", || self.source.now() >= end)
            .await;
    }

    /// A process claims the key and is killed: nothing of it is left but the record.
    pub(crate) async fn crash(&self, once: Once<Wire>) {
        drop(held(once).await);
    }

    /// Settles the record as the command line does.
    pub(crate) async fn settle(&self, settlement: Settlement) {
        let record = self.record();
        let write = Write::Settle {
            seen: Seen::of(&record),
            owner: self.source.token(),
            settlement,
            settled: Settled {
                who: "ada".to_owned(),
                at: self.source.now(),
                why: "looked it up".to_owned(),
                attempt: record.attempt + 1,
            },
            expiration: record.expiration.unwrap(),
        };
        let written = self.memory.write(&record.id, &write).await.unwrap();
        assert!(matches!(written, Written::Applied(_)), "{written:?}");
    }
}

/// Claims, and nothing else may come of it.
pub(crate) async fn held(once: Once<Wire>) -> Claim<Wire> {
    match once.claim().await.unwrap() {
        Claimed::Held(claim) => claim,
        Claimed::Answered(outcome) => panic!("answered: {outcome:?}"),
    }
}

/// Claims, and the record must be the answer.
pub(crate) async fn answered(once: Once<Wire>) -> Outcome<String> {
    match once.claim().await.unwrap() {
        Claimed::Held(claim) => panic!("held: {claim:?}"),
        Claimed::Answered(outcome) => outcome,
    }
}

pub(crate) fn operation_failure<T: fmt::Debug>(ran: Ran<T>) -> (Failure<Broken>, u32) {
    match ran.unwrap_err() {
        RunError::Operation {
            failure, attempt, ..
        } => (failure, attempt),
        other => panic!("another error: {other}"),
    }
}

/// Lets all other tasks go on until none of them can without the clock, the wire or this test. The
/// runtime has one thread and the store no delay of its own, so that this many turns are enough.
pub(crate) async fn quiet() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Lets all other tasks go on until the condition is met.
pub(crate) async fn until(what: &str, mut met: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if met() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came to be that {what}");
}

/// What the wire does with the calls of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Does not pass them on, and answers with an error.
    Refuse,
    /// Keeps the request until it is let through.
    Hold,
    /// Passes them on and keeps the reply until it is let through.
    HoldReply,
    /// Keeps the request until there is another rule, and then answers with an error. The number
    /// tells one such rule from the next.
    Hang(u8),
    /// Answers that the item would be too large, unless the write has only a note of its size.
    TooLarge,
}

/// The store, behind a wire. The calls have the names of [`Write::name`], and `read`, `hint` (an
/// eventual read), `put_companion` and `companion`.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    inner: Failing<Memory>,
    rules: Arc<watch::Sender<HashMap<&'static str, Rule>>>,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl Wire {
    fn new(inner: Failing<Memory>) -> Self {
        Self {
            inner,
            rules: Arc::new(watch::Sender::new(HashMap::new())),
            log: Arc::default(),
        }
    }

    /// From now on the calls of this name are treated so.
    pub(crate) fn rule(&self, name: &'static str, rule: Rule) {
        self.rules.send_modify(|rules| {
            rules.insert(name, rule);
        });
    }

    /// The calls of this name pass again, kept ones too.
    pub(crate) fn clear(&self, name: &'static str) {
        self.rules.send_modify(|rules| {
            rules.remove(name);
        });
    }

    /// The names of all calls so far.
    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.locked().clone()
    }

    /// How many calls of this name there were.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.locked().iter().filter(|call| **call == name).count()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.locked().push(name);
        let mut rules = self.rules.subscribe();
        let rule = rules.borrow().get(name).copied();
        let mut kept = async |rule: Rule| {
            let _ = rules.wait_for(|rules| rules.get(name) != Some(&rule)).await;
        };
        match rule {
            Some(Rule::Refuse) => Err(lost()),
            Some(Rule::Hold) => {
                kept(Rule::Hold).await;
                call.await
            }
            Some(rule @ Rule::Hang(_)) => {
                kept(rule).await;
                Err(lost())
            }
            Some(Rule::HoldReply) => {
                let reply = call.await;
                kept(Rule::HoldReply).await;
                reply
            }
            Some(Rule::TooLarge) => Err(StoreError::TooLarge {
                source: "a planned limit".into(),
            }),
            None => call.await,
        }
    }
}

impl Store for Wire {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        if let Write::Finish {
            data: Data::Omitted(_),
            ..
        } = write
            && self.rules.borrow().get("finish") == Some(&Rule::TooLarge)
        {
            self.locked().push("finish");
            return self.inner.write(id, write).await;
        }
        self.carry(write.name(), self.inner.write(id, write)).await
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        let name = match read {
            Read::Consistent => "read",
            Read::Eventual => "hint",
        };
        self.carry(name, self.inner.read(id, read)).await
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        let put = self.inner.put_companion(id, packed, expiration);
        self.carry("put_companion", put).await
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.carry("companion", self.inner.companion(id)).await
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable {
        operation: "UpdateItem",
        table: "memory".to_owned(),
        source: "a cut wire".into(),
    }
}
