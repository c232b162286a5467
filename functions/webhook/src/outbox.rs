//! The outbox: where accepted events go, and the queue behind it.

use std::future::Future;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use firstclaim::Envelope;
use firstclaim::envelope::Thread;
use firstclaim::store::Cause;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The longest message that a queue takes, in bytes.
pub const MESSAGE_LIMIT: usize = 1024 * 1024;

/// The longest group id that a queue takes, in bytes.
const GROUP_LIMIT: usize = 128;

/// What is put on the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The envelope's JSON text.
    pub body: String,
    /// What it must stay in order with: its thread if it has one, else its sender.
    pub group: String,
}

impl Message {
    /// The message that carries an envelope.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        let body = queueable(&envelope.to_json());
        let group = match &envelope.thread {
            Some(thread) => thread_group(thread),
            None => envelope.sender.clone(),
        };
        Self { body, group }
    }
}

/// Where accepted events go.
pub trait Outbox: Clone + Send + Sync + 'static {
    /// Sends one message.
    ///
    /// After `Ok` the queue has confirmed it and will deliver it at least once. After an error it
    /// may have landed all the same; sending it again is harmless, because the worker's claim
    /// makes two copies one operation.
    fn send(&self, message: &Message) -> impl Future<Output = Result<(), SendError>> + Send;
}

/// Why a message was not confirmed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue refused it: it is not there.
    #[error("the queue refused the message")]
    Refused(#[source] Cause),
    /// No answer came, so that nobody knows whether it landed.
    #[error("the queue did not confirm the message")]
    Unanswered(#[source] Cause),
    /// Longer than this queue takes.
    #[error("the message has {bytes} bytes, more than the queue takes")]
    TooLarge {
        /// The message's length.
        bytes: usize,
    },
}

/// An SQS queue, standard or FIFO.
#[derive(Clone, Debug)]
pub struct Sqs {
    client: aws_sdk_sqs::Client,
    url: String,
    fifo: bool,
}

impl Sqs {
    /// The queue at `url`; a FIFO queue's URL ends in `.fifo`.
    #[must_use]
    pub fn new(client: aws_sdk_sqs::Client, url: impl Into<String>) -> Self {
        let url = url.into();
        Self {
            client,
            fifo: url.ends_with(".fifo"),
            url,
        }
    }
}

impl Outbox for Sqs {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        // The SDK repeats a call whose reply was lost. On a FIFO queue the deduplication id, drawn
        // once for all its tries, makes that one message; on a standard queue the worker's claim
        // does. A new id for each send, since a redelivery must not be swallowed by the queue.
        let request = self
            .client
            .send_message()
            .queue_url(&self.url)
            .message_group_id(&message.group)
            .set_message_deduplication_id(self.fifo.then(|| Uuid::new_v4().to_string()))
            .message_body(&message.body);
        match request.send().await {
            // Without an id nothing was confirmed.
            Ok(sent) if sent.message_id().is_some_and(|id| !id.is_empty()) => Ok(()),
            Ok(_) => Err(SendError::Unanswered(
                "the answer holds no message id".into(),
            )),
            Err(error) => Err(classify(error, message.body.len())),
        }
    }
}

/// A shorter message than this is never too long for a queue, in bytes: it is the least maximum
/// that queues are commonly given.
const SURELY_TAKEN: usize = 256 * 1024;

fn classify<E>(error: SdkError<E>, bytes: usize) -> SendError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let (refused, code) = match &error {
        SdkError::ConstructionFailure(_) => (true, None),
        // The service's own failures (5xx) may come after the message was kept.
        SdkError::ServiceError(answer) => (answer.raw().status().is_client_error(), error.code()),
        SdkError::DispatchFailure(failure) => (failure.is_user(), None),
        _ => (false, None),
    };
    // What SQS says of a message over the queue's own `MaximumMessageSize`.
    if code == Some("InvalidParameterValue") && bytes > SURELY_TAKEN {
        return SendError::TooLarge { bytes };
    }
    let cause: Cause = Box::new(error);
    if refused {
        SendError::Refused(cause)
    } else {
        SendError::Unanswered(cause)
    }
}

/// A JSON text as a queue takes it: the two code points that a queue refuses for ever are escaped,
/// which is possible inside JSON's own texts, where alone they can stand.
#[must_use]
pub fn queueable(json: &str) -> String {
    json.replace('\u{fffe}', "\\ufffe")
        .replace('\u{ffff}', "\\uffff")
}

/// The group of a thread's messages. A group id takes 128 ASCII letters, digits and punctuation
/// marks; any other thread goes by its digest.
#[must_use]
pub fn thread_group(thread: &Thread) -> String {
    let name = format!("{}#{}", thread.repo, thread.number);
    if name.len() <= GROUP_LIMIT && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return name;
    }
    hex::encode(Sha256::digest(name.as_bytes()))
}
