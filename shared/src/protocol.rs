//! The claim protocol as pure functions: the conditional writes, what each asks for and does, and
//! the one decision after a refusal.
//!
//! Nothing here reads a clock, talks to a store or draws a token. The DynamoDB store writes the
//! same conditions as expressions; the in-memory store and the model checker call
//! [`Write::applies`] and [`Write::apply`] themselves; all of them share [`decide`].

use std::time::Duration;

use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::record::{
    Activity, AttemptError, Data, Origin, Owner, Policy, RELEASED, Record, SUSPENDED, Settled,
    Status,
};

/// A conditional write of the protocol, as data.
///
/// The network may deliver any of them late, twice, or after its sender gave up: each condition is
/// safe against its own late copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// A new record, where there is none or the window of the old one is over.
    Claim {
        /// The record to put.
        record: Box<Record>,
        /// The time at which it was decided; fixed at sending, also for late copies.
        now: EpochMillis,
    },
    /// A new owner for a record in progress whose lease has lapsed or that was released.
    Takeover {
        /// The record's state that was decided on. A renewal in between wins.
        seen: Seen,
        /// The new owner.
        owner: Owner,
        /// The new owner's lease.
        lease: EpochMillis,
        /// The end of the window: never earlier than what was seen.
        expiration: EpochSeconds,
        /// Binds the key to a payload, where the record is bound to none.
        fingerprint: Option<Fingerprint>,
        /// The new owner's activity; without one the former owner's goes.
        activity: Option<Activity>,
        /// The new owner's policy, where the record has none.
        policy: Policy,
    },
    /// A longer lease for its owner. Never a shorter one, never on a released record.
    Renew {
        /// The owner.
        owner: Owner,
        /// The new end of the lease.
        lease: EpochMillis,
        /// The end of the window.
        expiration: EpochSeconds,
    },
    /// One intermediate result.
    Checkpoint {
        /// The owner.
        owner: Owner,
        /// The checkpoint's name.
        name: String,
        /// Its value as JSON text.
        text: String,
    },
    /// What the owner is doing now; `None` clears it.
    Activity {
        /// The owner.
        owner: Owner,
        /// The activity.
        activity: Option<Activity>,
    },
    /// The end: completed or failed.
    Finish {
        /// The owner.
        owner: Owner,
        /// `Completed` or `Failed`.
        status: Status,
        /// The result or the remembered failure.
        data: Data,
        /// The end of the window, which starts again.
        expiration: EpochSeconds,
    },
    /// The end of a record that vanished before its owner could finish it: put only where there is
    /// none.
    Restore {
        /// The final record.
        record: Box<Record>,
    },
    /// Given up with an unknown outcome: lapsed at once, not released.
    Suspend {
        /// The owner.
        owner: Owner,
        /// What went wrong.
        error: AttemptError,
    },
    /// Given back: the next request may take it over at once.
    Release {
        /// The owner.
        owner: Owner,
        /// What went wrong, if something did.
        error: Option<AttemptError>,
    },
    /// Settled by hand, on exactly what was shown.
    Settle {
        /// The record's state that was shown.
        seen: Seen,
        /// A fresh owner, so that no former one can write any more.
        owner: Owner,
        /// What to do.
        settlement: Settlement,
        /// Who, when and why.
        settled: Settled,
        /// The end of the window: never earlier than what was seen.
        expiration: EpochSeconds,
    },
}

/// What a person decided about a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// This is its result.
    Result(Data),
    /// Run it again; with a new downstream key, if a target remembers a failure under the old one.
    Rerun {
        /// Whether the generation is raised.
        new_generation: bool,
    },
    /// Forget what is known: a released tombstone without result, checkpoints and fingerprint.
    Forget,
}

/// The part of a record that a takeover or settle names in its condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its owner; `None` for a record that another tool wrote.
    pub owner: Option<Owner>,
    /// Its attempt.
    pub attempt: u32,
    /// Its status.
    pub status: Status,
    /// Its lease.
    pub lease: Option<EpochMillis>,
    /// Its generation.
    pub generation: u32,
}

impl Seen {
    /// What is to be named of `record`.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self {
            owner: record.owner.clone(),
            attempt: record.attempt,
            status: record.status,
            lease: record.lease,
            generation: record.generation,
        }
    }

    fn matches(&self, record: &Record) -> bool {
        let same_owner = match &self.owner {
            Some(owner) => record.owner.as_ref() == Some(owner) && record.attempt == self.attempt,
            None => record.owner.is_none(),
        };
        same_owner && record.status == self.status && record.lease == self.lease
    }
}

impl Write {
    /// The write's condition, on the item as it stands in the table.
    #[must_use]
    pub fn applies(&self, item: Option<&Record>) -> bool {
        match self {
            Self::Claim { now, .. } => item.is_none_or(|record| {
                record.expiration.is_some_and(|end| end < now.seconds()) && !record.running(*now)
            }),
            Self::Restore { .. } => item.is_none(),
            Self::Takeover { seen, .. } => item.is_some_and(|record| {
                record.status == Status::InProgress && seen.matches(record)
            }),
            Self::Settle { seen, .. } => item.is_some_and(|record| seen.matches(record)),
            Self::Renew { owner, lease, .. } => item.is_some_and(|record| {
                owned_by(record, owner)
                    && record
                        .lease
                        .is_some_and(|held| held >= SUSPENDED && held <= *lease)
            }),
            Self::Checkpoint { owner, .. }
            | Self::Activity { owner, .. }
            | Self::Finish { owner, .. }
            | Self::Suspend { owner, .. } => item.is_some_and(|record| {
                owned_by(record, owner) && record.lease.is_some_and(|lease| lease > RELEASED)
            }),
            Self::Release { owner, .. } => item.is_some_and(|record| owned_by(record, owner)),
        }
    }

    /// The item after the write, from the item before it. Only meaningful where the write
    /// [`applies`](Self::applies); on no item an update changes nothing.
    #[must_use]
    pub fn apply(&self, item: Option<&Record>) -> Option<Record> {
        match self {
            Self::Claim { record, .. } | Self::Restore { record } => Some((**record).clone()),
            update => {
                let mut record = item?.clone();
                update.update(&mut record);
                Some(record)
            }
        }
    }

    fn update(&self, record: &mut Record) {
        match self {
            Self::Claim { .. } | Self::Restore { .. } => {}
            Self::Takeover {
                seen,
                owner,
                lease,
                expiration,
                fingerprint,
                activity,
                policy,
            } => {
                record.owner = Some(owner.clone());
                record.attempt = seen.attempt.saturating_add(1);
                record.lease = Some(*lease);
                record.expiration = Some(*expiration);
                record.activity = activity.clone();
                if let Some(fingerprint) = fingerprint {
                    record.fingerprint = Some(*fingerprint);
                }
                if *policy == Policy::Hold {
                    record.policy = Policy::Hold;
                }
            }
            Self::Renew {
                lease, expiration, ..
            } => {
                record.lease = Some(*lease);
                record.expiration = Some(*expiration);
            }
            Self::Checkpoint { name, text, .. } => {
                record.checkpoints.insert(name.clone(), text.clone());
            }
            Self::Activity { activity, .. } => record.activity = activity.clone(),
            Self::Finish {
                status,
                data,
                expiration,
                ..
            } => {
                record.status = *status;
                record.data = Some(data.clone());
                record.expiration = Some(*expiration);
                record.lease = None;
                record.activity = None;
            }
            Self::Suspend { error, .. } => {
                record.lease = Some(SUSPENDED);
                record.error = Some(error.clone());
                record.activity = None;
            }
            Self::Release { error, .. } => {
                record.lease = Some(RELEASED);
                if let Some(error) = error {
                    record.error = Some(error.clone());
                }
                record.activity = None;
            }
            Self::Settle {
                seen,
                owner,
                settlement,
                settled,
                expiration,
            } => {
                record.owner = Some(owner.clone());
                record.attempt = seen.attempt.saturating_add(1);
                record.expiration = Some(*expiration);
                record.settled = Some(settled.clone());
                record.activity = None;
                record.data = None;
                match settlement {
                    Settlement::Result(data) => {
                        record.status = Status::Completed;
                        record.data = Some(data.clone());
                        record.lease = None;
                    }
                    Settlement::Rerun { new_generation } => {
                        record.status = Status::InProgress;
                        record.lease = Some(RELEASED);
                        if *new_generation {
                            record.generation = seen.generation.saturating_add(1);
                        }
                    }
                    Settlement::Forget => {
                        record.status = Status::InProgress;
                        record.lease = Some(RELEASED);
                        record.checkpoints.clear();
                        record.fingerprint = None;
                        record.error = None;
                    }
                }
            }
        }
    }
}

/// Whether `owner` holds `record` and the operation has not ended: what every write of an owner
/// asks for.
fn owned_by(record: &Record, owner: &Owner) -> bool {
    record.owner.as_ref() == Some(owner) && record.status == Status::InProgress
}

/// A request to own a key: everything but the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The record's `id`.
    pub id: String,
    /// This call's token, the same in all its retries.
    pub owner: Owner,
    /// The end of the lease that is asked for.
    pub lease: EpochMillis,
    /// The length of the window.
    pub window: Duration,
    /// What may happen after a crash.
    pub policy: Policy,
    /// The payload.
    pub fingerprint: Option<Fingerprint>,
    /// What the owner is about to do.
    pub activity: Option<Activity>,
    /// Who asks, for which event.
    pub origin: Origin,
    /// After how many silent attempts in a row nobody takes over any more.
    pub silent_limit: u32,
}

impl Terms {
    /// The claim: the write that a request starts with.
    #[must_use]
    pub fn claim(&self, now: EpochMillis) -> Write {
        Write::Claim {
            record: Box::new(Record {
                id: self.id.clone(),
                status: Status::InProgress,
                expiration: Some(self.window_end(now)),
                lease: Some(self.lease),
                owner: Some(self.owner.clone()),
                attempt: 1,
                policy: self.policy,
                generation: 0,
                fingerprint: self.fingerprint,
                data: None,
                checkpoints: std::collections::BTreeMap::new(),
                activity: self.activity.clone(),
                error: None,
                origin: self.origin.clone(),
                settled: None,
            }),
            now,
        }
    }

    fn takeover(&self, record: &Record, now: EpochMillis) -> Write {
        let end = self.window_end(now);
        Write::Takeover {
            seen: Seen::of(record),
            owner: self.owner.clone(),
            lease: self.lease,
            expiration: record.expiration.map_or(end, |seen| seen.max(end)),
            fingerprint: match record.fingerprint {
                Some(_) => None,
                None => self.fingerprint,
            },
            activity: self.activity.clone(),
            policy: self.policy,
        }
    }

    /// The end of a window that starts now: always later than the lease.
    fn window_end(&self, now: EpochMillis) -> EpochSeconds {
        window_end(now, self.window, self.lease)
    }
}

/// The end of a window of `window` that starts at `now`: at least one second behind `lease`.
#[must_use]
pub fn window_end(now: EpochMillis, window: Duration, lease: EpochMillis) -> EpochSeconds {
    let end = now.after(window).seconds();
    let behind_lease = EpochSeconds(lease.seconds().0.saturating_add(1));
    end.max(behind_lease)
}

/// What an owner wants to have written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Intent {
    /// The write.
    pub write: Write,
    /// The end of the window that its owner last wrote or read, less the grace: until then a
    /// record that is gone may be restored.
    pub restore_until: EpochMillis,
    /// What to put where the record is gone; for the writes that end an operation.
    pub restore: Option<Box<Record>>,
}

/// Who asks, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Somebody who wants to own the key.
    Acquire(Terms),
    /// An owner who wants to write.
    Owned(Intent),
}

/// What follows from a record as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// What the request wanted stands in the record: an earlier copy of its write landed and the
    /// reply was lost. An acquirer holds the claim.
    Done,
    /// Send this write.
    Send(Write),
    /// The record is the answer.
    Answer(Verdict),
}

/// The answers that a record can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Completed or failed inside its window: replay it.
    Final,
    /// Its owner is presumed alive.
    InProgress,
    /// Nobody may take over.
    Held,
    /// Bound to another payload.
    Mismatch,
    /// The writer is not the owner any more.
    Superseded,
}

/// The one decision: what follows for `request` from the record as it was read at `now`.
///
/// It is called with what a refused write returned (or a consistent read, where it returned
/// nothing), and again with what the next write met: a caller bounds the rounds.
#[must_use]
pub fn decide(record: Option<&Record>, request: &Request, now: EpochMillis) -> Decision {
    match request {
        Request::Acquire(terms) => decide_acquire(record, terms, now),
        Request::Owned(intent) => decide_owned(record, intent, now),
    }
}

fn decide_acquire(record: Option<&Record>, terms: &Terms, now: EpochMillis) -> Decision {
    let Some(record) = record else {
        return Decision::Send(terms.claim(now));
    };
    // Mine, and it holds what I wanted: the reply was lost, the claim was not.
    if owned_by(record, &terms.owner) && record.lease.is_some_and(|lease| lease > RELEASED) {
        return Decision::Done;
    }
    // An old record binds nobody any more, whatever it says. This is the claim's own condition.
    let claim = terms.claim(now);
    if claim.applies(Some(record)) {
        return Decision::Send(claim);
    }
    if mismatch(record, terms.fingerprint) {
        return Decision::Answer(Verdict::Mismatch);
    }
    if record.status != Status::InProgress {
        return Decision::Answer(Verdict::Final);
    }
    match record.lease {
        Some(RELEASED) => Decision::Send(terms.takeover(record, now)),
        // Somebody works on it; without a lease nobody can tell, so it is locked until its end.
        None => Decision::Answer(Verdict::InProgress),
        Some(lease) if lease > now => Decision::Answer(Verdict::InProgress),
        Some(_) if must_hold(record, terms) => Decision::Answer(Verdict::Held),
        Some(_) => Decision::Send(terms.takeover(record, now)),
    }
}

/// Whether a lapsed record stays as it is until a person decides.
fn must_hold(record: &Record, terms: &Terms) -> bool {
    record.policy == Policy::Hold
        || terms.policy == Policy::Hold
        || record.silent_attempts() >= terms.silent_limit
}

/// Whether both carry a fingerprint and they differ. Another tool's fingerprint (a record without
/// owner) is made in another way and is not compared.
fn mismatch(record: &Record, given: Option<Fingerprint>) -> bool {
    match (record.fingerprint, given) {
        (Some(stored), Some(given)) => record.owner.is_some() && stored != given,
        _ => false,
    }
}

fn decide_owned(record: Option<&Record>, intent: &Intent, now: EpochMillis) -> Decision {
    let Some(record) = record else {
        return decide_gone(intent, now);
    };
    if holds_what_was_wanted(record, &intent.write) {
        return Decision::Done;
    }
    // Mine and still going, without the content: the refusal was about an earlier state.
    if intent.write.applies(Some(record)) {
        return Decision::Send(intent.write.clone());
    }
    Decision::Answer(Verdict::Superseded)
}

fn decide_gone(intent: &Intent, now: EpochMillis) -> Decision {
    match (&intent.write, &intent.restore) {
        (Write::Finish { .. }, Some(record)) if now < intent.restore_until => {
            Decision::Send(Write::Restore {
                record: record.clone(),
            })
        }
        (Write::Release { .. } | Write::Suspend { .. }, _) => Decision::Done,
        _ => Decision::Answer(Verdict::Superseded),
    }
}

/// Whether the record is its writer's own and contains what `write` wanted.
fn holds_what_was_wanted(record: &Record, write: &Write) -> bool {
    match write {
        Write::Renew { owner, lease, .. } => {
            owned_by(record, owner) && record.lease.is_some_and(|held| held >= *lease)
        }
        Write::Checkpoint { owner, name, text } => {
            owned_by(record, owner) && record.checkpoints.get(name) == Some(text)
        }
        Write::Activity { owner, activity } => {
            owned_by(record, owner) && record.activity == *activity
        }
        Write::Finish {
            owner,
            status,
            data,
            ..
        } => {
            record.owner.as_ref() == Some(owner)
                && record.status == *status
                && record.data.as_ref() == Some(data)
        }
        Write::Suspend { owner, .. } => {
            owned_by(record, owner) && record.lease == Some(SUSPENDED)
        }
        Write::Release { owner, .. } => owned_by(record, owner) && record.lease == Some(RELEASED),
        Write::Settle { owner, .. } => record.owner.as_ref() == Some(owner),
        // No owner's intent: an acquirer's claim and takeover are recognised before this, and a
        // restore is recognised by the finish that it stands for.
        Write::Claim { .. } | Write::Takeover { .. } | Write::Restore { .. } => false,
    }
}
