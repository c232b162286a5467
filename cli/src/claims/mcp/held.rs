//! The claims that this process has made: their owner tokens, by key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstclaim::clock::EpochMillis;
use firstclaim::{Fingerprint, Key, Owner};
use tokio::sync::Mutex as Turns;

/// When there are more keys than these, those that are of no more use are forgotten.
const MANY: usize = 256;

/// How long a claim is remembered after its lease: it may still be ours, where nobody took over.
const MEMORY: Duration = Duration::from_secs(60 * 60);

/// One key of this process. Calls about a key take turns, so that one which is repeated while its
/// first copy still runs finds what that one got.
pub(super) type Slot = Arc<Turns<Option<Mine>>>;

/// A claim of this process.
#[derive(Debug)]
pub(super) struct Mine {
    pub(super) owner: Owner,
    pub(super) stage: Stage,
    /// What each call about it makes the lease last.
    pub(super) lease: Duration,
    /// The end of the lease as far as it is known.
    pub(super) until: EpochMillis,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The store was asked and has not answered: the claim may stand.
    Asked,
    /// It is held.
    Held,
    /// It was completed or released. Kept for an end that is said twice.
    Ended,
}

/// All keys of this process.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<String, Slot>>);

impl Held {
    /// The place of a key.
    pub(super) fn slot(&self, key: &Key, now: EpochMillis) -> Slot {
        // Nothing in here panics while it holds the lock.
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MANY {
            slots.retain(|_, slot| is_of_use(slot, now));
        }
        Arc::clone(slots.entry(key.stored()).or_default())
    }

    /// The token that this process holds the key with, unless a call about it is just under way.
    pub(super) fn owner(&self, key: &Key) -> Option<Owner> {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = slots.get(&key.stored())?.try_lock().ok()?;
        let held = mine.as_ref().filter(|mine| mine.stage == Stage::Held);
        held.map(|mine| mine.owner.clone())
    }
}

fn is_of_use(slot: &Slot, now: EpochMillis) -> bool {
    // Whoever has it, or waits for it, uses it.
    if Arc::strong_count(slot) > 1 {
        return true;
    }
    let mine = slot.try_lock();
    mine.is_ok_and(|mine| {
        let mine = mine.as_ref();
        mine.is_some_and(|mine| mine.stage != Stage::Ended && mine.until.after(MEMORY) > now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_held_is_remembered_and_what_is_over_is_not() {
        let held = Held::default();
        let key = |number: usize| Key::new("cli", number.to_string()).unwrap();
        let now = EpochMillis(1_000_000);
        for number in 0..3 * MANY {
            let slot = held.slot(&key(number), now);
            *slot.lock().await = Some(Mine {
                owner: Owner::new(format!("token-{number}")),
                stage: match number {
                    0 => Stage::Held,
                    _ => Stage::Ended,
                },
                lease: Duration::from_secs(60),
                until: now,
                fingerprint: None,
            });
        }
        assert!(held.0.lock().unwrap().len() <= MANY + 1);
        assert_eq!(held.owner(&key(0)), Some(Owner::new("token-0")));
        assert_eq!(held.owner(&key(3 * MANY - 1)), None);
        assert!(!format!("{held:?}").contains("token-"), "{held:?}");
    }
}
