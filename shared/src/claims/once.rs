//! A request to do one operation once.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Claim, Claimed, Claims, Ended, Work};
use crate::clock::EpochMillis;
use crate::error::{ClaimError, RunError};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::{Ending, Failure, Outcome, StoredFailure};
use crate::record::{Owner, Policy};
use crate::store::Store;

/// How long a claim may last.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// From the moment of sending.
    Lease(Duration),
    /// Until this instant, at which the process will be stopped; the grace is added.
    Deadline(EpochMillis),
}

/// A request to do one operation once: set what it needs, then [`run`](Once::run) it.
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed until `run` or `claim` is called"]
pub struct Once<S> {
    pub(super) claims: Claims<S>,
    pub(super) key: Key,
    pub(super) until: Option<Until>,
    pub(super) renewed: Option<Duration>,
    pub(super) window: Duration,
    pub(super) policy: Policy,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) activity: Option<String>,
    pub(super) event: Option<String>,
    pub(super) owner: Option<Owner>,
    pub(super) wait: Duration,
    pub(super) redelivered: bool,
    pub(super) marks: bool,
}

/// What `inspect` found out about the operation before it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection<T> {
    /// Nothing speaks against running it. (A takeover under `hold` stays held all the same: "not
    /// yet" is no proof while an earlier attempt may still be on its way.)
    Proceed,
    /// It was done before, with this result, which is recorded now. Nothing runs.
    Done(T),
    /// The event is stale: nothing runs, now or for any duplicate.
    Stop(String),
}

impl<S: Store> Once<S> {
    /// Binds the key to this payload: another one under the same key is a
    /// [`Mismatch`](crate::Answer::Mismatch).
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Holds the claim for `lease`, counted from the moment of sending. The operation must end a
    /// grace before it, or be [`renewed`](Self::renewed).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.until = Some(Until::Lease(lease));
        self
    }

    /// Renews the lease at a third of it, for as long as the operation runs and `total` at the
    /// most. The operation learns of a lost lease by [`Work::lost`]. Only for a
    /// [`lease`](Self::lease): a deadline can't be moved.
    pub fn renewed(mut self, total: Duration) -> Self {
        self.renewed = Some(total);
        self
    }

    /// Holds the claim until `deadline`, at which this process will be stopped, and the grace.
    /// Inside an invocation's [scope](crate::Invocation::scope) this is set already.
    pub fn deadline(mut self, deadline: EpochMillis) -> Self {
        self.until = Some(Until::Deadline(deadline));
        self
    }

    /// How long the finished record answers duplicates, in place of the configured window.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// What may happen after a crash, in place of the configured policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What the owner is about to do, for people to see; it costs no call. Cut at 256 bytes.
    pub fn activity(mut self, text: impl Into<String>) -> Self {
        self.activity = Some(text.into());
        self
    }

    /// The id of the event that led here, for the record's origin.
    pub fn event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }

    /// Claims with this token in place of a new one: an execution that resumes re-enters the claim
    /// that it made before, while its lease runs; anybody else is refused as ever.
    ///
    /// A token is for one claim. Once that has ended, by a release too, the next try needs a new
    /// one: a late copy of what the first claim wrote could not be told from the second one's.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Waits up to `budget` for the result of somebody who is at it, in place of an immediate
    /// [`InProgress`](crate::Answer::InProgress). Never beyond one's own deadline, nor beyond the
    /// invocation's where the claim has a [`lease`](Self::lease) of its own.
    pub fn wait_for(mut self, budget: Duration) -> Self {
        self.wait = budget;
        self
    }

    /// Says that this is probably a duplicate: the record is read first, for half a read unit, and
    /// a final one is the answer. Anything else goes on to the claim.
    pub fn redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// Promises that the operation calls [`Work::enter`] before it does anything that can't be
    /// taken back, and does it only if that succeeds. ([`Work::step`] calls it.) Under [`Policy::Hold`] a claim that is lost
    /// before that call may then run again, in place of being held though nothing ran; it costs one
    /// write more. Under [`Policy::Rerun`] it costs nothing and changes nothing.
    pub fn marks_entry(mut self) -> Self {
        self.marks = true;
        self
    }

    /// Claims the key, runs `operation` if the claim is ours, and records how it ended; any
    /// duplicate gets the recorded result.
    ///
    /// The operation is given a [`Work`], which knows the attempt, the steps and the downstream
    /// key. It runs at most once per claim, and has run where the outcome is `Performed` or
    /// `NotRecorded`, or says [`dropped`](Outcome::dropped): then another owner took the key over
    /// meanwhile, and the answer is that owner's. A panic in it is recorded like an unknown outcome,
    /// and goes on.
    ///
    /// Recording the end is bounded by the time that is left, and takes some seconds more at the
    /// most. What of a result JSON can't keep: see [`Claim::complete`].
    ///
    /// # Errors
    ///
    /// [`RunError::Claim`]: the operation did not run. [`RunError::Operation`]: it ran, and this is
    /// its own error.
    pub async fn run<T, E, F, Fut>(self, operation: F) -> Result<Outcome<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: fmt::Debug + fmt::Display,
        F: FnOnce(Work<S>) -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        match self.acquire(false).await? {
            Claimed::Held(claim) => perform(claim, operation).await,
            Claimed::Answered(outcome) => Ok(outcome.typed()),
        }
    }

    /// Like [`run`](Self::run), but asks `inspect` first, after each claim and each takeover: it
    /// reads the current state and says whether to go on.
    ///
    /// With an inspection, a record that is held may be taken over to ask it; the operation is
    /// then not entered, whatever it says: `Done` and `Stop` settle the record, `Proceed` leaves it
    /// held.
    ///
    /// # Errors
    ///
    /// See [`run`](Self::run); an error of `inspect` counts as the operation's own.
    pub async fn run_inspecting<T, E, I, IFut, F, Fut>(
        self,
        inspect: I,
        operation: F,
    ) -> Result<Outcome<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        E: fmt::Debug + fmt::Display,
        I: FnOnce(Work<S>) -> IFut,
        IFut: Future<Output = Result<Inspection<T>, Failure<E>>>,
        F: FnOnce(Work<S>) -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let claim = match self.acquire(true).await? {
            Claimed::Held(claim) => claim,
            Claimed::Answered(outcome) => return Ok(outcome.typed()),
        };
        match attend(&claim, inspect).await {
            // The inspection took its time: the clock is looked at again before the work.
            Ok(Ok(Inspection::Proceed)) if claim.enters() => match claim.enter().await? {
                Claimed::Held(claim) => perform(claim, operation).await,
                Claimed::Answered(outcome) => Ok(outcome.typed()),
            },
            Ok(Ok(Inspection::Proceed)) => Ok(claim.hold_on().await.typed()),
            Ok(Ok(Inspection::Done(value))) => Ok(claim.found(value).await),
            Ok(Ok(Inspection::Stop(reason))) => Ok(claim.stop(reason).await.typed()),
            Ok(Err(failure)) if claim.enters() => {
                // The operation was not entered, whatever the inspection met.
                let ending = match failure.ending {
                    Ending::Permanent => Ending::Permanent,
                    Ending::DidNotHappen | Ending::Unknown => Ending::DidNotHappen,
                };
                failed(claim, ending, failure).await
            }
            Ok(Err(failure)) => {
                let attempt = claim.attempt();
                claim.hold_on().await;
                Err(RunError::Operation {
                    failure,
                    attempt,
                    dropped: false,
                    record: None,
                })
            }
            Err(panic) if claim.enters() => panicked(claim, panic).await,
            Err(panic) => {
                claim.hold_on().await;
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Claims the key, for callers that end the claim themselves.
    ///
    /// # Errors
    ///
    /// See [`ClaimError`].
    pub async fn claim(self) -> Result<Claimed<S>, ClaimError> {
        self.acquire(false).await
    }
}

async fn perform<S, T, E, F, Fut>(claim: Claim<S>, operation: F) -> Result<Outcome<T>, RunError<E>>
where
    S: Store,
    T: Serialize + DeserializeOwned,
    E: fmt::Debug + fmt::Display,
    F: FnOnce(Work<S>) -> Fut,
    Fut: Future<Output = Result<T, Failure<E>>>,
{
    match attend(&claim, operation).await {
        Ok(Ok(value)) => Ok(claim.complete(value).await),
        Ok(Err(failure)) => failed(claim, failure.ending, failure).await,
        Err(panic) => panicked(claim, panic).await,
    }
}

async fn failed<S: Store, T, E: fmt::Debug + fmt::Display>(
    claim: Claim<S>,
    ending: Ending,
    failure: Failure<E>,
) -> Result<Outcome<T>, RunError<E>> {
    let attempt = claim.attempt();
    let stored = StoredFailure {
        code: failure.code.clone(),
        message: failure.error.to_string(),
    };
    let (dropped, record) = match claim.end(ending, stored).await {
        Ok(ended) => (ended == Ended::Superseded, None),
        Err(error) => (false, Some(error)),
    };
    Err(RunError::Operation {
        failure,
        attempt,
        dropped,
        record,
    })
}

/// The panic goes on whether or not its trace could be written: if not, the lease lapses.
async fn panicked<S: Store, T>(claim: Claim<S>, panic: Panic) -> T {
    let stored = StoredFailure {
        code: "panic".to_owned(),
        message: "the operation panicked".to_owned(),
    };
    let _ = claim.end(Ending::Unknown, stored).await;
    std::panic::resume_unwind(panic)
}

/// Runs a future of the claim's holder while its lease is renewed, and catches a panic.
async fn attend<S, T, F, Fut>(claim: &Claim<S>, operation: F) -> Result<T, Panic>
where
    S: Store,
    F: FnOnce(Work<S>) -> Fut,
    Fut: Future<Output = T>,
{
    let work = claim.work().clone();
    claim.renewing(caught(|| operation(work))).await
}

type Panic = Box<dyn std::any::Any + Send>;

/// Runs a future, and catches a panic of it or of what makes it.
async fn caught<T, Fut: Future<Output = T>>(make: impl FnOnce() -> Fut) -> Result<T, Panic> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // Nothing of the operation is looked at after a panic: it only goes on.
    let future = catch_unwind(AssertUnwindSafe(make))?;
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}
