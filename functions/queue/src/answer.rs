//! The batch answer, as the event source mapping reads it.

use serde::Serialize;

/// What a batch is answered with: the records that SQS must deliver again. An empty list means
/// that all are done.
///
/// ```
/// let answer = queue::BatchAnswer::default();
/// assert_eq!(serde_json::to_string(&answer)?, r#"{"batchItemFailures":[]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// In the order of the batch; each identifier once.
    pub batch_item_failures: Vec<ItemFailure>,
}

/// One record that is returned to its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemFailure {
    /// The record's `messageId`; never empty.
    pub item_identifier: String,
}
