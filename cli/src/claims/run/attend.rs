//! Attending the command: signals go to it, the lease ends it.

use std::time::Duration;

use firstclaim::Record;
use firstclaim::claims::Claim;
use firstclaim::clock::{EpochMillis, Source};
use firstclaim::record::RELEASED;
use firstclaim::store::dynamodb::DynamoDb;
use rustix::process::Signal;

use super::StoreWhat;
use super::child::{Child, exit_code};
use super::left;
use super::signals::{Came, Signals};
use super::stored::Stored;
use super::watchdog::Watchdog;
use crate::claims::{FileOrTable, SOURCE, exit};

/// How often the watchdog is told of a renewal.
const TELL: Duration = Duration::from_millis(200);

/// How the command ended.
#[derive(Debug)]
pub(super) struct Attended {
    pub(super) exit_code: u8,
    pub(super) course: Course,
    stdout: (Vec<u8>, u64),
    stderr: (Vec<u8>, u64),
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Nothing.
    Plain,
    /// It was ended by a signal, or one was passed on to it.
    Interrupted,
    /// It ended the claim itself.
    EndedItself,
    /// The lease was lost, and the command was ended.
    Lost,
}

impl Attended {
    /// What is to be stored of it.
    pub(super) fn stored(&self, what: StoreWhat) -> Stored {
        let stored = Stored::exit(self.exit_code);
        match what {
            StoreWhat::Exit => stored,
            StoreWhat::Output => stored.output(
                (&self.stdout.0, self.stdout.1),
                (&self.stderr.0, self.stderr.1),
            ),
        }
    }
}

/// Waits for the end of the command, and for the end of its output.
pub(super) async fn attend(
    claims: &FileOrTable,
    claim: &Claim<DynamoDb>,
    mut child: Child,
    mut watchdog: Watchdog,
    signals: &mut Signals,
    grace: Duration,
) -> Attended {
    let mut course = Course::Plain;
    // What it ends with beyond the last moment is not the command's own doing.
    let mut last: Option<EpochMillis> = None;
    let mut told = None;
    let mut waiting = true;
    let status = loop {
        let ends = claim.ends();
        if waiting && told != Some(ends) {
            watchdog.until(ends, ends.after(grace / 2));
            told = Some(ends);
        }
        tokio::select! {
            biased;
            status = child.wait() => break status,
            () = claim.lost(), if waiting => {
                waiting = false;
                match ended_itself(claims, claim, grace).await {
                    true => {
                        course = Course::EndedItself;
                        watchdog.forever();
                    }
                    false => {
                        course = Course::Lost;
                        last = Some(SOURCE.now().after(grace / 2));
                        child.signal(Signal::TERM);
                        // One that is stopped can't hear it.
                        child.signal(Signal::CONT);
                    }
                }
            }
            () = SOURCE.sleep(last.map_or(TELL, left)) => {
                if last.is_some() {
                    child.signal(Signal::KILL);
                    last = None;
                }
            }
            came = signals.next() => {
                pass(&child, came);
                if course == Course::Plain && !matches!(came.signal(), Signal::CONT | Signal::TSTP) {
                    course = Course::Interrupted;
                }
            }
        }
    };
    // A command whose end can't be asked for has ended as badly as one can.
    let code = status.map_or(u8::MAX, exit_code);
    if code != 0 || course == Course::Lost {
        // Its children too, before anybody else may begin. What a successful command leaves running
        // is its own business.
        child.signal(Signal::KILL);
    }
    if code != 0 && course != Course::EndedItself && claim.is_lost() {
        // The watchdog was faster: this process was stopped until now.
        course = Course::Lost;
    }
    watchdog.done();
    child.stdout.ended().await;
    child.stderr.ended().await;
    let course = match course {
        Course::Plain if code > exit::SIGNAL => Course::Interrupted,
        course => course,
    };
    Attended {
        exit_code: code,
        course,
        stdout: child.stdout.kept(),
        stderr: child.stderr.kept(),
    }
}

/// Whether the renewal was refused because the command has ended the claim: it has the token too.
/// A store that does not answer leaves only the careful reading.
async fn ended_itself(claims: &FileOrTable, claim: &Claim<DynamoDb>, grace: Duration) -> bool {
    let read = tokio::time::timeout(grace / 4, claims.read(claim.key()));
    let Ok(Ok(Some(record))) = read.await else {
        return false;
    };
    let Record { owner, lease, .. } = &record;
    owner.as_ref() == Some(claim.owner()) && lease.is_none_or(|lease| lease == RELEASED)
}

/// Passes a signal on.
fn pass(child: &Child, came: Came) {
    match came.signal() {
        // Ctrl-Z: the command stops with this process, and goes on with it. Its lease does not wait.
        Signal::TSTP => {
            child.signal(Signal::STOP);
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        }
        signal => child.signal(signal),
    }
}
