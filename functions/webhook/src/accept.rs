//! Acceptance: the delivery is claimed, and its event put on the queue.
//!
//! A duplicate of an accepted delivery ends here. What matters more is that no event is lost: the
//! worker's own claim makes two copies one operation, but nothing brings back an event that was
//! answered with 202 and never queued.

use std::error::Error;
use std::time::Duration;

use firstclaim::metrics::Metric;
use firstclaim::store::Cause;
use firstclaim::{Answer, Claim, Claimed, Fingerprint, Key, Store, StoredFailure};
use serde_json::value::RawValue;

use crate::budget::{Budget, OutOfTime};
use crate::door::{Answered, Outcome, Webhook};
use crate::outbox::{Message, Outbox, SendError};
use crate::response::{Problem, Response};
use crate::sender::{Acknowledgement, InFlight};

/// A verified and keyed event.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// What the door claims.
    pub(crate) door: Key,
    /// The id of the event, for the record's origin.
    pub(crate) event: String,
    /// Binds the door's key to the payload.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// How long duplicates are answered, in place of the configured window.
    pub(crate) window: Option<Duration>,
    pub(crate) in_flight: InFlight,
    pub(crate) unclaimed: Unclaimed,
    /// The answer's body, for duplicates too.
    pub(crate) body: Box<RawValue>,
    pub(crate) message: Message,
    pub(crate) budget: Budget,
}

/// What becomes of an event whose delivery can't be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unclaimed {
    /// It is queued all the same: no event is lost to our own store.
    Send,
    /// It is refused: a caller who was told that its key counts must be able to rely on it.
    Refuse,
}

/// An event that the queue has.
#[derive(Debug)]
pub(crate) struct Accepted {
    body: String,
    outcome: Outcome,
}

impl Accepted {
    fn new(delivery: &Delivery, outcome: Outcome) -> Self {
        Self {
            body: delivery.body.get().to_owned(),
            outcome,
        }
    }

    pub(crate) fn into_answer(self, acknowledgement: Acknowledgement) -> Answered {
        let mut response = match acknowledgement {
            Acknowledgement::Queued => Response::new(202, "application/json", self.body),
            Acknowledgement::Empty => Response::new(200, "text/plain", String::new()),
        };
        if self.outcome == Outcome::Replayed {
            response.set("idempotent-replayed", "true");
        }
        Answered {
            response,
            outcome: self.outcome,
        }
    }
}

impl<S: Store, Q: Outbox> Webhook<S, Q> {
    /// Claims the delivery and puts its event on the queue.
    pub(crate) async fn accept(&self, delivery: Delivery) -> Result<Accepted, Problem> {
        let mut once = self
            .claims
            .once(delivery.door.clone())
            .event(delivery.event.as_str());
        if let Some(window) = delivery.window {
            once = once.window(window);
        }
        if let Some(fingerprint) = delivery.fingerprint {
            once = once.fingerprint(fingerprint);
        }
        let outcome = match delivery.budget.claim(once.claim()).await {
            Ok(Ok(Claimed::Held(claim))) => return self.send_claimed(claim, delivery).await,
            Ok(Ok(Claimed::Answered(outcome))) => outcome,
            Ok(Err(error)) => return self.send_after(error.into(), &delivery).await,
            Err(late) => return self.send_after(late.into(), &delivery).await,
        };
        match (outcome.answer, delivery.in_flight) {
            (Answer::Replayed(body), _) => Ok(Accepted {
                body,
                outcome: Outcome::Replayed,
            }),
            // It was accepted, and the answer is a function of the request.
            (Answer::ResultOmitted(_), _) => Ok(Accepted::new(&delivery, Outcome::Replayed)),
            (Answer::Mismatch { .. }, _) => Err(Problem::Mismatch),
            (Answer::InProgress { retry_after, .. }, InFlight::Conflict) => {
                Err(Problem::InFlight { retry_after })
            }
            (Answer::InProgress { .. }, InFlight::SendAgain) => {
                self.send(&delivery).await?;
                Ok(Accepted::new(&delivery, Outcome::InFlight))
            }
            // Held, settled as failed, or taken over meanwhile: nobody can say that it was queued.
            _ => self.send_unclaimed(&delivery).await,
        }
    }

    async fn send_claimed(&self, claim: Claim<S>, delivery: Delivery) -> Result<Accepted, Problem> {
        if let Err(error) = self.put_on_queue(&delivery).await {
            let problem = unsent(&error, &delivery.door);
            give_back(claim, &error, delivery.budget).await;
            return Err(problem);
        }
        // The queue has it: whatever becomes of the record, the event was accepted.
        let accepted = Accepted::new(&delivery, Outcome::Accepted);
        let recording = delivery.budget.record(claim.complete(delivery.body));
        let recorded = recording.await.map(|outcome| outcome.answer);
        if let Err(_) | Ok(Answer::NotRecorded(_)) = recorded {
            self.metrics.count(None, Metric::NotRecorded);
            tracing::warn!(
                key = delivery.door.as_str(),
                "the acceptance could not be recorded; a duplicate will be queued again",
            );
        }
        Ok(accepted)
    }

    /// The claim went wrong: nobody knows whether it landed.
    async fn send_after(&self, error: Cause, delivery: &Delivery) -> Result<Accepted, Problem> {
        self.metrics.count(None, Metric::StoreUnavailable);
        tracing::error!(
            key = delivery.door.as_str(),
            error = &*error as &(dyn Error + 'static),
            "the delivery could not be claimed",
        );
        self.send_unclaimed(delivery).await
    }

    async fn send_unclaimed(&self, delivery: &Delivery) -> Result<Accepted, Problem> {
        match delivery.unclaimed {
            Unclaimed::Refuse => Err(Problem::Unavailable { what: "claim" }),
            Unclaimed::Send => {
                self.send(delivery).await?;
                Ok(Accepted::new(delivery, Outcome::Accepted))
            }
        }
    }

    async fn send(&self, delivery: &Delivery) -> Result<(), Problem> {
        let sent = self.put_on_queue(delivery).await;
        sent.map_err(|error| unsent(&error, &delivery.door))
    }

    async fn put_on_queue(&self, delivery: &Delivery) -> Result<(), SendError> {
        let sending = delivery.budget.send(self.outbox.send(&delivery.message));
        match sending.await {
            Ok(sent) => sent,
            Err(late @ OutOfTime) => Err(SendError::Unanswered(late.into())),
        }
    }
}

/// Gives the key back after a send that was not confirmed, so that the sender's next try need not
/// wait for the lease. The message may have landed all the same: then that try makes a second copy,
/// which the worker's claim takes for the first.
async fn give_back<S: Store>(claim: Claim<S>, error: &SendError, budget: Budget) {
    let key = claim.key().clone();
    let failure = |code: &str| StoredFailure {
        code: code.to_owned(),
        message: error.to_string(),
    };
    let giving_back = async {
        match error {
            SendError::Refused(_) | SendError::TooLarge { .. } => {
                claim.release(failure("not_queued")).await
            }
            SendError::Unanswered(_) => claim.give_up(failure("not_confirmed")).await,
        }
    };
    let left: Cause = match budget.record(giving_back).await {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.into(),
        Err(late) => late.into(),
    };
    tracing::warn!(
        key = key.as_str(),
        error = &*left as &(dyn Error + 'static),
        "the delivery could not be given back; its lease is left to lapse",
    );
}

fn unsent(error: &SendError, door: &Key) -> Problem {
    tracing::error!(
        key = door.as_str(),
        error = error as &dyn std::error::Error,
        "the event was not queued",
    );
    match error {
        SendError::TooLarge { .. } => Problem::TooLarge,
        SendError::Refused(_) | SendError::Unanswered(_) => Problem::Unavailable { what: "queue" },
    }
}
