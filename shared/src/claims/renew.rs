//! Renewal: a claim that outlives its lease, for as long as its work runs.

use std::time::Duration;

use super::Reached;
use super::work::Work;
use crate::clock::EpochMillis;
use crate::protocol::{Write, window_end};
use crate::record::RELEASED;
use crate::store::Store;

impl<S: Store> Work<S> {
    /// Renews the lease at a third of it, until it is lost. Without a renewal it never ends.
    ///
    /// It is polled beside the operation and dropped with it: no renewal can start after the end
    /// has begun, and nothing is left running when the claim ends.
    pub(super) async fn keep_renewed(&self) {
        let Some((length, total)) = self.0.renewal else {
            return std::future::pending().await;
        };
        // The total counts from the claim, not from the wait for it.
        let claimed = self.0.record.lease.unwrap_or(RELEASED).before(length);
        let last = claimed.after(total);
        // Where the grace takes most of the lease, a third of it would be too late.
        let next = || (length / 3).min(self.remaining() / 2);
        let mut pause = next();
        loop {
            self.0.claims.source.sleep(pause).await;
            let now = self.0.claims.now();
            if now >= self.ends() {
                break;
            }
            // Counted from the moment of sending, and never beyond the total.
            let lease = now.after(length).min(last);
            if lease <= self.0.live().lease {
                pause = self.remaining();
                continue;
            }
            match self.renew(now, lease).await {
                Renewed::Yes => pause = next(),
                Renewed::Lost => break,
                // Tried again until the local end: a store that refuses for a while loses nothing.
                Renewed::Unanswered => pause = (length / 12).min(self.remaining()),
            }
        }
        self.0.over();
    }

    async fn renew(&self, now: EpochMillis, lease: EpochMillis) -> Renewed {
        let expiration = window_end(now, self.0.window, lease).max(self.0.live().expiration);
        let write = Write::Renew {
            owner: self.0.owner.clone(),
            lease,
            expiration,
        };
        // A renewal must not be waited for beyond the end that it should move.
        let left = self.remaining().max(Duration::from_millis(1));
        let sent = self.0.send(write, None);
        let reached = tokio::select! {
            reached = sent => reached,
            () = self.0.claims.source.sleep(left) => return Renewed::Unanswered,
        };
        match reached {
            Ok(Reached::Applied { .. } | Reached::Done(_)) => {
                let mut live = self.0.live();
                live.lease = lease;
                live.expiration = expiration;
                Renewed::Yes
            }
            Ok(Reached::Answer(..)) => Renewed::Lost,
            // Only an acquirer comes too late or compares clocks.
            Ok(Reached::TooLate | Reached::ClockIsOff(_)) | Err(_) => Renewed::Unanswered,
        }
    }
}

enum Renewed {
    Yes,
    Unanswered,
    Lost,
}
