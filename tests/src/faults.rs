//! The fault campaign: the real crate over a real DynamoDB engine and a network that delays,
//! refuses, loses, repeats and holds requests, on a clock that schedules move, with owners that
//! are dropped at any moment.
//!
//! # In one process
//!
//! A [`Campaign`] runs schedules that are drawn from seeds. Two to four *processes* (each with its
//! own [`Claims`](firstclaim::Claims), its own memory and a clock that is off by less than half the
//! grace) make calls for one key. The faults are between the SDK and the engine: the SDK's HTTP
//! client is replaced by one that hands each request to the schedule, which passes it on to the
//! engine over HTTP, or not, or later, or twice. So everything above (the store, the SDK's
//! serialisation, retries and error handling) and everything below (the engine's HTTP interface and
//! its conditional writes) is real; a TCP proxy in between would cost a connection per fault and
//! make the order of things depend on the operating system.
//!
//! A seed replays its schedule: calls are polled by hand on one thread, one thing happens at a
//! time, and the engine runs on the same thread. Not replayed are the engine's and the SDK's inner
//! workings, which show neither in the order of requests nor in their meaning: signatures, the
//! order of attributes in a body, the jitter of a back-off that takes no time. Where two branches
//! of a `select!` in the crate are ready in the same poll, it picks one at random; that takes two
//! calls of one process that wait for each other and for the clock at once.
//!
//! What is checked, says the module `oracle`. Whether the checks can notice anything, say the
//! [mutants](mutant).

mod call;
pub mod mutant;
mod oracle;
mod plan;
pub mod processes;
pub(crate) mod random;
mod schedule;
mod state;
mod wire;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub use mutant::{Mutant, Unnoticed};
pub use processes::{Owner, Processes};
use schedule::Schedule;
use world::World;

/// How many violations are kept with all their events.
const KEPT: usize = 10;

/// Many schedules, one per seed.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The seed of the first schedule; the others count up from it.
    pub seed: u64,
    /// How many schedules there are.
    pub schedules: u64,
    /// A guard that is taken away.
    pub mutant: Option<Mutant>,
    /// How many threads run schedules.
    pub workers: usize,
    /// Whether the first violation ends the campaign.
    pub until_found: bool,
    /// Whether schedules without a violation are reported too.
    pub keep_all: bool,
}

/// What a campaign has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many schedules ran.
    pub schedules: u64,
    /// In how many of them something was violated.
    pub violations: u64,
    /// The first of these.
    pub found: Vec<Found>,
}

/// A schedule in which something was violated.
#[derive(Clone, Debug)]
pub struct Found {
    /// It replays the schedule.
    pub seed: u64,
    /// What was violated.
    pub violations: Vec<String>,
    /// Everything that happened, in order.
    pub events: Vec<String>,
}

impl Campaign {
    /// Runs all schedules; `progress` hears now and then how many ran and how many of them had
    /// violations.
    ///
    /// # Errors
    ///
    /// The embedded engine could not be started or did not answer.
    pub fn run(&self, progress: impl Fn(u64, u64) + Sync) -> anyhow::Result<Report> {
        // reqwest is built without a TLS provider of its own choice; an installed one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let next = AtomicU64::new(0);
        let report = Mutex::new(Report::default());
        let outcome = std::thread::scope(|scope| {
            let work = || self.work(&next, &report, &progress);
            let workers: Vec<_> = (0..self.workers.max(1))
                .map(|_| scope.spawn(work))
                .collect();
            let joined = workers.into_iter().map(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect::<anyhow::Result<Vec<()>>>()
        });
        outcome?;
        Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn work(
        &self,
        next: &AtomicU64,
        report: &Mutex<Report>,
        progress: &(impl Fn(u64, u64) + Sync),
    ) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let world = World::new().await?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.schedules {
                    return Ok(());
                }
                let seed = self.seed.wrapping_add(number);
                let verdict = Schedule::run(&world, seed, self.mutant).await?;
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                report.schedules += 1;
                let violated = !verdict.violations.is_empty();
                if violated {
                    report.violations += 1;
                    if self.until_found {
                        next.store(self.schedules, Ordering::Relaxed);
                    }
                }
                if (violated || self.keep_all) && report.found.len() < KEPT {
                    report.found.push(Found {
                        seed,
                        violations: verdict.violations,
                        events: verdict.events,
                    });
                }
                progress(report.schedules, report.violations);
            }
        })
    }
}
