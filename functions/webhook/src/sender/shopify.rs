//! Scheme `shopify`: Shopify's webhooks, under both names of their headers.

mod topics;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::event::{
    Delivery, Event, KEY_LIMIT, MalformedKey, Operation, UNKNOWN_KIND, plain, word,
};
use super::secret::{MacKeys, Secret, base64_of, mac};
use super::{Scheme, Unverified};
use crate::keys;
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// A sender that signs the body. Its headers are not signed.
#[derive(Debug)]
pub(crate) struct Shopify(MacKeys);

/// The headers of one family. They are never mixed.
struct Family {
    signature: &'static str,
    shop: &'static str,
    topic: &'static str,
    delivery: &'static str,
    event: &'static str,
    /// What else tells what it is about.
    about: &'static [&'static str],
}

const WEBHOOKS: Family = Family {
    signature: "x-shopify-hmac-sha256",
    shop: "x-shopify-shop-domain",
    topic: "x-shopify-topic",
    delivery: "x-shopify-webhook-id",
    event: "x-shopify-event-id",
    about: &[],
};

/// The newer deliveries, which Shopify calls events.
const EVENTS: Family = Family {
    signature: "shopify-hmac-sha256",
    shop: "shopify-shop-domain",
    topic: "shopify-topic",
    delivery: "shopify-webhook-id",
    event: "shopify-event-id",
    about: &["shopify-action", "shopify-resource-id"],
};

impl Family {
    /// The family that a request's signature belongs to.
    fn of(request: &Request) -> Option<(&'static Self, &str)> {
        [&WEBHOOKS, &EVENTS]
            .into_iter()
            .find_map(|family| Some((family, request.header(family.signature)?)))
    }

    /// Shop, topic, an id and the body's digest: ids and topic are not signed, so that they count
    /// only together with the body.
    fn key(
        &self,
        request: &Request,
        what: Option<&str>,
        id: &str,
        digest: &str,
    ) -> Result<Option<String>, MalformedKey> {
        let mut parts: Vec<&str> = what.into_iter().collect();
        for name in [self.shop, self.topic] {
            match header(request, name)? {
                Some(value) => parts.push(value),
                None => return Ok(None),
            }
        }
        parts.push(id);
        for name in self.about {
            parts.push(header(request, name)?.unwrap_or("-"));
        }
        parts.push(digest);
        let parts: Vec<Value> = parts.into_iter().map(Value::from).collect();
        Ok(keys::id_of_parts(&parts))
    }
}

/// A header's value; one that is not plain text can be no part of a key.
fn header<'a>(request: &'a Request, name: &str) -> Result<Option<&'a str>, MalformedKey> {
    match request.header(name) {
        Some(value) if plain(value).is_none() || value.len() > KEY_LIMIT => Err(MalformedKey),
        value => Ok(value),
    }
}

impl Scheme for Shopify {
    const NAME: &'static str = "shopify";
    const PASSED_ON: &'static [&'static str] = &[
        "x-shopify-api-version",
        "x-shopify-event-id",
        "x-shopify-shop-domain",
        "x-shopify-topic",
        "x-shopify-triggered-at",
        "x-shopify-webhook-id",
        "shopify-action",
        "shopify-api-version",
        "shopify-event-id",
        "shopify-handle",
        "shopify-resource-id",
        "shopify-shop-domain",
        "shopify-topic",
        "shopify-triggered-at",
        "shopify-webhook-id",
    ];
    const ID_HEADER: Option<&'static str> = Some(WEBHOOKS.delivery);

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        MacKeys::of_texts(secrets).map(Self)
    }

    fn verify(&self, request: &Request, body: &[u8], _now: EpochMillis) -> Result<(), Unverified> {
        let (_, signature) = Family::of(request).ok_or(Unverified::NoSignature)?;
        let given = base64_of::<32>(signature).ok_or(Unverified::Malformed)?;
        if self.0.made(&[body], &[given]) {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let (family, _) = Family::of(request).ok_or(MalformedKey)?;
        let document: Option<Value> = serde_json::from_slice(body).ok();
        let digest = hex::encode(Sha256::digest(body));
        let delivery = match header(request, family.delivery)? {
            Some(id) => family.key(request, None, id, &digest)?.map(|key| Delivery {
                key,
                id: id.to_owned(),
            }),
            None => None,
        };
        let topic = request.header(family.topic).and_then(word);
        let known = topic.filter(|topic| topics::fits(topic, document.as_ref()));
        let kind = match (family.about, known) {
            ([], Some(topic)) => topic,
            (_, Some(_)) => "events",
            (_, None) => UNKNOWN_KIND,
        };
        // One action of a merchant has one event id: in each topic, for each resource, and through
        // each subscription. Topic and body tell the first two apart.
        let named = match (known, header(request, family.event)?) {
            (Some(_), Some(id)) => family.key(request, Some("event"), id, &digest)?,
            _ => None,
        };
        Ok(Event {
            delivery,
            kind: kind.to_owned(),
            operation: named.map_or(Operation::Unnamed, Operation::Named),
            thread: None,
            document,
            withheld: match known {
                Some(_) => &[],
                None => &["x-shopify-topic", "shopify-topic"],
            },
        })
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        let digest = mac(secret.as_bytes(), &[delivery.body])?;
        Ok(vec![
            (WEBHOOKS.delivery, delivery.id.to_owned()),
            (WEBHOOKS.signature, STANDARD.encode(digest)),
        ])
    }
}
