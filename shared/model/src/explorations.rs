//! The explorations, each along other axes.

use firstclaim::record::Policy;

use crate::axes::{Axes, Caller, Ending, Found, NO_LIMIT, Outsider, Settling};
use crate::properties::Sighting;

/// Those that the test runs, all within about a minute.
pub(crate) const USUAL: &[Axes] = &[
    RERUN,
    PAYLOADS,
    RENEWALS,
    RELAY,
    HOLD,
    MARKED,
    INSPECTION,
    MIXED,
    SILENCE,
    OPERATOR,
    OPERATOR_ON_HOLD,
    OPERATOR_ON_MARKED,
    STEPS,
    LONG,
    AGAIN,
    SKEW,
    HALF_SECONDS,
    THEIRS,
    OUTSIDERS,
    OUTSIDERS_ON_HOLD,
    OUTSIDERS_ON_MARKED,
    STALE,
];

pub(crate) const RERUN: Axes = Axes {
    name: "rerun",
    about: "three calls; failures and releases",
    lease: 2,
    window: 3,
    endings: &[Ending::Complete, Ending::Fail, Ending::Unknown],
    sightings: &[
        Sighting::Recorded,
        Sighting::Failed,
        Sighting::Replay,
        Sighting::InProgress,
        Sighting::Superseded,
        Sighting::Released,
        Sighting::Takeover,
        Sighting::ThirdAttempt,
        Sighting::SecondWindow,
    ],
    ..BASE
};

pub(crate) const PAYLOADS: Axes = Axes {
    name: "payloads",
    about: "three calls with two payloads; releases",
    callers: TWO_PAYLOADS,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    sightings: &[
        Sighting::Mismatch,
        Sighting::Replay,
        Sighting::Takeover,
        Sighting::SecondWindow,
    ],
    ..BASE
};

pub(crate) const RENEWALS: Axes = Axes {
    name: "renewals",
    about: "two calls that renew twice; releases",
    calls: 2,
    time: 5,
    lease: 2,
    window: 3,
    endings: &[Ending::Complete, Ending::Unknown],
    renewals: 2,
    activity: true,
    sightings: &[Sighting::Renewed, Sighting::Takeover, Sighting::Superseded],
    ..BASE
};

pub(crate) const RELAY: Axes = Axes {
    name: "relay",
    about: "three calls that renew once, beyond the window",
    time: 5,
    lease: 2,
    window: 3,
    delays: 1,
    endings: &[Ending::Unknown],
    renewals: 1,
    sightings: &[Sighting::Renewed, Sighting::ThirdAttempt],
    ..BASE
};

pub(crate) const HOLD: Axes = Axes {
    name: "hold",
    about: "three calls under hold; releases and unknown outcomes",
    callers: HOLDING,
    endings: &[Ending::Complete, Ending::DidNotHappen, Ending::Unknown],
    sightings: &[
        Sighting::Held,
        Sighting::Suspended,
        Sighting::Released,
        Sighting::Takeover,
    ],
    ..BASE
};

pub(crate) const MARKED: Axes = Axes {
    name: "marked",
    about: "three calls under hold, of which some mark their entry",
    callers: MARKING,
    time: 3,
    // A request may begin before the lease that it takes over has lapsed, and not be too late then.
    lease: 2,
    window: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    sightings: &[
        Sighting::Held,
        Sighting::Suspended,
        Sighting::EnteredAfterTheMark,
        Sighting::UntouchedTakenOver,
    ],
    ..BASE
};

pub(crate) const INSPECTION: Axes = Axes {
    name: "inspection",
    about: "three calls under hold, of which some inspect",
    callers: INSPECTING,
    time: 3,
    endings: &[Ending::Complete, Ending::Unknown],
    sightings: &[
        Sighting::Held,
        Sighting::InspectedWithoutEntry,
        Sighting::RecordedByInspection,
    ],
    ..BASE
};

pub(crate) const MIXED: Axes = Axes {
    name: "mixed",
    about: "three calls, under hold and rerun mixed",
    callers: BOTH,
    time: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::DidNotHappen, Ending::Unknown],
    sightings: &[Sighting::Held, Sighting::Suspended, Sighting::Takeover],
    ..BASE
};

pub(crate) const SILENCE: Axes = Axes {
    name: "silence",
    about: "three calls, of which two may be silent; some inspect",
    callers: &[
        RERUN_CALLER,
        Caller {
            inspects: true,
            ..RERUN_CALLER
        },
    ],
    time: 3,
    window: 4,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    silent_limit: 2,
    sightings: &[Sighting::Held, Sighting::InspectedWithoutEntry],
    ..BASE
};

pub(crate) const OPERATOR: Axes = Axes {
    name: "operator",
    about: "two calls and two acts of an operator",
    calls: 2,
    time: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::Fail, Ending::Unknown],
    settlements: EVERY_SETTLING,
    acts: 2,
    sightings: &[
        Sighting::Settled,
        Sighting::RunAfterSettlement,
        Sighting::SecondGeneration,
        Sighting::Superseded,
    ],
    ..BASE
};

pub(crate) const OPERATOR_ON_HOLD: Axes = Axes {
    name: "operator on hold",
    about: "three calls under hold and an act of an operator",
    callers: HOLDING,
    time: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    settlements: EVERY_SETTLING,
    acts: 1,
    sightings: &[
        Sighting::Settled,
        Sighting::RunAfterSettlement,
        Sighting::Held,
    ],
    ..BASE
};

pub(crate) const OPERATOR_ON_MARKED: Axes = Axes {
    name: "operator on marked",
    about: "two calls under hold that mark their entry, and an act of an operator",
    callers: &[MARKING_CALLER],
    calls: 2,
    endings: &[Ending::Complete],
    sightings: &[Sighting::Settled, Sighting::RunAfterSettlement],
    ..OPERATOR_ON_HOLD
};

pub(crate) const STEPS: Axes = Axes {
    name: "steps",
    about: "three calls of two steps",
    time: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    steps: 2,
    sightings: &[Sighting::StepKept],
    ..BASE
};

pub(crate) const LONG: Axes = Axes {
    name: "long",
    about: "two calls over three windows; the engine returns no items",
    calls: 2,
    time: 7,
    no_item: true,
    sightings: &[Sighting::SecondWindow, Sighting::Superseded],
    ..BASE
};

pub(crate) const AGAIN: Axes = Axes {
    name: "again",
    about: "two calls, of which one asks again when the window of its first record is over",
    calls: 2,
    time: 4,
    delays: 3,
    sightings: &[Sighting::SecondWindow],
    ..BASE
};

pub(crate) const SKEW: Axes = Axes {
    name: "skew",
    about: "three calls whose clocks differ by the grace",
    callers: SKEWED,
    lease: 2,
    window: 3,
    grace: 1,
    delays: 1,
    sightings: &[Sighting::Takeover, Sighting::Replay],
    ..BASE
};

pub(crate) const HALF_SECONDS: Axes = Axes {
    name: "half seconds",
    about: "three calls; leases and windows end within a second",
    tick: 500,
    time: 5,
    window: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    sightings: &[Sighting::Takeover, Sighting::SecondWindow],
    ..BASE
};

pub(crate) const THEIRS: Axes = Axes {
    name: "theirs",
    about: "two calls on what another tool has left, and goes on with",
    calls: 2,
    callers: &[
        RERUN_CALLER,
        Caller {
            payload: Some(1),
            ..RERUN_CALLER
        },
    ],
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    settlements: &[Settling::Rerun],
    acts: 1,
    found: &[
        Found::Running,
        Found::WithoutLease,
        Found::LeaseBeyondWindow,
        Found::Completed,
    ],
    outsiders: &[Outsider::ClaimOwnAgain, Outsider::CompleteLate],
    outside_acts: 1,
    sightings: &[
        Sighting::TheirsTakenOver,
        Sighting::InProgress,
        Sighting::Replay,
    ],
    ..BASE
};

pub(crate) const OUTSIDERS: Axes = Axes {
    name: "outsiders",
    about: "two calls; another tool completes the record, or somebody deletes it",
    calls: 2,
    time: 3,
    delays: 1,
    lease: 2,
    window: 3,
    endings: &[Ending::Complete, Ending::Unknown],
    renewals: 1,
    steps: 1,
    activity: true,
    outsiders: &[Outsider::CompleteLate, Outsider::Delete],
    outside_acts: 1,
    sightings: &[Sighting::Restored, Sighting::Superseded, Sighting::Released],
    ..BASE
};

pub(crate) const OUTSIDERS_ON_HOLD: Axes = Axes {
    name: "outsiders on hold",
    about: "two calls under hold; another tool completes the record, or somebody deletes it",
    callers: HOLDING,
    delays: 2,
    endings: &[Ending::Unknown, Ending::DidNotHappen],
    renewals: 0,
    steps: 0,
    activity: false,
    sightings: &[Sighting::Suspended, Sighting::Superseded, Sighting::Replay],
    ..OUTSIDERS
};

pub(crate) const OUTSIDERS_ON_MARKED: Axes = Axes {
    name: "outsiders on marked",
    about: "two calls that mark their entry; another tool completes the record, or deletes it",
    callers: &[MARKING_CALLER],
    delays: 1,
    ..OUTSIDERS_ON_HOLD
};

pub(crate) const STALE: Axes = Axes {
    name: "stale",
    about: "three calls that may read first, and read what is out of date",
    time: 3,
    delays: 1,
    endings: &[Ending::Complete, Ending::Unknown],
    settlements: &[Settling::Result, Settling::Rerun],
    acts: 1,
    stale: true,
    sightings: &[Sighting::Replay, Sighting::Settled],
    ..BASE
};

/// Everything at its smallest: what the explorations build on.
const BASE: Axes = Axes {
    name: "",
    about: "",
    calls: 3,
    callers: RERUNNING,
    time: 4,
    tick: 1000,
    lease: 1,
    window: 2,
    grace: 0,
    delays: 2,
    endings: &[Ending::Complete],
    renewals: 0,
    steps: 0,
    activity: false,
    settlements: &[],
    acts: 0,
    found: &[Found::Nothing],
    outsiders: &[],
    outside_acts: 0,
    stale: false,
    no_item: false,
    silent_limit: NO_LIMIT,
    sightings: &[],
};

const RERUN_CALLER: Caller = Caller {
    policy: Policy::Rerun,
    payload: None,
    ahead: 0,
    inspects: false,
    marks: false,
};

const HOLD_CALLER: Caller = Caller {
    policy: Policy::Hold,
    ..RERUN_CALLER
};

const MARKING_CALLER: Caller = Caller {
    marks: true,
    ..HOLD_CALLER
};

const RERUNNING: &[Caller] = &[RERUN_CALLER];
const HOLDING: &[Caller] = &[HOLD_CALLER];
const BOTH: &[Caller] = &[RERUN_CALLER, HOLD_CALLER];
const MARKING: &[Caller] = &[MARKING_CALLER, HOLD_CALLER];
const INSPECTING: &[Caller] = &[
    HOLD_CALLER,
    Caller {
        inspects: true,
        ..HOLD_CALLER
    },
];
const TWO_PAYLOADS: &[Caller] = &[
    Caller {
        payload: Some(1),
        ..RERUN_CALLER
    },
    Caller {
        payload: Some(2),
        ..RERUN_CALLER
    },
];
const SKEWED: &[Caller] = &[
    RERUN_CALLER,
    Caller {
        ahead: 1,
        ..RERUN_CALLER
    },
];

const EVERY_SETTLING: &[Settling] = &[
    Settling::Result,
    Settling::Rerun,
    Settling::RerunInNewGeneration,
    Settling::Forget,
];
