//! Those who touch the record without being owners: TTL, a person, another tool.

use std::collections::HashMap;

use dynoxide::{AttributeValue, Item};
use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::protocol::{Settlement, Write};
use firstclaim::record::{Data, Owner, RELEASED, SUSPENDED, Settled, Status};
use firstclaim::store::Store;

use super::{Ended, Gate, Schedule};
use crate::faults::oracle::{By, Oracle};
use crate::faults::plan::Foreign;
use crate::faults::wire::{CallSource, Tapped, token};

impl Schedule<'_> {
    /// The record of another tool, where the plan has one.
    pub(super) fn introduce(&mut self) -> anyhow::Result<()> {
        let Some(foreign) = self.plan.foreign else {
            return Ok(());
        };
        let now = self.now();
        let second = now.div_euclid(1000);
        let (status, end, lease) = match foreign {
            Foreign::Running => ("INPROGRESS", second + 20, Some(now + 4000)),
            Foreign::WithoutLease => ("INPROGRESS", second + 15, None),
            Foreign::Lapsed => ("INPROGRESS", second + 20, Some(now - 1)),
            Foreign::Completed => ("COMPLETED", second + 10, Some(now + 3000)),
            Foreign::ShortWindow => ("INPROGRESS", second + 2, Some(now + 9000)),
            Foreign::CompletedShortWindow => ("COMPLETED", second + 2, Some(now + 9000)),
        };
        let mut item = Item::from([
            ("id".to_owned(), AttributeValue::S(self.id())),
            ("status".to_owned(), AttributeValue::S(status.to_owned())),
            ("expiration".to_owned(), AttributeValue::N(end.to_string())),
        ]);
        // As another tool makes it: it looks like a hash of ours, and is none.
        let validation = AttributeValue::S("0123456789abcdef".repeat(4));
        item.insert("validation".to_owned(), validation);
        if let Some(lease) = lease {
            let lease = AttributeValue::N(lease.to_string());
            item.insert("in_progress_expiration".to_owned(), lease);
        }
        if status == "COMPLETED" {
            item.insert("data".to_owned(), result());
        }
        self.world.put(item)?;
        let start = self.world.look(&self.id())?;
        self.oracle = Oracle::new(&self.plan, start, now);
        self.note("another tool's record is there");
        self.note_state();
        Ok(())
    }

    /// Another tool goes on with its own record: it completes it, claims it again or deletes it.
    pub(super) fn foreign(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        let Some(state) = self.oracle.current().cloned() else {
            return Ok(());
        };
        if !state.in_progress() {
            return Ok(());
        }
        let mut item = state.item();
        match self.random.below(3) {
            0 => {
                self.note("the other tool completes its record");
                complete(&mut item, now);
                self.change(Some(item), By::Foreign, true)
            }
            1 if !state.running(now) => {
                self.note("the other tool claims its record again");
                let lease = AttributeValue::N((now + 3000).to_string());
                item.insert("in_progress_expiration".to_owned(), lease);
                let end = AttributeValue::N((now / 1000 + 20).to_string());
                item.insert("expiration".to_owned(), end);
                self.change(Some(item), By::Foreign, true)
            }
            _ => {
                self.note("the other tool deletes its record");
                self.change(None, By::Foreign, true)
            }
        }
    }

    /// Another tool that shares the key completes a record of ours, without a condition.
    pub(super) fn trespass(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        let Some(state) = self.oracle.current() else {
            return Ok(());
        };
        let mut item = state.item();
        complete(&mut item, now);
        self.note("another tool completes the record of ours");
        self.change(Some(item), By::Foreign, false)
    }

    /// TTL deletes the record.
    pub(super) fn expire(&mut self) -> anyhow::Result<()> {
        self.note("TTL deletes the record");
        self.change(None, By::Ttl, true)
    }

    /// A person deletes the record, which voids what the protocol promises about live owners.
    pub(super) fn remove(&mut self) -> anyhow::Result<()> {
        self.note("a person deletes the record");
        self.change(None, By::Person, false)
    }

    fn change(&mut self, item: Option<Item>, by: By, known: bool) -> anyhow::Result<()> {
        match item {
            Some(item) => self.world.put(item)?,
            None => self.world.remove(&self.id())?,
        }
        let state = self.world.look(&self.id())?;
        let now = self.now();
        self.oracle.interfered(state, by, now, known);
        self.note_state();
        Ok(())
    }

    /// An operator looks at a record that nobody works on, or settles the one that was shown.
    pub(super) fn operate(&mut self) {
        let now = self.now();
        let Some(seen) = self.shown.take() else {
            let state = self.oracle.current();
            let state = state.filter(|state| !state.running(now));
            self.shown = state.map(crate::faults::state::State::seen);
            if self.shown.is_some() {
                self.note("the record is shown to an operator");
            }
            return;
        };
        let call = self.slots.len();
        let settlement = match self.random.below(4) {
            0 => Settlement::Result(Data::Inline("\"settled\"".to_owned())),
            1 => Settlement::Forget,
            new => Settlement::Rerun {
                new_generation: new == 2,
            },
        };
        self.note(format_args!(
            "call {call} settles what was shown: {settlement:?}"
        ));
        self.oracle.started(None, 0, now);
        let end = now + i64::try_from(self.plan.config.window.as_millis()).unwrap_or(0);
        let lease = seen.lease.unwrap_or(RELEASED);
        let behind = if lease > SUSPENDED {
            lease.0 / 1000 + 1
        } else {
            0
        };
        let current = self.oracle.current().and_then(|state| state.expiration);
        let write = Write::Settle {
            settled: Settled {
                who: "operator".to_owned(),
                at: EpochMillis(now),
                why: "shown".to_owned(),
                attempt: seen.attempt.saturating_add(1),
            },
            seen,
            owner: Owner::new(token(call)),
            settlement,
            expiration: EpochSeconds((end / 1000).max(behind).max(current.unwrap_or(0))),
        };
        let wire = self.world.wire.clone();
        let source = CallSource::new(self.clock.clone(), wire.clone());
        let store = Tapped::new(self.store.clone(), wire, source);
        let id = self.id();
        let future = async move { Ended::Settled(store.write(&id, &write).await) };
        self.occupy(None, Gate::new(), future);
    }
}

fn complete(item: &mut HashMap<String, AttributeValue>, now: i64) {
    let status = AttributeValue::S(Status::Completed.as_str().to_owned());
    item.insert("status".to_owned(), status);
    let end = AttributeValue::N((now / 1000 + 20).to_string());
    item.insert("expiration".to_owned(), end);
    // It leaves the lease and whatever it does not know.
    item.insert("data".to_owned(), result());
}

fn result() -> AttributeValue {
    AttributeValue::S("\"of another tool\"".to_owned())
}
