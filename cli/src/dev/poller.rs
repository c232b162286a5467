//! The event source mapping: takes batches from the local queue to the function, as Lambda does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::function::{Function, Handler};
use super::sqs::message::{Attribute, attributes_digest, body_digest};
use super::sqs::{Queue, REGION, Received};

/// The most messages in a batch: Lambda's default.
const BATCH: usize = 10;

/// How many batches are worked on at once.
const BATCHES: usize = 5;

/// How long nothing is received after the queue failed.
const PAUSE: Duration = Duration::from_secs(1);

/// A running event source mapping.
#[derive(Debug)]
pub(super) struct Poller {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Poller {
    /// Starts to take the messages of `queue` to `function`.
    pub(super) fn start<H: Handler>(queue: Queue, function: Function<H>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(poll(queue, function, stopped));
        Self { stop, task }
    }

    /// Receives nothing more and waits at most `bound` for the running batches. Whether all have
    /// ended; what has not stays in the queue.
    pub(super) async fn stop(self, bound: Duration) -> bool {
        self.stop.send_replace(true);
        tokio::time::timeout(bound, self.task).await.is_ok()
    }
}

async fn poll<H: Handler>(queue: Queue, function: Function<H>, mut stopped: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(BATCHES));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            queue.ready().await;
            place
        };
        // Only waiting is cut off here: what was received is always worked on.
        let place = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            place = next => place,
        };
        // It is never closed.
        let Ok(place) = place else { break };
        let from = queue.clone();
        let received = tokio::task::spawn_blocking(move || from.receive(BATCH, None)).await;
        match received {
            Ok(Ok(messages)) if messages.is_empty() => {}
            Ok(Ok(messages)) => {
                let (queue, function) = (queue.clone(), function.clone());
                tokio::spawn(async move {
                    work(queue, function, messages).await;
                    drop(place);
                });
            }
            Ok(Err(error)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "nothing was received"
                );
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => break,
        }
    }
    let all = u32::try_from(BATCHES).unwrap_or(u32::MAX);
    // It is never closed.
    let _ = places.acquire_many(all).await;
}

/// Takes one batch to the function and deletes what it does not return.
async fn work<H: Handler>(queue: Queue, function: Function<H>, messages: Vec<Received>) {
    let answer = match function.invoke(event(&queue, &messages)).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                messages = messages.len(),
                "no answer from the worker: its batch comes back"
            );
            return;
        }
    };
    let done = match done(&messages, &answer) {
        Ok(done) => done,
        Err(found) => {
            tracing::error!(
                found,
                messages = messages.len(),
                "the worker's answer is no batch answer: its batch comes back"
            );
            return;
        }
    };
    let deleted = tokio::task::spawn_blocking(move || {
        done.iter().try_for_each(|receipt| queue.delete(receipt))
    });
    if let Ok(Err(error)) = deleted.await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a finished message could not be deleted and comes back"
        );
    }
}

/// The event of a batch.
fn event(queue: &Queue, messages: &[Received]) -> Value {
    let arn = queue.arn();
    let records: Vec<Value> = messages
        .iter()
        .map(|message| {
            let mut record = json!({
                "messageId": message.id,
                "receiptHandle": message.receipt,
                "body": message.draft.body,
                "attributes": message.system_attributes(),
                "messageAttributes": message_attributes(message),
                "md5OfBody": body_digest(&message.draft.body),
                "eventSource": "aws:sqs",
                "eventSourceARN": arn,
                "awsRegion": REGION,
            });
            if let Some(digest) = attributes_digest(&message.draft.attributes) {
                record["md5OfMessageAttributes"] = digest.into();
            }
            record
        })
        .collect();
    json!({ "Records": records })
}

fn message_attributes(message: &Received) -> Map<String, Value> {
    let json = |attribute: &Attribute| {
        let mut json = json!({
            "dataType": attribute.data_type,
            "stringListValues": [],
            "binaryListValues": [],
        });
        if let Some(text) = &attribute.string_value {
            json["stringValue"] = text.as_str().into();
        }
        if let Some(binary) = &attribute.binary_value {
            json["binaryValue"] = binary.as_str().into();
        }
        json
    };
    let attributes = message.draft.attributes.iter();
    attributes
        .map(|(name, attribute)| (name.clone(), json(attribute)))
        .collect()
}

/// The handles of the messages that a batch answer does not return. Lambda's own rules: nothing, or
/// an empty list, means that all are done; an identifier that is empty, or not from the batch, means
/// that none is.
fn done(messages: &[Received], answer: &Value) -> Result<Vec<String>, String> {
    let failures = match answer {
        Value::Null => &Value::Null,
        Value::Object(answer) => answer.get("batchItemFailures").unwrap_or(&Value::Null),
        _ => return Err("not an object".to_owned()),
    };
    let failures = match failures {
        Value::Null => &[],
        Value::Array(failures) => failures.as_slice(),
        _ => return Err("`batchItemFailures` is no list".to_owned()),
    };
    let mut returned = BTreeSet::new();
    for failure in failures {
        match failure.get("itemIdentifier").and_then(Value::as_str) {
            Some(id) if messages.iter().any(|message| message.id == id) => {
                returned.insert(id);
            }
            _ => return Err(format!("{failure} names no message of the batch")),
        }
    }
    let done = messages
        .iter()
        .filter(|message| !returned.contains(message.id.as_str()));
    Ok(done.map(|message| message.receipt.clone()).collect())
}

#[cfg(test)]
mod tests;
