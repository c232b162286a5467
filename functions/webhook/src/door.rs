//! The door: every request goes through it, in one order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use firstclaim::clock::EpochMillis;
use firstclaim::metrics::{Metric, Metrics};
use firstclaim::{Claims, Envelope, Fingerprint, Invocation, Key, Store};
use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::accept::{Delivery, Unclaimed};
use crate::config::Options;
use crate::keys::{self, Keys};
use crate::outbox::{MESSAGE_LIMIT, Message, Outbox};
use crate::request::{Request, Route};
use crate::response::{Problem, Response};
use crate::sender::{Event, Sender, plain};
use crate::senders::{Roster, Senders};

/// The handler: all that it depends on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhook<S, Q> {
    senders: Senders,
    pub(crate) claims: Claims<S>,
    pub(crate) outbox: Q,
    pub(crate) options: Arc<Options>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What became of a request, for the log and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The queue has its event.
    Accepted,
    /// It was accepted before.
    Replayed,
    /// Its first delivery is still being accepted.
    InFlight,
    /// The caller learned how its operation stands.
    LookedUp,
    /// The sender learned that somebody is there.
    Probed,
    /// It was refused for what it is.
    Refused,
    /// Its key was used for another payload.
    Mismatch,
    /// A service could not be reached.
    Unavailable,
}

impl Outcome {
    /// The word in the log.
    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Replayed => "replayed",
            Self::InFlight => "in_flight",
            Self::LookedUp => "looked_up",
            Self::Probed => "probed",
            Self::Refused | Self::Mismatch | Self::Unavailable => "refused",
        }
    }

    fn metric(self) -> Option<Metric> {
        match self {
            Self::Accepted => Some(Metric::Performed),
            Self::Replayed => Some(Metric::Replayed),
            Self::InFlight => Some(Metric::InFlight),
            Self::LookedUp | Self::Probed => None,
            Self::Refused => Some(Metric::Refused),
            Self::Mismatch => Some(Metric::Mismatch),
            Self::Unavailable => Some(Metric::Retryable),
        }
    }
}

/// An answer that is no problem.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response,
    pub(crate) outcome: Outcome,
}

impl<S: Store, Q: Outbox> Webhook<S, Q> {
    /// A handler for these senders.
    #[must_use]
    pub fn new(senders: Senders, claims: Claims<S>, outbox: Q, options: Options) -> Self {
        Self {
            senders,
            claims,
            outbox,
            options: Arc::new(options),
            metrics: Arc::new(Metrics::new("webhook")),
        }
    }

    /// Writes what was counted since the last call, as CloudWatch embedded metrics.
    ///
    /// # Errors
    ///
    /// The output can't be written to; the counts are gone then.
    pub fn flush_metrics(&self, out: &mut impl io::Write) -> io::Result<()> {
        self.metrics.flush(self.claims.now(), out)
    }

    /// Answers one HTTP event (payload format 2.0). Any JSON value whatsoever gets an answer.
    ///
    /// The invocation's deadline is the lease of what is claimed.
    pub async fn handle(&self, event: LambdaEvent<Value>) -> Response {
        let invocation = Invocation::from(&event.context);
        // On the heap: the states of all calls below make a large future, which a caller would carry
        // in each of its own.
        invocation.scope(Box::pin(self.answer(event.payload))).await
    }

    async fn answer(&self, event: Value) -> Response {
        let started = self.claims.now();
        let request = Request::read(event, &self.options);
        let mut entry = Entry::default();
        let answer = self.dispatch(request, &mut entry).await;
        let took = self.claims.now().since(started);
        let (response, outcome, reason) = match answer {
            Ok(Answered { response, outcome }) => (response, outcome, None),
            Err(problem) => {
                let (outcome, reason) = (problem.outcome(), problem.reason());
                (problem.into_response(), outcome, Some(reason))
            }
        };
        entry.count(&self.metrics, outcome, took);
        entry.log(outcome, &response, reason, took);
        response
    }

    async fn dispatch(&self, request: Request, entry: &mut Entry) -> Result<Answered, Problem> {
        match request.route() {
            Some(Route::Webhook(name)) => {
                request.check_method("POST")?;
                let name = name.to_owned();
                self.webhook(request, &name, entry).await
            }
            Some(Route::Operations) => {
                request.check_method("POST")?;
                self.submit(request, entry).await
            }
            Some(Route::Operation(id)) => {
                request.check_method("GET")?;
                self.look_up(&request, id, entry).await
            }
            None => Err(Problem::UnknownPath),
        }
    }

    /// `POST /webhooks/{name}`
    async fn webhook(
        &self,
        request: Request,
        name: &str,
        entry: &mut Entry,
    ) -> Result<Answered, Problem> {
        let now = self.claims.now();
        let (sender, event, keys) = match self.identified(&request, name, now, entry).await? {
            Identified::Event(sender, event, keys) => (sender, event, keys),
            Identified::Probe(text) => {
                return Ok(Answered {
                    response: Response::new(200, "text/plain", text),
                    outcome: Outcome::Probed,
                });
            }
        };
        let fingerprint = fingerprint(&sender, &request);
        let acknowledgement = sender.acknowledgement(&request);
        let delivery = Delivery {
            door: keys::door(&sender, &keys.delivery)?,
            event: event.delivery_id(&keys).to_owned(),
            fingerprint,
            window: sender.window,
            in_flight: sender.scheme.in_flight(),
            unclaimed: Unclaimed::Send,
            body: queued(None, &keys.operation)?,
            budget: request.budget(),
            message: message(&sender, *event, keys, fingerprint, request, now)?,
        };
        let accepted = self.accept(delivery).await?;
        Ok(accepted.into_answer(acknowledgement))
    }

    /// Verifies a webhook and makes its keys. No AWS service is called, except to read the senders.
    pub(crate) async fn identified(
        &self,
        request: &Request,
        name: &str,
        now: EpochMillis,
        entry: &mut Entry,
    ) -> Result<Identified, Problem> {
        request.check_size()?;
        let find = |roster: &Roster| {
            let sender = roster.by_name(name).ok_or(Problem::UnknownSender)?;
            match sender.verify(request, now) {
                Ok(()) => Ok(Arc::clone(sender)),
                Err(why) => Err(Problem::Unauthorized {
                    challenge: sender.scheme.challenge(),
                    why,
                }),
            }
        };
        let sender = self.verified(now, entry, find).await?;
        if let Some(text) = sender.probed(request) {
            return Ok(Identified::Probe(text));
        }
        let (event, keys) = keyed(&sender, request, entry)?;
        Ok(Identified::Event(sender, Box::new(event), keys))
    }

    /// Finds the sender of a request. Where it can't be verified, the secrets may have been
    /// rotated: newer ones are tried, if there are any.
    pub(crate) async fn verified(
        &self,
        now: EpochMillis,
        entry: &mut Entry,
        find: impl Fn(&Roster) -> Result<Arc<Sender>, Problem>,
    ) -> Result<Arc<Sender>, Problem> {
        let longest_lease = self.claims.config().longest_lease;
        let mut roster = self
            .senders
            .current(now, longest_lease)
            .await
            .map_err(|_| Problem::Unavailable { what: "senders" })?;
        let mut found = find(&roster);
        if let Err(Problem::Unauthorized { .. }) = found
            && let Some(newer) = self.senders.newer(&roster, now, longest_lease).await
        {
            found = find(&newer);
            roster = newer;
        }
        entry.generation = Some(roster.generation.clone());
        if let Ok(sender) = &found {
            entry.sender = Some(sender.name.clone());
        }
        found
    }
}

/// What a verified webhook is.
pub(crate) enum Identified {
    Event(Arc<Sender>, Box<Event>, Keys),
    /// The sender only wants to be answered with this text.
    Probe(String),
}

/// Reads a verified request and makes its keys.
pub(crate) fn keyed(
    sender: &Sender,
    request: &Request,
    entry: &mut Entry,
) -> Result<(Event, Keys), Problem> {
    let event = sender.read(request).map_err(|_| Problem::MalformedKey)?;
    let keys = Keys::of(sender, &event)?;
    entry.kind = Some(event.kind.clone());
    entry.key = Some(keys.operation.as_str().to_owned());
    entry.key_fallback = keys.fallback.map(keys::Fallback::name);
    Ok((event, keys))
}

/// What the caller's key is bound to. A key that we derive is bound to nothing: one event through
/// two subscriptions has two bodies.
pub(crate) fn fingerprint(sender: &Sender, request: &Request) -> Option<Fingerprint> {
    let body = request.body().unwrap_or_default();
    sender
        .scheme
        .caller_keyed()
        .then(|| Fingerprint::of_bytes(body))
}

/// The message that carries a verified event; an event that is too long for the queue even when it
/// is compressed is refused before anything is claimed.
pub(crate) fn message(
    sender: &Sender,
    event: Event,
    keys: Keys,
    fingerprint: Option<Fingerprint>,
    request: Request,
    now: EpochMillis,
) -> Result<Message, Problem> {
    let content_type = request.header("content-type").and_then(plain);
    let fallback = match (&event.document, request.body().and_then(<[u8]>::first)) {
        (Some(_), Some(b'{' | b'[')) => "application/json",
        (Some(_), _) => "application/x-www-form-urlencoded",
        (None, _) => "application/octet-stream",
    };
    let envelope = Envelope {
        sender: sender.name.clone(),
        scheme: sender.scheme.name().to_owned(),
        delivery: event.delivery_id(&keys).to_owned(),
        received_at: timestamp(now),
        fingerprint,
        content_type: content_type.unwrap_or(fallback).to_owned(),
        headers: sender.passed_on(&request, &event),
        key: keys.operation,
        kind: event.kind,
        thread: event.thread,
        body: request.into_body(),
    };
    let message = Message::of(&envelope);
    if message.body.len() > MESSAGE_LIMIT {
        return Err(Problem::TooLarge);
    }
    Ok(message)
}

/// The body of an accepting answer.
pub(crate) fn queued(id: Option<&str>, key: &Key) -> Result<Box<RawValue>, Problem> {
    #[derive(Serialize)]
    struct Queued<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        key: &'a str,
        status: &'static str,
    }
    let body = Queued {
        id,
        key: key.as_str(),
        status: "queued",
    };
    // Texts alone: writing them can't fail.
    serde_json::value::to_raw_value(&body).map_err(|_| Problem::Unavailable { what: "answer" })
}

fn timestamp(now: EpochMillis) -> String {
    jiff::Timestamp::from_millisecond(now.0).map_or_else(|_| String::new(), |at| at.to_string())
}

/// What is said of one request in the log: names that are configured, words that were checked, and
/// keys; nothing else of what was sent.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    sender: Option<String>,
    /// Which version of the senders' secrets was used.
    generation: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    /// The rule that could not name the operation.
    key_fallback: Option<&'static str>,
}

impl Entry {
    /// Counts the request. Only a sender that was verified names a dimension: what is refused must
    /// not be able to make new ones.
    fn count(&self, metrics: &Metrics, outcome: Outcome, took: Duration) {
        let sender = self.sender.as_deref();
        if let Some(metric) = outcome.metric() {
            metrics.count(sender, metric);
        }
        if self.key_fallback.is_some() {
            metrics.count(sender, Metric::KeyFallback);
        }
        metrics.latency(sender, took);
    }

    fn log(
        &self,
        outcome: Outcome,
        response: &Response,
        reason: Option<&'static str>,
        took: Duration,
    ) {
        tracing::info!(
            target: "firstclaim::door",
            outcome = outcome.name(),
            status = response.status_code,
            sender = self.sender.as_deref(),
            kind = self.kind.as_deref(),
            key = self.key.as_deref(),
            key_fallback = self.key_fallback,
            reason,
            secrets = self.generation.as_deref(),
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        );
    }
}
