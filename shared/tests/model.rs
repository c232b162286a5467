//! The protocol, explored exhaustively with a model checker: its real conditions, decisions and
//! writes, for one key, with crashes, lost and late messages, lapsing leases and ending windows.
//!
//! `tests/model/explorations.rs` lists the explorations; each is exhaustive within its bounds, and each
//! line of the report says how many states it has. The invariants of the design are properties in
//! `properties.rs`, together with what must be reachable, so that an exploration that goes nowhere
//! fails. `mutants.rs` takes every part of every condition, every rule of the decision and every
//! guard of the sender away in turn: some property must notice, or the part is listed there as
//! redundant and shown to be covered by others.
//!
//! `FIRSTCLAIM_MODEL=large cargo test -p firstclaim --test model` allows one disturbance more in
//! each run: ten times the states and more, hours, and several gigabytes.
#![expect(
    clippy::print_stdout,
    reason = "the report is for people who read the test's output"
)]

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use stateright::{Checker, HasDiscoveries, Model};

mod model {
    mod axes;
    mod call;
    pub(crate) mod explorations;
    mod holder;
    mod judge;
    mod machine;
    pub(crate) mod mutants;
    mod pool;
    mod properties;
    mod removal;
    mod state;
    mod store;
    pub(crate) mod trace;

    pub(crate) use axes::Axes;
    pub(crate) use machine::Machine;
    pub(crate) use mutants::THREADS;
    pub(crate) use pool::Pools;
    pub(crate) use removal::Removed;
}

use model::{Axes, Machine, Pools, Removed, THREADS};

fn main() {
    let mut arguments = Arguments::from_args();
    // Each exploration uses all threads that it may.
    arguments.test_threads = Some(1);
    let pools = Arc::new(Pools::default());
    let for_mutants = Arc::clone(&pools);
    let trials = vec![
        Trial::test("invariants_hold_in_every_exploration", move || {
            explore_all(&pools)
        }),
        Trial::test("every_removal_is_noticed", move || {
            try_mutants(&for_mutants)
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn explore_all(pools: &Arc<Pools>) -> Result<(), Failed> {
    println!();
    let mut total = 0;
    for axes in explorations() {
        total += explore(axes, pools)?;
    }
    println!("model: {total} states, complete");
    Ok(())
}

/// Explores to the end; how many states that were.
fn explore(axes: Axes, pools: &Arc<Pools>) -> Result<usize, Failed> {
    let checker = Machine::new(axes, Removed::default(), Arc::clone(pools))
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
                let trace = model::trace::of(path);
                return Err(format!("{}: broken: {}\n{trace}", axes.name, property.name).into());
            }
            (false, None) => return Err(format!("{}: never {}", axes.name, property.name).into()),
            _ => {}
        }
    }
    Ok(states)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only setting of this program, read where it is used"
)]
fn explorations() -> Vec<Axes> {
    let large = std::env::var("FIRSTCLAIM_MODEL").is_ok_and(|size| size == "large");
    let usual = model::explorations::USUAL.iter().copied();
    usual
        .map(|axes| Axes {
            delays: axes.delays + u8::from(large),
            ..axes
        })
        .collect()
}

fn try_mutants(pools: &Arc<Pools>) -> Result<(), Failed> {
    println!();
    let findings = model::mutants::try_all(pools);
    let redundant = model::mutants::REDUNDANT;
    let all = model::mutants::all();
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
        false => Err(findings.wrong.join("\n").into()),
    }
}
