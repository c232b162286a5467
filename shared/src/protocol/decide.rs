//! The one decision: what follows from a record as it was read.

use std::sync::Arc;
use std::time::Duration;

use super::write::{Seen, Write, claimable};
use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::record::{Activity, Origin, Owner, Policy, RELEASED, Record, SUSPENDED, Status};

/// A request to own a key: everything but the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The record's `id`.
    pub id: String,
    /// This call's token, the same in all its retries.
    pub owner: Owner,
    /// The end of the lease that is asked for.
    pub lease: EpochMillis,
    /// The instant by which its owner must stop: the lease less the grace.
    pub ends: EpochMillis,
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
    /// Whether the caller can find out what became of an earlier attempt. It may then take over a
    /// record that is held, but not enter the operation.
    pub inspects: bool,
    /// Whether the caller, under `hold`, says so before it enters the operation: one write more,
    /// which lets a claim that was lost before it run again.
    pub marks: bool,
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
                unentered: (self.marks && self.policy == Policy::Hold).then_some(1),
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

    fn takeover(&self, record: &Record, now: EpochMillis, enters: bool) -> Write {
        let end = self.window_end(now);
        let hold = record.policy == Policy::Hold || self.policy == Policy::Hold;
        Write::Takeover {
            seen: Seen::of(record),
            owner: self.owner.clone(),
            lease: self.lease,
            expiration: record.expiration.map_or(end, |seen| seen.max(end)),
            fingerprint: match (&record.owner, record.fingerprint) {
                (Some(_), Some(_)) => None,
                _ => self.fingerprint,
            },
            activity: self.activity.clone(),
            policy: self.policy,
            marks: enters && self.marks && hold,
            enters,
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
    pub restore: Option<Arc<Record>>,
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
    Send(Box<Write>),
    /// The record is the answer.
    Answer(Verdict),
    /// An acquirer's own end has come: it sends nothing more.
    TooLate,
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
    decide_without(None, record, request, now)
}

/// A rule of the decision, so that a mutation check can take one away and see whether the proof
/// notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// An acquirer that finds its own token holds the claim.
    OwnClaim,
    /// … only if the record is in progress and not released.
    OwnClaimContent,
    /// An acquirer whose own end has come sends nothing more. A claim sent anew would bear the
    /// token and the lease of its first one: a late takeover of the one could take the other.
    OwnEnd,
    /// A record whose window is over, and that nobody works on, is claimed anew.
    WindowOver,
    /// Another payload is a mismatch.
    Mismatch,
    /// Another tool's fingerprint is not compared.
    ForeignFingerprint,
    /// A final record inside its window is replayed.
    Replay,
    /// A released record is taken over, also under `hold`.
    Released,
    /// A record in progress without a lease is locked.
    MissingLease,
    /// A running lease is respected.
    RunningLease,
    /// A lapsed record that was claimed under `hold` is held.
    HoldOfRecord,
    /// A lapsed record is held for a newcomer under `hold`.
    HoldOfCaller,
    /// Under `hold` a lapsed record whose owner had not entered the operation is taken over.
    Untouched,
    /// After too many silent attempts a record is held.
    SilentLimit,
    /// A takeover of a held record does not enter.
    HeldDoesNotEnter,
    /// An owner's write that stands already is done.
    OwnWrite,
    /// … only if the record holds what the write wanted.
    OwnWriteContent,
    /// An owner that still holds the record sends its write again.
    SendAgain,
    /// A record that is gone is restored by the final write of its owner.
    Restore,
    /// … only while the window that its owner knows of is open.
    RestoreInWindow,
    /// A release or suspension of a record that is gone is done.
    GoneIsReleased,
}

impl Rule {
    /// Every rule.
    pub const ALL: &'static [Self] = &[
        Self::OwnClaim,
        Self::OwnClaimContent,
        Self::OwnEnd,
        Self::WindowOver,
        Self::Mismatch,
        Self::ForeignFingerprint,
        Self::Replay,
        Self::Released,
        Self::MissingLease,
        Self::RunningLease,
        Self::HoldOfRecord,
        Self::HoldOfCaller,
        Self::Untouched,
        Self::SilentLimit,
        Self::HeldDoesNotEnter,
        Self::OwnWrite,
        Self::OwnWriteContent,
        Self::SendAgain,
        Self::Restore,
        Self::RestoreInWindow,
        Self::GoneIsReleased,
    ];
}

/// [`decide`] with one rule taken away, for mutation checks.
#[must_use]
pub fn decide_without(
    removed: Option<Rule>,
    record: Option<&Record>,
    request: &Request,
    now: EpochMillis,
) -> Decision {
    let rules = Rules(removed);
    match request {
        Request::Acquire(terms) => rules.acquire(record, terms, now),
        Request::Owned(intent) => rules.owned(record, intent, now),
    }
}

/// The rules that hold: all, or all but one.
#[derive(Clone, Copy)]
struct Rules(Option<Rule>);

impl Rules {
    fn hold(self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }

    fn acquire(self, record: Option<&Record>, terms: &Terms, now: EpochMillis) -> Decision {
        let Some(record) = record else {
            return self.acquirers(terms.claim(now), terms, now);
        };
        // Mine, and it holds what I wanted: the reply was lost, the claim was not. A caller that
        // chose its token may come back with another payload, which is not what was claimed.
        if self.hold(Rule::OwnClaim) && self.own_claim(record, &terms.owner) {
            return match self.hold(Rule::Mismatch) && self.mismatch(record, terms.fingerprint) {
                true => Decision::Answer(Verdict::Mismatch),
                false => Decision::Done,
            };
        }
        // The window is over and nobody is at it: the record binds nobody, whatever it says.
        if self.hold(Rule::WindowOver) && claimable(now).holds(Some(record)) {
            return self.acquirers(terms.claim(now), terms, now);
        }
        if self.hold(Rule::Mismatch) && self.mismatch(record, terms.fingerprint) {
            return Decision::Answer(Verdict::Mismatch);
        }
        if record.status != Status::InProgress {
            return match self.hold(Rule::Replay) {
                true => Decision::Answer(Verdict::Final),
                false => self.acquirers(terms.takeover(record, now, true), terms, now),
            };
        }
        match record.lease {
            Some(RELEASED) if self.hold(Rule::Released) => {
                self.acquirers(terms.takeover(record, now, true), terms, now)
            }
            // Without a lease nobody can tell whether somebody works on it: locked until its end.
            None if self.hold(Rule::MissingLease) => Decision::Answer(Verdict::InProgress),
            Some(lease) if lease > now && self.hold(Rule::RunningLease) => {
                Decision::Answer(Verdict::InProgress)
            }
            _ => self.lapsed(record, terms, now),
        }
    }

    fn lapsed(self, record: &Record, terms: &Terms, now: EpochMillis) -> Decision {
        // Nothing ran, whatever the policies say: as good as a release. The takeover asks for the
        // mark again, so that an owner who has gone on meanwhile keeps the key.
        let untouched = record.untouched() && self.hold(Rule::Untouched);
        let held = (record.policy == Policy::Hold && !untouched && self.hold(Rule::HoldOfRecord))
            || (terms.policy == Policy::Hold && !untouched && self.hold(Rule::HoldOfCaller))
            || (record.silent_attempts() >= terms.silent_limit && self.hold(Rule::SilentLimit));
        if held && !terms.inspects {
            return Decision::Answer(Verdict::Held);
        }
        let enters = !held || !self.hold(Rule::HeldDoesNotEnter);
        self.acquirers(terms.takeover(record, now, enters), terms, now)
    }

    /// A claim or takeover is sent while its sender could still work under it.
    fn acquirers(self, write: Write, terms: &Terms, now: EpochMillis) -> Decision {
        match now >= terms.ends && self.hold(Rule::OwnEnd) {
            true => Decision::TooLate,
            false => send(write),
        }
    }

    fn own_claim(self, record: &Record, owner: &Owner) -> bool {
        if !self.hold(Rule::OwnClaimContent) {
            return record.owner.as_ref() == Some(owner);
        }
        owned_by(record, owner) && record.lease.is_some_and(|lease| lease > RELEASED)
    }

    /// Whether both carry a fingerprint and they differ. Another tool's fingerprint (a record
    /// without owner) is made in another way and is not compared.
    fn mismatch(self, record: &Record, given: Option<Fingerprint>) -> bool {
        let ours = record.owner.is_some() || !self.hold(Rule::ForeignFingerprint);
        match (record.fingerprint, given) {
            (Some(stored), Some(given)) => ours && stored != given,
            _ => false,
        }
    }

    fn owned(self, record: Option<&Record>, intent: &Intent, now: EpochMillis) -> Decision {
        let Some(record) = record else {
            return self.gone(intent, now);
        };
        if self.hold(Rule::OwnWrite) && self.wanted(record, &intent.write) {
            return Decision::Done;
        }
        // Mine and still going, without the content: the refusal was about an earlier state.
        if self.hold(Rule::SendAgain) && intent.write.applies(Some(record)) {
            return send(intent.write.clone());
        }
        Decision::Answer(Verdict::Superseded)
    }

    fn gone(self, intent: &Intent, now: EpochMillis) -> Decision {
        let in_window = now < intent.restore_until || !self.hold(Rule::RestoreInWindow);
        match (&intent.write, &intent.restore) {
            (Write::Finish { .. }, Some(record)) if in_window && self.hold(Rule::Restore) => {
                send(Write::Restore {
                    record: Box::new(Record::clone(record)),
                })
            }
            (Write::Release { .. } | Write::Suspend { .. }, _)
                if self.hold(Rule::GoneIsReleased) =>
            {
                Decision::Done
            }
            _ => Decision::Answer(Verdict::Superseded),
        }
    }

    /// Whether the record is the writer's own and holds what `write` wanted.
    fn wanted(self, record: &Record, write: &Write) -> bool {
        let Some(owner) = write.owner() else {
            return false;
        };
        if record.owner.as_ref() != Some(owner) {
            return false;
        }
        if !self.hold(Rule::OwnWriteContent) {
            return true;
        }
        let in_progress = record.status == Status::InProgress;
        match write {
            Write::Renew { lease, .. } => {
                in_progress && record.lease.is_some_and(|held| held >= *lease)
            }
            Write::Enter { .. } => in_progress && !record.untouched(),
            Write::Checkpoint { name, text, .. } => {
                in_progress && record.checkpoints.get(name) == Some(text)
            }
            Write::Activity { activity, .. } => in_progress && record.activity == *activity,
            Write::Finish { status, data, .. } => {
                record.status == *status && record.data.as_ref() == Some(data)
            }
            Write::Suspend { .. } => in_progress && record.lease == Some(SUSPENDED),
            Write::Release { .. } => in_progress && record.lease == Some(RELEASED),
            // A settle makes its owner: nobody else can have written it.
            Write::Settle { .. } => true,
            // An acquirer's claim and takeover are recognised by `own_claim`, and a restore by the
            // final write that it stands for.
            Write::Claim { .. } | Write::Takeover { .. } | Write::Restore { .. } => false,
        }
    }
}

fn send(write: Write) -> Decision {
    Decision::Send(Box::new(write))
}

/// Whether `owner` holds `record` and the operation has not ended.
fn owned_by(record: &Record, owner: &Owner) -> bool {
    record.owner.as_ref() == Some(owner) && record.status == Status::InProgress
}
