//! What an operation knows of its claim, and what it may do with it: steps, activity, keys for
//! downstream services.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::{Claims, Clock, Ended, Reached};
use crate::clock::{EpochMillis, EpochSeconds};
use crate::error::{EntryError, StepError};
use crate::key::Key;
use crate::outcome::{Failure, bounded};
use crate::protocol::{Intent, Request, Write};
use crate::record::{Activity, Origin, Owner, Policy, Record};
use crate::store::{Store, StoreError};

/// The longest name of a step, in bytes.
const NAME_LIMIT: usize = 64;

/// The longest value of a step, in bytes of JSON text. Checkpoints live in the record, which every
/// refused write is billed by.
const STEP_LIMIT: usize = 16 * 1024;

/// The longest activity, in bytes.
pub(super) const ACTIVITY_LIMIT: usize = 256;

/// The longest values of all steps together, in bytes: the rest of DynamoDB's 400 KB is for the
/// record itself and for its result.
const STEPS_LIMIT: usize = 256 * 1024;

/// How often a checkpoint is sent again when it stays unanswered.
const TRIES: u32 = 4;

/// The wait before it is first sent again; doubled each time.
pub(super) const BACKOFF: Duration = Duration::from_millis(50);

/// What an operation knows of its claim. Cheap to clone; it can't end the claim.
#[derive(Debug)]
pub struct Work<S>(pub(super) Arc<Held<S>>);

impl<S> Clone for Work<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A claim that is held: what was acquired, and what has changed since.
#[derive(Debug)]
pub(super) struct Held<S> {
    pub(super) claims: Claims<S>,
    pub(super) key: Key,
    /// The record as it was acquired.
    pub(super) record: Record,
    pub(super) owner: Owner,
    pub(super) window: Duration,
    pub(super) policy: Policy,
    /// Whether the operation may be entered; if not, the record was held and is only inspected.
    pub(super) enters: bool,
    /// Whether the claim was made by an earlier call with the same token, which may have entered.
    pub(super) resumed: bool,
    pub(super) started: EpochMillis,
    /// The length of the lease and for how long in all it is renewed.
    pub(super) renewal: Option<(Duration, Duration)>,
    pub(super) live: Mutex<Live>,
    pub(super) lost: watch::Sender<bool>,
}

#[derive(Debug)]
pub(super) struct Live {
    /// Whether the operation may have been entered: not before the record says so, where it does.
    pub(super) entered: bool,
    pub(super) lease: EpochMillis,
    pub(super) expiration: EpochSeconds,
    pub(super) checkpoints: BTreeMap<String, String>,
}

impl<S> Held<S> {
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        // A panicking operation must still be able to give its claim back.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claim is lost, or its end has begun: whatever still has its [`Work`] is told, and begins
    /// nothing more in its name.
    pub(super) fn over(&self) {
        self.lost.send_replace(true);
    }

    /// Whether it is known to be over. A lease that has only passed by the own clock is not: a write
    /// in its name may still stand.
    fn is_over(&self) -> bool {
        *self.lost.borrow()
    }

    /// A record that was first claimed under `hold` stays so, and so does a claim made under it.
    pub(super) fn effective_policy(&self) -> Policy {
        match self.record.policy {
            Policy::Hold => Policy::Hold,
            Policy::Rerun => self.policy,
        }
    }
}

impl<S: Store> Held<S> {
    /// Sends one write of the owner.
    pub(super) async fn send(
        &self,
        write: Write,
        restore: Option<Arc<Record>>,
    ) -> Result<Reached, StoreError> {
        let known_end = self.live().expiration.millis();
        let request = Request::Owned(Intent {
            write: write.clone(),
            restore_until: known_end.before(self.claims.config.grace),
            restore,
        });
        self.claims
            .drive(&self.record.id, &request, write, Clock::Trust)
            .await
    }
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

    /// The owner token: the right to write. For a caller that hands the claim to another process.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// The instant by which the operation must have ended: the lease less the grace. Moves when the
    /// lease is renewed.
    #[must_use]
    pub fn ends(&self) -> EpochMillis {
        self.0.live().lease.before(self.0.claims.config.grace)
    }

    /// The time that is left until [`ends`](Self::ends).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.ends().since(self.0.claims.now())
    }

    /// Whether the claim is lost: it has ended (in any way), another owner has it, or its lease is
    /// over by the own clock. Nothing may be done in its name any more, and nothing can be:
    /// [`enter`](Self::enter) and [`step`](Self::step) refuse.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_over() || self.0.claims.now() >= self.ends()
    }

    /// Waits until the claim is over: the signal to stop, also for a task that outlives its
    /// operation. A lease that passes gives it only where it is [renewed](crate::Once::renewed);
    /// others end at [`ends`](Self::ends).
    pub async fn lost(&self) {
        // The sender lives in `self`: the wait can't end by its going.
        let _ = self.0.lost.subscribe().wait_for(|lost| *lost).await;
    }

    /// The key to hand to a downstream service for `step`, as its `Idempotency-Key`: the same on
    /// every attempt, different for every step. The hex SHA-256 of the JSON array
    /// `[key, generation, step]`.
    #[must_use]
    pub fn downstream_key(&self, step: &str) -> String {
        downstream_key(&self.0.key, self.0.record.generation, step)
    }

    /// Says in the record that the operation is about to do what can't be taken back, for a claim
    /// that [promised to](crate::Once::marks_entry). Once this has succeeded, under `hold` nobody
    /// runs the operation again if the claim is lost. Without the promise, or under `rerun`, it
    /// only looks at the own clock.
    ///
    /// # Errors
    ///
    /// The operation must not go on; nothing of it has happened, so that it ends with
    /// [`Failure::did_not_happen`]. So it is behind the end of the claim, too.
    pub async fn enter(&self) -> Result<(), EntryError> {
        if self.is_lost() {
            return Err(EntryError::Lost);
        }
        if self.0.live().entered {
            return Ok(());
        }
        let mut backoff = BACKOFF;
        for tries in 1.. {
            let owner = self.0.owner.clone();
            match self.0.send(Write::Enter { owner }, None).await {
                Ok(Reached::Answer(..)) => {
                    self.0.over();
                    return Err(EntryError::Superseded);
                }
                Ok(_) => break,
                Err(error) if tries >= TRIES || self.remaining() <= backoff => {
                    return Err(EntryError::Store(error));
                }
                // The same words again: a copy that lands twice changes nothing.
                Err(_) => self.0.claims.source.sleep(backoff).await,
            }
            backoff *= 2;
        }
        // The answer took its time: the clock is looked at again before the work.
        if self.is_lost() {
            return Err(EntryError::Lost);
        }
        self.0.live().entered = true;
        Ok(())
    }

    /// Runs `operation` once per key, across attempts: its value is recorded under `name`, and a
    /// later attempt gets the recorded value without running it.
    ///
    /// A crash between the end of `operation` and its record makes the next attempt run it again:
    /// give the downstream service [`downstream_key`](Self::downstream_key).
    ///
    /// # Errors
    ///
    /// The operation's own failure; or a [`StepError`]: the claim was lost, or the value could not
    /// be kept. A value that can never be kept (too large, no JSON) is a permanent failure, so that
    /// the step does not run again for it.
    pub async fn step<T, E, F, Fut>(&self, name: &str, operation: F) -> Result<T, Failure<E>>
    where
        T: Serialize + DeserializeOwned,
        E: From<StepError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let name = named(name).map_err(|error| Failure::permanent("step_name", error.into()))?;
        let stored = self.0.live().checkpoints.get(&name).cloned();
        if let Some(text) = stored {
            return serde_json::from_str(&text).map_err(|source| {
                Failure::unknown(
                    "step_unreadable",
                    StepError::Unreadable { name, source }.into(),
                )
            });
        }
        if self.is_lost() {
            return Err(Failure::unknown("lease_lost", StepError::Lost(name).into()));
        }
        let value = operation().await?;
        let text = self
            .checked(&name, &value)
            .map_err(|error| Failure::permanent("step_value", error.into()))?;
        self.record_step(name, text)
            .await
            .map_err(|error| match error {
                StepError::Store {
                    source: StoreError::TooLarge { .. },
                    ..
                } => Failure::permanent("step_value", error.into()),
                _ => Failure::unknown("step_not_recorded", error.into()),
            })?;
        Ok(value)
    }

    /// Records an intermediate result that was made elsewhere, as JSON text. It replaces what is
    /// recorded under the name.
    ///
    /// # Errors
    ///
    /// See [`StepError`].
    pub async fn checkpoint<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StepError> {
        let name = named(name)?;
        if self.0.is_over() {
            return Err(StepError::Lost(name));
        }
        let text = self.checked(&name, value)?;
        self.record_step(name, text).await
    }

    /// The checkpoints that are known, by name, as JSON text.
    #[must_use]
    pub fn checkpoints(&self) -> BTreeMap<String, String> {
        self.0.live().checkpoints.clone()
    }

    /// Says what the owner is doing now, for people to see. Best effort: whether it could be
    /// written must never stop or decide anything of the operation. Behind the end of the claim it
    /// is [`Ended::Superseded`], without a call.
    ///
    /// # Errors
    ///
    /// The store could not answer.
    pub async fn set_activity(&self, text: Option<&str>) -> Result<Ended, StoreError> {
        if self.0.is_over() {
            return Ok(Ended::Superseded);
        }
        let write = Write::Activity {
            owner: self.0.owner.clone(),
            activity: text.map(|text| Activity {
                text: bounded(text, ACTIVITY_LIMIT),
                at: self.0.claims.now(),
            }),
        };
        Ok(match self.0.send(write, None).await? {
            Reached::Answer(..) => Ended::Superseded,
            _ => Ended::Recorded,
        })
    }

    /// A value as JSON text that the record has room for.
    fn checked<T: Serialize>(&self, name: &str, value: &T) -> Result<String, StepError> {
        let text = serde_json::to_string(value).map_err(|source| StepError::Unserialisable {
            name: name.to_owned(),
            source,
        })?;
        let others: usize = self.0.live().checkpoints.values().map(String::len).sum();
        let limit = STEP_LIMIT.min(STEPS_LIMIT.saturating_sub(others));
        if text.len() > limit {
            return Err(StepError::TooLarge {
                name: name.to_owned(),
                bytes: text.len(),
                limit,
            });
        }
        Ok(text)
    }

    /// Sends a checkpoint, and the same again while it stays unanswered and time is left.
    async fn record_step(&self, name: String, text: String) -> Result<(), StepError> {
        let mut backoff = BACKOFF;
        for tries in 1.. {
            let write = Write::Checkpoint {
                owner: self.0.owner.clone(),
                name: name.clone(),
                text: text.clone(),
            };
            match self.0.send(write, None).await {
                Ok(Reached::Answer(..)) => {
                    self.0.over();
                    return Err(StepError::Superseded(name));
                }
                Ok(_) => break,
                Err(source @ StoreError::TooLarge { .. }) => {
                    return Err(StepError::Store { name, source });
                }
                Err(source) if tries >= TRIES || self.remaining() <= backoff => {
                    return Err(StepError::Store { name, source });
                }
                // The same text under the same name: a copy that lands twice changes nothing.
                Err(_) => self.0.claims.source.sleep(backoff).await,
            }
            backoff *= 2;
        }
        self.0.live().checkpoints.insert(name, text);
        Ok(())
    }
}

fn named(name: &str) -> Result<String, StepError> {
    if name.is_empty() || name.len() > NAME_LIMIT || name.chars().any(char::is_control) {
        return Err(StepError::Name(bounded(name, NAME_LIMIT)));
    }
    Ok(name.to_owned())
}

/// See [`Work::downstream_key`]; for those who have the record and not the claim.
#[must_use]
pub fn downstream_key(key: &Key, generation: u32, step: &str) -> String {
    let text = serde_json::json!([key.as_str(), generation, step]).to_string();
    hex::encode(Sha256::digest(text.as_bytes()))
}
