//! Scheme `twilio`: Twilio's webhooks, as forms and as JSON.

mod address;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use firstclaim::key;
use ring::hmac;
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::event::{Delivery, Event, MalformedKey, Operation, UNKNOWN_KIND, word};
use super::form::Form;
use super::secret::{Secret, base64_of, lower_hex, read_all};
use super::{Scheme, Unverified};
use crate::keys;
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// A sender that signs the address and, of a form, the parameters; of any other body the address
/// holds the digest. It does not sign where one parameter ends and the next begins.
pub(crate) struct Twilio {
    keys: Vec<hmac::Key>,
    /// Whether an address that no signature fitted was told.
    told: AtomicBool,
}

impl Scheme for Twilio {
    const NAME: &'static str = "twilio";
    const SIGNS_ADDRESS: bool = true;
    const PASSED_ON: &'static [&'static str] = &["i-twilio-idempotency-token", "x-home-region"];
    const ID_HEADER: Option<&'static str> = Some("i-twilio-idempotency-token");

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        Ok(Self {
            keys: read_all(secrets, |secret| Ok(key_of(secret.text()?)))?,
            told: AtomicBool::new(false),
        })
    }

    fn verify(&self, request: &Request, body: &[u8], _now: EpochMillis) -> Result<(), Unverified> {
        let signature = request
            .header("x-twilio-signature")
            .ok_or(Unverified::NoSignature)?;
        let given: [u8; 20] = base64_of(signature).ok_or(Unverified::Malformed)?;
        let url = request.url().ok_or(Unverified::NoAddress)?;
        let parameters = match address::body_digest(request.query()) {
            // The address holds the body's digest, and is all that is signed.
            Some(digest) => match lower_hex(digest) {
                Some(digest) if bool::from(digest.ct_eq(&Sha256::digest(body))) => Vec::new(),
                _ => return Err(Unverified::Wrong),
            },
            None => parameters(body).ok_or(Unverified::Malformed)?,
        };
        let [with_port, without_port] = address::with_and_without_port(&url);
        let fits = |key: &hmac::Key| {
            let tag = |url: &str| made(key, url, &parameters);
            let given = &given[..];
            tag(&with_port).as_ref().ct_eq(given) | tag(&without_port).as_ref().ct_eq(given)
        };
        if self.keys.iter().any(|key| fits(key).into()) {
            return Ok(());
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                url = address::without_values(&url),
                "Twilio's signature does not fit this address; is PUBLIC_URL what Twilio calls?",
            );
        }
        Err(Unverified::Wrong)
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let token = request
            .header("i-twilio-idempotency-token")
            .map(|id| Delivery::of_unsigned_id(id, body))
            .transpose()?;
        let json = address::body_digest(request.query())
            .and_then(|_| serde_json::from_slice::<Value>(body).ok());
        let (kind, operation, document, signed) = match json {
            Some(json) => {
                let signed = names_its_events(&json).then_some("event-streams");
                (kind_of(&json), Operation::Unnamed, Some(json), signed)
            }
            None => match Form::read(body) {
                Some(form) => {
                    let (kind, operation) = about(&form);
                    let signed = names_an_inbound_message(&form).then_some("message");
                    (kind, operation, Some(form.document()), signed)
                }
                None => (UNKNOWN_KIND.to_owned(), Operation::Unnamed, None, None),
            },
        };
        let delivery = match (token, signed) {
            (None, Some(what)) => Some(delivery_of_signed_body(what, body)?),
            (token, _) => token,
        };
        Ok(Event {
            delivery,
            kind,
            operation,
            thread: None,
            document,
            withheld: &[],
        })
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        let (_, query) = delivery.url.split_once('?').unwrap_or_default();
        let parameters = match address::body_digest(query) {
            Some(_) => Vec::new(),
            None => parameters(delivery.body).ok_or("signs no form of so many fields")?,
        };
        let tag = made(&key_of(secret), delivery.url, &parameters);
        Ok(vec![
            ("i-twilio-idempotency-token", delivery.id.to_owned()),
            ("x-twilio-signature", STANDARD.encode(tag)),
        ])
    }

    /// A body that is no form gets its digest into the address.
    fn address(delivery: &Unsigned<'_>) -> String {
        let (_, query) = delivery.url.split_once('?').unwrap_or_default();
        let form = delivery.body.is_empty()
            || delivery
                .content_type
                .starts_with("application/x-www-form-urlencoded");
        if form || address::body_digest(query).is_some() {
            return delivery.url.to_owned();
        }
        let joint = if delivery.url.contains('?') { '&' } else { '?' };
        let digest = hex::encode(Sha256::digest(delivery.body));
        format!("{}{joint}bodySHA256={digest}", delivery.url)
    }
}

impl fmt::Debug for Twilio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Twilio({} keys)", self.keys.len())
    }
}

fn key_of(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes())
}

fn made(key: &hmac::Key, url: &str, parameters: &[u8]) -> hmac::Tag {
    let mut mac = hmac::Context::with_key(key);
    mac.update(url.as_bytes());
    mac.update(parameters);
    mac.sign()
}

/// What is signed of a form: names and values in order, with nothing between them.
fn parameters(body: &[u8]) -> Option<Vec<u8>> {
    let form = Form::read(body)?;
    let pairs = form.sorted();
    Some(
        pairs
            .iter()
            .flat_map(|(name, value)| [*name, *value])
            .collect::<Vec<_>>()
            .concat(),
    )
}

/// The kind of a form, and the operation where its parameters name it exactly.
fn about(form: &Form<'_>) -> (String, Operation) {
    let status = |name: &str| form.text(name).and_then(word);
    let named = |parts: &[&str]| {
        let parts: Vec<Value> = parts.iter().map(|part| (*part).into()).collect();
        keys::id_of_parts(&parts).map_or(Operation::Unnamed, Operation::Named)
    };
    if let Some(sid) = form.text("MessageSid") {
        return match (status("MessageStatus"), status("SmsStatus")) {
            (Some(status), _) => (
                format!("message.{status}"),
                named(&["MessageSid", sid, status]),
            ),
            (None, Some(status)) => (format!("message.{status}"), Operation::Unnamed),
            (None, None) => ("message".to_owned(), Operation::Unnamed),
        };
    }
    let Some(sid) = form.text("CallSid") else {
        return (UNKNOWN_KIND.to_owned(), Operation::Unnamed);
    };
    let Some(status) = status("CallStatus") else {
        return ("call".to_owned(), Operation::Unnamed);
    };
    let kind = format!("call.{status}");
    // A call asks for instructions again and again, with the same status.
    let operation = match form.text("CallbackSource") {
        Some("call-progress-events") => match form.text("SequenceNumber") {
            Some(number) => named(&["CallSid", sid, status, number]),
            None => named(&["CallSid", sid, status]),
        },
        None if ENDED.contains(&status) && only_of_a_call(form) => named(&["CallSid", sid, status]),
        _ => Operation::Unnamed,
    };
    (kind, operation)
}

/// The statuses of a call that has ended: it reaches one of them, once.
const ENDED: [&str; 5] = ["completed", "busy", "failed", "no-answer", "canceled"];

/// Whether a form says nothing but what every report of a call's status says. What a caller keyed
/// in, a recording or another call behind it come in requests of their own.
fn only_of_a_call(form: &Form<'_>) -> bool {
    const NAMES: [&str; 19] = [
        "AccountSid",
        "ApiVersion",
        "CallDuration",
        "CallSid",
        "CallStatus",
        "CallerName",
        "Direction",
        "Duration",
        "ForwardedFrom",
        "From",
        "ParentCallSid",
        "SequenceNumber",
        "SipResponseCode",
        "StirVerstat",
        "Timestamp",
        "To",
        "Called",
        "Caller",
        "CallbackSource",
    ];
    const PLACES: [&str; 4] = ["Called", "Caller", "From", "To"];
    let place = |name: &str| {
        PLACES.iter().any(|who| {
            let what = name.strip_prefix(who);
            what.is_some_and(|what| ["City", "Country", "State", "Zip"].contains(&what))
        })
    };
    form.names()
        .all(|name| name.is_some_and(|name| NAMES.contains(&name) || place(name)))
}

/// The kind of a JSON body: Event Streams send lists of CloudEvents.
fn kind_of(json: &Value) -> String {
    let cloud_event = |event: &Value| event.get("specversion").is_some();
    let streams = json
        .as_array()
        .is_some_and(|events| !events.is_empty() && events.iter().all(cloud_event));
    let kind = if streams {
        "event-streams"
    } else {
        UNKNOWN_KIND
    };
    kind.to_owned()
}

/// Whether a JSON body is a batch of Event Streams whose events all have an id of their own: then no
/// two batches are the same text.
fn names_its_events(json: &Value) -> bool {
    let named = |event: &Value| {
        let id = event.get("id").and_then(Value::as_str);
        event.get("specversion").is_some() && id.is_some_and(|id| !id.is_empty())
    };
    let events = json.as_array();
    events.is_some_and(|events| !events.is_empty() && events.iter().all(named))
}

/// Whether a form is a message that came in: it has an id and comes once. What is sent of a message
/// that goes out has its status; what asks for a call's instructions can be the same text each time.
fn names_an_inbound_message(form: &Form<'_>) -> bool {
    let has = |name| form.text(name).is_some_and(|text| !text.is_empty());
    has("MessageSid") && has("From") && has("To") && form.bytes("MessageStatus").is_none()
}

/// The delivery of a request without `I-Twilio-Idempotency-Token`: what is signed, as it is. A retry
/// repeats it; whatever differs in anything is another one.
fn delivery_of_signed_body(what: &str, body: &[u8]) -> Result<Delivery, MalformedKey> {
    let digest = hex::encode(Sha256::digest(body));
    Ok(Delivery {
        key: key::join(&["signed".into(), what.into(), digest.as_str().into()])?,
        id: digest,
    })
}
