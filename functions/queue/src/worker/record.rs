//! One record: claimed, applied, and answered.

use std::time::Duration;

use firstclaim::metrics::{Metric, Metrics};
use firstclaim::{
    Answer, ClaimError, Ending, EntryError, Failure, Key, Once, Outcome, Policy, RunError,
    StepError, Store, StoreError, Work,
};

use super::thread::REPLYING;
use super::{Worker, backoff};
use crate::log::{chain, printable};
use crate::message::Message;
use crate::operation::{Noise, Operation, Undecoded};
use crate::queues::{DeadLetter, Queues, Reason};
use crate::target::{Applied, Call, Class, Refusal, STEP};

/// What is kept back of the time that is left for the end to be recorded and the batch answered:
/// the call ends before the claim does.
pub(super) const RECORDING: Duration = Duration::from_secs(2);

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Acknowledged,
    DeadLettered,
    Returned(Returned),
}

/// A record that goes back to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returned {
    /// For how many seconds it stays hidden; `None` leaves the queue's own visibility.
    pub(super) visibility: Option<u32>,
    /// The same, if all of its batch back off.
    pub(super) full: Option<u32>,
}

impl Returned {
    pub(super) const AS_THE_QUEUE_SAYS: Self = Self {
        visibility: None,
        full: None,
    };

    pub(super) fn after_backoff(receives: u32) -> Self {
        Self {
            visibility: Some(backoff::after(receives)),
            full: Some(backoff::full(receives)),
        }
    }

    /// When what was refused may be tried again.
    pub(super) fn when(refusal: &Refusal, receives: u32) -> Self {
        match refusal.retry_after {
            Some(wait) => Self::at_the_targets_wish(wait),
            None => Self::after_backoff(receives),
        }
    }

    /// The target said when it wants to be asked again.
    fn at_the_targets_wish(wait: Duration) -> Self {
        let visibility = Some(backoff::exactly(wait));
        Self {
            visibility,
            full: visibility,
        }
    }

    fn after(wait: Duration) -> Self {
        Self {
            visibility: Some(backoff::exactly(wait)),
            full: None,
        }
    }
}

impl Settled {
    /// What becomes of a message that asks for this operation and for others: it is returned if one
    /// of them must come back, for as long as the longest of them asks for.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Returned(one), Self::Returned(other)) => Self::Returned(Returned {
                visibility: one.visibility.max(other.visibility),
                full: one.full.zip(other.full).map(|(one, other)| one.max(other)),
            }),
            (returned @ Self::Returned(_), _) | (_, returned @ Self::Returned(_)) => returned,
            (Self::DeadLettered, _) | (_, Self::DeadLettered) => Self::DeadLettered,
            (Self::Acknowledged, Self::Acknowledged) => Self::Acknowledged,
        }
    }
}

/// How a record ended, and what is said about it.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) outcome: &'static str,
    pub(super) settled: Settled,
    pub(super) key: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) code: Option<String>,
    /// The reply that tells the result in the event's thread.
    pub(super) reply: Option<String>,
    /// Whether other messages with this key would end in the same way now.
    pub(super) concerns_key: bool,
}

impl Ended {
    pub(super) fn new(outcome: &'static str, settled: Settled) -> Self {
        Self {
            outcome,
            settled,
            key: None,
            attempt: None,
            code: None,
            reply: None,
            concerns_key: true,
        }
    }

    pub(super) fn unprocessed(outcome: &'static str, returned: Returned) -> Self {
        Self::new(outcome, Settled::Returned(returned))
    }

    /// A message that asks for nothing.
    pub(super) fn ignored(noise: Noise) -> Self {
        Self::new("ignored", Settled::Acknowledged).with_code(noise.code())
    }

    pub(super) fn panicked(message: &Message) -> Self {
        let returned = Returned::after_backoff(message.receives);
        Self::new("panicked", Settled::Returned(returned))
    }

    pub(super) fn of(mut self, key: &Key) -> Self {
        self.key = Some(key.as_str().to_owned());
        self
    }

    fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    pub(super) fn with_reply(mut self, reply: Option<String>) -> Self {
        self.reply = reply;
        self
    }

    pub(super) fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Counts the record, under the name of the sender that the envelope carries: only who may send
    /// to the queue can make a new one, and only one that could be configured.
    pub(super) fn count(&self, metrics: &Metrics, operation: Option<&Operation>, took: Duration) {
        let sender = operation
            .map(|operation| operation.sender.as_str())
            .filter(|name| is_sender_name(name));
        if let Some(metric) = self.metric() {
            metrics.count(sender, metric);
        }
        let ran = matches!(self.metric(), Some(Metric::Performed | Metric::NotRecorded));
        if ran && self.attempt.is_some_and(|attempt| attempt > 1) {
            metrics.count(sender, Metric::Takeover);
        }
        metrics.latency(sender, took);
    }

    fn metric(&self) -> Option<Metric> {
        Some(match self.outcome {
            "performed" => Metric::Performed,
            "replayed" | "result_omitted" => Metric::Replayed,
            "replayed_failure" => Metric::ReplayedFailure,
            "in_flight" => Metric::InFlight,
            "held" => Metric::Held,
            "mismatch" => Metric::Mismatch,
            "superseded" => Metric::Superseded,
            "not_recorded" => Metric::NotRecorded,
            "permanent" | "undecodable" => Metric::Permanent,
            "target_misconfigured" => Metric::TargetMisconfigured,
            "ignored" => Metric::Ignored,
            "store_unavailable" => Metric::StoreUnavailable,
            "retryable" | "panicked" | "unknown" | "not_claimed" | "no_time" => Metric::Retryable,
            // Not begun: its next receive counts.
            _ => return None,
        })
    }

    /// The one event that tells of a record.
    pub(super) fn log(&self, message_id: Option<&str>, took: Duration) {
        let answer = match self.settled {
            Settled::Acknowledged => "acknowledged",
            Settled::DeadLettered => "dead_lettered",
            Settled::Returned(_) => "returned",
        };
        let visibility = match self.settled {
            Settled::Returned(returned) => returned.visibility,
            _ => None,
        };
        tracing::info!(
            target: "firstclaim::record",
            outcome = self.outcome,
            key = self.key.as_deref().map(printable).as_deref(),
            attempt = self.attempt,
            code = self.code.as_deref(),
            reply = self.reply.as_deref(),
            message_id = message_id.map(printable).as_deref(),
            answer,
            visibility,
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        );
    }
}

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
        let run = once.run(|work| async move { self.apply(&work, message, operation).await });
        // Boxed: all calls of an operation nest deeper than the compiler lays out in one piece.
        let run = Box::pin(run).await;
        self.ended(message, operation, run).await
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
            Err(RunError::Operation {
                failure,
                attempt,
                record,
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

    /// Calls the target. A permanent refusal becomes a dead letter first: once it is stored as
    /// FAILED, every later receive is acknowledged, so that without its letter the event would be
    /// lost. For the same reason it is not stored at all where there is no dead-letter queue: the
    /// message is then returned each time, until the queue's own redrive policy moves it.
    pub(super) async fn apply(
        &self,
        work: &Work<S>,
        message: &Message,
        operation: &Operation,
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
        let refusal = match self.call(work, &call, reserve).await? {
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
        reserve: Duration,
    ) -> Result<Result<Applied, Refusal>, Failure<NotApplied>> {
        let started = self.claims.now();
        let route = match self.target.route(call.sender, started).await {
            Ok(route) => route,
            Err(refusal) => return Ok(Err(refusal)),
        };
        work.enter().await.map_err(NotApplied::not_entered)?;
        let remaining = work.remaining();
        let left = remaining - reserve.min(remaining / 4);
        let now = self.claims.now();
        let answer = self.target.apply(&route, call, left, now).await;
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
            error => return Ended::broken_off(&error, message).with_code(failure.code),
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

/// Whether a sender could be configured under this name.
fn is_sender_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
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
