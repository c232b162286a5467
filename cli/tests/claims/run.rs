//! `run`: once per key, and everything that a duplicate gets.

use std::io::Read;
use std::process::Stdio;

use crate::lab::{Lab, until};

#[test]
fn the_first_one_runs_and_duplicates_get_its_streams_and_code_byte_for_byte() {
    let lab = Lab::new();
    let script = r#"echo x >> effects; printf 'a\0\377\nb'; printf 'warn\r\n' >&2; exit 0"#;
    let first = lab.script("deploy-1", &[], script).end().with(0);
    let again = lab.script("deploy-1", &[], script).end().with(0);
    assert_eq!(first.stdout, b"a\0\xff\nb");
    assert_eq!(again.stdout, first.stdout);
    for (ended, word) in [(&first, "performed"), (&again, "replayed")] {
        assert!(ended.stderr.contains("warn\r\n"), "{ended:?}");
        let line = format!("firstclaim: {word} cli#deploy-1, attempt 1");
        assert!(ended.stderr.contains(&line), "{ended:?}");
        assert!(ended.stderr.contains("state/claims.sqlite"), "{ended:?}");
    }
    assert_eq!(lab.lines("effects"), 1);
    // Quietly, stderr has the command's own lines only.
    let quiet = lab.script("deploy-1", &["-q"], script).end().with(0);
    assert_eq!(quiet.stderr, "warn\r\n");
}

#[test]
fn programs_get_json_and_people_the_output_on_stderr() {
    let lab = Lab::new();
    let script = "echo out; echo err >&2";
    let first = lab.script("k", &["--json"], script).end().with(0);
    assert!(first.stderr.contains("out\n") && first.stderr.contains("err\n"));
    let replayed = lab.script("k", &["--json"], script).end().with(0);
    for (ended, outcome) in [(&first, "performed"), (&replayed, "replayed")] {
        let json = ended.json();
        assert_eq!(json["id"], "cli#k");
        assert_eq!(json["outcome"], outcome);
        assert_eq!(json["attempt"], 1);
        assert_eq!(json["exit_code"], 0);
        assert_eq!(json["data"]["stdout"], "out\n");
        assert_eq!(json["data"]["stderr"], "err\n");
        assert!(!String::from_utf8_lossy(&ended.stdout).contains("owner"));
    }
}

#[test]
fn output_streams_while_the_command_runs() {
    let lab = Lab::new();
    let mut running = lab.script("k", &[], "echo first; read line; echo got $line");
    until("the first line", || {
        running.stdout().contains("first\n").then_some(())
    });
    assert!(!running.is_over());
    running.say("hello");
    assert_eq!(running.end().with(0).text(), "first\ngot hello\n");
}

/// Cases P75 and A12 over a command's output: the work is not repeated because it was awkward.
#[test]
fn p75_a12_long_output_is_stored_up_to_a_bound_and_marked_where_cut() {
    let lab = Lab::new();
    let script = "echo x >> effects; head -c 300000 /dev/urandom; printf 'h\u{e9}' >&2";
    let first = lab.script("k", &["-q"], script).end().with(0);
    assert_eq!(first.stdout.len(), 300_000);
    let again = lab.script("k", &[], script).end().with(0);
    assert_eq!(again.stdout, first.stdout[..128 * 1024]);
    let mark = "stdout was cut: 131072 of 300000 bytes were stored";
    assert!(again.stderr.contains(mark), "{}", again.stderr);
    assert!(again.stderr.contains("h\u{e9}"), "{}", again.stderr);
    let json = lab.script("k", &["--json"], script).end().with(0).json();
    assert_eq!(json["data"]["stdout"]["bytes"], 300_000);
    assert_eq!(lab.lines("effects"), 1);
}

#[test]
fn with_store_exit_nothing_of_the_output_is_kept() {
    let lab = Lab::new();
    let script = "echo secret-token; echo secret-too >&2";
    lab.script("k", &["--store", "exit"], script).end().with(0);
    let again = lab.script("k", &["--store", "exit"], script).end().with(0);
    assert_eq!(again.text(), "");
    assert!(again.stderr.contains("stdout was not stored"), "{again:?}");
    assert!(!lab.record("k").to_string().contains("secret"));
    assert!(!again.stderr.contains("secret"), "{again:?}");
}

#[test]
fn a31_a_failure_gives_the_key_back_unless_it_is_to_be_remembered() {
    let lab = Lab::new();
    let failing = "echo x >> effects; echo no; exit 3";
    for effects in 1..=2 {
        let ended = lab.script("k", &[], failing).end().with(3);
        assert!(ended.stderr.contains("gave cli#k back"), "{ended:?}");
        assert_eq!(lab.lines("effects"), effects);
    }
    assert_eq!(lab.record("k")["error"]["code"], "exit_3");
    let remember = ["--on-failure", "remember"];
    lab.script("k", &remember, failing).end().with(3);
    let again = lab.script("k", &[], "echo x >> effects").end().with(3);
    assert_eq!(again.text(), "no\n");
    assert!(again.stderr.contains("replayed"), "{again:?}");
    assert_eq!(lab.lines("effects"), 3);
    let record = lab.record("k");
    assert_eq!(record["status"], "FAILED");
    assert_eq!(
        (&record["data"]["code"], &record["attempt"]),
        (&"exit_3".into(), &3.into())
    );
}

#[test]
fn a3_a_failure_under_hold_is_unknown_and_held() {
    let lab = Lab::new();
    lab.script("k", &["--hold"], "echo x >> effects; exit 3")
        .end()
        .with(3);
    let held = lab
        .script("k", &["--hold"], "echo x >> effects")
        .end()
        .with(80);
    assert!(held.stderr.contains("settle"), "{held:?}");
    lab.script("k", &[], "echo x >> effects").end().with(80);
    assert_eq!(lab.lines("effects"), 1);
    assert_eq!(lab.record("k")["state"], "suspended");
}

#[test]
fn a_command_that_is_none_runs_nothing_and_gives_the_key_back() {
    let lab = Lab::new();
    std::fs::write(lab.path("plain"), "text").unwrap();
    for (name, code) in [
        ("no-such-command", 127),
        ("./nowhere", 127),
        ("./plain", 126),
        ("/", 126),
    ] {
        let ended = lab
            .run(&["run", "--hold", "--key", "k", "--", name])
            .with(code);
        assert!(ended.stderr.contains(name), "{ended:?}");
        assert_eq!(lab.record("k")["state"], "released");
    }
    lab.script("k", &["--hold"], "true").end().with(0);
}

#[test]
fn n12_a_duplicate_that_waits_gets_the_first_result_and_runs_nothing() {
    let lab = Lab::new();
    let script = "echo x >> effects; echo ready > ready; read line; echo result $line";
    let mut first = lab.script("k", &[], script);
    lab.wait_for("ready");
    let busy = lab.script("k", &[], script).end().with(75);
    assert!(
        busy.stderr.contains("in flight: cli#k, attempt 1"),
        "{busy:?}"
    );
    assert!(busy.stderr.contains("doing: running sh"), "{busy:?}");
    let second = lab.script("k", &["--wait", "60s"], script);
    first.say("one");
    assert_eq!(first.end().with(0).text(), "result one\n");
    let second = second.end().with(0);
    assert_eq!(second.text(), "result one\n");
    assert!(second.stderr.contains("replayed"), "{second:?}");
    assert_eq!(lab.lines("effects"), 1);
}

#[test]
fn p57_the_key_is_bound_to_its_payload() {
    let lab = Lab::new();
    std::fs::write(lab.path("plan.json"), r#"{"to": "prod", "replicas": 3}"#).unwrap();
    let run = |options: &[&str]| lab.script("k", options, "echo x >> effects").end();
    run(&["--fingerprint", "@plan.json"]).with(0);
    run(&["--fingerprint", r#"{"replicas":3,"to":"prod"}"#]).with(0);
    let other = run(&["--fingerprint", r#"{"replicas":4,"to":"prod"}"#]).with(81);
    assert!(other.stderr.contains("mismatch"), "{other:?}");
    run(&["--fingerprint", "a", "--fingerprint", "b"]).with(81);
    run(&["--fingerprint", "@nowhere"]).with(64);
    assert_eq!(lab.lines("effects"), 1);
    // What a list of payloads is made of stays apart.
    let listed = |options: &[&str]| lab.script("list", options, "true").end();
    listed(&["--fingerprint", "ab", "--fingerprint", "c"]).with(0);
    listed(&["--fingerprint", "a", "--fingerprint", "bc"]).with(81);
}

#[test]
fn the_command_knows_its_claim_and_the_other_commands_just_work_inside() {
    let lab = Lab::new();
    let program = env!("CARGO_BIN_EXE_firstclaim");
    let script = format!(
        r#"
        {program} activity -q "$FIRSTCLAIM_KEY" planning &&
        {program} checkpoint -q "$FIRSTCLAIM_KEY" plan '{{"id": 7}}' &&
        {program} get -q --json "$FIRSTCLAIM_KEY" > seen &&
        env | grep ^FIRSTCLAIM_ | sort > variables
        "#
    );
    lab.script("k", &[], &script).end().with(0);
    let seen: serde_json::Value = serde_json::from_str(&lab.read("seen")).unwrap();
    assert_eq!(seen["activity"], "planning");
    assert_eq!(seen["checkpoints"]["plan"]["id"], 7);
    assert_eq!(seen["state"], "running");
    let variables = lab.read("variables");
    for line in [
        "FIRSTCLAIM_KEY=cli#k",
        "FIRSTCLAIM_ATTEMPT=1",
        "FIRSTCLAIM_DATA=/",
    ] {
        assert!(variables.contains(line), "{variables}");
    }
    let downstream = firstclaim::downstream_key(&"cli#k".parse_key(), 0, "target");
    assert!(variables.contains(&format!("FIRSTCLAIM_DOWNSTREAM_KEY={downstream}")));
    assert!(variables.contains("FIRSTCLAIM_OWNER="), "{variables}");
    // The token opens nothing any more, and is in nothing that is shown.
    let owner = variables
        .lines()
        .find_map(|line| line.strip_prefix("FIRSTCLAIM_OWNER="));
    let owner = owner.unwrap();
    assert!(!lab.record("k").to_string().contains(owner));
    lab.run(&["fail", "k", "--owner", owner]).with(82);
}

trait ParseKey {
    fn parse_key(&self) -> firstclaim::Key;
}

impl ParseKey for str {
    fn parse_key(&self) -> firstclaim::Key {
        firstclaim::Key::parse(self).unwrap()
    }
}

/// The command ends the claim itself, and goes on beyond its lease: that is no lost lease.
#[test]
fn a_command_may_end_its_claim_itself() {
    let program = env!("CARGO_BIN_EXE_firstclaim");
    for (word, state, code) in [("complete", "completed", 0), ("fail", "failed", 1)] {
        let lab = Lab::new();
        let script = format!(
            "{program} {word} -q \"$FIRSTCLAIM_KEY\" || exit 9; echo over > over; read line; echo out"
        );
        let options = ["--lease", "1s", "--grace", "200ms"];
        let mut running = lab.script("k", &options, &script);
        lab.wait_for("over");
        // The refused renewal is heard of, and the command is not ended for it.
        let claimed = std::time::Instant::now();
        until("the lease to be over", || {
            (claimed.elapsed() > std::time::Duration::from_millis(1200)).then_some(())
        });
        assert!(!running.is_over(), "{}", running.stderr());
        running.say("");
        let ended = running.end().with(0);
        assert!(ended.stderr.contains("itself ended the claim"), "{ended:?}");
        assert_eq!(lab.record("k")["state"], state);
        let again = lab.script("k", &[], "true").end().with(code);
        assert!(!again.stderr.contains("performed"), "{again:?}");
    }
}

/// Case A7: a command that was started with a token goes on with its own claim.
#[test]
fn what_others_recorded_is_replayed_as_it_is() {
    let lab = Lab::new();
    for (value, printed) in [
        ("0", "0\n"),
        ("false", "false\n"),
        ("\"\"", "\n"),
        ("null", "null\n"),
        ("[]", "[]\n"),
        ("{}", "{}\n"),
        ("plain text", "plain text\n"),
        ("9007199254740993", "9007199254740993\n"),
    ] {
        let key = format!("k-{value}");
        let owner = lab.run(&["claim", &key]).with(0).text();
        lab.run(&["complete", &key, value, "--owner", owner.trim()])
            .with(0);
        let replayed = lab.script(&key, &[], "echo ran").end().with(0);
        assert_eq!(replayed.text(), printed, "{value}");
    }
}

/// Whoever reads the output may be slow: the lease goes on.
#[test]
fn a_reader_that_stops_does_not_cost_the_lease() {
    let lab = Lab::new();
    let mut command = lab.command(&[
        "run",
        "--key",
        "k",
        "--lease",
        "1s",
        "--grace",
        "200ms",
        "--",
        "sh",
        "-c",
        "head -c 3000000 /dev/zero; echo done > done",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let first = until("a lease", || {
        let record = lab.run(&["get", "k", "--json", "-q"]);
        (record.code == 0).then(|| record.json()["in_progress_expiration"].as_i64())?
    });
    // Renewed well beyond the first lease, with all the output still to come.
    until("renewals", || {
        let lease = lab.record("k")["in_progress_expiration"].as_i64()?;
        (lease > first + 1500).then_some(())
    });
    assert_eq!(lab.read("done"), "");
    let mut bytes = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(bytes.len(), 3_000_000);
    assert!(child.wait().unwrap().success());
    assert_eq!(lab.record("k")["state"], "completed");
}

/// What a successful command leaves running is its own business, and nobody waits for it.
#[test]
fn a_background_process_that_keeps_the_output_open_is_not_waited_for() {
    let lab = Lab::new();
    let script = "echo started; sleep 1000 & echo $! > pid";
    let ended = lab.script("k", &[], script).end().with(0);
    assert_eq!(ended.text(), "started\n");
    let pid = lab.read("pid").trim().parse().unwrap();
    assert!(crate::lab::alive(pid));
    crate::lab::signal(pid, "KILL");
}

#[test]
fn wrong_arguments_are_a_usage_error_and_touch_nothing() {
    let lab = Lab::new();
    for arguments in [
        &["run", "--key", "k"][..],
        &["run", "--", "true"],
        &["run", "--key", "", "--", "true"],
        &["run", "--key", "#x", "--", "true"],
        &["run", "--key", "a\u{7}", "--", "true"],
        // What a shell makes of `--key $KEY --hold` where the variable is empty.
        &["run", "--key", "--hold", "--", "true"],
        &["run", "--key", "-x", "--", "true"],
        &["run", "--key", "--", "true"],
        &["run", "--key", "k", "--lease", "5", "--", "true"],
        &["run", "--key", "k", "--lease", "1s", "--", "true"],
        &["run", "--key", "k", "--window", "1m", "--", "true"],
        &["run", "--key", "k", "--store", "all", "--", "true"],
        &["complete", "k", "1"],
        &["settle", "k", "--why", "x"],
        &["settle", "k", "--rerun", "--forget", "--why", "x"],
        &[
            "settle",
            "k",
            "--forget",
            "--new-downstream-key",
            "--why",
            "x",
        ],
        &["settle", "k", "--rerun"],
        &["settle", "k", "--rerun", "--why", "", "--yes"],
        &["settle", "k", "--rerun", "--why", " ", "--yes"],
        &["list", "--status", "gone"],
        &["get", "k", "--data", "x", "--table", "y"],
        &["completions", "csh"],
    ] {
        let ended = lab.run(arguments).with(64);
        assert!(
            !ended.stderr.is_empty() && ended.stdout.is_empty(),
            "{ended:?}"
        );
    }
    let left = lab.run(&["list", "--all", "-q"]).with(0);
    assert_eq!(left.text(), "");
    lab.run(&["run", "--key=-x", "--", "true"]).with(0);
    assert_eq!(lab.record("cli#-x")["state"], "completed");
}
