//! Claims: claim a key, do the work, record how it ended.

mod acquire;
mod answer;
mod attempt;
mod claim;
mod follow;
mod kept;
mod memory;
mod once;
mod renew;
mod resume;
mod settle;
mod step;
mod work;

use std::sync::Arc;
use std::time::Duration;

pub use acquire::Claimed;
pub use attempt::Attempt;
pub use claim::{Claim, Ended};
pub use once::{Inspection, Once};
pub use resume::Resumed;
pub use settle::{Resolution, Settling};
pub use work::{Work, downstream_key};

use crate::clock::{EpochMillis, EpochSeconds, Source, SystemSource};
use crate::config::{Config, ConfigError};
use crate::key::Key;
use crate::protocol::{Decision, Request, Rule, Verdict, Write, decide_without};
use crate::record::Record;
use crate::store::{Read, Store, StoreError, Written};
use memory::ProcessMemory;

/// How many writes one request sends at the most: enough for a claim, a takeover that a renewal
/// beats, and the same again after a window has ended in between.
const ROUNDS: u32 = 8;

/// How long the service's answer may take for its date to say that the own clock is right.
const CONCLUSIVE: Duration = Duration::from_secs(1);

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
    ///
    /// An answer that took long (a connection was made, credentials were fetched) can hide as much:
    /// the next claim compares again.
    fn clock_is_off(&self, sent: EpochMillis, service: EpochSeconds) -> Option<i64> {
        let service = service.millis();
        let now = self.source.now();
        let fast_by = sent.0 - service.0;
        let slow_by = service.0 - now.0;
        let grace = i64::try_from(self.config.grace.as_millis()).unwrap_or(i64::MAX);
        if slow_by > grace {
            return Some(-slow_by);
        }
        if fast_by > grace.saturating_add(999) {
            return Some(fast_by);
        }
        if now.since(sent) <= CONCLUSIVE {
            self.memory.clock_is_right();
        }
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
