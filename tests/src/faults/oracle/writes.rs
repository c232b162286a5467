//! What a request may do to the record.

use firstclaim::protocol::Write;

use super::{By, Moment, Oracle};
use crate::faults::call::fingerprint;
use crate::faults::state::State;
use crate::faults::wire::{Message, Purpose, token};

impl Oracle {
    /// A request has reached the engine; this stands there now.
    pub(crate) fn written(&mut self, message: &Message, after: Option<State>, now: i64) {
        let before = self.current().cloned();
        if before == after {
            return;
        }
        let Purpose::Write(write) = &message.purpose else {
            self.violated(format!("a {} changed the record", message.purpose.name()));
            return;
        };
        let me = token(message.call);
        match (&before, &after) {
            (_, None) => self.violated(format!("a {} removed the record", write.name())),
            (None, Some(after)) => self.made(message, write, after),
            (Some(before), Some(after)) if before.owned_by(&me) && after.owned_by(&me) => {
                self.owners_write(message, write, before, after);
            }
            (Some(before), Some(after)) if after.owned_by(&me) => match &**write {
                Write::Settle { seen, .. } => {
                    if *seen != before.seen() {
                        self.violated(
                            "a settle hit a record that was not the shown one".to_owned(),
                        );
                    }
                    self.epoch += 1;
                }
                _ => self.acquired(message, write, before, after),
            },
            (Some(before), Some(_)) => {
                let owner = before.owner.as_deref().unwrap_or("another tool");
                let (name, call) = (write.name(), message.call);
                self.violated(format!(
                    "1, 4: a {name} of call {call} changed the record of {owner}"
                ));
            }
        }
        if let Some(after) = &after {
            self.sound(write, after);
            let lease = |state: Option<&State>| state.and_then(|state| state.lease);
            if lease(before.as_ref()) != after.lease {
                self.bounded(message, write, after);
            }
        }
        self.moments.push(Moment {
            state: after,
            by: By::Call(message.call),
            at: now,
        });
    }

    /// Where nothing stood.
    fn made(&mut self, message: &Message, write: &Write, after: &State) {
        let call = message.call;
        if !after.owned_by(&token(call)) {
            self.violated(format!("5: call {call} made a record that is not its own"));
        }
        if after.in_progress() {
            if after.attempt != 1 {
                self.violated("a new window does not start with attempt 1".to_owned());
            }
            self.takes(message, after, true);
            return;
        }
        if !matches!(write, Write::Restore { .. }) {
            self.violated(format!("a {} made a final record", write.name()));
        }
        // The furthest: a late copy of its first claim may have brought an earlier one back.
        let written = self.moments.iter().filter(|m| m.by == By::Call(call));
        let known = written.filter_map(|moment| moment.state.as_ref()?.expiration);
        let end = known.max().unwrap_or(0) * 1000 - self.grace;
        if message.decided >= end {
            self.violated(format!(
                "4: call {call} stored its result after the window that it knew of"
            ));
        }
    }

    /// An owner writes to its own record.
    fn owners_write(&mut self, message: &Message, write: &Write, before: &State, after: &State) {
        let (call, name) = (message.call, write.name());
        let mut wrong = Vec::new();
        if !before.in_progress() {
            wrong.push(format!("2: a {name} of call {call} changed a final record"));
        }
        if before.lease == Some(0) {
            wrong.push(format!(
                "10: a {name} of call {call} changed a record that it had released"
            ));
        }
        if after.attempt != before.attempt {
            wrong.push(format!("3: a {name} changed the attempt"));
        }
        let bound = |state: &State| (state.fingerprint.clone(), state.hold, state.generation);
        if bound(before) != bound(after) {
            wrong.push(format!("a {name} changed payload, policy or generation"));
        }
        let kept = before
            .checkpoints
            .iter()
            .all(|(name, text)| after.checkpoints.get(name) == Some(text));
        if !kept {
            wrong.push(format!("a {name} lost a checkpoint"));
        }
        if after.in_progress() && after.lease < before.lease && !matches!(after.lease, Some(0 | 1))
        {
            wrong.push(format!("10: a {name} of call {call} moved its lease back"));
        }
        wrong.into_iter().for_each(|what| self.violated(what));
    }

    /// A record gets a new owner.
    fn acquired(&mut self, message: &Message, write: &Write, before: &State, after: &State) {
        let call = message.call;
        let own_now = message.decided;
        if !after.in_progress() {
            self.violated(format!("5: call {call} ended a record of somebody else"));
            return;
        }
        let anew = matches!(write, Write::Claim { .. });
        if before.running(own_now) {
            self.violated(format!("1: call {call} took a record whose lease ran"));
        }
        if anew {
            if before.in_window(own_now) {
                self.violated(format!(
                    "2: call {call} claimed over a record inside its window"
                ));
            }
            self.takes(message, after, true);
            return;
        }
        if !before.in_progress() {
            self.violated(format!("2: call {call} took over a final record"));
        }
        if before.lease.is_none() {
            self.violated(format!("call {call} took over a record without a lease"));
        }
        if after.attempt != before.attempt + 1 {
            self.violated("3: a takeover did not raise the attempt by one".to_owned());
        }
        if after.checkpoints != before.checkpoints || after.generation != before.generation {
            self.violated("a takeover changed checkpoints or generation".to_owned());
        }
        if after.expiration < before.expiration {
            self.violated("a takeover shortened the window".to_owned());
        }
        let Some(plan) = self.calls[call].plan.clone() else {
            self.violated("an operator took a record over".to_owned());
            return;
        };
        let given = plan.payload.map(|number| fingerprint(number).to_hex());
        if before.owner.is_some()
            && let (Some(stored), Some(given)) = (&before.fingerprint, &given)
            && stored != given
        {
            self.violated(format!(
                "call {call} took over a key that is bound to another payload"
            ));
        }
        let hold = before.hold || plan.policy == firstclaim::Policy::Hold;
        let held = hold && !before.untouched() || before.silent_attempts() >= self.silent_limit;
        self.takes(message, after, false);
        if before.lease != Some(0) && held {
            if plan.inspect.is_none() {
                self.violated(format!("8: call {call} took over a record that is held"));
            }
            self.calls[call].only_looks = true;
        }
    }

    fn takes(&mut self, message: &Message, after: &State, anew: bool) {
        if anew {
            self.epoch += 1;
        }
        let epoch = self.epoch;
        let facts = &mut self.calls[message.call];
        facts.acquired = Some(after.clone());
        facts.epoch = epoch;
        facts.only_looks = false;
    }

    /// What every record must be.
    fn sound(&mut self, write: &Write, after: &State) {
        let name = write.name();
        if after.in_progress() {
            let lease = after.lease.unwrap_or(0);
            if after.lease.is_none() {
                self.violated(format!(
                    "a {name} left a record in progress without a lease"
                ));
            }
            if after.expiration.is_none_or(|end| end * 1000 <= lease) {
                self.violated(format!("a {name} left a lease beyond its window"));
            }
        } else if after.lease.is_some() || after.result.is_none() {
            self.violated(format!(
                "a {name} left a final record with a lease or no result"
            ));
        }
    }

    /// Invariant 6: nobody locks a key for longer than the lease that it asked for.
    fn bounded(&mut self, message: &Message, write: &Write, after: &State) {
        let Some(plan) = &self.calls[message.call].plan else {
            return;
        };
        let asked = i64::try_from(plan.lease.as_millis()).unwrap_or(0) + self.grace;
        if after.lease.unwrap_or(0) > message.decided + asked {
            self.violated(format!("6: a {} locks for longer than asked", write.name()));
        }
    }
}
