//! A call, as `Claims` drives it: send a write; applied, it is heard; refused, the item decides
//! (or, where none came, a consistent read); unanswered, the same write goes out again.

use firstclaim::Record;
use firstclaim::clock::EpochMillis;
use firstclaim::protocol::{Decision, Request, Terms, Verdict, Write, decide_without};
use firstclaim::record::{Origin, Policy, RELEASED, Status};

use crate::axes::Caller;
use crate::holder::attempt_error;
use crate::machine::Machine;
use crate::pool::Ref;
use crate::removal::{Guard, Removal};
use crate::state::{
    Call, Errand, Fault, Holding, Landing, Phase, State, Told, Who, fingerprint_of_theirs,
};
use crate::store::step_name;

/// What a decision is made from: the item, the request, and the time by the sender's clock.
pub(crate) type Question = (Option<Ref<Record>>, Ref<Request>, EpochMillis);

/// A decision, as it is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    decision: Decided,
    relied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    Done,
    Send(Ref<Write>),
    Answer(Verdict),
    TooLate,
}

impl Machine {
    pub(crate) fn caller(&self, state: &State, place: usize) -> Caller {
        self.axes.callers[usize::from(state.calls[place].caller)]
    }

    /// The instant at which an owner stops.
    pub(crate) fn stops(&self, lease: EpochMillis) -> EpochMillis {
        match self.removed.has(Guard::Grace) {
            true => lease,
            false => lease.before(self.axes.ticks(self.axes.grace)),
        }
    }

    /// Whether a holder may still act: by its own clock, and not told that the claim is lost.
    pub(crate) fn alive(&self, state: &State, place: usize, holding: &Holding) -> bool {
        !holding.lost && self.axes.clock(state, Who::Call(place)) < self.stops(holding.lease)
    }

    fn terms(&self, caller: Caller, who: Who, now: EpochMillis) -> Terms {
        let lease = now.after(self.axes.ticks(self.axes.lease));
        Terms {
            id: String::new(),
            owner: who.owner(),
            lease,
            ends: self.stops(lease),
            window: self.axes.ticks(self.axes.window),
            policy: caller.policy,
            fingerprint: caller
                .payload
                .map(|payload| firstclaim::Fingerprint::of_raw(&[payload])),
            activity: None,
            origin: Origin::default(),
            silent_limit: self.axes.silent_limit,
            inspects: caller.inspects,
            marks: caller.marks,
        }
    }

    pub(crate) fn start(&self, state: &mut State, caller: u8, stale: bool) {
        let place = state.calls.len();
        let who = Who::Call(place);
        state.calls.push(Call {
            caller,
            phase: Phase::Working,
            holding: None,
        });
        let now = self.axes.clock(state, who);
        let terms = self.terms(self.caller(state, place), who, now);
        let write = self.pools.writes.keep(terms.claim(now));
        let request = self.pools.requests.keep(Request::Acquire(terms));
        let errand = Errand { request, write };
        state.calls[place].phase = Phase::Sending(errand);
        // Only a final record is taken from a read that may be older.
        if let Some(seen) = state.before.filter(|_| stale)
            && seen.status != Status::InProgress
            && let Decided::Answer(verdict) = self.known(Some(seen), request, now).decision
        {
            self.answered(state, who, errand, verdict, Some(seen));
        }
    }

    /// The reply of the store is heard.
    pub(crate) fn hear(&self, state: &mut State, who: Who, errand: Errand, landing: Landing) {
        match landing {
            Landing::Applied(after) => {
                let record = match &*errand.write {
                    Write::Claim { record, .. } => {
                        Some(self.pools.records.keep((**record).clone()))
                    }
                    _ => after,
                };
                let enters = !matches!(*errand.write, Write::Takeover { enters: false, .. });
                self.stands(state, who, errand, record, enters);
            }
            Landing::Refused(None) => state.set_phase(who, Phase::Reading(errand)),
            Landing::Refused(met) => self.decide(state, who, errand, met),
        }
    }

    fn known(&self, met: Option<Ref<Record>>, request: Ref<Request>, now: EpochMillis) -> Known {
        self.decisions
            .get((met, request, now), |(met, request, now)| {
                let removed = self.removed.rule();
                let decision = decide_without(removed, met.as_deref(), request, *now);
                let relied = matches!(self.removed.proof(), Some(Removal::Rule(_)))
                    && decision != decide_without(None, met.as_deref(), request, *now);
                let decision = match decision {
                    Decision::Done => Decided::Done,
                    Decision::Answer(verdict) => Decided::Answer(verdict),
                    Decision::TooLate => Decided::TooLate,
                    Decision::Send(write) => Decided::Send(self.pools.writes.keep(*write)),
                };
                Known { decision, relied }
            })
    }

    /// What follows from a refusal.
    pub(crate) fn decide(
        &self,
        state: &mut State,
        who: Who,
        errand: Errand,
        met: Option<Ref<Record>>,
    ) {
        let now = self.axes.clock(state, who);
        let known = self.known(met, errand.request, now);
        state.ghost.relied |= known.relied;
        match known.decision {
            Decided::Send(write) => {
                let write = self.behind_lease(write, met);
                state.set_phase(who, Phase::Sending(Errand { write, ..errand }));
            }
            Decided::Done => {
                self.judge_done(state, who, errand, met);
                let enters = self.may_enter(state, who, met);
                self.stands(state, who, errand, met, enters);
            }
            Decided::Answer(verdict) => self.answered(state, who, errand, verdict, met),
            Decided::TooLate => match who {
                Who::Call(place) => end(&mut state.calls[place], Told::Nothing),
                Who::Act(place) => state.acts[place] = Phase::Ended(Told::Nothing),
            },
        }
    }

    /// A takeover that leaves the end of the window where it was, if that guard is taken away.
    fn behind_lease(&self, write: Ref<Write>, met: Option<Ref<Record>>) -> Ref<Write> {
        if !self.removed.has(Guard::WindowBehindLease) {
            return write;
        }
        let mut taken = (*write).clone();
        if let (Write::Takeover { expiration, .. }, Some(met)) = (&mut taken, met) {
            *expiration = met.expiration.unwrap_or(*expiration);
        }
        self.pools.writes.keep(taken)
    }

    /// Whether a claim whose reply was lost may enter: if it was a takeover, the record does not
    /// tell any more whether it took over a held one.
    fn may_enter(&self, state: &State, who: Who, met: Option<Ref<Record>>) -> bool {
        let (Who::Call(place), Some(met)) = (who, met) else {
            return true;
        };
        let maybe_held =
            met.policy == Policy::Hold || met.silent_attempts() > self.axes.silent_limit;
        !(self.caller(state, place).inspects && met.attempt > 1 && maybe_held)
            || self.removed.has(Guard::LostTakeoverInspects)
    }

    /// The write stands.
    fn stands(
        &self,
        state: &mut State,
        who: Who,
        errand: Errand,
        record: Option<Ref<Record>>,
        enters: bool,
    ) {
        let place = match who {
            Who::Call(place) => place,
            Who::Act(place) => {
                state.acts[place] = Phase::Ended(Told::Nothing);
                return;
            }
        };
        let intent = match &*errand.request {
            Request::Acquire(_) => return self.acquired(state, place, record, enters),
            Request::Owned(intent) => intent,
        };
        let call = &mut state.calls[place];
        let told = match &intent.write {
            Write::Finish { .. } if matches!(*errand.write, Write::Restore { .. }) => {
                Told::Restored
            }
            Write::Finish { .. } if call.holding.is_some_and(|holding| !holding.enters) => {
                Told::Found
            }
            Write::Finish { .. } => Told::Recorded,
            Write::Suspend { .. } => Told::Suspended,
            Write::Release { .. } => Told::Released,
            Write::Enter { .. } => {
                call.phase = Phase::Working;
                return self.may_go_on(state, place);
            }
            write => {
                call.phase = Phase::Working;
                if let Some(holding) = &mut call.holding {
                    match write {
                        Write::Renew {
                            lease, expiration, ..
                        } => {
                            holding.lease = *lease;
                            holding.window_end = *expiration;
                        }
                        Write::Checkpoint { name, .. } => {
                            holding.steps |= 1 << u8::from(name == &step_name(1));
                        }
                        _ => {}
                    }
                }
                return;
            }
        };
        end(call, told);
    }

    fn acquired(&self, state: &mut State, place: usize, record: Option<Ref<Record>>, enters: bool) {
        let Some(record) = record else {
            return end(&mut state.calls[place], Told::Nothing);
        };
        let lease = record.lease.unwrap_or(RELEASED);
        let holding = Holding {
            record,
            lease,
            window_end: record.expiration.unwrap_or(lease.seconds()),
            enters,
            entered: !(self.caller(state, place).marks && record.untouched()),
            lost: false,
            renewals: 0,
            steps: (0..2).fold(0, |steps, step| {
                steps | u8::from(record.checkpoints.contains_key(&step_name(step))) << step
            }),
        };
        state.calls[place].holding = Some(holding);
        if !self.alive(state, place, &holding) {
            if !self.removed.has(Guard::OwnClockBeforeEntry) {
                let release = enters || self.removed.has(Guard::SuspendHeldTooLate);
                let error = match release {
                    true => Some(attempt_error("too_late", &record)),
                    false => None,
                };
                let owner = Who::Call(place).owner();
                let write = match release {
                    true => Write::Release { owner, error },
                    false => Write::Suspend { owner, error },
                };
                return self.send(state, place, &holding, write, None);
            }
            state.ghost.note(Fault::EnteredTooLate);
        }
        state.calls[place].phase = Phase::Working;
        if enters && holding.entered {
            self.enter(state, place, &record);
        }
    }

    /// The record says that the operation is entered: so it is, if there is time.
    fn may_go_on(&self, state: &mut State, place: usize) {
        let Some(mut holding) = state.calls[place].holding else {
            return;
        };
        if !self.alive(state, place, &holding) {
            if !self.removed.has(Guard::OwnClockBeforeEntry) {
                return;
            }
            state.ghost.note(Fault::EnteredTooLate);
        }
        holding.entered = true;
        state.calls[place].holding = Some(holding);
        self.enter(state, place, &holding.record);
    }

    /// The operation is entered.
    pub(crate) fn enter(&self, state: &mut State, place: usize, record: &Record) {
        let caller = self.caller(state, place);
        let hold = caller.policy == Policy::Hold || record.policy == Policy::Hold;
        let given = caller
            .payload
            .map(|payload| firstclaim::Fingerprint::of_raw(&[payload]));
        let ghost = &mut state.ghost;
        let bit = Who::Call(place).bit();
        if ghost.voided & bit != 0 || ghost.past & bit != 0 {
            // Settled, or past its window, since it was acquired: none of what follows is of this
            // claim. Whether it should have known is another property.
            return;
        }
        if ghost.entered_under_hold || (hold && ghost.entered) {
            ghost.note(Fault::EnteredTwiceUnderHold);
        }
        ghost.entered = true;
        ghost.entered_under_hold |= hold;
        if u32::from(ghost.silent) > self.axes.silent_limit {
            ghost.note(Fault::TooManySilentAttempts);
        }
        if record.generation != u32::from(ghost.generation) {
            ghost.note(Fault::OtherGeneration);
        }
        if let (Some(stored), Some(given)) = (record.fingerprint, given)
            && stored != given
            && stored != fingerprint_of_theirs()
        {
            ghost.note(Fault::AnswerOfAnotherPayload);
        }
    }

    /// The record is the answer.
    fn answered(
        &self,
        state: &mut State,
        who: Who,
        errand: Errand,
        verdict: Verdict,
        met: Option<Ref<Record>>,
    ) {
        self.judge_answer(state, who, errand, verdict, met);
        let place = match who {
            Who::Call(place) => place,
            Who::Act(place) => {
                state.acts[place] = Phase::Ended(Told::Nothing);
                return;
            }
        };
        let call = &mut state.calls[place];
        match &*errand.request {
            Request::Acquire(_) => end(call, Told::Answer(verdict)),
            Request::Owned(intent) => match &intent.write {
                Write::Finish { .. } | Write::Suspend { .. } | Write::Release { .. } => {
                    end(call, Told::Superseded);
                }
                // The lease is lost, and the operation is told. What it makes of that is its own
                // business: it may still end, late.
                _ => {
                    call.phase = Phase::Working;
                    if let Some(holding) = &mut call.holding {
                        holding.lost = true;
                    }
                }
            },
        }
    }
}

fn end(call: &mut Call, told: Told) {
    call.phase = Phase::Ended(told);
    // What it was does not matter any more.
    call.holding = None;
    call.caller = 0;
}
