//! Scheme `gitlab`: GitLab's webhooks with a secret token. Hooks with a signing token are Standard
//! Webhooks, and so senders of scheme `standard`.

mod rules;

use firstclaim::clock::EpochMillis;
use firstclaim::key;
use serde_json::Value;
use sha2::{Digest, Sha256};

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
        let (kind, operation) = about(document.as_ref());
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
    let Some(id) = request.header("x-gitlab-event-uuid") else {
        return Ok(None);
    };
    caller_key(id)?;
    let digest = hex::encode(Sha256::digest(body));
    Ok(Some(Delivery {
        key: key::join(&[id.into(), digest.into()])?,
        id: id.to_owned(),
    }))
}

/// The kind, and what the rules say. `X-Gitlab-Event` only repeats what the body says.
fn about(document: Option<&Value>) -> (String, Operation) {
    let unknown = || (UNKNOWN_KIND.to_owned(), Operation::Unnamed);
    let text = |pointer: &str| document?.pointer(pointer)?.as_str().and_then(word);
    // System hooks have no `object_kind`.
    let Some(name) = text("/object_kind").or_else(|| text("/event_name")) else {
        return unknown();
    };
    let Some(document) = document else {
        return unknown();
    };
    let action = text("/object_attributes/action").or_else(|| text("/action"));
    let action = action.filter(|_| !rules::BY_STATUS.contains(&name));
    let status = rules::status(name, document);
    let place = ["/project/id", "/project_id"]
        .iter()
        .find_map(|pointer| document.pointer(pointer));
    let distinguished = action.or(status).unwrap_or_default();
    let operation = match find(rules::KINDS, name, distinguished, place, document) {
        Found::Named(id) => Operation::Named(id),
        Found::Unnamed => Operation::Unnamed,
        Found::Contradicted => return unknown(),
    };
    let kind = match action {
        Some(action) => format!("{name}.{action}"),
        None => name.to_owned(),
    };
    (kind, operation)
}
