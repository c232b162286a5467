//! Random histories of claims through the public face, over a store in memory that loses and
//! repeats calls, compared after each step with a reference: a dozen lines of plain rules about
//! what callers may see.

#![expect(
    clippy::unwrap_used,
    reason = "in the helpers of a test, where it fails the test as in the test itself"
)]

mod reference {
    mod ending;
    pub(crate) mod history;
    pub(crate) mod rules;
    mod table;
}

use std::collections::BTreeSet;

use firstclaim::protocol::Rule;
use firstclaim::store::memory::Fault;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use reference::history::{Asking, At, Step, replay, replay_without};
use reference::rules::GRACE_MS;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_as_the_reference_says(steps in prop::collection::vec(step(), 1..40)) {
        replay(&steps)?;
    }

    /// Nothing is lost, nobody crashes, nobody releases: then each key is performed once a window.
    #[test]
    fn undisturbed_each_key_is_performed_once_a_window(
        steps in prop::collection::vec(undisturbed(), 1..40)
    ) {
        let seen = replay(&steps)?;
        prop_assert!(seen.performed_in_a_window <= 1, "{seen:?}");
    }
}

/// The histories must get to see what they are for; otherwise they prove nothing.
#[test]
fn histories_reach_every_outcome() {
    let mut seen = BTreeSet::new();
    for steps in some_histories() {
        seen.extend(replay(&steps).unwrap().outcomes);
    }
    let wanted = [
        "held",
        "in_flight",
        "mismatch",
        "not_recorded",
        "performed",
        "released",
        "replayed",
        "replayed_failure",
        "superseded",
        "suspended",
        "takeover",
        "unavailable",
    ];
    for outcome in wanted {
        assert!(
            seen.contains(outcome),
            "no history met {outcome:?}: {seen:?}"
        );
    }
}

/// Every rule that these histories can need is missed when it is gone. (The others need an
/// operator, another tool, or messages that are late: the model checker has those.)
#[test]
fn a_missing_rule_is_noticed() {
    let rules = [
        Rule::OwnClaim,
        Rule::Mismatch,
        Rule::Replay,
        Rule::Released,
        Rule::RunningLease,
        Rule::HoldOfRecord,
        Rule::HoldOfCaller,
        Rule::SilentLimit,
        Rule::OwnWrite,
    ];
    let histories = some_histories();
    for rule in rules {
        let noticed = histories
            .iter()
            .any(|steps| replay_without(Some(rule), steps).is_err());
        assert!(noticed, "nothing notices that {rule:?} is gone");
    }
}

/// The same histories each time.
fn some_histories() -> Vec<Vec<Step>> {
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(step(), 40);
    let history = |_| strategy.new_tree(&mut runner).unwrap().current();
    (0..300).map(history).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let fault = prop_oneof![
        4 => Just(None),
        1 => (fault(), 0_usize..2).prop_map(|(fault, call)| Some(At { fault, call })),
    ];
    prop_oneof![
        5 => (claim(), fault.clone()).prop_map(|(claim, fault)| Step::Claim(claim, fault)),
        2 => (0_usize..3, 0_u8..4, fault.clone())
            .prop_map(|(slot, value, fault)| Step::Complete { slot, value, fault }),
        1 => (0_usize..3, fault.clone()).prop_map(|(slot, fault)| Step::Fail { slot, fault }),
        1 => (0_usize..3, fault.clone()).prop_map(|(slot, fault)| Step::Release { slot, fault }),
        1 => (0_usize..3, fault).prop_map(|(slot, fault)| Step::GiveUp { slot, fault }),
        1 => (0_usize..3).prop_map(|slot| Step::Crash { slot }),
        3 => prop_oneof![1_u32..900, 900_u32..9000].prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::Expire),
    ]
}

fn claim() -> impl Strategy<Value = Asking> {
    (
        0_usize..3,
        0_usize..2,
        0_usize..2,
        prop::option::of(0_u8..2),
        prop::bool::weighted(0.3),
        1_u32..5,
    )
        .prop_map(|(slot, process, key, payload, hold, lease)| Asking {
            slot,
            process,
            key,
            payload,
            hold,
            lease_ms: lease * 1000,
        })
}

fn undisturbed() -> impl Strategy<Value = Step> {
    let claim = claim().prop_map(|asking| {
        Step::Claim(
            Asking {
                payload: None,
                lease_ms: 5000,
                ..asking
            },
            None,
        )
    });
    prop_oneof![
        3 => claim,
        3 => (0_usize..3, 0_u8..4)
            .prop_map(|(slot, value)| Step::Complete { slot, value, fault: None }),
        // Too short for a lease to lapse before its slot has a chance to complete.
        2 => (1_u32..GRACE_MS).prop_map(|millis| Step::Pass { millis }),
        1 => Just(Step::Expire),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Refuse),
        Just(Fault::LoseReply),
        Just(Fault::Repeat),
        Just(Fault::NoItem),
    ]
}
