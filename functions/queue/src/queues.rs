//! The queues around the worker: the source, whose visibility is set, and the dead-letter queue.

use std::fmt;
use std::future::Future;

mod sqs;

pub use sqs::Sqs;

/// The longest visibility that is asked for, in seconds. SQS allows 43,200 counted from the
/// receive, which lies at most one run of a Lambda (900 s) back; more would be refused.
pub const LONGEST_VISIBILITY: u32 = 43_200 - 900;

/// What the worker needs of queues. Nothing is ever sent to the source queue.
pub trait Queues: Clone + Send + Sync + 'static {
    /// Whether there is a dead-letter queue. Without one, what can't succeed is returned to its
    /// queue each time, until the queue's own redrive policy moves it.
    fn takes_dead_letters(&self) -> bool;

    /// Hides a received message for `seconds` from now, 1 to [`LONGEST_VISIBILITY`]. `source_arn`
    /// is the record's `eventSourceARN`.
    ///
    /// # Errors
    ///
    /// The visibility is as it was; the message comes back in the queue's own time.
    fn set_visibility(
        &self,
        source_arn: &str,
        receipt_handle: &str,
        seconds: u32,
    ) -> impl Future<Output = Result<(), QueueError>> + Send;

    /// Sends a dead letter. After `Ok` it is in the dead-letter queue.
    ///
    /// # Errors
    ///
    /// It may be there or not: the message must not be taken for finished.
    fn dead_letter(
        &self,
        letter: DeadLetter,
    ) -> impl Future<Output = Result<(), QueueError>> + Send;
}

/// A message that can't succeed, as it goes to the dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message's body, byte for byte, so that it can be redriven. One that is missing, empty
    /// or no text, which SQS would not take, as its JSON text.
    pub body: String,
    /// The operation's key, where the message has one.
    pub key: Option<String>,
    /// Why it is here.
    pub reason: Reason,
    /// What exactly went wrong: `target_422` for example.
    pub code: String,
    /// The attempt, where the key was claimed or its record met.
    pub attempt: Option<u32>,
    /// The message's id in its source queue.
    pub message_id: Option<String>,
    /// The message's group.
    pub group: Option<String>,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The target refused the event for good.
    Permanent,
    /// Its key is bound to another payload.
    Mismatch,
    /// It is no envelope and has no key.
    Undecodable,
    /// The last attempt ended without a known outcome, and the policy forbids another.
    Held,
    /// It should have been returned but has no identifier to return it by.
    Unreturnable,
}

impl Reason {
    /// The text in the attribute `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Mismatch => "mismatch",
            Self::Undecodable => "undecodable",
            Self::Held => "held",
            Self::Unreturnable => "unreturnable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a queue did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// There is no such queue to ask: no dead-letter queue, or an ARN that is none.
    #[error("there is no queue to send to")]
    NoQueue,
    /// The service refused or did not answer.
    #[error("SQS did not confirm {operation}")]
    Service {
        /// The call.
        operation: &'static str,
        /// The client's or service's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
