//! Acquiring: from a request to a claim that is held, or to the record's answer.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::attempt::{Attempt, Known};
use super::claim::Claim;
use super::follow::Followed;
use super::memory::{Entry, Flight, Stage};
use super::once::Until;
use super::work::{ACTIVITY_LIMIT, Held, Live, Work};
use super::{Clock, Once, Reached};
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
    /// The record is the answer. Its result, if that is [`Replayed`](crate::Answer::Replayed), is
    /// JSON text, byte for byte as it is stored: read it with `serde_json`. Nothing is to be done.
    Answered(Outcome<String>),
}

/// What waiting led to.
enum Waited {
    /// The record can be claimed by this write, for this request.
    Write(Request, Write),
    /// The record is the answer.
    Answer(Verdict, Record),
}

/// What asking the store led to.
enum Asked {
    /// The claim stands.
    Holds {
        record: Box<Record>,
        /// Whether the operation may be entered.
        enters: bool,
    },
    /// The record is the answer.
    Answer(Verdict, Box<Record>),
}

/// A request on its way.
pub(super) struct Acquiring<S> {
    pub(super) once: Once<S>,
    pub(super) id: String,
    owner: OnceLock<Owner>,
    invocation: Option<Invocation>,
    inspects: bool,
    started: EpochMillis,
    /// Until when a duplicate may wait for the winner.
    pub(super) patience: EpochMillis,
}

impl<S: Store> Once<S> {
    pub(super) async fn acquire(self, inspects: bool) -> Result<Claimed<S>, ClaimError> {
        let started = self.claims.now();
        let mut acquiring = Acquiring {
            id: self.key.stored(),
            owner: OnceLock::new(),
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
        // A lease of its own does not outlive the invocation that waits for it.
        if let Some(invocation) = &acquiring.invocation {
            acquiring.patience = acquiring.patience.min(invocation.deadline);
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
                Entry::Leads(flight) => return self.lead(Some(flight)).await,
                Entry::Follows(watched) => match self.follow(watched).await {
                    Followed::Answer(verdict, record) => {
                        return self.answered(verdict, &record).await;
                    }
                    Followed::Again => {}
                    Followed::Alone => return self.lead(None).await,
                },
            }
        }
    }

    /// Asks the store. With a flight, for everybody of this process who asks meanwhile.
    async fn lead(self, flight: Option<Flight>) -> Result<Claimed<S>, ClaimError> {
        match self.ask(flight.as_ref()).await {
            Ok(Asked::Holds { record, enters }) => self.held(flight, *record, enters).enter().await,
            Ok(Asked::Answer(verdict, record)) => {
                self.led_to_answer(flight, verdict, *record).await
            }
            Err(error) => {
                if let Some(flight) = &flight {
                    flight.reached(Stage::Unanswered);
                }
                Err(error)
            }
        }
    }

    async fn ask(&self, flight: Option<&Flight>) -> Result<Asked, ClaimError> {
        let claims = &self.once.claims;
        if self.once.redelivered {
            // Possibly older than the last write: only a final record is taken from it. A read that
            // fails says nothing: the claim goes its own way.
            let seen = claims.store.read(&self.id, Read::Eventual).await;
            let seen = seen.unwrap_or(None);
            let request = Request::Acquire(self.terms(claims.now())?);
            if let Decision::Answer(verdict @ (Verdict::Final | Verdict::Mismatch)) =
                claims.decide(seen.as_ref(), &request)
                && let Some(record) = seen.filter(|record| record.status != Status::InProgress)
            {
                return Ok(Asked::Answer(verdict, Box::new(record)));
            }
        }
        let now = claims.now();
        let terms = self.terms(now)?;
        let mut write = terms.claim(now);
        let mut request = Request::Acquire(terms);
        let clock = match self.until() {
            Some(Until::Lease(_)) => Clock::Compare,
            _ => Clock::Trust,
        };
        loop {
            match claims.drive(&self.id, &request, write, clock).await? {
                Reached::Applied {
                    record: Some(record),
                    enters,
                } => return Ok(Asked::Holds { record, enters }),
                Reached::Done(Some(record)) => {
                    let enters = self.may_enter(&record);
                    return Ok(Asked::Holds { record, enters });
                }
                Reached::Answer(Verdict::InProgress, Some(record))
                    if claims.now() < self.patience =>
                {
                    if let Some(flight) = flight {
                        flight.reached(Stage::Busy(Arc::new((*record).clone())));
                    }
                    match self.wait(request, *record).await? {
                        Waited::Write(next_request, next) => {
                            (request, write) = (next_request, next);
                        }
                        Waited::Answer(verdict, record) => {
                            return Ok(Asked::Answer(verdict, Box::new(record)));
                        }
                    }
                }
                Reached::Answer(verdict, Some(record)) => {
                    return Ok(Asked::Answer(verdict, record));
                }
                Reached::TooLate => return Err(self.too_late()),
                Reached::ClockIsOff(off_by_ms) => return Err(self.give_back(off_by_ms).await),
                // A store that does not bring the record of a takeover can't be acted on.
                Reached::Applied { record: None, .. }
                | Reached::Done(None)
                | Reached::Answer(_, None) => {
                    return Err(StoreError::Contended {
                        id: self.id.clone(),
                        rounds: super::ROUNDS,
                    }
                    .into());
                }
            }
        }
    }

    fn too_late(&self) -> ClaimError {
        ClaimError::NoTime {
            remaining: Duration::ZERO,
            floor: self.once.claims.config.min_remaining,
        }
    }

    /// The clock is off, and the claim that was sent may stand: it is given back, whether or not
    /// that is answered (then its lease lapses). A claim that was re-entered may have been worked
    /// under: that one is left to lapse.
    async fn give_back(&self, off_by_ms: i64) -> ClaimError {
        let release = Write::Release {
            owner: self.owner().clone(),
            error: None,
        };
        let claims = &self.once.claims;
        if self.once.owner.is_none() {
            let _ = claims.store.write(&self.id, &release).await;
        }
        ClaimError::Clock {
            off_by_ms,
            grace: claims.config.grace,
        }
    }

    /// Whether a claim whose reply was lost may enter. If it was a takeover, the record does not
    /// tell any more whether it took over a held one; then the careful reading holds.
    fn may_enter(&self, record: &Record) -> bool {
        let limit = self.once.claims.config.silent_limit;
        let maybe_held = record.policy == Policy::Hold || record.silent_attempts() > limit;
        !(self.inspects && record.attempt > 1 && maybe_held)
    }

    /// Looks again until the record has an answer, can be claimed, or the patience is over.
    async fn wait(&self, request: Request, seen: Record) -> Result<Waited, ClaimError> {
        let claims = &self.once.claims;
        let mut look = FIRST_LOOK;
        let mut seen = seen;
        for round in 0_u32.. {
            let now = claims.now();
            if now >= self.patience {
                break;
            }
            // Woken at the end of the lease too: a crashed winner's key is free from then on.
            let lapse = seen.lease.map_or(LAST_LOOK, |end| end.since(now));
            let pause = jittered(look, self.owner(), round)
                .min(lapse.max(Duration::from_millis(1)))
                .min(self.patience.since(now));
            claims.source.sleep(pause).await;
            look = (look * 2).min(LAST_LOOK);
            let record = claims.store.read(&self.id, Read::Consistent).await?;
            // The answers don't depend on the lease that is asked for, so that a waiter with too
            // little time left to run still gets them.
            match (claims.decide(record.as_ref(), &request), record) {
                (Decision::Answer(Verdict::InProgress), Some(record)) => seen = record,
                (Decision::Answer(verdict), Some(record)) => {
                    return Ok(Waited::Answer(verdict, record));
                }
                // To be claimed, with a lease that is counted from now.
                (_, record) => {
                    let now = claims.now();
                    let terms = self.terms(now)?;
                    let claim = terms.claim(now);
                    let request = Request::Acquire(terms);
                    let write = match claims.decide(record.as_ref(), &request) {
                        Decision::Send(write) => *write,
                        Decision::Done | Decision::Answer(_) => claim,
                        Decision::TooLate => return Err(self.too_late()),
                    };
                    return Ok(Waited::Write(request, write));
                }
            }
        }
        Ok(Waited::Answer(Verdict::InProgress, seen))
    }

    async fn led_to_answer(
        &self,
        flight: Option<Flight>,
        verdict: Verdict,
        record: Record,
    ) -> Result<Claimed<S>, ClaimError> {
        let record = Arc::new(record);
        if let Some(flight) = flight {
            flight.reached(Stage::Answered(verdict, Arc::clone(&record)));
        }
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

    fn held(self, flight: Option<Flight>, record: Record, enters: bool) -> Claim<S> {
        if let Some(flight) = &flight {
            flight.reached(Stage::Busy(Arc::new(record.clone())));
        }
        let renewal = match (self.until(), self.once.renewed) {
            (Some(Until::Lease(length)), Some(total)) => Some((length, total)),
            _ => None,
        };
        let owner = self.owner().clone();
        // Of a record that says nothing, the work may be under way already.
        let live = Live::of(&record, !(self.once.marks && record.untouched()));
        let claims = self.once.claims;
        let attempt = Attempt(Arc::new(Known {
            key: self.once.key,
            record,
            grace: claims.config.grace,
            source: Arc::clone(&claims.source),
            live: Mutex::new(live),
            lost: watch::Sender::new(false),
        }));
        let work = Work(Arc::new(Held {
            claims,
            attempt,
            owner,
            window: self.once.window,
            policy: self.once.policy,
            enters,
            resumed: self.once.owner.is_some(),
            started: self.started,
            renewal,
            left: Notify::new(),
        }));
        Claim::new(work, flight)
    }

    /// One token for this call and all its retries: a token minted anew would make the caller a
    /// stranger to its own claim. A request that the process's memory answers needs none.
    fn owner(&self) -> &Owner {
        self.owner.get_or_init(|| match &self.once.owner {
            Some(owner) => owner.clone(),
            None => self.once.claims.source.token(),
        })
    }

    fn until(&self) -> Option<Until> {
        let invocation = self.invocation.as_ref();
        self.once
            .until
            .or_else(|| invocation.map(|invocation| Until::Deadline(invocation.deadline)))
    }

    pub(super) fn terms(&self, now: EpochMillis) -> Result<Terms, ClaimError> {
        let origin = self.invocation.clone().map(Invocation::into_origin);
        let lease = self.lease_end(now)?;
        Ok(Terms {
            id: self.id.clone(),
            owner: self.owner().clone(),
            lease,
            ends: lease.before(self.once.claims.config.grace),
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
            marks: self.once.marks,
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
fn jittered(pause: Duration, owner: &Owner, round: u32) -> Duration {
    let token = owner.expose().bytes().map(u32::from);
    let spread = token.fold(round, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 256;
    pause / 2 + pause * spread / 512
}
