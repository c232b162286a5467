//! The actions of the service: a request's JSON in, an answer's JSON out.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Queues;
use super::message::{Attribute, Draft, Received, attributes_digest, body_digest};
use super::queue::Queue;
use super::refused::Refused;

/// Answers one request.
pub(super) async fn answer(queues: &Queues, action: &str, body: &[u8]) -> Result<Value, Refused> {
    match action {
        "SendMessage" => send(queues, read(body)?).await,
        "ReceiveMessage" => receive(queues, read(body)?).await,
        "DeleteMessage" => delete(queues, read(body)?).await,
        "ChangeMessageVisibility" => change_visibility(queues, read(body)?).await,
        "GetQueueAttributes" => attributes(queues, read(body)?),
        "GetQueueUrl" => url(queues, read(body)?),
        "ListQueues" => Ok(json!({
            "QueueUrls": queues.by_name.keys().map(|name| queues.url(name)).collect::<Vec<_>>(),
        })),
        other => Err(Refused::Action(other.to_owned())),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendMessage {
    queue_url: String,
    message_body: String,
    delay_seconds: Option<u64>,
    #[serde(default)]
    message_attributes: BTreeMap<String, Attribute>,
    #[serde(default)]
    message_system_attributes: BTreeMap<String, Attribute>,
    message_group_id: Option<String>,
}

async fn send(queues: &Queues, request: SendMessage) -> Result<Value, Refused> {
    let queue = queues.named_by(&request.queue_url)?;
    let delay = bounded("DelaySeconds", request.delay_seconds.unwrap_or(0), 0, 900)?;
    let mut answer = Map::new();
    answer.insert(
        "MD5OfMessageBody".to_owned(),
        body_digest(&request.message_body).into(),
    );
    let digests = [
        ("MD5OfMessageAttributes", &request.message_attributes),
        (
            "MD5OfMessageSystemAttributes",
            &request.message_system_attributes,
        ),
    ];
    for (name, attributes) in digests {
        if let Some(digest) = attributes_digest(attributes) {
            answer.insert(name.to_owned(), digest.into());
        }
    }
    let mut system = request.message_system_attributes;
    let draft = Draft {
        body: request.message_body,
        attributes: request.message_attributes,
        group: request.message_group_id,
        trace: system
            .remove("AWSTraceHeader")
            .and_then(|header| header.string_value),
    };
    let id = off_thread(move || queue.send(draft, Duration::from_secs(delay))).await?;
    answer.insert("MessageId".to_owned(), id.into());
    Ok(Value::Object(answer))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveMessage {
    queue_url: String,
    max_number_of_messages: Option<u64>,
    visibility_timeout: Option<u64>,
    wait_time_seconds: Option<u64>,
    #[serde(default)]
    attribute_names: Vec<String>,
    #[serde(default)]
    message_system_attribute_names: Vec<String>,
    #[serde(default)]
    message_attribute_names: Vec<String>,
}

async fn receive(queues: &Queues, request: ReceiveMessage) -> Result<Value, Refused> {
    let queue = queues.named_by(&request.queue_url)?;
    let max = bounded(
        "MaxNumberOfMessages",
        request.max_number_of_messages.unwrap_or(1),
        1,
        10,
    )?;
    let wait = bounded(
        "WaitTimeSeconds",
        request.wait_time_seconds.unwrap_or(0),
        0,
        20,
    )?;
    let visibility = match request.visibility_timeout {
        Some(seconds) => {
            let seconds = bounded("VisibilityTimeout", seconds, 0, 12 * 60 * 60)?;
            Some(Duration::from_secs(seconds))
        }
        None => None,
    };
    let max = usize::try_from(max).unwrap_or(1);
    let until = tokio::time::Instant::now() + Duration::from_secs(wait);
    let received = loop {
        let from = queue.clone();
        let received = off_thread(move || from.receive(max, visibility)).await?;
        // Another receiver may have been faster: then there is time to wait again.
        if !received.is_empty() || tokio::time::timeout_at(until, queue.ready()).await.is_err() {
            break received;
        }
    };
    if received.is_empty() {
        return Ok(json!({}));
    }
    let system = [
        request.attribute_names,
        request.message_system_attribute_names,
    ]
    .concat();
    let messages: Vec<Value> = received
        .iter()
        .map(|message| message_json(message, &system, &request.message_attribute_names))
        .collect();
    Ok(json!({ "Messages": messages }))
}

fn message_json(message: &Received, system: &[String], named: &[String]) -> Value {
    let attributes: BTreeMap<&String, &Attribute> = message
        .draft
        .attributes
        .iter()
        .filter(|(name, _)| named.iter().any(|asked| asks_for(asked, name)))
        .collect();
    let system: BTreeMap<&str, String> = message
        .system_attributes()
        .into_iter()
        .filter(|(name, _)| system.iter().any(|asked| asked == "All" || asked == name))
        .collect();
    let mut json = json!({
        "MessageId": message.id,
        "ReceiptHandle": message.receipt,
        "Body": message.draft.body,
        "MD5OfBody": body_digest(&message.draft.body),
    });
    if !system.is_empty() {
        json["Attributes"] = json!(system);
    }
    if let Some(digest) = attributes_digest(attributes.iter().map(|(name, value)| (*name, *value)))
    {
        json["MD5OfMessageAttributes"] = digest.into();
        json["MessageAttributes"] = json!(attributes);
    }
    json
}

/// Whether an asked name means an attribute: itself, all, or all with a prefix.
fn asks_for(asked: &str, name: &str) -> bool {
    match asked.strip_suffix(".*") {
        Some(prefix) => name.starts_with(prefix),
        None => asked == "All" || asked == name,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Handled {
    queue_url: String,
    receipt_handle: String,
    visibility_timeout: Option<u64>,
}

async fn delete(queues: &Queues, request: Handled) -> Result<Value, Refused> {
    let queue = queues.named_by(&request.queue_url)?;
    off_thread(move || queue.delete(&request.receipt_handle)).await?;
    Ok(json!({}))
}

async fn change_visibility(queues: &Queues, request: Handled) -> Result<Value, Refused> {
    let queue = queues.named_by(&request.queue_url)?;
    let seconds = request
        .visibility_timeout
        .ok_or(Refused::Missing("VisibilityTimeout"))?;
    let visibility = Duration::from_secs(seconds);
    off_thread(move || queue.change_visibility(&request.receipt_handle, visibility)).await?;
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attributes {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

fn attributes(queues: &Queues, request: Attributes) -> Result<Value, Refused> {
    let queue = queues.named_by(&request.queue_url)?;
    let count = queue.count();
    let mut all = BTreeMap::from([
        ("QueueArn", queue.arn()),
        (
            "VisibilityTimeout",
            queue.visibility().as_secs().to_string(),
        ),
        ("ApproximateNumberOfMessages", count.visible.to_string()),
        (
            "ApproximateNumberOfMessagesNotVisible",
            count.in_flight.to_string(),
        ),
        (
            "ApproximateNumberOfMessagesDelayed",
            count.delayed.to_string(),
        ),
    ]);
    if let Some((dead, limit)) = queue.redrive() {
        let policy = json!({ "deadLetterTargetArn": dead.arn(), "maxReceiveCount": limit });
        all.insert("RedrivePolicy", policy.to_string());
    }
    let asked = &request.attribute_names;
    all.retain(|name, _| asked.iter().any(|asked| asked == "All" || asked == name));
    Ok(json!({ "Attributes": all }))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    queue_name: String,
}

fn url(queues: &Queues, request: Named) -> Result<Value, Refused> {
    if !queues.by_name.contains_key(&request.queue_name) {
        return Err(Refused::NoQueue);
    }
    Ok(json!({ "QueueUrl": queues.url(&request.queue_name) }))
}

impl Queues {
    /// The queue that a URL's last segment names: the host may be another name of this machine, and
    /// the port another one than before a restart.
    fn named_by(&self, url: &str) -> Result<Queue, Refused> {
        let name = url.rsplit('/').next().unwrap_or_default();
        self.by_name.get(name).cloned().ok_or(Refused::NoQueue)
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::Invalid(error.to_string()))
}

fn bounded(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Refused> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Refused::Invalid(format!(
        "Value {value} for parameter {name} is invalid. Reason: must be between {least} and {most}."
    )))
}

/// Runs what reads and writes files where it holds up no other task.
async fn off_thread<T, F>(work: F) -> Result<T, Refused>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Refused> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            // The request's own task goes the same way.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Refused::Stopping),
        },
    }
}
