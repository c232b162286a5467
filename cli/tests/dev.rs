//! `firstclaim dev` from outside: the real program, real sockets, real signals.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failure is the test's failure")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use firstclaim_cli::dev::engine::{Engine, Storage};

const BOUND: Duration = Duration::from_secs(30);

#[test]
fn of_50_identical_deliveries_at_once_one_has_an_effect() {
    let dev = Dev::start(&["--in-memory"]);
    let request = order("order-1");
    let deliveries: Vec<_> = (0..50)
        .map(|_| {
            let (address, request) = (dev.webhook.clone(), request.clone());
            thread::spawn(move || exchange(&address, &request))
        })
        .collect();
    let answers: Vec<Answer> = deliveries
        .into_iter()
        .map(|one| one.join().unwrap())
        .collect();
    let first = answers
        .iter()
        .filter(|answer| answer.status == 202 && !answer.replayed());
    assert_eq!(first.count(), 1, "{answers:?}");
    for answer in &answers {
        assert!(answer.status == 202 || answer.status == 409, "{answer:?}");
    }
    let again = exchange(&dev.webhook, &request);
    assert!(again.status == 202 && again.replayed(), "{again:?}");
    dev.wait_for_line("performed");
    assert_eq!(dev.effects(), 1);

    let (status, lines) = dev.stop("TERM");
    assert!(status.success(), "{status}");
    assert_eq!(lines.last().unwrap(), "Stopped.");
    for word in ["accepted", "performed", "effect 1"] {
        let said = lines.iter().filter(|line| line.contains(word));
        assert_eq!(said.count(), 1, "{word}: {lines:#?}");
    }
}

#[test]
fn the_queue_has_the_port_that_was_chosen() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let told = refuse(&["--in-memory", "--queue-port", &port], 1);
    assert!(told.contains("--queue-port"), "{told}");
    drop(taken);
    let dev = Dev::start(&["--in-memory", "--queue-port", &port]);
    let (_, lines) = dev.stop("TERM");
    let url = format!("http://127.0.0.1:{port}/000000000000/firstclaim ");
    assert!(lines.iter().any(|line| line.contains(&url)), "{lines:#?}");
}

#[test]
fn after_a_restart_a_duplicate_has_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = ["--data", data.to_str().unwrap()];
    let request = order("order-1");

    let dev = Dev::start(&options);
    assert_eq!(exchange(&dev.webhook, &request).status, 202);
    dev.wait_for_line("performed");
    assert_eq!(dev.effects(), 1);
    let (status, _) = dev.stop("INT");
    assert!(status.success(), "{status}");

    let dev = Dev::start(&options);
    let again = exchange(&dev.webhook, &request);
    assert!(again.status == 202 && again.replayed(), "{again:?}");
    assert_eq!(exchange(&dev.webhook, &order("order-2")).status, 202);
    dev.wait_for_line("performed");
    let (_, lines) = dev.stop("TERM");
    let effects: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("  effect "))
        .collect();
    assert!(
        effects.len() == 1 && effects[0].contains("order-2"),
        "{lines:#?}"
    );
}

/// Straight to the queue, past the door, so that only the worker's claim stands in the way.
#[test]
fn a_message_sent_twice_to_the_queue_has_one_effect() {
    let dev = Dev::start(&["--in-memory"]);
    let message = r#"{"key": "order-1", "payload": {"order": 1}}"#;
    dev.send_to_queue(message, 0);
    dev.wait_for_line("performed");
    dev.send_to_queue(message, 0);
    dev.wait_for_line("replayed");
    assert_eq!(dev.effects(), 1);
}

#[test]
fn a_queued_message_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--data", folder.path().to_str().unwrap()];
    let dev = Dev::start(&options);
    dev.send_to_queue(r#"{"key": "order-1", "payload": {"order": 1}}"#, 3);
    let (_, lines) = dev.stop("KILL");
    assert!(
        !lines.iter().any(|line| line.contains("performed")),
        "{lines:#?}"
    );

    let dev = Dev::start(&options);
    let lines = dev.lines();
    assert!(
        lines.iter().any(|line| line.contains("1 queued message")),
        "{lines:#?}"
    );
    dev.wait_for_line("performed");
    assert_eq!(dev.effects(), 1);
}

#[test]
fn what_runs_may_finish_before_the_end() {
    let target = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/apply", target.local_addr().unwrap());
    let dev = Dev::start(&["--in-memory", "--target", &url]);
    assert_eq!(exchange(&dev.webhook, &order("order-1")).status, 202);
    let (mut applying, _) = target.accept().unwrap();
    dev.signal("TERM");
    dev.wait_for_line("Stopping");
    applying
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let (status, lines) = dev.ended();
    assert!(status.success(), "{status}");
    assert!(
        lines.iter().any(|line| line.contains("performed")),
        "{lines:#?}"
    );
    assert_eq!(lines.last().unwrap(), "Stopped.");
}

#[test]
fn a_second_signal_ends_it_at_once_and_nothing_is_lost() {
    let target = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/apply", target.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let dev = Dev::start(&["--data", data, "--target", &url]);
    assert_eq!(exchange(&dev.webhook, &order("order-1")).status, 202);
    let _applying = target.accept().unwrap();
    dev.signal("INT");
    dev.wait_for_line("Stopping");
    let (_, lines) = dev.stop("INT");
    assert_eq!(lines.last().unwrap(), "Ended at once.");

    let dev = Dev::start(&["--data", data]);
    assert!(
        dev.lines()
            .iter()
            .any(|line| line.contains("1 queued message")),
        "{:#?}",
        dev.lines()
    );
}

/// Whether the function has begun when the caller is gone is a matter of chance; either way the next
/// try is accepted long before a lease could lapse.
#[test]
fn n48_a_caller_that_hangs_up_leaves_no_record_stuck() {
    let dev = Dev::start(&["--in-memory"]);
    for key in ["order-1", "order-2", "order-3"] {
        let mut stream = TcpStream::connect(&dev.webhook).unwrap();
        stream.write_all(&order(key)).unwrap();
        drop(stream);
        let end = Instant::now() + Duration::from_secs(5);
        while exchange(&dev.webhook, &order(key)).status == 409 {
            assert!(Instant::now() < end, "{key} is stuck");
            thread::sleep(Duration::from_millis(10));
        }
        dev.wait_for_line(&format!("performed             token#{key}"));
    }
    assert_eq!(dev.effects(), 3);
}

#[test]
fn a_body_over_the_limit_is_refused_by_the_function_itself() {
    let dev = Dev::start(&["--in-memory"]);
    let answer = exchange(
        &dev.webhook,
        &post("/webhooks/token", "", &"x".repeat(6 * 1024 * 1024 + 1)),
    );
    assert_eq!(answer.status, 413);
    assert!(
        answer.body.contains("urn:firstclaim:problem:too-large"),
        "{answer:?}"
    );
}

#[test]
fn foreign_text_never_acts_on_the_terminal() {
    let dev = Dev::start(&["--in-memory"]);
    dev.send_to_queue(r#"{"key": "a\\u001b]0;owned\\u0007", "payload": 1}"#, 0);
    exchange(&dev.webhook, &post("/webhooks/%1b%5d0;owned%07", "", "x"));
    exchange(
        &dev.webhook,
        &post("/webhooks/token", "Idempotency-Key: \u{9b}2J\r\n", "x"),
    );
    dev.wait_for_line("worker");
    let (_, lines) = dev.stop("TERM");
    for line in &lines {
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

#[test]
fn the_printed_curl_works() {
    let dev = Dev::start(&["--in-memory"]);
    let lines = dev.lines();
    let from = lines
        .iter()
        .position(|line| line.trim_start().starts_with("curl"))
        .unwrap();
    let to = from
        + lines[from..]
            .iter()
            .position(|line| !line.ends_with('\\'))
            .unwrap();
    let command = lines[from..=to].join("\n");
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("202 Accepted"), "{command}\n{answer}");
    dev.wait_for_line("performed");
}

#[test]
fn the_printed_check_finds_no_fault() {
    let dev = Dev::start(&["--in-memory"]);
    let lines = dev.lines();
    let from = lines
        .iter()
        .position(|line| line.trim_start().starts_with("firstclaim check"))
        .unwrap();
    let command = lines[from..from + 4].join("\n").replacen(
        "firstclaim",
        env!("CARGO_BIN_EXE_firstclaim"),
        1,
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command}\n{said}");
    for check in [
        "claim",
        "race",
        "queue",
        "redrive",
        "dead-letters",
        "target",
    ] {
        assert!(said.contains(&format!("\nok       {check} ")), "{said}");
    }
    // Whether the probe and the question to the target left anything.
    assert_eq!(dev.effects(), 0);
}

#[test]
fn a_port_in_use_is_told_with_its_flag() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--port", "--dynamodb-port"] {
        let told = refuse(&[flag, &port, "--in-memory"], 1);
        assert!(
            told.contains(&port) && told.contains(&format!("with {flag}")),
            "{told}"
        );
    }
}

#[test]
fn a_folder_that_can_not_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let data = file.join("data");
    let told = refuse(&["--data", data.to_str().unwrap()], 1);
    assert!(
        told.contains(data.to_str().unwrap()) && told.contains("--data"),
        "{told}"
    );
}

#[test]
fn a_folder_in_use_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let _dev = Dev::start(&["--data", data]);
    let told = refuse(&["--data", data], 1);
    assert!(
        told.contains("in use by another `firstclaim dev`"),
        "{told}"
    );
}

#[test]
fn a_bad_senders_file_is_told_with_what_is_wrong_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("senders.json");
    let path = path.to_str().unwrap();
    let refused = |json: &str| {
        std::fs::write(path, json).unwrap();
        let told = refuse(&["--senders", path, "--in-memory"], 1);
        assert!(told.contains(path), "{told}");
        told
    };
    let none = refuse(&["--senders", "/nowhere/senders.json", "--in-memory"], 1);
    assert!(none.contains("/nowhere/senders.json"), "{none}");
    assert!(refused("{\n\"shop\": }").contains("line 2 column 9"));
    let told = refused(r#"{"shop": {"scheme": "morse", "secrets": ["SECRET-SECRET-SECRET"]}}"#);
    assert!(told.contains("shop") && told.contains("scheme"), "{told}");
    let told = refused(r#"{"shop": {"scheme": "token", "secrets": ["SECRET"]}, "x y": {}}"#);
    assert!(told.contains("shop") && told.contains("x y"), "{told}");
    assert!(!told.contains("SECRET"), "{told}");
}

#[test]
fn senders_of_a_file_are_named_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("senders.json");
    std::fs::write(
        &path,
        r#"{"shop": {"scheme": "token", "secrets": ["SECRET-SECRET-SECRET"]}}"#,
    )
    .unwrap();
    let dev = Dev::start(&["--in-memory", "--senders", path.to_str().unwrap()]);
    let headers = "Authorization: Bearer SECRET-SECRET-SECRET\r\nIdempotency-Key: a\r\n";
    assert_eq!(
        exchange(&dev.webhook, &post("/webhooks/shop", headers, "{}")).status,
        202
    );
    let (_, lines) = dev.stop("TERM");
    let text = lines.join("\n");
    assert!(
        text.contains("/webhooks/shop \\") && !text.contains("SECRET"),
        "{text}"
    );
}

#[test]
fn an_endpoint_that_does_not_answer_is_told() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let told = refuse(&["--endpoint", &url, "--in-memory"], 69);
    assert!(told.contains(&url) && told.contains("refused"), "{told}");
}

#[test]
fn another_endpoint_is_used_in_place_of_the_embedded_one() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = runtime.block_on(Engine::start(Storage::Memory)).unwrap();
    let url = engine.endpoint();
    let dev = Dev::start(&["--endpoint", &url, "--in-memory"]);
    assert_eq!(exchange(&dev.webhook, &order("order-1")).status, 202);
    dev.wait_for_line("performed");
    let client = runtime.block_on(engine.client());
    let claims = runtime
        .block_on(client.scan().table_name("firstclaim").send())
        .unwrap();
    assert_eq!(claims.count(), 2, "the delivery and the operation");
}

#[test]
fn wrong_arguments_are_a_usage_error() {
    for arguments in [
        &["dev", "--prot", "1"][..],
        &["dev", "--port", "70000"],
        &["dev", "--endpoint", "localhost:8000"],
        &["dev", "--in-memory", "--data", "x"],
        &["fly"],
    ] {
        let output = firstclaim(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(
            !output.stderr.is_empty() && output.stdout.is_empty(),
            "{arguments:?}"
        );
    }
    for arguments in [&["--help"][..], &["--version"], &["dev", "--help"]] {
        let output = firstclaim(arguments);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{arguments:?}"
        );
    }
}

/// A running `firstclaim dev` on free ports; killed when dropped.
struct Dev {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<thread::JoinHandle<()>>,
    /// Host and port.
    webhook: String,
    target: String,
    queue: String,
}

impl Dev {
    fn start(options: &[&str]) -> Self {
        let mut child = command(&[&["dev", "--port", "0"], options].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let reader = thread::spawn({
            let lines = Arc::clone(&lines);
            move || {
                for line in stdout.split(b'\n') {
                    let line = String::from_utf8(line.unwrap()).unwrap();
                    lines.lock().unwrap().push(line);
                }
            }
        });
        let mut dev = Self {
            child,
            lines,
            reader: Some(reader),
            webhook: String::new(),
            target: String::new(),
            queue: String::new(),
        };
        dev.wait_for_line("Ctrl-C ends it");
        dev.webhook = dev.address("webhooks");
        dev.target = dev.address("target");
        dev.queue = dev.address("queue");
        dev
    }

    /// Host and port behind a name at the start.
    fn address(&self, name: &str) -> String {
        let lines = self.lines();
        let line = lines
            .iter()
            .find(|line| line.trim_start().starts_with(name))
            .unwrap();
        let (_, url) = line.split_once("http://").unwrap();
        url.split(['/', ' ']).next().unwrap().to_owned()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn wait_for_line(&self, part: &str) {
        let end = Instant::now() + BOUND;
        while !self.lines().iter().any(|line| line.contains(part)) {
            assert!(
                Instant::now() < end,
                "no line with {part:?}: {:#?}",
                self.lines()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How many effects the built-in target counts.
    fn effects(&self) -> u64 {
        let answer = exchange(
            &self.target,
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        json["count"].as_u64().unwrap()
    }

    fn send_to_queue(&self, body: &str, delay_seconds: u64) {
        let url = format!("http://{}/000000000000/firstclaim", self.queue);
        let message = serde_json::json!({
            "QueueUrl": url,
            "MessageBody": body,
            "DelaySeconds": delay_seconds,
        });
        let headers = "X-Amz-Target: AmazonSQS.SendMessage\r\n";
        let answer = exchange(&self.queue, &post("/", headers, &message.to_string()));
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Sends a signal, waits for the end, and returns all that was said.
    fn stop(self, signal: &str) -> (ExitStatus, Vec<String>) {
        self.signal(signal);
        self.ended()
    }

    /// Waits for the end, and returns all that was said.
    fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let end = Instant::now() + BOUND;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "still running: {:#?}", self.lines());
            thread::sleep(Duration::from_millis(10));
        };
        self.reader.take().unwrap().join().unwrap();
        (status, self.lines())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn replayed(&self) -> bool {
        self.head
            .to_ascii_lowercase()
            .contains("idempotent-replayed: true")
    }
}

/// The request that the printed curl makes, under another key.
fn order(key: &str) -> Vec<u8> {
    let headers = format!(
        "Authorization: Bearer firstclaim-development-token\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\n"
    );
    post("/webhooks/token", &headers, r#"{"order": 1}"#)
}

fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

fn exchange(address: &str, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Runs `dev`, which must end at once with this exit code and one line on stderr, and returns that.
fn refuse(options: &[&str], code: i32) -> String {
    let mut arguments = vec!["dev"];
    if !options.contains(&"--port") {
        arguments.extend(["--port", "0"]);
    }
    arguments.extend(options);
    let output = firstclaim(&arguments);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.starts_with("firstclaim: ") && told.ends_with('\n'),
        "{told}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    told
}

fn firstclaim(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The program with these arguments, a free DynamoDB port, and nothing of the environment but the
/// way to other programs, in a folder where it leaves no traces.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstclaim"));
    command
        .args(arguments)
        .env_clear()
        .current_dir(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let chooses = |flag: &str| arguments.contains(&flag);
    if chooses("dev") && !chooses("--dynamodb-port") && !chooses("--endpoint") && !chooses("--help")
    {
        command.args(["--dynamodb-port", "0"]);
    }
    command
}
