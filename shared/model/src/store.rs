//! The store, and the onlooker who sees every write as it reaches it.

use firstclaim::Record;
use firstclaim::clock::EpochMillis;
use firstclaim::protocol::{Condition, Seen, Settlement, Write};
use firstclaim::record::Status;

use crate::machine::Machine;
use crate::pool::Ref;
use crate::removal::Removal;
use crate::state::{Fault, Ghost, Landing, State, Who};

/// What the onlooker reads in a release: the operation did not happen.
pub(crate) const DID_NOT_HAPPEN: &str = "did_not_happen";

/// What a write does to an item, and whether it needed the part that is taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    landing: Landing,
    relied: bool,
}

impl Machine {
    /// A write reaches the store.
    pub(crate) fn land(&self, state: &mut State, write: Ref<Write>) -> Landing {
        let effect = self.effect(state.item, write);
        if let Landing::Applied(Some(after)) = effect.landing {
            self.watch(state, &write, &after);
            if self.axes.stale && state.item != Some(after) {
                state.before = state.item;
            }
            state.item = Some(after);
        }
        state.ghost.relied |= effect.relied;
        match effect.landing {
            Landing::Refused(_) if self.axes.no_item => Landing::Refused(None),
            landing => landing,
        }
    }

    /// Whether a write would change the item now.
    pub(crate) fn would_land(&self, state: &State, write: Ref<Write>) -> bool {
        match self.effect(state.item, write).landing {
            Landing::Applied(after) => after != state.item,
            Landing::Refused(_) => false,
        }
    }

    /// Whether the store would carry out the write.
    pub(crate) fn accepts(&self, item: Option<Ref<Record>>, write: Ref<Write>) -> bool {
        matches!(self.effect(item, write).landing, Landing::Applied(_))
    }

    fn effect(&self, item: Option<Ref<Record>>, write: Ref<Write>) -> Effect {
        self.effects.get((item, write), |(item, write)| {
            let before = item.as_deref();
            let applies = self.condition(write, None).holds(before);
            let landing = if applies {
                let after = write.apply(before);
                Landing::Applied(after.map(|record| self.pools.records.keep(record)))
            } else {
                Landing::Refused(*item)
            };
            let relied = applies
                && self
                    .removed
                    .proof()
                    .is_some_and(|proof| !self.condition(write, Some(proof)).holds(before));
            Effect { landing, relied }
        })
    }

    /// The write's condition less the parts that are taken away, but with the part `kept`.
    fn condition(&self, write: &Write, kept: Option<Removal>) -> Condition {
        let mut condition = write.condition();
        for at in self.removed.parts_of(write, kept) {
            if let Some((rest, _)) = condition.without(at) {
                condition = rest;
            }
        }
        condition
    }

    /// The onlooker sees a write change the item.
    fn watch(&self, state: &mut State, write: &Write, after: &Record) {
        let before = state.item;
        if before.as_deref() == Some(after) {
            return;
        }
        let writer = write.owner().map_or(0, Who::bit_of);
        let ghost = &mut state.ghost;
        // What is over for the fastest clock may be over for whoever wrote.
        let fastest = self.axes.fastest(state.now);
        let in_window = before.is_some_and(|record| record.in_window(fastest));
        if let Some(before) = before.as_deref().filter(|_| in_window) {
            watch_window(ghost, write, before, after);
        }
        watch_writer(ghost, write, writer, before.as_deref(), fastest);
        remember(ghost, write, writer);
    }
}

/// What may not happen inside a window.
fn watch_window(ghost: &mut Ghost, write: &Write, before: &Record, after: &Record) {
    let settles = matches!(write, Write::Settle { .. });
    if before.status != Status::InProgress && !settles {
        ghost.note(Fault::ResultChanged);
    }
    let acquires = matches!(write, Write::Claim { .. } | Write::Takeover { .. });
    if ghost.released && !acquires && !settles {
        ghost.note(Fault::ReleaseUndone);
    }
    let moves_end = settles || acquires || matches!(write, Write::Renew { .. });
    if moves_end && after.expiration < before.expiration {
        ghost.note(Fault::WindowShortened);
    }
    let raised = match after.owner == before.owner {
        true => after.attempt >= before.attempt,
        false => after.attempt > before.attempt,
    };
    if !raised {
        ghost.note(Fault::AttemptNotRaised);
    }
}

/// What no writer may do.
fn watch_writer(
    ghost: &mut Ghost,
    write: &Write,
    writer: u8,
    before: Option<&Record>,
    fastest: EpochMillis,
) {
    let owns = before
        .and_then(|record| record.owner.as_ref())
        .is_some_and(|owner| Who::bit_of(owner) == writer);
    let past = ghost.past & writer != 0;
    match write {
        Write::Claim { .. } | Write::Takeover { .. } => {
            // Also outside its window. Nobody tells when another tool ends: without a lease it
            // counts as alive to the end of its window.
            let runs = before.is_some_and(|record| {
                let theirs = record.owner.is_none() && record.lease.is_none();
                let alive = theirs && record.in_window(fastest);
                record.status == Status::InProgress && (record.running(fastest) || alive)
            });
            if runs && !owns {
                ghost.note(Fault::RunningClaimTaken);
            }
        }
        Write::Settle { seen, .. } => {
            if before.map(Seen::of).as_ref() != Some(seen) {
                ghost.note(Fault::SettledUnseen);
            }
        }
        Write::Restore { .. } => {
            if past {
                ghost.note(Fault::SupersededWrote);
            }
            if before.is_some() {
                ghost.note(Fault::EndedByAnother);
            }
        }
        Write::Finish { .. } | Write::Release { .. } | Write::Suspend { .. } => {
            if past {
                ghost.note(Fault::SupersededWrote);
            }
            if !owns {
                ghost.note(Fault::EndedByAnother);
            }
        }
        Write::Renew { .. }
        | Write::Enter { .. }
        | Write::Checkpoint { .. }
        | Write::Activity { .. } => {
            if past {
                ghost.note(Fault::SupersededWrote);
            }
            if !owns {
                ghost.note(Fault::OwnersWriteByAnother);
            }
        }
    }
}

/// A step's name.
pub(crate) fn step_name(step: usize) -> String {
    format!("step {step}")
}

fn step_of(name: &str) -> usize {
    usize::from(name.ends_with('1'))
}

/// What the onlooker remembers of a write that changed the item.
fn remember(ghost: &mut Ghost, write: &Write, writer: u8) {
    if let Write::Claim { .. } | Write::Takeover { .. } | Write::Settle { .. } = write {
        ghost.released = false;
        ghost.past = (ghost.past | ghost.owners) & !writer;
        ghost.owners |= writer;
    }
    match write {
        Write::Claim { .. } => {
            ghost.entered = false;
            ghost.entered_under_hold = false;
            ghost.generation = 0;
            ghost.steps = [0; 2];
            ghost.silent = 1;
        }
        Write::Takeover { .. } => ghost.silent += 1,
        Write::Release { error, .. } => {
            ghost.released = true;
            ghost.entered = false;
            if error
                .as_ref()
                .is_some_and(|error| error.code == DID_NOT_HAPPEN)
            {
                ghost.entered_under_hold = false;
            }
            ghost.silent = 0;
        }
        Write::Suspend { error: Some(_), .. } => ghost.silent = 0,
        Write::Checkpoint { name, .. } => {
            let step = &mut ghost.steps[step_of(name)];
            if *step == 0 {
                *step = writer;
            }
        }
        Write::Settle { settlement, .. } => {
            ghost.voided |= ghost.owners & !writer;
            ghost.entered = false;
            ghost.entered_under_hold = false;
            ghost.silent = 0;
            match settlement {
                Settlement::Rerun {
                    new_generation: true,
                } => ghost.generation += 1,
                Settlement::Forget => ghost.steps = [0; 2],
                _ => {}
            }
        }
        _ => {}
    }
}
