//! What an earlier attempt left behind on this machine: processes of a command whose `run`, and
//! whose watchdog, are gone. They are ended before the next attempt starts.

use firstclaim::Key;

use crate::claims::store::Place;

/// They could not be ended.
#[derive(Debug, thiserror::Error)]
#[error("processes of an earlier attempt can't be ended: {0}; the command was not started")]
pub(super) struct Left(String);

/// Ends every process of an earlier attempt at `key`, and waits until it is gone.
///
/// Such a process has the key, its attempt and its session in its environment, and is still in that
/// session: a service that a command has started made itself a session of its own.
#[cfg(target_os = "linux")]
pub(super) async fn end(key: &Key, attempt: u32, place: &Place) -> Result<(), Left> {
    use std::time::Duration;

    use firstclaim::clock::Source;
    use rustix::process::{Signal, kill_process};

    use crate::claims::SOURCE;

    /// How long a killed process may take to go.
    const GOING: Duration = Duration::from_secs(5);

    if attempt == 1 {
        return Ok(());
    }
    let bound = SOURCE.now().after(GOING);
    loop {
        let found = find(key, attempt, place);
        if found.is_empty() {
            return Ok(());
        }
        if SOURCE.now() >= bound {
            let pids = found.iter().map(|pid| pid.as_raw_pid().to_string());
            return Err(Left(pids.collect::<Vec<_>>().join(", ")));
        }
        for pid in found {
            // One that ended meanwhile is what is wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        SOURCE.sleep(Duration::from_millis(10)).await;
    }
}

/// Only Linux tells a process's environment.
#[cfg(not(target_os = "linux"))]
pub(super) async fn end(_key: &Key, _attempt: u32, _place: &Place) -> Result<(), Left> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn find(key: &Key, attempt: u32, place: &Place) -> Vec<rustix::process::Pid> {
    let own = rustix::process::getpid();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        rustix::process::Pid::from_raw(name.to_str()?.parse().ok()?)
    });
    pids.filter(|pid| *pid != own && is_of(*pid, key, attempt, place))
        .collect()
}

/// Whether a process is one of an earlier attempt. Those of other users can't be looked at.
#[cfg(target_os = "linux")]
fn is_of(pid: rustix::process::Pid, key: &Key, attempt: u32, place: &Place) -> bool {
    use super::child::{ATTEMPT_VARIABLE, KEY_VARIABLE, SESSION_VARIABLE};

    let folder = std::path::PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
    let Ok(environment) = std::fs::read(folder.join("environ")) else {
        return false;
    };
    let value = |name: &str| {
        environment.split(|byte| *byte == 0).find_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        })
    };
    let number = |name: &str| value(name)?.parse::<i32>().ok();
    let earlier =
        number(ATTEMPT_VARIABLE).is_some_and(|other| i64::from(other) < i64::from(attempt));
    value(KEY_VARIABLE).as_deref() == Some(key.as_str())
        && earlier
        && number(SESSION_VARIABLE).is_some_and(|session| Some(session) == session_of(&folder))
        && place
            .variables()
            .iter()
            .all(|(name, expected)| value(name) == *expected)
        && !is_dead(&folder)
}

/// The sixth field of `stat`, behind the name, which may hold anything.
#[cfg(target_os = "linux")]
fn session_of(folder: &std::path::Path) -> Option<i32> {
    field(folder, 3)?.parse().ok()
}

/// A process that has ended and was not collected yet does nothing any more.
#[cfg(target_os = "linux")]
fn is_dead(folder: &std::path::Path) -> bool {
    field(folder, 0).is_none_or(|state| matches!(state.as_str(), "Z" | "X"))
}

#[cfg(target_os = "linux")]
fn field(folder: &std::path::Path, at: usize) -> Option<String> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(at).map(str::to_owned)
}
