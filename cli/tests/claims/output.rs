//! Output that nobody reads, that can't be written, or that is foreign.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, signal, until};

/// Starts a command whose output nobody reads.
fn unread(lab: &Lab, arguments: &[&str]) -> Child {
    let mut command = lab.command(arguments);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn run<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["run", "--key", "k", "-q"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    arguments
}

fn end(child: &mut Child) -> ExitStatus {
    until("its end", || child.try_wait().unwrap())
}

fn pid(child: &Child) -> i32 {
    child.id().try_into().unwrap()
}

/// More than a pipe holds, and less than the command is held up for.
const LONG: &str = "head -c 300000 /dev/zero";

#[test]
fn a_stalled_reader_holds_up_neither_the_record_nor_a_signal() {
    let lab = Lab::new();
    let mut first = unread(&lab, &run(&[], LONG));
    until("the record", || {
        let record = lab.run(&["get", "k", "--json", "-q"]);
        (record.code == 0 && record.json()["state"] == "completed").then_some(())
    });
    // Nothing of it is left to be renewed.
    assert_eq!(lab.record("k").get("in_progress_expiration"), None);
    assert!(first.try_wait().unwrap().is_none(), "all is not shown yet");
    signal(pid(&first), "TERM");
    assert_eq!(end(&mut first).code(), Some(143));

    // A replay has stored output to show, which is more than a pipe holds too.
    let mut replay = unread(&lab, &run(&[], LONG));
    let mut byte = [0];
    let stdout = replay.stdout.as_mut().unwrap();
    stdout.read_exact(&mut byte).unwrap();
    signal(pid(&replay), "INT");
    assert_eq!(end(&mut replay).code(), Some(130));
}

#[test]
fn a_slow_reader_gets_everything_after_the_end_is_recorded() {
    let lab = Lab::new();
    let mut first = unread(&lab, &run(&[], LONG));
    until("the record", || {
        let record = lab.run(&["get", "k", "--json", "-q"]);
        (record.code == 0 && record.json()["state"] == "completed").then_some(())
    });
    let mut bytes = Vec::new();
    let mut stdout = first.stdout.take().unwrap();
    stdout.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 300_000);
    assert!(end(&mut first).success());
}

/// Neither the reader nor what the command left behind is waited for.
#[test]
fn a_background_process_behind_a_stalled_reader_does_not_hold_up_the_end() {
    let lab = Lab::new();
    let script = format!("{LONG}; sleep 1000 & echo $! > pid");
    let began = Instant::now();
    let mut first = unread(&lab, &run(&[], &script));
    until("the record", || {
        let record = lab.run(&["get", "k", "--json", "-q"]);
        (record.code == 0 && record.json()["state"] == "completed").then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(30));
    signal(lab.read("pid").trim().parse().unwrap(), "KILL");
    signal(pid(&first), "TERM");
    assert_eq!(end(&mut first).code(), Some(143));
}

#[test]
fn whoever_stops_reading_ends_watch_and_fails_nobody() {
    let lab = Lab::new();
    let mut watch = unread(&lab, &["watch", "k"]);
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let mut byte = [0];
    watch
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    drop(watch.stdout.take());
    lab.run(&["activity", "k", "on", "--owner", owner.trim()])
        .with(0);
    assert!(end(&mut watch).success());

    for arguments in [&["get", "k"][..], &["list"], &["list", "--json"]] {
        let mut shown = lab.command(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = shown.stdout(writer).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// A command whose stdout is a disk without room.
fn full(lab: &Lab, arguments: &[&str]) -> std::process::Output {
    let mut command: Command = lab.command(arguments);
    let full = File::options().write(true).open("/dev/full").unwrap();
    command.stdin(Stdio::null()).stdout(full);
    command.stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_result_that_can_not_be_written_is_an_error() {
    let lab = Lab::new();
    lab.run(&["claim", "k", "--activity", "on"]).with(0);
    for arguments in [
        &["get", "k"][..],
        &["get", "k", "--json"],
        &["list"],
        &["list", "--json"],
        &["watch", "k"],
        &["completions", "bash"],
        &["send", "--list"],
    ] {
        let output = full(&lab, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains("stdout can't be written"), "{told}");
    }
    // What the command ended with counts for more than how it was shown.
    for (script, code) in [("echo x >> effects; echo out", 1), ("echo no; exit 7", 7)] {
        let key = format!("k{code}");
        let arguments = ["run", "--key", &key, "--", "sh", "-c", script];
        let output = full(&lab, &arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains("stdout can't be written"), "{told}");
    }
    // It ran, and is recorded; the replay can't be shown either.
    let again = ["run", "--key", "k1", "--", "true"];
    assert_eq!(full(&lab, &again).status.code(), Some(1));
    assert_eq!(lab.run(&again).with(0).text(), "out\n");
    assert_eq!(lab.lines("effects"), 1);
}

/// What is stored does not depend on who reads it: duplicates get it as a result.
#[test]
fn output_that_can_not_be_shown_is_stored_to_its_end() {
    let lab = Lab::new();
    let script = "echo one; sleep 0.3; echo two; (sleep 0.1; echo three) 2>/dev/null &";
    let arguments = |key| ["run", "--key", key, "-q", "--", "sh", "-c", script];
    let (reader, gone) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = lab.command(&arguments("gone"));
    let output = command.stdin(Stdio::null()).stdout(gone).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(full(&lab, &arguments("full")).status.code(), Some(1));
    lab.run(&arguments("read")).with(0);
    for key in ["gone", "full", "read"] {
        let replay = lab.run(&arguments(key)).with(0);
        assert_eq!(replay.text(), "one\ntwo\nthree\n", "{key}");
    }
}

/// Whoever does not see the record must know that it was changed, or was not.
#[test]
fn what_stands_and_can_not_be_shown_is_said() {
    let lab = Lab::new();
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let owned = ["--json", "-q", "--owner", owner.trim()];
    let rerun = [
        "settle", "k", "--rerun", "--why", "x", "--yes", "--json", "-q",
    ];
    for (arguments, code, said) in [
        (
            [&["claim", "k"][..], &owned].concat(),
            1,
            "extended: cli#k, attempt 1, but it can't be shown",
        ),
        (
            [&["activity", "k", "on"][..], &owned].concat(),
            1,
            "activity: cli#k, attempt 1, but it can't be shown",
        ),
        (
            rerun.to_vec(),
            1,
            "settled: cli#k, attempt 2, but it can't be shown",
        ),
        (
            [&["complete", "k"][..], &owned].concat(),
            82,
            "nothing was changed",
        ),
    ] {
        let output = full(&lab, &arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
    }
    assert_eq!(lab.record("k")["state"], "released");
}

#[test]
fn a_claim_whose_token_nobody_got_is_given_back() {
    let lab = Lab::new();
    let output = full(&lab, &["claim", "k", "--hold"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("given back"), "{told}");
    assert_eq!(lab.record("k")["state"], "released");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut claim = lab.command(&["claim", "k", "--json"]);
    let output = claim.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(lab.record("k")["state"], "released");
    lab.run(&["claim", "k"]).with(0);
}

/// What others wrote in several lines, or with characters that act on a terminal.
#[test]
fn foreign_json_is_one_record_a_line_with_its_digits() {
    let lab = Lab::new();
    let spread = "{\n  \"a\": 12345678901234567890123,\r\n\t\"b\": \"x \u{9b}2J\u{202e} y\"\n}";
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let owner = owner.trim();
    lab.run(&["checkpoint", "k", "step", spread, "--owner", owner])
        .with(0);
    lab.run(&["complete", "k", spread, "--owner", owner])
        .with(0);
    let watch = lab.start(&["watch", "k", "--json"]);
    until("the record", || watch.stdout().contains('\n').then_some(()));
    watch.signal("INT");
    let shown = [
        lab.run(&["get", "k", "--json"]).with(0).text(),
        lab.run(&["list", "--json"]).with(0).text(),
        watch.end().with(0).text(),
        lab.script("k", &["--json"], "true").end().with(0).text(),
    ];
    for text in shown {
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{9b}', '\u{202e}']), "{text:?}");
        let data = r#""data":{"a":12345678901234567890123,"b":"x \u009b2J\u202e y"}"#;
        assert!(text.contains(data), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}

#[test]
fn a_hint_can_be_pasted_whatever_the_key_and_the_store_are() {
    let lab = Lab::new();
    let elsewhere = ["--data", "else; touch pwned"];
    for key in [
        "pay#it's; touch pwned; $(touch pwned) \u{202e}",
        "-x#--forget",
    ] {
        for store in [&[][..], &elsewhere] {
            let keyed = format!("--key={key}");
            let hold = [&["run", "--hold", &keyed][..], store].concat();
            lab.run(&[&hold[..], &["--", "sh", "-c", "exit 3"]].concat())
                .with(3);
            let claim = [&["claim"][..], store, &["--", key]].concat();
            let told = lab.run(&claim).with(80).stderr;
            let settle = pasted(&lab, &told, "settle", "--yes");
            assert!(settle.status.success(), "{settle:?} {told}");
            let done = [&["run", &keyed][..], store, &["--", "true"]].concat();
            lab.run(&done).with(0);
            let told = lab.run(&claim).with(1).stderr;
            let get = pasted(&lab, &told, "get", "--json");
            assert!(get.status.success(), "{get:?} {told}");
            let shown: serde_json::Value = serde_json::from_slice(&get.stdout).unwrap();
            assert_eq!(
                (&shown["id"], &shown["state"]),
                (&key.into(), &"completed".into())
            );
        }
    }
    assert!(!lab.path("pwned").exists());
}

/// Pastes the command of this name that was told, with an option more, in another folder.
fn pasted(lab: &Lab, told: &str, name: &str, option: &str) -> std::process::Output {
    let (_, rest) = told.split_once(&format!("firstclaim {name} ")).unwrap();
    let rest = rest.split(", or").next().unwrap();
    let program = env!("CARGO_BIN_EXE_firstclaim");
    // `sh` is not bash everywhere, and a key has a character that only bash's quotes can name.
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{program} {name} {option} {rest}")])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("FIRSTCLAIM_DATA", lab.path("state"))
        .current_dir("/");
    bash.output().unwrap()
}
