//! Scheme `gitlab`: GitLab's webhooks with a secret token. Hooks with a signing token are Standard
//! Webhooks, and so senders of scheme `standard`.

mod rules;

use firstclaim::clock::EpochMillis;
use serde_json::Value;

use super::event::{Delivery, Event, MalformedKey, Operation, UNKNOWN_KIND, caller_key, word};
use super::rules::{Found, find};
use super::secret::{Secret, Tokens, digest};
use super::{Scheme, Unverified};
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// A sender that shows its token. Nothing of what it sends is signed.
#[derive(Debug)]
pub(crate) struct GitLab(Tokens);

impl Scheme for GitLab {
    const NAME: &'static str = "gitlab";
    const PASSED_ON: &'static [&'static str] = &[
        "x-gitlab-event",
        "x-gitlab-event-uuid",
        "x-gitlab-instance",
        "x-gitlab-webhook-uuid",
    ];
    const ID_HEADER: Option<&'static str> = Some("idempotency-key");

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        Tokens::read(secrets).map(Self)
    }

    fn verify(&self, request: &Request, _body: &[u8], _now: EpochMillis) -> Result<(), Unverified> {
        let token = request
            .header("x-gitlab-token")
            .ok_or(Unverified::NoSignature)?;
        if self.0.have(&digest(token)) {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let document: Option<Value> = serde_json::from_slice(body).ok();
        let known = document
            .as_ref()
            .and_then(|document| Some((kind(document)?, operation(document)?)));
        let unknown = || (UNKNOWN_KIND.to_owned(), Operation::Unnamed);
        let (kind, operation) = known.unwrap_or_else(unknown);
        Ok(Event {
            delivery: delivery(request, body)?,
            kind,
            operation,
            thread: None,
            document,
            withheld: &[],
        })
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        Ok(vec![
            ("idempotency-key", delivery.id.to_owned()),
            ("x-gitlab-token", secret.to_owned()),
        ])
    }
}

/// `Idempotency-Key` is the same in each retry and in a resend by hand. Servers older than it have
/// only the event's UUID, which hooks that set off each other share: there the body's digest stands
/// beside it. `X-Gitlab-Webhook-UUID` is new in each request.
fn delivery(request: &Request, body: &[u8]) -> Result<Option<Delivery>, MalformedKey> {
    if let Some(id) = request.header("idempotency-key") {
        return Ok(Some(Delivery {
            key: caller_key(id)?,
            id: id.to_owned(),
        }));
    }
    request
        .header("x-gitlab-event-uuid")
        .map(|id| Delivery::of_unsigned_id(id, body))
        .transpose()
}

/// The kind that a body says; `X-Gitlab-Event` only repeats it.
pub(super) fn kind(document: &Value) -> Option<String> {
    let (name, action) = name_and_action(document)?;
    Some(match action {
        Some(action) => format!("{name}.{action}"),
        None => name.to_owned(),
    })
}

fn name_and_action(document: &Value) -> Option<(&str, Option<&str>)> {
    let text = |pointer: &str| document.pointer(pointer)?.as_str().and_then(word);
    // System hooks have no `object_kind`.
    let name = text("/object_kind").or_else(|| text("/event_name"))?;
    let action = text("/object_attributes/action").or_else(|| text("/action"));
    Some((name, action))
}

/// What the rules say of a body; `None` if it lacks what its kind must have.
fn operation(document: &Value) -> Option<Operation> {
    let (name, action) = name_and_action(document)?;
    let distinguished = rules::status(name, document).or(action);
    let place = ["/project/id", "/project_id"]
        .iter()
        .find_map(|pointer| document.pointer(pointer));
    let distinguished = distinguished.unwrap_or_default();
    match find(rules::KINDS, name, distinguished, place, document) {
        Found::Named(id) => Some(Operation::Named(id)),
        Found::Unnamed => Some(Operation::Unnamed),
        Found::Contradicted => None,
    }
}
