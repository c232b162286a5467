//! `run`: the signals that come to it, and the ends that they bring.

use std::io::Read;
use std::process::Stdio;

use crate::lab::{Lab, until};

#[test]
fn signals_are_passed_on_and_an_end_by_one_is_never_remembered() {
    let lab = Lab::new();
    let script = "trap 'echo heard; exit 7' TERM; echo ready > ready; while :; do sleep 0.05; done";
    let running = lab.script("k", &["--on-failure", "remember"], script);
    lab.wait_for("ready");
    running.signal("TERM");
    let ended = running.end().with(7);
    assert_eq!(ended.text(), "heard\n");
    assert_eq!(lab.record("k")["state"], "released");

    std::fs::remove_file(lab.path("ready")).unwrap();
    let running = lab.script("k", &[], "echo ready > ready; exec sleep 1000");
    lab.wait_for("ready");
    running.signal("INT");
    running.end().with(130);
    assert_eq!(lab.record("k")["state"], "released");
}

/// An exit code above the signals is the command's own; a shell's word for a signal is not.
#[test]
fn exit_codes_beyond_the_signals_are_remembered() {
    let lab = Lab::new();
    let remember = ["--on-failure", "remember", "-q"];
    for (code, runs) in [(255, 1), (160, 1), (128, 1), (137, 2), (159, 2)] {
        let key = format!("k-{code}");
        let script = format!("echo x >> {key}; exit {code}");
        for _ in 0..2 {
            lab.script(&key, &remember, &script).end().with(code);
        }
        assert_eq!(lab.lines(&key), runs, "{code}");
    }
}

/// Ctrl-Z stops whoever waits, and it goes on waiting.
#[test]
fn a_run_that_waits_is_stopped_and_goes_on() {
    let lab = Lab::new();
    let mut first = lab.script("k", &[], "echo ready > ready; read line; echo first");
    lab.wait_for("ready");
    let mut second = lab.script("k", &["--wait", "60s"], "echo second");
    second.wait_for_stderr("using");
    second.signal("CONT");
    second.signal("TSTP");
    let stopped = format!("/proc/{}/stat", second.pid());
    until("the stop", || {
        let stat = std::fs::read_to_string(&stopped).unwrap();
        stat.contains(") T ").then_some(())
    });
    second.signal("CONT");
    first.say("");
    first.end().with(0);
    assert!(!second.is_over() || second.stderr().contains("replayed"));
    assert_eq!(second.end().with(0).text(), "first\n");
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let lab = Lab::new();
    let program = env!("CARGO_BIN_EXE_firstclaim");
    let script = format!(
        "trap '' HUP; exec {program} run --key k -- sh -c 'echo ready > ready; read line; echo done'"
    );
    let mut command = lab.command(&[]);
    command = {
        let mut nohup = std::process::Command::new("sh");
        nohup.args(["-c", &script]).envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        nohup.current_dir(lab.path(""));
        nohup
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    lab.wait_for("ready");
    crate::lab::signal(child.id().try_into().unwrap(), "HUP");
    drop(child.stdin.take());
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "done\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn ctrl_c_while_waiting_ends_it_and_leaves_the_key_to_its_owner() {
    let lab = Lab::new();
    let mut first = lab.script("k", &[], "echo ready > ready; read line");
    lab.wait_for("ready");
    let second = lab.script("k", &["--wait", "60s"], "true");
    second.wait_for_stderr("using");
    second.signal("INT");
    let ended = second.end().with(130);
    assert!(ended.stderr.contains("nothing ran"), "{ended:?}");
    first.say("");
    first.end().with(0);
    assert_eq!(lab.record("k")["attempt"], 1);
}
