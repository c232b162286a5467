//! What an operation knows of its claim, and what it may do with it: the entry, activity, keys for
//! downstream services. Its steps have a file of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::attempt::{Attempt, Known};
use super::{Claims, Clock, Ended, Reached};
use crate::clock::{EpochMillis, EpochSeconds};
use crate::error::EntryError;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::bounded;
use crate::protocol::{Intent, Request, Write};
use crate::record::{Activity, Origin, Owner, Policy, RELEASED, Record};
use crate::store::{Store, StoreError};

/// The longest activity, in bytes.
pub(super) const ACTIVITY_LIMIT: usize = 256;

/// How often a checkpoint or a mark is sent when it stays unanswered.
pub(super) const TRIES: u32 = 4;

/// The wait before it is first sent again; doubled each time.
pub(super) const BACKOFF: Duration = Duration::from_millis(50);

/// How long a call of the store is waited for, however little time its claim has left: long enough
/// for one real try, of a completion that comes late or of a claim that is given back.
pub(super) const LAST_TRY: Duration = Duration::from_secs(2);

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
    /// What code may know that has no store.
    pub(super) attempt: Attempt,
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
    /// Told whenever a step has left the steps that are under way.
    pub(super) left: Notify,
}

#[derive(Debug)]
pub(super) struct Live {
    /// Whether the operation may have been entered: not before the record says so, where it does.
    pub(super) entered: bool,
    pub(super) lease: EpochMillis,
    pub(super) expiration: EpochSeconds,
    pub(super) checkpoints: BTreeMap<String, String>,
    /// The steps that ran in this attempt and that the record does not confirm: their value as JSON
    /// text, or none where it can't be kept.
    pub(super) unconfirmed: BTreeMap<String, Option<String>>,
    /// The steps that are under way.
    pub(super) under_way: BTreeSet<String>,
}

impl Live {
    /// What was acquired with `record`; `entered` says whether its operation may be under way.
    pub(super) fn of(record: &Record, entered: bool) -> Self {
        // The lease that was written, not one that is counted from now.
        let lease = record.lease.unwrap_or(RELEASED);
        Self {
            entered,
            lease,
            expiration: record.expiration.unwrap_or(lease.seconds()),
            checkpoints: record.checkpoints.clone(),
            unconfirmed: BTreeMap::new(),
            under_way: BTreeSet::new(),
        }
    }
}

impl<S> Deref for Held<S> {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.attempt.0
    }
}

impl<S> Held<S> {
    /// A record that was first claimed under `hold` stays so, and so does a claim made under it.
    pub(super) fn effective_policy(&self) -> Policy {
        match self.record.policy {
            Policy::Hold => Policy::Hold,
            Policy::Rerun => self.policy,
        }
    }
}

impl<S: Store> Held<S> {
    /// Waits for a call of the store for `left`, and for [`LAST_TRY`] if that is less. What is not
    /// waited for any more may have landed, or land later, as with every call that is not answered.
    pub(super) async fn in_time<T>(
        &self,
        left: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.within(left.max(LAST_TRY), call).await
    }

    /// The same without that least.
    pub(super) async fn within<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.claims.source.sleep(within) => Err(StoreError::Unanswered { within }),
        }
    }

    /// Sends one write of the owner, and waits for its answer [in time](Self::in_time).
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
        let sent = self
            .claims
            .drive(&self.record.id, &request, write, Clock::Trust);
        // Boxed: whatever waits for a write, and whatever waits for that, would hold all of a
        // client's call once for each place that it is sent from.
        self.in_time(self.remaining(), Box::pin(sent)).await
    }
}

impl<S: Store> Work<S> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The same without the store, for code that only has to know about it.
    #[must_use]
    pub fn as_attempt(&self) -> &Attempt {
        &self.0.attempt
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

    /// The policy that the record stands under.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.0.record.policy
    }

    /// The payload that the key is bound to; `None` where it is bound to none.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.0.record.fingerprint
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
        self.0.ends()
    }

    /// The time that is left until [`ends`](Self::ends).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Whether the claim is lost: it has ended (in any way), another owner has it, or its lease is
    /// over by the own clock. Nothing may be done in its name any more, and nothing can be:
    /// [`enter`](Self::enter) and [`step`](Self::step) refuse.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until the claim is over: the signal to stop, also for a task that outlives its
    /// operation. A lease that passes gives it only where it is [renewed](crate::Once::renewed);
    /// others end at [`ends`](Self::ends).
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// The key to hand to a downstream service for `step`, as its `Idempotency-Key`: the same on
    /// every attempt, different for every step. The hex SHA-256 of the JSON array
    /// `[key, generation, step]`.
    #[must_use]
    pub fn downstream_key(&self, step: &str) -> String {
        self.0.downstream_key(step)
    }

    /// Says in the record that the operation is about to do what can't be taken back, for a claim
    /// that [promised to](crate::Once::marks_entry). Once this has succeeded, under `hold` nobody
    /// runs the operation again if the claim is lost. Without the promise, or under `rerun`, it
    /// only looks at the own clock.
    ///
    /// # Errors
    ///
    /// The operation must not go on; nothing of it has happened, so that it ends with
    /// [`Failure::did_not_happen`](crate::Failure::did_not_happen). So it is behind the end of the claim, too.
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
                Err(error) if tries >= TRIES || self.0.is_over() || self.remaining() <= backoff => {
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
}

/// See [`Work::downstream_key`]; for those who have the record and not the claim.
#[must_use]
pub fn downstream_key(key: &Key, generation: u32, step: &str) -> String {
    let text = serde_json::json!([key.as_str(), generation, step]).to_string();
    hex::encode(Sha256::digest(text.as_bytes()))
}
