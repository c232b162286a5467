//! What an owner does: one request for the key, with an operation that a plan describes.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstclaim::outcome::{Answer, Ending, Failure};
use firstclaim::record::Policy;
use firstclaim::store::Written;
use firstclaim::{
    ClaimError, Claims, Fingerprint, Inspection, Key, RunError, StepError, StoreError, Work,
};
use tokio::sync::Semaphore;

use super::wire::Tapped;

/// What one call is and does.
#[derive(Clone, Debug)]
pub(crate) struct CallPlan {
    /// Which process makes it.
    pub(crate) process: usize,
    pub(crate) policy: Policy,
    /// The payload's number; `None` without a fingerprint.
    pub(crate) payload: Option<u8>,
    pub(crate) lease: Duration,
    /// Whether the lease is given as a deadline.
    pub(crate) deadline: bool,
    /// For how long it is renewed at the most.
    pub(crate) renewed: Option<Duration>,
    pub(crate) wait: Duration,
    pub(crate) redelivered: bool,
    /// Whether it marks its entry.
    pub(crate) marks: bool,
    pub(crate) inspect: Option<Found>,
    pub(crate) pieces: Vec<Piece>,
    /// Whether the operation stops when its claim is lost.
    pub(crate) attentive: bool,
    pub(crate) end: End,
}

/// A part of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// It takes time: as much as the schedule wants.
    Pause,
    /// An effect that is checkpointed.
    Step(&'static str),
    /// It says what it does.
    Activity,
}

/// How an operation ends, if nothing else ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done { large: bool },
    Permanent,
    DidNotHappen,
    Unknown,
    Panic,
}

/// What an inspection finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    NotYet,
    Done,
    Stale,
    Failed,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With whether what the call had done was dropped.
    Answered(Answer<String>, bool),
    /// The operation's own error; whether somebody else had the key, and whether its end could be
    /// recorded.
    Operation {
        ending: Ending,
        dropped: bool,
        recorded: bool,
    },
    /// Nothing was claimed.
    NotClaimed(ClaimError),
    Panicked,
    /// With something that no version of the crate has returned so far.
    Unknown(String),
    /// A settle by hand.
    Settled(Result<Written, StoreError>),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(answer, false) => write!(f, "{answer:?}"),
            Self::Answered(answer, true) => write!(f, "{answer:?}, its own dropped"),
            Self::Operation {
                ending,
                dropped,
                recorded,
            } => write!(
                f,
                "its own error, {ending:?}, dropped: {dropped}, recorded: {recorded}"
            ),
            Self::NotClaimed(ClaimError::Store(error)) => write!(f, "not claimed: {error}"),
            Self::NotClaimed(error) => write!(f, "not claimed: {error}"),
            Self::Panicked => f.write_str("a panic"),
            Self::Unknown(what) => f.write_str(what),
            Self::Settled(Ok(Written::Applied(_))) => f.write_str("settled"),
            Self::Settled(Ok(Written::Refused(_))) => f.write_str("not settled: it has changed"),
            Self::Settled(Err(error)) => write!(f, "perhaps settled: {error}"),
        }
    }
}

/// What an operation tells of itself.
#[derive(Debug)]
pub(crate) enum Said {
    /// It was entered.
    Entered {
        call: usize,
        attempt: u32,
        /// By its own clock, in milliseconds.
        now: i64,
        downstream: String,
    },
    /// It ended by itself, with this failure or none.
    Left { call: usize, ending: Option<Ending> },
    /// A step's effect happened.
    StepRan { call: usize, name: &'static str },
    /// A step had this value.
    StepGave {
        call: usize,
        name: &'static str,
        value: String,
        downstream: String,
    },
}

/// Where operations tell of themselves, and wait for the schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    said: Vec<Said>,
    inside: Vec<(usize, Work<Tapped>)>,
}

impl Ledger {
    pub(crate) fn take(&self) -> Vec<Said> {
        std::mem::take(&mut self.pages().said)
    }

    /// The calls whose operation is running, with what each knows of its claim.
    pub(crate) fn inside(&self) -> Vec<(usize, Work<Tapped>)> {
        self.pages().inside.clone()
    }

    fn say(&self, said: Said) {
        self.pages().said.push(said);
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an operation waits until the schedule lets it go on.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    passes: Semaphore,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(GateState {
            passes: Semaphore::new(0),
            waiting: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn is_waited_at(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > self.0.passes.available_permits()
    }

    /// Lets one through.
    pub(crate) fn let_one(&self) {
        self.0.passes.add_permits(1);
    }

    async fn pass(&self) {
        /// Counts a wait also where it is given up.
        struct Wait<'a>(&'a AtomicUsize);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let _wait = Wait(&self.0.waiting);
        // The semaphore is never closed.
        if let Ok(permit) = self.0.passes.acquire().await {
            permit.forget();
        }
    }
}

/// The operation's error.
#[derive(Debug)]
pub(crate) struct Trouble(String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StepError> for Trouble {
    fn from(error: StepError) -> Self {
        Self(error.to_string())
    }
}

/// One call: everything that its future needs.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: usize,
    pub(crate) key: Key,
    pub(crate) plan: CallPlan,
    pub(crate) claims: Claims<Tapped>,
    pub(crate) ledger: Ledger,
    pub(crate) gate: Gate,
}

/// The fingerprint of a payload.
pub(crate) fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::of_raw(&[payload])
}

/// The result of a call's operation, as JSON text. A long one goes into a companion.
pub(crate) fn result(call: usize, large: bool) -> String {
    let filling = if large { "x".repeat(80) } else { String::new() };
    format!("result of call {call}{filling}")
}

/// What an inspection of a call finds.
pub(crate) fn found(call: usize) -> String {
    format!("found by call {call}")
}

impl Call {
    pub(crate) async fn run(self) -> Ended {
        let plan = &self.plan;
        let mut once = self
            .claims
            .once(self.key.clone())
            .policy(plan.policy)
            .activity("at it")
            .wait_for(plan.wait)
            .redelivered(plan.redelivered);
        once = match plan.deadline {
            true => once.deadline(self.claims.now().after(plan.lease)),
            false => once.lease(plan.lease),
        };
        if let Some(total) = plan.renewed {
            once = once.renewed(total);
        }
        if plan.marks {
            once = once.marks_entry();
        }
        if let Some(payload) = plan.payload {
            once = once.fingerprint(fingerprint(payload));
        }
        let operation = |work| self.operate(work);
        let outcome = match plan.inspect {
            None => once.run(operation).await,
            Some(found) => {
                let inspect = |_| self.inspect(found);
                once.run_inspecting(inspect, operation).await
            }
        };
        match outcome {
            Ok(outcome) => Ended::Answered(outcome.answer, outcome.dropped),
            Err(RunError::Operation {
                failure,
                dropped,
                record,
                ..
            }) => Ended::Operation {
                ending: failure.ending,
                dropped,
                recorded: record.is_none(),
            },
            Err(RunError::Claim(error)) => Ended::NotClaimed(error),
            Err(error) => Ended::Unknown(error.to_string()),
        }
    }

    async fn inspect(&self, found: Found) -> Result<Inspection<String>, Failure<Trouble>> {
        match found {
            Found::NotYet => Ok(Inspection::Proceed),
            Found::Done => Ok(Inspection::Done(self::found(self.number))),
            Found::Stale => Ok(Inspection::Stop("a newer event".to_owned())),
            Found::Failed => Err(Failure::unknown("inspect", Trouble("no answer".to_owned()))),
        }
    }

    async fn operate(&self, work: Work<Tapped>) -> Result<String, Failure<Trouble>> {
        let number = self.number;
        let _inside = Inside::enter(&self.ledger, number, &work);
        if self.plan.marks
            && let Err(error) = work.enter().await
        {
            let trouble = Trouble(error.to_string());
            return Err(Failure::did_not_happen("not_entered", trouble));
        }
        self.ledger.say(Said::Entered {
            call: number,
            attempt: work.attempt(),
            now: self.claims.now().0,
            downstream: work.downstream_key("effect"),
        });
        let ended = self.work(&work).await;
        let ending = ended.as_ref().err().map(|failure| failure.ending);
        self.ledger.say(Said::Left {
            call: number,
            ending,
        });
        ended
    }

    async fn work(&self, work: &Work<Tapped>) -> Result<String, Failure<Trouble>> {
        for piece in &self.plan.pieces {
            match piece {
                Piece::Pause => self.pause(work).await?,
                Piece::Step(name) => self.step(work, name).await?,
                // For people only: whether it could be written decides nothing.
                Piece::Activity => drop(work.set_activity(Some("still at it")).await),
            }
        }
        let trouble = |text: &str| Trouble(text.to_owned());
        match self.plan.end {
            End::Done { large } => Ok(result(self.number, large)),
            End::Permanent => Err(Failure::permanent("refused", trouble("never"))),
            End::DidNotHappen => Err(Failure::did_not_happen("busy", trouble("not now"))),
            End::Unknown => Err(Failure::unknown("timeout", trouble("no answer"))),
            // Like a panic, but without its message on the terminal.
            End::Panic => std::panic::resume_unwind(Box::new("planned")),
        }
    }

    async fn pause(&self, work: &Work<Tapped>) -> Result<(), Failure<Trouble>> {
        if !self.plan.attentive {
            self.gate.pass().await;
            return Ok(());
        }
        tokio::select! {
            biased;
            () = work.lost() => {}
            () = self.gate.pass() => {}
        }
        match work.is_lost() {
            true => Err(Failure::unknown("lost", Trouble("lost".to_owned()))),
            false => Ok(()),
        }
    }

    async fn step(&self, work: &Work<Tapped>, name: &'static str) -> Result<(), Failure<Trouble>> {
        let call = self.number;
        let effect = || async {
            self.ledger.say(Said::StepRan { call, name });
            Ok::<_, Failure<Trouble>>(format!("{name} of call {call}"))
        };
        let value = work.step(name, effect).await?;
        self.ledger.say(Said::StepGave {
            call,
            name,
            value,
            downstream: work.downstream_key(name),
        });
        Ok(())
    }
}

/// The operation is running for as long as this lives: also one that is dropped leaves.
struct Inside<'a>(&'a Ledger, usize);

impl<'a> Inside<'a> {
    fn enter(ledger: &'a Ledger, call: usize, work: &Work<Tapped>) -> Self {
        ledger.pages().inside.push((call, work.clone()));
        Self(ledger, call)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut pages = self.0.pages();
        pages.inside.retain(|(call, _)| *call != self.1);
    }
}
