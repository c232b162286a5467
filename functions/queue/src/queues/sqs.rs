//! Queues on SQS.

use std::sync::Arc;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::MessageAttributeValue;

use super::{DeadLetter, QueueError, Queues};

/// The longest text of an attribute, in bytes: keys can be long, and the whole message has a limit.
const ATTRIBUTE_LIMIT: usize = 1024;

/// The group of dead letters whose message had none, on a FIFO queue, which asks for one.
const GROUP: &str = "firstclaim";

/// The queues on SQS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sqs {
    client: Client,
    dead_letter_url: Option<Arc<str>>,
    endpoint: Option<Arc<str>>,
}

impl Sqs {
    /// Queues over `client`. `dead_letter_url` is the dead-letter queue's URL, if there is one;
    /// `endpoint` the base of queue URLs where it is not AWS's own.
    #[must_use]
    pub fn new(client: Client, dead_letter_url: Option<&str>, endpoint: Option<&str>) -> Self {
        Self {
            client,
            dead_letter_url: dead_letter_url.map(Arc::from),
            endpoint: endpoint.map(Arc::from),
        }
    }
}

impl Queues for Sqs {
    fn takes_dead_letters(&self) -> bool {
        self.dead_letter_url.is_some()
    }

    async fn set_visibility(
        &self,
        source_arn: &str,
        receipt_handle: &str,
        seconds: u32,
    ) -> Result<(), QueueError> {
        let url = queue_url(source_arn, self.endpoint.as_deref()).ok_or(QueueError::NoQueue)?;
        self.client
            .change_message_visibility()
            .queue_url(url)
            .receipt_handle(receipt_handle)
            .visibility_timeout(i32::try_from(seconds).unwrap_or(i32::MAX))
            .send()
            .await
            .map(drop)
            .map_err(|error| QueueError::Service {
                operation: "ChangeMessageVisibility",
                source: Box::new(error),
            })
    }

    async fn dead_letter(&self, letter: DeadLetter) -> Result<(), QueueError> {
        let url = self.dead_letter_url.as_deref().ok_or(QueueError::NoQueue)?;
        let mut send = self.client.send_message().queue_url(url);
        if url.ends_with(".fifo") {
            // Fresh, so that a message that dies twice is kept twice: once is repaired, twice is
            // news. A repeated send may leave two letters, which is better than none.
            let deduplication = uuid::Uuid::new_v4().to_string();
            send = send
                .message_group_id(letter.group.as_deref().unwrap_or(GROUP))
                .message_deduplication_id(deduplication);
        }
        let attempt = letter.attempt.map(|attempt| attempt.to_string());
        for (name, kind, value) in [
            ("firstclaim_key", "String", letter.key.as_deref()),
            ("reason", "String", Some(letter.reason.as_str())),
            ("code", "String", Some(letter.code.as_str())),
            ("attempt", "Number", attempt.as_deref()),
            ("message_id", "String", letter.message_id.as_deref()),
        ] {
            if let Some(value) = attribute(kind, value) {
                send = send.message_attributes(name, value);
            }
        }
        send.message_body(letter.body)
            .send()
            .await
            .map(drop)
            .map_err(|error| QueueError::Service {
                operation: "SendMessage",
                source: Box::new(error),
            })
    }
}

/// An attribute that SQS takes: not empty, bounded, and of the characters that it allows.
fn attribute(kind: &str, value: Option<&str>) -> Option<MessageAttributeValue> {
    let value = value.filter(|value| !value.is_empty())?;
    let bounded = &value[..value.floor_char_boundary(ATTRIBUTE_LIMIT.min(value.len()))];
    let allowed = bounded.replace(
        |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
        "\u{fffd}",
    );
    MessageAttributeValue::builder()
        .data_type(kind)
        .string_value(allowed)
        .build()
        .ok()
}

/// The URL of the queue with this ARN: below `endpoint`, else where AWS has it.
fn queue_url(arn: &str, endpoint: Option<&str>) -> Option<String> {
    let parts: Vec<&str> = arn.split(':').collect();
    let &["arn", partition, "sqs", region, account, name] = parts.as_slice() else {
        return None;
    };
    let plain = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    if ![region, account, name].into_iter().all(plain) {
        return None;
    }
    let base = match (endpoint, partition) {
        (Some(endpoint), _) => endpoint.trim_end_matches('/').to_owned(),
        (None, "aws-cn") => format!("https://sqs.{region}.amazonaws.com.cn"),
        (None, _) => format!("https://sqs.{region}.amazonaws.com"),
    };
    Some(format!("{base}/{account}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::queue_url;

    #[test]
    fn a_queue_url_follows_from_the_arn() {
        let arn = "arn:aws:sqs:eu-central-1:000000000000:work.fifo";
        assert_eq!(
            queue_url(arn, None).as_deref(),
            Some("https://sqs.eu-central-1.amazonaws.com/000000000000/work.fifo")
        );
        assert_eq!(
            queue_url(arn, Some("http://127.0.0.1:4566/")).as_deref(),
            Some("http://127.0.0.1:4566/000000000000/work.fifo")
        );
        assert_eq!(
            queue_url("arn:aws-cn:sqs:cn-north-1:000000000000:work", None).as_deref(),
            Some("https://sqs.cn-north-1.amazonaws.com.cn/000000000000/work")
        );
        for foreign in [
            "",
            "arn:aws:sns:us-east-1:000000000000:work",
            "arn:aws:sqs:us-east-1:000000000000:",
            "arn:aws:sqs:us-east-1:000000000000:a/b",
            "arn:aws:sqs:us-east-1:000000000000:a:b",
            "arn:aws:sqs:us-east-1@example.com:000000000000:a",
        ] {
            assert_eq!(queue_url(foreign, None), None, "{foreign}");
        }
    }
}
