//! Settling: what a person decides about a record, on exactly what that person saw.

use serde_json::value::RawValue;

use super::claim::COMPANION_MARGIN;
use super::kept::Kept;
use super::{Claims, Clock, Reached};
use crate::protocol::{Intent, Request, Seen, Settlement, Write, window_end};
use crate::record::{Data, Record, Settled};
use crate::store::{Store, StoreError};

/// What was decided about a record.
#[derive(Clone, Debug)]
pub enum Resolution {
    /// The operation is done, and this is its result.
    Result(Box<RawValue>),
    /// It is to run again; with a new downstream key, if a target remembers a failure under the old
    /// one.
    Rerun {
        /// Whether the generation is raised.
        new_generation: bool,
    },
    /// Result, checkpoints and payload are forgotten: the next request starts from nothing.
    Forget,
}

/// What became of a settle.
#[derive(Clone, Debug)]
pub enum Settling {
    /// It stands. The record as it is now, where the store brought it.
    Recorded(Option<Box<Record>>),
    /// The record is not what was seen any more. Nothing was changed; this is what it is now.
    Changed(Option<Box<Record>>),
}

impl<S: Store> Claims<S> {
    /// Settles a record by hand. It is written only if the record still is what was seen: its
    /// owner, attempt, status and lease. Whoever owned it can't write any more.
    ///
    /// # Errors
    ///
    /// The store did not answer: the settle may or may not stand.
    pub async fn settle(
        &self,
        seen: &Record,
        resolution: Resolution,
        who: impl Into<String>,
        why: impl Into<String>,
    ) -> Result<Settling, StoreError> {
        let now = self.now();
        let owner = self.source.token();
        let end = window_end(now, self.config.window, now);
        let expiration = seen.expiration.map_or(end, |seen| seen.max(end));
        let settlement = match resolution {
            Resolution::Rerun { new_generation } => Settlement::Rerun { new_generation },
            Resolution::Forget => Settlement::Forget,
            Resolution::Result(value) => {
                Settlement::Result(match Kept::of(&value, self.config.inline_limit) {
                    Kept::Inline(text) => Data::Inline(text),
                    Kept::Not(note) => Data::Omitted(note),
                    Kept::Companion { packed, note } => {
                        let id = format!("{}#data#{}", seen.id, owner.expose());
                        let until = expiration.millis().after(COMPANION_MARGIN).seconds();
                        self.store.put_companion(&id, packed, until).await?;
                        Data::Companion { id, note }
                    }
                })
            }
        };
        let write = Write::Settle {
            seen: Seen::of(seen),
            owner,
            settlement,
            settled: Settled {
                who: who.into(),
                at: now,
                why: why.into(),
                attempt: seen.attempt.saturating_add(1),
            },
            expiration,
        };
        let request = Request::Owned(Intent {
            write: write.clone(),
            // A record that is gone is not what was seen.
            restore_until: now,
            restore: None,
        });
        let reached = self.drive(&seen.id, &request, write, Clock::Trust).await;
        // Whatever became of it, what this process remembers may be over. Not before the write:
        // another of its requests could read the record until then.
        self.memory.forget(&seen.id);
        Ok(match reached? {
            Reached::Answer(_, met) => Settling::Changed(met),
            Reached::Applied { record, .. } | Reached::Done(record) => Settling::Recorded(record),
            // Only an acquirer comes too late or compares clocks.
            Reached::TooLate | Reached::ClockIsOff(_) => Settling::Changed(None),
        })
    }
}
