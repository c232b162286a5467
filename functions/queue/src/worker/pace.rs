//! How long a call of the target takes: so that none is begun that can't end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is known of the time that calls take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The estimate in milliseconds; 0 before the first call.
    millis: AtomicU64,
}

impl Pace {
    /// A call took so long. A longer one counts at once, shorter ones bit by bit: a call that is
    /// begun too late is worse than one that is put off.
    pub(super) fn took(&self, time: Duration) {
        let took = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let last = self.millis.load(Ordering::Relaxed);
        let next = took.max(last - last / 8);
        // Of two calls that end together one may go uncounted: it is an estimate.
        self.millis.store(next, Ordering::Relaxed);
    }

    /// Whether a call that takes as long as they do ends within what is `left` of the batch's
    /// `time`. In the first half of it one may always begin: an estimate that is too high must not
    /// keep everything from being tried.
    pub(super) fn fits(&self, left: Duration, time: Duration) -> bool {
        let usual = Duration::from_millis(self.millis.load(Ordering::Relaxed));
        usual <= left || left >= time / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_call_is_begun_only_where_the_usual_one_would_end() {
        let pace = Pace::default();
        assert!(pace.fits(SECOND, 30 * SECOND), "nothing is known");
        pace.took(5 * SECOND);
        assert!(pace.fits(5 * SECOND, 30 * SECOND));
        assert!(!pace.fits(4 * SECOND, 30 * SECOND));
        pace.took(8 * SECOND);
        assert!(
            !pace.fits(7 * SECOND, 30 * SECOND),
            "a longer one counts at once"
        );
        for _ in 0..20 {
            pace.took(SECOND);
        }
        assert!(
            pace.fits(2 * SECOND, 30 * SECOND),
            "shorter ones bit by bit"
        );
    }

    #[test]
    fn an_estimate_never_keeps_the_first_half_of_a_batch_from_being_tried() {
        let pace = Pace::default();
        pace.took(600 * SECOND);
        assert!(pace.fits(15 * SECOND, 30 * SECOND));
        assert!(!pace.fits(14 * SECOND, 30 * SECOND));
        assert!(
            pace.fits(Duration::ZERO, Duration::ZERO),
            "the claim itself finds that out"
        );
    }
}
