//! One responder: a worker that is handed every event until it has answered for it, and that dies
//! now and then.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Event, Plan, Shared};
use crate::faults::random::Random;
use crate::lab::Log;
use crate::process::Process;
use crate::queue_stub::returned;

/// How long an invocation may last. A claim of a worker that is killed is in the way for so long,
/// and for the grace.
const TIME: Duration = Duration::from_secs(3);

/// How many events an invocation has.
const BATCH: usize = 5;

/// A worker is killed in one of so many batches.
const DEATHS: u64 = 8;

/// How long what came back is left alone.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Responder {
    number: usize,
    worker: Process,
    binary: PathBuf,
    variables: BTreeMap<String, String>,
    log: Log,
    shared: Arc<Shared>,
    random: Random,
    /// What it has not answered for, and from when on it may be tried.
    left: VecDeque<(Event, Instant)>,
}

impl Responder {
    pub(super) async fn start(
        number: usize,
        plan: Plan,
        binary: &Path,
        variables: &BTreeMap<String, String>,
        log: &Log,
        shared: Arc<Shared>,
    ) -> anyhow::Result<Self> {
        let mut random = Random::new(plan.seed ^ (number as u64 + 1) << 32);
        // All begin with the same few events, in an order of their own.
        let mut left: Vec<Event> = (0..plan.events).map(Event).collect();
        for group in left.chunks_mut(2 * BATCH) {
            for at in (1..group.len()).rev() {
                group.swap(at, random.index(at + 1));
            }
        }
        let now = Instant::now();
        Ok(Self {
            number,
            worker: Process::start("queue", binary, variables, log.clone()).await?,
            binary: binary.to_owned(),
            variables: variables.clone(),
            log: log.clone(),
            shared,
            random,
            left: left.into_iter().map(|event| (event, now)).collect(),
        })
    }

    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut batches = 0_u64;
        while let Some(first) = self.left.front().map(|(_, from)| *from) {
            tokio::time::sleep_until(first).await;
            let now = Instant::now();
            let mut batch = Vec::new();
            while batch.len() < BATCH
                && let Some((event, _)) = self.left.pop_front_if(|(_, from)| *from <= now)
            {
                batch.push(event);
            }
            batches += 1;
            let dies = batches == 1 && self.number > 0 || self.random.below(DEATHS) == 0;
            let answered = match dies {
                true => self.die_at(&batch).await?,
                false => self.work(&batch).await?,
            };
            let again = Instant::now() + PAUSE;
            for event in batch {
                if answered.contains(&event.0) {
                    self.shared.left.fetch_sub(1, Ordering::SeqCst);
                } else {
                    self.left.push_back((event, again));
                }
            }
        }
        Ok(())
    }

    /// The events that it has answered for.
    async fn work(&mut self, batch: &[Event]) -> anyhow::Result<Vec<usize>> {
        let answer = self.worker.invoke_within(&self.event(batch), TIME).await?;
        let back = returned(&answer)?;
        let done = batch
            .iter()
            .filter(|event| !back.contains(&self.id(**event)));
        Ok(done.map(|event| event.0).collect())
    }

    /// Is killed at some moment of a batch, or just behind its answer, and replaced: it has
    /// answered for nothing.
    async fn die_at(&mut self, batch: &[Event]) -> anyhow::Result<Vec<usize>> {
        let moment = Duration::from_micros(self.random.below(200_000));
        let event = self.event(batch);
        let _ = tokio::time::timeout(moment, self.worker.invoke_within(&event, TIME)).await;
        self.worker.kill().await?;
        self.shared.killed.fetch_add(1, Ordering::SeqCst);
        self.worker =
            Process::start("queue", &self.binary, &self.variables, self.log.clone()).await?;
        Ok(Vec::new())
    }

    fn id(&self, event: Event) -> String {
        format!("m-{}-{}", self.number, event.0)
    }

    fn event(&self, batch: &[Event]) -> Value {
        let records: Vec<_> = batch
            .iter()
            .map(|event| {
                json!({
                    "messageId": self.id(*event),
                    "receiptHandle": self.id(*event),
                    "body": event.body(),
                    "attributes": {"ApproximateReceiveCount": "1"},
                    "messageAttributes": {},
                    "eventSource": "aws:sqs",
                    "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:responders",
                    "awsRegion": "us-east-1",
                })
            })
            .collect();
        json!({ "Records": records })
    }
}
