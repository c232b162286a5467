//! The first event of a position: no id leads back to it, and it is not lost all the same.

use std::io::Write;

use crate::answers::{accepting, event, sent};
use crate::lab::{Lab, until};
use crate::server::{Server, head, stream};

/// An event of the stream without an id.
const PLAIN: &str =
    "data: {\"key\":\"plain\",\"scopes\":[\"thread:teams/platform/website/42\"]}\n\n";

/// A stream as thread servers have it: whoever names no id is told what comes from now on, which is
/// `first` once and then nothing; whoever names one is told `later`.
fn from_now_on(first: String, later: String) -> Server {
    let said = std::sync::atomic::AtomicBool::new(false);
    Server::start(move |request, mut to| {
        let once = !said.swap(true, std::sync::atomic::Ordering::SeqCst);
        let text = match request.header("last-event-id") {
            None if once => stream(&format!("retry: 1\n\n{first}")),
            Some("41" | "90") if !later.is_empty() => stream(&format!("retry: 1\n\n{later}")),
            _ => head("204 No Content", ""),
        };
        // Whoever was killed meanwhile reads no answer.
        let _ = to.write_all(text.as_bytes());
    })
}

#[test]
fn a_first_event_that_was_refused_by_a_mistyped_queue_comes_first_at_the_next_start() {
    for answer in ["401 Unauthorized", "404 Not Found", "308 Moved"] {
        let (lab, to) = (Lab::new(), accepting());
        let wrong = Server::answering(&[&head(answer, "")]);
        let from = from_now_on(event("41", "a") + &event("42", "b"), event("42", "b"));
        let ended = lab
            .tail(&from.url, &["--webhook", &wrong.url])
            .end()
            .with(1);
        assert!(ended.stderr.contains("nothing is lost"), "{ended:?}");
        assert_eq!(lab.stored().unwrap()["event"]["id"], "41");
        let mended = lab.tail(&from.url, &["--webhook", &to.url]);
        until("the second event", || (lab.id()? == "42").then_some(()));
        mended.stop().with(0);
        assert_eq!(sent(&to)[..2], ["a", "b"], "{answer}");
        // Nothing of it stays behind.
        assert!(lab.stored().unwrap().get("event").is_none());
    }
}

#[test]
fn a_first_event_that_was_not_taken_yet_survives_a_stop_and_a_kill() {
    for kill in [false, true] {
        let (lab, to) = (Lab::new(), accepting());
        let from = from_now_on(event("41", "a"), String::new());
        let waiting = lab.tail(&from.url, &["--webhook", "http://127.0.0.1:1/"]);
        waiting.wait_for_stderr("not taken yet: 41 a");
        match kill {
            true => assert!(waiting.kill()),
            false => drop(waiting.stop().with(0)),
        }
        lab.tail(&from.url, &["--webhook", &to.url]).end().with(0);
        assert_eq!(
            (sent(&to), lab.id().unwrap()),
            (vec!["a".to_owned()], "41".to_owned())
        );
    }
}

/// Where the first start was told where to begin, the next one need not be told again.
#[test]
fn the_id_to_begin_behind_is_kept_before_the_first_hand_over() {
    let lab = Lab::new();
    let from = Server::answering(&[&stream(&event("41", "a")), &head("204 No Content", "")]);
    let arguments = ["--webhook", "http://127.0.0.1:1/", "--from", "40"];
    let waiting = lab.tail(&from.url, &arguments);
    waiting.wait_for_stderr("not taken yet: 41 a");
    assert!(waiting.kill());
    assert_eq!(lab.id().unwrap(), "40");
    lab.tail(&from.url, &arguments[..2]).end().with(0);
    assert_eq!(from.requests()[1].header("last-event-id"), Some("40"));
}

/// An option of the next start does not drop what the last one has kept.
#[test]
fn an_event_that_is_kept_counts_for_more_than_where_to_begin() {
    let (lab, to) = (Lab::new(), accepting());
    let from = from_now_on(event("41", "a"), String::new());
    let waiting = lab.tail(&from.url, &["--webhook", "http://127.0.0.1:1/"]);
    waiting.wait_for_stderr("not taken yet: 41 a");
    assert!(waiting.kill());
    let arguments = ["--webhook", &to.url, "--from", "7"];
    lab.tail(&from.url, &arguments).end().with(0);
    assert_eq!(sent(&to), ["a"]);
    assert_eq!(from.requests()[1].header("last-event-id"), Some("41"));
}

#[test]
fn the_first_event_behind_a_gap_is_not_lost_either() {
    let (lab, to) = (Lab::new(), accepting());
    let from = Server::start({
        let said = std::sync::atomic::AtomicBool::new(false);
        move |request, mut to| {
            let once = || !said.swap(true, std::sync::atomic::Ordering::SeqCst);
            let answer = match request.header("last-event-id") {
                Some("7") => head("410 Gone", ""),
                None if once() => stream(&format!("retry: 1\n\n{}", event("90", "after"))),
                _ => head("204 No Content", ""),
            };
            let _ = to.write_all(answer.as_bytes());
        }
    });
    let nowhere = ["--webhook", "http://127.0.0.1:1/", "--from", "7"];
    let waiting = lab.tail(
        &from.url,
        &[&nowhere[..], &["--on-gap", "continue"]].concat(),
    );
    waiting.wait_for_stderr("not taken yet: 90 after");
    assert!(waiting.kill());
    lab.tail(&from.url, &["--webhook", &to.url]).end().with(0);
    assert_eq!(
        (sent(&to), lab.id().unwrap()),
        (vec!["after".to_owned()], "90".to_owned())
    );
}

/// The stream can't be asked for it again, at whatever position.
#[test]
fn an_event_without_an_id_in_the_stream_is_kept_until_it_is_handed_on() {
    for before in ["", "id: 41\n\n"] {
        let (lab, to) = (Lab::new(), accepting());
        let wrong = Server::answering(&[&head("404 Not Found", "")]);
        let from = from_now_on(format!("{before}{PLAIN}"), String::new());
        let ended = lab
            .tail(&from.url, &["--webhook", &wrong.url])
            .end()
            .with(1);
        // What the stream says meanwhile can be asked for behind an id only.
        assert_eq!(
            ended.stderr.contains("nothing is lost"),
            !before.is_empty(),
            "{ended:?}"
        );
        assert!(ended.stderr.contains("plain"), "{ended:?}");
        lab.tail(&from.url, &["--webhook", &to.url]).end().with(0);
        assert_eq!(sent(&to), ["plain"]);
        lab.tail(&from.url, &["--webhook", &to.url]).end().with(0);
        assert_eq!(sent(&to), ["plain"]);
    }
}

#[test]
fn a_kept_event_without_an_id_does_not_undo_where_the_next_start_begins() {
    let (lab, to) = (Lab::new(), accepting());
    let wrong = Server::answering(&[&head("401 Unauthorized", "")]);
    let from = from_now_on(PLAIN.to_owned(), String::new());
    lab.tail(&from.url, &["--webhook", &wrong.url])
        .end()
        .with(1);
    let ended = lab
        .tail(&from.url, &["--webhook", &to.url, "--from", "17"])
        .end()
        .with(0);
    assert_eq!(sent(&to), ["plain"]);
    assert_eq!(from.requests()[1].header("last-event-id"), Some("17"));
    assert_eq!(lab.id().unwrap(), "17");
    let told = "begun earlier: an event without an id";
    assert!(ended.stderr.contains(told), "{ended:?}");
}

/// What is missing is told at each start until the position is behind it.
#[test]
fn a_kept_event_without_an_id_does_not_hide_the_gap_before_it() {
    let (lab, to) = (Lab::new(), accepting());
    let from = Server::start(move |request, mut to| {
        let answer = match request.header("last-event-id") {
            Some("4") => stream(&format!("retry: 1\n\n{}", event("5", "a"))),
            Some("5") => head("410 Gone", ""),
            _ => stream(&format!("retry: 1\n\n{PLAIN}")),
        };
        // Whoever was killed meanwhile reads no answer.
        let _ = to.write_all(answer.as_bytes());
    });
    let accepted = ["--webhook", &to.url, "--from", "4"];
    lab.tail(&from.url, &accepted).end().with(80);
    assert_eq!(lab.id().unwrap(), "5");
    let nowhere = ["--webhook", "http://127.0.0.1:1/", "--on-gap", "continue"];
    let waiting = lab.tail(&from.url, &nowhere);
    waiting.wait_for_stderr("not taken yet");
    assert!(waiting.kill());
    lab.tail(&from.url, &accepted[..2]).end().with(80);
    assert_eq!(sent(&to), ["a", "plain"]);
    assert_eq!(lab.id().unwrap(), "5");
}

/// What is kept and then refused for good lies in the letters, as any other.
#[test]
fn a_first_event_that_is_refused_at_the_next_start_is_kept_among_the_letters() {
    let lab = Lab::new();
    let from = from_now_on(event("41", "poison"), String::new());
    let waiting = lab.tail(&from.url, &["--webhook", "http://127.0.0.1:1/"]);
    waiting.wait_for_stderr("not taken yet");
    assert!(waiting.kill());
    let refusing = Server::answering(&[&head("413 Content Too Large", "")]);
    lab.tail(&from.url, &["--webhook", &refusing.url])
        .end()
        .with(0);
    let letters = lab.letters();
    assert_eq!((letters.len(), &letters[0]["id"]), (1, &"41".into()));
    assert!(letters[0]["data"].as_str().unwrap().contains("poison"));
    assert_eq!(lab.id().unwrap(), "41");
    assert!(lab.stored().unwrap().get("event").is_none());
}
