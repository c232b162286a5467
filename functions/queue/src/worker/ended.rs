//! How a record ended: what the batch's answer says of it, what is logged and what is counted.

use std::time::Duration;

use firstclaim::Key;
use firstclaim::metrics::{Metric, Metrics};

use super::backoff;
use crate::log::printable;
use crate::message::Message;
use crate::operation::{Noise, Operation};
use crate::target::Refusal;

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Acknowledged,
    DeadLettered,
    Returned(Returned),
}

/// A record that goes back to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returned {
    /// For how many seconds it stays hidden; `None` leaves the queue's own visibility.
    pub(super) visibility: Option<u32>,
    /// The same, if all of its batch back off.
    pub(super) full: Option<u32>,
}

impl Returned {
    pub(super) const AS_THE_QUEUE_SAYS: Self = Self {
        visibility: None,
        full: None,
    };

    pub(super) fn after_backoff(receives: u32) -> Self {
        Self {
            visibility: Some(backoff::after(receives)),
            full: Some(backoff::full(receives)),
        }
    }

    /// When what was refused may be tried again.
    pub(super) fn when(refusal: &Refusal, receives: u32) -> Self {
        let again = Self::after_backoff(receives);
        let Some(word) = refusal.retry_after else {
            return again;
        };
        let said = |backoff| backoff::at_the_targets_word(word, receives, backoff);
        Self {
            visibility: again.visibility.map(said),
            full: again.full.map(said),
        }
    }

    pub(super) fn after(wait: Duration) -> Self {
        Self {
            visibility: Some(backoff::exactly(wait)),
            full: None,
        }
    }
}

impl Settled {
    /// What becomes of a message that asks for this operation and for others: it is returned if one
    /// of them must come back, for as long as the longest of them asks for.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Returned(one), Self::Returned(other)) => Self::Returned(Returned {
                visibility: one.visibility.max(other.visibility),
                full: one.full.zip(other.full).map(|(one, other)| one.max(other)),
            }),
            (returned @ Self::Returned(_), _) | (_, returned @ Self::Returned(_)) => returned,
            (Self::DeadLettered, _) | (_, Self::DeadLettered) => Self::DeadLettered,
            (Self::Acknowledged, Self::Acknowledged) => Self::Acknowledged,
        }
    }
}

/// How a record ended, and what is said about it.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) outcome: &'static str,
    pub(super) settled: Settled,
    pub(super) key: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) code: Option<String>,
    /// The reply that tells the result in the event's thread.
    pub(super) reply: Option<String>,
    /// Whether other messages with this key would end in the same way now.
    pub(super) concerns_key: bool,
    /// Whether its claim was lost while the operation was under way.
    pub(super) lease_lost: bool,
}

impl Ended {
    pub(super) fn new(outcome: &'static str, settled: Settled) -> Self {
        Self {
            outcome,
            settled,
            key: None,
            attempt: None,
            code: None,
            reply: None,
            concerns_key: true,
            lease_lost: false,
        }
    }

    pub(super) fn unprocessed(outcome: &'static str, returned: Returned) -> Self {
        Self::new(outcome, Settled::Returned(returned))
    }

    /// A message that asks for nothing.
    pub(super) fn ignored(noise: Noise) -> Self {
        Self::new("ignored", Settled::Acknowledged).with_code(noise.code())
    }

    pub(super) fn panicked(message: &Message, operation: Option<&Operation>) -> Self {
        let returned = Returned::after_backoff(message.receives);
        let ended = Self::new("panicked", Settled::Returned(returned));
        match operation {
            Some(operation) => ended.of(&operation.key),
            None => ended,
        }
    }

    /// Where the store did not answer: the same, but back for as long as an outage needs. `time` is
    /// all that the invocation had.
    pub(super) fn outlasting_the_store(mut self, message: &Message, time: Duration) -> Self {
        if self.outcome == "store_unavailable"
            && let Settled::Returned(returned) = &mut self.settled
        {
            returned.visibility = backoff::until_the_store_answers(message.receives, time);
        }
        self
    }

    pub(super) fn of(mut self, key: &Key) -> Self {
        self.key = Some(key.as_str().to_owned());
        self
    }

    pub(super) fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    pub(super) fn with_reply(mut self, reply: Option<String>) -> Self {
        self.reply = reply;
        self
    }

    pub(super) fn with_lease_lost(mut self, lost: bool) -> Self {
        self.lease_lost |= lost;
        self
    }

    pub(super) fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Counts the record, under the name of the sender that the envelope carries: only who may send
    /// to the queue can make a new one, and only one that could be configured.
    pub(super) fn count(&self, metrics: &Metrics, operation: Option<&Operation>, took: Duration) {
        let sender = operation
            .map(|operation| operation.sender.as_str())
            .filter(|name| is_sender_name(name));
        if let Some(metric) = self.metric() {
            metrics.count(sender, metric);
        }
        let ran = matches!(self.metric(), Some(Metric::Performed | Metric::NotRecorded));
        if ran && self.attempt.is_some_and(|attempt| attempt > 1) {
            metrics.count(sender, Metric::Takeover);
        }
        if self.lease_lost {
            metrics.count(sender, Metric::LeaseLost);
        }
        metrics.latency(sender, took);
    }

    fn metric(&self) -> Option<Metric> {
        Some(match self.outcome {
            "performed" => Metric::Performed,
            "replayed" | "result_omitted" => Metric::Replayed,
            "replayed_failure" => Metric::ReplayedFailure,
            "in_flight" => Metric::InFlight,
            "held" => Metric::Held,
            "mismatch" => Metric::Mismatch,
            "superseded" => Metric::Superseded,
            "not_recorded" => Metric::NotRecorded,
            "permanent" | "undecodable" => Metric::Permanent,
            "target_misconfigured" => Metric::TargetMisconfigured,
            "ignored" => Metric::Ignored,
            "store_unavailable" => Metric::StoreUnavailable,
            "retryable" | "panicked" | "unknown" | "not_claimed" | "no_time" => Metric::Retryable,
            // Not begun: its next receive counts.
            _ => return None,
        })
    }

    /// The one event that tells of a record.
    pub(super) fn log(&self, message_id: Option<&str>, took: Duration) {
        let answer = match self.settled {
            Settled::Acknowledged => "acknowledged",
            Settled::DeadLettered => "dead_lettered",
            Settled::Returned(_) => "returned",
        };
        let visibility = match self.settled {
            Settled::Returned(returned) => returned.visibility,
            _ => None,
        };
        tracing::info!(
            target: "firstclaim::record",
            outcome = self.outcome,
            key = self.key.as_deref().map(printable).as_deref(),
            attempt = self.attempt,
            code = self.code.as_deref(),
            reply = self.reply.as_deref(),
            message_id = message_id.map(printable).as_deref(),
            answer,
            visibility,
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        );
    }
}

/// Whether a sender could be configured under this name.
fn is_sender_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
}
