//! A holder, as `Claim` and `Work` drive it: renewals and steps, then one final write, and nothing
//! else after it.

use std::sync::Arc;

use firstclaim::Record;
use firstclaim::clock::EpochMillis;
use firstclaim::protocol::{Intent, Request, Write};
use firstclaim::record::{Activity, AttemptError, Data, Policy, Status};

use crate::axes::Ending;
use crate::machine::Machine;
use crate::removal::Guard;
use crate::state::{Errand, Fault, Holding, Phase, State, Who};
use crate::store::{DID_NOT_HAPPEN, step_name};

/// What a holder does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The operation ends.
    End(Ending),
    /// The final write is made anew, as after its client has given up; the window ends later.
    EndAgain,
    Renew,
    /// It is said that the operation is entered.
    Enter,
    /// A step of the operation is recorded.
    Record(usize),
    SayActivity,
    /// A write that does not end the claim is waited for no longer.
    Abandon,
}

impl Machine {
    /// What a call may do next beside waiting.
    pub(crate) fn steps(&self, state: &State, place: usize, mut offer: impl FnMut(Step)) {
        let call = &state.calls[place];
        let Some(holding) = call.holding else { return };
        match &call.phase {
            Phase::Working => {
                for ending in self.axes.endings {
                    // An inspection holds on or finds a result; it never gives the key back. And
                    // what was not entered has no result.
                    let possible = match ending {
                        Ending::Complete | Ending::Fail => !holding.enters || holding.entered,
                        Ending::DidNotHappen => holding.enters,
                        Ending::Unknown => true,
                    };
                    if possible {
                        offer(Step::End(*ending));
                    }
                }
                let alive = self.alive(state, place, &holding);
                if holding.enters && holding.renewals < self.axes.renewals && alive {
                    offer(Step::Renew);
                }
                let unsaid = holding.enters && !holding.entered;
                if unsaid && (alive || self.removed.has(Guard::OwnClockBeforeEntry)) {
                    offer(Step::Enter);
                }
                let may_step = alive || self.removed.has(Guard::OwnClockBeforeStep);
                for step in 0..usize::from(self.axes.steps) {
                    if holding.enters
                        && holding.entered
                        && may_step
                        && holding.steps & (1 << step) == 0
                    {
                        offer(Step::Record(step));
                    }
                }
                if self.axes.activity && alive {
                    offer(Step::SayActivity);
                }
            }
            Phase::Sending(errand) => match &*errand.request {
                Request::Owned(intent) => match &intent.write {
                    Write::Renew { .. }
                    | Write::Enter { .. }
                    | Write::Checkpoint { .. }
                    | Write::Activity { .. } => {
                        offer(Step::Abandon);
                    }
                    ending => {
                        if let Write::Finish { .. } = ending {
                            offer(Step::EndAgain);
                        }
                        if self.removed.has(Guard::OneEnding) {
                            for ending in self.axes.endings {
                                offer(Step::End(*ending));
                            }
                        }
                    }
                },
                Request::Acquire(_) => {}
            },
            Phase::Answered(..) | Phase::Reading(_) | Phase::Ended(_) => {}
        }
    }

    pub(crate) fn work(&self, state: &mut State, place: usize, step: Step) {
        let Some(mut holding) = state.calls[place].holding else {
            return;
        };
        let who = Who::Call(place);
        let owner = who.owner();
        let now = self.axes.clock(state, who);
        let text = format!("\"{}\"", owner.expose());
        match step {
            Step::Abandon => state.calls[place].phase = Phase::Working,
            Step::Renew => {
                holding.renewals += 1;
                state.calls[place].holding = Some(holding);
                let lease = now.after(self.axes.ticks(self.axes.lease));
                if lease <= holding.lease {
                    return;
                }
                let expiration = match self.removed.has(Guard::WindowBehindLease) {
                    true => holding.window_end,
                    false => self.window_end(now, lease).max(holding.window_end),
                };
                let write = Write::Renew {
                    owner,
                    lease,
                    expiration,
                };
                self.send(state, place, &holding, write, None);
            }
            Step::Enter => {
                if self.removed.has(Guard::EntrySaidFirst) {
                    holding.entered = true;
                    state.calls[place].holding = Some(holding);
                    self.enter(state, place, &holding.record);
                }
                self.send(state, place, &holding, Write::Enter { owner }, None);
            }
            Step::Record(step) => {
                if !self.alive(state, place, &holding) {
                    state.ghost.note(Fault::EnteredTooLate);
                }
                let name = step_name(step);
                self.send(
                    state,
                    place,
                    &holding,
                    Write::Checkpoint { owner, name, text },
                    None,
                );
            }
            Step::SayActivity => {
                let activity = Some(Activity {
                    text,
                    at: EpochMillis(0),
                });
                self.send(
                    state,
                    place,
                    &holding,
                    Write::Activity { owner, activity },
                    None,
                );
            }
            Step::End(Ending::Complete) => {
                self.finish(state, place, &holding, Status::Completed, text);
            }
            Step::End(Ending::Fail) => self.finish(state, place, &holding, Status::Failed, text),
            Step::EndAgain => {
                if let Phase::Sending(errand) = state.calls[place].phase
                    && let Request::Owned(intent) = &*errand.request
                    && let Write::Finish { status, .. } = intent.write
                {
                    self.finish(state, place, &holding, status, text);
                }
            }
            Step::End(ending) => {
                let hold = self.caller(state, place).policy == Policy::Hold
                    || holding.record.policy == Policy::Hold;
                // Where another ending was sent before, this one is to clean up.
                let cleans_up = state.calls[place].phase != Phase::Working;
                let unentered = holding.enters && !holding.entered;
                let unknown = (ending == Ending::Unknown && !unentered) || cleans_up;
                let code = if unknown { "unknown" } else { DID_NOT_HAPPEN };
                let error = Some(attempt_error(code, &holding.record));
                let careful = !cleans_up && !self.removed.has(Guard::SuspendUnderHold);
                let suspends = unknown && hold && careful;
                let write = if !holding.enters {
                    Write::Suspend { owner, error: None }
                } else if suspends {
                    Write::Suspend { owner, error }
                } else {
                    Write::Release { owner, error }
                };
                self.send(state, place, &holding, write, None);
            }
        }
    }

    fn finish(
        &self,
        state: &mut State,
        place: usize,
        holding: &Holding,
        status: Status,
        text: String,
    ) {
        let who = Who::Call(place);
        let now = self.axes.clock(state, who);
        let expiration = self.window_end(now, holding.lease);
        let data = Data::Inline(text);
        let restore = Record {
            status,
            data: Some(data.clone()),
            expiration: Some(expiration),
            lease: None,
            activity: None,
            owner: Some(who.owner()),
            ..(*holding.record).clone()
        };
        let write = Write::Finish {
            owner: who.owner(),
            status,
            data,
            expiration,
        };
        self.send(state, place, holding, write, Some(Arc::new(restore)));
    }

    pub(crate) fn send(
        &self,
        state: &mut State,
        place: usize,
        holding: &Holding,
        write: Write,
        restore: Option<Arc<Record>>,
    ) {
        let request = self.pools.requests.keep(Request::Owned(Intent {
            write: write.clone(),
            restore_until: self.stops(holding.window_end.millis()),
            restore,
        }));
        let write = self.pools.writes.keep(write);
        state.calls[place].phase = Phase::Sending(Errand { request, write });
    }
}

pub(crate) fn attempt_error(code: &str, record: &Record) -> AttemptError {
    AttemptError {
        code: code.to_owned(),
        message: String::new(),
        attempt: record.attempt,
    }
}
