//! The worker: folds a batch into its answer.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use firstclaim::clock::EpochMillis;
use firstclaim::metrics::{Metric, Metrics};
use firstclaim::{Claims, Invocation, Key, Store};
use futures_util::lock::Mutex;
use futures_util::{FutureExt, StreamExt, stream};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use tokio::time::Instant;
use tracing::Instrument;

mod backoff;
mod ended;
mod pace;
mod record;
mod thread;

use crate::answer::{BatchAnswer, ItemFailure};
use crate::log::{chain, printable};
use crate::message::{Message, read_batch};
use crate::operation::{Asked, Noise, Operation, Undecoded};
use crate::queues::{DeadLetter, Queues, Reason};
use crate::target::Target;
use crate::threads::Threads;
use ended::{Ended, Returned, Settled};
use pace::Pace;

/// The longest wait for SQS to take the visibilities: they are wishes, not worth an invocation's
/// time.
const VISIBILITY_PATIENCE: Duration = Duration::from_secs(1);

/// How many visibilities are set at once.
const VISIBILITIES: usize = 10;

/// Does the operation of each message once. Cheap to clone; make one per process.
#[derive(Clone, Debug)]
pub struct Worker<S, Q> {
    claims: Claims<S>,
    queues: Q,
    target: Target,
    threads: Option<Threads>,
    concurrency: usize,
    metrics: Arc<Metrics>,
    pace: Arc<Pace>,
}

/// One record of a batch and what it asks for.
struct Record {
    message: Message,
    asked: Result<Asked, Undecoded>,
}

impl Record {
    fn operations(&self) -> &[Operation] {
        match &self.asked {
            Ok(Asked::Operations(operations)) => operations,
            _ => &[],
        }
    }
}

/// What the records of one key share: one of them works at a time, and where its answer was to come
/// back later, that is the answer of the others too.
type KeyStates<'a> = HashMap<&'a Key, Mutex<Option<Returned>>>;

/// A batch at work.
struct Batch<'a> {
    records: &'a [Record],
    keys: KeyStates<'a>,
    /// What has no entry in the end is returned.
    settled: Vec<OnceLock<Settled>>,
    deadline: EpochMillis,
    /// The time that the whole batch had.
    time: Duration,
}

impl<S: Store, Q: Queues> Worker<S, Q> {
    /// A worker that claims with `claims`, applies operations to `target` and works on up to
    /// `concurrency` records (of a FIFO queue: groups) at once.
    pub fn new(claims: Claims<S>, queues: Q, target: Target, concurrency: usize) -> Self {
        Self {
            claims,
            queues,
            target,
            threads: None,
            concurrency: concurrency.max(1),
            metrics: Arc::new(Metrics::new("queue")),
            pace: Arc::default(),
        }
    }

    /// The same, for a deployment that has a threads server: events that name a thread are told
    /// there.
    #[must_use]
    pub fn with_threads(self, threads: Option<Threads>) -> Self {
        Self { threads, ..self }
    }

    /// Writes what was counted since the last call, as CloudWatch embedded metrics.
    ///
    /// # Errors
    ///
    /// The output can't be written to; the counts are gone then.
    pub fn flush_metrics(&self, out: &mut impl io::Write) -> io::Result<()> {
        self.metrics.flush(self.claims.now(), out)
    }

    /// Handles one batch: whatever happens to a record is that record's answer alone.
    ///
    /// A record that has not been finished a little before the invocation's deadline is returned.
    /// Nothing goes on behind the answer: no task is spawned here.
    pub async fn handle(&self, event: LambdaEvent<Value>) -> BatchAnswer {
        let invocation = Invocation::from(&event.context);
        let span = tracing::info_span!(
            "batch",
            // As the runtime's own span calls them, which other lines stand in.
            requestId = invocation.request.as_deref(),
            xrayTraceId = invocation.trace.as_deref(),
        );
        let deadline = invocation.deadline;
        let batch = self.fold(event.payload, deadline);
        invocation.scope(batch).instrument(span).await
    }

    async fn fold(&self, event: Value, deadline: EpochMillis) -> BatchAnswer {
        let Some(messages) = read_batch(event) else {
            tracing::error!(
                target: "firstclaim::batch",
                "the event is no SQS batch: it has no list `Records`",
            );
            return BatchAnswer::default();
        };
        let records: Vec<Record> = messages
            .into_iter()
            .map(|message| Record {
                asked: Asked::decode(&message, self.threads.is_some()),
                message,
            })
            .collect();
        let keys = records
            .iter()
            .flat_map(Record::operations)
            .map(|operation| (&operation.key, Mutex::default()))
            .collect();
        let batch = Batch {
            keys,
            settled: records.iter().map(|_| OnceLock::new()).collect(),
            records: &records,
            deadline,
            time: deadline.since(self.claims.now()),
        };
        let started = Instant::now();
        let work = stream::iter(lanes(&records))
            .for_each_concurrent(self.concurrency, |lane| self.lane(lane, &batch));
        match cutoff(batch.time) {
            Some(cutoff) => {
                if tokio::time::timeout(cutoff, work).await.is_err() {
                    tracing::error!(
                        target: "firstclaim::batch",
                        "the deadline is near; unfinished records are returned",
                    );
                }
            }
            None => work.await,
        }
        self.hide(&batch, started).await;
        answer(&batch)
    }

    /// Works on the records of one lane in their order. On a FIFO queue nothing that comes after a
    /// returned record is begun.
    async fn lane(&self, lane: Vec<usize>, batch: &Batch<'_>) {
        let mut stopped: Option<Returned> = None;
        for at in lane {
            let record = &batch.records[at];
            let settled = self.record(record, batch, stopped).await;
            if let Settled::Returned(returned) = settled
                && record.message.fifo()
            {
                stopped = Some(returned);
            }
            // Each record is in one lane and comes up once.
            let _ = batch.settled[at].set(settled);
        }
    }

    /// One record: what it asks for, or why that can't be told.
    async fn record(
        &self,
        record: &Record,
        batch: &Batch<'_>,
        stopped: Option<Returned>,
    ) -> Settled {
        let message = &record.message;
        if record.operations().is_empty() {
            let work = async {
                match (&record.asked, stopped) {
                    (_, Some(returned)) => Ended::unprocessed("behind_returned", returned),
                    (Err(error), None) => self.undecoded(message, error).await,
                    (Ok(Asked::Nothing(noise)), None) => Ended::ignored(*noise),
                    (Ok(Asked::Operations(_)), None) => Ended::ignored(Noise::NoRecords),
                }
            };
            return self.said(message, None, work).await;
        }
        let mut whole = Settled::Acknowledged;
        let mut stopped = stopped;
        for operation in record.operations() {
            let work = async {
                match stopped {
                    Some(returned) => {
                        Ended::unprocessed("behind_returned", returned).of(&operation.key)
                    }
                    None => self.one(message, operation, batch).await,
                }
            };
            let settled = self.said(message, Some(operation), work).await;
            if let Settled::Returned(returned) = settled
                && message.fifo()
            {
                stopped = Some(returned);
            }
            whole = whole.and(settled);
        }
        whole
    }

    /// Does one thing for a message, whose panic is its own, and tells how it ended.
    async fn said(
        &self,
        message: &Message,
        operation: Option<&Operation>,
        work: impl Future<Output = Ended>,
    ) -> Settled {
        let started = self.claims.now();
        let ended = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(ended) => ended,
            Err(_) => Ended::panicked(message, operation),
        };
        let ended = self.returnable(message, ended).await;
        let took = self.claims.now().since(started);
        ended.log(message.id.as_deref(), took);
        ended.count(&self.metrics, operation, took);
        ended.settled
    }

    async fn one(&self, message: &Message, operation: &Operation, batch: &Batch<'_>) -> Ended {
        let Some(state) = batch.keys.get(&operation.key) else {
            return self.perform(message, operation).await;
        };
        let mut state = state.lock().await;
        if let Some(returned) = *state {
            return Ended::unprocessed("same_key_returned", returned).of(&operation.key);
        }
        // What a duplicate would find is not looked for either: it costs the time of a call where
        // it finds nothing.
        let left = batch.deadline.since(self.claims.now());
        if !self.pace.fits(left, batch.time) {
            let returned = Returned::AS_THE_QUEUE_SAYS;
            return Ended::unprocessed("not_started", returned).of(&operation.key);
        }
        // A panic leaves this in place: the others of the key come back too.
        *state = Some(Returned::after_backoff(message.receives));
        let ended = self.perform(message, operation).await;
        let ended = ended.outlasting_the_store(message, batch.time);
        *state = match ended.settled {
            Settled::Returned(returned) if ended.concerns_key => Some(returned),
            _ => None,
        };
        ended
    }

    /// A record without an identifier can't be returned: it would be taken for done and be lost.
    /// So it becomes a dead letter.
    async fn returnable(&self, message: &Message, ended: Ended) -> Ended {
        if message.id.is_some() || !matches!(ended.settled, Settled::Returned(_)) {
            return ended;
        }
        let letter = DeadLetter {
            body: message.letter_body(),
            key: ended.key.clone(),
            reason: Reason::Unreturnable,
            code: ended
                .code
                .clone()
                .unwrap_or_else(|| ended.outcome.to_owned()),
            attempt: ended.attempt,
            message_id: None,
            group: message.group.clone(),
        };
        match self.queues.dead_letter(letter).await {
            Ok(()) => Ended {
                settled: Settled::DeadLettered,
                ..ended
            },
            Err(error) => {
                tracing::error!(
                    target: "firstclaim::batch",
                    cause = chain(&error),
                    "a record without messageId can be neither returned nor dead-lettered",
                );
                ended
            }
        }
    }

    /// Sets the visibility of what is returned, as far as SQS lets us and time is left. Where the
    /// target took nothing of the whole batch, it is down, and all of it backs off fully.
    async fn hide(&self, batch: &Batch<'_>, started: Instant) {
        let settled = batch.settled.iter().map(OnceLock::get);
        let down = settled.clone().all(|settled| {
            matches!(settled, Some(Settled::Returned(returned)) if returned.full.is_some())
        });
        if down && !batch.records.is_empty() {
            tracing::warn!(
                target: "firstclaim::batch",
                records = batch.records.len(),
                "the target took nothing of this batch; all of it backs off",
            );
        }
        let wishes = batch
            .records
            .iter()
            .zip(settled)
            .filter_map(|(record, settled)| {
                let Some(Settled::Returned(returned)) = settled else {
                    return None;
                };
                let seconds = if down {
                    returned.full
                } else {
                    returned.visibility
                };
                Some((&record.message, seconds?))
            });
        let set = stream::iter(wishes).for_each_concurrent(VISIBILITIES, |(message, seconds)| {
            self.set(message, seconds)
        });
        let left = batch.time.saturating_sub(started.elapsed());
        let patience = VISIBILITY_PATIENCE.min(left * 3 / 4);
        if tokio::time::timeout(patience, set).await.is_err() {
            tracing::warn!(
                target: "firstclaim::batch",
                "SQS did not take the visibilities in time; the queue's own holds",
            );
            self.metrics.count(None, Metric::VisibilityNotSet);
        }
    }

    async fn set(&self, message: &Message, seconds: u32) {
        let Some((arn, receipt)) = message.receipt() else {
            return;
        };
        if let Err(error) = self.queues.set_visibility(arn, receipt, seconds).await {
            tracing::warn!(
                target: "firstclaim::batch",
                message_id = message.id.as_deref().map(printable).as_deref(),
                cause = chain(&error),
                "the visibility could not be set; the queue's own holds",
            );
            self.metrics.count(None, Metric::VisibilityNotSet);
        }
    }
}

/// Which records are worked on one after the other: on a FIFO queue those of a group, in their
/// order; on a standard queue those of one key, the others each on its own.
fn lanes(records: &[Record]) -> Vec<Vec<usize>> {
    #[derive(PartialEq, Eq, Hash)]
    enum Lane<'a> {
        Group(Option<&'a str>),
        Key(&'a Key),
    }
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<Lane<'_>, usize> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        let lane = match record.operations() {
            _ if record.message.fifo() => Some(Lane::Group(record.message.group.as_deref())),
            [operation] => Some(Lane::Key(&operation.key)),
            _ => None,
        };
        match lane {
            Some(lane) => {
                let lane = *known.entry(lane).or_insert_with(|| {
                    lanes.push(Vec::new());
                    lanes.len() - 1
                });
                lanes[lane].push(at);
            }
            None => lanes.push(vec![at]),
        }
    }
    lanes
}

/// After which time the batch is answered, whatever is still going on: early enough for the
/// visibilities to be set and the answer to arrive. `None` where there is no time at all, which
/// each claim finds out for itself.
fn cutoff(time: Duration) -> Option<Duration> {
    let margin = (time / 10).min(Duration::from_secs(1));
    (!time.is_zero()).then(|| time - margin)
}

fn answer(batch: &Batch<'_>) -> BatchAnswer {
    let mut seen = HashSet::new();
    let batch_item_failures = batch
        .records
        .iter()
        .zip(&batch.settled)
        .filter(|(_, settled)| {
            !matches!(
                settled.get(),
                Some(Settled::Acknowledged | Settled::DeadLettered)
            )
        })
        .filter_map(|(record, _)| record.message.id.as_deref())
        .filter(|id| seen.insert(*id))
        .map(|id| ItemFailure {
            item_identifier: id.to_owned(),
        })
        .collect();
    BatchAnswer {
        batch_item_failures,
    }
}
