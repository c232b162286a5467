//! For how long a returned message stays hidden.

use std::time::Duration;

use crate::queues::LONGEST_VISIBILITY;

/// The wait after the first receive, in seconds; doubled with each.
const FIRST: u64 = 30;

/// The longest wait, in seconds.
const LONGEST: u64 = 60 * 60;

/// Seconds after the given number of receives: the doubled wait, or up to an eighth less, so that
/// messages which failed together don't come back together. No less than that: 20 receives, after
/// which the deployed queue gives a message up, must outlast a target that is down for half a day.
pub(super) fn after(receives: u32) -> u32 {
    jittered(receives, uuid::Uuid::new_v4().as_u128())
}

/// The whole wait after the given number of receives, in seconds.
pub(super) fn full(receives: u32) -> u32 {
    exactly(Duration::from_secs(doubled(receives)))
}

/// Seconds for a wait that is known: rounded up, never 0, never more than SQS takes.
pub(super) fn exactly(wait: Duration) -> u32 {
    let part = u64::from(wait.subsec_nanos() > 0);
    let up = wait.as_secs().saturating_add(part);
    u32::try_from(up)
        .unwrap_or(LONGEST_VISIBILITY)
        .clamp(1, LONGEST_VISIBILITY)
}

fn jittered(receives: u32, random: u128) -> u32 {
    let full = doubled(receives);
    let spread = full / 8;
    let earlier = u64::try_from(random % u128::from(spread + 1)).unwrap_or(0);
    exactly(Duration::from_secs(full - earlier))
}

fn doubled(receives: u32) -> u64 {
    let doublings = receives.saturating_sub(1).min(31);
    (FIRST << doublings).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_an_hour() {
        for (receives, full) in [(0, 30), (1, 30), (2, 60), (3, 120), (7, 1920), (8, 3600)] {
            assert_eq!(jittered(receives, 0), full, "{receives}");
            let least = full - full / 8;
            assert_eq!(
                jittered(receives, u128::from(full / 8)),
                least,
                "{receives}"
            );
            assert_eq!(super::full(receives), full);
        }
        for receives in [9, 40, u32::MAX] {
            let wait = after(receives);
            assert!((3150..=3600).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn twenty_receives_outlast_half_a_day_whatever_the_jitter() {
        let shortest: u32 = (1..=20)
            .map(|receives| full(receives) - full(receives) / 8)
            .sum();
        assert!(shortest > 12 * 60 * 60, "{shortest}");
    }

    #[test]
    fn a_known_wait_is_never_zero_and_never_refused() {
        assert_eq!(exactly(Duration::ZERO), 1);
        assert_eq!(exactly(Duration::from_millis(1)), 1);
        assert_eq!(exactly(Duration::from_millis(60_001)), 61);
        assert_eq!(exactly(Duration::from_secs(42_300)), 42_300);
        assert_eq!(exactly(Duration::from_secs(86_400)), 42_300);
        assert_eq!(exactly(Duration::MAX), 42_300);
    }
}
