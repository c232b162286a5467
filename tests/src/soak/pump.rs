//! The event source mapping of one worker: batches in, answers out, and now and then a death.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use firstclaim_cli::dev::sqs::{Queue, Received};
use serde_json::{Value, json};

use super::{Plan, Random, Shared};
use crate::lab::Log;
use crate::process::Process;
use crate::queue_stub::returned;

/// How long an invocation may last.
const TIME: Duration = Duration::from_secs(8);

/// A worker that may be killed is killed in its third batch, and then in one of so many.
const DEATHS: u64 = 60;

pub(super) struct Pump {
    number: usize,
    worker: Process,
    binary: PathBuf,
    variables: BTreeMap<String, String>,
    log: Log,
    shared: Arc<Shared>,
    random: Random,
    messages: usize,
}

impl Pump {
    pub(super) async fn start(
        number: usize,
        plan: Plan,
        binary: &Path,
        variables: &BTreeMap<String, String>,
        log: &Log,
        shared: &Arc<Shared>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            number,
            worker: Process::start("queue", binary, variables, log.clone()).await?,
            binary: binary.to_owned(),
            variables: variables.clone(),
            log: log.clone(),
            shared: Arc::clone(shared),
            random: Random(plan.seed ^ (number as u64 + 1) << 32),
            messages: plan.messages,
        })
    }

    /// Works until the queue is empty. The first worker's resident memory at a tenth of the way and
    /// at the end.
    pub(super) async fn run(mut self) -> anyhow::Result<Option<(u64, u64)>> {
        let mut at_a_tenth = None;
        let mut batches = 0_u64;
        while !self.shared.over() {
            self.shared.busy.fetch_add(1, Ordering::SeqCst);
            let messages = self.shared.queue.receive(10, None)?;
            if messages.is_empty() {
                self.shared.busy.fetch_sub(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            batches += 1;
            let mortal = self.number > 0 && (batches == 3 || self.random.below(DEATHS) == 0);
            let worked = match mortal {
                true => self.die_at(&messages).await,
                false => self.work(&messages).await,
            };
            self.shared.busy.fetch_sub(1, Ordering::SeqCst);
            worked?;
            let done = self.shared.done.load(Ordering::SeqCst);
            if self.number == 0 && at_a_tenth.is_none() && done * 10 >= self.messages {
                at_a_tenth = self.worker.resident();
            }
        }
        let at_the_end = self.worker.resident();
        Ok(at_a_tenth.zip(at_the_end).filter(|_| self.number == 0))
    }

    async fn work(&mut self, messages: &[Received]) -> anyhow::Result<()> {
        let event = event(&self.shared.queue, messages);
        let answer = self.worker.invoke_within(&event, TIME).await?;
        let back = returned(&answer)?;
        for message in messages
            .iter()
            .filter(|message| !back.contains(&message.id))
        {
            self.shared.queue.delete(&message.receipt)?;
            self.shared.done.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Is killed at some moment of a batch, or just behind its answer, and replaced.
    async fn die_at(&mut self, messages: &[Received]) -> anyhow::Result<()> {
        let event = event(&self.shared.queue, messages);
        let moment = Duration::from_micros(self.random.below(60_000));
        // An answer that comes before is lost with the worker: nothing of it is deleted.
        let _ = tokio::time::timeout(moment, self.worker.invoke_within(&event, TIME)).await;
        self.worker.kill().await?;
        self.shared.killed.fetch_add(1, Ordering::SeqCst);
        self.worker =
            Process::start("queue", &self.binary, &self.variables, self.log.clone()).await?;
        Ok(())
    }
}

fn event(queue: &Queue, messages: &[Received]) -> Value {
    let records: Vec<Value> = messages
        .iter()
        .map(|message| {
            json!({
                "messageId": message.id,
                "receiptHandle": message.receipt,
                "body": message.draft.body,
                "attributes": message.system_attributes(),
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": queue.arn(),
                "awsRegion": "us-east-1",
            })
        })
        .collect();
    json!({ "Records": records })
}
