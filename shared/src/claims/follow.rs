//! Following: a request that finds another of its process at the key, or the final record in the
//! process's memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::acquire::Acquiring;
use super::answer::differs;
use super::memory::Stage;
use crate::protocol::{Decision, Request, Verdict};
use crate::record::Record;
use crate::store::Store;

/// How long a request waits for the first answer to another of its process: longer than one call
/// takes with all its retries. After that the other hangs, or nobody polls it.
const FOLLOWING: Duration = Duration::from_secs(3);

/// What following led to.
pub(super) enum Followed {
    /// The record is the answer.
    Answer(Verdict, Arc<Record>),
    /// The leader is gone without an answer for us: enter again.
    Again,
    /// Ask the store without a flight.
    Alone,
}

impl<S: Store> Acquiring<S> {
    /// A final record from the process's memory that answers this request.
    pub(super) fn recalled(&self) -> Option<Arc<Record>> {
        let claims = &self.once.claims;
        let record = claims.memory.recall(&self.id, claims.now())?;
        // A mismatch is told from the store, so that a settle elsewhere shows at once.
        differs(&record, self.once.fingerprint)
            .is_none()
            .then_some(record)
    }

    /// Somebody of this process is at the key.
    pub(super) async fn follow(&self, mut watched: watch::Receiver<Stage>) -> Followed {
        let claims = &self.once.claims;
        loop {
            let stage = watched.borrow_and_update().clone();
            let now = claims.now();
            let (verdict, record) = match stage {
                Stage::Claiming => {
                    tokio::select! {
                        changed = watched.changed() => if changed.is_err() {
                            return Followed::Again;
                        },
                        () = claims.source.sleep(FOLLOWING) => return Followed::Alone,
                    }
                    continue;
                }
                // Not one after the other: each would wait for the same time-outs in its turn.
                Stage::Unanswered => return Followed::Alone,
                Stage::Busy(record) if now < self.patience => {
                    let lapse = record
                        .lease
                        .map_or(self.patience, |end| end.min(self.patience));
                    tokio::select! {
                        changed = watched.changed() => if changed.is_err() {
                            return Followed::Again;
                        },
                        () = claims.source.sleep(lapse.since(now)) => if claims.now() < self.patience {
                            return Followed::Alone;
                        },
                    }
                    continue;
                }
                // What this process knows is out of date: renewed, or left behind by a leader that
                // hangs. The store knows.
                Stage::Busy(record) if !record.running(now) => return Followed::Alone,
                Stage::Busy(record) => (Verdict::InProgress, record),
                Stage::Answered(verdict, record) => (verdict, record),
                Stage::Over(Some(record)) => (Verdict::Final, record),
                Stage::Over(None) => return Followed::Again,
            };
            let verdict = match differs(&record, self.once.fingerprint) {
                Some(_) => Verdict::Mismatch,
                None => verdict,
            };
            let for_leader_only = match verdict {
                // Its payload differed, ours does not.
                Verdict::Mismatch => differs(&record, self.once.fingerprint).is_none(),
                // It would not wait, we would.
                Verdict::InProgress => now < self.patience,
                // It may not take over what we may: its policy was another, or we inspect.
                Verdict::Held => self.terms(now).is_ok_and(|terms| {
                    let decision = claims.decide(Some(&record), &Request::Acquire(terms));
                    decision != Decision::Answer(Verdict::Held)
                }),
                _ => false,
            };
            if !for_leader_only {
                return Followed::Answer(verdict, record);
            }
            // Its flight must be gone before anybody can lead the next.
            while watched.changed().await.is_ok() {}
            return Followed::Again;
        }
    }
}
