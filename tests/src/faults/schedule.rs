//! One schedule: owners, their network and their clock, moved step by step.
//!
//! The futures of all calls are polled here, by hand, and only until none of them can go on: they
//! wait for an answer, for the clock or for their operation's gate. Then one thing happens, which
//! the seed chooses. The only real input and output is the exchange with the engine, and that is
//! waited for before anything else happens.

mod network;
mod others;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, ManualSource, Source};
use firstclaim::record::Policy;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, Config, Key};

use super::call::{Call, CallPlan, End, Ended, Gate, Ledger};
use super::mutant::Mutant;
use super::oracle::Oracle;
use super::plan::{Fate, Plan};
use super::random::Random;
use super::state::Shown;
use super::wire::{CallSource, Message, Tapped, Waiting};
use super::world::World;
use network::Reply;

/// When every schedule begins, in epoch milliseconds: far from any engine's own clock.
const START: i64 = 4_000_000_000_000;

/// How often the futures are polled until none can go on.
const POLLS: usize = 5_000;

/// How many things happen at the most after the network has healed.
const REST: usize = 400;

/// What a schedule came to.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    pub(crate) events: Vec<String>,
}

pub(crate) struct Schedule<'a> {
    world: &'a World,
    key: Key,
    store: DynamoDb,
    mutant: Option<Mutant>,
    plan: Plan,
    random: Random,
    clock: ManualSource,
    processes: Vec<Claims<Tapped>>,
    ledger: Ledger,
    slots: Vec<Slot>,
    next_call: usize,
    /// Requests whose senders wait.
    waiting: Vec<Waiting>,
    /// Answers that have not arrived yet.
    replies: Vec<Reply>,
    /// Requests whose senders don't wait any more, or copies.
    late: Vec<Message>,
    /// What an operator was shown.
    shown: Option<firstclaim::protocol::Seen>,
    oracle: Oracle,
    events: Vec<String>,
}

/// A call that was started.
struct Slot {
    process: Option<usize>,
    future: Option<Pin<Box<dyn Future<Output = Ended>>>>,
    woken: Arc<Woken>,
    gate: Gate,
    ended: Option<Ended>,
}

#[derive(Debug)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Action {
    Start,
    Deliver(usize),
    Reply(usize),
    Late(usize),
    Gate(usize),
    Clock,
    Drop(usize),
    Crash,
    Ttl,
    Settle,
    Remove,
    Foreign,
    Trespass,
}

impl<'a> Schedule<'a> {
    /// Runs the schedule of `seed`.
    pub(crate) async fn run(
        world: &'a World,
        seed: u64,
        mutant: Option<Mutant>,
    ) -> anyhow::Result<Verdict> {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random);
        world.wire.reset();
        let key = Key::new("faults", world.fresh().to_string())?;
        let clock = ManualSource::at(EpochMillis(START)).driven();
        let mut schedule = Self {
            store: world.store(plan.retries, mutant.as_ref()),
            world,
            key,
            mutant,
            clock,
            processes: Vec::new(),
            ledger: Ledger::default(),
            slots: Vec::new(),
            next_call: 0,
            waiting: Vec::new(),
            replies: Vec::new(),
            late: Vec::new(),
            shown: None,
            oracle: Oracle::new(&plan, None, START),
            events: Vec::new(),
            random,
            plan,
        };
        schedule.go().await?;
        world.remove(&schedule.id())?;
        Ok(Verdict {
            violations: schedule.oracle.into_violations(),
            events: schedule.events,
        })
    }

    async fn go(&mut self) -> anyhow::Result<()> {
        for process in 0..self.plan.offsets.len() {
            let claims = self.process(process)?;
            self.processes.push(claims);
        }
        self.introduce()?;
        for _ in 0..self.plan.actions {
            let Some(action) = self.choose() else { break };
            self.act(action).await?;
            if self.oracle.is_violated() {
                return Ok(());
            }
        }
        self.wind_down().await?;
        self.probe().await
    }

    fn id(&self) -> String {
        self.key.stored()
    }

    /// True time.
    fn now(&self) -> i64 {
        self.clock.now().0
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        let at = self.now() - START;
        self.events.push(format!("{at:>7} ms  {what}"));
    }

    fn note_state(&mut self) {
        let shown = Shown(self.oracle.current(), START).to_string();
        self.note(format_args!("  = {shown}"));
    }

    /// A process with a memory of its own.
    fn process(&self, number: usize) -> anyhow::Result<Claims<Tapped>> {
        let offset = self.plan.offsets.get(number).copied().unwrap_or(0);
        self.claims(offset, self.plan.config.clone(), self.mutant)
    }

    fn claims(
        &self,
        offset: i64,
        config: Config,
        mutant: Option<Mutant>,
    ) -> anyhow::Result<Claims<Tapped>> {
        let wire = self.world.wire.clone();
        let source = CallSource::new(self.clock.clone().off_by(offset), wire.clone());
        let store = Tapped::new(self.store.clone(), wire, source.clone());
        let claims = Claims::new(store, config)?.with_source(source);
        Ok(match mutant {
            Some(Mutant::Rule(rule)) => claims.without_rule(rule),
            _ => claims,
        })
    }

    fn choose(&mut self) -> Option<Action> {
        let weights = self.plan.weights.clone();
        let mut actions = Vec::new();
        let mut weigh = |weight, action| actions.push((weight, action));
        if self.next_call < self.plan.calls.len() {
            weigh(weights.start, Action::Start);
        }
        // What an operator was shown must be able to change under their eyes: the mark of an entry
        // that was on its way arrives.
        let shown_untouched = self.shown.as_ref().is_some_and(|seen| seen.untouched);
        let urgent = |message: &Message| 20 * u64::from(shown_untouched && message.marks());
        for (at, waiting) in self.waiting.iter().enumerate() {
            let weight = weights.deliver + urgent(&waiting.message);
            weigh(weight, Action::Deliver(at));
        }
        (0..self.replies.len()).for_each(|at| weigh(weights.reply, Action::Reply(at)));
        for (at, message) in self.late.iter().enumerate() {
            weigh(weights.late + urgent(message), Action::Late(at));
        }
        let mut running = 0;
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.future.is_some() {
                running += 1;
                weigh(weights.drop, Action::Drop(at));
                if slot.gate.is_waited_at() {
                    weigh(weights.gate, Action::Gate(at));
                }
            }
        }
        let idle = self.waiting.is_empty() && self.replies.is_empty();
        if running > 0 || self.next_call < self.plan.calls.len() || !self.late.is_empty() {
            weigh(weights.clock + u64::from(idle), Action::Clock);
        }
        if running > 0 {
            weigh(weights.crash, Action::Crash);
        }
        if let Some(state) = self.oracle.current() {
            let over = state.expiration.is_some_and(|end| end * 1000 <= self.now());
            if over {
                weigh(weights.ttl, Action::Ttl);
            }
            let entering = self.waiting.iter().any(|one| one.message.marks())
                || self.late.iter().any(Message::marks);
            let unshown = self.shown.is_none() && state.untouched() && !state.running(self.now());
            let settle = match entering && unshown {
                true => 5 * weights.settle,
                false => weights.settle,
            };
            weigh(settle, Action::Settle);
            weigh(weights.remove, Action::Remove);
            if state.owner.is_none() {
                weigh(weights.foreign, Action::Foreign);
            } else if state.in_progress() {
                weigh(weights.trespass, Action::Trespass);
            }
        }
        let only: Vec<u64> = actions.iter().map(|(weight, _)| *weight).collect();
        let chosen = self.random.weighted(&only)?;
        actions.get(chosen).map(|(_, action)| *action)
    }

    async fn act(&mut self, action: Action) -> anyhow::Result<()> {
        match action {
            Action::Start => self.start()?,
            Action::Deliver(at) => {
                let fate = self.random.weighted(&self.plan.weights.fates);
                let fate = fate.map_or(Fate::Pass, |index| Fate::ALL[index]);
                self.deliver(at, fate).await?;
            }
            Action::Reply(at) => self.reply(at),
            Action::Late(at) => self.deliver_late(at).await?,
            Action::Gate(at) => self.let_on(at),
            Action::Clock => self.move_clock(),
            Action::Drop(at) => self.drop_call(at),
            Action::Crash => self.crash()?,
            Action::Ttl => self.expire()?,
            Action::Settle => self.operate(),
            Action::Remove => self.remove()?,
            Action::Foreign => self.foreign()?,
            Action::Trespass => self.trespass()?,
        }
        self.settle();
        Ok(())
    }

    /// Starts the next call of the plan.
    fn start(&mut self) -> anyhow::Result<()> {
        let plan = self.plan.calls[self.next_call].clone();
        self.next_call += 1;
        let process = plan.process;
        let claims = match self.processes.get(process) {
            Some(claims) => claims.clone(),
            None => self.process(process)?,
        };
        let offset = self.plan.offsets.get(process).copied().unwrap_or(0);
        self.start_call(plan, Some(process), claims, offset);
        Ok(())
    }

    fn start_call(
        &mut self,
        plan: CallPlan,
        process: Option<usize>,
        claims: Claims<Tapped>,
        offset: i64,
    ) {
        let number = self.slots.len();
        self.note(format_args!(
            "call {number} starts in process {process:?} ({offset:+} ms): {plan:?}"
        ));
        self.oracle.started(Some(plan.clone()), offset, self.now());
        let gate = Gate::new();
        let call = Call {
            number,
            key: self.key.clone(),
            plan,
            claims,
            ledger: self.ledger.clone(),
            gate: gate.clone(),
        };
        self.occupy(process, gate, call.run());
    }

    fn occupy(
        &mut self,
        process: Option<usize>,
        gate: Gate,
        future: impl Future<Output = Ended> + 'static,
    ) {
        self.slots.push(Slot {
            process,
            // Polled beside others in one task, which must not share one budget.
            future: Some(Box::pin(tokio::task::unconstrained(future))),
            woken: Arc::new(Woken(AtomicBool::new(true))),
            gate,
            ended: None,
        });
    }

    fn let_on(&mut self, at: usize) {
        self.note(format_args!("the operation of call {at} goes on"));
        self.slots[at].gate.let_one();
    }

    /// Moves the clock: often to an instant at which something changes, or close to it.
    fn move_clock(&mut self) {
        let now = self.now();
        let mut instants = Vec::new();
        if let Some(state) = self.oracle.current() {
            let grace = i64::try_from(self.plan.config.grace.as_millis()).unwrap_or(0);
            if let Some(lease) = state.lease.filter(|lease| *lease > 1) {
                let third = (lease - now) / 3;
                instants.extend([now + third, lease - grace, lease, lease + grace / 2]);
            }
            if let Some(end) = state.expiration {
                instants.extend([end * 1000, end * 1000 + 1000, end * 1000 + 1000 + grace]);
            }
        }
        instants.retain(|instant| *instant > now);
        let next = match self.random.below(4) {
            0 => self.random.between(1, 300),
            1 => self.random.between(300, 5000),
            _ => match self.random.pick(&instants) {
                Some(instant) => instant - now + self.random.between(-1, 1),
                None => self.random.between(1, 5000),
            },
        };
        self.advance(next.max(1));
    }

    fn advance(&mut self, millis: i64) {
        self.clock
            .advance(Duration::from_millis(millis.unsigned_abs()));
        self.note(format_args!("the clock moves by {millis} ms"));
    }

    /// A call's future is dropped; its requests stay in the network, or are lost.
    fn drop_call(&mut self, at: usize) {
        self.note(format_args!("call {at} is dropped"));
        self.slots[at].future = None;
        self.oracle.faulted(at);
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.is_awaited() {
                self.waiting.push(waiting);
            } else if self.random.chance(60) {
                self.late.push(waiting.cut());
            }
        }
        self.replies.retain(Reply::is_awaited);
    }

    fn crash(&mut self) -> anyhow::Result<()> {
        let process = self.random.index(self.processes.len());
        self.note(format_args!("process {process} is killed"));
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.process == Some(process) && slot.future.is_some() {
                self.drop_call(at);
            }
        }
        self.processes[process] = self.process(process)?;
        Ok(())
    }

    /// Polls until no call can go on.
    fn settle(&mut self) {
        for _ in 0..POLLS {
            let mut polled = false;
            for at in 0..self.slots.len() {
                polled |= self.poll(at);
            }
            if !polled {
                let inside = self.ledger.inside();
                self.oracle.quiet(&inside);
                return;
            }
        }
        self.oracle.stuck("a call never comes to rest".to_owned());
    }

    fn poll(&mut self, at: usize) -> bool {
        let slot = &mut self.slots[at];
        let Some(future) = &mut slot.future else {
            return false;
        };
        if !slot.woken.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.world.wire.enter(at);
        let waker = Waker::from(Arc::clone(&slot.woken));
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let ended = match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(ended)) => Some(ended),
            Err(_) => Some(Ended::Panicked),
        };
        if ended.is_some() {
            slot.future = None;
        }
        for waiting in self.world.wire.arrived() {
            self.oracle.sent(&waiting.message);
            self.waiting.push(waiting);
        }
        for said in self.ledger.take() {
            self.note(format_args!("{said:?}"));
            self.oracle.said(&said);
        }
        if self.gave_up(at) {
            self.oracle.faulted(at);
        }
        if let Some(ended) = ended {
            self.note(format_args!("call {at} ends with {ended}"));
            let now = self.now();
            self.oracle.ended(at, &ended, now);
            self.slots[at].ended = Some(ended);
        }
        true
    }

    /// Whether a call has waited for an answer until its time was over.
    fn gave_up(&self, call: usize) -> bool {
        let asks = self.waiting.iter();
        let mut answers = self.replies.iter().filter(|reply| reply.call() == call);
        asks.filter(|waiting| waiting.message.call == call)
            .any(|waiting| !waiting.is_awaited())
            || answers.any(|reply| !reply.is_awaited())
    }

    /// The network heals, and every call comes to its end.
    async fn wind_down(&mut self) -> anyhow::Result<()> {
        self.note("the network heals");
        for _ in 0..REST {
            if self.oracle.is_violated() {
                return Ok(());
            }
            let open = self.slots.iter().position(|slot| slot.gate.is_waited_at());
            if !self.waiting.is_empty() {
                self.deliver(0, Fate::Pass).await?;
            } else if !self.replies.is_empty() {
                self.reply(0);
            } else if let Some(at) = open {
                self.let_on(at);
            } else if self.slots.iter().any(|slot| slot.future.is_some()) {
                let step = self.random.between(50, 900);
                self.advance(step);
            } else {
                return self.last_copies().await;
            }
            self.settle();
        }
        let running = self.slots.iter().position(|slot| slot.future.is_some());
        self.oracle.stuck(format!("call {running:?} does not end"));
        Ok(())
    }

    async fn last_copies(&mut self) -> anyhow::Result<()> {
        while !self.late.is_empty() {
            let at = self.random.index(self.late.len());
            if self.random.chance(70) {
                self.deliver_late(at).await?;
            } else {
                self.late.swap_remove(at);
            }
        }
        Ok(())
    }

    /// Everything is over: what does the next request get, and what after the window?
    async fn probe(&mut self) -> anyhow::Result<()> {
        if self.random.chance(70) {
            let last = self.oracle.last_lease();
            let far = last > self.now() + 60_000;
            if !far && self.random.chance(80) {
                self.advance((last - self.now()).max(0) + 1);
            }
            self.ask().await?;
        }
        let end = self.oracle.current().and_then(|state| state.expiration);
        if let Some(end) = end
            && self.random.chance(50)
        {
            self.advance(((end + 1) * 1000 - self.now()).max(0) + 1);
            self.ask().await?;
        }
        Ok(())
    }

    /// A clean request in a process of its own.
    async fn ask(&mut self) -> anyhow::Result<()> {
        if self.oracle.is_violated() {
            return Ok(());
        }
        let due = self.oracle.due(self.now());
        let plan = CallPlan {
            process: 0,
            policy: Policy::Rerun,
            payload: None,
            lease: self.plan.config.grace + Duration::from_secs(1),
            deadline: false,
            renewed: None,
            wait: Duration::ZERO,
            redelivered: false,
            marks: false,
            inspect: None,
            pieces: Vec::new(),
            attentive: true,
            end: End::Done { large: false },
        };
        let claims = self.claims(0, self.plan.config.clone(), self.mutant)?;
        let at = self.slots.len();
        self.start_call(plan, None, claims, 0);
        self.settle();
        while !self.waiting.is_empty() {
            self.deliver(0, Fate::Pass).await?;
            self.settle();
        }
        let ended = self.slots[at].ended.as_ref();
        self.oracle.probed(due, ended);
        Ok(())
    }
}
