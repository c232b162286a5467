//! Resuming: a claim that another process made, picked up by its owner token.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::attempt::{Attempt, Known};
use super::claim::{Claim, Ended};
use super::work::{Held, Live, Work};
use super::{Claims, Reached};
use crate::key::Key;
use crate::protocol::{Write, window_end};
use crate::record::{Owner, Record};
use crate::store::{Read, Store, StoreError};

/// What a key and an owner token led to.
#[derive(Debug)]
pub enum Resumed<S> {
    /// The record is the token's own. It may have ended or lapsed meanwhile: each write of the
    /// claim says whether it still stands.
    Owned(Claim<S>),
    /// Somebody else has the key.
    Foreign(Box<Record>),
    /// There is no record.
    Gone,
}

impl<S: Store> Claims<S> {
    /// Picks up the claim of `key` whose owner token was handed over. Nothing is written, and
    /// nothing is claimed: a token that is not the record's gets nothing.
    ///
    /// # Errors
    ///
    /// The store could not answer, which says nothing about the claim.
    pub async fn resume(&self, key: Key, owner: Owner) -> Result<Resumed<S>, StoreError> {
        let Some(record) = self.store.read(&key.stored(), Read::Consistent).await? else {
            return Ok(Resumed::Gone);
        };
        if record.owner.as_ref() != Some(&owner) {
            return Ok(Resumed::Foreign(Box::new(record)));
        }
        let live = Live::of(&record, !record.untouched());
        let policy = record.policy;
        let attempt = Attempt(Arc::new(Known {
            key,
            record,
            grace: self.config.grace,
            source: Arc::clone(&self.source),
            live: Mutex::new(live),
            lost: watch::Sender::new(false),
        }));
        let work = Work(Arc::new(Held {
            claims: self.clone(),
            attempt,
            window: self.config.window,
            policy,
            owner,
            enters: true,
            resumed: true,
            started: self.now(),
            renewal: None,
            left: Notify::new(),
        }));
        Ok(Resumed::Owned(Claim::new(work, None)))
    }
}

impl<S: Store> Claim<S> {
    /// Makes the lease end `length` from now at the earliest, for an owner that outlives it. One
    /// that has lapsed may be extended as long as nobody took over; one that was released may not.
    ///
    /// # Errors
    ///
    /// The store did not answer: the lease may or may not have been extended.
    pub async fn extend(&self, length: Duration) -> Result<Ended, StoreError> {
        let held = &self.work().0;
        let now = held.claims.now();
        let lease = now.after(length).max(held.live().lease);
        let expiration = window_end(now, held.window, lease).max(held.live().expiration);
        let write = Write::Renew {
            owner: held.owner.clone(),
            lease,
            expiration,
        };
        if let Reached::Answer(..) = held.send(write, None).await? {
            return Ok(Ended::Superseded);
        }
        let mut live = held.live();
        live.lease = lease;
        live.expiration = expiration;
        Ok(Ended::Recorded)
    }
}
