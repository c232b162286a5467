//! The protocol, explored exhaustively with a model checker: its real conditions, decisions and
//! writes, for one key, with crashes, lost and late messages, lapsing leases and ending windows.
//!
//! `explorations.rs` lists the explorations; each is exhaustive within its bounds, and each line of
//! the report says how many states it has. The invariants of the design are properties in
//! `properties.rs`, together with what must be reachable, so that an exploration that goes nowhere
//! fails. `mutants.rs` takes every part of every condition, every rule of the decision and every
//! guard of the sender away in turn: some property must notice, or the part is listed there as
//! redundant and shown to be covered by others.
//!
//! A crate of its own, so that it alone is optimised in a development build:
//! `cargo test -p firstclaim --test model` runs it.
#![expect(
    clippy::print_stdout,
    reason = "the report is for people who read the test's output"
)]

mod axes;
mod call;
mod explorations;
mod holder;
mod judge;
mod machine;
mod mutants;
mod pool;
mod properties;
mod removal;
mod state;
mod store;
mod trace;

use std::sync::Arc;

use stateright::{Checker, HasDiscoveries, Model};

use axes::Axes;
use machine::Machine;
use mutants::THREADS;
use pool::Pools;
use removal::Removed;

/// The model, and what its explorations share.
#[derive(Clone, Default)]
pub struct Exploring {
    pools: Arc<Pools>,
}

impl Exploring {
    /// Explores everything to its end, with `more` disturbances in each run than usual, and prints
    /// how many states there were.
    ///
    /// # Errors
    ///
    /// An invariant is broken, and by which way; or something never happens that should.
    pub fn explore_all(&self, more: u8) -> Result<(), String> {
        println!();
        let mut total = 0;
        for axes in explorations::USUAL {
            total += self.explore(Axes {
                delays: axes.delays + more,
                ..*axes
            })?;
        }
        println!("model: {total} states, complete");
        Ok(())
    }

    /// Explores to the end; how many states that were.
    fn explore(&self, axes: Axes) -> Result<usize, String> {
        let checker = Machine::new(axes, Removed::default(), Arc::clone(&self.pools))
            .checker()
            .threads(THREADS)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let states = checker.unique_state_count();
        println!(
            "explored {:>9} states: {}: {}",
            states, axes.name, axes.about
        );
        let mut discoveries = checker.discoveries();
        for property in checker.model().properties() {
            let discovery = discoveries.remove(property.name);
            match (property.expectation.discovery_is_failure(), discovery) {
                (true, Some(path)) => {
                    let trace = trace::of(path);
                    return Err(format!("{}: broken: {}\n{trace}", axes.name, property.name));
                }
                (false, None) => return Err(format!("{}: never {}", axes.name, property.name)),
                _ => {}
            }
        }
        Ok(states)
    }

    /// Takes each part away that can be taken away, and prints what noticed.
    ///
    /// # Errors
    ///
    /// Nothing notices that a part is gone; or something does, though it is listed as redundant.
    pub fn try_mutants(&self) -> Result<(), String> {
        println!();
        let findings = mutants::try_all(&self.pools);
        let redundant = mutants::REDUNDANT;
        let all = mutants::all();
        for line in &findings.lines {
            println!("noticed: {line}");
        }
        for (mutant, one) in all.iter().filter_map(|mutant| {
            Some((
                mutant,
                redundant.iter().find(|one| one.removal == mutant.removal)?,
            ))
        }) {
            println!("redundant: {}: {}", mutant.name, one.reason);
        }
        println!(
            "mutants: {} of {} found, {} redundant",
            findings.found,
            all.len(),
            redundant.len()
        );
        match findings.wrong.is_empty() {
            true => Ok(()),
            false => Err(findings.wrong.join("\n")),
        }
    }
}
