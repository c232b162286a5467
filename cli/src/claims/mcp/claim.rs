//! `claim`: asking for the right to act, again where the first call's answer did not arrive.

use std::time::Duration;

use firstclaim::claims::{Claim, Claimed, Ended, Resumed};
use firstclaim::clock::Source;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{
    Answer as Said, ClaimError, Fingerprint, Key, Outcome, Owner, Policy, StoredFailure,
};
use serde::Deserialize;
use serde_json::Value;

use super::super::SOURCE;
use super::answer::{Answer, LeaseEnd, Text, Told, Untrusted, Word};
use super::held::{Mine, Stage};
use super::owner::failure_text;
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

/// A claim as it is asked for.
struct Asked {
    key: Key,
    lease: Duration,
    fingerprint: Option<Fingerprint>,
    activity: Option<String>,
    policy: Policy,
    /// Whether this call itself wants the key held.
    hold: bool,
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
            hold: given.hold == Some(true),
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
        if let Some(refused) = stricter(asked, &claim) {
            return Some(refused);
        }
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
    async fn anew(&self, mut asked: Asked, mine: &mut Option<Mine>) -> Told {
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
        if let Some(activity) = asked.activity.take() {
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
                // An unanswered call may have made it, and asked for less.
                if let Some(refused) = stricter(&asked, &claim).filter(|_| retried) {
                    return Ok(refused);
                }
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
}

/// Why the claim that is held is not what is asked for now; `None` where it is.
fn stricter(asked: &Asked, claim: &Claim<DynamoDb>) -> Option<Answer> {
    let problem = match (claim.fingerprint(), asked.fingerprint) {
        (Some(stored), Some(given)) if stored != given => {
            return Some(mismatch(&asked.key, stored, given));
        }
        (None, Some(_)) => {
            "the key is yours already, without a fingerprint, and can't be bound to one any more"
        }
        _ if asked.hold && claim.policy() != Policy::Hold => {
            "the key is yours already, without hold, and can't be put under it any more"
        }
        _ => return None,
    };
    Some(Answer {
        problem: Some(problem.to_owned()),
        ..Answer::about(&asked.key, Word::Refused, advice::HELD_OTHERWISE)
    })
}

fn mismatch(key: &Key, stored: Fingerprint, given: Fingerprint) -> Answer {
    Answer {
        bound_to: Some(stored.to_hex()),
        given: Some(given.to_hex()),
        ..Answer::about(key, Word::Mismatch, advice::MISMATCH)
    }
}
