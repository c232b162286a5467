//! The judge: what the protocol promises, checked on what can be seen from outside.
//!
//! It reads the record after every request that reaches the engine, and hears what operations say
//! and how calls end. It shares no code with the decisions that it judges.

mod ends;
mod operations;
mod writes;

use std::collections::BTreeMap;

use firstclaim::outcome::Ending;

use super::call::CallPlan;
use super::plan::Plan;
use super::state::State;
use super::wire::{Message, Purpose};

/// Judges one schedule.
pub(crate) struct Oracle {
    grace: i64,
    silent_limit: i64,
    /// How long a process may answer from its memory, in milliseconds.
    memory: i64,
    /// Whether every call asks for `hold`.
    all_hold: bool,
    /// The record's history; the last is what stands.
    moments: Vec<Moment>,
    calls: Vec<Facts>,
    entries: Vec<Entry>,
    /// Counts windows, settles and removals: at most one entry under `hold` in each.
    epoch: u64,
    /// Whether somebody interfered whom the protocol does not know.
    disturbed: bool,
    /// Downstream keys by generation and step.
    downstream: BTreeMap<(i64, String), String>,
    violations: Vec<String>,
}

/// The record from one moment on.
struct Moment {
    state: Option<State>,
    by: By,
    /// True time, in milliseconds.
    at: i64,
}

/// Who changed the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It was so from the start.
    Start,
    Call(usize),
    Foreign,
    Ttl,
    Person,
}

/// What is known of a call.
#[derive(Debug)]
struct Facts {
    plan: Option<CallPlan>,
    offset: i64,
    /// True time.
    started: i64,
    /// How many moments there were then.
    moments: usize,
    /// How many of its requests met a fault.
    faults: u32,
    /// The record as the last answer to it left or found it.
    met: Option<Option<State>>,
    /// The record as its acquisition left it.
    acquired: Option<State>,
    epoch: u64,
    /// It took over a record that was held: only to look for a result.
    only_looks: bool,
    entered: bool,
    finish_sent: bool,
    steps_ran: Vec<&'static str>,
    /// By name, as JSON text.
    steps: BTreeMap<String, String>,
}

/// An operation was entered.
struct Entry {
    call: usize,
    epoch: u64,
    /// How it ended by itself: `None` if it did not, `Some(None)` with a result.
    ending: Option<Option<Ending>>,
}

impl Oracle {
    pub(crate) fn new(plan: &Plan, start: Option<State>, now: i64) -> Self {
        let millis = |duration: std::time::Duration| duration.as_millis().try_into().unwrap_or(0);
        let memory = match plan.config.cache_bytes {
            0 => 0,
            _ => millis(plan.config.cache_age),
        };
        Self {
            grace: millis(plan.config.grace),
            silent_limit: plan.config.silent_limit.into(),
            memory,
            all_hold: plan.all_hold() && plan.foreign.is_none(),
            moments: vec![Moment {
                state: start,
                by: By::Start,
                at: now,
            }],
            calls: Vec::new(),
            entries: Vec::new(),
            epoch: 0,
            disturbed: false,
            downstream: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    pub(crate) fn into_violations(self) -> Vec<String> {
        self.violations
    }

    pub(crate) fn is_violated(&self) -> bool {
        !self.violations.is_empty()
    }

    pub(crate) fn current(&self) -> Option<&State> {
        self.moments.last().and_then(|moment| moment.state.as_ref())
    }

    /// The latest lease that was ever written.
    pub(crate) fn last_lease(&self) -> i64 {
        let states = self.moments.iter().filter_map(|m| m.state.as_ref());
        states.filter_map(|state| state.lease).max().unwrap_or(0)
    }

    /// A call begins; calls are numbered in this order. Without a plan it is an operator's.
    pub(crate) fn started(&mut self, plan: Option<CallPlan>, offset: i64, now: i64) {
        self.calls.push(Facts {
            plan,
            offset,
            started: now,
            moments: self.moments.len(),
            faults: 0,
            met: None,
            acquired: None,
            epoch: 0,
            only_looks: false,
            entered: false,
            finish_sent: false,
            steps_ran: Vec::new(),
            steps: BTreeMap::new(),
        });
    }

    /// One of a call's requests, or its process, met a fault.
    pub(crate) fn faulted(&mut self, call: usize) {
        self.calls[call].faults += 1;
    }

    /// A call's request went out.
    pub(crate) fn sent(&mut self, message: &Message) {
        let Purpose::Write(write) = &message.purpose else {
            return;
        };
        let facts = &mut self.calls[message.call];
        match write.name() {
            "finish" => facts.finish_sent = true,
            name @ ("release" | "suspend") if facts.finish_sent => {
                let call = message.call;
                self.violated(format!("call {call} sent a {name} after its final write"));
            }
            _ => {}
        }
    }

    /// A call's request was answered: this is what stood there then.
    pub(crate) fn answered(&mut self, message: &Message, met: Option<State>) {
        if !matches!(message.purpose, Purpose::Companion) {
            self.calls[message.call].met = Some(met);
        }
    }

    /// The record was changed by somebody who is no owner.
    pub(crate) fn interfered(&mut self, state: Option<State>, by: By, now: i64, known: bool) {
        self.disturbed |= !known;
        if by != By::Foreign {
            self.epoch += 1;
        }
        self.moments.push(Moment { state, by, at: now });
    }

    /// Something did not come to its end.
    pub(crate) fn stuck(&mut self, what: String) {
        self.violated(what);
    }

    fn violated(&mut self, what: String) {
        self.violations.push(what);
    }
}
