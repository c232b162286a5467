//! Attending the command: signals go to it, the lease ends it.

use std::time::Duration;

use firstclaim::Record;
use firstclaim::claims::Claim;
use firstclaim::clock::{EpochMillis, Source};
use firstclaim::record::RELEASED;
use firstclaim::store::dynamodb::DynamoDb;
use rustix::process::Signal;

use super::StoreWhat;
use super::child::{Child, ended_by_signal, exit_code};
use super::left;
use super::output::Captured;
use super::signals::{Came, Signals, stop_here};
use super::stored::Stored;
use super::watchdog::Watchdog;
use crate::claims::{FileOrTable, SOURCE, exit};

/// How often the watchdog is told of a renewal.
const TELL: Duration = Duration::from_millis(200);

/// The number of the signal that asks to end.
const TERM: u8 = 15;

/// How the command ended.
#[derive(Debug)]
pub(super) struct Attended {
    pub(super) exit_code: u8,
    pub(super) course: Course,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Nothing.
    Plain,
    /// It was ended by a signal, or one was passed on to it.
    Interrupted,
    /// It had run for as long as it may, and was ended.
    TooLong,
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
            StoreWhat::Output => {
                let (stdout, stderr) = (self.stdout.kept(), self.stderr.kept());
                stored.output((&stdout.0, stdout.1), (&stderr.0, stderr.1))
            }
        }
    }
}

/// What bounds the command in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How far clocks may differ.
    pub(super) grace: Duration,
    /// For how long it may run.
    pub(super) max: Duration,
}

/// Waits for the end of the command, and for the end of its output.
pub(super) async fn attend(
    claims: &FileOrTable,
    claim: &Claim<DynamoDb>,
    mut child: Child,
    mut watchdog: Watchdog,
    signals: &mut Signals,
    bounds: Bounds,
) -> Attended {
    let Bounds { grace, max } = bounds;
    let mut course = Course::Plain;
    let mut limit = Some(SOURCE.now().after(max));
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
                        last = Some(ask_to_end(&child, grace));
                    }
                }
            }
            () = SOURCE.sleep(last.or(limit).map_or(TELL, |next| left(next).min(TELL))) => {
                let now = SOURCE.now();
                if last.is_some_and(|last| now >= last) {
                    child.signal(Signal::KILL);
                    last = None;
                } else if last.is_none() && limit.is_some_and(|limit| now >= limit) {
                    limit = None;
                    if matches!(course, Course::Plain | Course::Interrupted) {
                        course = Course::TooLong;
                    }
                    last = Some(ask_to_end(&child, grace));
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
    let by_signal = status.as_ref().is_ok_and(|status| ended_by_signal(*status));
    let code = match status.map_or(u8::MAX, exit_code) {
        // What it had not done by then is not done.
        0 if course == Course::TooLong => exit::SIGNAL + TERM,
        code => code,
    };
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
    let (mut stdout, mut stderr) = child.into_streams();
    let streams = async { tokio::join!(stdout.ended(), stderr.ended()) };
    tokio::select! {
        _ = streams => {}
        // Whoever does not want to wait for what keeps them open has what was read.
        _ = signals.next_end() => {}
    }
    stdout.give_up();
    stderr.give_up();
    let course = match course {
        Course::Plain if by_signal => Course::Interrupted,
        course => course,
    };
    Attended {
        exit_code: code,
        course,
        stdout,
        stderr,
    }
}

/// Asks the command and its children to end; until when they may take to do so.
fn ask_to_end(child: &Child, grace: Duration) -> EpochMillis {
    child.signal(Signal::TERM);
    // One that is stopped can't hear it.
    child.signal(Signal::CONT);
    SOURCE.now().after(grace / 2)
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
            stop_here();
        }
        signal => child.signal(signal),
    }
}
