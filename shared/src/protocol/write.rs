//! The conditional writes: what each asks for, and what it does.

use super::condition::{Condition, Term};
use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::record::{
    Activity, AttemptError, Data, Owner, Policy, RELEASED, Record, SUSPENDED, Settled, Status,
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
        /// Binds the key to a payload, where the record is bound to none. Another tool's fingerprint
        /// binds nothing and goes: under our owner it would pass for ours.
        fingerprint: Option<Fingerprint>,
        /// The new owner's activity; without one the former owner's goes.
        activity: Option<Activity>,
        /// The new owner's policy, where the record has none.
        policy: Policy,
        /// Whether the new owner promises to say so before it enters the operation.
        marks: bool,
        /// Whether the new owner may enter the operation; where not, it only looks for the result
        /// of an earlier attempt. Not written: it is the sender's own business.
        enters: bool,
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
    /// Its owner is about to enter the operation: from now on, what it leaves behind may have
    /// happened.
    Enter {
        /// The owner.
        owner: Owner,
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
        /// What went wrong, if something did.
        error: Option<AttemptError>,
    },
    /// Given back: the next request may take it over at once.
    Release {
        /// The owner.
        owner: Owner,
        /// What went wrong, if something did.
        error: Option<AttemptError>,
    },
    /// Settled by hand, on exactly what was shown. The fingerprint of a record without owner goes,
    /// as with a takeover.
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
    /// Whether its owner had said that it has not entered the operation yet.
    pub untouched: bool,
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
            untouched: record.untouched(),
        }
    }

    /// The record is exactly what was seen: any write in between wins.
    fn unchanged(&self) -> Condition {
        let mut terms: Vec<Condition> = match &self.owner {
            Some(owner) => vec![
                Term::OwnerIs(owner.clone()).into(),
                Term::AttemptIs(self.attempt).into(),
            ],
            None => vec![Term::NoOwner.into()],
        };
        terms.push(Term::StatusIs(self.status).into());
        terms.push(match self.lease {
            Some(lease) => Term::LeaseIs(lease).into(),
            None => Term::NoLease.into(),
        });
        if self.untouched {
            terms.push(Term::UnenteredIs(self.attempt).into());
        }
        Condition::All(terms)
    }
}

impl Write {
    /// The write's name, as in the protocol's table of writes.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::Takeover { .. } => "takeover",
            Self::Renew { .. } => "renew",
            Self::Enter { .. } => "enter",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Activity { .. } => "activity",
            Self::Finish { .. } => "finish",
            Self::Restore { .. } => "restore",
            Self::Suspend { .. } => "suspend",
            Self::Release { .. } => "release",
            Self::Settle { .. } => "settle",
        }
    }

    /// The owner whose write it is: the one that it expects, or the one that it makes.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Claim { record, .. } | Self::Restore { record } => record.owner.as_ref(),
            Self::Takeover { owner, .. }
            | Self::Renew { owner, .. }
            | Self::Enter { owner }
            | Self::Checkpoint { owner, .. }
            | Self::Activity { owner, .. }
            | Self::Finish { owner, .. }
            | Self::Suspend { owner, .. }
            | Self::Release { owner, .. }
            | Self::Settle { owner, .. } => Some(owner),
        }
    }

    /// What the item in the table must be for the write to be carried out.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::Claim { now, .. } => claimable(*now),
            Self::Restore { .. } => Term::NoItem.into(),
            Self::Takeover { seen, .. } | Self::Settle { seen, .. } => seen.unchanged(),
            Self::Renew { owner, lease, .. } => {
                owned(owner).and(Term::LeaseBetween(SUSPENDED, *lease))
            }
            Self::Enter { owner }
            | Self::Checkpoint { owner, .. }
            | Self::Activity { owner, .. }
            | Self::Finish { owner, .. }
            | Self::Suspend { owner, .. } => owned(owner).and(Term::LeaseAbove(RELEASED)),
            Self::Release { owner, .. } => owned(owner),
        }
    }

    /// Whether the write's condition holds for the item as it stands in the table.
    #[must_use]
    pub fn applies(&self, item: Option<&Record>) -> bool {
        self.condition().holds(item)
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
                marks,
                enters: _,
            } => {
                record.owner = Some(owner.clone());
                record.attempt = seen.attempt.saturating_add(1);
                record.lease = Some(*lease);
                record.expiration = Some(*expiration);
                record.activity = activity.clone();
                if fingerprint.is_some() || seen.owner.is_none() {
                    record.fingerprint = *fingerprint;
                }
                if *policy == Policy::Hold {
                    record.policy = Policy::Hold;
                }
                if *marks {
                    record.unentered = Some(record.attempt);
                }
            }
            Self::Enter { .. } => record.unentered = None,
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
                if let Some(error) = error {
                    record.error = Some(error.clone());
                }
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
                if seen.owner.is_none() {
                    record.fingerprint = None;
                }
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

/// There is no record, or its window is over and nobody works on it: what a claim asks for.
pub(super) fn claimable(now: EpochMillis) -> Condition {
    Condition::Any(vec![
        Term::NoItem.into(),
        Condition::All(vec![
            Term::WindowEndedBefore(now.seconds()).into(),
            Condition::Not(vec![
                Term::StatusIs(Status::InProgress),
                Term::LeaseAbove(now),
            ]),
        ]),
    ])
}

/// The operation has not ended and is `owner`'s: what every write of an owner asks for.
fn owned(owner: &Owner) -> Condition {
    Condition::All(vec![
        Term::OwnerIs(owner.clone()).into(),
        Term::StatusIs(Status::InProgress).into(),
    ])
}
