//! A folder for positions, and the program as processes that use it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take; what a test waits for comes much earlier.
const BOUND: Duration = Duration::from_secs(60);

/// The scope that all tests follow.
pub(crate) const SCOPE: &str = "thread:teams/platform/website";

/// What is kept between runs, for one test.
pub(crate) struct Lab(TempDir);

impl Lab {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The position's file of [`tail`](Self::tail).
    pub(crate) fn position(&self) -> PathBuf {
        self.0.path().join("position.json")
    }

    /// The id in the position's file; `None` where there is none yet.
    pub(crate) fn id(&self) -> Option<String> {
        let id = self.stored()?["id"].as_str().unwrap().to_owned();
        Some(id).filter(|id| !id.is_empty())
    }

    /// The position's file.
    pub(crate) fn stored(&self) -> Option<Value> {
        let bytes = std::fs::read(self.position()).ok()?;
        Some(serde_json::from_slice(&bytes).expect("a whole position"))
    }

    /// The letters, one JSON object each.
    pub(crate) fn letters(&self) -> Vec<Value> {
        let path = self.0.path().join("position.json.letters");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The program without the environment of whoever runs the tests.
    pub(crate) fn command(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firstclaim"));
        command
            .args(["tail", url, "--scope", SCOPE])
            .args(arguments)
            .env_clear()
            .env("XDG_STATE_HOME", self.0.path())
            .env("FIRSTCLAIM_TAIL_TOKEN", "the-token");
        command
    }

    /// Starts to follow, with the position in the lab.
    pub(crate) fn tail(&self, url: &str, arguments: &[&str]) -> Running {
        let position = self.position();
        let arguments = [&["--state", position.to_str().unwrap()], arguments].concat();
        Running::spawn(self.command(url, &arguments))
    }
}

/// A process that runs; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// What a process ended with.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Whether it ended with this code; shows everything if not.
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The lines of `--json`.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Running {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, stderr) = (
            Arc::<Mutex<Vec<u8>>>::default(),
            Arc::<Mutex<Vec<u8>>>::default(),
        );
        let readers = vec![
            keep(child.stdout.take().unwrap(), &stdout),
            keep(child.stderr.take().unwrap(), &stderr),
        ];
        Self {
            child,
            stdout,
            stderr,
            readers,
        }
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits until its stderr has this text.
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        until(text, || self.stderr().contains(text).then_some(()));
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Kills it without warning; whether it still ran.
    pub(crate) fn kill(mut self) -> bool {
        let ran = self.child.try_wait().unwrap().is_none();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        ran
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(self) -> Ended {
        self.signal("TERM");
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let status = until("its end", || self.child.try_wait().unwrap());
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let stdout = String::from_utf8_lossy(&self.stdout.lock().unwrap()).into_owned();
        Ended {
            code: status.code(),
            stdout,
            stderr: self.stderr(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keep(
    mut from: impl std::io::Read + Send + 'static,
    to: &Arc<Mutex<Vec<u8>>>,
) -> thread::JoinHandle<()> {
    let to = Arc::clone(to);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            to.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    })
}

/// Looks until `look` has an answer.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
