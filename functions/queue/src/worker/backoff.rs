//! For how long a returned message stays hidden.

use std::time::Duration;

use crate::queues::LONGEST_VISIBILITY;

/// The wait after the first receive, in seconds; doubled with each.
const FIRST: u64 = 30;

/// The longest wait, in seconds.
const LONGEST: u64 = 60 * 60;

/// The first receives, after which a target's `Retry-After` counts as it is.
const TAKEN_AT_ITS_WORD: u32 = 3;

/// By how much the deployed queue's visibility is longer than the worker's time.
const VISIBILITY_OVER_TIME: u32 = 6;

/// Seconds after the given number of receives: the doubled wait, or up to a sixteenth less, so that
/// messages which failed together don't come back together. No less than that: the deployed queue
/// gives a message up after 20 receives, and the last of them must outlast a target that is down for
/// half a day.
pub(super) fn after(receives: u32) -> u32 {
    jittered(receives, uuid::Uuid::new_v4().as_u128())
}

/// The whole wait after the given number of receives, in seconds.
pub(super) fn full(receives: u32) -> u32 {
    exactly(Duration::from_secs(doubled(receives)))
}

/// Seconds until a target is asked again that said when: its `word`, and from the fourth receive on
/// the longer of it and the `backoff`. A target that is busy for a moment is asked when it likes. But
/// one that is down, or whose proxy says `Retry-After: 1` to everything, would have all 20 receives
/// within 20 seconds, and the queue would give up events that nobody has looked at.
pub(super) fn at_the_targets_word(word: Duration, receives: u32, backoff: u32) -> u32 {
    let word = exactly(word);
    if receives <= TAKEN_AT_ITS_WORD {
        word
    } else {
        word.max(backoff)
    }
}

/// Seconds until the store is asked again, where the queue's own visibility is too short: 20 times
/// the deployed six minutes are two hours, and a longer outage would make a dead letter of
/// everything. `None` leaves the queue's own, as long as it is the longer one; it is deployed as six
/// times the worker's `time`. With a time-out of a minute the back-off counts from the fifth receive
/// on, with 15 minutes never.
pub(super) fn until_the_store_answers(receives: u32, time: Duration) -> Option<u32> {
    let own = time.saturating_mul(VISIBILITY_OVER_TIME);
    let longer = Duration::from_secs(doubled(receives)) > own;
    longer.then(|| after(receives))
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
    let spread = full / 16;
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

    const HALF_A_DAY: u32 = 12 * 60 * 60;

    /// The worker's time-out, and the queue's own visibility, as they are deployed.
    const DEPLOYED: [(u64, u32); 4] = [(60, 360), (120, 720), (300, 1800), (900, 5400)];

    fn shortest(receives: u32) -> u32 {
        full(receives) - full(receives) / 16
    }

    /// When the last of 20 receives is, by the wait after each.
    fn last_receive(wait: impl Fn(u32) -> u32) -> u32 {
        (1..20).map(wait).sum()
    }

    #[test]
    fn the_wait_doubles_up_to_an_hour() {
        for (receives, full) in [(0, 30), (1, 30), (2, 60), (3, 120), (7, 1920), (8, 3600)] {
            assert_eq!(jittered(receives, 0), full, "{receives}");
            assert_eq!(
                jittered(receives, u128::from(full / 16)),
                shortest(receives),
                "{receives}"
            );
            assert_eq!(super::full(receives), full);
        }
        for receives in [9, 40, u32::MAX] {
            let wait = after(receives);
            assert!((3375..=3600).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn twenty_receives_outlast_half_a_day_whatever_the_jitter_and_whatever_the_target_says() {
        let silent = last_receive(shortest);
        assert!(silent > HALF_A_DAY, "{silent}");
        for word in [0, 1, 60, 3599, 86_400] {
            let word = Duration::from_secs(word);
            let said =
                last_receive(|receives| at_the_targets_word(word, receives, shortest(receives)));
            assert!(said > HALF_A_DAY, "{word:?}: {said}");
        }
    }

    #[test]
    fn a_targets_word_counts_alone_at_first_and_later_if_it_is_the_longer_one() {
        let word = |seconds, receives| {
            at_the_targets_word(Duration::from_secs(seconds), receives, full(receives))
        };
        assert_eq!(
            [1, 2, 3, 4, 5].map(|receives| word(1, receives)),
            [1, 1, 1, 240, 480]
        );
        assert_eq!(
            [1, 3, 4, 20].map(|receives| word(7200, receives)),
            [7200; 4]
        );
        assert_eq!(word(0, 1), 1, "never zero");
    }

    #[test]
    fn twenty_receives_outlast_a_store_that_is_away_for_half_a_day() {
        for (time, own) in DEPLOYED {
            let time = Duration::from_secs(time);
            let wait = |receives| match until_the_store_answers(receives, time) {
                Some(_) => shortest(receives),
                None => own,
            };
            assert!(last_receive(wait) > HALF_A_DAY, "{time:?}");
        }
    }

    #[test]
    fn the_queues_own_visibility_counts_where_it_is_the_longer_one() {
        let first = |time| {
            let counts = |receives: &u32| {
                until_the_store_answers(*receives, Duration::from_secs(time)).is_some()
            };
            (1..=20).find(counts)
        };
        assert_eq!(
            DEPLOYED.map(|(time, _)| first(time)),
            [Some(5), Some(6), Some(7), None]
        );
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
