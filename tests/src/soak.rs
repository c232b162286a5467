//! The soak: many messages through the real worker, with duplicates, a target that fails, and
//! workers that are killed; then every key is looked at.
//!
//! The parts are those of the local stack: its queue, its DynamoDB engine, and the queue function as
//! processes behind a Runtime API. Worker 0 is never killed: its memory is what is measured. The
//! queue's clock is moved on where every message that is left is hidden, so that nobody waits for
//! hours of back-off; everything else runs in real time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::Owner;
use firstclaim::clock::{EpochMillis, Source, SystemSource};
use firstclaim_cli::dev::sqs::{Draft, Queue, Server, Settings, Storage};
use serde_json::json;
use tokio::net::TcpListener;

use crate::engine::Engine;
use crate::lab::Log;

mod pump;
pub(crate) mod target;

use pump::Pump;
use target::Idempotent;

const WORK: &str = "soak";
const DEAD: &str = "soak-dead";

/// How many messages lie in the queue at the most while more are sent.
const BACKLOG: usize = 1000;

/// How long a received message is hidden: longer than an invocation lasts.
const VISIBILITY: Duration = Duration::from_secs(15);

/// How many recent keys a duplicate is drawn from.
const RECENT: u64 = 2000;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many messages are sent; three of ten are duplicates.
    pub messages: usize,
    /// How many workers there are; all but the first are killed now and then.
    pub workers: usize,
    /// The seed of everything random, except what the machine adds.
    pub seed: u64,
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Messages that were sent.
    pub sent: usize,
    /// Messages that are finished.
    pub done: usize,
    /// Workers that were killed.
    pub killed: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Messages that were sent.
    pub messages: usize,
    /// Different keys.
    pub keys: usize,
    /// Effects at the target.
    pub effects: usize,
    /// Effects beyond the first of a key.
    pub doubled: usize,
    /// Keys that are neither completed nor dead-lettered.
    pub lost: usize,
    /// Dead letters.
    pub dead: usize,
    /// Messages that are left in the queue.
    pub left: usize,
    /// Workers that were killed.
    pub killed: usize,
    /// Calls of the target, those that failed on purpose included.
    pub calls: usize,
    /// The resident memory of worker 0 at a tenth of the way and at the end, in bytes.
    pub resident: Option<(u64, u64)>,
    /// The time that it took.
    pub took: Duration,
}

/// What everybody shares.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    clock: Ahead,
    sent: AtomicUsize,
    done: AtomicUsize,
    killed: AtomicUsize,
    busy: AtomicUsize,
    all_sent: AtomicBool,
}

impl Shared {
    fn over(&self) -> bool {
        self.all_sent.load(Ordering::SeqCst) && self.queue.count().all() == 0
    }
}

/// Runs the soak with this binary as worker; `show` is told of its progress now and then.
///
/// # Errors
///
/// A part of the stack failed by itself.
pub async fn run(plan: Plan, worker: &Path, show: impl Fn(Progress)) -> anyhow::Result<Report> {
    let started = Instant::now();
    let engine = Engine::start(None).await?;
    let table = engine.create_table().await?;
    let clock = Ahead::default();
    let queues = [
        Settings::new(DEAD),
        Settings::new(WORK).visibility(VISIBILITY),
    ];
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let source = Arc::new(clock.clone());
    let sqs = Server::serve(listener, &queues, &Storage::Memory, source)?;
    let target = Idempotent::start(plan.seed).await?;
    let variables = variables(&[
        ("CLAIMS_TABLE", &table),
        ("AWS_ENDPOINT_URL_DYNAMODB", engine.endpoint()),
        ("AWS_ENDPOINT_URL_SQS", sqs.endpoint()),
        ("DEAD_LETTER_URL", &sqs.queue_url(DEAD)),
        ("TARGET_URL", &target.url()),
        ("RUST_LOG", "error"),
    ]);
    let shared = Arc::new(Shared {
        queue: sqs.queue(WORK)?,
        clock,
        sent: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        killed: AtomicUsize::new(0),
        busy: AtomicUsize::new(0),
        all_sent: AtomicBool::new(false),
    });

    let log = Log::last(1000);
    let mut pumps = Vec::new();
    for number in 0..plan.workers {
        let pump = Pump::start(number, plan, worker, &variables, &log, &shared).await?;
        pumps.push(tokio::spawn(pump.run()));
    }
    let clock = tokio::spawn(move_on(Arc::clone(&shared)));
    let sender = tokio::spawn(send(plan, Arc::clone(&shared)));
    while !(pumps.iter().all(tokio::task::JoinHandle::is_finished) && sender.is_finished()) {
        show(Progress {
            sent: shared.sent.load(Ordering::SeqCst),
            done: shared.done.load(Ordering::SeqCst),
            killed: shared.killed.load(Ordering::SeqCst),
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    clock.abort();
    let keys = sender.await??;
    let mut resident = None;
    for pump in pumps {
        let measured = pump.await?.with_context(|| log.text())?;
        resident = resident.or(measured);
    }

    let completed = completed(&engine, &table).await?;
    let dead = dead(&sqs.queue(DEAD)?)?;
    let lost = keys
        .iter()
        .filter(|key| !completed.contains(*key) && !dead.contains(*key));
    let report = Report {
        messages: shared.sent.load(Ordering::SeqCst),
        keys: keys.len(),
        effects: target.effects(),
        doubled: target.doubled(),
        lost: lost.count(),
        dead: dead.len(),
        left: shared.queue.count().all(),
        killed: shared.killed.load(Ordering::SeqCst),
        calls: target.calls(),
        resident,
        took: started.elapsed(),
    };
    sqs.stop().await;
    Ok(report)
}

/// Sends all messages, never far ahead of the workers. The keys, as they stand in the table.
async fn send(plan: Plan, shared: Arc<Shared>) -> anyhow::Result<BTreeSet<String>> {
    let mut random = Random(plan.seed);
    let mut keys = 0_u64;
    for _ in 0..plan.messages {
        let number = if keys > 0 && random.below(10) < 3 {
            keys - 1 - random.below(keys.min(RECENT))
        } else {
            keys += 1;
            keys - 1
        };
        let payload = json!({"number": number, "text": "x".repeat(usize::try_from(number % 300)?)});
        let body = json!({"key": format!("soak:{number}"), "payload": payload});
        let draft = Draft {
            body: body.to_string(),
            ..Draft::default()
        };
        shared.queue.send(draft, Duration::ZERO)?;
        let sent = shared.sent.fetch_add(1, Ordering::SeqCst) + 1;
        while sent.saturating_sub(shared.done.load(Ordering::SeqCst)) > BACKLOG {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    shared.all_sent.store(true, Ordering::SeqCst);
    Ok((0..keys)
        .map(|number| format!("queue#soak:{number}"))
        .collect())
}

/// Moves the queue's clock on, faster and faster, while all that is left is hidden and nobody is at
/// work.
async fn move_on(shared: Arc<Shared>) {
    let mut step = 1;
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let count = shared.queue.count();
        let idle = shared.busy.load(Ordering::SeqCst) == 0;
        if idle && count.visible == 0 && count.all() > 0 {
            shared.clock.move_on(Duration::from_secs(step));
            step = (step * 2).min(60);
        } else {
            step = 1;
        }
    }
}

/// The ids of all records that are completed.
async fn completed(engine: &Engine, table: &str) -> anyhow::Result<BTreeSet<String>> {
    let scan = engine
        .client()
        .scan()
        .table_name(table)
        .consistent_read(true);
    let mut pages = scan.into_paginator().items().send();
    let mut ids = BTreeSet::new();
    while let Some(item) = pages.next().await {
        let item = item?;
        let text = |name: &str| {
            item.get(name)
                .and_then(|value| AttributeValue::as_s(value).ok())
        };
        if text("status").map(String::as_str) == Some("COMPLETED") {
            ids.extend(text("id").cloned());
        }
    }
    Ok(ids)
}

/// The keys of all dead letters.
fn dead(queue: &Queue) -> anyhow::Result<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    loop {
        let letters = queue.receive(10, None)?;
        if letters.is_empty() {
            return Ok(keys);
        }
        for letter in letters {
            let key = letter.draft.attributes.get("firstclaim_key");
            keys.extend(key.and_then(|key| key.string_value.clone()));
            queue.delete(&letter.receipt)?;
        }
    }
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// A clock that can be moved ahead of the system's. Clones are one clock.
#[derive(Clone, Debug, Default)]
struct Ahead(Arc<AtomicI64>);

impl Ahead {
    fn move_on(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).unwrap_or(0);
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Source for Ahead {
    fn now(&self) -> EpochMillis {
        EpochMillis(SystemSource.now().0 + self.0.load(Ordering::SeqCst))
    }

    fn token(&self) -> Owner {
        SystemSource.token()
    }
}

/// A seeded source of numbers (SplitMix64).
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
