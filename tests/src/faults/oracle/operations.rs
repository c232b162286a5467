//! When an operation may run, and what it must be told.

use firstclaim::Work;
use firstclaim::outcome::Ending;

use super::{Entry, Oracle};
use crate::faults::call::Said;
use crate::faults::wire::{Tapped, token};

impl Oracle {
    pub(crate) fn said(&mut self, said: &Said) {
        match said {
            Said::Entered {
                call,
                attempt,
                now,
                downstream,
            } => self.entered(*call, *attempt, *now, downstream),
            Said::Left { call, ending } => {
                let entry = self.entries.iter_mut().rev().find(|e| e.call == *call);
                if let Some(entry) = entry {
                    entry.ending = Some(*ending);
                }
            }
            Said::StepRan { call, name } => self.step_ran(*call, name),
            Said::StepGave {
                call,
                name,
                value,
                downstream,
            } => {
                self.step_gave(*call, name, value);
                self.same_downstream(*call, name, downstream);
            }
        }
    }

    fn entered(&mut self, call: usize, attempt: u32, now: i64, downstream: &str) {
        let facts = &mut self.calls[call];
        let twice = std::mem::replace(&mut facts.entered, true);
        let epoch = facts.epoch;
        let mut wrong = Vec::new();
        if twice {
            wrong.push(format!("call {call} entered its operation twice"));
        }
        if facts.only_looks {
            wrong.push(format!("8: call {call} entered, but may only look"));
        }
        match &facts.met {
            Some(Some(met)) if met.owned_by(&token(call)) && met.running(now + self.grace) => {
                if met.attempt != i64::from(attempt) {
                    wrong.push(format!("call {call} was told another attempt"));
                }
            }
            met => wrong.push(format!(
                "11: call {call} entered on a record that it does not hold: {met:?}"
            )),
        }
        let hold = self.all_hold
            || facts.acquired.as_ref().is_some_and(|record| record.hold)
                && self.moments.iter().all(|moment| {
                    let state = moment.state.as_ref();
                    state.is_none_or(|state| state.hold || state.owner.is_none())
                });
        let before = self.entries.iter().filter(|entry| entry.epoch == epoch);
        let again = before
            .filter(|entry| entry.ending != Some(Some(Ending::DidNotHappen)))
            .map(|entry| entry.call)
            .next();
        if let (true, Some(former)) = (hold, again) {
            wrong.push(format!(
                "8: call {call} entered under hold after call {former}"
            ));
        }
        self.entries.push(Entry {
            call,
            epoch,
            ending: None,
        });
        wrong.into_iter().for_each(|what| self.violated(what));
        self.same_downstream(call, "effect", downstream);
    }

    /// Invariant 9.
    fn same_downstream(&mut self, call: usize, step: &str, downstream: &str) {
        let acquired = self.calls[call].acquired.as_ref();
        let generation = acquired.map_or(0, |state| state.generation);
        let known = self
            .downstream
            .entry((generation, step.to_owned()))
            .or_insert_with(|| downstream.to_owned());
        if known != downstream {
            self.violated(format!("9: call {call} presents another downstream key"));
        }
    }

    fn step_ran(&mut self, call: usize, name: &'static str) {
        let facts = &mut self.calls[call];
        let recorded = facts.acquired.as_ref();
        let recorded = recorded.is_some_and(|state| state.checkpoints.contains_key(name));
        let again = facts.steps.contains_key(name);
        facts.steps_ran.push(name);
        if recorded || again {
            self.violated(format!("call {call} ran step {name} that is recorded"));
        }
    }

    fn step_gave(&mut self, call: usize, name: &'static str, value: &str) {
        let json = format!("{value:?}");
        let facts = &mut self.calls[call];
        let stored = facts.acquired.as_ref();
        let stored = stored.and_then(|state| state.checkpoints.get(name));
        let expected = stored.or_else(|| facts.steps.get(name));
        let wrong = match expected {
            Some(expected) => *expected != json,
            None => !facts.steps_ran.contains(&name),
        };
        facts.steps.insert(name.to_owned(), json);
        if wrong {
            self.violated(format!("call {call} got {value:?} for step {name}"));
        }
    }

    /// Everybody who may believe to hold the key, at a moment when nothing is going on.
    pub(crate) fn quiet(&mut self, inside: &[(usize, Work<Tapped>)]) {
        if self.disturbed {
            return;
        }
        let live: Vec<_> = inside.iter().filter(|(_, work)| !work.is_lost()).collect();
        if let [(first, _), (second, _), ..] = live.as_slice() {
            self.violated(format!(
                "calls {first} and {second} are both live in their operation"
            ));
        }
        for (call, work) in live {
            let needed = work.ends().0 + self.grace;
            let backed = self.current().is_some_and(|state| {
                state.in_progress()
                    && state.owned_by(&token(*call))
                    && state.lease.is_some_and(|lease| lease >= needed)
            });
            if !backed {
                self.violated(format!("1: call {call} is live, but the record says no"));
            }
        }
    }
}
