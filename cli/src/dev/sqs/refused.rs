//! Refusals, with the codes that clients know.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::folder::FolderError;

/// Why a queue refuses a request; each has the service's own code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no queue of that name.
    #[error("The specified queue does not exist.")]
    NoQueue,
    /// The handle was never one.
    #[error("The input receipt handle is invalid.")]
    NoHandle,
    /// The message is visible, or gone, or was received again since.
    #[error("The message referred to isn't in flight.")]
    NotInFlight,
    /// A body with characters that XML has not.
    #[error(
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF."
    )]
    Characters,
    /// A parameter is missing.
    #[error("The request must contain the parameter {0}.")]
    Missing(&'static str),
    /// A parameter is out of range, or the request is no JSON of this form.
    #[error("{0}")]
    Invalid(String),
    /// An action that is not there.
    #[error("The action {0:?} is not one of this local queue.")]
    Action(String),
    /// The process is about to end.
    #[error("The local queue is stopping.")]
    Stopping,
    /// The message could not be kept.
    #[error("The local queue could not keep its data.")]
    Folder(#[from] FolderError),
}

impl Refused {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Folder(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let shape = match self {
            Self::NoQueue => "QueueDoesNotExist",
            Self::NoHandle => "ReceiptHandleIsInvalid",
            Self::NotInFlight => "MessageNotInflight",
            Self::Characters => "InvalidMessageContents",
            Self::Missing(_) => "MissingRequiredParameterException",
            Self::Invalid(_) => "InvalidParameterValueException",
            Self::Action(_) => "UnsupportedOperation",
            Self::Stopping => "ServiceUnavailable",
            Self::Folder(_) => "InternalFailure",
        };
        json!({ "__type": format!("com.amazonaws.sqs#{shape}"), "message": self.to_string() })
    }

    /// The code of the older protocol and whose fault it is, as SDKs expect them in a header.
    pub(super) fn query_error(&self) -> &'static str {
        match self {
            Self::NoQueue => "AWS.SimpleQueueService.NonExistentQueue;Sender",
            Self::NoHandle => "ReceiptHandleIsInvalid;Sender",
            Self::NotInFlight => "AWS.SimpleQueueService.MessageNotInflight;Sender",
            Self::Characters => "InvalidMessageContents;Sender",
            Self::Missing(_) => "MissingParameter;Sender",
            Self::Invalid(_) => "InvalidParameterValue;Sender",
            Self::Action(_) => "AWS.SimpleQueueService.UnsupportedOperation;Sender",
            Self::Stopping => "ServiceUnavailable;Receiver",
            Self::Folder(_) => "InternalFailure;Receiver",
        }
    }
}
