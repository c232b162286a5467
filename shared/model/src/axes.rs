//! Axes: what one exploration varies, and within which bounds.

use firstclaim::record::Policy;

use crate::properties::Sighting;

/// The bounds of one exploration, which is exhaustive within them. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    /// A short name.
    pub(crate) name: &'static str,
    /// What is varied, for people.
    pub(crate) about: &'static str,
    /// How many claim calls there are at the most; each is one owner token.
    pub(crate) calls: usize,
    /// What a call may be like.
    pub(crate) callers: &'static [Caller],
    /// The last tick.
    pub(crate) time: u8,
    /// The length of a tick in milliseconds.
    pub(crate) tick: u16,
    /// The length of a lease.
    pub(crate) lease: u8,
    /// The length of the window.
    pub(crate) window: u8,
    /// How much earlier than its lease an owner stops.
    pub(crate) grace: u8,
    /// How many disturbances there are in a run: a write of which a copy goes astray, which may
    /// reach the store at any later moment or never, and which its sender sends again or not; an
    /// answer that is heard late; a read that comes late. Lost requests, lost replies, repeated
    /// requests, delays and crashes are all made of these.
    pub(crate) delays: u8,
    /// How an operation may end.
    pub(crate) endings: &'static [Ending],
    /// How often each owner may renew.
    pub(crate) renewals: u8,
    /// How many steps an operation has.
    pub(crate) steps: u8,
    /// Whether owners say what they do.
    pub(crate) activity: bool,
    /// What an operator may do, once each run.
    pub(crate) settlements: &'static [Settling],
    /// How often an operator may act.
    pub(crate) acts: u8,
    /// What another tool has left at the start.
    pub(crate) found: &'static [Found],
    /// What other tools and people may do to the item without any condition.
    pub(crate) outsiders: &'static [Outsider],
    /// How often they may.
    pub(crate) outside_acts: u8,
    /// Whether a call may read first, and read an older version.
    pub(crate) stale: bool,
    /// Whether the engine returns no item when it refuses.
    pub(crate) no_item: bool,
    /// After how many silent attempts nobody takes over.
    pub(crate) silent_limit: u32,
    /// What must be reachable, so that the exploration is known to have gone somewhere.
    pub(crate) sightings: &'static [Sighting],
}

/// What a call is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) policy: Policy,
    /// The payload, as a small number; `None` without fingerprint.
    pub(crate) payload: Option<u8>,
    /// How many ticks its clock is ahead.
    pub(crate) ahead: i8,
    /// Whether it inspects before it enters.
    pub(crate) inspects: bool,
    /// Whether it says so, under `hold`, before it enters.
    pub(crate) marks: bool,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Complete,
    Fail,
    DidNotHappen,
    Unknown,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Settling {
    Result,
    Rerun,
    RerunInNewGeneration,
    Forget,
}

/// A record of another tool, without owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Found {
    /// Nothing is there.
    Nothing,
    /// In progress, the lease runs for a tick; the fingerprint was made in another way.
    Running,
    /// In progress, without a lease.
    WithoutLease,
    /// In progress, with a lease that outlives the window.
    LeaseBeyondWindow,
    /// Completed; the lease is still there, beyond the window.
    Completed,
}

/// What others do to the item without asking for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outsider {
    /// Somebody deletes it.
    Delete,
    /// Another tool that once began the operation completes it: owner and lease stay in place.
    CompleteLate,
    /// Another tool claims its own lapsed record again.
    ClaimOwnAgain,
}

/// More silent attempts than any exploration has.
pub(crate) const NO_LIMIT: u32 = 9;
