//! Scheme `standard`: Standard Webhooks, as Svix and GitLab's signing tokens write it too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde_json::Value;

use super::event::{Delivery, Event, MalformedKey, Operation, UNKNOWN_KIND, caller_key, word};
use super::secret::{MacKeys, Secret, base64_of, mac, read_all};
use super::{Scheme, Unverified, gitlab, stamp};
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// The length of a decoded secret, in bytes.
const SECRET_LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// The most `v1a` signatures of one request that are tried: each costs as much as the HMAC of a long
/// body.
const PUBLIC_LIMIT: usize = 8;

/// A sender that signs id, time stamp and body with HMAC-SHA256 (`v1`) or ed25519 (`v1a`).
#[derive(Debug)]
pub(crate) struct Standard {
    shared: MacKeys,
    public: Vec<PublicKey>,
}

/// The three headers, under one of their two names. They are never mixed: a header of the other
/// name is not signed.
#[derive(Debug)]
struct Signed<'a> {
    id: &'a str,
    timestamp: &'a str,
    signature: &'a str,
    /// The headers of the other name that would be passed on.
    unsigned: &'static [&'static str],
}

const WEBHOOK: [&str; 2] = ["webhook-id", "webhook-timestamp"];
const SVIX: [&str; 2] = ["svix-id", "svix-timestamp"];

impl<'a> Signed<'a> {
    fn of(request: &'a Request) -> Result<Self, Unverified> {
        let headers = |[id, timestamp]: [&str; 2], signature, unsigned| {
            Some(Self {
                signature: request.header(signature)?,
                id: request.header(id)?,
                timestamp: request.header(timestamp)?,
                unsigned,
            })
        };
        headers(WEBHOOK, "webhook-signature", &SVIX)
            .or_else(|| headers(SVIX, "svix-signature", &WEBHOOK))
            .ok_or(Unverified::NoSignature)
    }
}

impl Scheme for Standard {
    const NAME: &'static str = "standard";
    // Of these only the two of the name that was verified.
    const PASSED_ON: &'static [&'static str] = &[WEBHOOK[0], WEBHOOK[1], SVIX[0], SVIX[1]];
    const ID_HEADER: Option<&'static str> = Some("webhook-id");

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        let keys = read_all(secrets, read_secret)?;
        let mut public = Vec::new();
        let mut shared = Vec::new();
        for key in keys {
            match key {
                Key::Public(key) => public.push(key),
                Key::Shared(key) => shared.push(key),
            }
        }
        let shared = MacKeys::of_keys(&shared).map_err(|fault| vec![fault])?;
        Ok(Self { shared, public })
    }

    fn verify(&self, request: &Request, body: &[u8], now: EpochMillis) -> Result<(), Unverified> {
        let signed = Signed::of(request)?;
        // The dots are what keeps the three parts apart.
        if signed.id.is_empty() || signed.id.contains('.') {
            return Err(Unverified::Malformed);
        }
        stamp::check(signed.timestamp, now)?;
        let parts = content(signed.id, signed.timestamp, body);
        // Several signatures stand side by side while a secret is being rotated; those of versions
        // that are not known here are passed over.
        let entries = || signed.signature.split(' ');
        let shared: Vec<[u8; 32]> = entries()
            .filter_map(|entry| base64_of(entry.strip_prefix("v1,")?))
            .collect();
        if self.shared.made(&parts, &shared) {
            return Ok(());
        }
        let public = entries()
            .filter_map(|entry| base64_of(entry.strip_prefix("v1a,")?))
            .take(PUBLIC_LIMIT);
        if self.public.is_empty() {
            return Err(Unverified::Wrong);
        }
        let whole = parts.concat();
        for signature in public {
            if self.public.iter().any(|key| key.made(&whole, &signature)) {
                return Ok(());
            }
        }
        Err(Unverified::Wrong)
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let signed = Signed::of(request).ok();
        let id = signed.as_ref().map_or("", |signed| signed.id);
        let document: Option<Value> = serde_json::from_slice(body).ok();
        let kind = document.as_ref().and_then(|document| {
            let own = document.get("type").and_then(Value::as_str).and_then(word);
            own.map(str::to_owned).or_else(|| gitlab::kind(document))
        });
        Ok(Event {
            delivery: Some(Delivery {
                key: caller_key(id)?,
                id: id.to_owned(),
            }),
            kind: kind.unwrap_or_else(|| UNKNOWN_KIND.to_owned()),
            operation: Operation::Delivery,
            thread: None,
            document,
            withheld: signed.map_or(&[], |signed| signed.unsigned),
        })
    }

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        let timestamp = delivery.at.seconds().0.to_string();
        let content = content(delivery.id, &timestamp, delivery.body);
        let signature = signature(secret, &content)?;
        Ok(vec![
            ("webhook-id", delivery.id.to_owned()),
            ("webhook-timestamp", timestamp),
            ("webhook-signature", signature),
        ])
    }
}

/// What a secret is a key for.
enum Key {
    Shared(Vec<u8>),
    Public(PublicKey),
}

/// A key that verifies ed25519 signatures.
#[derive(Debug)]
struct PublicKey([u8; 32]);

impl PublicKey {
    fn made(&self, content: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(content, signature)
            .is_ok()
    }
}

/// What is signed: id, time stamp and body, with dots between them.
fn content<'a>(id: &'a str, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body]
}

/// A secret is `whsec_` and strict base64 of 24 to 64 bytes; `whpk_` and a public key for ed25519;
/// or `raw:` and a text that is the key as it is. Which of them is said, never guessed: under the
/// prefix `whsec_` both readings are in use.
fn read_secret(secret: &Secret) -> Result<Key, String> {
    let text = secret.text()?;
    if let Some(raw) = text.strip_prefix("raw:") {
        let raw = Secret::new(raw.to_owned());
        return Ok(Key::Shared(raw.text()?.as_bytes().to_vec()));
    }
    if let Some(encoded) = text.strip_prefix("whpk_") {
        let key = base64_of(encoded).ok_or("has no strict base64 of 32 bytes behind `whpk_`")?;
        return Ok(Key::Public(PublicKey(key)));
    }
    if text.starts_with("whsk_") {
        return Err("is the sender's signing key; what verifies is its `whpk_` key".to_owned());
    }
    if text.starts_with("v1,") {
        return Err("starts with `v1,`, which is not part of it; paste it from `whsec_` on".into());
    }
    let Some(encoded) = text.strip_prefix("whsec_") else {
        return Err("starts with none of `whsec_`, `whpk_` and `raw:`".to_owned());
    };
    let decoded = STANDARD.decode(encoded).map_err(|_| {
        "has no strict base64 behind `whsec_`; if the whole text is the key, write `raw:` in \
         front of it"
            .to_owned()
    })?;
    if !SECRET_LENGTHS.contains(&decoded.len()) {
        return Err(format!(
            "decodes to {} bytes; a `whsec_` secret has 24 to 64",
            decoded.len()
        ));
    }
    Ok(Key::Shared(decoded))
}

/// Signs as the owner of a secret does: `whsec_`, `raw:`, or `whsk_` and base64 of an ed25519 seed,
/// with or without its public key behind it.
fn signature(secret: &str, content: &[&[u8]]) -> Result<String, String> {
    let Some(encoded) = secret.strip_prefix("whsk_") else {
        let key = match secret.strip_prefix("raw:") {
            Some(raw) => raw.as_bytes().to_vec(),
            None => STANDARD
                .decode(secret.strip_prefix("whsec_").unwrap_or(secret))
                .map_err(|_| "has no strict base64 behind `whsec_`".to_owned())?,
        };
        return Ok(format!("v1,{}", STANDARD.encode(mac(&key, content)?)));
    };
    let pair = STANDARD
        .decode(encoded)
        .ok()
        .and_then(|bytes| Ed25519KeyPair::from_seed_unchecked(bytes.get(..32)?).ok())
        .ok_or("has no strict base64 of an ed25519 key behind `whsk_`")?;
    let signature = pair.sign(&content.concat());
    Ok(format!("v1a,{}", STANDARD.encode(signature)))
}
