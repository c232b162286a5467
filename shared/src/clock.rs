//! Time and tokens: the one place that reads the clock and the operating system's randomness.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::record::Owner;

/// An instant in epoch **milliseconds**, the unit of leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpochMillis(pub i64);

/// An instant in epoch **seconds**, the unit of the window's end (and of DynamoDB's TTL).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpochSeconds(pub i64);

impl EpochMillis {
    /// The instant `duration` later. Saturates, and a fraction of a millisecond is dropped.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// The instant `duration` earlier. Saturates.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// How long it is from `earlier` until this instant; zero if it lies before `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let span = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(span).unwrap_or(0))
    }

    /// The whole second that this instant lies in.
    #[must_use]
    pub fn seconds(self) -> EpochSeconds {
        EpochSeconds(self.0.div_euclid(1000))
    }
}

impl EpochSeconds {
    /// The first millisecond of this second.
    #[must_use]
    pub fn millis(self) -> EpochMillis {
        EpochMillis(self.0.saturating_mul(1000))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Where the time and new owner tokens come from. Injected once; nothing else reads the clock.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> EpochMillis;

    /// A token that has never been used before.
    fn token(&self) -> Owner;
}

impl<T: Source> Source for Arc<T> {
    fn now(&self) -> EpochMillis {
        (**self).now()
    }

    fn token(&self) -> Owner {
        (**self).token()
    }
}

/// The system's clock and the operating system's randomness.
///
/// Tokens are drawn when they are needed, so that a frozen and resumed execution environment never
/// repeats one.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemSource;

impl Source for SystemSource {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the clock"
    )]
    fn now(&self) -> EpochMillis {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        EpochMillis(millis(since_epoch))
    }

    fn token(&self) -> Owner {
        Owner::new(uuid::Uuid::new_v4().simple().to_string())
    }
}

/// A clock that stands still until it is told to move, with tokens that count up.
///
/// Clones share one clock.
///
/// ```
/// use firstclaim::clock::{EpochMillis, ManualSource, Source};
/// use std::time::Duration;
///
/// let source = ManualSource::at(EpochMillis(1_000));
/// source.advance(Duration::from_secs(2));
/// assert_eq!(source.now(), EpochMillis(3_000));
/// assert_ne!(source.token(), source.token());
/// ```
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Debug)]
pub struct ManualSource(Arc<Manual>);

#[cfg(any(test, feature = "test-util"))]
#[derive(Debug)]
struct Manual {
    now: std::sync::atomic::AtomicI64,
    tokens: std::sync::atomic::AtomicU64,
}

#[cfg(any(test, feature = "test-util"))]
impl ManualSource {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: EpochMillis) -> Self {
        Self(Arc::new(Manual {
            now: now.0.into(),
            tokens: 0.into(),
        }))
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now().after(duration));
    }

    /// Sets the clock, backward too.
    pub fn set(&self, now: EpochMillis) {
        self.0
            .now
            .store(now.0, std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Source for ManualSource {
    fn now(&self) -> EpochMillis {
        EpochMillis(self.0.now.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn token(&self) -> Owner {
        let number = self
            .0
            .tokens
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Owner::new(format!("owner-{number}"))
    }
}
