//! A worker with everything around it in memory.
#![expect(clippy::unwrap_used, reason = "a test that can't have its rig fails")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, ManualSource, Source};
use firstclaim::store::memory::{Failing, Memory};
use firstclaim::{Claims, Config, Key, Policy, Record, Status, Store};
use lambda_runtime::{Context, LambdaEvent};
use queue::config::TargetSettings;
use queue::queues::{DeadLetter, QueueError, Queues};
use queue::{Target, Worker};
use serde_json::{Value, json};

use crate::stub::{Reply, Seen, Stub};

pub(crate) const NOW: EpochMillis = EpochMillis(1_794_478_868_000);

pub(crate) const STANDARD: &str = "arn:aws:sqs:us-east-1:000000000000:firstclaim-work";

/// How long an invocation of the rig lasts.
pub(crate) const RUN: Duration = Duration::from_secs(60);

/// Queues in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    takes_dead_letters: bool,
    refuses: bool,
    panics_on: BTreeSet<String>,
    letters: Vec<DeadLetter>,
    visibilities: Vec<(String, u32)>,
    /// The status of the letter's record at the moment when the letter was sent.
    statuses: Vec<Option<Status>>,
    store: Memory,
}

impl Queues for Kept {
    fn takes_dead_letters(&self) -> bool {
        self.0.lock().unwrap().takes_dead_letters
    }

    async fn set_visibility(
        &self,
        source_arn: &str,
        receipt_handle: &str,
        seconds: u32,
    ) -> Result<(), QueueError> {
        assert!(source_arn.starts_with("arn:aws:sqs:"), "{source_arn}");
        assert!((1..=43_200).contains(&seconds), "{seconds}");
        let mut inner = self.0.lock().unwrap();
        if inner.refuses {
            return Err(QueueError::NoQueue);
        }
        let visibility = (receipt_handle.to_owned(), seconds);
        inner.visibilities.push(visibility);
        Ok(())
    }

    async fn dead_letter(&self, letter: DeadLetter) -> Result<(), QueueError> {
        let id = letter.message_id.clone().unwrap_or_default();
        let panics = self.0.lock().unwrap().panics_on.contains(&id);
        assert!(!panics, "as planned");
        let mut inner = self.0.lock().unwrap();
        if inner.refuses || !inner.takes_dead_letters {
            return Err(QueueError::NoQueue);
        }
        let status = inner
            .store
            .records()
            .into_iter()
            .find(|record| Some(&record.id) == letter.key.as_ref())
            .map(|record| record.status);
        inner.statuses.push(status);
        inner.letters.push(letter);
        Ok(())
    }
}

impl Kept {
    pub(crate) fn letters(&self) -> Vec<DeadLetter> {
        self.0.lock().unwrap().letters.clone()
    }

    pub(crate) fn statuses(&self) -> Vec<Option<Status>> {
        self.0.lock().unwrap().statuses.clone()
    }

    /// By receipt handle.
    pub(crate) fn visibilities(&self) -> Vec<(String, u32)> {
        self.0.lock().unwrap().visibilities.clone()
    }

    pub(crate) fn visibility(&self, id: &str) -> Option<u32> {
        let receipt = format!("receipt-{id}");
        let visibilities = self.visibilities();
        let mut found = visibilities.into_iter().filter(|(of, _)| *of == receipt);
        let (_, seconds) = found.next()?;
        assert_eq!(found.next(), None, "a visibility is set once");
        Some(seconds)
    }

    pub(crate) fn refuse(&self) {
        self.0.lock().unwrap().refuses = true;
    }

    pub(crate) fn panic_on(&self, message_id: &str) {
        let mut inner = self.0.lock().unwrap();
        inner.panics_on.insert(message_id.to_owned());
    }
}

/// A worker and what is around it.
pub(crate) struct Rig {
    pub(crate) source: ManualSource,
    pub(crate) memory: Memory,
    pub(crate) store: Failing<Memory>,
    pub(crate) queues: Kept,
    pub(crate) stub: Arc<Stub>,
    pub(crate) target: Target,
    pub(crate) worker: Worker<Failing<Memory>, Kept>,
    pub(crate) config: Config,
}

/// What a rig is made with.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) policy: Policy,
    pub(crate) dead_letters: bool,
    pub(crate) timeout: Duration,
    pub(crate) min_remaining: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            policy: Policy::Rerun,
            dead_letters: true,
            timeout: Duration::from_secs(5),
            min_remaining: Duration::ZERO,
        }
    }
}

impl Rig {
    /// A rig whose target answers as the body's member `answer` says; else 200.
    pub(crate) async fn new(plan: Plan) -> Self {
        Self::answering(plan, answer_in_body).await
    }

    pub(crate) async fn answering(
        plan: Plan,
        reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let stub = Arc::new(Stub::new(reply).await);
        let target = target_at(&stub.url, plan.timeout);
        Self::over(&plan, stub, target)
    }

    /// A rig over a server and a client that were made before.
    pub(crate) fn over(plan: &Plan, stub: Arc<Stub>, target: Target) -> Self {
        Self::at(plan, stub, target, ManualSource::at(NOW))
    }

    /// The same with a clock that was made before.
    pub(crate) fn at(plan: &Plan, stub: Arc<Stub>, target: Target, source: ManualSource) -> Self {
        let memory = Memory::new();
        let store = Failing::new(memory.clone());
        let queues = Kept::default();
        {
            let mut inner = queues.0.lock().unwrap();
            inner.takes_dead_letters = plan.dead_letters;
            inner.store = memory.clone();
        }
        let config = Config {
            policy: plan.policy,
            min_remaining: plan.min_remaining,
            ..Config::default()
        };
        let worker = worker(target.clone(), &source, &store, &queues, &config);
        Self {
            source,
            memory,
            store,
            queues,
            stub,
            target,
            worker,
            config,
        }
    }

    /// Another process over the same store and queues.
    pub(crate) fn cold(&self) -> Worker<Failing<Memory>, Kept> {
        self.cold_to(self.target.clone())
    }

    /// Another process that calls another target.
    pub(crate) fn cold_to(&self, target: Target) -> Worker<Failing<Memory>, Kept> {
        let (source, store, queues) = (&self.source, &self.store, &self.queues);
        worker(target, source, store, queues, &self.config)
    }

    pub(crate) fn source_now(&self) -> EpochMillis {
        self.source.now()
    }

    pub(crate) fn event(&self, records: &[Value]) -> LambdaEvent<Value> {
        self.event_until(self.source.now().after(RUN), json!({ "Records": records }))
    }

    pub(crate) fn event_until(&self, deadline: EpochMillis, event: Value) -> LambdaEvent<Value> {
        let mut context = Context::default();
        context.deadline = u64::try_from(deadline.0).unwrap();
        context.request_id = "request-1".to_owned();
        LambdaEvent::new(event, context)
    }

    /// Handles records and gives the answer's JSON text.
    pub(crate) async fn handle(&self, records: &[Value]) -> String {
        let answer = self.worker.handle(self.event(records)).await;
        serde_json::to_string(&answer).unwrap()
    }

    pub(crate) fn record(&self, key: &str) -> Option<Record> {
        let id = Key::parse(key).unwrap().stored();
        let records = self.memory.records();
        records.into_iter().find(|record| record.id == id)
    }

    pub(crate) fn status(&self, key: &str) -> Option<Status> {
        self.record(key).map(|record| record.status)
    }

    pub(crate) fn effects(&self) -> usize {
        self.stub.seen().len()
    }
}

/// A client for one target.
pub(crate) fn target_at(url: &str, timeout: Duration) -> Target {
    crate::logs::listen();
    let mut settings = TargetSettings::to(url.parse().unwrap());
    settings.timeout = timeout;
    Target::new(settings, &aws_config::SdkConfig::builder().build()).unwrap()
}

pub(crate) fn worker<S: Store>(
    target: Target,
    source: &ManualSource,
    store: &S,
    queues: &Kept,
    config: &Config,
) -> Worker<S, Kept> {
    let claims = Claims::new(store.clone(), config.clone())
        .unwrap()
        .with_source(source.clone());
    Worker::new(claims, queues.clone(), target, 10)
}

/// A record of a standard queue.
pub(crate) fn record(id: &str, body: &str) -> Value {
    json!({
        "messageId": id,
        "receiptHandle": format!("receipt-{id}"),
        "body": body,
        "attributes": {"ApproximateReceiveCount": "1"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": STANDARD,
    })
}

/// A record of a FIFO queue.
pub(crate) fn fifo(id: &str, group: &str, body: &str) -> Value {
    let mut record = record(id, body);
    record["eventSourceARN"] = json!(format!("{STANDARD}.fifo"));
    record["attributes"]["MessageGroupId"] = json!(group);
    record
}

/// The body of a foreign message that the target answers with `answer`.
pub(crate) fn body(key: &str, answer: u16) -> String {
    json!({"key": key, "payload": {"answer": answer}}).to_string()
}

/// The batch answer that returns these, as text.
pub(crate) fn returned(ids: &[&str]) -> String {
    let items: Vec<_> = ids
        .iter()
        .map(|id| format!("{{\"itemIdentifier\":\"{id}\"}}"))
        .collect();
    format!("{{\"batchItemFailures\":[{}]}}", items.join(","))
}

pub(crate) fn answer_in_body(seen: &Seen) -> Reply {
    let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    match body["answer"].as_u64() {
        Some(0) => Reply::Hang,
        Some(1) => Reply::Close,
        Some(2) => Reply::CutBody,
        Some(status) => Reply::status(u16::try_from(status).unwrap()),
        None => Reply::status(200),
    }
}
