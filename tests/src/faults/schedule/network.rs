//! What becomes of requests and replies.

use hyper::body::Bytes;
use serde_json::Value;

use super::Schedule;
use crate::faults::plan::Fate;
use crate::faults::state::State;
use crate::faults::wire::{Answer, Message, Purpose, Waiting};
use crate::faults::world::refusal;

/// An answer on its way back.
pub(super) struct Reply {
    waiting: Waiting,
    answer: Answer,
    /// The record when the engine gave it.
    met: Option<State>,
}

impl Reply {
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.is_awaited()
    }

    /// Whose it is.
    pub(super) fn call(&self) -> usize {
        self.waiting.message.call
    }
}

impl Schedule<'_> {
    /// The request number `at` of those that wait meets its fate.
    pub(super) async fn deliver(&mut self, at: usize, fate: Fate) -> anyhow::Result<()> {
        let waiting = self.waiting.remove(at);
        let Message {
            number,
            call,
            ref purpose,
            ..
        } = waiting.message;
        let name = purpose.name();
        self.note(format_args!("{fate:?}: {name} of call {call} (#{number})"));
        if fate != Fate::Pass {
            self.oracle.faulted(call);
        }
        match fate {
            Fate::Pass => {
                let answer = self.forward(&waiting.message).await?;
                self.arrive(waiting, answer);
            }
            Fate::Internal => waiting.answer(refusal(500, "InternalServerError")),
            Fate::Throttled => waiting.answer(refusal(400, "ThrottlingException")),
            Fate::DropRequest => drop(waiting.cut()),
            Fate::DropReply => {
                self.forward(&waiting.message).await?;
                waiting.cut();
            }
            Fate::Twice => {
                self.forward(&waiting.message).await?;
                let answer = self.forward(&waiting.message).await?;
                self.arrive(waiting, answer);
            }
            Fate::HoldReply => {
                let answer = self.forward(&waiting.message).await?;
                let met = self.oracle.current().cloned();
                self.replies.push(Reply {
                    waiting,
                    answer,
                    met,
                });
            }
            Fate::Later => self.late.push(waiting.cut()),
            Fate::Copy => {
                self.late.push(waiting.message.clone());
                let answer = self.forward(&waiting.message).await?;
                self.arrive(waiting, answer);
            }
            Fate::StripItem => {
                let mut answer = self.forward(&waiting.message).await?;
                answer.body = without_item(&answer.body);
                self.arrive(waiting, answer);
            }
        }
        Ok(())
    }

    /// A copy, or a request whose sender has given up, reaches the engine.
    pub(super) async fn deliver_late(&mut self, at: usize) -> anyhow::Result<()> {
        let message = self.late.remove(at);
        self.note(format_args!(
            "late: {} of call {} (#{})",
            message.purpose.name(),
            message.call,
            message.number
        ));
        self.forward(&message).await.map(drop)
    }

    /// A reply that was held arrives.
    pub(super) fn reply(&mut self, at: usize) {
        let reply = self.replies.remove(at);
        let message = &reply.waiting.message;
        let (name, call, number) = (message.purpose.name(), message.call, message.number);
        self.note(format_args!(
            "the reply to #{number} ({name}) reaches call {call}"
        ));
        let message = reply.waiting.message.clone();
        self.oracle.answered(&message, reply.met);
        reply.waiting.answer(reply.answer);
    }

    fn arrive(&mut self, waiting: Waiting, answer: Answer) {
        let met = self.oracle.current().cloned();
        self.oracle.answered(&waiting.message, met);
        waiting.answer(answer);
    }

    /// Passes a request on, and looks at what it did to the record.
    async fn forward(&mut self, message: &Message) -> anyhow::Result<Answer> {
        let answer = self.world.forward(message).await?;
        if matches!(message.purpose, Purpose::Write(_)) {
            let after = self.world.look(&self.id())?;
            let now = self.now();
            let changed = self.oracle.current() != after.as_ref();
            self.oracle.written(message, after, now);
            match changed {
                true => self.note_state(),
                false => self.note("  = unchanged"),
            }
        }
        Ok(answer)
    }
}

/// A refusal without its item; anything else as it is.
fn without_item(body: &Bytes) -> Bytes {
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut fields)) if fields.contains_key("__type") => {
            fields.remove("Item");
            Bytes::from(Value::Object(fields).to_string())
        }
        _ => body.clone(),
    }
}
