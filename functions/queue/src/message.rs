//! SQS records, read one by one and leniently: whatever one of them lacks is its own trouble.

use serde_json::Value;

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// `messageId`; `None` where there is none to return the record by.
    pub(crate) id: Option<String>,
    pub(crate) body: Body,
    /// `ApproximateReceiveCount`, at least 1.
    pub(crate) receives: u32,
    /// `MessageGroupId`. Standard queues carry it too, where it means nothing for the order.
    pub(crate) group: Option<String>,
    /// `AWSTraceHeader`.
    pub(crate) trace: Option<String>,
    receipt: Option<String>,
    source_arn: Option<String>,
}

/// A record's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// A text, as SQS brings it.
    Text(String),
    /// Missing, or no text: its JSON text.
    Other(String),
}

/// Takes the records out of an event; none where it has none.
pub(crate) fn read_batch(mut event: Value) -> Option<Vec<Message>> {
    match event.get_mut("Records").map(Value::take) {
        Some(Value::Array(records)) => Some(records.into_iter().map(Message::read).collect()),
        _ => None,
    }
}

impl Message {
    fn read(mut record: Value) -> Self {
        let mut take = |pointer: &str| record.pointer_mut(pointer).map(Value::take);
        let mut text = |pointer: &str| match take(pointer) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let id = text("/messageId");
        let receipt = text("/receiptHandle");
        let source_arn = text("/eventSourceARN");
        let group = text("/attributes/MessageGroupId");
        let trace = text("/attributes/AWSTraceHeader");
        let receives = match take("/attributes/ApproximateReceiveCount") {
            Some(Value::String(text)) => text.parse().unwrap_or(1),
            Some(Value::Number(number)) => number
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .unwrap_or(1),
            _ => 1,
        };
        let body = match take("/body") {
            Some(Value::String(text)) => Body::Text(text),
            other => Body::Other(other.unwrap_or_default().to_string()),
        };
        Self {
            id,
            body,
            receives: receives.max(1),
            group,
            trace,
            receipt,
            source_arn,
        }
    }

    /// Whether its queue keeps an order, which only the queue's name tells.
    pub(crate) fn fifo(&self) -> bool {
        self.source_arn
            .as_deref()
            .is_some_and(|arn| arn.ends_with(".fifo"))
    }

    /// What must be named to set its visibility: the queue's ARN and the receipt handle.
    pub(crate) fn receipt(&self) -> Option<(&str, &str)> {
        Some((self.source_arn.as_deref()?, self.receipt.as_deref()?))
    }

    /// Its body for a dead letter: as it is; what SQS would not take, as its JSON text.
    pub(crate) fn letter_body(&self) -> String {
        match &self.body {
            Body::Text(text) if text.is_empty() => "\"\"".to_owned(),
            Body::Text(text) | Body::Other(text) => text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p94_whatever_a_record_lacks_is_its_own_trouble() {
        let strange = json!({"Records": [
            null, 7, "text", [], {},
            {"messageId": "", "body": null},
            {"messageId": 5, "body": {"key": "a"}, "attributes": null},
            {"messageId": "m", "body": "b", "attributes": {"ApproximateReceiveCount": "0"}},
        ]});
        let records = read_batch(strange).unwrap();
        assert_eq!(records.len(), 8);
        assert!(records[..7].iter().all(|record| record.id.is_none()));
        assert!(records.iter().all(|record| record.receives == 1));
        assert_eq!(records[6].body, Body::Other(r#"{"key":"a"}"#.to_owned()));
        assert_eq!(records[7].body, Body::Text("b".to_owned()));
        for none in [json!(null), json!([]), json!({}), json!({"Records": {}})] {
            assert_eq!(read_batch(none), None);
        }
    }

    #[test]
    fn n28_a_queue_is_fifo_by_its_name_alone() {
        let read = |arn: &str| {
            Message::read(json!({
                "eventSourceARN": arn,
                "attributes": {"MessageGroupId": "g"},
            }))
        };
        assert!(read("arn:aws:sqs:us-east-1:000000000000:work.fifo").fifo());
        assert!(!read("arn:aws:sqs:us-east-1:000000000000:work").fifo());
        assert!(!read("").fifo());
    }
}
