//! What a seed draws: who asks, how the clocks differ, and which faults this schedule knows.
//!
//! Every schedule leaves most kinds of faults out and has the others often. Random sequences of
//! everything at once rarely go deep: their faults undo each other.

use std::time::Duration;

use firstclaim::Config;
use firstclaim::record::Policy;

use super::call::{CallPlan, End, Found, Piece};
use super::random::Random;

/// What becomes of a request that waits in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// Not passed on; 500.
    Internal,
    /// Not passed on; the rate is limited.
    Throttled,
    /// Not passed on; the connection breaks.
    DropRequest,
    /// Passed on; the connection breaks.
    DropReply,
    /// Passed on twice; the second reply is the answer.
    Twice,
    /// Passed on; the reply comes when the schedule wants.
    HoldReply,
    /// The connection breaks; the request is passed on when the schedule wants.
    Later,
    /// Passed on and answered; a copy is passed on when the schedule wants.
    Copy,
    /// Passed on; a refusal comes without the item, as from an old engine.
    StripItem,
}

impl Fate {
    pub(crate) const ALL: [Self; 10] = [
        Self::Pass,
        Self::Internal,
        Self::Throttled,
        Self::DropRequest,
        Self::DropReply,
        Self::Twice,
        Self::HoldReply,
        Self::Later,
        Self::Copy,
        Self::StripItem,
    ];
}

/// How often each kind of thing happens, as weights.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) fates: [u64; 10],
    pub(crate) start: u64,
    pub(crate) deliver: u64,
    pub(crate) reply: u64,
    pub(crate) late: u64,
    pub(crate) gate: u64,
    pub(crate) clock: u64,
    /// A call's future is dropped.
    pub(crate) drop: u64,
    /// A process loses its memory and all its calls.
    pub(crate) crash: u64,
    /// TTL deletes a record whose window is over.
    pub(crate) ttl: u64,
    /// A person looks at the record, and later settles it.
    pub(crate) settle: u64,
    /// A person deletes the record, which no protocol allows for.
    pub(crate) remove: u64,
    /// Another tool goes on with its own record.
    pub(crate) foreign: u64,
    /// Another tool completes a record that is ours.
    pub(crate) trespass: u64,
}

/// A record of another tool that stands there from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Running,
    /// In progress, but the tool wrote no lease.
    WithoutLease,
    Lapsed,
    Completed,
    /// Its window ends before its lease.
    ShortWindow,
    /// Completed, and its window ends before the lease that it left behind.
    CompletedShortWindow,
}

/// A schedule, but for the order of things.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// Whether the SDK sends a call again.
    pub(crate) retries: bool,
    /// How many milliseconds each process's clock is off.
    pub(crate) offsets: Vec<i64>,
    pub(crate) calls: Vec<CallPlan>,
    pub(crate) weights: Weights,
    pub(crate) foreign: Option<Foreign>,
    /// How many things happen before the network heals.
    pub(crate) actions: u64,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let grace = random.pick(&[200, 500, 1000, 2000]).unwrap_or(1000);
        let config = config(random, grace);
        let processes = random.between(2, 4);
        // Any two clocks differ by less than the grace.
        let offsets = (0..processes).map(|_| match random.below(3) {
            0 => 0,
            1 => random.pick(&[-(grace / 2) + 1, grace / 2]).unwrap_or(0),
            _ => random.between(-(grace / 2) + 1, grace / 2),
        });
        let offsets: Vec<i64> = offsets.collect();
        let custom = Habits::draw(random);
        let calls = match random.below(4) {
            0 => 2,
            1 => 3,
            _ => random.between(2, 5),
        };
        let calls = (0..calls)
            .map(|number| {
                // Mostly each in another process: those of one process share one claim.
                let process = match random.chance(70) {
                    true => usize::try_from(number).unwrap_or(0) % offsets.len(),
                    false => random.index(offsets.len()),
                };
                call(random, &custom, grace, process)
            })
            .collect();
        let mut plan = Self {
            config,
            retries: random.chance(60),
            offsets,
            calls,
            foreign: random.chance(15).then(|| foreign(random)),
            weights: weights(random),
            actions: random.below(60) + 15,
        };
        match random.below(10) {
            0 => plan.slow_renewals(random),
            1 => plan.vanishing(random),
            _ => {}
        }
        plan
    }

    /// Owners that renew over a slow network while others wait for their leases to lapse.
    fn slow_renewals(&mut self, random: &mut Random) {
        for (number, call) in self.calls.iter_mut().enumerate() {
            call.process = number % self.offsets.len();
            call.policy = Policy::Rerun;
            call.renewed = Some(millis(random.between(4000, 11_000)));
            call.lease = self.config.grace + millis(random.between(500, 9000));
            call.deadline = false;
            call.inspect = None;
            call.attentive = random.chance(40);
            call.pieces = vec![Piece::Pause, Piece::Pause];
        }
        self.foreign = None;
        self.config.silent_limit = 5;
        let weights = &mut self.weights;
        weights.fates = [6, 0, 0, 1, 1, 0, 1, 4, 2, 0];
        (weights.deliver, weights.late, weights.clock) = (2, 2, 4);
        (weights.gate, weights.drop, weights.crash) = (1, 0, 0);
        (weights.settle, weights.remove, weights.trespass) = (0, 0, 0);
    }

    /// A record that goes away while its owner ends, and copies that bring it back.
    fn vanishing(&mut self, random: &mut Random) {
        for call in &mut self.calls {
            call.lease = self.config.grace + millis(random.between(4000, 9000));
            call.inspect = None;
        }
        self.calls.truncate(2);
        self.foreign = None;
        let weights = &mut self.weights;
        weights.fates = [8, 0, 0, 0, 1, 1, 0, 1, 4, 1];
        (weights.deliver, weights.late, weights.clock) = (4, 2, 1);
        (weights.remove, weights.ttl) = (2, 4);
        (weights.settle, weights.trespass, weights.drop) = (0, 0, 0);
    }

    /// Whether every call asks for `hold`.
    pub(crate) fn all_hold(&self) -> bool {
        self.calls.iter().all(|call| call.policy == Policy::Hold)
    }
}

fn config(random: &mut Random, grace: i64) -> Config {
    let longest = Duration::from_millis(12_000);
    let window = random.pick(&[13, 20, 40]).unwrap_or(20);
    Config {
        window: Duration::from_secs(window),
        grace: millis(grace),
        longest_lease: longest,
        silent_limit: random.pick(&[1, 2, 5]).unwrap_or(5),
        inline_limit: random.pick(&[64, 2048, 2048]).unwrap_or(2048),
        cache_bytes: if random.chance(50) { 1 << 20 } else { 0 },
        ..Config::default()
    }
}

/// What the calls of one schedule have in common.
struct Habits {
    /// `None`: each call its own.
    policy: Option<Policy>,
    payloads: u64,
    renewed: bool,
    inspects: bool,
    steps: bool,
    waits: bool,
    marks: bool,
}

impl Habits {
    fn draw(random: &mut Random) -> Self {
        Self {
            policy: random
                .pick(&[
                    Some(Policy::Rerun),
                    Some(Policy::Rerun),
                    Some(Policy::Hold),
                    Some(Policy::Hold),
                    None,
                ])
                .flatten(),
            payloads: random.below(3),
            renewed: random.chance(35),
            inspects: random.chance(20),
            steps: random.chance(40),
            waits: random.chance(20),
            marks: random.chance(25),
        }
    }
}

fn call(random: &mut Random, habits: &Habits, grace: i64, process: usize) -> CallPlan {
    let renewed = habits.renewed && random.chance(80);
    let lease = millis(grace + random.between(500, 6000));
    let mixed = random.pick(&[Policy::Rerun, Policy::Hold]);
    let pieces = (0..random.below(4)).filter_map(|_| match random.below(6) {
        0 | 1 if habits.steps => random.pick(&[Piece::Step("charge"), Piece::Step("mail")]),
        2 => Some(Piece::Activity),
        _ => Some(Piece::Pause),
    });
    let pieces = pieces.collect();
    let end = match random.below(10) {
        0 => End::Permanent,
        1 | 2 => End::DidNotHappen,
        3 | 4 => End::Unknown,
        5 => End::Panic,
        _ => End::Done {
            large: random.chance(20),
        },
    };
    CallPlan {
        process,
        policy: habits.policy.or(mixed).unwrap_or_default(),
        // Rarely none at all, where payloads matter.
        payload: (habits.payloads > 0 && random.chance(85))
            .then(|| u8::try_from(random.below(habits.payloads)).unwrap_or(0)),
        lease,
        deadline: !renewed && random.chance(40),
        renewed: renewed.then(|| millis(random.between(4000, 11_000))),
        wait: match habits.waits {
            true => millis(random.between(500, 9000)),
            false => Duration::ZERO,
        },
        redelivered: random.chance(15),
        marks: habits.marks && random.chance(70),
        inspect: (habits.inspects && random.chance(70))
            .then(|| random.pick(&[Found::NotYet, Found::Done, Found::Stale, Found::Failed]))
            .flatten(),
        pieces,
        attentive: random.chance(70),
        end,
    }
}

fn weights(random: &mut Random) -> Weights {
    let mut fates = Fate::ALL.map(|_| match random.chance(35) {
        true => random.below(6) + 1,
        false => 0,
    });
    fates[0] = random.below(12) + 4;
    // Where requests are slow, things overtake each other.
    let deliver = random.pick(&[2, 4, 8]).unwrap_or(8);
    let clock = random.pick(&[0, 1, 2, 4]).unwrap_or(2);
    let mut sometimes = |percent, weight| if random.chance(percent) { weight } else { 0 };
    Weights {
        fates,
        start: 3,
        deliver,
        reply: 1 + sometimes(70, 3),
        late: sometimes(30, 1) + sometimes(50, 3),
        gate: 3,
        clock,
        drop: sometimes(30, 1),
        crash: sometimes(20, 1),
        ttl: sometimes(70, 4),
        settle: sometimes(12, 3),
        remove: sometimes(7, 2),
        foreign: 2,
        trespass: sometimes(6, 3),
    }
}

fn foreign(random: &mut Random) -> Foreign {
    let kinds = [
        Foreign::Running,
        Foreign::WithoutLease,
        Foreign::Lapsed,
        Foreign::Completed,
        Foreign::ShortWindow,
        Foreign::CompletedShortWindow,
    ];
    random.pick(&kinds).unwrap_or(Foreign::Running)
}

fn millis(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}
