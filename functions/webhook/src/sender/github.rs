//! Scheme `github`: GitHub's webhooks, of repositories, organisations and Apps.

mod rules;

use firstclaim::clock::EpochMillis;
use firstclaim::envelope::Thread;
use serde_json::Value;

use super::event::{Delivery, Event, MalformedKey, Operation, UNKNOWN_KIND, word};
use super::form::Form;
use super::rules::{Found, find};
use super::secret::{MacKeys, Secret, lower_hex, mac};
use super::{InFlight, Scheme, Unverified};
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// A sender that signs the body with HMAC-SHA256. Its headers are not signed.
#[derive(Debug)]
pub(crate) struct GitHub(MacKeys);

impl Scheme for GitHub {
    const NAME: &'static str = "github";
    // GitHub never sends a delivery again by itself.
    const IN_FLIGHT: InFlight = InFlight::SendAgain;
    const PASSED_ON: &'static [&'static str] = &[
        "x-github-delivery",
        "x-github-event",
        "x-github-hook-id",
        "x-github-hook-installation-target-id",
        "x-github-hook-installation-target-type",
    ];
    const ID_HEADER: Option<&'static str> = Some("x-github-delivery");

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        MacKeys::of_texts(secrets).map(Self)
    }

    fn verify(&self, request: &Request, body: &[u8], _now: EpochMillis) -> Result<(), Unverified> {
        let signature = request
            .header("x-hub-signature-256")
            .ok_or(Unverified::NoSignature)?;
        let given = signature
            .strip_prefix("sha256=")
            .and_then(lower_hex)
            .ok_or(Unverified::Malformed)?;
        if self.0.made(&[body], &[given]) {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let delivery = request
            .header("x-github-delivery")
            .map(|id| Delivery::of_unsigned_id(id, body))
            .transpose()?;
        let document = document(body);
        let about = About::of(request.header("x-github-event"), document.as_ref());
        Ok(Event {
            delivery,
            kind: about.kind,
            operation: about.operation,
            thread: about.thread,
            document,
            withheld: about.withheld,
        })
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        let digest = hex::encode(mac(secret.as_bytes(), &[delivery.body])?);
        Ok(vec![
            ("x-github-delivery", delivery.id.to_owned()),
            ("x-hub-signature-256", format!("sha256={digest}")),
        ])
    }
}

/// What the event's name and its body say together.
struct About {
    kind: String,
    operation: Operation,
    thread: Option<Thread>,
    withheld: &'static [&'static str],
}

impl About {
    /// The event's name comes from a header that is not signed. A body that lacks what this event
    /// must have is handled as unknown, and its name is not passed on.
    fn of(event: Option<&str>, document: Option<&Value>) -> Self {
        let unknown = Self {
            kind: UNKNOWN_KIND.to_owned(),
            operation: Operation::Unnamed,
            thread: None,
            withheld: &["x-github-event"],
        };
        let (Some(event), Some(document)) = (event.and_then(word), document) else {
            return unknown;
        };
        let action = document.get("action").and_then(Value::as_str);
        let place = document.pointer("/repository/id");
        let action_name = action.unwrap_or_default();
        let operation = match find(rules::KINDS, event, action_name, place, document) {
            Found::Named(id) => Operation::Named(id),
            Found::Unnamed => Operation::Unnamed,
            Found::Contradicted => return unknown,
        };
        let kind = match action.and_then(word) {
            Some(action) => format!("{event}.{action}"),
            None => event.to_owned(),
        };
        Self {
            kind,
            operation,
            thread: thread(document),
            withheld: &[],
        }
    }
}

/// The issue, pull request or discussion that an event belongs to.
fn thread(document: &Value) -> Option<Thread> {
    let repo = word(document.pointer("/repository/full_name")?.as_str()?)?;
    let number = ["/issue/number", "/pull_request/number"]
        .iter()
        .find_map(|pointer| document.pointer(pointer)?.as_u64())?;
    Some(Thread {
        repo: repo.to_owned(),
        number,
    })
}

/// The body's JSON. GitHub's default content type is the form, with the JSON in its field `payload`;
/// the body itself tells which it is, since the content type is not signed.
fn document(body: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Some(value);
    }
    serde_json::from_slice(Form::read(body)?.bytes("payload")?).ok()
}
