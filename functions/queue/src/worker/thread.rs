//! One event that names a thread: read, claimed, applied, told, completed.
//!
//! Everything that is decided is decided by what is durable: the record with its checkpoints, and
//! the thread's replies. So whoever comes behind a crash goes on where it happened.

use std::time::Duration;

use firstclaim::{Failure, Inspection, Invocation, Outcome, Status, StepError, Store, Work};
use serde::{Deserialize, Serialize};

use super::Worker;
use super::ended::{Ended, Returned, Settled};
use super::record::{Lost, NotApplied, RECORDING};
use crate::log::chain;
use crate::message::Message;
use crate::operation::Operation;
use crate::queues::Queues;
use crate::target::{Applied, Refusal};
use crate::threads::{Context, Reply, ThreadName, Threads, ThreadsError, Told, Until, mark};

/// The checkpoint behind the target's call.
const APPLIED: &str = "applied";

/// The checkpoint behind the reply.
const REPLIED: &str = "replied";

/// What is kept back of the time of a call of the target, for the reply.
pub(super) const REPLYING: Duration = Duration::from_secs(10);

/// The pauses before a reply whose answer was lost is looked for again.
const LOOKS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(250),
    Duration::from_secs(1),
];

/// The result of an event that names a thread: what the record keeps, and every duplicate gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Responded {
    /// The target's answer; `None` where only the thread tells that it was done.
    applied: Option<Applied>,
    /// The reply's id; `None` where the thread was closed before there was one.
    pub(super) reply: Option<String>,
}

/// The work on one event.
struct Response<'a, S, Q> {
    worker: &'a Worker<S, Q>,
    threads: &'a Threads,
    thread: &'a ThreadName,
    message: &'a Message,
    operation: &'a Operation,
    /// The thread as it was before the claim.
    seen: &'a Context,
    mark: String,
    lost: Lost,
}

impl<S: Store, Q: Queues> Worker<S, Q> {
    /// Goes the whole way of an event that names a thread.
    pub(super) async fn respond(
        &self,
        threads: &Threads,
        thread: &ThreadName,
        message: &Message,
        operation: &Operation,
    ) -> Ended {
        let now = self.claims.now();
        let left = Invocation::current().map_or(REPLYING, |it| it.deadline.since(now));
        let until = Until::within(left - RECORDING.min(left / 4), now);
        // Before the claim, so that a thread that can't be read leaves nothing behind.
        let seen = match threads.context(thread, until).await {
            Ok(seen) => seen,
            Err(error) => {
                return Ended::refused(&error.refusal(now), message).of(&operation.key);
            }
        };
        let response = Response {
            worker: self,
            threads,
            thread,
            message,
            operation,
            seen: &seen,
            mark: mark(&operation.key),
            lost: Lost::default(),
        };
        let run = self
            .claim_of(operation)
            .activity(activity(thread))
            .run_inspecting(|work| response.inspect(work), |work| response.operate(work));
        let run = Box::pin(run).await;
        let reply = run.as_ref().ok().and_then(reply_of);
        let ended = self.ended(message, operation, run).await;
        ended
            .with_reply(reply)
            .with_lease_lost(response.lost.is_so())
    }
}

impl<S: Store, Q: Queues> Response<'_, S, Q> {
    /// What durable state says of an event whose claim is ours: whether it has been done, or can be
    /// finished without the target being called.
    async fn inspect(&self, work: Work<S>) -> Result<Inspection<Responded>, Failure<NotApplied>> {
        let found = self.find(&work).await;
        self.lost.look(&work);
        found
    }

    async fn find(&self, work: &Work<S>) -> Result<Inspection<Responded>, Failure<NotApplied>> {
        if let Some(told) = stored(work) {
            let finished = self.finish(work, told).await;
            self.threads.clear(self.until(work)).await;
            return finished.map(Inspection::Done);
        }
        let fresh = match work.attempt() {
            1 => None,
            // Somebody was at it, who may have come far since the thread was read.
            _ => Some(self.look(work).await?),
        };
        let seen = fresh.as_ref().unwrap_or(self.seen);
        if let Some(found) = seen.reply(&self.mark) {
            self.threads.clear(self.until(work)).await;
            return Ok(Inspection::Done(Responded {
                applied: None,
                reply: Some(found.name.clone()),
            }));
        }
        // Of an event that somebody may have applied, that it is stale says too little.
        if seen.closed && work.attempt() == 1 {
            return Ok(Inspection::Stop("the thread is closed".to_owned()));
        }
        Ok(Inspection::Proceed)
    }

    /// Applies the event and tells it, with the activity around. The activity is cleared before the
    /// end is recorded: once it is, nobody comes back to clear what a crash has left.
    async fn operate(&self, work: Work<S>) -> Result<Responded, Failure<NotApplied>> {
        let activity = activity(self.thread);
        self.threads.say(&activity, self.until(&work)).await;
        let done = self.apply_and_tell(&work).await;
        self.threads.clear(self.until(&work)).await;
        self.lost.look(&work);
        done
    }

    async fn apply_and_tell(&self, work: &Work<S>) -> Result<Responded, Failure<NotApplied>> {
        if work.attempt() > 1 && self.look(work).await?.closed {
            return Err(Failure::permanent("stale", NotApplied::Stale));
        }
        // Before the step, which says that the target is called.
        let route = self.worker.route(self.operation).await?;
        let told = work.step(APPLIED, || async {
            let applied = self
                .worker
                .apply(work, self.message, self.operation, &route)
                .await?;
            Ok(Told::of(applied))
        });
        let told = told.await?;
        self.finish(work, told).await
    }

    /// The way from the target's answer to the result: the reply, unless it is there.
    ///
    /// Whatever fails here *did not happen*: what the target has done is in the record, and the
    /// next attempt goes on behind it.
    async fn finish(&self, work: &Work<S>, told: Told) -> Result<Responded, Failure<NotApplied>> {
        let replied = match work.checkpoints().remove(REPLIED) {
            // One that somebody has deleted since is not posted again.
            Some(json) => serde_json::from_str(&json).unwrap_or_default(),
            None => {
                let reply = self.tell(work, &told).await?;
                let kept = work.checkpoint(REPLIED, &reply).await;
                kept.map_err(|error| Failure::did_not_happen("reply_not_recorded", error.into()))?;
                reply
            }
        };
        Ok(Responded {
            applied: Some(told.applied),
            reply: replied,
        })
    }

    /// Makes the thread carry the reply once, and returns its id; `None` where the thread is closed
    /// and carries none.
    async fn tell(
        &self,
        work: &Work<S>,
        told: &Told,
    ) -> Result<Option<String>, Failure<NotApplied>> {
        let reply = Reply::of(&self.operation.key, told);
        let seen = self.look(work).await?;
        let Some(found) = seen.reply(&self.mark) else {
            if seen.closed {
                return Ok(None);
            }
            self.still_ours(work).await?;
            return self.post(work, &reply).await.map(Some);
        };
        if !found.says(&reply) {
            self.still_ours(work).await?;
            let update = self
                .threads
                .update(self.thread, &found.id, &reply, self.until(work));
            update.await.map_err(|error| self.untold(&error))?;
        }
        Ok(Some(found.name.clone()))
    }

    /// Posts the reply once. Without an answer it may be there, or come to be there, so that it is
    /// looked for and never posted again; if it is not found in time, the event comes back later.
    async fn post(&self, work: &Work<S>, reply: &Reply) -> Result<String, Failure<NotApplied>> {
        let posted = self.threads.create(self.thread, reply, self.until(work));
        let error = match posted.await {
            Ok(Some(id)) => return Ok(id),
            Ok(None) => ThreadsError::Malformed("a reply has no `id`"),
            Err(error) if error.not_done() => return Err(self.untold(&error)),
            Err(error) => error,
        };
        for pause in LOOKS {
            tokio::time::sleep(pause.min(work.remaining() / 4)).await;
            if let Ok(seen) = self.look(work).await
                && let Some(found) = seen.reply(&self.mark)
            {
                return Ok(found.name.clone());
            }
        }
        Err(self.untold(&error))
    }

    /// The fence before each write to the thread, which can't tell a late owner from the one who
    /// has the key now. What remains is a process that is suspended between this and its write.
    async fn still_ours(&self, work: &Work<S>) -> Result<(), Failure<NotApplied>> {
        if work.is_lost() {
            return Err(overtaken());
        }
        match self.worker.claims.read(work.key()).await {
            Ok(Some(record))
                if record.status == Status::InProgress
                    && record.owner.as_ref() == Some(work.owner()) =>
            {
                Ok(())
            }
            // Nobody else has it either; the completion restores it.
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(overtaken()),
            Err(error) => {
                let error = NotApplied::Unread(error);
                Err(Failure::did_not_happen("owner_unread", error))
            }
        }
    }

    async fn look(&self, work: &Work<S>) -> Result<Context, Failure<NotApplied>> {
        let seen = self.threads.context(self.thread, self.until(work)).await;
        seen.map_err(|error| self.untold(&error))
    }

    fn untold(&self, error: &ThreadsError) -> Failure<NotApplied> {
        let refusal = error.refusal(self.worker.claims.now());
        let code = refusal.code.clone();
        let error = NotApplied::Refused {
            refusal,
            dead_lettered: false,
        };
        Failure::did_not_happen(code, error)
    }

    /// A call of the threads server ends before the claim does, so that what it did can still be
    /// recorded.
    fn until(&self, work: &Work<S>) -> Until {
        let remaining = work.remaining();
        let left = remaining - RECORDING.min(remaining / 4);
        Until::within(left, self.worker.claims.now())
    }
}

impl Ended {
    /// The answer of an event whose thread could not be read: nothing was claimed.
    fn refused(refusal: &Refusal, message: &Message) -> Self {
        let returned = Returned::when(refusal, message.receives);
        Self::new(refusal.outcome(), Settled::Returned(returned)).with_code(refusal.code.clone())
    }

    /// The answer where the claim, or what it could record, was lost between two steps.
    pub(super) fn broken_off(error: &NotApplied, message: &Message) -> Self {
        let cause = match error {
            NotApplied::Step(error) => Some(chain(error)),
            NotApplied::Unread(error) => Some(chain(error)),
            _ => None,
        };
        tracing::warn!(
            target: "firstclaim::batch",
            cause,
            "an event of a thread was broken off between two steps; the message is returned",
        );
        let outcome = match error {
            NotApplied::Overtaken | NotApplied::Step(StepError::Superseded(_)) => "superseded",
            NotApplied::Step(StepError::Lost(_)) => "no_time",
            NotApplied::Step(StepError::Store { .. } | StepError::NotEntered { .. })
            | NotApplied::Unread(_) => "store_unavailable",
            _ => "retryable",
        };
        let returned = match outcome {
            "retryable" => Returned::after_backoff(message.receives),
            _ => Returned::AS_THE_QUEUE_SAYS,
        };
        Self::new(outcome, Settled::Returned(returned))
    }
}

impl From<StepError> for NotApplied {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

fn overtaken() -> Failure<NotApplied> {
    Failure::did_not_happen("overtaken", NotApplied::Overtaken)
}

/// What an earlier attempt has had of the target. A record that can't be read so is run again, which
/// the target tells by its key.
fn stored<S: Store>(work: &Work<S>) -> Option<Told> {
    serde_json::from_str(work.checkpoints().get(APPLIED)?).ok()
}

fn reply_of(outcome: &Outcome<Responded>) -> Option<String> {
    use firstclaim::Answer::{NotRecorded, Performed, Replayed};
    match &outcome.answer {
        Performed(done) | Replayed(done) | NotRecorded(done) => done.reply.clone(),
        _ => None,
    }
}

fn activity(thread: &ThreadName) -> String {
    format!("Revalidating {thread} before mutation.")
}
