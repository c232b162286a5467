//! The protocol under a model checker. What is explored, and how it is judged: `shared/model`.
//!
//! `FIRSTCLAIM_MODEL=large cargo test -p firstclaim --test model` allows one disturbance more in
//! each run: ten times the states and more, hours, and several gigabytes.

use libtest_mimic::{Arguments, Failed, Trial};
use model::Exploring;

fn main() {
    let mut arguments = Arguments::from_args();
    // Each exploration uses all threads that it may.
    arguments.test_threads = Some(1);
    let exploring = Exploring::default();
    let mutants = exploring.clone();
    let trials = vec![
        Trial::test("invariants_hold_in_every_exploration", move || {
            exploring.explore_all(more()).map_err(Failed::from)
        }),
        Trial::test("every_removal_is_noticed", move || {
            mutants.try_mutants().map_err(Failed::from)
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only setting of this program, read where it is used"
)]
fn more() -> u8 {
    std::env::var("FIRSTCLAIM_MODEL")
        .is_ok_and(|size| size == "large")
        .into()
}
