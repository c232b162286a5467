//! Where events are handed on to, and what the answers mean.

use std::time::Duration;

use firstclaim::clock::Source;

use super::event::Event;

mod queue;
mod webhook;

pub(super) use queue::Queue;
pub(super) use webhook::Webhook;

/// A queue, or a webhook.
#[derive(Debug)]
pub(super) enum Destination {
    Queue(Queue),
    Webhook(Webhook),
}

/// What became of one try. After anything but `Done` it may have landed all the same; that it is
/// sent again is harmless, because both copies have the same key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// It was confirmed.
    Done,
    /// To be tried again.
    Later {
        why: String,
        asked: Option<Duration>,
    },
    /// This event is refused, and would be each time.
    Never(String),
    /// Every event would be refused: the settings are wrong.
    Wrong(String),
}

impl Destination {
    /// Where what becomes of an event can be looked up, in words: whose record it is depends on the
    /// one that takes it.
    pub(super) fn records(&self) -> String {
        match self {
            Self::Queue(_) => "the record of KEY is queue#KEY; where the worker has THREADS_URL, \
                               that of a thread's event is KEY itself"
                .to_owned(),
            Self::Webhook(webhook) => format!(
                "the record of KEY is {}#KEY, unless that sender has an operation_key",
                webhook.sender()
            ),
        }
    }

    pub(super) async fn hand_over(&self, event: &Event, source: &impl Source) -> Handed {
        match self {
            Self::Queue(queue) => queue.send(event).await,
            Self::Webhook(webhook) => webhook.post(event, source).await,
        }
    }
}
