//! Claims: claim a key, do the work, record how it ended.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::clock::{EpochMillis, Source, SystemSource};
use crate::config::{Config, ConfigError};
use crate::fingerprint::Fingerprint;
use crate::invocation::Invocation;
use crate::key::Key;
use crate::outcome::{Answer, Ending, Failure, MESSAGE_LIMIT, Outcome, StoredFailure, bounded};
use crate::protocol::{Decision, Intent, Request, Terms, Rule, Verdict, Write, decide_without, window_end};
use crate::record::{
    Activity, AttemptError, Data, Omitted, Origin, Owner, Policy, Record, Status,
};
use crate::store::{Read, Store, StoreError, Written};
use crate::telemetry;

/// How many writes one request sends at the most: enough for a claim, a takeover that a renewal
/// beats, and the same again after a window has ended in between.
const ROUNDS: u32 = 8;

/// How often the final write is sent again when it stays unanswered.
const FINISH_TRIES: u32 = 4;

/// The wait before the final write is first sent again; doubled each time.
const FINISH_BACKOFF: Duration = Duration::from_millis(50);

/// The longest result that a record takes, in bytes of JSON text. DynamoDB's items end at 400 KB,
/// and a refused write is billed by the size of the stored item.
const RESULT_LIMIT: usize = 256 * 1024;

/// The longest activity, in bytes.
const ACTIVITY_LIMIT: usize = 256;

/// Claims over one store, with one configuration. Cheap to clone; make one per process.
#[derive(Clone, Debug)]
pub struct Claims<S> {
    store: S,
    config: Arc<Config>,
    source: Arc<dyn Source>,
    /// For mutation checks: a rule of the decision that is left out.
    removed: Option<Rule>,
}

/// Why a key could not be claimed. The operation did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The store could not answer. Fail closed: nothing ran. (A claim whose reply was lost may
    /// stand; it lapses with its lease.)
    #[error("the key could not be claimed, so the operation did not run")]
    Store(#[from] StoreError),
    /// Neither a lease nor a deadline is known.
    #[error(
        "no lease: call `.lease(…)` or `.deadline(…)`, or run inside an invocation's scope (the \
         Lambda layer does)"
    )]
    NoLease,
    /// A longer lease than the configuration allows.
    #[error("a lease of {asked:?} is longer than the configured longest_lease {longest:?}")]
    LongLease {
        /// What was asked for.
        asked: Duration,
        /// The configured limit.
        longest: Duration,
    },
    /// A window that could end before the lease.
    #[error("a window of {asked:?} is not longer than the configured longest_lease {longest:?}")]
    ShortWindow {
        /// What was asked for.
        asked: Duration,
        /// The configured longest lease.
        longest: Duration,
    },
    /// Too little time is left to run the operation.
    #[error("{remaining:?} are left, fewer than the {floor:?} that an operation needs")]
    NoTime {
        /// What is left.
        remaining: Duration,
        /// The configured floor.
        floor: Duration,
    },
}

/// Why [`Once::run`] has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E: fmt::Debug + fmt::Display> {
    /// The key could not be claimed; the operation did not run.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The operation's own error. How the key was left is in the record, unless `record` says that
    /// this could not be written.
    #[error("the operation failed ({}): {}", failure.code, failure.error)]
    Operation {
        /// What the operation returned.
        failure: Failure<E>,
        /// The attempt.
        attempt: u32,
        /// Why its end could not be recorded; the lease is then left to lapse.
        record: Option<StoreError>,
    },
}

impl<S: Store> Claims<S> {
    /// Claims over `store`.
    ///
    /// # Errors
    ///
    /// A configuration that could lose a record before its lease.
    pub fn new(store: S, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            store,
            config: Arc::new(config),
            source: Arc::new(SystemSource),
            removed: None,
        })
    }

    /// The same with another clock and token source.
    #[must_use]
    pub fn with_source(mut self, source: impl Source) -> Self {
        self.source = Arc::new(source);
        self
    }

    /// The same with one rule of the decision taken away, to see whether the tests notice.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn without_rule(mut self, rule: Rule) -> Self {
        self.removed = Some(rule);
        self
    }

    /// Starts a request to do the operation `key` once.
    pub fn once(&self, key: Key) -> Once<S> {
        Once {
            key,
            lease: None,
            window: self.config.window,
            policy: self.config.policy,
            fingerprint: None,
            activity: None,
            event: None,
            claims: self.clone(),
        }
    }

    /// Reads a key's record, consistently. `None` where there is none.
    ///
    /// # Errors
    ///
    /// The store could not answer, which says nothing about the record.
    pub async fn read(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.read(&key.stored(), Read::Consistent).await
    }

    /// The store underneath.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// What holds for all claims.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The current time of the injected clock.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.source.now()
    }

    /// Sends writes until one stands, or the record is the answer.
    async fn drive(&self, id: &str, request: &Request, first: Write) -> Result<Reached, StoreError> {
        let mut write = first;
        for _ in 0..ROUNDS {
            let met = match self.store.write(id, &write).await? {
                Written::Applied(after) => return Ok(Reached::Applied { write, after }),
                Written::Refused(Some(record)) => Some(record),
                Written::Refused(None) => {
                    self.store.read(id, Read::Consistent).await?.map(Box::new)
                }
            };
            match decide_without(self.removed, met.as_deref(), request, self.source.now()) {
                Decision::Send(next) => write = *next,
                Decision::Done => return Ok(Reached::Done(met)),
                Decision::Answer(verdict) => return Ok(Reached::Answer(verdict, met)),
            }
        }
        Err(StoreError::Contended {
            id: id.to_owned(),
            rounds: ROUNDS,
        })
    }
}

/// Where a request's writes led.
enum Reached {
    /// This write stands.
    Applied {
        write: Write,
        after: Option<Box<Record>>,
    },
    /// An earlier copy stood already.
    Done(Option<Box<Record>>),
    /// The record is the answer.
    Answer(Verdict, Option<Box<Record>>),
}

/// How long a claim may last.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// From the moment of sending.
    Lease(Duration),
    /// Until this instant, at which the process will be stopped; the grace is added.
    Deadline(EpochMillis),
}

/// A request to do one operation once: set what it needs, then [`run`](Once::run) it.
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed until `run` or `claim` is called"]
pub struct Once<S> {
    claims: Claims<S>,
    key: Key,
    lease: Option<Until>,
    window: Duration,
    policy: Policy,
    fingerprint: Option<Fingerprint>,
    activity: Option<String>,
    event: Option<String>,
}

impl<S: Store> Once<S> {
    /// Binds the key to this payload: another one under the same key is a
    /// [`Mismatch`](Answer::Mismatch).
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Holds the claim for `lease`, counted from the moment of sending. The operation must end a
    /// grace before it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(Until::Lease(lease));
        self
    }

    /// Holds the claim until `deadline`, at which this process will be stopped, and the grace.
    /// Inside an invocation's [scope](Invocation::scope) this is set already.
    pub fn deadline(mut self, deadline: EpochMillis) -> Self {
        self.lease = Some(Until::Deadline(deadline));
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

    /// What the owner is about to do, for people to see. Cut at 256 bytes.
    pub fn activity(mut self, text: impl Into<String>) -> Self {
        self.activity = Some(text.into());
        self
    }

    /// The id of the event that led here, for the record's origin.
    pub fn event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }

    /// Claims the key, runs `operation` if the claim is ours, and records how it ended; any
    /// duplicate gets the recorded result.
    ///
    /// The operation is given a [`Work`], which knows the attempt and the downstream key. It runs
    /// at most once per claim, and not at all where the outcome is not `Performed`, `NotRecorded`
    /// or `Superseded`. A panic in it is recorded like an unknown outcome, and goes on.
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
        let claim = match self.claim().await? {
            Claimed::Held(claim) => claim,
            Claimed::Answered(outcome) => return Ok(outcome.typed()),
        };
        let work = claim.work.clone();
        match caught(|| operation(work)).await {
            Ok(Ok(value)) => Ok(claim.complete(value).await),
            Ok(Err(failure)) => {
                let attempt = claim.attempt();
                let (code, message) = (failure.code.clone(), failure.error.to_string());
                let record = claim.end(failure.ending, code, message).await.err();
                Err(RunError::Operation {
                    failure,
                    attempt,
                    record,
                })
            }
            Err(panic) => {
                let (code, message) = ("panic".to_owned(), "the operation panicked".to_owned());
                // The panic goes on whether or not its trace could be written: if not, the lease
                // lapses.
                let _ = claim.end(Ending::Unknown, code, message).await;
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
        let invocation = Invocation::current();
        let started = self.claims.now();
        let lease = self.lease_end(started, invocation.as_ref())?;
        let owner = self.claims.source.token();
        let terms = Terms {
            id: self.key.stored(),
            owner: owner.clone(),
            lease,
            window: self.window,
            policy: self.policy,
            fingerprint: self.fingerprint,
            activity: self.activity.map(|text| Activity {
                text: bounded(&text, ACTIVITY_LIMIT),
                at: started,
            }),
            origin: Origin {
                event: self.event,
                ..invocation.map_or_else(Origin::default, Invocation::into_origin)
            },
            silent_limit: self.claims.config.silent_limit,
            inspects: false,
        };
        let first = terms.claim(started);
        let id = terms.id.clone();
        let request = Request::Acquire(terms);
        let reached = self.claims.drive(&id, &request, first).await?;
        let record = match reached {
            Reached::Applied {
                write: Write::Claim { record, .. },
                ..
            } => record,
            Reached::Applied {
                after: Some(record),
                ..
            }
            | Reached::Done(Some(record)) => record,
            Reached::Answer(verdict, Some(record)) => {
                let now = self.claims.now();
                let outcome = answered(self.key, verdict, &record, self.fingerprint, now);
                telemetry::outcome(&outcome, now.since(started));
                return Ok(Claimed::Answered(outcome));
            }
            // A takeover whose store did not bring the record, or an answer from no record:
            // neither can be acted on.
            Reached::Applied { .. } | Reached::Done(None) | Reached::Answer(_, None) => {
                return Err(StoreError::Contended { id, rounds: ROUNDS }.into());
            }
        };
        let claim = Claim {
            work: Work(Arc::new(Held {
                claims: self.claims,
                key: self.key,
                record: *record,
                owner,
                lease,
                window: self.window,
                policy: self.policy,
                started,
            })),
        };
        claim.enter().await
    }

    /// The end of the lease, checked against the configuration.
    fn lease_end(
        &self,
        now: EpochMillis,
        invocation: Option<&Invocation>,
    ) -> Result<EpochMillis, ClaimError> {
        let config = &self.claims.config;
        let until = self
            .lease
            .or_else(|| invocation.map(|invocation| Until::Deadline(invocation.deadline)))
            .ok_or(ClaimError::NoLease)?;
        let lease = match until {
            Until::Lease(lease) => now.after(lease),
            Until::Deadline(deadline) => deadline.after(config.grace),
        };
        let asked = lease.since(now);
        if asked > config.longest_lease {
            return Err(ClaimError::LongLease {
                asked,
                longest: config.longest_lease,
            });
        }
        if self.window <= config.longest_lease {
            return Err(ClaimError::ShortWindow {
                asked: self.window,
                longest: config.longest_lease,
            });
        }
        let remaining = lease.before(config.grace).since(now);
        if remaining < config.min_remaining {
            return Err(ClaimError::NoTime {
                remaining,
                floor: config.min_remaining,
            });
        }
        Ok(lease)
    }
}

/// What a request to claim led to.
#[derive(Debug)]
pub enum Claimed<S> {
    /// The claim is ours: do the work, then end it.
    Held(Claim<S>),
    /// The record is the answer; its result is JSON text. Nothing is to be done.
    Answered(Outcome<String>),
}

/// What an operation knows of its claim. Cheap to clone; it can't end the claim.
#[derive(Debug)]
pub struct Work<S>(Arc<Held<S>>);

impl<S> Clone for Work<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Held<S> {
    claims: Claims<S>,
    key: Key,
    record: Record,
    owner: Owner,
    lease: EpochMillis,
    window: Duration,
    policy: Policy,
    started: EpochMillis,
}

impl<S: Store> Work<S> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The attempt: 1 for the first owner, one more for each takeover.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.record.attempt
    }

    /// Who claimed the key first.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.record.origin
    }

    /// The instant by which the operation must have ended: the lease less the grace.
    #[must_use]
    pub fn ends(&self) -> EpochMillis {
        self.0.lease.before(self.0.claims.config.grace)
    }

    /// The time that is left until [`ends`](Self::ends).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.ends().since(self.0.claims.now())
    }

    /// The key to hand to a downstream service for `step`, as its `Idempotency-Key`: the same on
    /// every attempt, different for every step. The hex SHA-256 of the JSON array
    /// `[key, generation, step]`.
    #[must_use]
    pub fn downstream_key(&self, step: &str) -> String {
        downstream_key(&self.0.key, self.0.record.generation, step)
    }
}

/// See [`Work::downstream_key`]; for those who have the record and not the claim.
#[must_use]
pub fn downstream_key(key: &Key, generation: u32, step: &str) -> String {
    let text = serde_json::json!([key.as_str(), generation, step]).to_string();
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// The ownership of a key. Ends by [`complete`](Claim::complete), [`fail`](Claim::fail),
/// [`give_up`](Claim::give_up) or [`release`](Claim::release); one that is dropped lapses with its
/// lease.
#[derive(Debug)]
#[must_use = "a claim that is dropped blocks its key until the lease has lapsed"]
pub struct Claim<S> {
    work: Work<S>,
}

impl<S> Deref for Claim<S> {
    type Target = Work<S>;

    fn deref(&self) -> &Work<S> {
        &self.work
    }
}

impl<S: Store> Claim<S> {
    /// Looks at the own clock before the work: a reply that came too late is not a claim any more.
    async fn enter(self) -> Result<Claimed<S>, ClaimError> {
        let held = &self.work.0;
        if held.claims.now() < self.ends() {
            return Ok(Claimed::Held(self));
        }
        let floor = held.claims.config.min_remaining;
        let error = self.attempt_error("too_late", "the claim was answered too late to start");
        let write = Write::Release {
            owner: held.owner.clone(),
            error: Some(error),
        };
        match self.send(write, None).await? {
            Reached::Answer(verdict, Some(record)) => {
                Ok(Claimed::Answered(self.overtaken(verdict, &record)))
            }
            _ => Err(ClaimError::NoTime {
                remaining: Duration::ZERO,
                floor,
            }),
        }
    }

    /// The owner token, for a caller that hands the claim to another process.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.work.0.owner
    }

    /// Records the result, which answers every duplicate from now on.
    ///
    /// The outcome is `Performed`; `Superseded` or the winner's result, if somebody else has taken
    /// over; or `NotRecorded`, if the store did not answer within the time that was left. A result
    /// that can't be kept is replaced by a note of its size; the operation never runs again for it.
    pub async fn complete<T: Serialize + DeserializeOwned>(self, value: T) -> Outcome<T> {
        let data = kept(&value);
        match self.finish(Status::Completed, data).await {
            Ok(Finished::Recorded) => self.outcome(Answer::Performed(value)),
            Ok(Finished::Overtaken(outcome)) => {
                telemetry::dropped(self.key(), self.attempt(), &digest(&value));
                outcome.typed()
            }
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
    pub async fn fail(self, failure: StoredFailure) -> Result<(), StoreError> {
        let failure = StoredFailure {
            message: bounded(&failure.message, MESSAGE_LIMIT),
            ..failure
        };
        self.finish(Status::Failed, kept(&failure)).await.map(drop)
    }

    /// Gives the key back because the operation did not happen.
    ///
    /// # Errors
    ///
    /// The store did not answer; the lease is left to lapse.
    pub async fn release(self, code: &str, message: &str) -> Result<(), StoreError> {
        let write = Write::Release {
            owner: self.work.0.owner.clone(),
            error: Some(self.attempt_error(code, message)),
        };
        self.send(write, None).await.map(drop)
    }

    /// Gives up with an unknown outcome: released under `rerun`, suspended under `hold`.
    ///
    /// # Errors
    ///
    /// The store did not answer; the lease is left to lapse.
    pub async fn give_up(self, code: &str, message: &str) -> Result<(), StoreError> {
        if Ending::Unknown.releases(self.work.0.policy()) {
            return self.release(code, message).await;
        }
        let write = Write::Suspend {
            owner: self.work.0.owner.clone(),
            error: Some(self.attempt_error(code, message)),
        };
        self.send(write, None).await.map(drop)
    }

    /// Ends the claim after a failure.
    async fn end(self, ending: Ending, code: String, message: String) -> Result<(), StoreError> {
        telemetry::failed(self.key(), self.attempt(), ending, &code, self.age());
        match ending {
            Ending::Permanent => self.fail(StoredFailure { code, message }).await,
            Ending::DidNotHappen => self.release(&code, &message).await,
            Ending::Unknown => self.give_up(&code, &message).await,
        }
    }

    /// Sends the final write, and the same again while it stays unanswered and time is left.
    /// Nothing else may be sent after it: it may have landed.
    async fn finish(&self, status: Status, data: Data) -> Result<Finished, StoreError> {
        let held = &self.work.0;
        let mut backoff = FINISH_BACKOFF;
        let mut data = data;
        for tries in 1.. {
            match self.try_finish(status, data.clone()).await {
                Ok(Reached::Answer(verdict, Some(record))) => {
                    return Ok(Finished::Overtaken(self.overtaken(verdict, &record)));
                }
                Ok(Reached::Answer(_, None)) => {
                    return Ok(Finished::Overtaken(self.outcome(Answer::Superseded)));
                }
                Ok(_) => return Ok(Finished::Recorded),
                // The item would be too large: a refusal of the request itself, so that nothing
                // has landed and a smaller one may be sent.
                Err(StoreError::TooLarge { .. }) if matches!(data, Data::Inline(_)) => {
                    data = omitted(&data, "larger than the store takes");
                }
                Err(error) => {
                    let left = self.ends().since(held.claims.now());
                    if tries >= FINISH_TRIES || left <= backoff {
                        return Err(error);
                    }
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
            }
        }
        unreachable!("the loop only ends by returning")
    }

    async fn try_finish(&self, status: Status, data: Data) -> Result<Reached, StoreError> {
        let held = &self.work.0;
        let expiration = window_end(held.claims.now(), held.window, held.lease);
        let write = Write::Finish {
            owner: held.owner.clone(),
            status,
            data: data.clone(),
            expiration,
        };
        let restore = Record {
            status,
            data: Some(data),
            expiration: Some(expiration),
            lease: None,
            activity: None,
            owner: Some(held.owner.clone()),
            ..held.record.clone()
        };
        self.send(write, Some(Box::new(restore))).await
    }

    async fn send(
        &self,
        write: Write,
        restore: Option<Box<Record>>,
    ) -> Result<Reached, StoreError> {
        let held = &self.work.0;
        let known_end = held.record.expiration.map_or(EpochMillis(0), |end| end.millis());
        let request = Request::Owned(Intent {
            write: write.clone(),
            restore_until: known_end.before(held.claims.config.grace),
            restore,
        });
        held.claims.drive(&held.record.id, &request, write).await
    }

    /// The answer where somebody else has the key now.
    fn overtaken(&self, verdict: Verdict, record: &Record) -> Outcome<String> {
        let held = &self.work.0;
        let now = held.claims.now();
        let fingerprint = held.record.fingerprint;
        let outcome = answered(held.key.clone(), verdict, record, fingerprint, now);
        telemetry::outcome(&outcome, self.age());
        outcome
    }

    fn outcome<T>(&self, answer: Answer<T>) -> Outcome<T> {
        let outcome = Outcome {
            key: self.work.0.key.clone(),
            attempt: self.attempt(),
            origin: self.origin().clone(),
            answer,
        };
        telemetry::outcome(&outcome, self.age());
        outcome
    }

    fn attempt_error(&self, code: &str, message: &str) -> AttemptError {
        AttemptError {
            code: code.to_owned(),
            message: bounded(message, MESSAGE_LIMIT),
            attempt: self.attempt(),
        }
    }

    fn age(&self) -> Duration {
        self.work.0.claims.now().since(self.work.0.started)
    }
}

impl<S> Held<S> {
    /// A record that was first claimed under `hold` stays so, and so does a claim made under it.
    fn policy(&self) -> Policy {
        if self.record.policy == Policy::Hold {
            Policy::Hold
        } else {
            self.policy
        }
    }
}

/// How the final write ended.
enum Finished {
    Recorded,
    Overtaken(Outcome<String>),
}

/// The outcome that a record gives to a request that does not own it.
fn answered(
    key: Key,
    verdict: Verdict,
    record: &Record,
    given: Option<Fingerprint>,
    now: EpochMillis,
) -> Outcome<String> {
    let bound_elsewhere = match (record.fingerprint, given) {
        (Some(stored), Some(given)) if stored != given && record.owner.is_some() => {
            Some((stored, given))
        }
        _ => None,
    };
    let answer = match (verdict, bound_elsewhere) {
        (Verdict::Mismatch, Some((stored, given))) => Answer::Mismatch { stored, given },
        (Verdict::Mismatch, None) => Answer::Superseded,
        (Verdict::Final, _) => final_answer(record),
        (Verdict::InProgress, _) => Answer::InProgress {
            activity: record.activity.as_ref().map(|activity| activity.text.clone()),
            retry_after: record.lease.map_or(Duration::from_secs(1), |end| end.since(now)),
        },
        (Verdict::Held, _) => Answer::Held {
            since: record.lease.filter(|lease| lease.0 > 1),
        },
        // The winner's result is the loser's answer, unless it answers another payload.
        (Verdict::Superseded, None) if record.status != Status::InProgress && record.in_window(now) => {
            final_answer(record)
        }
        (Verdict::Superseded, _) => Answer::Superseded,
    };
    Outcome {
        key,
        attempt: record.attempt,
        origin: record.origin.clone(),
        answer,
    }
}

fn final_answer(record: &Record) -> Answer<String> {
    let text = match &record.data {
        Some(Data::Inline(text)) => text.clone(),
        // Another tool stores nothing for an empty result.
        None => "null".to_owned(),
        Some(Data::Omitted(omitted)) => return Answer::ResultOmitted(omitted.clone()),
        Some(Data::Companion(id)) => {
            return Answer::ResultOmitted(Omitted {
                bytes: 0,
                sha256: String::new(),
                reason: format!("kept in the item {id:?}"),
            });
        }
    };
    if record.status == Status::Completed {
        return Answer::Replayed(text);
    }
    let failure = serde_json::from_str(&text).unwrap_or(StoredFailure {
        code: "unreadable".to_owned(),
        message: bounded(&text, MESSAGE_LIMIT),
    });
    Answer::ReplayedFailure(failure)
}

impl Outcome<String> {
    /// Reads the JSON text of a replayed result as a `T`. One that can't be read as that becomes
    /// [`Answer::ResultOmitted`]: the operation was done, and must not run again for it.
    #[must_use]
    pub fn typed<T: DeserializeOwned>(self) -> Outcome<T> {
        let answer = match self.answer {
            Answer::Replayed(text) => match serde_json::from_str(&text) {
                Ok(value) => Answer::Replayed(value),
                Err(error) => {
                    Answer::ResultOmitted(note(&text, &format!("not of the asked type: {error}")))
                }
            },
            Answer::ReplayedFailure(failure) => Answer::ReplayedFailure(failure),
            Answer::InProgress {
                activity,
                retry_after,
            } => Answer::InProgress {
                activity,
                retry_after,
            },
            Answer::Held { since } => Answer::Held { since },
            Answer::Mismatch { stored, given } => Answer::Mismatch { stored, given },
            Answer::ResultOmitted(omitted) => Answer::ResultOmitted(omitted),
            // The record never says these two of a result.
            Answer::Superseded | Answer::Performed(_) | Answer::NotRecorded(_) => {
                Answer::Superseded
            }
        };
        Outcome {
            key: self.key,
            attempt: self.attempt,
            origin: self.origin,
            answer,
        }
    }
}

/// A result as it goes into the record.
fn kept<T: Serialize>(value: &T) -> Data {
    match serde_json::to_string(value) {
        Ok(text) if text.len() <= RESULT_LIMIT => Data::Inline(text),
        Ok(text) => Data::Omitted(note(&text, "larger than 262144 bytes")),
        Err(error) => Data::Omitted(Omitted {
            bytes: 0,
            sha256: String::new(),
            reason: format!("can't be written as JSON: {error}"),
        }),
    }
}

fn omitted(data: &Data, reason: &str) -> Data {
    match data {
        Data::Inline(text) => Data::Omitted(note(text, reason)),
        other => other.clone(),
    }
}

fn note(text: &str, reason: &str) -> Omitted {
    Omitted {
        bytes: text.len() as u64,
        sha256: hex::encode(Sha256::digest(text.as_bytes())),
        reason: bounded(reason, MESSAGE_LIMIT),
    }
}

fn digest<T: Serialize>(value: &T) -> String {
    serde_json::to_vec(value).map_or_else(
        |_| "unserialisable".to_owned(),
        |bytes| hex::encode(Sha256::digest(bytes)),
    )
}

/// Runs a future, and catches a panic of it or of what makes it.
async fn caught<T, Fut: Future<Output = T>>(
    make: impl FnOnce() -> Fut,
) -> Result<T, Box<dyn std::any::Any + Send>> {
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
