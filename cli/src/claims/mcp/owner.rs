//! What an owner may say: that it is at it, what it has made, how it ended.

use firstclaim::claims::{Claim, Ended, Resumed};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{
    Answer as Said, Key, Outcome, Owner, Record, Status, StepError, StoreError, StoredFailure,
};
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, LeaseEnd, Text, Told, Untrusted, Word};
use super::held::{Mine, Stage};
use super::{Server, advice, arguments};

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

impl Server {
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

    pub(super) async fn resume(
        &self,
        key: &Key,
        owner: &Owner,
    ) -> Result<Resumed<DynamoDb>, StoreError> {
        self.claims.resume(key.clone(), owner.clone()).await
    }

    pub(super) fn claimed(&self, claim: &Claim<DynamoDb>, advice: &'static str) -> Answer {
        let untrusted = Untrusted::default().with_checkpoints(&claim.checkpoints());
        Answer {
            attempt: Some(claim.attempt()),
            lease: Some(LeaseEnd::of(claim.ends(), self.claims.now())),
            downstream_key: Some(claim.downstream_key(queue::target::STEP)),
            untrusted: (!untrusted.checkpoints.is_empty()).then_some(untrusted),
            ..Answer::about(claim.key(), Word::Claimed, advice)
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

fn too_large(key: &Key) -> Answer {
    Answer {
        problem: Some("the record has no room for this value".to_owned()),
        ..Answer::about(key, Word::Refused, advice::ARGUMENTS)
    }
}

pub(super) fn failure_text(failure: &StoredFailure) -> Text {
    // Two texts: writing them as JSON can't fail.
    Text::of(&serde_json::to_string(failure).unwrap_or_default())
}
