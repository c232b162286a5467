//! A dry run: what a request would be taken for.

use firstclaim::clock::EpochMillis;
use firstclaim::{Key, Store};
use serde_json::Value;

use crate::door::{Entry, Identified, Webhook};
use crate::keys;
use crate::outbox::Outbox;
use crate::request::{Request, Route};
use crate::response::{Problem, Response};

/// What a webhook is about, and what it would be known by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspected {
    /// The configured sender.
    pub sender: String,
    /// Its scheme.
    pub scheme: &'static str,
    /// The event's kind.
    pub kind: String,
    /// The delivery's id, for people.
    pub delivery: String,
    /// What the door would claim: a redelivery has the same.
    pub door: Key,
    /// What the worker would claim: the same event through another subscription has the same.
    pub operation: Key,
    /// The rule that could not name the operation (`operation_key` or `default`), so that the
    /// delivery stands in for it.
    pub fallback: Option<&'static str>,
}

impl<S: Store, Q: Outbox> Webhook<S, Q> {
    /// Verifies a webhook and makes its keys as [`handle`](Self::handle) does, at the time `now`;
    /// nothing is claimed, queued, counted or logged.
    ///
    /// # Errors
    ///
    /// The answer, where it would not be put on the queue: a refusal, or what the sender's probe
    /// asked for. Paths other than `/webhooks/{name}` are not inspected and told so (404).
    pub async fn inspect(&self, event: Value, now: EpochMillis) -> Result<Inspected, Response> {
        let request = Request::read(event, &self.options);
        let inspected = self.inspected(&request, now).await;
        inspected.map_err(Problem::into_response)?
    }

    async fn inspected(
        &self,
        request: &Request,
        now: EpochMillis,
    ) -> Result<Result<Inspected, Response>, Problem> {
        let Some(Route::Webhook(name)) = request.route() else {
            return Err(Problem::UnknownPath);
        };
        request.check_method("POST")?;
        let mut entry = Entry::default();
        let (sender, event, keys) = match self.identified(request, name, now, &mut entry).await? {
            Identified::Event(sender, event, keys) => (sender, event, keys),
            Identified::Probe(text) => return Ok(Err(Response::new(200, "text/plain", text))),
        };
        Ok(Ok(Inspected {
            sender: sender.name.clone(),
            scheme: sender.scheme.name(),
            delivery: event.delivery_id(&keys).to_owned(),
            kind: event.kind,
            door: keys::door(&sender, &keys.delivery)?,
            fallback: keys.fallback.map(keys::Fallback::name),
            operation: keys.operation,
        }))
    }
}
