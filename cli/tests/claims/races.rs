//! Many processes, one key, and some of them killed at random.

use std::collections::BTreeSet;

use crate::lab::{Lab, Running, until};

const PROCESSES: usize = 20;

/// How many rounds a plain test run has; `FIRSTCLAIM_TEST_ROUNDS` sets another number.
const ROUNDS: u64 = 4;

#[expect(
    clippy::disallowed_methods,
    reason = "the one setting of these tests, for the long run"
)]
fn rounds() -> u64 {
    let set = std::env::var("FIRSTCLAIM_TEST_ROUNDS").ok();
    set.map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

/// What a target does that honours the downstream key: the first request has the effect, and every
/// other one gets its answer. Beside it, each entry is noted, with the earlier ones that still run;
/// what has ended and was not collected yet (a zombie) runs no more.
const SCRIPT: &str = r#"
for pid in $(cat entered 2> /dev/null); do
    kill -0 $pid 2> /dev/null && ! grep -q '^State:.Z' /proc/$pid/status 2> /dev/null &&
        echo "$pid beside $$" >> overlaps
done
echo $$ >> entered
sleep 0.05
if (set -C; echo "$$ $FIRSTCLAIM_ATTEMPT" > "effect-$FIRSTCLAIM_DOWNSTREAM_KEY") 2> /dev/null; then
    echo x >> effects
fi
sleep 0.05
cat "effect-$FIRSTCLAIM_DOWNSTREAM_KEY"
"#;

/// Cases N42, A35 and N43: whoever survives prints the same, and the losers leave nothing behind.
#[test]
fn n42_a35_n43_of_twenty_processes_with_one_key_one_has_the_effect() {
    let mut random = Random(0x5eed);
    let mut killed = 0;
    for round in 0..rounds() {
        let lab = Lab::new();
        let options = [
            "-q", "--lease", "1500ms", "--grace", "300ms", "--wait", "60s",
        ];
        let mut racing: Vec<Option<Running>> = (0..PROCESSES)
            .map(|_| Some(lab.script("k", &options, SCRIPT)))
            .collect();
        for _ in 0..random.below(6) {
            let victim = usize::try_from(random.below(20)).unwrap();
            let pause = std::time::Duration::from_millis(random.below(120));
            std::thread::sleep(pause);
            if let Some(victim) = racing[victim].take() {
                victim.kill();
                killed += 1;
            }
        }
        let mut printed = BTreeSet::new();
        let mut survivors = 0;
        for survivor in racing.into_iter().flatten() {
            let ended = survivor.end().with(0);
            printed.insert(ended.text());
            survivors += 1;
        }
        assert!(survivors >= PROCESSES - 6);
        assert_eq!(printed.len(), 1, "round {round}: {printed:?}");
        assert_eq!(lab.lines("effects"), 1, "round {round}");
        assert_eq!(lab.read("overlaps"), "", "round {round}");
        let record = lab.record("k");
        assert_eq!(record["state"], "completed");
        let attempts = record["attempt"].as_u64().unwrap();
        assert!(lab.lines("entered") as u64 <= attempts, "round {round}");
        lab.wait_for_quiet();
        let listed = lab.run(&["list", "--all", "--json", "-q"]).with(0);
        assert_eq!(listed.text().lines().count(), 1, "round {round}");
        nothing_else_is_left(&lab);
    }
    assert!(killed > 0 || rounds() == 0);
}

/// The store's own file, and nothing that a process made for itself.
fn nothing_else_is_left(lab: &Lab) {
    let files = || {
        let entries = std::fs::read_dir(lab.path("state")).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<BTreeSet<_>>()
    };
    // A killed process leaves the log to the next one that opens the file; and one that was killed
    // while it made the file, its own unfinished one.
    until("the log to be gone", || {
        lab.run(&["list", "-q"]).with(0);
        let files = files();
        // How far the store was swept belongs to the store.
        let known = |name: &&String| name.contains(".new") || *name == "claims.swept";
        let known = files.iter().filter(known).count();
        (files.contains("claims.sqlite") && files.len() - known == 1).then_some(())
    });
}

#[test]
fn a34_of_processes_that_do_not_wait_one_runs_and_the_others_are_told() {
    let lab = Lab::new();
    let script = "echo x >> effects; read line; true";
    let mut racing: Vec<Running> = (0..10).map(|_| lab.script("k", &[], script)).collect();
    let mut told = 0;
    until("nine to be told", || {
        let mut left = Vec::new();
        for mut one in racing.drain(..) {
            if one.is_over() {
                one.end().with(75);
                told += 1;
            } else {
                left.push(one);
            }
        }
        racing = left;
        (told == 9).then_some(())
    });
    racing.remove(0).end().with(0);
    assert_eq!(lab.lines("effects"), 1);
}

/// Reproducible choices: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
