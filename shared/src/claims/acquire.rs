//! Acquiring: from a request to a claim that is held, or to the record's answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::answer::{differs, in_progress};
use super::claim::Claim;
use super::memory::{Entry, Flight, Stage};
use super::work::{ACTIVITY_LIMIT, Held, Live, Work};
use super::{Once, Reached, Until};
use crate::clock::EpochMillis;
use crate::error::ClaimError;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, bounded};
use crate::protocol::{Decision, Request, Terms, Verdict, Write};
use crate::record::{Activity, Origin, Owner, Policy, Record, Status};
use crate::store::{Read, Store, StoreError};
use crate::telemetry;

/// The first wait before a record is read again; doubled each time, with jitter.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// The longest wait before a record is read again.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What a request to claim led to.
#[derive(Debug)]
pub enum Claimed<S> {
    /// The claim is ours: do the work, then end it.
    Held(Claim<S>),
    /// The record is the answer; its result is JSON text. Nothing is to be done.
    Answered(Outcome<String>),
}

/// A request on its way.
struct Acquiring<S> {
    once: Once<S>,
    id: String,
    owner: Owner,
    invocation: Option<Invocation>,
    inspects: bool,
    started: EpochMillis,
    /// Until when a duplicate may wait for the winner.
    patience: EpochMillis,
}

impl<S: Store> Once<S> {
    pub(super) async fn acquire(self, inspects: bool) -> Result<Claimed<S>, ClaimError> {
        let started = self.claims.now();
        let mut acquiring = Acquiring {
            id: self.key.stored(),
            // One token for this call and all its retries: a token minted anew would make the
            // caller a stranger to its own claim.
            owner: self.claims.source.token(),
            invocation: Invocation::current(),
            inspects,
            started,
            patience: started.after(self.wait),
            once: self,
        };
        let lease = acquiring.lease_end(started)?;
        let ends = lease.before(acquiring.once.claims.config.grace);
        if let Some(Until::Deadline(_)) = acquiring.until() {
            acquiring.patience = acquiring.patience.min(ends);
        }
        acquiring.go().await
    }
}

impl<S: Store> Acquiring<S> {
    async fn go(self) -> Result<Claimed<S>, ClaimError> {
        loop {
            if let Some(record) = self.recalled() {
                return self.answered(Verdict::Final, &record).await;
            }
            match self.once.claims.memory.enter(&self.id) {
                Entry::Leads(flight) => return self.lead(flight).await,
                Entry::Follows(watched) => {
                    if let Some(claimed) = self.follow(watched).await? {
                        return Ok(claimed);
                    }
                }
            }
        }
    }

    /// A final record from the process's memory that answers this request.
    fn recalled(&self) -> Option<Arc<Record>> {
        let claims = &self.once.claims;
        let record = claims.memory.recall(&self.id, claims.now())?;
        // A mismatch is told from the store, so that a settle elsewhere shows at once.
        differs(&record, self.once.fingerprint)
            .is_none()
            .then_some(record)
    }

    /// Somebody of this process is at the key. `None`: it is over without an answer, try again.
    async fn follow(
        &self,
        mut watched: watch::Receiver<Stage>,
    ) -> Result<Option<Claimed<S>>, ClaimError> {
        let claims = &self.once.claims;
        loop {
            let stage = watched.borrow_and_update().clone();
            match stage {
                Stage::Claiming => {}
                Stage::Holding(record) => {
                    if differs(&record, self.once.fingerprint).is_some() {
                        return self.answered(Verdict::Mismatch, &record).await.map(Some);
                    }
                    let now = claims.now();
                    if now >= self.patience {
                        return Ok(Some(Claimed::Answered(self.told_in_progress(&record, now))));
                    }
                    let left = self.patience.since(now);
                    tokio::select! {
                        changed = watched.changed() => if changed.is_err() { return Ok(None) },
                        () = claims.source.sleep(left) => {}
                    }
                    continue;
                }
                Stage::Answered(verdict, record) => {
                    let verdict = match differs(&record, self.once.fingerprint) {
                        Some(_) => Verdict::Mismatch,
                        // The leader's payload differed, ours does not: ask for ourselves.
                        None if verdict == Verdict::Mismatch => return Ok(None),
                        None => verdict,
                    };
                    return self.answered(verdict, &record).await.map(Some);
                }
                Stage::Over(Some(record)) => {
                    if differs(&record, self.once.fingerprint).is_some() {
                        return self.answered(Verdict::Mismatch, &record).await.map(Some);
                    }
                    return self.answered(Verdict::Final, &record).await.map(Some);
                }
                Stage::Over(None) => return Ok(None),
            }
            if watched.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn lead(self, flight: Flight) -> Result<Claimed<S>, ClaimError> {
        let claims = self.once.claims.clone();
        let mut first = None;
        if self.once.redelivered {
            // Possibly older than the last write: only a final record is taken from it.
            let seen = claims.store.read(&self.id, Read::Eventual).await?;
            let request = Request::Acquire(self.terms(claims.now())?);
            if let Decision::Answer(verdict @ (Verdict::Final | Verdict::Mismatch)) =
                claims.decide(seen.as_ref(), &request)
                && let Some(record) = seen.filter(|record| record.status != Status::InProgress)
            {
                return self.led_to_answer(&flight, verdict, record).await;
            }
        }
        let mut look = FIRST_LOOK;
        loop {
            let now = claims.now();
            let terms = self.terms(now)?;
            let lease = terms.lease;
            let write = first.take().unwrap_or_else(|| terms.claim(now));
            let request = Request::Acquire(terms);
            let (record, enters) = match claims.drive(&self.id, &request, write).await? {
                Reached::Applied {
                    record: Some(record),
                    enters,
                } => (record, enters),
                // The reply to a takeover was lost: whether it may enter can't be told any more
                // from the record alone, so that the careful reading holds.
                Reached::Done(Some(record)) => {
                    let enters =
                        !(self.inspects && record.attempt > 1 && record.policy == Policy::Hold);
                    (record, enters)
                }
                Reached::Answer(Verdict::InProgress, Some(record)) if self.may_wait(&mut look) => {
                    match self.wait(&record, &mut look).await? {
                        Some(next) => first = Some(next),
                        None => {
                            return self
                                .led_to_answer(&flight, Verdict::InProgress, *record)
                                .await;
                        }
                    }
                    continue;
                }
                Reached::Answer(verdict, Some(record)) => {
                    return self.led_to_answer(&flight, verdict, *record).await;
                }
                // A store that does not bring the record of a takeover can't be acted on.
                Reached::Applied { record: None, .. }
                | Reached::Done(None)
                | Reached::Answer(_, None) => {
                    return Err(StoreError::Contended {
                        id: self.id,
                        rounds: super::ROUNDS,
                    }
                    .into());
                }
            };
            return self.held(flight, *record, lease, enters).enter().await;
        }
    }

    fn may_wait(&self, look: &mut Duration) -> bool {
        let now = self.once.claims.now();
        *look = (*look).min(self.patience.since(now));
        now < self.patience
    }

    /// Looks again until the record has an answer or can be claimed. `None`: the patience is over.
    async fn wait(&self, seen: &Record, look: &mut Duration) -> Result<Option<Write>, ClaimError> {
        let claims = &self.once.claims;
        let mut round = 0_u8;
        let mut lapse = seen.lease;
        loop {
            let now = claims.now();
            if now >= self.patience {
                return Ok(None);
            }
            // Woken at the end of the lease too: a crashed winner's key is free from then on.
            let until_lapse = lapse.map_or(LAST_LOOK, |end| end.since(now));
            let pause = jittered(*look, &self.owner, round)
                .min(until_lapse.max(Duration::from_millis(1)))
                .min(self.patience.since(now));
            claims.source.sleep(pause).await;
            round = round.wrapping_add(1);
            *look = (*look * 2).min(LAST_LOOK);
            let record = claims.store.read(&self.id, Read::Consistent).await?;
            lapse = record.as_ref().and_then(|record| record.lease);
            let now = claims.now();
            let request = Request::Acquire(self.terms(now)?);
            match claims.decide(record.as_ref(), &request) {
                Decision::Answer(Verdict::InProgress) => {}
                Decision::Send(write) => return Ok(Some(*write)),
                // The next claim is refused with just this answer.
                Decision::Answer(_) | Decision::Done => {
                    return Ok(Some(self.terms(now)?.claim(now)));
                }
            }
        }
    }

    async fn led_to_answer(
        &self,
        flight: &Flight,
        verdict: Verdict,
        record: Record,
    ) -> Result<Claimed<S>, ClaimError> {
        let record = Arc::new(record);
        flight.reached(Stage::Answered(verdict, Arc::clone(&record)));
        let claims = &self.once.claims;
        if verdict == Verdict::Final {
            claims.memory.keep(Arc::clone(&record), claims.now());
        }
        self.answered(verdict, &record).await
    }

    async fn answered(&self, verdict: Verdict, record: &Record) -> Result<Claimed<S>, ClaimError> {
        let claims = &self.once.claims;
        let key = self.once.key.clone();
        let fingerprint = self.once.fingerprint;
        let outcome = claims.answer(key, verdict, record, fingerprint).await?;
        telemetry::outcome(&outcome, claims.now().since(self.started));
        Ok(Claimed::Answered(outcome))
    }

    fn told_in_progress(&self, record: &Record, now: EpochMillis) -> Outcome<String> {
        let outcome: Outcome<String> = Outcome {
            key: self.once.key.clone(),
            attempt: record.attempt,
            origin: record.origin.clone(),
            answer: in_progress(record, now),
        };
        telemetry::outcome(&outcome, now.since(self.started));
        outcome
    }

    fn held(self, flight: Flight, record: Record, lease: EpochMillis, enters: bool) -> Claim<S> {
        flight.reached(Stage::Holding(Arc::new(record.clone())));
        let renewal = match (self.until(), self.once.renewed) {
            (Some(Until::Lease(length)), Some(total)) => Some((length, total)),
            _ => None,
        };
        let live = Live {
            lease,
            expiration: record.expiration.unwrap_or(lease.seconds()),
            checkpoints: record.checkpoints.clone(),
        };
        let work = Work(Arc::new(Held {
            claims: self.once.claims,
            key: self.once.key,
            record,
            owner: self.owner,
            window: self.once.window,
            policy: self.once.policy,
            enters,
            started: self.started,
            renewal,
            live: Mutex::new(live),
            lost: watch::Sender::new(false),
        }));
        Claim::new(work, flight)
    }

    fn until(&self) -> Option<Until> {
        let invocation = self.invocation.as_ref();
        self.once
            .until
            .or_else(|| invocation.map(|invocation| Until::Deadline(invocation.deadline)))
    }

    fn terms(&self, now: EpochMillis) -> Result<Terms, ClaimError> {
        let origin = self.invocation.clone().map(Invocation::into_origin);
        Ok(Terms {
            id: self.id.clone(),
            owner: self.owner.clone(),
            lease: self.lease_end(now)?,
            window: self.once.window,
            policy: self.once.policy,
            fingerprint: self.once.fingerprint,
            activity: self.once.activity.as_ref().map(|text| Activity {
                text: bounded(text, ACTIVITY_LIMIT),
                at: now,
            }),
            origin: Origin {
                event: self.once.event.clone(),
                ..origin.unwrap_or_default()
            },
            silent_limit: self.once.claims.config.silent_limit,
            inspects: self.inspects,
        })
    }

    /// The end of the lease of a claim that is sent at `now`, checked against the configuration.
    fn lease_end(&self, now: EpochMillis) -> Result<EpochMillis, ClaimError> {
        let config = &self.once.claims.config;
        let until = self.until().ok_or(ClaimError::NoLease)?;
        let lease = match until {
            Until::Lease(asked) if asked <= config.grace => {
                return Err(ClaimError::ShortLease {
                    asked,
                    grace: config.grace,
                });
            }
            Until::Lease(asked) => now.after(asked),
            Until::Deadline(deadline) => deadline.after(config.grace),
        };
        let asked = lease.since(now);
        if asked > config.longest_lease {
            return Err(ClaimError::LongLease {
                asked,
                longest: config.longest_lease,
            });
        }
        if self.once.window <= config.longest_lease {
            return Err(ClaimError::ShortWindow {
                asked: self.once.window,
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

/// Between half of `pause` and all of it, by the token and the round: waiters spread out, and a
/// replayed schedule waits the same.
fn jittered(pause: Duration, owner: &Owner, round: u8) -> Duration {
    let spread = owner
        .expose()
        .bytes()
        .fold(round, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    pause / 2 + pause.mul_f32(f32::from(spread) / 512.0)
}
