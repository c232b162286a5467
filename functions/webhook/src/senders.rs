//! The configured senders: from a variable, or from a secret that is read again from time to time.

mod roster;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstclaim::clock::EpochMillis;
use firstclaim::store::Cause;

use crate::config::Faults;

pub(crate) use roster::Roster;

/// How long a secret that was read is used before it is read again.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// The least time between two readings that a failed verification or a failed reading asks for.
const PAUSE: Duration = Duration::from_secs(60);

/// The configured senders. Cheap to clone; clones share what was read.
#[derive(Clone, Debug)]
pub struct Senders(Source);

#[derive(Clone, Debug)]
enum Source {
    Inline(Arc<Roster>),
    Secret {
        client: aws_sdk_secretsmanager::Client,
        arn: String,
        kept: Arc<Kept>,
    },
}

/// Why there are no senders to check a request against.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendersError {
    /// Secrets Manager did not give the secret.
    #[error("the senders' secret could not be read")]
    Unread(#[source] Cause),
    /// The secret holds no senders.
    #[error("the senders' secret can't be used: {0}")]
    Faults(#[from] Faults),
}

impl Senders {
    /// Reads the senders' JSON. `longest_lease` is what a sender's window must be longer than.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, as faults of `SENDERS`; secrets are never printed.
    pub fn from_json(json: &str, longest_lease: Duration) -> Result<Self, Faults> {
        Ok(Self(Source::Inline(Arc::new(Roster::read(
            json,
            longest_lease,
        )?))))
    }

    /// The senders in a secret of Secrets Manager. It is read when the first event arrives, kept
    /// for five minutes, and read again (once a minute at the most) when a request could not be
    /// verified, so that a rotated secret takes effect without a deployment.
    #[must_use]
    pub fn from_secret(client: aws_sdk_secretsmanager::Client, arn: impl Into<String>) -> Self {
        Self(Source::Secret {
            client,
            arn: arn.into(),
            kept: Arc::default(),
        })
    }

    /// A short digest of the configuration in use, by which the log names it; `None` while a secret
    /// has not been read.
    #[must_use]
    pub fn generation(&self) -> Option<String> {
        match &self.0 {
            Source::Inline(roster) => Some(roster.generation.clone()),
            Source::Secret { kept, .. } => {
                let state = kept.state();
                Some(state.roster.as_ref()?.generation.clone())
            }
        }
    }

    /// The name of a sender of which nothing can be verified without `PUBLIC_URL`, as far as the
    /// senders are known already.
    pub(crate) fn needs_address(&self) -> Option<&str> {
        match &self.0 {
            Source::Inline(roster) => roster.needs_address(),
            Source::Secret { .. } => None,
        }
    }

    /// The senders as they are now.
    pub(crate) async fn current(
        &self,
        now: EpochMillis,
        longest_lease: Duration,
    ) -> Result<Arc<Roster>, SendersError> {
        match &self.0 {
            Source::Inline(roster) => Ok(Arc::clone(roster)),
            Source::Secret { client, arn, kept } => {
                kept.current(now, || fetch(client, arn, longest_lease))
                    .await
            }
        }
    }

    /// Newer senders than `used`, with which a request could not be verified.
    pub(crate) async fn newer(
        &self,
        used: &Roster,
        now: EpochMillis,
        longest_lease: Duration,
    ) -> Option<Arc<Roster>> {
        match &self.0 {
            Source::Inline(_) => None,
            Source::Secret { client, arn, kept } => {
                kept.newer(used, now, || fetch(client, arn, longest_lease))
                    .await
            }
        }
    }
}

async fn fetch(
    client: &aws_sdk_secretsmanager::Client,
    arn: &str,
    longest_lease: Duration,
) -> Result<Roster, SendersError> {
    let secret = client
        .get_secret_value()
        .secret_id(arn)
        .send()
        .await
        .map_err(|error| SendersError::Unread(Box::new(error)))?;
    let json = secret
        .secret_string()
        .ok_or_else(|| SendersError::Unread("it is binary, not text".into()))?;
    Ok(Roster::read(json, longest_lease)?)
}

/// What was read of a secret, and when.
#[derive(Debug, Default)]
struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    roster: Option<Arc<Roster>>,
    read_at: Option<EpochMillis>,
    tried_at: Option<EpochMillis>,
    /// Whether the failure to read it has been told.
    told: bool,
}

impl Kept {
    async fn current<F, Fut>(&self, now: EpochMillis, fetch: F) -> Result<Arc<Roster>, SendersError>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Roster, SendersError>>,
    {
        let old = {
            let mut state = self.state();
            let fresh = within(state.read_at, now, KEPT) || within(state.tried_at, now, PAUSE);
            match &state.roster {
                Some(roster) if fresh => return Ok(Arc::clone(roster)),
                old => {
                    let old = old.clone();
                    state.tried_at = Some(now);
                    old
                }
            }
        };
        match (self.take(fetch().await, now), old) {
            (Ok(roster), _) | (Err(_), Some(roster)) => Ok(roster),
            (Err(error), None) => Err(error),
        }
    }

    async fn newer<F, Fut>(&self, used: &Roster, now: EpochMillis, fetch: F) -> Option<Arc<Roster>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Roster, SendersError>>,
    {
        let known = {
            let mut state = self.state();
            let known = state.roster.clone();
            let changed = known
                .as_ref()
                .is_some_and(|known| known.generation != used.generation);
            if changed || within(state.tried_at, now, PAUSE) {
                known
            } else {
                state.tried_at = Some(now);
                None
            }
        };
        let roster = match known {
            Some(roster) => roster,
            None => self.take(fetch().await, now).ok()?,
        };
        (roster.generation != used.generation).then_some(roster)
    }

    /// Keeps what was read; a failure leaves the old and is told once.
    fn take(
        &self,
        read: Result<Roster, SendersError>,
        now: EpochMillis,
    ) -> Result<Arc<Roster>, SendersError> {
        let mut state = self.state();
        match read {
            Ok(roster) => {
                state.read_at = Some(now);
                state.told = false;
                // What did not change stays, with what it has told already.
                let same = |kept: &&Arc<Roster>| kept.generation == roster.generation;
                if let Some(kept) = state.roster.as_ref().filter(same) {
                    return Ok(Arc::clone(kept));
                }
                tracing::info!(generation = roster.generation, "read the senders' secret");
                let roster = Arc::new(roster);
                state.roster = Some(Arc::clone(&roster));
                Ok(roster)
            }
            Err(error) => {
                if !state.told {
                    state.told = true;
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        old_ones_stay = state.roster.is_some(),
                        "the senders' secret could not be read",
                    );
                }
                Err(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No panic can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn within(since: Option<EpochMillis>, now: EpochMillis, span: Duration) -> bool {
    since.is_some_and(|since| now.since(since) < span)
}
