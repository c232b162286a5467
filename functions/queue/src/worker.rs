//! The worker: folds a batch into its answer.

use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use firstclaim::clock::EpochMillis;
use firstclaim::metrics::Metrics;
use firstclaim::{Claims, Invocation, Key, Store};
use futures_util::lock::Mutex;
use futures_util::{FutureExt, StreamExt, stream};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use tracing::Instrument;

mod backoff;
mod record;

use crate::answer::{BatchAnswer, ItemFailure};
use crate::log::{chain, printable};
use crate::message::{Message, read_batch};
use crate::operation::{Operation, Undecoded};
use crate::queues::{DeadLetter, Queues, Reason};
use crate::target::Target;
use record::{Ended, Returned, Settled};

/// The longest wait for SQS to take a visibility: it is a wish, not worth an invocation's time.
const VISIBILITY_PATIENCE: Duration = Duration::from_secs(1);

/// Does the operation of each message once. Cheap to clone; make one per process.
#[derive(Clone, Debug)]
pub struct Worker<S, Q> {
    claims: Claims<S>,
    queues: Q,
    target: Target,
    concurrency: usize,
    metrics: Arc<Metrics>,
}

/// One record of a batch and what it asks for.
struct Record {
    message: Message,
    operation: Result<Operation, Undecoded>,
}

/// What the records of one key share: one of them works at a time, and where its answer was to come
/// back later, that is the answer of the others too.
type KeyStates<'a> = HashMap<&'a Key, Mutex<Option<Returned>>>;

impl<S: Store, Q: Queues> Worker<S, Q> {
    /// A worker that claims with `claims`, applies operations to `target` and works on up to
    /// `concurrency` records (of a FIFO queue: groups) at once.
    pub fn new(claims: Claims<S>, queues: Q, target: Target, concurrency: usize) -> Self {
        Self {
            claims,
            queues,
            target,
            concurrency: concurrency.max(1),
            metrics: Arc::new(Metrics::new("queue")),
        }
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
    pub async fn handle(&self, event: LambdaEvent<Value>) -> BatchAnswer {
        let invocation = Invocation::from(&event.context);
        let span = tracing::info_span!(
            "batch",
            request_id = invocation.request.as_deref(),
            trace_id = invocation.trace.as_deref(),
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
                operation: Operation::decode(&message),
                message,
            })
            .collect();
        let keys: KeyStates<'_> = records
            .iter()
            .filter_map(|record| Some((&record.operation.as_ref().ok()?.key, Mutex::default())))
            .collect();
        // What has no entry in the end is returned.
        let settled: Vec<OnceLock<Settled>> = records.iter().map(|_| OnceLock::new()).collect();
        {
            let (records, keys, settled) = (&records, &keys, &settled);
            let work = stream::iter(lanes(records))
                .for_each_concurrent(self.concurrency, |lane| async move {
                    self.lane(&lane, records, keys, settled).await
                });
            match cutoff(deadline.since(self.claims.now())) {
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
        }
        answer(&records, &settled)
    }

    /// Works on the records of one lane in their order. On a FIFO queue nothing that comes after a
    /// returned record is begun.
    async fn lane(
        &self,
        lane: &[usize],
        records: &[Record],
        keys: &KeyStates<'_>,
        settled: &[OnceLock<Settled>],
    ) {
        let mut stopped: Option<Returned> = None;
        for &at in lane {
            let record = &records[at];
            let started = self.claims.now();
            let ended = match stopped {
                Some(returned) => Ended::unprocessed("behind_returned", returned),
                None => self.guarded(record, keys).await,
            };
            let ended = self.returnable(record, ended).await;
            let took = self.claims.now().since(started);
            ended.log(record.message.id.as_deref(), took);
            ended.count(&self.metrics, record.operation.as_ref().ok(), took);
            if let Settled::Returned(returned) = ended.settled {
                self.hide(&record.message, returned).await;
                if record.message.fifo() {
                    stopped = Some(returned);
                }
            }
            // Each record is in one lane and comes up once.
            let _ = settled[at].set(ended.settled);
        }
    }

    /// One record, whose panic is its own.
    async fn guarded(&self, record: &Record, keys: &KeyStates<'_>) -> Ended {
        match AssertUnwindSafe(self.one(record, keys))
            .catch_unwind()
            .await
        {
            Ok(ended) => ended,
            Err(_) => Ended::panicked(&record.message),
        }
    }

    async fn one(&self, record: &Record, keys: &KeyStates<'_>) -> Ended {
        let operation = match &record.operation {
            Ok(operation) => operation,
            Err(error) => return self.undecoded(&record.message, error).await,
        };
        let Some(state) = keys.get(&operation.key) else {
            return self.perform(&record.message, operation).await;
        };
        let mut state = state.lock().await;
        if let Some(returned) = *state {
            return Ended::unprocessed("same_key_returned", returned).of(&operation.key);
        }
        // A panic leaves this in place: the others of the key come back too.
        *state = Some(Returned::after_backoff(record.message.receives));
        let ended = self.perform(&record.message, operation).await;
        *state = match ended.settled {
            Settled::Returned(returned) if ended.concerns_key => Some(returned),
            _ => None,
        };
        ended
    }

    /// A record without an identifier can't be returned: it would be taken for done and be lost.
    /// So it becomes a dead letter.
    async fn returnable(&self, record: &Record, ended: Ended) -> Ended {
        let message = &record.message;
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

    /// Sets a returned record's visibility, as far as SQS lets us.
    async fn hide(&self, message: &Message, returned: Returned) {
        let (Some(seconds), Some((arn, receipt))) = (returned.visibility, message.receipt()) else {
            return;
        };
        let set = self.queues.set_visibility(arn, receipt, seconds);
        let failed = match tokio::time::timeout(VISIBILITY_PATIENCE, set).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(_) => "SQS did not answer in time".to_owned(),
        };
        tracing::warn!(
            target: "firstclaim::batch",
            message_id = message.id.as_deref().map(printable).as_deref(),
            cause = failed,
            "the visibility could not be set; the queue's own holds",
        );
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
        let lane = if record.message.fifo() {
            Some(Lane::Group(record.message.group.as_deref()))
        } else {
            record
                .operation
                .as_ref()
                .ok()
                .map(|operation| Lane::Key(&operation.key))
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

/// After which time the batch is answered, whatever is still going on: early enough for the answer
/// to arrive. `None` where there is no time at all, which each claim finds out for itself.
fn cutoff(remaining: Duration) -> Option<Duration> {
    let margin = (remaining / 10).min(Duration::from_millis(250));
    (!remaining.is_zero()).then(|| remaining - margin)
}

fn answer(records: &[Record], settled: &[OnceLock<Settled>]) -> BatchAnswer {
    let mut seen = HashSet::new();
    let batch_item_failures = records
        .iter()
        .zip(settled)
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
