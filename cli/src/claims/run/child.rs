//! The command as a process: in a session of its own, ended with its parent.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use clap::Args;
use firstclaim::claims::Claim;
use firstclaim::store::dynamodb::DynamoDb;
use rustix::process::{Pid, Signal};

use super::output::{Captured, Sink};
use super::watchdog::Watchdog;
use crate::claims::store::Place;
use crate::claims::{Error, exit};

/// The variable that tells a process of the command from one that has made itself independent: its
/// session.
pub(super) const SESSION_VARIABLE: &str = "FIRSTCLAIM_SESSION";

/// The variable with the key.
pub(super) const KEY_VARIABLE: &str = "FIRSTCLAIM_KEY";

/// The variable with the attempt.
pub(super) const ATTEMPT_VARIABLE: &str = "FIRSTCLAIM_ATTEMPT";

/// The command, found.
#[derive(Debug)]
pub(super) struct Program<'a> {
    path: PathBuf,
    command: &'a [OsString],
}

/// Why there is nothing to start.
#[derive(Debug)]
pub(super) enum NoProgram {
    Missing(String),
    NotExecutable(String),
}

impl fmt::Display for NoProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "{name}: no such command"),
            Self::NotExecutable(name) => write!(f, "{name}: can't be executed"),
        }
    }
}

impl NoProgram {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(_) => exit::NOT_FOUND,
            Self::NotExecutable(_) => exit::NOT_EXECUTABLE,
        }
    }
}

impl<'a> Program<'a> {
    /// The command's name without its folder, for people. Its arguments may hold secrets.
    pub(super) fn name(command: &[OsString]) -> String {
        let name = command.first().map(Path::new).and_then(Path::file_name);
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Finds the command as a shell does, before anything is started.
    pub(super) fn find(
        command: &'a [OsString],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, NoProgram> {
        let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let shown = name.to_string_lossy().into_owned();
        let named = Path::new(name);
        let places: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
            vec![named.to_owned()]
        } else {
            let path = environment("PATH").unwrap_or_else(|| "/usr/bin:/bin".to_owned());
            std::env::split_paths(&path)
                .map(|folder| folder.join(named))
                .collect()
        };
        let mut found = None;
        for place in places {
            match std::fs::metadata(&place) {
                Ok(file) if file.is_file() && is_executable(&file) => {
                    return Ok(Self {
                        path: place,
                        command,
                    });
                }
                Ok(_) => found = Some(NoProgram::NotExecutable(shown.clone())),
                Err(_) => {}
            }
        }
        Err(found.unwrap_or(NoProgram::Missing(shown)))
    }

    /// Starts the command for the holder of the claim, and the watchdog before it.
    pub(super) fn start(
        &self,
        claim: &Claim<DynamoDb>,
        place: &Place,
        json: bool,
    ) -> std::io::Result<(Child, Watchdog)> {
        let mut watchdog = Watchdog::start()?;
        let (stdout, stdout_writer) = std::io::pipe()?;
        let (stderr, stderr_writer) = std::io::pipe()?;
        let mut command = tokio::process::Command::new(this_program()?);
        command
            .arg0("firstclaim")
            .arg("__exec")
            .arg("--parent")
            .arg(std::process::id().to_string())
            .arg("--path")
            .arg(&self.path)
            .arg("--")
            .args(self.command)
            .env(KEY_VARIABLE, claim.key().as_str())
            .env("FIRSTCLAIM_OWNER", claim.owner().expose())
            .env(ATTEMPT_VARIABLE, claim.attempt().to_string())
            .env(
                "FIRSTCLAIM_DOWNSTREAM_KEY",
                claim.downstream_key(queue::target::STEP),
            )
            .stdout(stdout_writer)
            .stderr(stderr_writer);
        for (name, value) in place.variables() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.spawn()?;
        // The writing ends are the child's now: what it closes is closed.
        drop(command);
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let Some(group) = pid else {
            return Err(std::io::Error::other("it ended at its start"));
        };
        watchdog.guard(group);
        let shown = if json { Sink::Stderr } else { Sink::Stdout };
        Ok((
            Child {
                process: child,
                group,
                collected: false,
                stdout: Captured::start(stdout, shown),
                stderr: Captured::start(stderr, Sink::Stderr),
            },
            watchdog,
        ))
    }
}

/// The command, running.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    group: Pid,
    /// Whether its end was collected, so that its number may be another process's by now.
    collected: bool,
    stdout: Captured,
    stderr: Captured,
}

impl Child {
    /// Waits for its end. May be dropped and called again.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let status = self.process.wait().await;
        self.collected = true;
        status
    }

    /// Its output, stdout and stderr, once it has ended.
    pub(super) fn into_streams(self) -> (Captured, Captured) {
        (self.stdout, self.stderr)
    }

    /// Sends a signal to the command and its children, also to those that outlive it. A group whose
    /// last process has ended needs none.
    pub(super) fn signal(&self, signal: Signal) {
        let sent = rustix::process::kill_process_group(self.group, signal);
        // Between its start and its first act the process has no group of its own yet.
        if sent.is_err() && !self.collected {
            let _ = rustix::process::kill_process(self.group, signal);
        }
    }
}

/// As shells say it: the exit code, or 128 and the number of the signal that ended it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| {
        let signal = status.signal()?;
        Some(signal + i32::from(exit::SIGNAL))
    });
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// Whether a signal has ended it, or a command that it ran for a shell: shells say so with 128 and the
/// signal's number. What lies above the signals is a code of the command's own: 255 of `ssh`, for
/// example.
pub(super) fn ended_by_signal(status: ExitStatus) -> bool {
    let said_by_a_shell = |code| (129..=159).contains(&code);
    status.signal().is_some() || status.code().is_some_and(said_by_a_shell)
}

#[cfg(unix)]
fn is_executable(file: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.permissions().mode() & 0o111 != 0
}

/// This program, also after its file was replaced.
pub(super) fn this_program() -> std::io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    match running.exists() {
        true => Ok(running.to_owned()),
        false => std::env::current_exe(),
    }
}

/// What becomes of this program between `run` and the command.
#[derive(Args, Clone, Debug)]
pub struct ExecOptions {
    /// The process that started it
    #[arg(long)]
    pub parent: i32,
    /// The command's file
    #[arg(long)]
    pub path: PathBuf,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Turns this process into the command: in a session of its own, without a terminal, and ended by
/// the system with the process that started it.
///
/// # Errors
///
/// It can't be executed.
pub fn exec(options: ExecOptions) -> Result<u8, Error> {
    let failed = |source| Error::Io {
        what: "the command could not be executed".to_owned(),
        source,
    };
    let session = rustix::process::setsid().map_err(|error| failed(error.into()))?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| failed(error.into()))?;
    // It may have ended before that was asked for.
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(options.parent) {
        return Ok(exit::SIGNAL + 9);
    }
    let mut command = std::process::Command::new(&options.path);
    if let Some((name, arguments)) = options.command.split_first() {
        command.arg0(name).args(arguments);
    }
    command.env(SESSION_VARIABLE, session.as_raw_pid().to_string());
    let error = command.exec();
    Err(Error::Exec {
        path: options.path.to_string_lossy().into_owned(),
        source: error,
    })
}
