//! `get`, `list`, `watch` and `completions`: what people and programs see.

use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim_cli::claims::store::{TABLE, open_file};

use crate::lab::Lab;

/// A key and texts that would act on a terminal.
const HOSTILE: &str = "k\u{202e}gnp";

#[test]
fn foreign_text_is_escaped_for_people_and_whole_for_programs() {
    let lab = Lab::new();
    let activity = "clear\u{1b}[2J\u{7}";
    let owner = lab
        .run(&["claim", HOSTILE, "--activity", activity])
        .with(0)
        .text();
    for arguments in [
        &["get", HOSTILE][..],
        &["list"],
        &["claim", HOSTILE],
        &["settle", HOSTILE, "--rerun", "--why", "x"],
        &["complete", HOSTILE, "1", "--owner", "stranger"],
    ] {
        let ended = lab.run(arguments);
        let shown = ended.text() + &ended.stderr;
        assert!(
            !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{shown:?}"
        );
        assert!(shown.contains(r"\u{202e}"), "{shown}");
    }
    let json = lab.record(HOSTILE);
    assert_eq!(json["activity"], activity);
    let rest = ["--owner", owner.trim()];
    lab.run(&[&["release", HOSTILE][..], &rest].concat())
        .with(0);
}

/// Cases A40 and N45: what is unknown is listed, and a takeover takes everything back that spoke of
/// the former owner.
#[test]
fn a40_n45_list_shows_what_is_unknown_until_somebody_takes_over() {
    let lab = Lab::new();
    let short = [
        "--lease",
        "300ms",
        "--grace",
        "100ms",
        "--activity",
        "charging",
    ];
    lab.run(&[&["claim", "charge#1"][..], &short].concat())
        .with(0);
    lab.run(&["claim", "charge#2"]).with(0);
    let owner = lab.run(&["claim", "cli#done"]).with(0).text();
    lab.run(&["complete", "done", "1", "--owner", owner.trim()])
        .with(0);
    let ids = |options: &[&str]| {
        let listed = lab
            .run(&[&["list", "--json", "-q"][..], options].concat())
            .with(0);
        let lines = listed.text();
        let ids = lines.lines().map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            record["id"].as_str().unwrap().to_owned()
        });
        ids.collect::<Vec<_>>()
    };
    crate::lab::until("the lapse", || {
        (ids(&["--lapsed"]).len() == 1).then_some(())
    });
    assert_eq!(ids(&["--lapsed"]), ["charge#1"]);
    assert_eq!(ids(&["--status", "COMPLETED"]), ["cli#done"]);
    assert_eq!(ids(&["--status", "inprogress"]), ["charge#1", "charge#2"]);
    assert_eq!(ids(&["--scope", "cli"]), ["cli#done"]);
    assert_eq!(ids(&["--scope", "char"]), [""; 0]);
    let people = lab.run(&["list"]).with(0);
    assert!(
        people.stderr.contains("scan of the whole table"),
        "{people:?}"
    );
    let text = people.text();
    let lapsed = text
        .lines()
        .find(|line| line.starts_with("charge#1"))
        .unwrap();
    assert!(
        lapsed.contains("lapsed") && lapsed.contains("charging"),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}'),
        "no colours where there is no terminal"
    );

    lab.run(&["claim", "charge#1"]).with(0);
    assert_eq!(ids(&["--lapsed"]), [""; 0]);
    let taken = lab.record("charge#1");
    assert_eq!(
        (&taken["attempt"], &taken["activity"]),
        (&2.into(), &serde_json::Value::Null)
    );
}

#[test]
fn what_is_over_is_left_out_unless_all_is_asked_for() {
    let lab = Lab::new();
    let window = ["--lease", "200ms", "--grace", "50ms", "--window", "16m"];
    lab.run(&[&["claim", "k"][..], &window].concat()).with(0);
    assert_eq!(
        lab.run(&["list", "-q", "--json"])
            .with(0)
            .text()
            .lines()
            .count(),
        1
    );
    lab.run(&["get", "none"]).with(1);
}

#[test]
fn watch_says_each_change_until_ctrl_c() {
    let lab = Lab::new();
    let one = lab.start(&["watch", "k"]);
    let all = lab.start(&["watch", "--json"]);
    let owner = lab.run(&["claim", "k"]).with(0).text();
    let line = |text: &str| {
        crate::lab::until(text, || one.stdout().contains(text).then_some(()));
    };
    line("running  cli#k  attempt 1");
    let owner = owner.trim();
    lab.run(&["activity", "k", "planning", "--owner", owner])
        .with(0);
    line("planning");
    lab.run(&["complete", "k", "1", "--owner", owner]).with(0);
    line("completed  cli#k  attempt 1");
    crate::lab::until("the scan", || {
        all.stdout().contains("\"COMPLETED\"").then_some(())
    });
    assert!(!(one.stdout() + &all.stdout()).contains(owner));
    one.signal("INT");
    let ended = one.end().with(0);
    assert_eq!(ended.text().lines().count(), 3, "{ended:?}");
    all.signal("INT");
    all.end().with(0);
}

#[test]
fn completions_name_the_commands_and_nothing_hidden() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = lab.run(&["completions", shell]).with(0).text();
        for word in ["settle", "checkpoint", "--on-failure"] {
            // Some shells' completions name options without their dashes.
            assert!(
                text.contains(word.trim_start_matches('-')),
                "{shell}: {word}"
            );
        }
        assert!(!text.contains("exec"), "{shell}");
    }
}

/// What the worker leaves behind that marks its entry and was killed before its call.
#[tokio::test]
async fn a_claim_that_was_lost_before_its_call_is_shown_as_that() {
    let lab = Lab::new();
    let client = open_file(&lab.path("state")).await.unwrap();
    for (id, marked, lease) in [
        ("pay#lost", Some("2"), "1000"),
        ("pay#unknown", None, "1000"),
        ("pay#earlier", Some("1"), "1000"),
        ("pay#running", Some("2"), "99999999999999"),
    ] {
        let number = |text: &str| AttributeValue::N(text.to_owned());
        let mut put = client
            .put_item()
            .table_name(TABLE)
            .item("id", AttributeValue::S(id.to_owned()))
            .item("status", AttributeValue::S("INPROGRESS".to_owned()))
            .item("owner", AttributeValue::S("somebody".to_owned()))
            .item("policy", AttributeValue::S("hold".to_owned()))
            .item("attempt", number("2"))
            .item("expiration", number("99999999999"))
            .item("in_progress_expiration", number(lease));
        if let Some(attempt) = marked {
            put = put.item("unentered", number(attempt));
        }
        put.send().await.unwrap();
    }
    let lost = "lost before its call went out; the next one may run it";
    let get = |id: &str| lab.run(&["get", id, "-q"]).with(0).text();
    assert!(get("pay#lost").contains(&format!("entered     no: {lost}")));
    assert!(get("pay#running").contains("entered     no: it says so"));
    for id in ["pay#unknown", "pay#earlier"] {
        assert!(!get(id).contains("entered"), "{id}");
    }
    assert_eq!(lab.record("pay#lost")["unentered"], 2);
    assert!(lab.record("pay#unknown").get("unentered").is_none());
    let listed = lab.run(&["list", "-q"]).with(0).text();
    let told = listed.lines().filter(|line| line.contains(lost));
    assert_eq!(told.count(), 1, "{listed}");
    let asked = lab.run(&["settle", "pay#lost", "--rerun", "--why", "x"]);
    assert!(asked.with(1).stderr.contains(lost));
    // It is what the next one finds: the key is free.
    lab.run(&["claim", "pay#lost", "--hold"]).with(0);
    lab.run(&["claim", "pay#unknown", "--hold"]).with(80);
}
