//! The state of an exploration: the item, the calls, the network, and what an onlooker remembers.

use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::protocol::{Request, Verdict, Write};
use firstclaim::record::Policy;
use firstclaim::{Owner, Record};

use crate::axes::{Axes, Found, NO_LIMIT};
use crate::pool::Ref;

/// Everything that is explored. A crash needs no mark: a process that crashes is one that never
/// takes its next step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The tick.
    pub(crate) now: u8,
    /// The item in the table.
    pub(crate) item: Option<Ref<Record>>,
    /// The item before its last change; kept only where stale reads are explored.
    pub(crate) before: Option<Ref<Record>>,
    /// The calls in the order of their start; each has the owner token of its place.
    pub(crate) calls: Vec<Call>,
    /// The operator's acts in their order.
    pub(crate) acts: Vec<Phase>,
    /// Copies of writes that may still reach the store, sorted.
    pub(crate) astray: Vec<Ref<Write>>,
    /// How many more disturbances there may be.
    pub(crate) delays_left: u8,
    /// How often outsiders may still act.
    pub(crate) outside_left: u8,
    /// What an onlooker remembers.
    pub(crate) ghost: Ghost,
}

/// One claim call and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    /// Which of the callers it is.
    pub(crate) caller: u8,
    /// What it is at.
    pub(crate) phase: Phase,
    /// What it holds, once it has acquired.
    pub(crate) holding: Option<Holding>,
}

/// What a call is at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// A write is on its way, or its reply.
    Sending(Errand),
    /// The store has answered, which is not heard yet.
    Answered(Errand, Landing),
    /// A refusal brought no item: it is read.
    Reading(Errand),
    /// It holds the claim, and the operation (or the inspection) runs.
    Working,
    /// It is over.
    Ended(Told),
}

impl Phase {
    /// The errand, if one is on its way.
    pub(crate) fn errand(&self) -> Option<Errand> {
        match self {
            Self::Sending(errand) | Self::Answered(errand, _) | Self::Reading(errand) => {
                Some(*errand)
            }
            Self::Working | Self::Ended(_) => None,
        }
    }
}

/// A request and the write that it has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Errand {
    pub(crate) request: Ref<Request>,
    pub(crate) write: Ref<Write>,
}

/// What the store made of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Landing {
    Applied(Option<Ref<Record>>),
    Refused(Option<Ref<Record>>),
}

/// A claim that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    /// The record as it was acquired.
    pub(crate) record: Ref<Record>,
    /// The lease that was acknowledged last.
    pub(crate) lease: EpochMillis,
    /// Whether the holder was told that the claim is lost.
    pub(crate) lost: bool,
    /// The end of the window that was read or written last.
    pub(crate) window_end: EpochSeconds,
    /// Whether the operation may be entered.
    pub(crate) enters: bool,
    /// Whether it was entered: at once, unless that is said first.
    pub(crate) entered: bool,
    /// How often it was renewed.
    pub(crate) renewals: u8,
    /// The steps that were recorded, as bits.
    pub(crate) steps: u8,
}

/// What a caller was told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    /// The operation's end is stored: completed or failed.
    Recorded,
    /// The same, where the record was gone.
    Restored,
    /// The same, by somebody who did not enter.
    Found,
    /// Released: acknowledged.
    Released,
    /// Suspended: acknowledged.
    Suspended,
    /// Its own write came too late.
    Superseded,
    /// The record's answer.
    Answer(Verdict),
    /// Nothing that it could act on.
    Nothing,
}

/// What an onlooker remembers, who sees every write as it reaches the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// What went wrong, as bits of [`Fault`].
    pub(crate) faults: u32,
    /// Whether a write went through, or a decision fell, only because the part under proof was
    /// taken away.
    pub(crate) relied: bool,
    /// Tokens that have owned the key.
    pub(crate) owners: u8,
    /// Tokens that have owned the key before its last owner.
    pub(crate) past: u8,
    /// Tokens whose claim an operator or an outsider has ended behind their back.
    pub(crate) voided: u8,
    /// The record's owner has released it.
    pub(crate) released: bool,
    /// Somebody entered in this window, and nobody has released since.
    pub(crate) entered: bool,
    /// Somebody entered under `hold` in this window, and it was not said since that it did not
    /// happen.
    pub(crate) entered_under_hold: bool,
    /// Attempts in a row that have not said a word.
    pub(crate) silent: u8,
    /// Settlements of this window that asked for a new generation.
    pub(crate) generation: u8,
    /// For each step, the bit of the token whose value was recorded first in this window.
    pub(crate) steps: [u8; 2],
}

/// What an onlooker can see going wrong at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    OwnersWriteByAnother,
    RunningClaimTaken,
    ResultChanged,
    ReleaseUndone,
    WindowShortened,
    AnswerOfAnotherWindow,
    AnswerOfAnotherPayload,
    AttemptNotRaised,
    SupersededWrote,
    EndedByAnother,
    FalseAnswer,
    OwnerDisowned,
    StrangerOwns,
    EnteredTwiceUnderHold,
    TooManySilentAttempts,
    OtherGeneration,
    SettledUnseen,
    EnteredTooLate,
}

impl Ghost {
    pub(crate) fn note(&mut self, fault: Fault) {
        self.faults |= 1 << (fault as u32);
    }

    pub(crate) fn noted(self, fault: Fault) -> bool {
        self.faults & (1 << (fault as u32)) != 0
    }
}

impl State {
    pub(crate) fn phase(&self, who: Who) -> &Phase {
        match who {
            Who::Call(place) => &self.calls[place].phase,
            Who::Act(place) => &self.acts[place],
        }
    }

    pub(crate) fn set_phase(&mut self, who: Who, phase: Phase) {
        match who {
            Who::Call(place) => self.calls[place].phase = phase,
            Who::Act(place) => self.acts[place] = phase,
        }
    }

    /// Forgets what can't matter any more: what an onlooker knows of tokens whose calls are over
    /// and of which no copy is on its way.
    pub(crate) fn forget(&mut self, axes: &Axes) {
        if axes
            .callers
            .iter()
            .all(|caller| caller.policy == Policy::Rerun)
        {
            self.ghost.entered = false;
        }
        if axes.silent_limit >= NO_LIMIT {
            self.ghost.silent = 0;
        }
        let calls = self.calls.iter().enumerate();
        let calls = calls.map(|(place, call)| (Who::Call(place), &call.phase));
        let acts = self.acts.iter().enumerate();
        let acts = acts.map(|(place, phase)| (Who::Act(place), phase));
        let over = calls
            .chain(acts)
            .filter(|(_, phase)| matches!(phase, Phase::Ended(_)))
            .map(|(who, _)| who.bit())
            .sum::<u8>();
        let astray = self.astray.iter().filter_map(|write| write.owner());
        let gone = over & !astray.fold(0, |bits, owner| bits | Who::bit_of(owner));
        self.ghost.past &= !gone;
        self.ghost.voided &= !gone;
        let owner = self
            .item
            .and_then(|record| record.owner.as_ref().map(Who::bit_of));
        let owner = owner.unwrap_or(0);
        self.ghost.owners &= !gone | owner;
    }
}

/// The fingerprint that another tool leaves: of any payload, and made in its own way.
pub(crate) fn fingerprint_of_theirs() -> firstclaim::Fingerprint {
    firstclaim::Fingerprint::of_raw(b"made in another way")
}

/// A call or an operator's act, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Call(usize),
    Act(usize),
}

impl Who {
    const CALLS: [&'static str; 4] = ["a", "b", "c", "d"];
    const ACTS: [&'static str; 3] = ["x", "y", "z"];

    /// Its owner token.
    pub(crate) fn owner(self) -> Owner {
        Owner::new(match self {
            Self::Call(place) => Self::CALLS[place],
            Self::Act(place) => Self::ACTS[place],
        })
    }

    /// Its bit in the sets of the [`Ghost`].
    pub(crate) fn bit(self) -> u8 {
        match self {
            Self::Call(place) => 1 << place,
            Self::Act(place) => 1 << (Self::CALLS.len() + place),
        }
    }

    /// The bit of the token that is quoted in a step's text.
    pub(crate) fn bit_of_text(text: &str) -> u8 {
        Self::bit_of(&Owner::new(text.trim_matches('"')))
    }

    /// The bit of a token.
    pub(crate) fn bit_of(owner: &Owner) -> u8 {
        let token = owner.expose();
        let place = Self::CALLS
            .iter()
            .chain(&Self::ACTS)
            .position(|known| *known == token);
        place.map_or(0, |place| 1 << place)
    }
}

impl Axes {
    /// A tick as an instant. Ticks start at an instant that is far from the leases that mean
    /// *released* and *suspended*.
    pub(crate) fn at(&self, tick: u8) -> EpochMillis {
        EpochMillis(100_000 + i64::from(tick) * i64::from(self.tick))
    }

    /// A number of ticks as a duration.
    pub(crate) fn ticks(&self, ticks: u8) -> std::time::Duration {
        std::time::Duration::from_millis(u64::from(ticks) * u64::from(self.tick))
    }

    /// The time by the clock of a call, or an operator's.
    pub(crate) fn clock(&self, state: &State, who: Who) -> EpochMillis {
        let now = self.at(state.now);
        match who {
            Who::Call(place) => {
                let ahead = self.callers[usize::from(state.calls[place].caller)].ahead;
                EpochMillis(now.0 + i64::from(ahead) * i64::from(self.tick))
            }
            Who::Act(_) => now,
        }
    }

    /// The time by the fastest clock: what may count as over for somebody.
    pub(crate) fn fastest(&self, now: u8) -> EpochMillis {
        let ahead = self.callers.iter().map(|caller| caller.ahead).max();
        EpochMillis(self.at(now).0 + i64::from(ahead.unwrap_or(0)) * i64::from(self.tick))
    }

    /// What another tool has left.
    pub(crate) fn left_behind(&self, found: Found) -> Option<Record> {
        use firstclaim::record::{Data, Status};
        let (status, lease, end) = match found {
            Found::Nothing => return None,
            Found::Running => (Status::InProgress, Some(1), self.window),
            Found::WithoutLease => (Status::InProgress, None, 1),
            Found::LeaseBeyondWindow => (Status::InProgress, Some(3), 1),
            Found::Completed => (Status::Completed, Some(3), 1),
        };
        Some(Record {
            id: String::new(),
            status,
            expiration: Some(self.at(end).seconds()),
            lease: lease.map(|tick| self.at(tick)),
            owner: None,
            attempt: 1,
            policy: Policy::Rerun,
            unentered: None,
            generation: 0,
            fingerprint: Some(fingerprint_of_theirs()),
            data: (status == Status::Completed).then(|| Data::Inline("\"theirs\"".to_owned())),
            checkpoints: std::collections::BTreeMap::new(),
            activity: None,
            error: None,
            origin: firstclaim::record::Origin::default(),
            settled: None,
        })
    }
}
