//! The pauses between tries.

use std::time::Duration;

use firstclaim::clock::Source;

/// The longest pause that grows by itself.
const LONGEST: Duration = Duration::from_secs(60);

/// The longest pause that a server can ask for.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// The shortest base, also where a server asks for none: a loop must not be a load.
const SHORTEST: Duration = Duration::from_millis(100);

/// Pauses that double from a base on, each by chance between half of it and all of it, so that
/// followers which lost one server don't come back at one moment.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    base: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(base: Duration) -> Self {
        Self { base, failures: 0 }
    }

    /// Sets the base, as a stream's `retry` does.
    pub(super) fn set_base(&mut self, base: Duration) {
        self.base = base.clamp(SHORTEST, PATIENCE);
    }

    /// The next pause is the first again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next pause; at least what was asked for with `Retry-After`.
    pub(super) fn next(&mut self, asked: Option<Duration>, source: &impl Source) -> Duration {
        let doubled = self.base.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let grown = doubled.min(LONGEST.max(self.base));
        let pause = grown / 2 + part(grown / 2, source);
        let asked = asked.unwrap_or_default().min(PATIENCE);
        match asked > pause {
            true => asked + part(asked / 8, source),
            false => pause,
        }
    }
}

/// A part of `whole`, by chance: from the randomness that tokens are made of.
fn part(whole: Duration, source: &impl Source) -> Duration {
    let digest = firstclaim::Fingerprint::of_raw(source.token().expose().as_bytes()).to_hex();
    let chance = u32::from_str_radix(digest.get(..4).unwrap_or_default(), 16).unwrap_or(0);
    whole * chance / 0xffff
}

#[cfg(test)]
mod tests {
    use firstclaim::clock::SystemSource;

    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        for longest in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = backoff.next(None, &SystemSource);
            let longest = Duration::from_secs(longest);
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?}");
        }
        backoff.reset();
        assert!(backoff.next(None, &SystemSource) <= Duration::from_secs(1));
    }

    #[test]
    fn what_a_server_asks_for_is_honoured_within_bounds() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let asked = Duration::from_secs(40);
        let pause = backoff.next(Some(asked), &SystemSource);
        assert!(
            pause >= asked && pause <= Duration::from_secs(45),
            "{pause:?}"
        );
        let for_ever = backoff.next(Some(Duration::MAX), &SystemSource);
        assert!(for_ever <= Duration::from_secs(2 * 60 * 60), "{for_ever:?}");

        backoff.set_base(Duration::from_secs(300));
        assert!(backoff.next(None, &SystemSource) >= Duration::from_secs(150));
        backoff.set_base(Duration::ZERO);
        backoff.reset();
        assert!(backoff.next(None, &SystemSource) >= Duration::from_millis(50));
    }
}
