//! The machine that stateright explores: which actions there are in a state, and what each does.

use std::sync::Arc;

use firstclaim::Record;
use firstclaim::clock::{EpochMillis, EpochSeconds};
use firstclaim::protocol::{Intent, Request, Seen, Settlement, Write, window_end};
use firstclaim::record::{Data, Origin, Settled, Status};
use stateright::{Model, Property};

use crate::axes::{Axes, Outsider, Settling};
use crate::call::{Known, Question};
use crate::holder::Step;
use crate::pool::{Memo, Pools, Ref};
use crate::properties::{self, Welcome};
use crate::removal::{Guard, Removed};
use crate::state::{Errand, Ghost, Phase, State, Told, Who};
use crate::store::Effect;

/// The protocol for one key within the bounds of its axes, whole or with something taken away.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) axes: Axes,
    pub(crate) removed: Removed,
    pub(crate) pools: Arc<Pools>,
    pub(crate) effects: Memo<(Option<Ref<Record>>, Ref<Write>), Effect>,
    pub(crate) decisions: Memo<Question, Known>,
    pub(crate) newcomers: Memo<(Option<Ref<Record>>, u8), Welcome>,
}

/// One step of anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The clock goes on.
    Tick,
    /// The item's window is over, and the TTL deletes it.
    Expire,
    /// Another call begins.
    Start {
        /// Which of the callers it is.
        caller: u8,
        /// Whether it reads first, and reads an older version.
        stale: bool,
        pause: Pause,
    },
    /// A holder goes on.
    Work(usize, Step, Pause),
    /// An operator settles what is there.
    Settle(Settling, Pause),
    /// Somebody who was disturbed goes on.
    Resume(Who, Pause),
    /// A copy that went astray reaches the store.
    Arrive(Ref<Write>),
    /// Somebody does something to the item without asking.
    Outside(Outsider),
}

/// Where the exchange with the store that an action begins is disturbed: before its point of that
/// number, or nowhere.
///
/// The points are: a write goes out (disturbed, a copy of it goes astray, and the sender must send
/// it again), its answer is heard (disturbed, later), a record is read (disturbed, later). Nobody
/// has to go on after a disturbance: that is a crash. What is not disturbed happens at once.
pub(crate) type Pause = Option<u8>;

/// An exchange has at most so many points: rounds are bounded.
const POINTS: u8 = 8;

impl Machine {
    pub(crate) fn new(axes: Axes, removed: Removed, pools: Arc<Pools>) -> Self {
        Self {
            axes,
            removed,
            pools,
            effects: Memo::default(),
            decisions: Memo::default(),
            newcomers: Memo::default(),
        }
    }

    fn everybody(state: &State) -> impl Iterator<Item = Who> + use<> {
        let calls = (0..state.calls.len()).map(Who::Call);
        calls.chain((0..state.acts.len()).map(Who::Act))
    }

    /// How many points the exchange has that `begin` starts.
    fn points(&self, state: &State, who: Who, begin: impl FnOnce(&mut State) -> Option<()>) -> u8 {
        let mut state = state.clone();
        if begin(&mut state).is_none() {
            return 0;
        }
        let mut points = 0;
        while points < POINTS && self.step(&mut state, who).is_some() {
            points += 1;
        }
        points
    }

    /// Goes on with an exchange, up to the point where it is disturbed, or to its end. `None` where
    /// it has fewer points.
    fn proceed(&self, state: &mut State, who: Who, pause: Pause) -> Option<()> {
        for point in 0..POINTS {
            if pause == Some(point) {
                let errand = state.phase(who).errand()?;
                state.delays_left -= 1;
                if let Phase::Sending(_) = state.phase(who) {
                    state.astray.push(errand.write);
                    state.astray.sort_unstable();
                }
                return Some(());
            }
            if self.step(state, who).is_none() {
                return pause.is_none().then_some(());
            }
        }
        state.set_phase(who, Phase::Ended(Told::Nothing));
        pause.is_none().then_some(())
    }

    /// Takes an exchange to its next point. `None` where there is none on its way.
    fn step(&self, state: &mut State, who: Who) -> Option<()> {
        match state.phase(who).clone() {
            Phase::Sending(errand) => {
                let landing = self.land(state, errand.write);
                state.set_phase(who, Phase::Answered(errand, landing));
            }
            Phase::Answered(errand, landing) => self.hear(state, who, errand, landing),
            Phase::Reading(errand) => {
                let met = state.item;
                self.decide(state, who, errand, met);
            }
            Phase::Working | Phase::Ended(_) => return None,
        }
        Some(())
    }

    /// The end of a window that starts now and holds this lease.
    pub(crate) fn window_end(&self, now: EpochMillis, lease: EpochMillis) -> EpochSeconds {
        window_end(now, self.axes.ticks(self.axes.window), lease)
    }

    /// An operator has looked at the item and settles it as it was.
    fn settle(&self, state: &mut State, settling: Settling) -> Option<()> {
        let record = state.item?;
        let who = Who::Act(state.acts.len());
        let now = self.axes.at(state.now);
        let end = self.window_end(now, now);
        let fresh = !self.removed.has(Guard::FreshOwner);
        let owner = match &record.owner {
            Some(owner) if !fresh => owner.clone(),
            _ => who.owner(),
        };
        let write = self.pools.writes.keep(Write::Settle {
            seen: Seen::of(&record),
            owner,
            settlement: match settling {
                Settling::Result => Settlement::Result(Data::Inline("\"settled\"".to_owned())),
                Settling::Rerun | Settling::RerunInNewGeneration => Settlement::Rerun {
                    new_generation: settling == Settling::RerunInNewGeneration,
                },
                Settling::Forget => Settlement::Forget,
            },
            settled: Settled {
                who: String::new(),
                at: EpochMillis(0),
                why: String::new(),
                attempt: record.attempt.saturating_add(1),
            },
            expiration: record.expiration.map_or(end, |seen| seen.max(end)),
        });
        let request = self.pools.requests.keep(Request::Owned(Intent {
            write: (*write).clone(),
            restore_until: EpochMillis(0),
            restore: None,
        }));
        state.acts.push(Phase::Sending(Errand { request, write }));
        Some(())
    }

    fn outside(&self, state: &mut State, outsider: Outsider) -> Option<()> {
        let record = state.item?;
        let now = self.axes.at(state.now);
        let theirs = record.owner.is_none();
        let lapsed = record.status == Status::InProgress && !record.running(now);
        state.item = match outsider {
            Outsider::Delete => None,
            Outsider::CompleteLate if record.status == Status::InProgress => {
                Some(self.pools.records.keep(Record {
                    status: Status::Completed,
                    data: Some(Data::Inline("\"theirs\"".to_owned())),
                    expiration: Some(self.window_end(now, now)),
                    ..(*record).clone()
                }))
            }
            Outsider::ClaimOwnAgain if theirs && lapsed => Some(self.pools.records.keep(Record {
                lease: Some(now.after(self.axes.ticks(self.axes.lease))),
                expiration: Some(self.window_end(now, now)),
                origin: Origin::default(),
                ..(*record).clone()
            })),
            Outsider::CompleteLate | Outsider::ClaimOwnAgain => return None,
        };
        state.outside_left -= 1;
        state.ghost.released = false;
        // Nobody promised anything to the owner of an item that others write to.
        state.ghost.voided |= state.ghost.owners;
        if state.item.is_none() {
            // Nobody can know any more who has superseded whom.
            state.ghost = Ghost {
                faults: state.ghost.faults,
                relied: state.ghost.relied,
                owners: state.ghost.owners,
                voided: state.ghost.voided,
                ..Ghost::default()
            };
        }
        Some(())
    }
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let found = self.axes.found.iter().map(|found| State {
            now: 0,
            item: self
                .axes
                .left_behind(*found)
                .map(|record| self.pools.records.keep(record)),
            before: None,
            calls: Vec::new(),
            acts: Vec::new(),
            astray: Vec::new(),
            delays_left: self.axes.delays,
            outside_left: self.axes.outside_acts,
            ghost: Ghost::default(),
        });
        found.collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let axes = &self.axes;
        if state.now < axes.time {
            actions.push(Action::Tick);
        }
        if state
            .item
            .is_some_and(|record| !record.in_window(axes.at(state.now)))
        {
            actions.push(Action::Expire);
        }
        // Every exchange goes through undisturbed, or is disturbed at one of its points.
        let pauses = |from: u8, who: Who, begin: &dyn Fn(&mut State) -> Option<()>| {
            let points = match state.delays_left {
                0 => 0,
                _ => self.points(state, who, begin),
            };
            std::iter::once(None).chain((from..points).map(Some))
        };
        if state.calls.len() < axes.calls {
            let who = Who::Call(state.calls.len());
            for caller in (0..).take(axes.callers.len()) {
                for stale in [false, true] {
                    if stale && !(axes.stale && state.before.is_some()) {
                        continue;
                    }
                    let begin = |next: &mut State| {
                        self.start(next, caller, stale);
                        Some(())
                    };
                    actions.extend(pauses(0, who, &begin).map(|pause| Action::Start {
                        caller,
                        stale,
                        pause,
                    }));
                }
            }
        }
        for who in Self::everybody(state) {
            let phase = state.phase(who);
            if phase.errand().is_some() {
                // A write can be sent again and go astray again; hearing and reading can only be
                // put off once.
                let from = u8::from(!matches!(phase, Phase::Sending(_)));
                let pauses = pauses(from, who, &|_| Some(()));
                actions.extend(pauses.map(|pause| Action::Resume(who, pause)));
            }
        }
        for place in 0..state.calls.len() {
            self.steps(state, place, |step| {
                let begin = |next: &mut State| {
                    self.work(next, place, step);
                    Some(())
                };
                let pauses = pauses(0, Who::Call(place), &begin);
                actions.extend(pauses.map(|pause| Action::Work(place, step, pause)));
            });
        }
        if state.item.is_some() && state.acts.len() < usize::from(axes.acts) {
            let who = Who::Act(state.acts.len());
            for settling in axes.settlements {
                let begin = |next: &mut State| self.settle(next, *settling);
                let pauses = pauses(0, who, &begin);
                actions.extend(pauses.map(|pause| Action::Settle(*settling, pause)));
            }
        }
        let mut seen = None;
        for write in &state.astray {
            // A copy that would be refused now changes nothing by arriving.
            if seen != Some(*write) && self.would_land(state, *write) {
                actions.push(Action::Arrive(*write));
            }
            seen = Some(*write);
        }
        if state.item.is_some() && state.outside_left > 0 {
            actions.extend(axes.outsiders.iter().copied().map(Action::Outside));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Expire => {
                state.before = state.item.filter(|_| self.axes.stale);
                state.item = None;
                state.ghost.released = false;
            }
            Action::Start {
                caller,
                stale,
                pause,
            } => {
                let who = Who::Call(state.calls.len());
                self.start(&mut state, caller, stale);
                self.proceed(&mut state, who, pause)?;
            }
            Action::Work(place, step, pause) => {
                self.work(&mut state, place, step);
                self.proceed(&mut state, Who::Call(place), pause)?;
            }
            Action::Settle(settling, pause) => {
                let who = Who::Act(state.acts.len());
                self.settle(&mut state, settling)?;
                self.proceed(&mut state, who, pause)?;
            }
            Action::Resume(who, pause) => self.proceed(&mut state, who, pause)?,
            Action::Arrive(write) => {
                let place = state.astray.iter().position(|astray| *astray == write)?;
                state.astray.remove(place);
                self.land(&mut state, write);
            }
            Action::Outside(outsider) => self.outside(&mut state, outsider)?,
        }
        state.forget(&self.axes);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.axes)
    }

    fn within_boundary(&self, state: &State) -> bool {
        // Where the use of one part is to be proved, only what needs it gone is looked at.
        self.removed.proof().is_none() || state.ghost.relied || properties::all_hold(self, state)
    }
}
