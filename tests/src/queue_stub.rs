//! SQS as a stub: what the functions send, the visibility they set, their dead letters; and the
//! batches that an event source mapping would hand to a worker.
//!
//! It speaks the service's JSON protocol over HTTP and knows no time: a returned message can be
//! received again at once, and the visibility that was asked for is kept for the test to look at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::http::{Reply, Server, json as answer};

/// The account in every queue's URL and ARN.
const ACCOUNT: &str = "000000000000";

/// One message of a queue.
#[derive(Clone, Debug)]
pub struct Message {
    /// The service's id; a redrive makes a new one.
    pub id: String,
    /// The handle of the last receive.
    pub receipt: String,
    /// The queue's name.
    pub queue: String,
    /// The body.
    pub body: String,
    /// Text attributes by name.
    pub attributes: BTreeMap<String, String>,
    /// The message group.
    pub group: Option<String>,
    /// The deduplication id of a FIFO queue.
    pub deduplication: Option<String>,
    /// The trace that its sender belongs to, from the request's `X-Amzn-Trace-Id`.
    pub trace: Option<String>,
    /// How often it was received.
    pub receives: u32,
    in_flight: bool,
}

/// Messages that were received together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The messages.
    pub messages: Vec<Message>,
}

impl Batch {
    /// The event that Lambda makes of the batch.
    #[must_use]
    pub fn event(&self) -> Value {
        json!({"Records": self.messages.iter().map(record).collect::<Vec<_>>()})
    }
}

/// A visibility that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visibility {
    /// The message's receipt handle.
    pub receipt: String,
    /// In seconds.
    pub seconds: i64,
}

/// The queues of one test.
#[derive(Debug)]
pub struct QueueStub {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    messages: Vec<Message>,
    visibilities: Vec<Visibility>,
    unknown: BTreeSet<String>,
}

impl QueueStub {
    /// Queues that are made by being sent to.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| {
            let reply = serve(&shared, &request);
            async { reply }
        })
        .await?;
        Ok(Self { server, state })
    }

    /// The service's endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.server.url()
    }

    /// A queue's URL.
    #[must_use]
    pub fn queue_url(&self, queue: &str) -> String {
        format!("{}/{ACCOUNT}/{queue}", self.server.url())
    }

    /// The messages of a queue, received or not, in the order of sending.
    #[must_use]
    pub fn messages(&self, queue: &str) -> Vec<Message> {
        let state = lock(&self.state);
        state
            .messages
            .iter()
            .filter(|message| message.queue == queue)
            .cloned()
            .collect()
    }

    /// Puts a message in, as another sender would.
    pub fn send(&self, queue: &str, body: &str) {
        lock(&self.state).messages.push(message(queue, body));
    }

    /// Receives up to `limit` messages that nobody has in flight.
    #[must_use]
    pub fn receive(&self, queue: &str, limit: usize) -> Batch {
        let mut state = lock(&self.state);
        let waiting = state
            .messages
            .iter_mut()
            .filter(|message| message.queue == queue && !message.in_flight);
        let mut messages = Vec::new();
        for message in waiting.take(limit) {
            message.in_flight = true;
            message.receives += 1;
            message.receipt = uuid::Uuid::new_v4().to_string();
            messages.push(message.clone());
        }
        Batch { messages }
    }

    /// Ends a batch as the event source mapping does: what the answer lists can be received again,
    /// the rest is deleted.
    ///
    /// # Errors
    ///
    /// The answer has not the service's form, or names an identifier that is not in the batch,
    /// where AWS takes the whole batch as failed.
    pub fn settle(&self, batch: &Batch, answer: &Value) -> anyhow::Result<()> {
        let returned = returned(answer)?;
        let ids: BTreeSet<&str> = batch
            .messages
            .iter()
            .map(|message| message.id.as_str())
            .collect();
        for id in &returned {
            ensure!(ids.contains(id.as_str()), "{id:?} is not in the batch");
        }
        let mut state = lock(&self.state);
        state
            .messages
            .retain(|message| !ids.contains(message.id.as_str()) || returned.contains(&message.id));
        for message in &mut state.messages {
            if returned.contains(&message.id) {
                message.in_flight = false;
            }
        }
        Ok(())
    }

    /// Moves every message of `from` to `to` under a new id, as a redrive does. How many those were.
    pub fn redrive(&self, from: &str, to: &str) -> usize {
        let mut state = lock(&self.state);
        let moved = state.messages.iter_mut().filter(|one| one.queue == from);
        let mut count = 0;
        for old in moved {
            *old = Message {
                attributes: old.attributes.clone(),
                group: old.group.clone(),
                ..message(to, &old.body)
            };
            count += 1;
        }
        count
    }

    /// Makes a batch receivable again without an answer, as after a crash of the worker.
    pub fn abandon(&self, batch: &Batch) {
        let ids: BTreeSet<&str> = batch
            .messages
            .iter()
            .map(|message| message.id.as_str())
            .collect();
        for message in &mut lock(&self.state).messages {
            if ids.contains(message.id.as_str()) {
                message.in_flight = false;
            }
        }
    }

    /// Every visibility that was set, in order.
    #[must_use]
    pub fn visibilities(&self) -> Vec<Visibility> {
        lock(&self.state).visibilities.clone()
    }

    /// Operations that were called and that this stub does not know.
    #[must_use]
    pub fn unknown_operations(&self) -> BTreeSet<String> {
        lock(&self.state).unknown.clone()
    }
}

/// The identifiers that a batch answer lists.
///
/// # Errors
///
/// It has not the service's form: `{"batchItemFailures":[{"itemIdentifier":"…"}]}`.
pub fn returned(answer: &Value) -> anyhow::Result<BTreeSet<String>> {
    let failures = answer.get("batchItemFailures").and_then(Value::as_array);
    let failures = failures.with_context(|| format!("no batchItemFailures in {answer}"))?;
    let mut ids = BTreeSet::new();
    for failure in failures {
        let id = failure.get("itemIdentifier").and_then(Value::as_str);
        let id = id.filter(|id| !id.is_empty());
        ids.insert(
            id.with_context(|| format!("no itemIdentifier in {answer}"))?
                .to_owned(),
        );
    }
    ensure!(
        ids.len() == failures.len(),
        "an identifier is listed twice in {answer}"
    );
    Ok(ids)
}

fn record(message: &Message) -> Value {
    let mut attributes = json!({
        "ApproximateReceiveCount": message.receives.to_string(),
        "SentTimestamp": "1794478868123",
        "SenderId": "AROAFCSAMPLE000000000:webhook",
        "ApproximateFirstReceiveTimestamp": "1794478868144",
    });
    if let Some(trace) = &message.trace {
        attributes["AWSTraceHeader"] = json!(trace);
    }
    if let Some(group) = &message.group {
        attributes["MessageGroupId"] = json!(group);
    }
    if let Some(deduplication) = &message.deduplication {
        attributes["MessageDeduplicationId"] = json!(deduplication);
        attributes["SequenceNumber"] = json!("18889999000000000000");
    }
    let texts = message.attributes.iter().map(|(name, text)| {
        let value = json!({
            "stringValue": text,
            "dataType": "String",
            "stringListValues": [],
            "binaryListValues": [],
        });
        (name.clone(), value)
    });
    json!({
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": Value::Object(texts.collect()),
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:us-east-1:{ACCOUNT}:{}", message.queue),
        "awsRegion": "us-east-1",
    })
}

fn serve(state: &Mutex<State>, request: &Request<Bytes>) -> Reply {
    let target = request.headers().get("x-amz-target");
    let target = target
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let operation = target.strip_prefix("AmazonSQS.").unwrap_or(target);
    let trace = request.headers().get("x-amzn-trace-id");
    let trace = trace.and_then(|value| value.to_str().ok());
    let input: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let mut state = lock(state);
    match operation {
        "SendMessage" => {
            let queue = queue_of(&input);
            let message = sent(&queue, &input, trace);
            let id = message.id.clone();
            state.messages.push(message);
            answer(200, &json!({"MessageId": id, "MD5OfMessageBody": ""}))
        }
        "SendMessageBatch" => {
            let queue = queue_of(&input);
            let mut successful = Vec::new();
            for entry in input["Entries"].as_array().into_iter().flatten() {
                let message = sent(&queue, entry, trace);
                successful.push(json!({
                    "Id": entry["Id"],
                    "MessageId": message.id.clone(),
                    "MD5OfMessageBody": "",
                }));
                state.messages.push(message);
            }
            answer(200, &json!({"Successful": successful, "Failed": []}))
        }
        "ChangeMessageVisibility" => {
            state.visibilities.push(visibility(&input));
            answer(200, &json!({}))
        }
        "ChangeMessageVisibilityBatch" => {
            let mut successful = Vec::new();
            for entry in input["Entries"].as_array().into_iter().flatten() {
                state.visibilities.push(visibility(entry));
                successful.push(json!({"Id": entry["Id"]}));
            }
            answer(200, &json!({"Successful": successful, "Failed": []}))
        }
        other => {
            state.unknown.insert(other.to_owned());
            let code = "com.amazonaws.sqs#UnsupportedOperation";
            answer(400, &json!({"__type": code, "message": other}))
        }
    }
}

fn sent(queue: &str, input: &Value, trace: Option<&str>) -> Message {
    let text = |field: &str| input[field].as_str().map(str::to_owned);
    let attributes = input["MessageAttributes"].as_object().into_iter().flatten();
    let attributes = attributes.map(|(name, value)| {
        let text = value["StringValue"].as_str().unwrap_or_default();
        (name.clone(), text.to_owned())
    });
    Message {
        attributes: attributes.collect(),
        group: text("MessageGroupId"),
        deduplication: text("MessageDeduplicationId"),
        trace: trace.map(str::to_owned),
        ..message(queue, input["MessageBody"].as_str().unwrap_or_default())
    }
}

fn message(queue: &str, body: &str) -> Message {
    Message {
        id: uuid::Uuid::new_v4().to_string(),
        receipt: String::new(),
        queue: queue.to_owned(),
        body: body.to_owned(),
        attributes: BTreeMap::new(),
        group: None,
        deduplication: None,
        trace: None,
        receives: 0,
        in_flight: false,
    }
}

fn visibility(input: &Value) -> Visibility {
    Visibility {
        receipt: input["ReceiptHandle"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        seconds: input["VisibilityTimeout"].as_i64().unwrap_or(-1),
    }
}

/// The last segment of the queue's URL is its name.
fn queue_of(input: &Value) -> String {
    let url = input["QueueUrl"].as_str().unwrap_or_default();
    url.rsplit('/').next().unwrap_or_default().to_owned()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
