//! Owners as processes of their own that are killed (SIGKILL) at random moments, on the real clock
//! and behind a TCP proxy.
//!
//! A seed draws the same owners, faults and kills again, but not the same interleaving: that is the
//! operating system's. What is checked is coarser than [in one process](super::Campaign): what
//! owners report on their standard output, and the record at the end.

mod judge;
mod owner;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use firstclaim::clock::{Source, SystemSource};
use firstclaim::record::Policy;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, Config, Key};
use futures_util::stream::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub use owner::Owner;

use super::random::Random;
use super::{Found, Mutant, Report};
use crate::Engine;
use crate::proxy::{ANY, Failure, Gate, Proxy, Step};
use judge::{Judge, Told};

/// How far clocks may differ: all owners have the same one.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// As many attempts as there can be owners: nobody is held for having been killed.
pub(crate) const SILENT_LIMIT: u32 = 5;

/// How many faults a proxy has in store; after them it passes everything on.
const FAULTS: usize = 24;

/// When an owner is killed in any case: longer than any of them takes.
const LIFE: Duration = Duration::from_secs(60);

/// How many schedules run at once unless it is said: they mostly wait.
pub const AT_ONCE: usize = 12;

/// Many schedules with processes.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The seed of the first schedule; the others count up from it.
    pub seed: u64,
    /// How many schedules there are.
    pub schedules: u64,
    /// A guard that is taken away.
    pub mutant: Option<Mutant>,
    /// How many schedules run at once.
    pub at_once: usize,
    /// The program that becomes an owner when it is started with the arguments of an [`Owner`].
    pub program: PathBuf,
}

/// What happened besides violations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Owners that were started.
    pub owners: u64,
    /// Owners that were killed before they had ended.
    pub killed: u64,
    /// Entries into an operation.
    pub entries: u64,
    /// Operations that were killed.
    pub cut: u64,
}

/// One owner's part in a schedule.
struct Part {
    after: Duration,
    /// When it is killed, from its first word on.
    killed: Option<Duration>,
    owner: Owner,
}

impl Processes {
    /// Runs all schedules; `progress` hears after each how many ran and how many of them had
    /// violations.
    ///
    /// # Errors
    ///
    /// The engine, a proxy or a process could not be started.
    pub async fn run(&self, progress: impl Fn(u64, u64)) -> anyhow::Result<(Report, Count)> {
        // reqwest is built without a TLS provider of its own choice; an installed one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let engine = Engine::start(None).await?;
        let table = engine.create_table().await?;
        let numbers = futures_util::stream::iter(0..self.schedules);
        let mut judged = numbers
            .map(|number| self.schedule(&engine, &table, self.seed.wrapping_add(number)))
            .buffer_unordered(self.at_once.max(1));
        let (mut report, mut count) = (Report::default(), Count::default());
        while let Some(judged) = judged.next().await {
            let (found, counted) = judged?;
            report.schedules += 1;
            count.owners += counted.owners;
            count.killed += counted.killed;
            count.entries += counted.entries;
            count.cut += counted.cut;
            if !found.violations.is_empty() {
                report.violations += 1;
                if report.found.len() < super::KEPT {
                    report.found.push(found);
                }
            }
            progress(report.schedules, report.violations);
        }
        Ok((report, count))
    }

    async fn schedule(
        &self,
        engine: &Engine,
        table: &str,
        seed: u64,
    ) -> anyhow::Result<(Found, Count)> {
        let mut random = Random::new(seed);
        let proxy = Proxy::start(engine.endpoint()).await?;
        let gates = faults(&mut random, &proxy);
        let key = Key::new("processes", uuid::Uuid::new_v4().simple().to_string())?;
        let parts = self.draw(&mut random, &proxy, table, &key);
        let policy = parts
            .first()
            .map_or(Policy::Rerun, |part| part.owner.policy());
        let told = parts.into_iter().map(|part| self.act(part));
        let opening = gates.into_iter().map(|(gate, after)| async move {
            tokio::time::sleep(after).await;
            gate.open();
        });
        let (told, _) = futures_util::join!(
            futures_util::future::join_all(told),
            futures_util::future::join_all(opening)
        );
        let mut judge = Judge::new(policy);
        for (number, told) in told.into_iter().enumerate() {
            judge.hear(number, told?);
        }
        let store = DynamoDb::new(engine.client().clone(), table);
        let claims = Claims::new(store, config(policy))?;
        judge.probe(&claims, &key).await?;
        Ok(judge.into_found(seed))
    }

    fn draw(&self, random: &mut Random, proxy: &Proxy, table: &str, key: &Key) -> Vec<Part> {
        let policy = random.pick(&[Policy::Rerun, Policy::Rerun, Policy::Hold]);
        let mut millis =
            |lowest, highest| Duration::from_millis(random.between(lowest, highest).unsigned_abs());
        let mut parts = Vec::new();
        for _ in 0..millis(2, 4).as_millis() {
            let killed = millis(0, 99).as_millis() < 60;
            parts.push(Part {
                after: millis(0, 500),
                killed: killed.then(|| millis(20, 700)),
                owner: Owner {
                    endpoint: proxy.url(),
                    table: table.to_owned(),
                    key: key.as_str().to_owned(),
                    hold: policy == Some(Policy::Hold),
                    lease: u64::try_from(millis(450, 900).as_millis()).unwrap_or(0),
                    work: u64::try_from(millis(10, 500).as_millis()).unwrap_or(0),
                    wait: u64::try_from(millis(0, 900).as_millis()).unwrap_or(0),
                    renewed: millis(0, 99).as_millis() < 40,
                    fails: millis(0, 99).as_millis() < 15,
                    mutant: self.mutant.map(|mutant| mutant.to_string()),
                },
            });
        }
        parts
    }

    /// Starts an owner, hears it, and kills it when its time has come.
    async fn act(&self, part: Part) -> anyhow::Result<Told> {
        tokio::time::sleep(part.after).await;
        let mut child = start(&self.program, &part.owner)?;
        let stdout = child.stdout.take().context("an owner without an output")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut told = Told::default();
        let mut end = std::pin::pin!(tokio::time::sleep(LIFE));
        loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => {
                        // Its first line: it begins now, however long it took to get there.
                        if let (true, Some(life)) = (told.lines.is_empty(), part.killed) {
                            end.as_mut().reset(tokio::time::Instant::now() + life);
                        }
                        told.lines.push(line);
                    }
                    None => break,
                },
                () = &mut end, if told.killed.is_none() => {
                    // The end of its output tells that it is gone, with everything it had said.
                    child.start_kill()?;
                    told.killed = Some(SystemSource.now().0);
                }
            }
        }
        let status = child.wait().await?;
        // One that had ended by itself was not killed any more.
        if status.success() {
            told.killed = None;
        }
        Ok(told)
    }
}

fn start(program: &Path, owner: &Owner) -> anyhow::Result<Child> {
    Command::new(program)
        .args(owner.arguments())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} could not be started", program.display()))
}

/// What owners and the judge have in common.
pub(crate) fn config(policy: Policy) -> Config {
    Config {
        grace: GRACE,
        policy,
        longest_lease: Duration::from_secs(60),
        window: Duration::from_secs(600),
        silent_limit: SILENT_LIMIT,
        ..Config::default()
    }
}

/// Plans faults for the proxy; the gates open later, some long after their senders gave up.
fn faults(random: &mut Random, proxy: &Proxy) -> Vec<(Gate, Duration)> {
    let mut gates = Vec::new();
    let calm = random.below(60) + 20;
    let steps: Vec<Step> = (0..FAULTS)
        .map(|_| match random.below(100) < calm {
            true => Step::Pass,
            false => match random.below(8) {
                0 => Step::Fail(Failure::Internal),
                1 => Step::Fail(Failure::Throttled),
                2 => Step::DropRequest,
                3 => Step::DropReply,
                4 => Step::Twice,
                5 => Step::StripItem,
                _ => {
                    let gate = Gate::new();
                    let after = random.between(100, 1800).unsigned_abs();
                    gates.push((gate.clone(), Duration::from_millis(after)));
                    Step::Hold(gate)
                }
            },
        })
        .collect();
    proxy.plan(ANY, steps);
    gates
}
