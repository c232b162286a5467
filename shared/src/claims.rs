//! Claims: claim a key, do the work, record how it ended.

mod acquire;
mod answer;
mod claim;
mod follow;
mod kept;
mod memory;
mod renew;
mod resume;
mod settle;
mod work;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use acquire::Claimed;
pub use claim::{Claim, Ended};
pub use resume::Resumed;
pub use settle::{Resolution, Settling};
pub use work::{Work, downstream_key};

use crate::clock::{EpochMillis, EpochSeconds, Source, SystemSource};
use crate::config::{Config, ConfigError};
use crate::error::{ClaimError, RunError};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::{Ending, Failure, Outcome, StoredFailure};
use crate::protocol::{Decision, Request, Rule, Verdict, Write, decide_without};
use crate::record::{Owner, Policy, Record};
use crate::store::{Read, Store, StoreError, Written};
use memory::ProcessMemory;

/// How many writes one request sends at the most: enough for a claim, a takeover that a renewal
/// beats, and the same again after a window has ended in between.
const ROUNDS: u32 = 8;

/// Claims over one store, with one configuration. Cheap to clone; make one per process: clones
/// share what the process knows of running claims and of final records.
#[derive(Clone, Debug)]
pub struct Claims<S> {
    store: S,
    config: Arc<Config>,
    source: Arc<dyn Source>,
    memory: Arc<ProcessMemory>,
    /// For mutation checks: a rule of the decision that is left out.
    removed: Option<Rule>,
}

impl<S: Store> Claims<S> {
    /// Claims over `store`.
    ///
    /// # Errors
    ///
    /// A configuration that could lose a record before its lease.
    pub fn new(store: S, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            memory: Arc::new(ProcessMemory::new(config.cache_bytes, config.cache_age)),
            store,
            config: Arc::new(config),
            source: Arc::new(SystemSource),
            removed: None,
        })
    }

    /// The same with another clock and token source.
    #[must_use]
    pub fn with_source(mut self, source: impl Source) -> Self {
        self.source = Arc::new(source);
        self
    }

    /// The same with one rule of the decision taken away, to see whether the tests notice.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn without_rule(mut self, rule: Rule) -> Self {
        self.removed = Some(rule);
        self
    }

    /// Starts a request to do the operation `key` once.
    pub fn once(&self, key: Key) -> Once<S> {
        Once {
            key,
            until: None,
            renewed: None,
            window: self.config.window,
            policy: self.config.policy,
            fingerprint: None,
            activity: None,
            event: None,
            owner: None,
            wait: Duration::ZERO,
            redelivered: false,
            marks: false,
            claims: self.clone(),
        }
    }

    /// Reads a key's record, consistently. `None` where there is none.
    ///
    /// # Errors
    ///
    /// The store could not answer, which says nothing about the record.
    pub async fn read(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.read(&key.stored(), Read::Consistent).await
    }

    /// The store underneath.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// What holds for all claims.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The current time of the injected clock.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.source.now()
    }

    /// Sends writes until one stands, or the record is the answer.
    ///
    /// Each write may safely be sent after another of the same request whose fate is unknown: the
    /// owner's token is in its condition or in what it makes, and [`decide_without`] recognises
    /// what landed.
    async fn drive(
        &self,
        id: &str,
        request: &Request,
        first: Write,
        clock: Clock,
    ) -> Result<Reached, StoreError> {
        let mut write = first;
        for _ in 0..ROUNDS {
            let written = match clock == Clock::Compare && self.clock_is_to_be_compared() {
                true => {
                    let sent = self.source.now();
                    let (written, service) = self.store.write_timed(id, &write).await?;
                    if let Some(off_by_ms) = service.and_then(|at| self.clock_is_off(sent, at)) {
                        return Ok(Reached::ClockIsOff(off_by_ms));
                    }
                    written
                }
                false => self.store.write(id, &write).await?,
            };
            let met = match written {
                Written::Applied(after) => return Ok(Reached::applied(write, after)),
                Written::Refused(Some(record)) => Some(record),
                Written::Refused(None) => {
                    self.store.read(id, Read::Consistent).await?.map(Box::new)
                }
            };
            match self.decide(met.as_deref(), request) {
                Decision::Send(next) => write = *next,
                Decision::Done => return Ok(Reached::Done(met)),
                Decision::Answer(verdict) => return Ok(Reached::Answer(verdict, met)),
                Decision::TooLate => return Ok(Reached::TooLate),
            }
        }
        Err(StoreError::Contended {
            id: id.to_owned(),
            rounds: ROUNDS,
        })
    }

    /// The own clock is compared with the service's until it has once been found right.
    fn clock_is_to_be_compared(&self) -> bool {
        self.source.is_wall_clock() && !self.memory.clock_was_right()
    }

    /// By how much the own clock is off from the service's, where that is more than the grace. The
    /// service said its date at some instant between `sent` and now: the time that its answer took
    /// is no difference. The date has whole seconds, so that a difference below one is none.
    fn clock_is_off(&self, sent: EpochMillis, service: EpochSeconds) -> Option<i64> {
        let service = service.millis();
        let fast_by = sent.0 - service.0;
        let slow_by = service.0 - self.source.now().0;
        let grace = i64::try_from(self.config.grace.as_millis()).unwrap_or(i64::MAX);
        if slow_by > grace {
            return Some(-slow_by);
        }
        if fast_by > grace.saturating_add(999) {
            return Some(fast_by);
        }
        self.memory.clock_is_right();
        None
    }

    fn decide(&self, record: Option<&Record>, request: &Request) -> Decision {
        decide_without(self.removed, record, request, self.source.now())
    }
}

/// Whether the own clock is compared with the service's before anything is decided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// A lease is made from it: compare.
    Compare,
    /// The platform gave the deadline, or the claim is held already.
    Trust,
}

/// Where a request's writes led.
enum Reached {
    /// The last write stands; the record as far as it is known.
    Applied {
        record: Option<Box<Record>>,
        /// Whether a takeover, if it was one, may enter the operation.
        enters: bool,
    },
    /// An earlier copy stood already.
    Done(Option<Box<Record>>),
    /// The record is the answer.
    Answer(Verdict, Option<Box<Record>>),
    /// An acquirer has run out of time; nothing of its own stands.
    TooLate,
    /// The own clock is off by so many milliseconds, so that nothing was decided. The write that
    /// was sent may stand.
    ClockIsOff(i64),
}

impl Reached {
    fn applied(write: Write, after: Option<Box<Record>>) -> Self {
        match write {
            Write::Claim { record, .. } | Write::Restore { record } => Self::Applied {
                record: Some(record),
                enters: true,
            },
            Write::Takeover { enters, .. } => Self::Applied {
                record: after,
                enters,
            },
            _ => Self::Applied {
                record: after,
                enters: true,
            },
        }
    }
}

/// How long a claim may last.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// From the moment of sending.
    Lease(Duration),
    /// Until this instant, at which the process will be stopped; the grace is added.
    Deadline(EpochMillis),
}

/// A request to do one operation once: set what it needs, then [`run`](Once::run) it.
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed until `run` or `claim` is called"]
pub struct Once<S> {
    claims: Claims<S>,
    key: Key,
    until: Option<Until>,
    renewed: Option<Duration>,
    window: Duration,
    policy: Policy,
    fingerprint: Option<Fingerprint>,
    activity: Option<String>,
    event: Option<String>,
    owner: Option<Owner>,
    wait: Duration,
    redelivered: bool,
    marks: bool,
}

/// What `inspect` found out about the operation before it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection<T> {
    /// Nothing speaks against running it. (A takeover under `hold` stays held all the same: "not
    /// yet" is no proof while an earlier attempt may still be on its way.)
    Proceed,
    /// It was done before, with this result, which is recorded now. Nothing runs.
    Done(T),
    /// The event is stale: nothing runs, now or for any duplicate.
    Stop(String),
}

impl<S: Store> Once<S> {
    /// Binds the key to this payload: another one under the same key is a
    /// [`Mismatch`](crate::Answer::Mismatch).
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Holds the claim for `lease`, counted from the moment of sending. The operation must end a
    /// grace before it, or be [`renewed`](Self::renewed).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.until = Some(Until::Lease(lease));
        self
    }

    /// Renews the lease at a third of it, for as long as the operation runs and `total` at the
    /// most. The operation learns of a lost lease by [`Work::lost`]. Only for a
    /// [`lease`](Self::lease): a deadline can't be moved.
    pub fn renewed(mut self, total: Duration) -> Self {
        self.renewed = Some(total);
        self
    }

    /// Holds the claim until `deadline`, at which this process will be stopped, and the grace.
    /// Inside an invocation's [scope](crate::Invocation::scope) this is set already.
    pub fn deadline(mut self, deadline: EpochMillis) -> Self {
        self.until = Some(Until::Deadline(deadline));
        self
    }

    /// How long the finished record answers duplicates, in place of the configured window.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// What may happen after a crash, in place of the configured policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What the owner is about to do, for people to see; it costs no call. Cut at 256 bytes.
    pub fn activity(mut self, text: impl Into<String>) -> Self {
        self.activity = Some(text.into());
        self
    }

    /// The id of the event that led here, for the record's origin.
    pub fn event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }

    /// Claims with this token in place of a new one: an execution that resumes re-enters the claim
    /// that it made before, while its lease runs; anybody else is refused as ever.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Waits up to `budget` for the result of somebody who is at it, in place of an immediate
    /// [`InProgress`](crate::Answer::InProgress). Never beyond one's own deadline.
    pub fn wait_for(mut self, budget: Duration) -> Self {
        self.wait = budget;
        self
    }

    /// Says that this is probably a duplicate: the record is read first, for half a read unit, and
    /// a final one is the answer. Anything else goes on to the claim.
    pub fn redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// Promises that the operation calls [`Work::enter`] before it does anything that can't be
    /// taken back, and does it only if that succeeds. Under [`Policy::Hold`] a claim that is lost
    /// before that call may then run again, in place of being held though nothing ran; it costs one
    /// write more. Under [`Policy::Rerun`] it costs nothing and changes nothing.
    pub fn marks_entry(mut self) -> Self {
        self.marks = true;
        self
    }

    /// Claims the key, runs `operation` if the claim is ours, and records how it ended; any
    /// duplicate gets the recorded result.
    ///
    /// The operation is given a [`Work`], which knows the attempt, the steps and the downstream
    /// key. It runs at most once per claim, and not at all where the outcome is not `Performed`,
    /// `NotRecorded` or `Superseded`. A panic in it is recorded like an unknown outcome, and goes
    /// on.
    ///
    /// # Errors
    ///
    /// [`RunError::Claim`]: the operation did not run. [`RunError::Operation`]: it ran, and this is
    /// its own error.
    pub async fn run<T, E, F, Fut>(self, operation: F) -> Result<Outcome<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: fmt::Debug + fmt::Display,
        F: FnOnce(Work<S>) -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        match self.acquire(false).await? {
            Claimed::Held(claim) => perform(claim, operation).await,
            Claimed::Answered(outcome) => Ok(outcome.typed()),
        }
    }

    /// Like [`run`](Self::run), but asks `inspect` first, after each claim and each takeover: it
    /// reads the current state and says whether to go on.
    ///
    /// With an inspection, a record that is held may be taken over to ask it; the operation is
    /// then not entered, whatever it says: `Done` and `Stop` settle the record, `Proceed` leaves it
    /// held.
    ///
    /// # Errors
    ///
    /// See [`run`](Self::run); an error of `inspect` counts as the operation's own.
    pub async fn run_inspecting<T, E, I, IFut, F, Fut>(
        self,
        inspect: I,
        operation: F,
    ) -> Result<Outcome<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: fmt::Debug + fmt::Display,
        I: FnOnce(Work<S>) -> IFut,
        IFut: Future<Output = Result<Inspection<T>, Failure<E>>>,
        F: FnOnce(Work<S>) -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let claim = match self.acquire(true).await? {
            Claimed::Held(claim) => claim,
            Claimed::Answered(outcome) => return Ok(outcome.typed()),
        };
        match attend(&claim, inspect).await {
            // The inspection took its time: the clock is looked at again before the work.
            Ok(Ok(Inspection::Proceed)) if claim.enters() => match claim.enter().await? {
                Claimed::Held(claim) => perform(claim, operation).await,
                Claimed::Answered(outcome) => Ok(outcome.typed()),
            },
            Ok(Ok(Inspection::Proceed)) => Ok(claim.hold_on().await.typed()),
            Ok(Ok(Inspection::Done(value))) => Ok(claim.found(value).await),
            Ok(Ok(Inspection::Stop(reason))) => Ok(claim.stop(reason).await.typed()),
            Ok(Err(failure)) if claim.enters() => {
                // The operation was not entered, whatever the inspection met.
                let ending = match failure.ending {
                    Ending::Permanent => Ending::Permanent,
                    Ending::DidNotHappen | Ending::Unknown => Ending::DidNotHappen,
                };
                failed(claim, ending, failure).await
            }
            Ok(Err(failure)) => {
                let attempt = claim.attempt();
                claim.hold_on().await;
                Err(RunError::Operation {
                    failure,
                    attempt,
                    record: None,
                })
            }
            Err(panic) if claim.enters() => panicked(claim, panic).await,
            Err(panic) => {
                claim.hold_on().await;
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Claims the key, for callers that end the claim themselves.
    ///
    /// # Errors
    ///
    /// See [`ClaimError`].
    pub async fn claim(self) -> Result<Claimed<S>, ClaimError> {
        self.acquire(false).await
    }
}

async fn perform<S, T, E, F, Fut>(claim: Claim<S>, operation: F) -> Result<Outcome<T>, RunError<E>>
where
    S: Store,
    T: Serialize + DeserializeOwned,
    E: fmt::Debug + fmt::Display,
    F: FnOnce(Work<S>) -> Fut,
    Fut: Future<Output = Result<T, Failure<E>>>,
{
    match attend(&claim, operation).await {
        Ok(Ok(value)) => Ok(claim.complete(value).await),
        Ok(Err(failure)) => failed(claim, failure.ending, failure).await,
        Err(panic) => panicked(claim, panic).await,
    }
}

async fn failed<S: Store, T, E: fmt::Debug + fmt::Display>(
    claim: Claim<S>,
    ending: Ending,
    failure: Failure<E>,
) -> Result<Outcome<T>, RunError<E>> {
    let attempt = claim.attempt();
    let stored = StoredFailure {
        code: failure.code.clone(),
        message: failure.error.to_string(),
    };
    let record = claim.end(ending, stored).await.err();
    Err(RunError::Operation {
        failure,
        attempt,
        record,
    })
}

/// The panic goes on whether or not its trace could be written: if not, the lease lapses.
async fn panicked<S: Store, T>(claim: Claim<S>, panic: Panic) -> T {
    let stored = StoredFailure {
        code: "panic".to_owned(),
        message: "the operation panicked".to_owned(),
    };
    let _ = claim.end(Ending::Unknown, stored).await;
    std::panic::resume_unwind(panic)
}

/// Runs a future of the claim's holder while its lease is renewed, and catches a panic.
async fn attend<S, T, F, Fut>(claim: &Claim<S>, operation: F) -> Result<T, Panic>
where
    S: Store,
    F: FnOnce(Work<S>) -> Fut,
    Fut: Future<Output = T>,
{
    let work = claim.work().clone();
    claim.renewing(caught(|| operation(work))).await
}

type Panic = Box<dyn std::any::Any + Send>;

/// Runs a future, and catches a panic of it or of what makes it.
async fn caught<T, Fut: Future<Output = T>>(make: impl FnOnce() -> Fut) -> Result<T, Panic> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // Nothing of the operation is looked at after a panic: it only goes on.
    let future = catch_unwind(AssertUnwindSafe(make))?;
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}
