//! `firstclaim send` from outside: what it sends, what it prints, how it ends.
#![expect(clippy::unwrap_used, reason = "a failure is the test's failure")]

mod local;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use local::{Local, PROGRAM};
use serde_json::Value;

/// Signed as the sender would, each is accepted; under the same id it is replayed.
#[test]
fn each_shipped_sample_is_accepted_and_then_replayed() {
    let local = Local::start();
    let listed = send(&["--list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut schemes = BTreeMap::<&str, usize>::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let (scheme, name) = (words.next().unwrap(), words.next().unwrap());
        *schemes.entry(scheme).or_default() += 1;
        let url = format!("{}/webhooks/{scheme}", local.url);
        let id = format!("sample-{name}").replace('.', "-");
        let answers = |times| {
            let output = send(&[
                scheme, name, "--url", &url, "--id", &id, "--times", times, "--json",
            ]);
            json(&output)
        };
        if name == "url_verification" {
            let output = send(&[scheme, name, "--url", &url, "--json"]);
            assert_eq!(json(&output)[0]["answer"], "answered", "{output:?}");
            continue;
        }
        let answers = answers("2");
        // To a command and an interaction nothing is said, and so no key.
        let silent = ["slash_command", "block_actions"].contains(&name);
        let first = if silent { "answered" } else { "accepted" };
        assert_eq!(answers[0]["answer"], first, "{scheme} {name}: {answers:?}");
        assert_eq!(
            answers[1]["answer"], "replayed",
            "{scheme} {name}: {answers:?}"
        );
        assert_eq!(answers[0]["key"], answers[1]["key"], "{scheme} {name}");
        assert_eq!(
            answers[0]["key"].is_string(),
            !silent,
            "{scheme} {name}: {answers:?}"
        );
    }
    assert_eq!(schemes.len(), 8, "{schemes:?}");
}

#[test]
fn of_many_at_once_one_is_accepted() {
    let local = Local::start();
    let url = format!("{}/webhooks/stripe", local.url);
    let output = send(&[
        "stripe",
        "charge.succeeded",
        "--url",
        &url,
        "--times",
        "30",
        "--concurrent",
    ]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let count = text.lines().last().unwrap();
    assert!(
        count.starts_with("30 answers: ") && count.contains("1 accepted"),
        "{text}"
    );
    // Each run is a delivery of its own.
    let output = send(&["stripe", "charge.succeeded", "--url", &url, "--times", "3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text.lines().last(),
        Some("3 answers: 1 accepted, 2 replayed"),
        "{text}"
    );
}

#[test]
fn a_secret_comes_from_the_environment_a_file_or_stdin() {
    let local = Local::start();
    let url = format!("{}/webhooks/github", local.url);
    let arguments = ["github", "push", "--url", &url];
    let wrong = command(&arguments)
        .env("FIRSTCLAIM_SECRET", "another-secret-of-ours")
        .output()
        .unwrap();
    let text = String::from_utf8(wrong.stdout).unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{text}");
    assert!(text.contains("401     unauthorized"), "{text}");
    assert!(text.ends_with("1 answer: 1 unauthorized\n"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "firstclaim-development-secret\n").unwrap();
    // A flag stands in the place of the variable.
    let of_file = command(&arguments)
        .args(["--secret-file", path.to_str().unwrap()])
        .env("FIRSTCLAIM_SECRET", "another-secret-of-ours")
        .output()
        .unwrap();
    assert_eq!(of_file.status.code(), Some(0), "{of_file:?}");

    let mut of_stdin = command(&arguments)
        .args(["--secret-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = of_stdin.stdin.take().unwrap();
    stdin.write_all(b"firstclaim-development-secret\n").unwrap();
    drop(stdin);
    assert_eq!(of_stdin.wait().unwrap().code(), Some(0));
}

#[test]
fn nobody_who_answers_is_told_in_one_line() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = free.local_addr().unwrap().to_string();
    let silent = send(&[
        "github",
        "push",
        "--url",
        &format!("http://{address}/"),
        "--timeout",
        "300ms",
    ]);
    assert!(told(&silent, 69).contains("too long"), "{silent:?}");
    drop(free);
    let closed = format!("http://{address}/");
    let nobody = send(&["github", "push", "--url", &closed, "--times", "3"]);
    let line = told(&nobody, 69);
    assert!(line.contains(&closed) && line.contains("refused"), "{line}");
    assert!(line.contains("firstclaim dev"), "{line}");

    let server = answering("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    let url = server.replace("http:", "https:");
    let tls = send(&["github", "push", "--url", &url]);
    let line = told(&tls, 69);
    assert!(
        line.contains(&url) && !line.contains("firstclaim dev"),
        "{line}"
    );
}

#[test]
fn what_can_not_be_sent_is_told_in_one_line() {
    let here = "http://127.0.0.1:1/";
    for (arguments, part) in [
        (&["github", "pusch", "--url", here][..], "issue_comment"),
        (
            &["github", "push", "--url", "https://hooks.example.com/"],
            "FIRSTCLAIM_SECRET",
        ),
        (
            &[
                "token",
                "operation",
                "--url",
                "http://hooks.example.com/",
                "--secret",
                "s",
            ],
            "https",
        ),
        (
            &[
                "github",
                "push",
                "--url",
                here,
                "--secret-file",
                "/nowhere/secret",
            ],
            "/nowhere/secret",
        ),
        (
            &["github", "push", "--url", here, "--header", "no header"],
            "no header",
        ),
        (
            &[
                "standard",
                "user.created",
                "--url",
                here,
                "--secret",
                "whsec_?",
            ],
            "base64",
        ),
    ] {
        let line = told(&send(arguments), 64);
        assert!(line.contains(part), "{line}");
    }
    for arguments in [
        &["morse", "push"][..],
        &["github"],
        &["github", "push", "--times", "0"],
        &["github", "push", "--url", "hooks"],
    ] {
        let output = send(arguments);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
}

/// A foreign endpoint's answer neither acts on the terminal nor breaks the table.
#[test]
fn a_foreign_answer_is_shown_escaped() {
    let server = answering(
        "HTTP/1.1 500 x\r\nContent-Type: application/json\r\nContent-Length: 57\r\n\r\n\
         {\"key\":\"a\\u001b]0;owned\\u0007\\n\\u202e\",\"status\":\"queued\"} ",
    );
    let output = send(&["github", "push", "--url", &server]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(r"a\u{1b}]0;owned\u{7}\n\u{202e}"), "{text}");
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    assert!(text.contains("internal server error"), "{text}");
}

/// A server that gives each request this answer.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 64 * 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

fn json(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!lines.is_empty(), "{output:?}");
    lines
}

/// The one line on stderr of a run that ends with this code and prints nothing else.
fn told(output: &Output, code: i32) -> String {
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

fn send(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The program without the environment of whoever runs the tests.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("send").args(arguments).env_clear();
    command
}
