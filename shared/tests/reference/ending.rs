//! How claims end, for real and by the rules.

use firstclaim::Answer;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::reference::history::{At, History, Holding, Met, WAIT_MS};
use crate::reference::rules::{GRACE_MS, Stage, window_end};
use crate::reference::table::failure;

impl History {
    pub(crate) async fn complete(
        &mut self,
        slot: usize,
        value: u8,
        fault: Option<At>,
    ) -> Result<(), TestCaseError> {
        let Some(holding) = self.slots[slot].take() else {
            return Ok(());
        };
        let Holding {
            claim,
            key,
            payload,
            lease,
            number,
            ..
        } = holding;
        let sent = self.now();
        let (outcome, met) = self.disturbed(fault, claim.complete(value)).await;
        let entry = self.entries.get(&key).cloned();
        let end = End {
            key,
            number,
            lease,
            sent,
            met,
        };
        let (owned, answered) = self.finish(end, Stage::Completed(value));
        self.seen.outcomes.insert(outcome.name());
        let expected = if !answered {
            Answer::NotRecorded(value)
        } else if owned {
            let performed = self.performed.entry(key).or_default();
            *performed += 1;
            self.seen.performed_in_a_window = self.seen.performed_in_a_window.max(*performed);
            Answer::Performed(value)
        } else {
            let now = self.now();
            let winner =
                entry.filter(|entry| entry.in_window(now) && !entry.bound_elsewhere(payload));
            match winner.map(|entry| entry.stage) {
                Some(Stage::Completed(theirs)) => Answer::Replayed(theirs),
                Some(Stage::Failed) => Answer::ReplayedFailure(failure()),
                _ => Answer::Superseded,
            }
        };
        prop_assert_eq!(outcome.answer, expected);
        Ok(())
    }

    pub(crate) async fn fail(
        &mut self,
        slot: usize,
        fault: Option<At>,
    ) -> Result<(), TestCaseError> {
        let Some(holding) = self.slots[slot].take() else {
            return Ok(());
        };
        let Holding {
            claim,
            key,
            lease,
            number,
            ..
        } = holding;
        let sent = self.now();
        let (told, met) = self.disturbed(fault, claim.fail(failure())).await;
        let end = End {
            key,
            number,
            lease,
            sent,
            met,
        };
        let (_, answered) = self.finish(end, Stage::Failed);
        prop_assert_eq!(told.is_ok(), answered);
        Ok(())
    }

    /// Releases, or gives up with an unknown outcome.
    pub(crate) async fn release(
        &mut self,
        slot: usize,
        fault: Option<At>,
        unknown: bool,
    ) -> Result<(), TestCaseError> {
        let Some(holding) = self.slots[slot].take() else {
            return Ok(());
        };
        let Holding {
            claim,
            key,
            hold,
            number,
            ..
        } = holding;
        let attempt = claim.attempt();
        let (told, met) = if unknown {
            self.disturbed(fault, claim.give_up(failure())).await
        } else {
            self.disturbed(fault, claim.release(failure())).await
        };
        let entry = self
            .entries
            .get_mut(&key)
            .filter(|entry| entry.owned_by(number));
        if let (Some(entry), false) = (entry, matches!(met, Met::Refused(_))) {
            let suspended = unknown && hold;
            self.seen
                .outcomes
                .insert(if suspended { "suspended" } else { "released" });
            entry.stage = if suspended {
                Stage::Suspended
            } else {
                Stage::Released
            };
            entry.told = attempt;
        }
        prop_assert_eq!(told.is_ok(), met == Met::Nothing);
        Ok(())
    }

    /// A final write was sent: whether it was its owner's, and whether it was answered.
    fn finish(&mut self, end: End, stage: Stage) -> (bool, bool) {
        // It is sent again for as long as there is time; what was lost is then no loss.
        let again = end.lease - i64::from(GRACE_MS) - end.sent > i64::from(WAIT_MS);
        let refused = matches!(end.met, Met::Refused(_));
        let landed = if refused { self.now() } else { end.sent };
        let entry = self.entries.get_mut(&end.key);
        let entry = entry.filter(|entry| entry.owned_by(end.number));
        let owned = entry.is_some();
        if let (Some(entry), true) = (entry, !refused || again) {
            entry.stage = stage;
            entry.ends = window_end(landed, end.lease);
        }
        (owned, end.met == Met::Nothing || again)
    }
}

/// A final write.
struct End {
    key: usize,
    number: usize,
    lease: i64,
    sent: i64,
    met: Met,
}
