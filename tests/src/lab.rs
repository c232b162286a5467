//! What one test has for itself: a table, a proxy before the engine, queues behind a proxy, a
//! target, and the functions as processes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use firstclaim::Key;
use firstclaim::record::Record;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::store::{Read, Store};
use serde_json::json;

use crate::deliveries::{Deliveries, PUBLIC_URL, SECRETS};
use crate::engine::{AGAIN, Engine, ONCE, client};
use crate::peers::Peers;
use crate::process::{Binaries, Process};
use crate::proxy::Proxy;
use crate::queue_stub::QueueStub;
use crate::target::Target;

/// The name of the queue with the envelopes.
pub const WORK: &str = "firstclaim-work";

/// The name of the dead-letter queue.
pub const DEAD: &str = "firstclaim-dead";

/// How many batches a drain handles at the most.
const DRAIN_LIMIT: usize = 200;

/// What all tests of a run share.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The engine.
    pub engine: Engine,
    /// The functions' binaries.
    pub binaries: Binaries,
    /// The sample deliveries.
    pub deliveries: Deliveries,
    /// The senders' own libraries.
    pub peers: Peers,
}

/// The environment of one test.
#[derive(Debug)]
pub struct Lab {
    /// What all tests share.
    pub suite: Suite,
    /// This test's table.
    pub table: String,
    /// The way to the engine.
    pub dynamodb: Proxy,
    /// The queues.
    pub queues: QueueStub,
    /// The way to the queues.
    pub sqs: Proxy,
    /// Where operations are applied.
    pub target: Target,
    /// What the processes say.
    pub log: Log,
}

/// Lines of a test's processes, shown if the test fails.
#[derive(Clone, Debug)]
pub struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    limit: usize,
}

impl Default for Log {
    fn default() -> Self {
        Self::last(usize::MAX)
    }
}

impl Log {
    /// One that forgets all but the last `limit` lines.
    #[must_use]
    pub fn last(limit: usize) -> Self {
        Self {
            lines: Arc::default(),
            limit,
        }
    }

    /// Adds a line.
    pub fn line(&self, name: &str, line: &str) {
        let mut lines = self.lines();
        if lines.len() >= self.limit {
            lines.pop_front();
        }
        lines.push_back(format!("{name}| {line}"));
    }

    /// All lines so far.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.lines();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Whether a line contains `text`.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.lines().iter().any(|line| line.contains(text))
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lab {
    /// A fresh environment whose processes speak to `log`.
    ///
    /// # Errors
    ///
    /// The engine refused the table, or no loopback port is free.
    pub async fn new(suite: Suite, log: Log) -> anyhow::Result<Self> {
        let table = suite.engine.create_table().await?;
        let dynamodb = Proxy::start(suite.engine.endpoint()).await?;
        let queues = QueueStub::start().await?;
        let sqs = Proxy::start(&queues.endpoint()).await?;
        let target = Target::start().await?;
        Ok(Self {
            suite,
            table,
            dynamodb,
            queues,
            sqs,
            target,
            log,
        })
    }

    /// Deletes the table. The rest goes with the value.
    ///
    /// # Errors
    ///
    /// The engine refused it.
    pub async fn close(&self) -> anyhow::Result<()> {
        self.suite.engine.delete_table(&self.table).await
    }

    /// The store straight on the engine, past the proxy.
    #[must_use]
    pub fn store(&self) -> DynamoDb {
        DynamoDb::new(self.suite.engine.client().clone(), &self.table)
    }

    /// The store through the proxy, with as many retries as the functions have.
    pub async fn store_through_proxy(&self) -> DynamoDb {
        DynamoDb::new(client(&self.dynamodb.url(), AGAIN).await, &self.table)
    }

    /// The store through the proxy; each call is sent once.
    pub async fn store_without_retries(&self) -> DynamoDb {
        DynamoDb::new(client(&self.dynamodb.url(), ONCE).await, &self.table)
    }

    /// A key's record as it stands in the table.
    ///
    /// # Errors
    ///
    /// No key, no record, or no answer.
    pub async fn record(&self, key: &str) -> anyhow::Result<Record> {
        let id = Key::parse(key)
            .with_context(|| format!("{key:?}"))?
            .stored();
        let record = self.store().read(&id, Read::Consistent).await?;
        record.with_context(|| format!("no record for {key:?}"))
    }

    /// All records of the table.
    ///
    /// # Errors
    ///
    /// The engine did not answer.
    pub async fn ids(&self) -> anyhow::Result<Vec<String>> {
        let client = self.suite.engine.client();
        let output = client
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .send()
            .await?;
        let ids = output
            .items()
            .iter()
            .filter_map(|item| item.get("id")?.as_s().ok().cloned());
        Ok(ids.collect())
    }

    /// The variables of a webhook process: one sender of each scheme.
    #[must_use]
    pub fn webhook_variables(&self) -> BTreeMap<String, String> {
        let senders: serde_json::Map<_, _> = SECRETS
            .iter()
            .map(|(scheme, secret)| {
                let sender = json!({"scheme": scheme, "secrets": [secret]});
                ((*scheme).to_owned(), sender)
            })
            .collect();
        let mut variables = self.common_variables();
        variables.insert("QUEUE_URL".to_owned(), self.queues.queue_url(WORK));
        variables.insert("SENDERS".to_owned(), json!(senders).to_string());
        variables.insert("PUBLIC_URL".to_owned(), PUBLIC_URL.to_owned());
        variables
    }

    /// The variables of a queue process with a dead-letter queue.
    #[must_use]
    pub fn queue_variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.common_variables();
        variables.insert("TARGET_URL".to_owned(), self.target.url());
        variables.insert("DEAD_LETTER_URL".to_owned(), self.queues.queue_url(DEAD));
        variables.insert("QUEUE_URL".to_owned(), self.queues.queue_url(WORK));
        variables
    }

    fn common_variables(&self) -> BTreeMap<String, String> {
        [
            ("CLAIMS_TABLE", self.table.clone()),
            ("AWS_ENDPOINT_URL_DYNAMODB", self.dynamodb.url()),
            ("AWS_ENDPOINT_URL_SQS", self.sqs.url()),
            ("RUST_LOG", "info".to_owned()),
            ("RUST_BACKTRACE", "1".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// Starts a webhook process.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub async fn webhook(&self) -> anyhow::Result<Process> {
        self.process("webhook", &self.webhook_variables()).await
    }

    /// Starts a queue process.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub async fn queue(&self) -> anyhow::Result<Process> {
        self.process("queue", &self.queue_variables()).await
    }

    /// Starts a function with these variables.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub async fn process(
        &self,
        function: &str,
        variables: &BTreeMap<String, String>,
    ) -> anyhow::Result<Process> {
        let binary = self.suite.binaries.path(function)?;
        Process::start(function, &binary, variables, self.log.clone()).await
    }

    /// Starts a function that must refuse to run, and returns its exit code.
    ///
    /// # Errors
    ///
    /// It ran all the same.
    pub async fn refused(
        &self,
        function: &str,
        variables: &BTreeMap<String, String>,
    ) -> anyhow::Result<Option<i32>> {
        let binary = self.suite.binaries.path(function)?;
        Process::refused(function, &binary, variables, self.log.clone()).await
    }

    /// Feeds the work queue to `workers`, all at once and in batches of ten, until it is empty.
    ///
    /// # Errors
    ///
    /// A worker failed, or messages keep coming back.
    pub async fn drain(&self, workers: &[Process]) -> anyhow::Result<()> {
        for _ in 0..DRAIN_LIMIT {
            let batches: Vec<_> = workers
                .iter()
                .map(|_| self.queues.receive(WORK, 10))
                .collect();
            if batches.iter().all(|batch| batch.messages.is_empty()) {
                return Ok(());
            }
            let answers = workers
                .iter()
                .zip(&batches)
                .map(|(worker, batch)| async move {
                    if batch.messages.is_empty() {
                        return Ok(());
                    }
                    let answer = worker.invoke(&batch.event()).await?;
                    self.queues.settle(batch, &answer)
                });
            futures_util::future::try_join_all(answers).await?;
        }
        bail!(
            "messages keep coming back: {:?}",
            self.queues.messages(WORK)
        )
    }

    /// Hands `count` messages of the work queue to a worker once, and returns its answer.
    ///
    /// # Errors
    ///
    /// The worker failed.
    pub async fn work(&self, worker: &Process, count: usize) -> anyhow::Result<serde_json::Value> {
        let batch = self.queues.receive(WORK, count);
        let answer = worker
            .invoke_within(&batch.event(), Duration::from_secs(20))
            .await?;
        self.queues.settle(&batch, &answer)?;
        Ok(answer)
    }
}
