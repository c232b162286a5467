//! Processes that are killed or stopped: nothing of them renews, and nothing of them is left when
//! the next attempt starts.

use std::time::{Duration, Instant};

use crate::lab::{Lab, alive, children, signal, until};

/// A short lease, which the command outlives many times.
const SHORT: [&str; 4] = ["--lease", "2s", "--grace", "500ms"];

/// A command with a child of its own, which both do nothing for long.
const LONG: &str = "sleep 1000 & echo $$ $! > pids; sleep 1000";

fn pids(lab: &Lab) -> Vec<i32> {
    let text = lab.wait_for("pids");
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn wait_for_death(pids: &[i32]) {
    until("their death", || {
        pids.iter().all(|pid| !alive(*pid)).then_some(())
    });
}

/// Cases A15 and N38: whoever claims next gets the key when the lease is over, and not before.
fn claimable_after_the_lease(lab: &Lab, lease_end: i64) {
    let next = lab
        .script("k", &["--wait", "60s"], "date +%s%3N")
        .end()
        .with(0);
    let started: i64 = next.text().trim().parse().unwrap();
    assert!(started >= lease_end, "{started} is before {lease_end}");
    assert_eq!(lab.record("k")["attempt"], 2);
}

fn lease_end(lab: &Lab) -> i64 {
    lab.record("k")["in_progress_expiration"].as_i64().unwrap()
}

#[test]
fn a1_n38_a_killed_run_takes_its_command_with_it_and_blocks_its_key_until_the_lease() {
    let lab = Lab::new();
    let running = lab.script("k", &SHORT, LONG);
    let pids = pids(&lab);
    running.kill();
    wait_for_death(&pids);
    lab.wait_for_quiet();
    claimable_after_the_lease(&lab, lease_end(&lab));
}

#[test]
fn a_killed_command_takes_its_children_with_it_and_gives_the_key_back() {
    let lab = Lab::new();
    let running = lab.script("k", &[], LONG);
    let pids = pids(&lab);
    signal(pids[0], "KILL");
    running.end().with(137);
    wait_for_death(&pids);
    assert_eq!(lab.record("k")["state"], "released");
    lab.script("k", &[], "true").end().with(0);
}

/// Case A15: renewal lives and dies with the work.
#[test]
fn a15_of_a_killed_run_and_command_nothing_renews() {
    let lab = Lab::new();
    let running = lab.script("k", &SHORT, LONG);
    let pids = pids(&lab);
    signal(pids[0], "STOP");
    signal(running.pid(), "KILL");
    signal(pids[0], "KILL");
    running.kill();
    wait_for_death(&pids);
    let end = lease_end(&lab);
    claimable_after_the_lease(&lab, end);
}

/// Nobody is left to end the command's child: the next attempt on this machine does.
#[test]
fn what_outlives_everything_is_ended_before_the_next_attempt_starts() {
    let lab = Lab::new();
    let running = lab.script("k", &SHORT, LONG);
    let pids = pids(&lab);
    // The watchdog before `run`, so that it sees no death.
    for child in children(running.pid()) {
        if child != pids[0] {
            signal(child, "KILL");
        }
    }
    running.kill();
    assert!(alive(pids[1]), "the command's child is left");
    // Another key of the same store is none of its business.
    lab.script("other", &[], "true").end().with(0);
    assert!(alive(pids[1]));
    // One that has ended may not be collected yet.
    let look = format!(
        "grep -s '^State:' /proc/{}/status | grep -v '[ZX] (' || true",
        pids[1]
    );
    let next = lab.script("k", &["--wait", "60s"], &look).end().with(0);
    assert_eq!(next.text(), "");
}

/// However the way to the store is spelled, it is one store.
#[test]
fn what_is_left_is_found_by_another_way_to_the_same_store() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path("real")).unwrap();
    std::os::unix::fs::symlink(lab.path("real"), lab.path("link")).unwrap();
    let running = lab.script("k", &[&SHORT[..], &["--data", "link"]].concat(), LONG);
    let pids = pids(&lab);
    for child in children(running.pid()) {
        if child != pids[0] {
            signal(child, "KILL");
        }
    }
    running.kill();
    assert!(alive(pids[1]), "the command's child is left");
    let again = ["--wait", "60s", "--data", "./link/../real"];
    lab.script("k", &again, "true").end().with(0);
    let gone = !alive(pids[1]);
    signal(pids[1], "KILL");
    assert!(gone);
}

/// A service that the command started in a session of its own is not its leftover.
#[test]
fn a_service_that_an_attempt_started_is_left_alone() {
    let lab = Lab::new();
    let script = "setsid sh -c 'echo $$ > pids; exec sleep 1000' & sleep 1000";
    let running = lab.script("k", &SHORT, script);
    let pids = pids(&lab);
    running.kill();
    lab.script("k", &["--wait", "60s"], "true").end().with(0);
    assert!(alive(pids[0]));
}

#[test]
fn a_stopped_run_loses_its_command_in_time_and_its_writes_are_refused() {
    let lab = Lab::new();
    let running = lab.script("k", &SHORT, LONG);
    let pids = pids(&lab);
    running.signal("STOP");
    let end = lease_end(&lab);
    // Ended by the watchdog, before anybody else may begin.
    wait_for_death(&pids);
    let second = lab
        .script("k", &["--wait", "60s"], "date +%s%3N")
        .end()
        .with(0);
    let started: i64 = second.text().trim().parse().unwrap();
    assert!(started >= end);
    let stands = lab.record("k");
    running.signal("CONT");
    let first = running.end().with(82);
    assert!(first.stderr.contains("lease lost"), "{first:?}");
    assert_eq!(lab.record("k"), stands);
}

#[test]
fn a_stopped_run_and_command_are_ended_when_they_wake() {
    let lab = Lab::new();
    let running = lab.script(
        "k",
        &SHORT,
        "trap '' TERM; echo $$ > pids; sleep 1000; echo on > on",
    );
    let pids = pids(&lab);
    let all: Vec<i32> = children(running.pid());
    running.signal("STOP");
    for pid in &all {
        signal(*pid, "STOP");
    }
    let second = lab.script("k", &["--wait", "60s"], "echo second");
    // The machine was suspended: the first attempt's leftover is ended by the second.
    let second = second.end().with(0);
    assert_eq!(second.text(), "second\n");
    assert!(!alive(pids[0]));
    for pid in all {
        signal(pid, "CONT");
    }
    running.signal("CONT");
    running.end().with(82);
    assert_eq!(lab.read("on"), "");
    assert_eq!(lab.record("k")["data"]["stdout"], "second\n");
}

#[test]
fn the_total_of_the_renewals_is_bounded() {
    let lab = Lab::new();
    // Whether the lease is shorter than that time or longer.
    for lease in ["1s", "1m"] {
        let options = ["--lease", lease, "--grace", "200ms", "--max", "2s"];
        let remember = [&options[..], &["--on-failure", "remember"]].concat();
        let began = Instant::now();
        let ended = lab
            .script("k", &remember, "exec sleep 1000")
            .end()
            .with(143);
        assert!(
            ended.stderr.contains("ended after 2 s by --max"),
            "{ended:?}"
        );
        assert!(!ended.stderr.contains("lease lost"), "{ended:?}");
        assert!(began.elapsed() >= Duration::from_secs(2));
        assert!(began.elapsed() < Duration::from_secs(30));
        let record = lab.record("k");
        assert_eq!(
            (&record["state"], &record["error"]["code"]),
            (&"released".into(), &"max".into())
        );
    }
    // What it had not done by then is not done, whatever it says when it is asked to end.
    let options = ["--hold", "--lease", "1m", "--max", "1s"];
    let script = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
    lab.script("k", &options, script).end().with(143);
    assert_eq!(lab.record("k")["state"], "suspended");
}

#[test]
fn n48_a_command_that_kills_its_run_each_time_is_held_in_the_end() {
    let lab = Lab::new();
    let options = ["--lease", "700ms", "--grace", "100ms", "--wait", "60s"];
    let script = "echo x >> effects; kill -9 $PPID; sleep 1000";
    for _ in 0..5 {
        lab.script("k", &options, script).end().with(1009);
    }
    let held = lab.script("k", &options, script).end().with(80);
    assert!(held.stderr.contains("held"), "{held:?}");
    assert_eq!(lab.lines("effects"), 5);
    let listed = lab.run(&["list", "--lapsed", "--json", "-q"]).with(0);
    assert_eq!(listed.json()["id"], "cli#k");
    lab.run(&["settle", "k", "--rerun", "--why", "mended", "--yes"])
        .with(0);
    lab.script("k", &options, "true").end().with(0);
}
