//! The time that one request has: its answer is out before the fastest sender stops listening.

use std::future::Future;
use std::time::Duration;

use firstclaim::aws::Patience;
use tokio::time::Instant;

/// How long a request takes at the most, whatever hangs. Slack waits for three seconds, the network
/// between included.
pub const ANSWERED_WITHIN: Duration = Duration::from_millis(2800);

/// One call's share of it: those to the secret, the table and the queue come one after the other.
pub const PATIENCE: Patience = Patience {
    attempts: 3,
    attempt: Duration::from_millis(500),
    total: Duration::from_millis(1000),
};

/// When the claim must be there: the queue, which alone makes an event safe, gets a second whatever
/// the table does.
const CLAIMED_WITHIN: Duration = Duration::from_millis(1500);

/// When the queue must have answered, so that a moment is left to write down what it said.
const SENT_WITHIN: Duration = Duration::from_millis(2500);

/// The budget of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    started: Instant,
}

/// The request has no time left for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer came in the request's time")]
pub(crate) struct OutOfTime;

impl Budget {
    /// The budget of a request that arrives now.
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// Lets the claim run for its share.
    pub(crate) async fn claim<F: Future>(self, claim: F) -> Result<F::Output, OutOfTime> {
        self.within(CLAIMED_WITHIN, claim).await
    }

    /// Lets the sending run for its share.
    pub(crate) async fn send<F: Future>(self, send: F) -> Result<F::Output, OutOfTime> {
        self.within(SENT_WITHIN, send).await
    }

    /// Lets what only keeps the record true run in the rest of the time.
    pub(crate) async fn record<F: Future>(self, record: F) -> Result<F::Output, OutOfTime> {
        self.within(ANSWERED_WITHIN, record).await
    }

    async fn within<F: Future>(self, share: Duration, future: F) -> Result<F::Output, OutOfTime> {
        let limited = tokio::time::timeout_at(self.started + share, future);
        limited.await.map_err(|_| OutOfTime)
    }
}
