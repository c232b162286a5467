//! The protocol by hand: claim, work, end, each a process of its own.

use crate::lab::Lab;

#[test]
fn a_script_claims_works_and_completes() {
    let lab = Lab::new();
    let claimed = lab
        .run(&["claim", "orders#1", "--activity", "counting"])
        .with(0);
    let owner = claimed.text();
    assert_eq!(owner.trim().len(), 32, "{owner:?}");
    let owner = owner.trim();
    // From the environment, as in a script that exports it.
    let acted = |arguments: &[&str]| {
        let mut command = lab.command(arguments);
        command.env("FIRSTCLAIM_OWNER", owner);
        command.output().unwrap()
    };
    assert_eq!(lab.record("orders#1")["activity"], "counting");
    assert!(acted(&["activity", "orders#1", "packing"]).status.success());
    assert!(
        acted(&["checkpoint", "orders#1", "label", "L-1"])
            .status
            .success()
    );
    let record = lab.record("orders#1");
    assert_eq!(record["activity"], "packing");
    assert_eq!(record["checkpoints"]["label"], "L-1");
    assert_eq!(record["state"], "running");
    lab.run(&["claim", "orders#1"]).with(75);
    let output = acted(&["complete", "orders#1", "{\"parcel\": 9}", "--json"]);
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["outcome"], "completed");
    assert_eq!(lab.record("orders#1")["data"]["parcel"], 9);
    // Said again after a lost reply it is done; something else is not.
    assert!(
        acted(&["complete", "orders#1", "{\"parcel\": 9}"])
            .status
            .success()
    );
    assert_eq!(
        acted(&["complete", "orders#1", "8"]).status.code(),
        Some(82)
    );
    let done = lab.run(&["claim", "orders#1"]).with(1);
    assert!(done.stderr.contains("done already"), "{done:?}");
    assert_eq!(done.text(), "");
}

#[test]
fn a_result_may_come_from_stdin() {
    let lab = Lab::new();
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let mut completing = lab.start(&["complete", "k", "-", "--owner", owner.trim()]);
    completing.say("[1, 2]");
    completing.end().with(0);
    assert_eq!(lab.record("k")["data"], serde_json::json!([1, 2]));
}

#[test]
fn a_failure_is_remembered_and_a_release_is_not() {
    let lab = Lab::new();
    let owner = lab.run(&["claim", "k", "--hold"]).with(0).text();
    let why = [
        "--code",
        "full",
        "--message",
        "no disk",
        "--owner",
        owner.trim(),
    ];
    lab.run(&[&["release", "k"][..], &why].concat()).with(0);
    assert_eq!(lab.record("k")["error"]["message"], "no disk");
    let owner = lab.run(&["claim", "k", "--hold"]).with(0).text();
    lab.run(&[
        "fail",
        "k",
        "--message",
        "declined",
        "--owner",
        owner.trim(),
    ])
    .with(0);
    let failed = lab.run(&["claim", "k"]).with(1);
    assert!(failed.stderr.contains("declined"), "{failed:?}");
    let replayed = lab.script("k", &[], "echo ran").end().with(1);
    assert_eq!(replayed.text(), "");
}

/// Cases P30 and A7: who has the token goes on with the claim, and nobody else.
#[test]
fn p30_a7_the_token_extends_its_own_claim() {
    let lab = Lab::new();
    let owner = lab.run(&["claim", "k", "--lease", "1m"]).with(0).text();
    let lease = || lab.record("k")["in_progress_expiration"].as_i64().unwrap();
    let first = lease();
    let extended = lab
        .run(&["claim", "k", "--lease", "10m", "--owner", owner.trim()])
        .with(0);
    assert_eq!(extended.text(), owner);
    assert!(lease() >= first + 8 * 60 * 1000);
    assert_eq!(lab.record("k")["attempt"], 1);
    lab.run(&["claim", "k", "--owner", "stranger"]).with(82);
}

/// The token extends the claim as it was made: what is stricter is refused, never left out.
#[test]
fn a_claim_that_is_extended_is_the_one_that_is_asked_for() {
    let lab = Lab::new();
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let bound = lab.run(&["claim", "b", "--fingerprint", "x", "--hold"]);
    let bound = bound.with(0).text();
    let extend = |key: &str, owner: &str, more: &[&str]| {
        lab.run(&[&["claim", key, "--owner", owner.trim()], more].concat())
    };
    for more in [&["--fingerprint", "x"][..], &["--hold"]] {
        let told = extend("k", &owner, more).with(64).stderr;
        assert!(told.contains(more[0]), "{told}");
    }
    extend("k", &owner, &["--activity", "on"]).with(0);
    assert_eq!(lab.record("k")["activity"], "on");
    extend("b", &bound, &["--fingerprint", "x", "--hold"]).with(0);
    let told = extend("b", &bound, &["--fingerprint", "y"]).with(81).stderr;
    assert!(told.contains("mismatch"), "{told}");
    extend("b", &bound, &[]).with(0);
}

/// Case N42: all share one account, and only the token makes an owner.
#[test]
fn n42_without_the_token_nothing_can_be_ended() {
    let lab = Lab::new();
    lab.run(&["claim", "k"]).with(0);
    let stands = lab.record("k");
    for arguments in [
        &["complete", "k", "1"][..],
        &["fail", "k"],
        &["release", "k"],
        &["activity", "k", "mine"],
        &["checkpoint", "k", "n", "1"],
    ] {
        lab.run(arguments).with(64);
        let stranger = [arguments, &["--owner", "stranger"]].concat();
        let refused = lab.run(&stranger).with(82);
        assert!(refused.stderr.contains("superseded"), "{refused:?}");
    }
    assert_eq!(lab.record("k"), stands);
}

/// Case N43: a record that can't be found is no proof that somebody else has the key.
#[test]
fn n43_no_record_is_not_a_lost_race() {
    let lab = Lab::new();
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let elsewhere = [
        "complete",
        "k",
        "1",
        "--data",
        "elsewhere",
        "--owner",
        owner.trim(),
    ];
    let told = lab.run(&elsewhere).with(69);
    assert!(told.stderr.contains("right store"), "{told:?}");
    lab.run(&["complete", "k", "1", "--owner", owner.trim()])
        .with(0);
}

/// A payload takes one word, and the key behind it stays the key.
#[test]
fn a_payload_does_not_swallow_the_key_and_a_short_window_needs_a_short_lease_only() {
    let lab = Lab::new();
    lab.run(&["claim", "--fingerprint", "x", "k"]).with(0);
    assert_eq!(lab.record("k")["state"], "running");
    lab.run(&["claim", "w", "--lease", "30s", "--window", "10m"])
        .with(0);
    lab.run(&["claim", "v", "--lease", "30s", "--window", "20s"])
        .with(64);
}

#[test]
fn claim_says_in_json_what_a_program_needs() {
    let lab = Lab::new();
    let claimed = lab.run(&["claim", "k", "--json"]).with(0).json();
    assert_eq!(claimed["outcome"], "claimed");
    assert!(claimed["owner"].is_string() && claimed["downstream_key"].is_string());
    let busy = lab.run(&["claim", "k", "--json"]).with(75).json();
    assert_eq!(busy["outcome"], "in_flight");
    assert!(busy["retry_after_ms"].as_u64().unwrap() > 0);
    assert_eq!(busy["owner"], serde_json::Value::Null);
    let other = lab.run(&["claim", "k2", "--fingerprint", "a"]).with(0);
    drop(other);
    let mismatch = lab
        .run(&["claim", "k2", "--fingerprint", "b", "--json"])
        .with(81)
        .json();
    assert_eq!(mismatch["outcome"], "mismatch");
}
