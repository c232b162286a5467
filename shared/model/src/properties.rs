//! The protocol's invariants as properties, and what must be reachable.

use firstclaim::Record;
use firstclaim::clock::EpochMillis;
use firstclaim::protocol::{Decision, Request, Terms, Verdict, Write, decide_without};
use firstclaim::record::{Origin, Policy, Status};
use stateright::Property;

use crate::axes::Axes;
use crate::machine::Machine;
use crate::pool::Ref;
use crate::state::{Call, Fault, Holding, Phase, State, Told, Who};
use crate::store::step_name;

/// How many writes a newcomer whom nothing disturbs may need: claim, takeover, and one to spare.
const NEWCOMERS_ROUNDS: usize = 3;

type Check = fn(&Machine, &State) -> bool;

/// The invariants of the protocol's page by number; where one needs several checks, each has a
/// line.
const INVARIANTS: &[(&str, Check)] = &[
    ("1 one live owner", |machine, state| {
        let live =
            (0..state.calls.len()).filter(|place| live_holder(machine, state, *place).is_some());
        live.count() <= 1
    }),
    (
        "1 an owner's write is accepted from nobody else",
        |_, state| clear(state, Fault::OwnersWriteByAnother),
    ),
    ("1 nobody takes a running claim", |_, state| {
        clear(state, Fault::RunningClaimTaken)
    }),
    (
        "2 a stored result stands to the end of its window",
        |_, state| clear(state, Fault::ResultChanged),
    ),
    ("2 nobody shortens another's window", |_, state| {
        clear(state, Fault::WindowShortened)
    }),
    ("2 no answer comes from another window", |_, state| {
        clear(state, Fault::AnswerOfAnotherWindow)
    }),
    ("2 no answer is to another payload", |_, state| {
        clear(state, Fault::AnswerOfAnotherPayload)
    }),
    ("2 an answer says what the record says", |_, state| {
        clear(state, Fault::FalseAnswer)
    }),
    (
        "3 the attempt rises with each owner of a window",
        |_, state| clear(state, Fault::AttemptNotRaised),
    ),
    ("4 a superseded owner changes nothing", |_, state| {
        clear(state, Fault::SupersededWrote)
    }),
    ("5 nobody but the owner ends a claim", |_, state| {
        clear(state, Fault::EndedByAnother)
    }),
    (
        "6 no key stays locked longer than its lease",
        |machine, state| {
            newcomers(machine, state, |expected, got| {
                expected.is_some() || got == Some(None)
            })
        },
    ),
    ("2 a newcomer gets the record's answer", |machine, state| {
        newcomers(machine, state, |expected, got| {
            expected.is_none() || got == Some(expected)
        })
    }),
    ("6 takeovers are bounded", |_, state| {
        clear(state, Fault::TooManySilentAttempts)
    }),
    ("7 no owner is told that it is a stranger", |_, state| {
        clear(state, Fault::OwnerDisowned)
    }),
    ("7 no stranger is told that it owns", |_, state| {
        clear(state, Fault::StrangerOwns)
    }),
    ("8 entered at most once under hold", |_, state| {
        clear(state, Fault::EnteredTwiceUnderHold)
    }),
    ("9 one downstream key in a generation", |_, state| {
        clear(state, Fault::OtherGeneration)
    }),
    ("10 an acknowledged lease stands", |machine, state| {
        (0..state.calls.len()).all(|place| match live_holder(machine, state, place) {
            Some(holding) => state.item.is_some_and(|record| {
                record.owner == Some(Who::Call(place).owner())
                    && record.status == Status::InProgress
                    && record.lease >= Some(holding.lease)
            }),
            None => true,
        })
    }),
    (
        "10 a release is changed by nobody but the next owner",
        |_, state| clear(state, Fault::ReleaseUndone),
    ),
    ("10 a recorded step stays", |machine, state| {
        let now = machine.axes.at(state.now);
        let Some(record) = state.item.filter(|record| record.in_window(now)) else {
            return true;
        };
        let steps = state.ghost.steps.iter().enumerate();
        steps
            .filter(|(_, writer)| **writer != 0)
            .all(|(step, writer)| {
                let text = record.checkpoints.get(&step_name(step));
                text.is_some_and(|text| Who::bit_of_text(text) == *writer)
            })
    }),
    ("10 a settlement changes what was shown", |_, state| {
        clear(state, Fault::SettledUnseen)
    }),
    ("11 nobody enters on a lease that has passed", |_, state| {
        clear(state, Fault::EnteredTooLate)
    }),
];

/// What an exploration must get to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    Recorded,
    Failed,
    Replay,
    InProgress,
    Held,
    Mismatch,
    Superseded,
    Released,
    Suspended,
    Takeover,
    ThirdAttempt,
    SecondWindow,
    Renewed,
    StepKept,
    Restored,
    Settled,
    RunAfterSettlement,
    SecondGeneration,
    InspectedWithoutEntry,
    RecordedByInspection,
    TheirsTakenOver,
    EnteredAfterTheMark,
    UntouchedTakenOver,
}

impl Sighting {
    fn property(self) -> (&'static str, Check) {
        match self {
            Self::Recorded => ("sees a recorded end", |_, state| {
                told(state, Told::Recorded)
            }),
            Self::Failed => ("sees a stored failure", |_, state| {
                state
                    .item
                    .is_some_and(|record| record.status == Status::Failed)
            }),
            Self::Replay => ("sees a replay", |_, state| answered(state, Verdict::Final)),
            Self::InProgress => ("sees one in flight", |_, state| {
                answered(state, Verdict::InProgress)
            }),
            Self::Held => ("sees a held key", |_, state| answered(state, Verdict::Held)),
            Self::Mismatch => ("sees a mismatch", |_, state| {
                answered(state, Verdict::Mismatch)
            }),
            Self::Superseded => ("sees a superseded owner", |_, state| {
                told(state, Told::Superseded)
            }),
            Self::Released => ("sees a release", |_, state| told(state, Told::Released)),
            Self::Suspended => ("sees a suspension", |_, state| told(state, Told::Suspended)),
            Self::Takeover => ("sees a takeover at work", |_, state| {
                holds(state, |holding| holding.record.attempt == 2)
            }),
            Self::ThirdAttempt => ("sees a third attempt", |_, state| {
                holds(state, |holding| holding.record.attempt == 3)
            }),
            Self::SecondWindow => ("sees a second window", |_, state| {
                state.item.is_some_and(|record| {
                    record.attempt == 1
                        && holds(state, |holding| {
                            holding.record.attempt == 1 && holding.record.owner != record.owner
                        })
                })
            }),
            Self::Renewed => ("sees a renewed lease", |_, state| {
                holds(state, |holding| holding.record.lease < Some(holding.lease))
            }),
            Self::StepKept => ("sees a step that a later attempt finds", |_, state| {
                holds(state, |holding| !holding.record.checkpoints.is_empty())
            }),
            Self::Restored => ("sees a restored record", |_, state| {
                told(state, Told::Restored)
            }),
            Self::Settled => ("sees a settled result", |_, state| {
                state.item.is_some_and(|record| {
                    record.settled.is_some() && record.status == Status::Completed
                })
            }),
            Self::RunAfterSettlement => ("sees a settled key run again", |_, state| {
                holds(state, |holding| holding.record.settled.is_some())
            }),
            Self::SecondGeneration => ("sees a second generation at work", |_, state| {
                holds(state, |holding| holding.record.generation == 1)
            }),
            Self::InspectedWithoutEntry => ("sees an inspection that may not enter", |_, state| {
                holds(state, |holding| !holding.enters)
            }),
            Self::RecordedByInspection => ("sees an inspection that finds a result", |_, state| {
                told(state, Told::Found)
            }),
            Self::TheirsTakenOver => ("sees another tool's record taken over", |_, state| {
                holds(state, |holding| holding.record.attempt == 2) && state.calls.len() == 1
            }),
            Self::EnteredAfterTheMark => ("sees an entry that was said first", |_, state| {
                holds(state, |holding| {
                    holding.record.untouched() && holding.entered
                })
            }),
            Self::UntouchedTakenOver => (
                "sees a claim lost before its entry run again",
                |_, state| {
                    let released = told(state, Told::Released);
                    !released
                        && holds(state, |holding| {
                            holding.record.attempt == 2
                                && holding.entered
                                && holding.record.untouched()
                        })
                },
            ),
        }
    }
}

/// The properties of one exploration.
pub(crate) fn of(axes: &Axes) -> Vec<Property<Machine>> {
    let always = INVARIANTS
        .iter()
        .map(|(name, check)| Property::always(name, *check));
    let sometimes = axes.sightings.iter().map(|sighting| {
        let (name, check) = sighting.property();
        Property::sometimes(name, check)
    });
    always.chain(sometimes).collect()
}

/// Whether no invariant is broken.
pub(crate) fn all_hold(machine: &Machine, state: &State) -> bool {
    INVARIANTS.iter().all(|(_, check)| check(machine, state))
}

fn clear(state: &State, fault: Fault) -> bool {
    !state.ghost.noted(fault)
}

fn told(state: &State, told: Told) -> bool {
    state
        .calls
        .iter()
        .any(|call| call.phase == Phase::Ended(told))
}

fn answered(state: &State, verdict: Verdict) -> bool {
    told(state, Told::Answer(verdict))
}

fn holds(state: &State, what: impl Fn(&Holding) -> bool) -> bool {
    let working = |call: &Call| call.phase == Phase::Working;
    let held = |call: &Call| call.holding.is_some_and(|holding| what(&holding));
    state.calls.iter().any(|call| working(call) && held(call))
}

/// What a call holds that has acquired, has not begun to end, and may act by its own clock; unless
/// somebody has taken the key from it without asking.
fn live_holder(machine: &Machine, state: &State, place: usize) -> Option<Holding> {
    let call = &state.calls[place];
    let holding = call.holding?;
    let holds = match call.phase.errand() {
        Some(errand) => match &*errand.request {
            Request::Owned(intent) => !matches!(
                intent.write,
                Write::Finish { .. } | Write::Suspend { .. } | Write::Release { .. }
            ),
            Request::Acquire(_) => false,
        },
        None => call.phase == Phase::Working,
    };
    let voided = state.ghost.voided & Who::Call(place).bit() != 0;
    (holds && !voided && machine.alive(state, place, &holding)).then_some(holding)
}

/// What newcomers should get and do get: under `rerun` and under `hold`.
pub(crate) type Welcome = [(Option<Verdict>, Option<Option<Verdict>>); 2];

fn newcomers(
    machine: &Machine,
    state: &State,
    right: impl Fn(Option<Verdict>, Option<Option<Verdict>>) -> bool,
) -> bool {
    let welcome = machine
        .newcomers
        .get((state.item, state.now), |(item, now)| {
            let now = machine.axes.at(*now);
            [Policy::Rerun, Policy::Hold].map(|policy| {
                let expected = expected(machine, item.as_deref(), policy, now);
                (expected, newcomer(machine, *item, policy, now))
            })
        });
    welcome
        .into_iter()
        .all(|(expected, got)| right(expected, got))
}

/// What a newcomer should get whom nothing disturbs: `None`, the claim, unless a result answers,
/// somebody is at it within a lease, or `hold` forbids it.
fn expected(
    machine: &Machine,
    item: Option<&Record>,
    policy: Policy,
    now: EpochMillis,
) -> Option<Verdict> {
    match item? {
        record if record.running(now) => Some(Verdict::InProgress),
        record if !record.in_window(now) => None,
        record if record.status != Status::InProgress => Some(Verdict::Final),
        record if record.released() => None,
        record if record.lease.is_none() => Some(Verdict::InProgress),
        record => {
            let hold = policy == Policy::Hold || record.policy == Policy::Hold;
            let untouched = record.unentered == Some(record.attempt);
            let held =
                (hold && !untouched) || record.silent_attempts() >= machine.axes.silent_limit;
            held.then_some(Verdict::Held)
        }
    }
}

/// What a newcomer gets: `Some(None)` the claim, `Some(Some(_))` an answer, `None` neither.
fn newcomer(
    machine: &Machine,
    item: Option<Ref<Record>>,
    policy: Policy,
    now: EpochMillis,
) -> Option<Option<Verdict>> {
    let lease = now.after(machine.axes.ticks(machine.axes.lease));
    let terms = Terms {
        id: String::new(),
        owner: firstclaim::Owner::new("newcomer"),
        lease,
        ends: lease,
        window: machine.axes.ticks(machine.axes.window),
        policy,
        fingerprint: None,
        activity: None,
        origin: Origin::default(),
        silent_limit: machine.axes.silent_limit,
        inspects: false,
        marks: false,
    };
    let mut write = machine.pools.writes.keep(terms.claim(now));
    let request = Request::Acquire(terms);
    for _ in 0..NEWCOMERS_ROUNDS {
        if machine.accepts(item, write) {
            return Some(None);
        }
        match decide_without(machine.removed.rule(), item.as_deref(), &request, now) {
            Decision::Done | Decision::TooLate => return None,
            Decision::Answer(verdict) => return Some(Some(verdict)),
            Decision::Send(next) => write = machine.pools.writes.keep(*next),
        }
    }
    None
}
