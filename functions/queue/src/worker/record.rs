//! One record: claimed, applied, and answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use firstclaim::{
    Answer, ClaimError, Ending, EntryError, Failure, Key, Once, Outcome, Policy, RunError,
    StepError, Store, StoreError, Work,
};

use super::Worker;
use super::ended::{Ended, Returned, Settled};
use super::thread::REPLYING;
use crate::log::{chain, printable};
use crate::message::Message;
use crate::operation::{Operation, Undecoded};
use crate::queues::{DeadLetter, Queues, Reason};
use crate::target::{Applied, Call, Class, Refusal, Route, STEP};

/// What is kept back of the time that is left for the end to be recorded and the batch answered:
/// the call ends before the claim does.
pub(super) const RECORDING: Duration = Duration::from_secs(2);

/// The error of an operation.
#[derive(Debug)]
pub(super) enum NotApplied {
    /// The target did not confirm it, or the threads server what is told of it.
    Refused {
        refusal: Refusal,
        /// Whether its dead letter is in the queue.
        dead_lettered: bool,
    },
    /// The call was not made, because the record could not say before that it is.
    NotEntered(EntryError),
    /// The event's thread is closed, and an earlier attempt has come to nothing.
    Stale,
    /// Between two steps: what was done could not be recorded.
    Step(StepError),
    /// Between two steps: somebody else has the key.
    Overtaken,
    /// Between two steps: whose the key is could not be read.
    Unread(StoreError),
}

impl std::fmt::Display for NotApplied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { refusal, .. } => refusal.fmt(f),
            Self::NotEntered(error) => error.fmt(f),
            Self::Stale => f.write_str("the thread is closed"),
            Self::Step(error) => error.fmt(f),
            Self::Overtaken => f.write_str("the key has another owner"),
            Self::Unread(_) => f.write_str("the key's owner could not be read"),
        }
    }
}

/// Whether a claim was lost while its operation was under way. Looked at when the operation has
/// returned: behind that the claim has ended, whatever became of it.
#[derive(Debug, Default)]
pub(super) struct Lost(AtomicBool);

impl Lost {
    pub(super) fn look<S: Store>(&self, work: &Work<S>) {
        self.0.fetch_or(work.is_lost(), Ordering::Relaxed);
    }

    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl NotApplied {
    fn not_entered(error: EntryError) -> Failure<Self> {
        Failure::did_not_happen("not_entered", Self::NotEntered(error))
    }
}

impl<S: Store, Q: Queues> Worker<S, Q> {
    /// What can't be read goes to the dead letters; what a newer worker can read, back.
    pub(super) async fn undecoded(&self, message: &Message, error: &Undecoded) -> Ended {
        tracing::warn!(
            target: "firstclaim::batch",
            message_id = message.id.as_deref().map(printable).as_deref(),
            cause = error.to_string(),
            "the message can't be decoded",
        );
        let settled = match error {
            Undecoded::Version(_) => Settled::Returned(Returned::AS_THE_QUEUE_SAYS),
            _ => {
                let letter = letter(message, None, Reason::Undecodable, error.code(), None);
                self.buried(letter).await
            }
        };
        let outcome = match error {
            Undecoded::Version(_) => "unknown_version",
            _ => "undecodable",
        };
        Ended::new(outcome, settled).with_code(error.code())
    }

    /// Claims the key, applies the operation if the claim is ours, and answers the record.
    pub(super) async fn perform(&self, message: &Message, operation: &Operation) -> Ended {
        if let (Some(threads), Some(thread)) = (&self.threads, &operation.thread) {
            return Box::pin(self.respond(threads, thread, message, operation)).await;
        }
        let once = self.claim_of(operation);
        let lost = &Lost::default();
        let run = once.run(|work| async move {
            let applied = match self.route(operation).await {
                Ok(route) => self.apply(&work, message, operation, &route).await,
                Err(failure) => Err(failure),
            };
            lost.look(&work);
            applied
        });
        // Boxed: all calls of an operation nest deeper than the compiler lays out in one piece.
        let run = Box::pin(run).await;
        let ended = self.ended(message, operation, run).await;
        ended.with_lease_lost(lost.is_so())
    }

    pub(super) fn claim_of(&self, operation: &Operation) -> Once<S> {
        let mut once = self.claims.once(operation.key.clone()).marks_entry();
        if let Some(fingerprint) = operation.fingerprint {
            once = once.fingerprint(fingerprint);
        }
        if !operation.delivery.is_empty() {
            once = once.event(operation.delivery.clone());
        }
        once
    }

    /// The answer of a record whose key was asked for.
    pub(super) async fn ended<T>(
        &self,
        message: &Message,
        operation: &Operation,
        run: Result<Outcome<T>, RunError<NotApplied>>,
    ) -> Ended {
        let ended = match run {
            Ok(outcome) => self.answered(message, &operation.key, outcome).await,
            Err(RunError::Claim(error)) => not_claimed(&error),
            // Whoever has the key now has its end too.
            Err(RunError::Operation {
                failure,
                attempt,
                dropped: true,
                ..
            }) => Ended::new("superseded", Settled::Returned(Returned::AS_THE_QUEUE_SAYS))
                .with_lease_lost(matches!(failure.error, NotApplied::Overtaken))
                .with_code(failure.code)
                .with_attempt(attempt),
            Err(RunError::Operation {
                failure,
                attempt,
                record,
                ..
            }) => {
                let recorded = record.is_none();
                self.failed(message, &operation.key, failure, attempt, recorded)
                    .await
                    .with_attempt(attempt)
            }
            // A kind of error that this code does not know: nothing is known of the operation.
            Err(_) => Ended::new("unknown", Settled::Returned(Returned::AS_THE_QUEUE_SAYS)),
        };
        ended.of(&operation.key)
    }

    /// Where the operation goes, which may have to be asked for: before anything says that it went out.
    pub(super) async fn route(&self, operation: &Operation) -> Result<Route, Failure<NotApplied>> {
        let route = self.target.route(&operation.sender, self.claims.now());
        route.await.map_err(|refusal| {
            let code = refusal.code.clone();
            let error = NotApplied::Refused {
                refusal,
                dead_lettered: false,
            };
            Failure::did_not_happen(code, error)
        })
    }

    /// Calls the target. A permanent refusal becomes a dead letter first: once it is stored as
    /// FAILED, every later receive is acknowledged, so that without its letter the event would be
    /// lost. For the same reason it is not stored at all where there is no dead-letter queue: the
    /// message is then returned each time, until the queue's own redrive policy moves it.
    pub(super) async fn apply(
        &self,
        work: &Work<S>,
        message: &Message,
        operation: &Operation,
        route: &Route,
    ) -> Result<Applied, Failure<NotApplied>> {
        let downstream_key = work.downstream_key(STEP);
        let call = Call {
            sender: &operation.sender,
            kind: &operation.kind,
            delivery: &operation.delivery,
            key: &operation.key,
            attempt: work.attempt(),
            downstream_key: &downstream_key,
            content_type: &operation.content_type,
            headers: &operation.headers,
            body: &operation.body,
            trace: message.trace.as_deref(),
        };
        let reserve = match operation.thread {
            Some(_) => REPLYING,
            None => RECORDING,
        };
        let refusal = match self.call(work, &call, route, reserve).await? {
            Ok(applied) => return Ok(applied),
            Err(refusal) => refusal,
        };
        let mut dead_lettered = false;
        if refusal.class == Class::Permanent && self.queues.takes_dead_letters() {
            let key = Some(operation.key.as_str());
            let attempt = Some(work.attempt());
            let letter = letter(message, key, Reason::Permanent, &refusal.code, attempt);
            dead_lettered = self.buried(letter).await == Settled::DeadLettered;
        }
        let code = refusal.code.clone();
        let ending = match refusal.class {
            Class::Permanent if dead_lettered => Ending::Permanent,
            Class::Permanent | Class::DidNotHappen | Class::Misconfigured => Ending::DidNotHappen,
            Class::Unknown => Ending::Unknown,
        };
        Err(Failure {
            ending,
            code,
            error: NotApplied::Refused {
                refusal,
                dead_lettered,
            },
        })
    }

    /// Calls the target. Under `hold` the record says so first, once everything else is ready: what
    /// is lost before that may run again, what is lost behind it may not.
    async fn call(
        &self,
        work: &Work<S>,
        call: &Call<'_>,
        route: &Route,
        reserve: Duration,
    ) -> Result<Result<Applied, Refusal>, Failure<NotApplied>> {
        let started = self.claims.now();
        work.enter().await.map_err(NotApplied::not_entered)?;
        let remaining = work.remaining();
        let left = remaining - reserve.min(remaining / 4);
        let now = self.claims.now();
        let answer = self.target.apply(route, call, left, now).await;
        self.pace.took(self.claims.now().since(started));
        Ok(answer)
    }

    /// The answer of a record whose key's record said what to do.
    async fn answered<T>(&self, message: &Message, key: &Key, outcome: Outcome<T>) -> Ended {
        let attempt = outcome.attempt;
        let dead = |reason: Reason| {
            letter(
                message,
                Some(key.as_str()),
                reason,
                reason.as_str(),
                Some(attempt),
            )
        };
        let name = outcome.name();
        let lease_lost = outcome.dropped;
        let mut concerns_key = true;
        let settled = match outcome.answer {
            Answer::Performed(_)
            | Answer::Replayed(_)
            | Answer::ReplayedFailure(_)
            | Answer::ResultOmitted(_) => Settled::Acknowledged,
            // It has been done, and doing it again is all that a return would bring.
            Answer::NotRecorded(_) => Settled::Acknowledged,
            Answer::InProgress { retry_after, .. } => Settled::Returned(Returned::after(
                retry_after.saturating_add(Duration::from_secs(1)),
            )),
            Answer::Held { .. } => self.buried(dead(Reason::Held)).await,
            Answer::Mismatch { .. } => {
                // The others may have the payload that the key is bound to.
                concerns_key = false;
                self.buried(dead(Reason::Mismatch)).await
            }
            // `Superseded`: the new owner has no result yet. And whatever else may come: back.
            _ => Settled::Returned(Returned::AS_THE_QUEUE_SAYS),
        };
        Ended {
            concerns_key,
            lease_lost,
            ..Ended::new(name, settled).with_attempt(attempt)
        }
    }

    /// The answer of a record whose operation failed.
    async fn failed(
        &self,
        message: &Message,
        key: &Key,
        failure: Failure<NotApplied>,
        attempt: u32,
        recorded: bool,
    ) -> Ended {
        let held = failure.ending == Ending::Unknown && self.claims.config().policy == Policy::Hold;
        let (refusal, dead_lettered) = match failure.error {
            NotApplied::Refused {
                refusal,
                dead_lettered,
            } => (refusal, dead_lettered),
            NotApplied::NotEntered(error) => return not_entered(&error),
            // Nothing will be done for it any more, and nobody needs to look at it.
            NotApplied::Stale if recorded => {
                return Ended::new("replayed_failure", Settled::Acknowledged)
                    .with_code(failure.code);
            }
            // The target has done its work, and only this process knows.
            NotApplied::Step(StepError::Store { .. }) if held && recorded => {
                let key = Some(key.as_str());
                let letter = letter(message, key, Reason::Held, &failure.code, Some(attempt));
                return Ended::new("held", self.buried(letter).await).with_code(failure.code);
            }
            error => {
                return Ended::broken_off(&error, message)
                    .with_lease_lost(matches!(error, NotApplied::Overtaken))
                    .with_code(failure.code);
            }
        };
        let outcome = refusal.outcome();
        let again = Returned::when(&refusal, message.receives);
        let (outcome, settled) = match failure.ending {
            // The claim still stands and will lapse; the next receive waits for that.
            _ if !recorded => (outcome, Settled::Returned(Returned::AS_THE_QUEUE_SAYS)),
            Ending::Permanent if dead_lettered => (outcome, Settled::DeadLettered),
            _ if held => {
                let key = Some(key.as_str());
                let letter = letter(message, key, Reason::Held, &refusal.code, Some(attempt));
                ("held", self.buried(letter).await)
            }
            _ => (outcome, Settled::Returned(again)),
        };
        Ended::new(outcome, settled).with_code(refusal.code)
    }

    /// Sends a dead letter; where that can't be done, the message goes back to its queue.
    async fn buried(&self, letter: DeadLetter) -> Settled {
        if !self.queues.takes_dead_letters() {
            return Settled::Returned(Returned::AS_THE_QUEUE_SAYS);
        }
        let message_id = letter.message_id.clone();
        match self.queues.dead_letter(letter).await {
            Ok(()) => Settled::DeadLettered,
            Err(error) => {
                tracing::error!(
                    target: "firstclaim::batch",
                    message_id = message_id.as_deref().map(printable).as_deref(),
                    cause = chain(&error),
                    "the dead letter could not be sent; the message is returned",
                );
                Settled::Returned(Returned::AS_THE_QUEUE_SAYS)
            }
        }
    }
}

fn letter(
    message: &Message,
    key: Option<&str>,
    reason: Reason,
    code: &str,
    attempt: Option<u32>,
) -> DeadLetter {
    DeadLetter {
        body: message.letter_body(),
        key: key.map(str::to_owned),
        reason,
        code: code.to_owned(),
        attempt,
        message_id: message.id.clone(),
        group: message.group.clone(),
    }
}

/// The answer of a record whose operation could not be entered: nothing ran.
fn not_entered(error: &EntryError) -> Ended {
    let outcome = match error {
        EntryError::Store(_) => "store_unavailable",
        EntryError::Superseded => "superseded",
        _ => "no_time",
    };
    tracing::warn!(
        target: "firstclaim::batch",
        cause = chain(error),
        "the target was not called; the message is returned",
    );
    Ended::new(outcome, Settled::Returned(Returned::AS_THE_QUEUE_SAYS))
}

/// The answer of a record whose key could not be claimed: nothing ran.
fn not_claimed(error: &ClaimError) -> Ended {
    let outcome = match error {
        ClaimError::Store(_) => "store_unavailable",
        ClaimError::NoTime { .. } => "no_time",
        _ => "not_claimed",
    };
    tracing::warn!(
        target: "firstclaim::batch",
        cause = chain(error),
        "the key could not be claimed; the message is returned",
    );
    Ended::new(outcome, Settled::Returned(Returned::AS_THE_QUEUE_SAYS))
}
