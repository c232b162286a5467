//! Through the local stack: whatever is replayed, each event has its effect once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::kills::Chance;
use crate::lab::{Lab, until};
use crate::server::{Log, Server};

const EVENTS: usize = 20;

#[test]
fn replayed_events_have_one_effect_each_through_the_queue() {
    let dev = Dev::start();
    let queue = dev.address("queue");
    follow(dev, &["--queue", &queue]);
}

#[test]
fn replayed_events_have_one_effect_each_through_the_door() {
    let dev = Dev::start();
    let door = dev.address("operations");
    let door = door.replace("/operations", "/webhooks/standard");
    follow(dev, &["--webhook", &door]);
}

#[test]
fn replayed_events_have_one_effect_each_by_the_keys_that_they_bring() {
    let dev = Dev::start();
    let door = dev.address("operations");
    follow(dev, &["--webhook", &door, "--scheme", "token"]);
}

/// Follows through broken connections and kills, twice: the second follower has no position, and
/// repeats all of it.
fn follow(dev: Dev, destination: &[&str]) {
    let log = Log::of(EVENTS);
    let chance = Chance::new(0xd00d);
    let from = Server::start({
        let (log, chance) = (log.clone(), chance.clone());
        move |request, stream| log.serve(request, stream, 1, Some(600 + chance.below(3000)))
    });
    let run = |lab: &Lab| {
        for _ in 0..4 {
            let running = lab.tail(&from.url, destination);
            running.wait_for_stderr("following");
            let lives = u64::try_from(chance.below(60)).unwrap();
            thread::sleep(Duration::from_millis(lives));
            running.kill();
        }
        lab.tail(&from.url, destination)
    };
    let (first, second) = (Lab::new(), Lab::new());
    let running = run(&first);
    let end = format!("e{EVENTS}");
    until("the last event", || (first.id()? == end).then_some(()));
    running.stop().with(0);
    let running = run(&second);
    until("the last event again", || {
        (second.id()? == end).then_some(())
    });
    // One that comes behind all repetitions.
    log.add(EVENTS + 1);
    until("all effects", || (dev.effects() > EVENTS).then_some(()));
    running.stop().with(0);
    let lines = dev.stop();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("  effect "), EVENTS + 1, "{lines:#?}");
    assert_eq!(count("  performed "), EVENTS + 1, "{lines:#?}");
}

/// A local stack on free ports that keeps nothing; killed when dropped.
struct Dev {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Dev {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_firstclaim"))
            .args(["dev", "--in-memory", "--port", "0", "--dynamodb-port", "0"])
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let kept = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in stdout.lines() {
                kept.lock().unwrap().push(line.unwrap());
            }
        });
        let dev = Self {
            child,
            lines,
            reader: Some(reader),
        };
        until("the stack", || {
            let lines = dev.lines.lock().unwrap();
            lines
                .iter()
                .any(|line| line.contains("Ctrl-C ends it"))
                .then_some(())
        });
        dev
    }

    /// The URL behind a name at the start.
    fn address(&self, name: &str) -> String {
        let lines = self.lines.lock().unwrap();
        let named = |line: &&String| line.trim_start().starts_with(name);
        let line = lines.iter().find(named).unwrap();
        let at = line.find("http://").unwrap();
        line[at..].split(' ').next().unwrap().to_owned()
    }

    /// How many effects the built-in target counts.
    fn effects(&self) -> usize {
        let address = self.address("target");
        let mut stream = TcpStream::connect(&address["http://".len()..]).unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        json["count"].as_u64().unwrap().try_into().unwrap()
    }

    /// Ends it when what runs has finished; all its lines.
    fn stop(mut self) -> Vec<String> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-s", "TERM", &pid])
            .status()
            .unwrap();
        assert!(status.success());
        assert!(self.child.wait().unwrap().success());
        self.reader.take().unwrap().join().unwrap();
        self.lines.lock().unwrap().clone()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
