//! `settle`: in each form, on each kind of record, and raced by a live owner.

use serde_json::Value;

use crate::lab::Lab;

const FORMS: [&[&str]; 4] = [
    &["--result", "{\"receipt\": 7}"],
    &["--rerun"],
    &["--rerun", "--new-downstream-key"],
    &["--forget"],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unknown,
    Failed,
    Running,
    Completed,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Unknown, Self::Failed, Self::Running, Self::Completed];

    /// Makes a record of this kind; its owner's token.
    fn make(self, lab: &Lab) -> String {
        let owner = lab
            .run(&["claim", "k", "--hold", "--fingerprint", "p"])
            .with(0)
            .text();
        let owner = owner.trim().to_owned();
        let act = |arguments: &[&str]| {
            lab.run(&[arguments, &["--owner", &owner]].concat()).with(0);
        };
        act(&["checkpoint", "k", "plan", "1"]);
        match self {
            Self::Running => {}
            Self::Failed => act(&["fail", "k", "--code", "declined"]),
            Self::Completed => act(&["complete", "k", "1"]),
            Self::Unknown => {
                // Another key: `run` under hold, whose command fails.
                act(&["release", "k"]);
                lab.script("k", &["--hold", "--fingerprint", "p"], "exit 4")
                    .end()
                    .with(4);
            }
        }
        owner
    }
}

fn settle(lab: &Lab, form: &[&str], more: &[&str]) -> crate::lab::Ended {
    let why = ["settle", "k", "--why", "asked the bank", "--who", "ada"];
    lab.run(&[&why[..], form, more].concat())
}

/// What stands after a form.
fn check(form: &[&str], before: &Value, after: &Value) {
    let settled = &after["settled"];
    assert_eq!(
        (&settled["who"], &settled["why"]),
        (&"ada".into(), &"asked the bank".into())
    );
    let at = settled["at"].as_u64().unwrap();
    assert!(at > 1_700_000_000_000, "{settled}");
    let attempt = before["attempt"].as_u64().unwrap();
    assert_eq!(after["attempt"], attempt + 1);
    match form {
        ["--result", _] => {
            assert_eq!(after["state"], "completed");
            assert_eq!(after["data"]["receipt"], 7);
        }
        ["--rerun", new @ ..] => {
            assert_eq!(after["state"], "released");
            assert_eq!(after["checkpoints"]["plan"], 1);
            assert_eq!(after["validation"], before["validation"]);
            let generation = (!new.is_empty()).then_some(1);
            assert_eq!(after["generation"].as_u64(), generation);
            assert_eq!(after["data"], Value::Null);
        }
        _ => {
            assert_eq!(after["state"], "released");
            assert_eq!(after["checkpoints"], serde_json::json!({}));
            assert_eq!(after["validation"], Value::Null);
        }
    }
}

#[test]
fn a40_each_form_settles_each_kind_and_its_former_owner_can_write_no_more() {
    for kind in Kind::ALL {
        for form in FORMS {
            let lab = Lab::new();
            let owner = kind.make(&lab);
            let before = lab.record("k");
            settle(&lab, form, &["--yes"]).with(0);
            let after = lab.record("k");
            check(form, &before, &after);
            let late: &[&[&str]] = match kind {
                Kind::Running => &[
                    &["complete", "k", "9"],
                    &["fail", "k"],
                    &["release", "k"],
                    &["activity", "k", "here"],
                    &["checkpoint", "k", "plan", "2"],
                    &["claim", "k"],
                ],
                _ => &[&["complete", "k", "9"]],
            };
            for late in late {
                lab.run(&[late, &["--owner", &owner][..]].concat()).with(82);
            }
            assert_eq!(lab.record("k"), after, "{kind:?} {form:?}");
            let ran = lab.script("k", &["-q", "--hold"], "echo ran").end().with(0);
            let rerun = !form.contains(&"--result");
            assert_eq!(ran.text() == "ran\n", rerun, "{kind:?} {form:?}");
        }
    }
}

#[test]
fn it_shows_the_record_and_asks_before_it_acts() {
    let lab = Lab::new();
    Kind::Unknown.make(&lab);
    let before = lab.record("k");
    let arguments = ["settle", "k", "--rerun", "--why", "x"];
    for answer in ["n", "", "no", "yess"] {
        let mut asking = lab.start(&arguments);
        asking.say(answer);
        let ended = asking.end().with(1);
        assert!(
            ended.stderr.contains("exit_4"),
            "it shows the error: {ended:?}"
        );
        assert!(ended.stderr.contains("[y/N]"), "{ended:?}");
        assert!(ended.stderr.contains("not settled"), "{ended:?}");
        assert_eq!(lab.record("k"), before);
    }
    // With nobody to ask.
    lab.run(&arguments).with(1);
    let mut asking = lab.start(&arguments);
    asking.say("y");
    asking.end().with(0);
    // Who it was, where nobody says.
    let who = lab.record("k")["settled"]["who"].clone();
    assert!(who.as_str().unwrap().starts_with("ada@"), "{who}");
}

/// Nothing is overwritten unseen: whatever an owner does between the look and the answer wins.
#[test]
fn a_live_owner_that_is_faster_wins() {
    for form in FORMS {
        for act in [
            &["complete", "k", "1"][..],
            &["fail", "k"],
            &["release", "k"],
            &["claim", "k", "--lease", "10m"],
        ] {
            let lab = Lab::new();
            let owner = lab.run(&["claim", "k"]).with(0).text();
            let arguments = [&["settle", "k", "--why", "x"][..], form].concat();
            let mut asking = lab.start(&arguments);
            asking.wait_for_stderr("[y/N]");
            assert!(asking.stderr().contains("presumed to be at it"));
            lab.run(&[act, &["--owner", owner.trim()]].concat()).with(0);
            let stands = lab.record("k");
            asking.say("y");
            let ended = asking.end().with(82);
            assert!(ended.stderr.contains("nothing was changed"), "{ended:?}");
            assert_eq!(lab.record("k"), stands, "{form:?} {act:?}");
        }
    }
}

#[test]
fn of_two_settles_one_stands() {
    let lab = Lab::new();
    Kind::Unknown.make(&lab);
    let start = |why: &str| {
        let asking = lab.start(&["settle", "k", "--rerun", "--why", why]);
        asking.wait_for_stderr("[y/N]");
        asking
    };
    let (mut one, mut other) = (start("one"), start("other"));
    one.say("y");
    one.end().with(0);
    other.say("y");
    other.end().with(82);
    assert_eq!(lab.record("k")["settled"]["why"], "one");
}

#[test]
fn a_script_that_looked_before_names_the_attempt() {
    let lab = Lab::new();
    Kind::Unknown.make(&lab);
    let attempt = lab.record("k")["attempt"].to_string();
    settle(&lab, &["--rerun"], &["--yes", "--attempt", "1"]).with(82);
    settle(&lab, &["--rerun"], &["--yes", "--attempt", &attempt]).with(0);
    settle(&lab, &["--rerun"], &["--yes", "--attempt", &attempt]).with(82);
    lab.run(&["settle", "none", "--rerun", "--why", "x", "--yes"])
        .with(1);
}

/// Case N35: a target that remembers a failure under its key is asked under another one.
#[test]
fn n35_a_new_downstream_key_comes_with_a_new_generation() {
    let lab = Lab::new();
    let show = "printf %s $FIRSTCLAIM_DOWNSTREAM_KEY; exit 5";
    let first = lab
        .script("k", &["--on-failure", "remember"], show)
        .end()
        .with(5);
    settle(&lab, &["--rerun"], &["--yes"]).with(0);
    let second = lab
        .script("k", &["--on-failure", "remember"], show)
        .end()
        .with(5);
    assert_eq!(first.text(), second.text());
    settle(&lab, &["--rerun", "--new-downstream-key"], &["--yes"]).with(0);
    let third = lab.script("k", &[], show).end().with(5);
    assert_ne!(third.text(), first.text());
}

/// Case N47: whoever comes late is refused, and says so with the digest of what was dropped.
#[test]
fn n47_a_run_that_comes_late_says_who_has_the_key_and_what_was_dropped() {
    let lab = Lab::new();
    let mut running = lab.script("k", &[], "echo begun > begun; read line; echo late");
    lab.wait_for("begun");
    settle(&lab, &["--result", "\"by hand\""], &["--yes"]).with(0);
    let stands = lab.record("k");
    running.say("go");
    let late = running.end().with(82);
    assert!(late.stderr.contains("attempt 2 has the key"), "{late:?}");
    let (_, digest) = late.stderr.split_once("SHA-256 ").unwrap();
    let digest = digest.split(')').next().unwrap();
    assert!(digest.len() == 64, "{late:?}");
    assert_eq!(lab.record("k"), stands);
    assert_eq!(stands["data"], "by hand");
}
