//! The ownership of a key, and the ways it ends.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{Instrument as _, Span};

use super::Reached;
use super::acquire::Claimed;
use super::kept::{self, Kept};
use super::memory::{Flight, Stage};
use super::work::{BACKOFF, LAST_TRY, Work};
use crate::clock::EpochSeconds;
use crate::error::ClaimError;
use crate::outcome::{Answer, Ending, MESSAGE_LIMIT, Outcome, StoredFailure, bounded};
use crate::protocol::{Verdict, Write, window_end};
use crate::record::{AttemptError, Data, Omitted, Policy, Record, Status};
use crate::store::{Store, StoreError};
use crate::telemetry;

/// How often the final write is sent when it stays unanswered.
const FINISH_TRIES: u32 = 5;

/// How often a companion is sent when it stays unanswered: fewer, so that time is left to say that
/// the operation was done.
const COMPANION_TRIES: u32 = 3;

/// How long a companion outlives its record's window.
pub(super) const COMPANION_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The ownership of a key. Ends by [`complete`](Claim::complete), [`fail`](Claim::fail),
/// [`give_up`](Claim::give_up) or [`release`](Claim::release); one that is dropped lapses with its
/// lease.
#[derive(Debug)]
#[must_use = "a claim that is dropped blocks its key until the lease has lapsed"]
pub struct Claim<S> {
    work: Work<S>,
    /// Others of this process who ask for the same key; they learn of the end when this goes.
    flight: Option<Flight>,
    /// What is logged while the claim is held, by whomever.
    span: Span,
}

impl<S> Deref for Claim<S> {
    type Target = Work<S>;

    fn deref(&self) -> &Work<S> {
        &self.work
    }
}

/// What became of an owner's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It stands in the record.
    Recorded,
    /// Somebody else has the key by now, or it is gone: nothing was changed.
    Superseded,
}

/// How the final write ended.
enum Finished {
    Recorded,
    Overtaken(Box<Outcome<String>>),
}

impl From<Finished> for Ended {
    fn from(finished: Finished) -> Self {
        match finished {
            Finished::Recorded => Self::Recorded,
            Finished::Overtaken(_) => Self::Superseded,
        }
    }
}

/// Whatever way a claim ends, what is left of its operation is told.
impl<S> Drop for Claim<S> {
    fn drop(&mut self) {
        self.work.0.over();
    }
}

impl<S: Store> Claim<S> {
    pub(super) fn new(work: Work<S>, flight: Option<Flight>) -> Self {
        let span = telemetry::span(work.key(), work.attempt());
        Self { work, flight, span }
    }

    /// What may be handed to the operation.
    pub fn work(&self) -> &Work<S> {
        &self.work
    }

    /// Whether the operation may be entered.
    pub(super) fn enters(&self) -> bool {
        self.work.0.enters
    }

    /// Looks at the own clock before the work: a reply that came too late is not a claim any more.
    pub(super) async fn enter(self) -> Result<Claimed<S>, ClaimError> {
        let held = &self.work.0;
        if !self.is_lost() {
            return Ok(Claimed::Held(self));
        }
        let floor = held.claims.config.min_remaining;
        let owner = held.owner.clone();
        // Nothing was entered under a claim that this call made. What was held before, or may have
        // been worked under by an earlier call with the same token, must not be given to anybody.
        let untouched = held.enters && !held.resumed;
        let write = if untouched || held.enters && held.effective_policy() == Policy::Rerun {
            let error = self.attempt_error("too_late", "the claim came too late to start");
            let error = Some(error);
            Write::Release { owner, error }
        } else {
            let error = None;
            Write::Suspend { owner, error }
        };
        match held.send(write, None).await? {
            Reached::Answer(verdict, Some(record)) => {
                let outcome = self.overtaken(verdict, Some(&record), false).await;
                Ok(Claimed::Answered(outcome))
            }
            _ => Err(ClaimError::NoTime {
                remaining: Duration::ZERO,
                floor,
            }),
        }
    }

    /// Runs a future of the claim's holder while the lease is [renewed](crate::Once::renewed), for
    /// callers that end the claim themselves. The renewal ends with the future; when the lease is
    /// lost, [`Work::lost`] says so, and the future is still awaited.
    ///
    /// In it [`Attempt::current`](crate::Attempt::current) is this claim's, and it runs in a span
    /// `claim` with key and attempt, so that its own log lines carry both.
    pub async fn renewing<T>(&self, work: impl Future<Output = T>) -> T {
        let attempt = self.work.0.attempt.clone();
        let work = attempt.scope(work).instrument(self.span.clone());
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.work.keep_renewed() => {}
        }
        work.await
    }

    /// Records the result, which answers every duplicate from now on.
    ///
    /// The outcome is `Performed`; `Superseded` or the winner's result, both with
    /// [`dropped`](Outcome::dropped), if somebody else has taken over; or `NotRecorded`, if the store
    /// did not answer within the time that was left (a completion that comes late still gets some
    /// seconds). A result that can't be kept is replaced by a note of its size; the operation never
    /// runs again for it.
    ///
    /// Duplicates read the result as JSON. What JSON can't say comes back as something else: a NaN
    /// or an infinity is written as null, so that `Some(f64::NAN)` comes back as `None`; and values
    /// that nest deeper than 127 levels are written, but not read: a duplicate gets
    /// [`Answer::ResultOmitted`].
    pub async fn complete<T: Serialize + DeserializeOwned>(self, value: T) -> Outcome<T> {
        self.finish_with(value, Answer::Performed).await
    }

    /// Records a result that was made elsewhere; nothing ran.
    pub(super) async fn found<T: Serialize + DeserializeOwned>(self, value: T) -> Outcome<T> {
        self.finish_with(value, Answer::Replayed).await
    }

    async fn finish_with<T: Serialize + DeserializeOwned>(
        self,
        value: T,
        answer: impl FnOnce(T) -> Answer<T>,
    ) -> Outcome<T> {
        self.work.0.over();
        let kept = Kept::of(&value, self.work.0.claims.config.inline_limit);
        let data = self.keep(kept).await;
        match self.finish(Status::Completed, data).await {
            Ok(Finished::Recorded) => self.outcome(answer(value)),
            Ok(Finished::Overtaken(outcome)) => outcome.typed(),
            Err(error) => {
                telemetry::not_recorded(self.key(), self.attempt(), &error);
                self.outcome(Answer::NotRecorded(value))
            }
        }
    }

    /// Records a permanent failure, which answers every duplicate from now on.
    ///
    /// # Errors
    ///
    /// The store did not answer within the time that was left; the lease is left to lapse.
    pub async fn fail(self, failure: StoredFailure) -> Result<Ended, StoreError> {
        Ok(self.finish_failed(failure).await?.into())
    }

    /// Records a permanent failure with more than a code and a message: `failure` is stored as it
    /// is, and should have both as members, for those who read it as a [`StoredFailure`].
    ///
    /// # Errors
    ///
    /// The store did not answer within the time that was left; the lease is left to lapse.
    pub async fn fail_with<T: Serialize>(self, failure: &T) -> Result<Ended, StoreError> {
        self.work.0.over();
        let kept = Kept::of(failure, self.work.0.claims.config.inline_limit);
        let data = self.keep(kept).await;
        Ok(self.finish(Status::Failed, data).await?.into())
    }

    /// Gives the key back because the operation did not happen.
    ///
    /// # Errors
    ///
    /// The store did not answer; the lease is left to lapse.
    pub async fn release(self, failure: StoredFailure) -> Result<Ended, StoreError> {
        let write = Write::Release {
            owner: self.owner().clone(),
            error: Some(self.attempt_error(&failure.code, &failure.message)),
        };
        self.send_last(write).await
    }

    /// Gives up with an unknown outcome: released under `rerun`, suspended under `hold` (unless the
    /// claim [marks its entry](crate::Once::marks_entry) and has not entered: then nothing
    /// happened).
    ///
    /// # Errors
    ///
    /// The store did not answer; the lease is left to lapse.
    pub async fn give_up(self, failure: StoredFailure) -> Result<Ended, StoreError> {
        let untouched = !self.work.0.live().entered;
        if untouched || Ending::Unknown.releases(self.work.0.effective_policy()) {
            return self.release(failure).await;
        }
        let error = self.attempt_error(&failure.code, &failure.message);
        self.suspend(Some(error)).await
    }

    /// Ends the claim after a failure.
    pub(super) async fn end(
        self,
        ending: Ending,
        failure: StoredFailure,
    ) -> Result<Ended, StoreError> {
        self.span.record("outcome", telemetry::word(ending));
        telemetry::failed(
            self.key(),
            self.attempt(),
            ending,
            &failure.code,
            self.age(),
        );
        match ending {
            Ending::Permanent => self.fail(failure).await,
            Ending::DidNotHappen => self.release(failure).await,
            Ending::Unknown => self.give_up(failure).await,
        }
    }

    /// The event is stale: recorded as a failure, which is this request's answer too.
    pub(super) async fn stop(self, reason: String) -> Outcome<String> {
        let failure = StoredFailure {
            code: "stale".to_owned(),
            message: bounded(&reason, MESSAGE_LIMIT),
        };
        match self.finish_failed(failure.clone()).await {
            Ok(Finished::Overtaken(outcome)) => *outcome,
            // Unanswered: nothing ran, and the next request inspects again.
            Ok(Finished::Recorded) | Err(_) => self.outcome(Answer::ReplayedFailure(failure)),
        }
    }

    /// A held record was inspected without a result: it stays held.
    pub(super) async fn hold_on(self) -> Outcome<String> {
        // Unanswered: the lease lapses into the same.
        let _ = self.suspend(None).await;
        self.outcome(Answer::Held { since: None })
    }

    async fn suspend(&self, error: Option<AttemptError>) -> Result<Ended, StoreError> {
        let write = Write::Suspend {
            owner: self.owner().clone(),
            error,
        };
        self.send_last(write).await
    }

    /// Gives the key up. That somebody else has it by now is no error of the caller, and is said.
    async fn send_last(&self, write: Write) -> Result<Ended, StoreError> {
        self.work.0.over();
        if let Reached::Answer(..) = self.work.0.send(write, None).await? {
            telemetry::changed_nothing(self.key(), self.attempt());
            return Ok(Ended::Superseded);
        }
        Ok(Ended::Recorded)
    }

    async fn finish_failed(&self, failure: StoredFailure) -> Result<Finished, StoreError> {
        let failure = StoredFailure {
            message: bounded(&failure.message, MESSAGE_LIMIT),
            ..failure
        };
        // Two bounded texts: always small, always JSON.
        let text = serde_json::to_string(&failure).unwrap_or_default();
        self.finish(Status::Failed, Data::Inline(text)).await
    }

    /// A result as it goes into the record; a large one goes into its companion before the record
    /// says so, and stays a note if that can't be written.
    async fn keep(&self, kept: Kept) -> Data {
        let held = &self.work.0;
        match kept {
            Kept::Inline(text) => Data::Inline(text),
            Kept::Not(note) => Data::Omitted(note),
            Kept::Companion { packed, note } => {
                let id = format!("{}#data#{}", held.record.id, held.owner.expose());
                let end = window_end(held.claims.now(), held.window, held.live().lease);
                let expiration = end.millis().after(COMPANION_MARGIN).seconds();
                match self.put_companion(&id, packed, expiration).await {
                    Ok(()) => Data::Companion { id, note },
                    Err(_) => Data::Omitted(Omitted {
                        reason: "its companion item could not be written".to_owned(),
                        ..note
                    }),
                }
            }
        }
    }

    /// Puts a companion, and the same again while that stays unanswered: its id is the owner's
    /// own, so that a copy that lands twice puts the same bytes.
    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        let held = &self.work.0;
        let claims = &held.claims;
        // Most of the time stays for the record to say that the operation was done.
        let time = (held.remaining() / 4).max(LAST_TRY / 4);
        let until = claims.now().after(time);
        let mut backoff = BACKOFF;
        let mut tries = 0;
        loop {
            tries += 1;
            let put = claims.store.put_companion(id, packed.clone(), expiration);
            match held.within(until.since(claims.now()), put).await {
                Err(StoreError::Throttled { .. } | StoreError::Unavailable { .. })
                    if tries < COMPANION_TRIES && until.since(claims.now()) > backoff =>
                {
                    claims.source.sleep(backoff).await;
                    backoff *= 2;
                }
                put => return put,
            }
        }
    }

    /// Sends the final write, and the same again while it stays unanswered and time is left. No try
    /// is waited for beyond that time, except that the first gets [`LAST_TRY`] however late it is:
    /// as long as nobody took over, what it says stands. Nothing else may be sent after it: it may have landed.
    async fn finish(&self, status: Status, data: Data) -> Result<Finished, StoreError> {
        self.work.0.over();
        let mut backoff = BACKOFF;
        let mut data = data;
        let mut tries = 0;
        loop {
            tries += 1;
            let last = Arc::new(self.final_record(status, data.clone()));
            match self.try_finish(status, data.clone(), &last).await {
                Ok(Reached::Answer(verdict, record)) => {
                    let dropped = kept::digest(&data);
                    telemetry::dropped(self.key(), self.attempt(), &dropped);
                    let outcome = self.overtaken(verdict, record.as_deref(), true).await;
                    return Ok(Finished::Overtaken(Box::new(outcome)));
                }
                // An earlier copy stands: its window was counted from its own sending.
                Ok(Reached::Done(Some(record))) => {
                    self.remember(Arc::from(record));
                    return Ok(Finished::Recorded);
                }
                // Only an acquirer comes too late or compares clocks.
                Ok(
                    Reached::Applied { .. }
                    | Reached::Done(None)
                    | Reached::TooLate
                    | Reached::ClockIsOff(_),
                ) => {
                    self.remember(last);
                    return Ok(Finished::Recorded);
                }
                // The request itself is refused, so that nothing has landed and a smaller one may
                // be sent.
                Err(StoreError::TooLarge { .. }) if !matches!(data, Data::Omitted(_)) => {
                    data = kept::without_content(data, "larger than the store takes");
                }
                Err(error) if tries >= FINISH_TRIES || self.remaining() <= backoff => {
                    return Err(error);
                }
                Err(_) => {
                    self.work.0.claims.source.sleep(backoff).await;
                    backoff *= 2;
                }
            }
        }
    }

    async fn try_finish(
        &self,
        status: Status,
        data: Data,
        last: &Arc<Record>,
    ) -> Result<Reached, StoreError> {
        let write = Write::Finish {
            owner: self.owner().clone(),
            status,
            data,
            expiration: last.expiration.unwrap_or(self.work.0.live().expiration),
        };
        self.work.0.send(write, Some(Arc::clone(last))).await
    }

    /// The record as the final write leaves it.
    fn final_record(&self, status: Status, data: Data) -> Record {
        let held = &self.work.0;
        let live = held.live();
        Record {
            status,
            data: Some(data),
            expiration: Some(window_end(held.claims.now(), held.window, live.lease)),
            lease: None,
            owner: Some(held.owner.clone()),
            checkpoints: live.checkpoints.clone(),
            activity: None,
            unentered: None,
            ..held.record.clone()
        }
    }

    /// Keeps the final record for duplicates in this process.
    fn remember(&self, record: Arc<Record>) {
        let held = &self.work.0;
        held.claims
            .memory
            .keep(Arc::clone(&record), held.claims.now());
        if let Some(flight) = &self.flight {
            flight.reached(Stage::Over(Some(record)));
        }
    }

    /// The answer where somebody else has the key now; `dropped` says whether there was an end that
    /// could not be recorded for it.
    async fn overtaken(
        &self,
        verdict: Verdict,
        record: Option<&Record>,
        dropped: bool,
    ) -> Outcome<String> {
        let held = &self.work.0;
        let fingerprint = held.record.fingerprint;
        let answered = match record {
            Some(record) => {
                let key = held.key.clone();
                let answer = held.claims.answer(key, verdict, record, fingerprint);
                held.in_time(held.remaining(), answer).await.ok()
            }
            None => None,
        };
        // Gone, or the winner's large result can't be read just now.
        let superseded = || self.with(Answer::Superseded);
        let outcome = Outcome {
            dropped,
            ..answered.unwrap_or_else(superseded)
        };
        self.span.record("outcome", outcome.name());
        telemetry::outcome(&outcome, self.age());
        outcome
    }

    fn outcome<T>(&self, answer: Answer<T>) -> Outcome<T> {
        let outcome = self.with(answer);
        self.span.record("outcome", outcome.name());
        telemetry::outcome(&outcome, self.age());
        outcome
    }

    fn with<T>(&self, answer: Answer<T>) -> Outcome<T> {
        Outcome {
            key: self.key().clone(),
            attempt: self.attempt(),
            origin: self.origin().clone(),
            answer,
            dropped: false,
        }
    }

    fn attempt_error(&self, code: &str, message: &str) -> AttemptError {
        AttemptError {
            code: bounded(code, MESSAGE_LIMIT),
            message: bounded(message, MESSAGE_LIMIT),
            attempt: self.attempt(),
        }
    }

    fn age(&self) -> Duration {
        self.work.0.claims.now().since(self.work.0.started)
    }
}
