//! Time and tokens: the one place that reads the clock and the operating system's randomness.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
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

    /// Whether [`now`](Self::now) is the time of day, so that it can be compared with a service's.
    fn is_wall_clock(&self) -> bool {
        false
    }

    /// Waits until `duration` has passed on this clock.
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A wait on a [`Source`]'s clock.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<T: Source> Source for Arc<T> {
    fn now(&self) -> EpochMillis {
        (**self).now()
    }

    fn token(&self) -> Owner {
        (**self).token()
    }

    fn is_wall_clock(&self) -> bool {
        (**self).is_wall_clock()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        (**self).sleep(duration)
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

    fn is_wall_clock(&self) -> bool {
        true
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
pub struct ManualSource {
    shared: Arc<Manual>,
    offset: i64,
    driven: bool,
}

#[cfg(any(test, feature = "test-util"))]
#[derive(Debug)]
struct Manual {
    now: tokio::sync::watch::Sender<i64>,
    tokens: std::sync::atomic::AtomicU64,
}

#[cfg(any(test, feature = "test-util"))]
impl ManualSource {
    /// A clock that stands at `now`. Sleeps on it pass in real time.
    #[must_use]
    pub fn at(now: EpochMillis) -> Self {
        Self {
            shared: Arc::new(Manual {
                now: tokio::sync::watch::Sender::new(now.0),
                tokens: 0.into(),
            }),
            offset: 0,
            driven: false,
        }
    }

    /// The same clock, on which a sleep ends when the clock has been moved far enough.
    #[must_use]
    pub fn driven(mut self) -> Self {
        self.driven = true;
        self
    }

    /// The same clock as seen by a process whose own clock is off by `millis`.
    #[must_use]
    pub fn off_by(mut self, millis: i64) -> Self {
        self.offset = millis;
        self
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.shared
            .now
            .send_modify(|now| *now = EpochMillis(*now).after(duration).0);
    }

    /// Sets the clock, backward too.
    pub fn set(&self, now: EpochMillis) {
        self.shared.now.send_replace(now.0);
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Source for ManualSource {
    fn now(&self) -> EpochMillis {
        EpochMillis(*self.shared.now.borrow() + self.offset)
    }

    fn token(&self) -> Owner {
        let number = self
            .shared
            .tokens
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Owner::new(format!("owner-{number}"))
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if !self.driven {
            return Box::pin(tokio::time::sleep(duration));
        }
        let mut clock = self.shared.now.subscribe();
        let end = EpochMillis(*clock.borrow()).after(duration).0;
        Box::pin(async move {
            // An error means that every clone of the clock is gone, and time with it.
            let _ = clock.wait_for(|now| *now >= end).await;
        })
    }
}
