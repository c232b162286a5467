//! SNS notifications in a queue's messages, where the subscription does not deliver raw.
//!
//! Source: "Amazon SNS message and JSON formats" in the SNS developer guide; a notification that
//! SNS sends again keeps its `MessageId`. The signature is not checked: who may send to the queue
//! is the queue policy's business.

use super::{Asked, Members, Noise, Operation, Undecoded, foreign, members, text};

/// What SES publishes to a topic that is given to it.
const SES_TEST: &str = "Successfully validated SNS topic for Amazon SES";

/// A notification.
pub(super) struct Notification {
    id: String,
    topic: String,
    message: String,
}

impl Notification {
    /// `None` where the message is no notification.
    pub(super) fn of(wrapper: &Members<'_>) -> Result<Option<Self>, Undecoded> {
        let member = |name| text(wrapper, name);
        let (Some(kind), Some(id), Some(topic)) =
            (member("Type"), member("MessageId"), member("TopicArn"))
        else {
            return Ok(None);
        };
        match (kind.as_str(), member("Message")) {
            ("Notification", Some(message)) => Ok(Some(Self { id, topic, message })),
            ("SubscriptionConfirmation" | "UnsubscribeConfirmation", _) => {
                Err(Undecoded::Subscription)
            }
            _ => Ok(None),
        }
    }

    /// What its message asks for; one that says nothing of itself is known by the notification.
    pub(super) fn decode(&self, threads: bool) -> Result<Asked, Undecoded> {
        let members = members(&self.message);
        if let Some(members) = &members
            && let Some(asked) = Asked::direct(&self.message, members, &self.id, threads)?
        {
            return Ok(asked);
        }
        if self.message.starts_with(SES_TEST) {
            return Ok(Asked::Nothing(Noise::SesTest));
        }
        let key = foreign::joined(&[
            "sns".into(),
            self.topic.as_str().into(),
            self.id.as_str().into(),
        ])?;
        let operation = Operation::foreign(key, &self.id, &self.message);
        let content_type = match members {
            Some(_) => operation.content_type.clone(),
            None => "text/plain; charset=utf-8".to_owned(),
        };
        Ok(Operation {
            content_type,
            ..operation
        }
        .into())
    }
}
