//! Scheme `stripe`: Stripe's webhooks, of an account and of the accounts that are connected to it.

use firstclaim::clock::EpochMillis;
use firstclaim::key;
use serde_json::Value;

use super::event::{Delivery, Event, MalformedKey, Operation, UNKNOWN_KIND, caller_key, word};
use super::secret::{MacKeys, Secret, lower_hex, mac};
use super::{Scheme, Unverified, stamp};
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// A sender that signs time stamp and body. The whole text of its secret, `whsec_` and all, is the
/// key.
#[derive(Debug)]
pub(crate) struct Stripe(MacKeys);

impl Scheme for Stripe {
    const NAME: &'static str = "stripe";
    const PASSED_ON: &'static [&'static str] = &[];
    const ID_HEADER: Option<&'static str> = None;

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        MacKeys::of_texts(secrets).map(Self)
    }

    fn verify(&self, request: &Request, body: &[u8], now: EpochMillis) -> Result<(), Unverified> {
        let header = request
            .header("stripe-signature")
            .ok_or(Unverified::NoSignature)?;
        let signature = Signature::read(header).ok_or(Unverified::Malformed)?;
        stamp::check(signature.timestamp, now)?;
        let parts: [&[u8]; 3] = [signature.timestamp.as_bytes(), b".", body];
        if self.0.made(&parts, &signature.made) {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, _request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let document: Option<Value> = serde_json::from_slice(body).ok();
        let kind = document
            .as_ref()
            .and_then(|document| word(document.get("type")?.as_str()?));
        Ok(Event {
            kind: kind.unwrap_or(UNKNOWN_KIND).to_owned(),
            delivery: document.as_ref().map(delivery).transpose()?.flatten(),
            operation: Operation::Delivery,
            thread: None,
            document,
            withheld: &[],
        })
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        let timestamp = delivery.at.seconds().0.to_string();
        let parts: [&[u8]; 3] = [timestamp.as_bytes(), b".", delivery.body];
        let digest = hex::encode(mac(secret.as_bytes(), &parts)?);
        Ok(vec![(
            "stripe-signature",
            format!("t={timestamp},v1={digest}"),
        )])
    }
}

/// A `Stripe-Signature` header: one time stamp, and the signatures of version 1. Several stand side
/// by side while a secret is being rotated; those of other versions are passed over.
struct Signature<'a> {
    timestamp: &'a str,
    made: Vec<[u8; 32]>,
}

impl<'a> Signature<'a> {
    fn read(header: &'a str) -> Option<Self> {
        let mut timestamp = None;
        let mut made = Vec::new();
        for item in header.split(',') {
            let (name, value) = item.split_once('=')?;
            // What looks like a time stamp to others must not be passed over here.
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return None;
            }
            match (name, value) {
                // With a second one nobody could tell which was signed.
                ("t", _) if timestamp.is_some() => return None,
                ("t", text) => timestamp = Some(text),
                ("v1", text) => made.push(lower_hex(text)?),
                _ => {}
            }
        }
        let timestamp = timestamp?;
        Some(Self { timestamp, made })
    }
}

/// The event's id. One platform's endpoint gets the events of all connected accounts, and of test
/// and live mode: account and mode stand beside it.
fn delivery(document: &Value) -> Result<Option<Delivery>, MalformedKey> {
    let Some(id) = document.get("id").and_then(Value::as_str) else {
        return Ok(None);
    };
    caller_key(id)?;
    let mut parts = Vec::new();
    // Events of the second generation call the account their context.
    for name in ["account", "context"] {
        if let Some(account @ Value::String(_)) = document.get(name) {
            parts.extend([name.into(), account.clone()]);
        }
    }
    if let Some(mode @ Value::Bool(_)) = document.get("livemode") {
        parts.push(mode.clone());
    }
    parts.push(id.into());
    Ok(Some(Delivery {
        key: key::join(&parts)?,
        id: id.to_owned(),
    }))
}
