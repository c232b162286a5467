//! A folder with a store of its own, and the program as processes on it.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take; what a test waits for comes much earlier.
const BOUND: Duration = Duration::from_secs(60);

/// What a process ended with.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap()
    }

    /// Whether it ended with this code; shows everything if not.
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

/// One store, for one test.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A path in the test's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// How many lines a file has; scripts here add one per effect.
    pub(crate) fn lines(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }

    /// The program, in the test's folder and with nothing of the environment but the store.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firstclaim"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("USER", "ada")
            .env("FIRSTCLAIM_DATA", self.path("state"))
            .current_dir(self.folder.path());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::spawn(self.command(arguments))
    }

    /// Runs a script for this key, with more options.
    pub(crate) fn script(&self, key: &str, options: &[&str], script: &str) -> Running {
        let mut arguments = vec!["run", "--key", key];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", script]);
        self.start(&arguments)
    }

    /// A key's record, as programs see it.
    pub(crate) fn record(&self, key: &str) -> Value {
        self.run(&["get", key, "--json", "-q"]).with(0).json()
    }

    /// Waits until a file has content, and returns that.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        until(name, || {
            Some(self.read(name)).filter(|text| text.ends_with('\n'))
        })
    }

    /// The processes that have the test's store in their environment, ended ones left out.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mark = format!("FIRSTCLAIM_DATA={}", self.path("state").display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap() {
            let name = entry.unwrap().file_name();
            let Ok(pid) = name.to_str().unwrap().parse::<i32>() else {
                continue;
            };
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let of_test = environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes());
            if of_test && alive(pid) {
                found.push(pid);
            }
        }
        found
    }

    /// Waits until nothing of the test runs any more.
    pub(crate) fn wait_for_quiet(&self) {
        until("all processes to end", || {
            self.processes().is_empty().then_some(())
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, "KILL");
        }
    }
}

/// A process that runs; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = Arc::<Mutex<Vec<u8>>>::default();
        let stderr = Arc::<Mutex<Vec<u8>>>::default();
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

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Writes a line to its stdin, which then ends.
    pub(crate) fn say(&mut self, line: &str) {
        self.stdin()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout.lock().unwrap()).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits until its stderr has this text.
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        until(text, || self.stderr().contains(text).then_some(()));
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let status = until("its end", || self.child.try_wait().unwrap());
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        Ended {
            code: code(status),
            stdout: self.stdout.lock().unwrap().clone(),
            stderr: self.stderr(),
        }
    }

    /// Kills it without warning, and waits for its end. What it leaves behind may keep its output
    /// open, which is not waited for.
    pub(crate) fn kill(mut self) {
        self.signal("KILL");
        until("its end", || self.child.try_wait().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keep(mut from: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
    let to = Arc::clone(to);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            to.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    })
}

fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 1000 + status.signal().unwrap())
}

/// Looks until `look` has an answer.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(pid: i32, name: &str) {
    // One that has ended meanwhile needs no signal.
    let _ = Command::new("kill")
        .args(["-s", name, "--", &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Whether a process is there and has not ended.
pub(crate) fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, behind)| behind.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// The processes that this one has started.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let output = Command::new("pgrep")
        .args(["-P", &pid.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}
