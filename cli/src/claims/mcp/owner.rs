//! The tools of an owner: `claim`, and what it may say then.

use std::time::Duration;

use firstclaim::claims::{Claim, Claimed, Ended, Resumed};
use firstclaim::clock::Source;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{
    Answer as Said, ClaimError, Fingerprint, Key, Outcome, Owner, Policy, Record, Status,
    StepError, StoreError, StoredFailure,
};
use serde::Deserialize;
use serde_json::Value;

use super::super::SOURCE;
use super::answer::{Answer, LeaseEnd, Text, Told, Untrusted, Word};
use super::held::{Mine, Stage};
use super::tools::shortest_lease;
use super::{Server, advice, arguments};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimKey {
    key: String,
    fingerprint: Option<String>,
    lease_seconds: Option<u64>,
    activity: Option<String>,
    hold: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateActivity {
    key: String,
    activity: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    key: String,
    name: String,
    value: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Complete {
    key: String,
    result: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    key: String,
    #[serde(default)]
    reason: String,
}

/// A claim as it is asked for.
struct Asked {
    key: Key,
    lease: Duration,
    fingerprint: Option<Fingerprint>,
    activity: Option<String>,
    policy: Policy,
}

impl Server {
    pub(super) async fn claim(&self, given: Value) -> Told {
        let asked = self.asked(arguments(given)?)?;
        let slot = self.held.slot(&asked.key, self.claims.now());
        let mut mine = slot.lock().await;
        // What was ended here is nobody's any more; asked again, the record answers.
        mine.take_if(|mine| mine.stage == Stage::Ended);
        if let Some(known) = mine.as_mut() {
            let other = match (known.fingerprint, asked.fingerprint) {
                (Some(stored), Some(given)) if stored != given => Some((stored, given)),
                _ => None,
            };
            match (known.stage, other) {
                (Stage::Held, Some((stored, given))) => {
                    return Ok(mismatch(&asked.key, stored, given));
                }
                (Stage::Held, None) => {
                    if let Some(answer) = self.again(&asked, known).await {
                        return Ok(answer);
                    }
                    *mine = None;
                }
                // With its token, other parameters would find that call's claim to be their own.
                (Stage::Asked, Some(_)) => *mine = None,
                (Stage::Asked, None) | (Stage::Ended, _) => {}
            }
        }
        self.anew(asked, &mut mine).await
    }

    fn asked(&self, given: ClaimKey) -> Result<Asked, Box<Answer>> {
        let key = self.accepted(&given.key)?;
        let config = self.claims.config();
        let lease = given.lease_seconds.map_or(self.lease, Duration::from_secs);
        let (shortest, longest) = (shortest_lease(config), config.longest_lease);
        if lease < shortest || lease > longest {
            let (shortest, longest) = (shortest.as_secs(), longest.as_secs());
            return Err(Box::new(Answer {
                problem: Some(format!("lease_seconds is from {shortest} to {longest}")),
                ..Answer::about(&key, Word::Refused, advice::ARGUMENTS)
            }));
        }
        Ok(Asked {
            key,
            lease,
            fingerprint: given
                .fingerprint
                .map(|text| Fingerprint::of_bytes(text.as_bytes())),
            activity: given.activity.filter(|text| !text.is_empty()),
            policy: match given.hold {
                Some(true) => Policy::Hold,
                _ => config.policy,
            },
        })
    }

    /// The claim that is held already, with a lease that begins anew. `None` where it is lost.
    async fn again(&self, asked: &Asked, mine: &mut Mine) -> Option<Answer> {
        let unknown = |error| Some(self.unavailable(&asked.key, &error, advice::CLAIM_UNKNOWN));
        let claim = match self.resume(&asked.key, &mine.owner).await {
            Ok(Resumed::Owned(claim)) => claim,
            Ok(Resumed::Foreign(_) | Resumed::Gone) => return None,
            Err(error) => return unknown(error),
        };
        match claim.extend(asked.lease).await {
            Ok(Ended::Recorded) => {}
            Ok(Ended::Superseded) => return None,
            Err(error) => return unknown(error),
        }
        mine.lease = asked.lease;
        mine.until = claim.ends();
        if let Some(activity) = &asked.activity {
            // Visibility only: that it could not be written decides nothing.
            let _ = claim.set_activity(Some(activity)).await;
        }
        Some(Answer {
            held_before: Some(true),
            ..self.claimed(&claim, advice::CLAIMED_ALREADY)
        })
    }

    /// A claim that this process does not hold, as far as it knows.
    async fn anew(&self, asked: Asked, mine: &mut Option<Mine>) -> Told {
        // With the token of a call that stayed unanswered, what that one may have claimed is found.
        let unanswered = mine.take().map(|mine| mine.owner);
        let retried = unanswered.is_some();
        let owner = unanswered.unwrap_or_else(|| SOURCE.token());
        let known = Mine {
            owner: owner.clone(),
            stage: Stage::Asked,
            lease: asked.lease,
            until: self.claims.now().after(asked.lease),
            fingerprint: asked.fingerprint,
        };
        let mut once = self
            .claims
            .once(asked.key.clone())
            .owner(owner.clone())
            .lease(asked.lease)
            .policy(asked.policy);
        if let Some(fingerprint) = asked.fingerprint {
            once = once.fingerprint(fingerprint);
        }
        if let Some(activity) = asked.activity {
            once = once.activity(activity);
        }
        let claiming = self.origin.clone().scope(once.claim());
        match claiming.await {
            Ok(Claimed::Held(claim)) => {
                *mine = Some(Mine {
                    stage: Stage::Held,
                    until: claim.ends(),
                    ..known
                });
                let advice = match claim.attempt() {
                    1 => advice::CLAIMED,
                    _ => advice::CLAIMED_AFTER_OTHERS,
                };
                Ok(self.claimed(&claim, advice))
            }
            Ok(Claimed::Answered(outcome)) => Ok(self.answered(&asked.key, outcome)),
            Err(ClaimError::Store(error)) => {
                // The claim may stand: the next call asks with the same token.
                *mine = Some(known);
                Ok(self.unavailable(&asked.key, &error, advice::CLAIM_UNKNOWN))
            }
            Err(error @ ClaimError::Clock { .. }) => {
                self.said.important(&error.to_string());
                if !retried {
                    self.give_back(&asked.key, &owner).await;
                }
                let answer = Answer::about(&asked.key, Word::Unavailable, advice::CLOCK_IS_OFF);
                Ok(answer)
            }
            Err(error) => {
                self.said.important(&error.to_string());
                let answer = Answer::about(&asked.key, Word::Unavailable, advice::CLAIM_TOO_LATE);
                Ok(answer)
            }
        }
    }

    /// A claim that can't be used because the clock is off: its lease could last for days.
    async fn give_back(&self, key: &Key, owner: &Owner) {
        if let Ok(Resumed::Owned(claim)) = self.resume(key, owner).await {
            let why = StoredFailure {
                code: "clock".to_owned(),
                message: "the clock of the machine that claimed it is off".to_owned(),
            };
            // Unanswered, it lapses.
            let _ = claim.release(why).await;
        }
    }

    pub(super) async fn update_activity(&self, given: Value) -> Told {
        let UpdateActivity { key, activity } = arguments(given)?;
        let key = self.accepted(&key)?;
        let text = Some(activity).filter(|text| !text.is_empty());
        self.extended(&key, advice::ACTIVITY_UNKNOWN, async |claim| {
            match claim.set_activity(text.as_deref()).await {
                Ok(Ended::Recorded) => Ok(Some(advice::ACTIVITY_RECORDED)),
                Ok(Ended::Superseded) => Ok(None),
                Err(error) => Err(self.unavailable(&key, &error, advice::ACTIVITY_UNKNOWN)),
            }
        })
        .await
    }

    pub(super) async fn checkpoint(&self, given: Value) -> Told {
        let Checkpoint { key, name, value } = arguments(given)?;
        let key = self.accepted(&key)?;
        self.extended(&key, advice::CHECKPOINT_UNKNOWN, async |claim| match claim
            .checkpoint(&name, &value)
            .await
        {
            Ok(()) => Ok(Some(advice::CHECKPOINT_RECORDED)),
            Err(StepError::Superseded(_) | StepError::Lost(_)) => Ok(None),
            Err(StepError::Store {
                source: StoreError::TooLarge { .. },
                ..
            }) => Err(too_large(&key)),
            Err(StepError::Store { source, .. }) => {
                Err(self.unavailable(&key, &source, advice::CHECKPOINT_UNKNOWN))
            }
            Err(error) => Err(Answer {
                problem: Some(error.to_string()),
                ..Answer::about(&key, Word::Refused, advice::ARGUMENTS)
            }),
        })
        .await
    }

    pub(super) async fn complete(&self, given: Value) -> Told {
        let Complete { key, result } = arguments(given)?;
        let key = self.accepted(&key)?;
        let slot = self.held.slot(&key, self.claims.now());
        let mut mine = slot.lock().await;
        let claim = self.own(&key, &mut mine, advice::COMPLETE_UNKNOWN).await?;
        let attempt = claim.attempt();
        let outcome = claim.complete(result).await;
        let stage = match &outcome.answer {
            Said::Performed(_) => Stage::Ended,
            Said::NotRecorded(_) => {
                let unknown = Answer::about(&key, Word::Unavailable, advice::COMPLETE_UNKNOWN);
                return Ok(unknown);
            }
            _ => {
                *mine = None;
                return Ok(lost(&key, outcome));
            }
        };
        if let Some(mine) = &mut *mine {
            mine.stage = stage;
        }
        Ok(Answer {
            attempt: Some(attempt),
            ..Answer::about(&key, Word::Completed, advice::COMPLETE_RECORDED)
        })
    }

    pub(super) async fn release(&self, given: Value) -> Told {
        let Release { key, reason } = arguments(given)?;
        let key = self.accepted(&key)?;
        let slot = self.held.slot(&key, self.claims.now());
        let mut mine = slot.lock().await;
        let claim = self.own(&key, &mut mine, advice::RELEASE_UNKNOWN).await?;
        let attempt = claim.attempt();
        let why = StoredFailure {
            code: "released".to_owned(),
            message: reason,
        };
        match claim.release(why).await {
            Ok(Ended::Recorded) => {
                if let Some(mine) = &mut *mine {
                    mine.stage = Stage::Ended;
                }
                Ok(Answer {
                    attempt: Some(attempt),
                    ..Answer::about(&key, Word::Released, advice::RELEASE_RECORDED)
                })
            }
            Ok(Ended::Superseded) => {
                *mine = None;
                Ok(Answer::about(&key, Word::Superseded, advice::SUPERSEDED))
            }
            Err(error) => Ok(self.unavailable(&key, &error, advice::RELEASE_UNKNOWN)),
        }
    }

    /// Extends the claim that is held and does something with it; `None` from that says that it is
    /// lost.
    async fn extended<F>(&self, key: &Key, unknown: &'static str, act: F) -> Told
    where
        F: AsyncFnOnce(&Claim<DynamoDb>) -> Result<Option<&'static str>, Answer>,
    {
        let slot = self.held.slot(key, self.claims.now());
        let mut mine = slot.lock().await;
        if mine.as_ref().is_some_and(|mine| mine.stage == Stage::Ended) {
            return Ok(Answer::about(key, Word::NotYours, advice::NOT_YOURS));
        }
        let claim = self.own(key, &mut mine, unknown).await?;
        let lease = mine.as_ref().map_or(self.lease, |mine| mine.lease);
        let extended = match claim.extend(lease).await {
            Ok(extended) => extended,
            Err(error) => return Ok(self.unavailable(key, &error, unknown)),
        };
        let recorded = match extended {
            Ended::Recorded => act(&claim).await.map_err(Box::new)?,
            Ended::Superseded => None,
        };
        let Some(advice) = recorded else {
            *mine = None;
            return Ok(Answer::about(key, Word::Superseded, advice::SUPERSEDED));
        };
        if let Some(mine) = &mut *mine {
            mine.until = claim.ends();
        }
        Ok(Answer {
            outcome: Word::Recorded,
            downstream_key: None,
            untrusted: None,
            ..self.claimed(&claim, advice)
        })
    }

    /// The claim of this process, picked up by its token, or why there is none.
    async fn own(
        &self,
        key: &Key,
        mine: &mut Option<Mine>,
        unknown: &'static str,
    ) -> Result<Claim<DynamoDb>, Box<Answer>> {
        // One that stayed unanswered is nothing to work under: it is claimed again first.
        let Some(known) = mine.as_ref().filter(|mine| mine.stage != Stage::Asked) else {
            let answer = Answer::about(key, Word::NotYours, advice::NOT_YOURS);
            return Err(Box::new(answer));
        };
        match self.resume(key, &known.owner).await {
            Ok(Resumed::Owned(claim)) => Ok(claim),
            Ok(Resumed::Foreign(record)) => {
                *mine = None;
                Err(Box::new(self.lost_to(key, &record).await))
            }
            Ok(Resumed::Gone) => {
                *mine = None;
                let answer = Answer::about(key, Word::Superseded, advice::SUPERSEDED);
                Err(Box::new(answer))
            }
            Err(error) => Err(Box::new(self.unavailable(key, &error, unknown))),
        }
    }

    async fn resume(&self, key: &Key, owner: &Owner) -> Result<Resumed<DynamoDb>, StoreError> {
        self.claims.resume(key.clone(), owner.clone()).await
    }

    fn claimed(&self, claim: &Claim<DynamoDb>, advice: &'static str) -> Answer {
        let untrusted = Untrusted::default().with_checkpoints(&claim.checkpoints());
        Answer {
            attempt: Some(claim.attempt()),
            lease: Some(LeaseEnd::of(claim.ends(), self.claims.now())),
            downstream_key: Some(claim.downstream_key(queue::target::STEP)),
            untrusted: (!untrusted.checkpoints.is_empty()).then_some(untrusted),
            ..Answer::about(claim.key(), Word::Claimed, advice)
        }
    }

    /// The record's answer to one who did not get the key.
    fn answered(&self, key: &Key, outcome: Outcome<String>) -> Answer {
        let mut untrusted = Untrusted::claimed_by(&outcome.origin);
        let answer = match outcome.answer {
            Said::Replayed(text) | Said::Performed(text) | Said::NotRecorded(text) => {
                untrusted.result = Some(Text::of(&text));
                Answer::about(key, Word::Completed, advice::COMPLETED)
            }
            Said::ResultOmitted(omitted) => {
                untrusted.result_omitted = Some((&omitted).into());
                Answer::about(key, Word::Completed, advice::COMPLETED_WITHOUT_RESULT)
            }
            Said::ReplayedFailure(failure) => {
                untrusted.failure = Some(failure_text(&failure));
                Answer::about(key, Word::Failed, advice::FAILED)
            }
            Said::InProgress {
                activity,
                retry_after,
            } => {
                untrusted.activity = activity;
                let now = self.claims.now();
                Answer {
                    lease: Some(LeaseEnd::of(now.after(retry_after), now)),
                    ..Answer::about(key, Word::InFlight, advice::IN_FLIGHT)
                }
            }
            Said::Held { .. } => Answer::about(key, Word::Held, advice::HELD),
            Said::Mismatch { stored, given } => mismatch(key, stored, given),
            // What is not known yet is no leave to act.
            _ => Answer::about(key, Word::Superseded, advice::SUPERSEDED),
        };
        Answer {
            attempt: Some(outcome.attempt),
            untrusted: Some(untrusted),
            ..answer
        }
    }

    /// The claim is lost to the owner of this record, whose result is the operation's.
    async fn lost_to(&self, key: &Key, record: &Record) -> Answer {
        let mut answer = Answer {
            attempt: Some(record.attempt),
            untrusted: Some(Untrusted::claimed_by(&record.origin)),
            ..Answer::about(key, Word::Superseded, advice::SUPERSEDED)
        };
        if record.status == Status::Completed && record.in_window(self.claims.now()) {
            answer.advice = advice::OTHER_RESULT_STANDS;
            // Unread just now, it is still what stands: wait returns it.
            if self.add_end(&mut answer, record).await.is_err() {
                answer.advice = advice::SUPERSEDED;
            }
        }
        answer
    }
}

/// The result was not recorded, because the record says something else by now.
fn lost(key: &Key, outcome: Outcome<Value>) -> Answer {
    let mut untrusted = Untrusted::claimed_by(&outcome.origin);
    let mut advice = advice::SUPERSEDED;
    match outcome.answer {
        Said::Replayed(value) => {
            untrusted.result = Some(Text::of(&value.to_string()));
            advice = advice::OTHER_RESULT_STANDS;
        }
        Said::ReplayedFailure(failure) => untrusted.failure = Some(failure_text(&failure)),
        _ => {}
    }
    Answer {
        attempt: Some(outcome.attempt),
        untrusted: Some(untrusted),
        ..Answer::about(key, Word::Superseded, advice)
    }
}

fn mismatch(key: &Key, stored: Fingerprint, given: Fingerprint) -> Answer {
    Answer {
        bound_to: Some(stored.to_hex()),
        given: Some(given.to_hex()),
        ..Answer::about(key, Word::Mismatch, advice::MISMATCH)
    }
}

fn too_large(key: &Key) -> Answer {
    Answer {
        problem: Some("the record has no room for this value".to_owned()),
        ..Answer::about(key, Word::Refused, advice::ARGUMENTS)
    }
}

fn failure_text(failure: &StoredFailure) -> Text {
    // Two texts: writing them as JSON can't fail.
    Text::of(&serde_json::to_string(failure).unwrap_or_default())
}
