//! The claim that a piece of code runs under, as far as code needs to know it that has no store.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::work::{Live, downstream_key};
use crate::clock::{EpochMillis, Source};
use crate::key::Key;
use crate::record::Record;

tokio::task_local! {
    static CURRENT: Attempt;
}

/// One attempt of an operation: what the code that works on it knows of its claim. [`Work`] is the
/// same with a store, and so with steps.
///
/// Code that is called without a [`Work`], a handler behind a
/// [layer](crate::lambda::OnceLayer) for example, finds it with [`current`](Self::current). Cheap
/// to clone.
///
/// ```
/// use std::time::Duration;
/// use firstclaim::{Attempt, Claims, Config, Failure, Key};
///
/// /// Somewhere deep inside.
/// fn idempotency_key() -> Option<String> {
///     Attempt::current().map(|attempt| attempt.downstream_key("charge"))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let store = firstclaim::store::memory::Memory::new();
/// let claims = Claims::new(store, Config::default())?;
/// let once = claims.once(Key::new("charge", "order-42")?).lease(Duration::from_secs(30));
/// let ran = once.run(|work| async move {
///     assert_eq!(idempotency_key(), Some(work.downstream_key("charge")));
///     Ok::<_, Failure<std::io::Error>>(())
/// });
/// ran.await?;
/// assert_eq!(idempotency_key(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Work`]: crate::Work
#[derive(Clone, Debug)]
pub struct Attempt(pub(super) Arc<Known>);

/// What is known of a claim that is held: what was acquired, and what has changed since.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) key: Key,
    /// The record as it was acquired.
    pub(super) record: Record,
    pub(super) grace: Duration,
    pub(super) source: Arc<dyn Source>,
    pub(super) live: Mutex<Live>,
    pub(super) lost: watch::Sender<bool>,
}

impl Attempt {
    /// The attempt that the current task works on, inside [`Once::run`](crate::Once::run),
    /// [`Claim::renewing`](crate::Claim::renewing) and the [layer](crate::lambda::OnceLayer). A task
    /// that is spawned inside has none: hand it this one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs `future` on this attempt.
    pub(super) async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// 1 for the first owner, one more for each takeover.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.record.attempt
    }

    /// See [`Work::downstream_key`](crate::Work::downstream_key).
    #[must_use]
    pub fn downstream_key(&self, step: &str) -> String {
        self.0.downstream_key(step)
    }

    /// See [`Work::ends`](crate::Work::ends).
    #[must_use]
    pub fn ends(&self) -> EpochMillis {
        self.0.ends()
    }

    /// See [`Work::remaining`](crate::Work::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// See [`Work::is_lost`](crate::Work::is_lost).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// See [`Work::lost`](crate::Work::lost).
    pub async fn lost(&self) {
        self.0.lost().await;
    }
}

impl Known {
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        // A panicking operation must still be able to give its claim back.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn downstream_key(&self, step: &str) -> String {
        downstream_key(&self.key, self.record.generation, step)
    }

    /// The lease less the grace.
    pub(super) fn ends(&self) -> EpochMillis {
        self.live().lease.before(self.grace)
    }

    /// The time that is left until the claim's own end.
    pub(super) fn remaining(&self) -> Duration {
        self.ends().since(self.source.now())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_over() || self.source.now() >= self.ends()
    }

    /// The claim is lost, or its end has begun: whatever still has its [`Work`] is told, and begins
    /// nothing more in its name.
    ///
    /// [`Work`]: crate::Work
    pub(super) fn over(&self) {
        self.lost.send_replace(true);
    }

    /// Whether it is known to be over. A lease that has only passed by the own clock is not: a write
    /// in its name may still stand.
    pub(super) fn is_over(&self) -> bool {
        *self.lost.borrow()
    }

    pub(super) async fn lost(&self) {
        // The sender lives in `self`: the wait can't end by its going.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await;
    }
}
