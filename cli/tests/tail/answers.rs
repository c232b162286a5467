//! What becomes of each answer, of the stream's server and of the one that events are handed to.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::lab::{Lab, Running, until};
use crate::server::{Log, Server, head, key, stream};

/// An event in the stream, with a key.
pub(crate) fn event(id: &str, key: &str) -> String {
    format!(
        "id: {id}\ndata: {{\"key\":\"{key}\",\"scopes\":[\"thread:teams/platform/website/42\"]}}\n\n"
    )
}

/// A stream that ends for good when these events were said.
fn events(text: &str) -> Server {
    Server::answering(&[
        &stream(&format!("retry: 1\n\n{text}")),
        &head("204 No Content", ""),
    ])
}

pub(crate) fn accepting() -> Server {
    Server::answering(&[&head("202 Accepted", "")])
}

/// The keys that a server was sent, in order.
pub(crate) fn sent(server: &Server) -> Vec<String> {
    let bodies = server.requests().into_iter().map(|request| request.body);
    bodies
        .map(|body| {
            let event: serde_json::Value = serde_json::from_str(&body).unwrap();
            event["key"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn the_stream_is_asked_for_as_the_standard_says_and_ends_with_204() {
    let (lab, to) = (Lab::new(), accepting());
    let from = events(&(event("41", "a") + &event("42", "b")));
    let ended = lab
        .tail(&from.url, &["--webhook", &to.url, "--json"])
        .end()
        .with(0);
    assert_eq!(sent(&to), ["a", "b"]);
    assert_eq!(lab.id().unwrap(), "42");
    let requests = from.requests();
    assert_eq!(requests[0].header("accept"), Some("text/event-stream"));
    assert_eq!(
        requests[0].header("authorization"),
        Some("Bearer the-token")
    );
    assert_eq!(requests[0].header("last-event-id"), None);
    assert_eq!(requests[1].header("last-event-id"), Some("42"));
    let lines = ended.json();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["outcome"], "handed-on");
    assert_eq!(lines[1]["key"], "b");
    assert!(ended.stderr.contains("handed on 42"), "{ended:?}");
    assert!(!ended.stderr.contains("the-token"), "{ended:?}");
    // The token is for the stream only; the webhook has a signature.
    let posted = &to.requests()[0];
    assert_eq!(posted.header("authorization"), None);
    assert_eq!(posted.header("webhook-id"), Some("a"));
    assert!(
        posted
            .header("webhook-signature")
            .unwrap()
            .starts_with("v1,")
    );
}

#[test]
fn a_new_process_goes_on_where_the_last_one_was() {
    let (lab, to) = (Lab::new(), accepting());
    let log = Log::of(3);
    let from = Server::start({
        let log = log.clone();
        move |request, stream| log.serve(request, stream, 1, None)
    });
    let arguments = ["--webhook", &to.url, "--from", "e1"];
    let first = lab.tail(&from.url, &arguments);
    first.wait_for_stderr("handed on e3");
    first.stop().with(0);
    assert_eq!(lab.id().unwrap(), "e3");
    log.add(4);
    let second = lab.tail(&from.url, &arguments);
    second.wait_for_stderr("handed on e4");
    let told = second.stop().with(0).stderr;
    assert!(told.contains("ended at id e4"), "{told}");
    let requests = from.requests();
    assert_eq!(requests[0].header("last-event-id"), Some("e1"));
    // What is stored counts for more than the options of the first start.
    assert_eq!(requests[1].header("last-event-id"), Some("e3"));
    // This server repeats the last event.
    assert_eq!(sent(&to), [1, 2, 3, 3, 4].map(key));
}

#[test]
fn a_busy_server_is_asked_again_when_it_says() {
    let (lab, to) = (Lab::new(), accepting());
    let from = Server::answering(&[
        &head("503 Service Unavailable", "Retry-After: 2\r\n"),
        &stream(&event("1", "a")),
        &head("204 No Content", ""),
    ]);
    let started = Instant::now();
    let ended = lab.tail(&from.url, &["--webhook", &to.url]).end().with(0);
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert!(ended.stderr.contains("503"), "{ended:?}");
    assert_eq!(sent(&to), ["a"]);
}

#[test]
fn whoever_is_refused_is_told_what_to_do() {
    let lab = Lab::new();
    for (answer, part) in [
        (head("401 Unauthorized", ""), "FIRSTCLAIM_TAIL_TOKEN"),
        (head("403 Forbidden", ""), "FIRSTCLAIM_TAIL_TOKEN"),
        (head("404 Not Found", ""), "404"),
        (
            head(
                "302 Found",
                "Location: https://else.example.com/x?secret=1\r\n",
            ),
            "https://else.example.com/x)",
        ),
        (head("200 OK", "Content-Type: text/html\r\n"), "text/html"),
    ] {
        let from = Server::answering(&[&answer]);
        let url = format!("{}?access=hidden", from.url);
        let ended = lab
            .tail(&url, &["--webhook", "http://127.0.0.1:1/", "-q"])
            .end()
            .with(1);
        assert!(ended.stderr.contains(part), "{ended:?}");
        assert!(
            !ended.stderr.contains("hidden") && !ended.stderr.contains("secret=1"),
            "{ended:?}"
        );
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}

/// The row "a gap in the event stream and its replay": the answer to the id.
#[test]
fn a_gap_at_the_server_ends_it_loudly_or_is_passed_when_that_is_wanted() {
    let (lab, to) = (Lab::new(), accepting());
    let from = Server::start(|request, mut to| {
        let answer = match request.header("last-event-id") {
            Some("7") => head("410 Gone", ""),
            Some(_) => head("204 No Content", ""),
            None => stream(&event("90", "after")),
        };
        to.write_all(answer.as_bytes()).unwrap();
    });
    let arguments = ["--webhook", &to.url, "--from", "7", "--json"];
    let stopped = lab.tail(&from.url, &arguments).end().with(80);
    for part in [
        "GAP",
        "id 7",
        "current state of thread:teams/platform/website",
        "--on-gap continue",
    ] {
        assert!(stopped.stderr.contains(part), "{stopped:?}");
    }
    assert_eq!(stopped.json()[0]["outcome"], "gap");
    assert_eq!(lab.id().unwrap(), "7");
    let gone_on = lab.tail(
        &from.url,
        &[&arguments[..], &["--on-gap", "continue"]].concat(),
    );
    let told = gone_on.end().with(0).stderr;
    assert!(told.contains("GAP"), "{told}");
    assert_eq!(sent(&to), ["after"]);
    assert_eq!(lab.id().unwrap(), "90");
}

/// The same row: the stream itself says it.
#[test]
fn a_gap_in_the_stream_is_told_and_the_position_stays_before_it() {
    let (lab, to) = (Lab::new(), accepting());
    let text = event("1", "a") + "id: 5\nevent: gap\ndata: 2 to 4 are gone\n\n" + &event("6", "b");
    let from = events(&text);
    let stopped = lab.tail(&from.url, &["--webhook", &to.url]).end().with(80);
    assert!(stopped.stderr.contains("2 to 4 are gone"), "{stopped:?}");
    assert_eq!(
        (sent(&to), lab.id().unwrap()),
        (vec!["a".to_owned()], "1".to_owned())
    );

    let from = events(&text);
    let other = Lab::new();
    let arguments = ["--webhook", &to.url, "--on-gap", "continue"];
    other.tail(&from.url, &arguments).end().with(0);
    assert_eq!(
        (sent(&to), other.id().unwrap()),
        (["a", "a", "b"].map(str::to_owned).to_vec(), "6".to_owned())
    );
}

#[test]
fn a31_what_is_not_taken_is_handed_over_until_it_is() {
    let lab = Lab::new();
    let to = Server::answering(&[
        &head("503 Service Unavailable", ""),
        &head("409 Conflict", "Retry-After: 1\r\n"),
        &head("429 Too Many Requests", ""),
        &head("202 Accepted", ""),
    ]);
    let from = events(&(event("1", "a") + &event("2", "b")));
    let ended = lab
        .tail(&from.url, &["--webhook", &to.url, "--json"])
        .end()
        .with(0);
    assert_eq!(sent(&to), ["a", "a", "a", "a", "b"]);
    assert_eq!(ended.json()[0]["tries"], 4);
    // The same delivery each time, with a signature of its own.
    let requests = to.requests();
    assert!(
        requests[..4]
            .iter()
            .all(|request| request.header("webhook-id") == Some("a"))
    );
}

#[test]
fn nobody_there_to_take_it_keeps_the_position_until_there_is() {
    let lab = Lab::new();
    let from = events(&event("1", "a"));
    let waiting = lab.tail(&from.url, &["--webhook", "http://127.0.0.1:1/"]);
    waiting.wait_for_stderr("not taken yet: 1 a");
    waiting.stop().with(0);
    assert_eq!(lab.id(), None);
}

#[test]
fn what_is_refused_for_good_is_kept_and_what_follows_goes_on() {
    let lab = Lab::new();
    let to = Server::start(|request, mut to| {
        let answer = match request.body.contains("poison") {
            true => head("413 Content Too Large", ""),
            false => head("202 Accepted", ""),
        };
        to.write_all(answer.as_bytes()).unwrap();
    });
    let text = event("1", "poison")
        + "id: 2\ndata: no json \u{1b}[2J\n\n"
        + &format!("id: 3\ndata: {}\n\n", "x".repeat(1024 * 1024 + 1))
        + "data: {\"scopes\":[\"thread:teams/platform/website/42\"]}\n\n"
        + &event("4", "good");
    let from = events(&text);
    let ended = lab
        .tail(&from.url, &["--webhook", &to.url, "--json"])
        .end()
        .with(0);
    assert_eq!(sent(&to), ["poison", "good"]);
    assert_eq!(lab.id().unwrap(), "4");
    let letters = lab.letters();
    let whys: Vec<&str> = letters
        .iter()
        .map(|letter| letter["why"].as_str().unwrap())
        .collect();
    assert_eq!(letters.len(), 4, "{whys:?}");
    assert_eq!(letters[0]["id"], "1");
    assert!(whys[0].contains("413") && letters[0]["data"].as_str().unwrap().contains("poison"));
    assert!(whys[1].contains("JSON") && letters[1]["data"] == "no json \u{1b}[2J");
    assert!(whys[2].contains("1048577") && letters[2]["data"].is_null() && letters[2]["id"] == "3");
    assert!(whys[3].contains("no id"));
    assert!(
        ended.stderr.contains("4 refused") || ended.stderr.contains("letters"),
        "{ended:?}"
    );
    let outcomes: Vec<_> = ended
        .json()
        .iter()
        .map(|line| line["outcome"].clone())
        .collect();
    assert_eq!(
        outcomes,
        ["refused", "refused", "refused", "refused", "handed-on"]
    );
}

/// Every event would meet the same: it ends, and the next start begins with it.
#[test]
fn a_destination_that_is_set_up_wrongly_ends_it_and_loses_nothing() {
    for answer in [
        head("401 Unauthorized", ""),
        head("404 Not Found", ""),
        head("308 Moved", ""),
    ] {
        let lab = Lab::new();
        let to = Server::answering(&[&answer]);
        let from = events(&event("1", "a"));
        let ended = lab.tail(&from.url, &["--webhook", &to.url]).end().with(1);
        assert!(
            ended.stderr.contains("nothing is lost") && ended.stderr.contains("id 1"),
            "{ended:?}"
        );
        assert_eq!(lab.id(), None);
    }
}

#[test]
fn a_silent_connection_is_dead_and_a_heartbeat_keeps_it() {
    let (lab, to) = (Lab::new(), accepting());
    let connections = AtomicUsize::new(0);
    let log = Log::of(1);
    let from = Server::start(move |request, mut to| {
        if connections.fetch_add(1, Ordering::SeqCst) == 0 {
            to.write_all(stream("retry: 1\n\n").as_bytes()).unwrap();
            // Open, and nothing comes, until the follower has gone.
            let mut end = [0];
            let _ = std::io::Read::read(&mut to, &mut end);
        } else {
            log.serve(request, to, 1, None);
        }
    });
    let running = lab.tail(&from.url, &["--webhook", &to.url, "--idle", "300ms"]);
    running.wait_for_stderr("not even a comment for 300 ms");
    running.wait_for_stderr("handed on e1");
    let seen = from.requests().len();
    // Three times as long, with nothing but heartbeats.
    thread::sleep(Duration::from_millis(900));
    assert_eq!(from.requests().len(), seen);
    running.stop().with(0);
}

#[test]
fn an_id_alone_and_events_of_others_move_the_position() {
    let (lab, to) = (Lab::new(), accepting());
    let other = "id: 2\ndata: {\"key\":\"x\",\"scopes\":[\"thread:teams/other/1\"]}\n\n";
    let from = events(&(event("1", "a") + other + "id: 3\n\n"));
    lab.tail(&from.url, &["--webhook", &to.url]).end().with(0);
    assert_eq!(
        (sent(&to), lab.id().unwrap()),
        (vec!["a".to_owned()], "3".to_owned())
    );
}

#[test]
fn what_a_server_says_does_not_act_on_the_terminal() {
    let (lab, to) = (Lab::new(), accepting());
    let data = json!({
        "key": "a\u{9b}2J".replace('\u{9b}', "\u{202e}"),
        "scopes": ["thread:teams/platform/website/1"],
        "kind": "k\u{1b}]0;owned\u{7}",
    });
    let from = events(&format!("id: \u{202e}1\ndata: {data}\n\n"));
    let ended = lab
        .tail(&from.url, &["--webhook", &to.url, "--json"])
        .end()
        .with(0);
    for text in [&ended.stderr, &ended.stdout] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
    assert_eq!(ended.json()[0]["kind"], "k\u{1b}]0;owned\u{7}");
    // It goes back as it came.
    assert_eq!(lab.id().unwrap(), "\u{202e}1");
}

#[test]
fn one_process_at_a_time_has_a_position_and_it_is_of_one_stream() {
    let (lab, to) = (Lab::new(), accepting());
    let log = Log::of(1);
    let from = Server::start(move |request, stream| log.serve(request, stream, 1, None));
    // Without --state: one for each URL and choice of scopes.
    let start = || Running::spawn(lab.command(&from.url, &["--webhook", &to.url]));
    let first = start();
    first.wait_for_stderr("handed on e1");
    let second = start().end().with(75);
    assert!(second.stderr.contains("--state"), "{second:?}");
    first.stop().with(0);

    let running = lab.tail(&from.url, &["--webhook", &to.url]);
    running.wait_for_stderr("handed on e1");
    running.stop().with(0);
    let other = lab
        .tail(&format!("{}/other", from.url), &["--webhook", &to.url])
        .end()
        .with(64);
    assert!(other.stderr.contains("another stream"), "{other:?}");
    std::fs::write(lab.position(), "{").unwrap();
    lab.tail(&from.url, &["--webhook", &to.url]).end().with(64);
}

#[test]
fn what_can_not_be_done_is_told_before_anything_is_followed() {
    let lab = Lab::new();
    let here = "http://127.0.0.1:1/";
    for (url, arguments, part) in [
        (here, &[][..], "--queue"),
        (
            here,
            &["--queue", here, "--webhook", here],
            "cannot be used with",
        ),
        ("http://threads.example.com/", &["--queue", here], "https"),
        (
            "https://user:pass@threads.example.com/",
            &["--queue", here],
            "user and password",
        ),
        (
            here,
            &["--webhook", "https://hooks.example.com/"],
            "FIRSTCLAIM_SECRET",
        ),
        (
            here,
            &["--webhook", here, "--secret-file", "/nowhere/secret"],
            "/nowhere/secret",
        ),
        (here, &["--queue", here, "--idle", "0s"], "nothing"),
    ] {
        let ended = lab.tail(url, arguments).end().with(64);
        assert!(ended.stderr.contains(part), "{ended:?}");
        assert!(!ended.stderr.contains("pass@"), "{ended:?}");
    }
    let ended = Running::spawn({
        let mut command = lab.command(here, &["--queue", here, "--state", "/proc/none/x"]);
        command.env_remove("FIRSTCLAIM_TAIL_TOKEN");
        command
    })
    .end()
    .with(69);
    assert!(ended.stderr.contains("/proc/none/x"), "{ended:?}");
}

#[test]
fn a_signal_lets_the_hand_over_that_runs_land_and_stores_the_position_behind_it() {
    let lab = Lab::new();
    let (asked, answer) = (AtomicUsize::new(0), std::sync::Mutex::new(()));
    let held = std::sync::Arc::new((asked, answer));
    let guard = held.1.lock().unwrap();
    let to = Server::start({
        let held = std::sync::Arc::clone(&held);
        move |_, mut stream| {
            held.0.fetch_add(1, Ordering::SeqCst);
            drop(held.1.lock());
            stream
                .write_all(head("202 Accepted", "").as_bytes())
                .unwrap();
        }
    });
    let from = events(&(event("1", "a") + &event("2", "b")));
    let running = lab.tail(&from.url, &["--webhook", &to.url]);
    until("the hand-over", || {
        (held.0.load(Ordering::SeqCst) == 1).then_some(())
    });
    running.signal("TERM");
    running.wait_for_stderr("ending");
    drop(guard);
    let ended = running.end().with(0);
    assert_eq!(lab.id().unwrap(), "1", "{ended:?}");
    assert_eq!(sent(&to), ["a"]);
}
