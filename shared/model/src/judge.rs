//! The onlooker's judgement of what a caller is told: compared with the item that the answer was
//! made from, in the protocol's words and not with its code.

use firstclaim::Record;
use firstclaim::protocol::{Intent, Request, Terms, Verdict, Write};
use firstclaim::record::{RELEASED, SUSPENDED, Status};

use crate::machine::Machine;
use crate::pool::Ref;
use crate::state::{Errand, Fault, State, Who, fingerprint_of_theirs};

impl Machine {
    /// It was told that its write stands, though it was refused.
    pub(crate) fn judge_done(
        &self,
        state: &mut State,
        who: Who,
        errand: Errand,
        met: Option<Ref<Record>>,
    ) {
        let right = match (&*errand.request, met.as_deref()) {
            (Request::Acquire(_), Some(record)) => holds_claim(record, who),
            (Request::Acquire(_), None) => false,
            (Request::Owned(intent), Some(record)) => stands(record, &intent.write, who),
            (Request::Owned(intent), None) => {
                matches!(intent.write, Write::Release { .. } | Write::Suspend { .. })
            }
        };
        if !right {
            state.ghost.note(Fault::StrangerOwns);
        }
    }

    /// It was given the record as its answer.
    pub(crate) fn judge_answer(
        &self,
        state: &mut State,
        who: Who,
        errand: Errand,
        verdict: Verdict,
        met: Option<Ref<Record>>,
    ) {
        match &*errand.request {
            Request::Acquire(terms) => {
                let Some(record) = met.as_deref() else {
                    return state.ghost.note(Fault::FalseAnswer);
                };
                if holds_claim(record, who) {
                    state.ghost.note(Fault::OwnerDisowned);
                }
                let now = self.axes.clock(state, who);
                if verdict == Verdict::Final && !record.in_window(now) {
                    state.ghost.note(Fault::AnswerOfAnotherWindow);
                }
                if verdict != Verdict::Mismatch && mismatches(record, terms) {
                    state.ghost.note(Fault::AnswerOfAnotherPayload);
                }
                let true_answer = match verdict {
                    Verdict::Final => record.status != Status::InProgress,
                    Verdict::InProgress => {
                        record.status == Status::InProgress
                            && record.lease.is_none_or(|lease| lease > now)
                    }
                    Verdict::Held => record.status == Status::InProgress && !record.released(),
                    Verdict::Mismatch => mismatches(record, terms),
                    Verdict::Superseded => false,
                };
                if !true_answer {
                    state.ghost.note(Fault::FalseAnswer);
                }
            }
            Request::Owned(intent) => {
                if self.disowned(state, who, intent, met.as_deref()) {
                    state.ghost.note(Fault::OwnerDisowned);
                }
            }
        }
    }

    /// Whether somebody was told *superseded* who was not.
    fn disowned(&self, state: &State, who: Who, intent: &Intent, met: Option<&Record>) -> bool {
        let Some(record) = met else {
            // Gone. Nobody else has had the key since: a release is done, and a final write may
            // still restore the record, for as long as its owner knows that the window is open.
            let superseded = (state.ghost.past | state.ghost.voided) & who.bit() != 0;
            let in_window = self.axes.clock(state, who) < intent.restore_until;
            let deleted = state.ghost.voided & who.bit() != 0 && state.ghost.past & who.bit() == 0;
            return match intent.write {
                Write::Release { .. } | Write::Suspend { .. } => !superseded,
                Write::Finish { .. } => in_window && (!superseded || deleted),
                _ => false,
            };
        };
        if stands(record, &intent.write, who) {
            return true;
        }
        match intent.write {
            // Its own and still going: nobody has superseded it.
            Write::Finish { .. }
            | Write::Enter { .. }
            | Write::Checkpoint { .. }
            | Write::Activity { .. } => holds_claim(record, who),
            _ => false,
        }
    }
}

/// Whether the record is a claim that `who` holds.
fn holds_claim(record: &Record, who: Who) -> bool {
    record.owner == Some(who.owner())
        && record.status == Status::InProgress
        && record.lease.is_some_and(|lease| lease > RELEASED)
}

/// Whether the record is `who`'s and says what the write wanted.
fn stands(record: &Record, write: &Write, who: Who) -> bool {
    if record.owner != Some(who.owner()) {
        return false;
    }
    let in_progress = record.status == Status::InProgress;
    match write {
        Write::Renew { lease, .. } => in_progress && record.lease >= Some(*lease),
        Write::Enter { .. } => in_progress && record.unentered != Some(record.attempt),
        Write::Checkpoint { name, text, .. } => {
            in_progress && record.checkpoints.get(name) == Some(text)
        }
        Write::Activity { activity, .. } => in_progress && record.activity == *activity,
        Write::Finish { status, data, .. } => {
            record.status == *status && record.data.as_ref() == Some(data)
        }
        Write::Suspend { .. } => in_progress && record.lease == Some(SUSPENDED),
        Write::Release { .. } => in_progress && record.lease == Some(RELEASED),
        Write::Settle { .. } => true,
        Write::Claim { .. } | Write::Takeover { .. } | Write::Restore { .. } => false,
    }
}

/// Whether both carry a fingerprint, made in the same way, and they differ. One that another tool
/// made binds nobody, whoever has its record now.
fn mismatches(record: &Record, terms: &Terms) -> bool {
    match (record.fingerprint, terms.fingerprint) {
        (Some(stored), Some(given)) => stored != given && stored != fingerprint_of_theirs(),
        _ => false,
    }
}
