//! Scheme `github`: GitHub's webhooks, of repositories, organisations and Apps.

mod rules;

use std::borrow::Cow;

use firstclaim::clock::EpochMillis;
use firstclaim::envelope::Thread;
use firstclaim::key;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::secret::{MacKey, Secret, read_all};
use super::{
    Delivery, Event, InFlight, MalformedKey, Operation, Scheme, UNKNOWN_KIND, Unverified,
    caller_key, word,
};
use crate::request::Request;
use rules::Found;

/// A sender that signs the body with HMAC-SHA256. Its headers are not signed.
#[derive(Debug)]
pub(crate) struct GitHub(Vec<MacKey>);

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

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        let mac_key = |secret: &Secret| {
            MacKey::new(secret.text()?.as_bytes()).ok_or_else(|| "is no key for HMAC".to_owned())
        };
        read_all(secrets, mac_key).map(Self)
    }

    fn verify(&self, request: &Request, body: &[u8], _now: EpochMillis) -> Result<(), Unverified> {
        let signature = request
            .header("x-hub-signature-256")
            .ok_or(Unverified::NoSignature)?;
        let given = signature
            .strip_prefix("sha256=")
            .and_then(lower_hex)
            .ok_or(Unverified::Malformed)?;
        if self.0.iter().any(|key| key.over(&[body]).is(&given)) {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let delivery = match request.header("x-github-delivery") {
            None => None,
            Some(id) => {
                caller_key(id)?;
                // The id is not signed: with the body's digest beside it, nobody can use up the id
                // of a delivery that is still to come.
                let digest = hex::encode(Sha256::digest(body));
                Some(Delivery {
                    key: key::join(&[id.into(), digest.into()])?,
                    id: id.to_owned(),
                })
            }
        };
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
        let operation = match rules::find(event, action.unwrap_or_default(), document) {
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
    let payload = body
        .split(|byte| *byte == b'&')
        .find_map(|field| field.strip_prefix(b"payload="))?;
    serde_json::from_slice(&form_decoded(payload)).ok()
}

/// Decodes a value of a form: `+` is a space, `%` and two hex digits a byte. Anything else stands
/// for itself.
fn form_decoded(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(value);
    }
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, behind @ ..]) => {
                let mut byte = [0];
                if hex::decode_to_slice([*high, *low], &mut byte).is_ok() {
                    decoded.push(byte[0]);
                    rest = behind;
                } else {
                    decoded.push(b'%');
                }
            }
            (byte, _) => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}

/// 64 lower-case hex digits, as GitHub writes them; upper case is not taken.
fn lower_hex(text: &str) -> Option<[u8; 32]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut bytes = [0; 32];
    let fits = text.len() == 64 && text.bytes().all(lower);
    (fits && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}
