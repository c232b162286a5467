//! What can be taken away from the protocol, to see whether a property notices.

use firstclaim::protocol::{Rule, Write};

/// One part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Removal {
    /// A part of the condition of one kind of write.
    Part(Kind, usize),
    /// A rule of the decision.
    Rule(Rule),
    /// Something that the sender of the writes sees to.
    Guard(Guard),
}

/// The kinds of writes whose conditions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Claim,
    Takeover,
    /// Of a record that another tool wrote.
    TakeoverOfTheirs,
    Renew,
    Enter,
    Checkpoint,
    Activity,
    Finish,
    Restore,
    Suspend,
    Release,
    Settle,
    /// Of a record without a lease.
    SettleOfFinal,
    /// Of a record that another tool wrote.
    SettleOfTheirs,
}

impl Kind {
    pub(crate) fn of(write: &Write) -> Self {
        match write {
            Write::Claim { .. } => Self::Claim,
            Write::Takeover { seen, .. } if seen.owner.is_none() => Self::TakeoverOfTheirs,
            Write::Takeover { .. } => Self::Takeover,
            Write::Renew { .. } => Self::Renew,
            Write::Enter { .. } => Self::Enter,
            Write::Checkpoint { .. } => Self::Checkpoint,
            Write::Activity { .. } => Self::Activity,
            Write::Finish { .. } => Self::Finish,
            Write::Restore { .. } => Self::Restore,
            Write::Suspend { .. } => Self::Suspend,
            Write::Release { .. } => Self::Release,
            Write::Settle { seen, .. } if seen.owner.is_none() => Self::SettleOfTheirs,
            Write::Settle { seen, .. } if seen.lease.is_none() => Self::SettleOfFinal,
            Write::Settle { .. } => Self::Settle,
        }
    }
}

/// What the sender of the writes sees to, beside conditions and decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Guard {
    /// The own clock is looked at before the operation is entered.
    OwnClockBeforeEntry,
    /// Under `hold` the operation is entered only when the record says so.
    EntrySaidFirst,
    /// The own clock is looked at before each step.
    OwnClockBeforeStep,
    /// An owner stops a grace before its lease.
    Grace,
    /// After a write that ends the claim was sent, no other is.
    OneEnding,
    /// An unknown outcome is suspended under `hold`, not released.
    SuspendUnderHold,
    /// A takeover of a held record that comes too late is suspended, not released.
    SuspendHeldTooLate,
    /// A claim whose reply was lost is not entered by an inspector, if it may be a takeover of a
    /// held record.
    LostTakeoverInspects,
    /// A settlement writes a fresh owner.
    FreshOwner,
    /// A takeover and a renewal move the end of the window behind the lease.
    WindowBehindLease,
}

impl Guard {
    /// Every guard.
    pub(crate) const ALL: [Self; 10] = [
        Self::OwnClockBeforeEntry,
        Self::EntrySaidFirst,
        Self::OwnClockBeforeStep,
        Self::Grace,
        Self::OneEnding,
        Self::SuspendUnderHold,
        Self::SuspendHeldTooLate,
        Self::LostTakeoverInspects,
        Self::FreshOwner,
        Self::WindowBehindLease,
    ];
}

/// What is taken away: nothing, or one part, or one part and those that cover it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    parts: Vec<Removal>,
    prove: bool,
}

impl Removed {
    /// Nothing but this is taken away.
    pub(crate) fn only(part: Removal) -> Self {
        Self {
            parts: vec![part],
            prove: false,
        }
    }

    /// This is taken away and what covers it; only what needs `part` gone counts as found.
    pub(crate) fn covered(part: Removal, by: &[Removal]) -> Self {
        Self {
            parts: [part].iter().chain(by).copied().collect(),
            prove: true,
        }
    }

    /// The part whose use is to be proved.
    pub(crate) fn proof(&self) -> Option<Removal> {
        self.parts.first().copied().filter(|_| self.prove)
    }

    pub(crate) fn has(&self, guard: Guard) -> bool {
        self.parts.contains(&Removal::Guard(guard))
    }

    pub(crate) fn rule(&self) -> Option<Rule> {
        self.parts.iter().find_map(|part| match part {
            Removal::Rule(rule) => Some(*rule),
            _ => None,
        })
    }

    /// The parts of this write's condition that are taken away, the last first, less `kept`.
    pub(crate) fn parts_of(&self, write: &Write, kept: Option<Removal>) -> Vec<usize> {
        let kind = Kind::of(write);
        let gone = self.parts.iter().filter(|part| Some(**part) != kept);
        let mut parts: Vec<usize> = gone
            .filter_map(|part| match part {
                Removal::Part(of, at) if *of == kind => Some(*at),
                _ => None,
            })
            .collect();
        parts.sort_unstable_by(|one, other| other.cmp(one));
        parts
    }
}
