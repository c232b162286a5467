//! The watchdog: a small process that ends the command and its children where `run` can't, because
//! it was killed, or stopped beyond its lease.
//!
//! It is told what to watch in lines on its stdin, and that it is over by the last of them. An end of
//! its stdin without that word is the death of `run`.

use std::io::{BufRead, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, Source};
use rustix::process::{Pid, Signal, kill_process_group};

use super::child::this_program;
use crate::claims::SOURCE;

/// How often it looks at the clock: a machine that was suspended has slept through its timers.
const LOOK: Duration = Duration::from_millis(200);

/// `run`'s side of it.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: std::process::Child,
    words: Option<ChildStdin>,
}

impl Watchdog {
    pub(super) fn start() -> std::io::Result<Self> {
        use std::os::unix::process::CommandExt;

        let mut process = Command::new(this_program()?)
            .arg0("firstclaim")
            .arg("__watch")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal from the terminal must not reach it.
            .process_group(0)
            .spawn()?;
        let words = process.stdin.take();
        Ok(Self { process, words })
    }

    /// From now on, this group ends with `run`.
    pub(super) fn guard(&mut self, group: Pid) {
        self.say(&format!("group {}", group.as_raw_pid()));
    }

    /// At `end` the group is asked to end, and at `last` it is ended, unless another word comes.
    pub(super) fn until(&mut self, end: EpochMillis, last: EpochMillis) {
        self.say(&format!("until {} {}", end.0, last.0));
    }

    /// The group ends with `run` only.
    pub(super) fn forever(&mut self) {
        self.until(EpochMillis(i64::MAX), EpochMillis(i64::MAX));
    }

    /// It is over: the watchdog ends, and nothing else. It is not waited for: one that was stopped
    /// reads the word when it wakes.
    pub(super) fn done(mut self) {
        self.say("done");
    }

    fn say(&mut self, word: &str) {
        // Without a watchdog the renewal still ends the command in time; only a death of `run`
        // then leaves its children to the next attempt.
        if let Some(words) = &mut self.words {
            let _ = words.write_all(format!("{word}\n").as_bytes());
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.words = None;
        let _ = self.process.try_wait();
    }
}

/// What it has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Group(Pid),
    Until(EpochMillis, EpochMillis),
    Done,
}

impl Word {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let word = words.next()?;
        let mut number = || words.next()?.parse::<i64>().ok();
        match word {
            "group" => Some(Self::Group(Pid::from_raw(number()?.try_into().ok()?)?)),
            "until" => Some(Self::Until(EpochMillis(number()?), EpochMillis(number()?))),
            "done" => Some(Self::Done),
            _ => None,
        }
    }
}

/// The watchdog's side; its exit code.
#[must_use]
pub fn run() -> u8 {
    let (told, words) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if let Some(word) = Word::parse(&line)
                && told.send(word).is_err()
            {
                break;
            }
        }
    });
    let mut group = None;
    let mut ends = None;
    let mut asked = false;
    loop {
        match words.recv_timeout(LOOK) {
            Ok(Word::Done) => return 0,
            Ok(Word::Group(told)) => group = Some(told),
            Ok(Word::Until(end, last)) => {
                ends = Some((end, last));
                asked = false;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                end(group, Signal::KILL);
                return 0;
            }
        }
        let now = SOURCE.now();
        match ends {
            Some((_, last)) if now >= last => end(group, Signal::KILL),
            Some((first, _)) if now >= first && !asked => {
                asked = true;
                end(group, Signal::TERM);
                // One that is stopped can't hear it.
                end(group, Signal::CONT);
            }
            _ => {}
        }
    }
}

fn end(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // A group that has ended needs no signal any more.
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_others_passed_over() {
        let until = Word::Until(EpochMillis(5), EpochMillis(6));
        assert_eq!(Word::parse("until 5 6"), Some(until));
        assert_eq!(Word::parse("group 7"), Pid::from_raw(7).map(Word::Group));
        assert_eq!(Word::parse("done"), Some(Word::Done));
        for wrong in ["", "group", "group 0", "until 5", "until a b", "other"] {
            assert_eq!(Word::parse(wrong), None, "{wrong:?}");
        }
    }
}
