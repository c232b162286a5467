//! What a call may end with.

use firstclaim::outcome::{Answer, Ending, StoredFailure};
use firstclaim::record::Status;
use firstclaim::{ClaimError, StoreError};

use super::{By, Facts, Moment, Oracle};
use crate::faults::call::{Ended, Found, fingerprint};
use crate::faults::state::State;
use crate::faults::wire::token;

/// What the next clean request must end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Performed,
    Replayed,
    Held,
    /// Another tool's record without a lease.
    Locked,
}

impl Oracle {
    pub(crate) fn ended(&mut self, call: usize, ended: &Ended, now: i64) {
        let problem = match ended {
            Ended::Answered(answer, dropped) => self
                .answer(call, answer, now)
                .or_else(|| self.dropped(call, answer, *dropped)),
            Ended::Operation {
                ending,
                dropped,
                recorded,
            } => self
                .own_error(call, *ending, *recorded)
                .or_else(|| dropped.then(|| self.still_its_own(call)).flatten()),
            Ended::NotClaimed(error) => self.not_claimed(call, error),
            Ended::Panicked => (!self.calls[call].entered).then(|| "nothing ran".to_owned()),
            Ended::Unknown(_) => Some("that is unknown".to_owned()),
            Ended::Settled(_) => None,
        };
        if let Some(problem) = problem {
            self.violated(format!("call {call} ended with {ended}, but {problem}"));
        }
    }

    fn answer(&self, call: usize, answer: &Answer<String>, now: i64) -> Option<String> {
        let facts = &self.calls[call];
        let me = token(call);
        let mine = |state: &State| state.owned_by(&me);
        let met_mine = facts.met.iter().flatten().any(mine);
        let inspects = facts.plan.as_ref().and_then(|plan| plan.inspect);
        let ran = |expected: bool| {
            (facts.entered != expected).then(|| match expected {
                true => "nothing ran".to_owned(),
                false => "its operation ran".to_owned(),
            })
        };
        match answer {
            Answer::Performed(value) => ran(true).or_else(|| {
                let json = format!("{value:?}");
                let stored = self.moments.iter().filter_map(|m| m.state.as_ref());
                let mut stored = stored.filter(|state| mine(state));
                let stored = stored.any(|s| s.status == Status::Completed && s.keeps(&json));
                (!stored).then(|| "2: the record never said so".to_owned())
            }),
            // What an inspection found may stay unrecorded too; then nothing ran.
            Answer::NotRecorded(_) => match inspects {
                Some(Found::Done) => self.clean(call),
                _ => ran(true).or_else(|| self.clean(call)),
            },
            Answer::Replayed(value) => {
                let json = format!("{value:?}");
                if inspects == Some(Found::Done) && value.starts_with("found") && !facts.entered {
                    // Its own finding, or one that was stored before.
                    return self.clean_if(call, false);
                }
                self.replayed(call, Status::Completed, now, |state| state.keeps(&json))
            }
            Answer::ReplayedFailure(failure) => {
                if inspects == Some(Found::Stale) && failure.code == "stale" {
                    return ran(false);
                }
                let text = json_of(failure);
                self.replayed(call, Status::Failed, now, |state| state.keeps(&text))
            }
            Answer::ResultOmitted(omitted) => {
                self.replayed(call, Status::Completed, now, |state| {
                    state.result == Some(super::super::state::Kept::Digest(omitted.sha256.clone()))
                })
            }
            Answer::InProgress { .. } => ran(false)
                .or_else(|| met_mine.then(|| "7: it is a stranger to its own claim".to_owned())),
            Answer::Held { .. } => ran(false).or_else(|| {
                (met_mine && inspects.is_none())
                    .then(|| "7: it is a stranger to its own claim".to_owned())
            }),
            Answer::Mismatch { stored, given } => ran(false).or_else(|| {
                let asked = facts.plan.as_ref().and_then(|plan| plan.payload);
                let bound = self.moments.iter().filter_map(|m| m.state.as_ref());
                let mut bound = bound.filter(|state| state.owner.is_some());
                let bound = bound.any(|s| s.fingerprint.as_deref() == Some(&stored.to_hex()));
                (stored == given || asked.map(fingerprint) != Some(*given) || !bound)
                    .then(|| "no record was bound so".to_owned())
            }),
            Answer::Superseded => self.superseded(call, facts, now),
            _ => Some("that is unknown".to_owned()),
        }
    }

    /// A call whose operation ran, and that is not answered with its own result, says that it was
    /// dropped; nobody else does.
    fn dropped(&self, call: usize, answer: &Answer<String>, dropped: bool) -> Option<String> {
        let facts = &self.calls[call];
        let inspects = facts
            .plan
            .as_ref()
            .is_some_and(|plan| plan.inspect.is_some());
        let own = matches!(answer, Answer::Performed(_) | Answer::NotRecorded(_));
        match dropped {
            true if own => Some("it dropped its own answer".to_owned()),
            true if !facts.entered && !inspects => Some("it had nothing to drop".to_owned()),
            false if facts.entered && !own => Some("it hides that its operation ran".to_owned()),
            _ => None,
        }
    }

    fn superseded(&self, call: usize, facts: &Facts, now: i64) -> Option<String> {
        let lost = match &facts.met {
            Some(Some(met)) => !(met.owned_by(&token(call)) && met.running(1)),
            // Gone: its result is put back while its window is certainly open.
            Some(None) => {
                let renewed = facts.plan.as_ref().is_some_and(|p| p.renewed.is_some());
                let known = facts.acquired.as_ref().and_then(|state| state.expiration);
                let end = known.unwrap_or(0) * 1000 - self.grace;
                renewed || !facts.entered || now + facts.offset >= end
            }
            None => true,
        };
        (!lost).then(|| "5, 7: the record is its own, or its to restore".to_owned())
    }

    /// A stored result is the answer: that of a record which could answer this call.
    fn replayed(
        &self,
        call: usize,
        status: Status,
        now: i64,
        keeps: impl Fn(&State) -> bool,
    ) -> Option<String> {
        let facts = &self.calls[call];
        let own_start = facts.started + facts.offset;
        let given = facts.plan.as_ref().and_then(|plan| plan.payload);
        let given = given.map(|number| fingerprint(number).to_hex());
        let ends = self.moments.iter().skip(1).map(|moment| moment.at);
        let ends = ends.chain([now]);
        let answers = |state: &State, end: i64| {
            state.status == status
                && keeps(state)
                && state.in_window(own_start)
                && end >= facts.started - self.memory
        };
        let found: Vec<(&Moment, &State)> = (self.moments.iter().zip(ends))
            .filter_map(|(moment, end)| Some((moment, moment.state.as_ref()?, end)))
            .filter(|(_, state, end)| answers(state, *end))
            .map(|(moment, state, _)| (moment, state))
            .collect();
        if found.is_empty() {
            return Some("2: no record could give that answer".to_owned());
        }
        let other = |state: &State| match (&state.fingerprint, &given) {
            (Some(stored), Some(given)) => state.owner.is_some() && stored != given,
            _ => false,
        };
        if found.iter().all(|(_, state)| other(state)) {
            return Some("it answers another payload".to_owned());
        }
        let own = |moment: &Moment| moment.by == By::Call(call);
        if facts.entered && found.iter().all(|(moment, _)| own(moment)) {
            return Some("7: that is its own result".to_owned());
        }
        None
    }

    fn own_error(&self, call: usize, ending: Ending, recorded: bool) -> Option<String> {
        let facts = &self.calls[call];
        let inspection = facts.plan.as_ref().and_then(|plan| plan.inspect) == Some(Found::Failed);
        let marks = facts.plan.as_ref().is_some_and(|plan| plan.marks);
        let unmarked = marks && ending == Ending::DidNotHappen;
        if !facts.entered && !inspection && !unmarked {
            return Some("nothing ran".to_owned());
        }
        if !recorded {
            return self.clean(call);
        }
        // Where the record is still its own, it says how the operation ended.
        let mut met = facts.met.iter().flatten();
        let met = met.find(|state| state.owned_by(&token(call)))?;
        let hold =
            met.hold || facts.plan.as_ref().map(|p| p.policy) == Some(firstclaim::Policy::Hold);
        let said = match ending {
            Ending::Permanent => met.status != Status::InProgress,
            Ending::DidNotHappen => met.in_progress() && met.lease == Some(0),
            Ending::Unknown if inspection && !facts.entered => true,
            Ending::Unknown => met.in_progress() && met.lease == Some(i64::from(hold)),
        };
        (!said && !self.disturbed).then(|| "the record says something else".to_owned())
    }

    /// Whether the key was still its own as far as it saw, so that nothing was to be dropped.
    fn still_its_own(&self, call: usize) -> Option<String> {
        let met = self.calls[call].met.as_ref()?.as_ref()?;
        let own = met.owned_by(&token(call)) && met.running(1);
        own.then(|| "nobody else had the key".to_owned())
    }

    fn not_claimed(&self, call: usize, error: &ClaimError) -> Option<String> {
        if self.calls[call].entered {
            return Some("its operation ran".to_owned());
        }
        match error {
            ClaimError::Store(StoreError::Malformed { .. }) => {
                Some("no record is malformed".to_owned())
            }
            ClaimError::Store(_) => self.clean(call),
            _ => None,
        }
    }

    /// A call that no fault touched and nobody came between has no reason to fail.
    fn clean(&self, call: usize) -> Option<String> {
        self.clean_if(call, true)
    }

    fn clean_if(&self, call: usize, failed: bool) -> Option<String> {
        let facts = &self.calls[call];
        let since = self.moments.iter().skip(facts.moments);
        let alone = since.map(|moment| moment.by).all(|by| by == By::Call(call));
        (failed && facts.faults == 0 && alone).then(|| "the store answered everything".to_owned())
    }

    /// What a clean request that nobody disturbs must end with now. It asks for `rerun`, without a
    /// payload.
    pub(crate) fn due(&self, now: i64) -> Due {
        let Some(state) = self.current() else {
            return Due::Performed;
        };
        let over = !state.in_window(now) && !state.running(now);
        match state.lease {
            _ if over => Due::Performed,
            _ if !state.in_progress() => Due::Replayed,
            None => Due::Locked,
            Some(lease) if lease > now => Due::Locked,
            Some(0) => Due::Performed,
            Some(_) if state.hold && !state.untouched() => Due::Held,
            Some(_) if state.silent_attempts() >= self.silent_limit => Due::Held,
            Some(_) => Due::Performed,
        }
    }

    /// Compares what was due with what came.
    pub(crate) fn probed(&mut self, due: Due, ended: Option<&Ended>) {
        let came = match ended {
            Some(Ended::Answered(answer, _)) => match answer {
                Answer::Performed(_) => Some(Due::Performed),
                Answer::Replayed(_) | Answer::ReplayedFailure(_) | Answer::ResultOmitted(_) => {
                    Some(Due::Replayed)
                }
                Answer::Held { .. } => Some(Due::Held),
                Answer::InProgress { .. } => Some(Due::Locked),
                _ => None,
            },
            _ => None,
        };
        if came != Some(due) {
            let ended = ended.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            self.violated(format!(
                "6: a clean request must end {due:?}, and ended with {ended}"
            ));
        }
    }
}

/// As the crate stores it: two texts, always JSON.
fn json_of(failure: &StoredFailure) -> String {
    serde_json::to_string(failure).unwrap_or_default()
}
