//! Scheme `standard`: Standard Webhooks, as Svix and GitLab's signing tokens write it too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::EpochMillis;

use super::secret::{MacKey, Secret, read_all};
use super::{
    Delivery, Event, MalformedKey, Operation, Scheme, TOLERANCE, UNKNOWN_KIND, Unverified,
    caller_key, word,
};
use crate::request::Request;

/// The length of a decoded secret, in bytes.
const SECRET_LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// A sender that signs id, time stamp and body with HMAC-SHA256 (`v1`).
#[derive(Debug)]
pub(crate) struct Standard(Vec<MacKey>);

/// The three headers, under one of their two names. They are never mixed: a header of the other
/// name is not signed.
#[derive(Debug)]
struct Signed<'a> {
    id: &'a str,
    timestamp: &'a str,
    signature: &'a str,
}

impl<'a> Signed<'a> {
    fn of(request: &'a Request) -> Result<Self, Unverified> {
        let headers = |id, timestamp, signature| {
            Some(Self {
                signature: request.header(signature)?,
                id: request.header(id)?,
                timestamp: request.header(timestamp)?,
            })
        };
        headers("webhook-id", "webhook-timestamp", "webhook-signature")
            .or_else(|| headers("svix-id", "svix-timestamp", "svix-signature"))
            .ok_or(Unverified::NoSignature)
    }
}

impl Scheme for Standard {
    const NAME: &'static str = "standard";
    const PASSED_ON: &'static [&'static str] = &[
        "webhook-id",
        "webhook-timestamp",
        "svix-id",
        "svix-timestamp",
    ];

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        read_all(secrets, read_secret).map(Self)
    }

    fn verify(&self, request: &Request, body: &[u8], now: EpochMillis) -> Result<(), Unverified> {
        let signed = Signed::of(request)?;
        // The dots are what keeps the three parts apart.
        if signed.id.is_empty() || signed.id.contains('.') {
            return Err(Unverified::Malformed);
        }
        let sent = seconds(signed.timestamp).ok_or(Unverified::Malformed)?;
        if now.since(sent).max(sent.since(now)) > TOLERANCE {
            return Err(Unverified::Stale);
        }
        let (id, timestamp) = (signed.id.as_bytes(), signed.timestamp.as_bytes());
        let tags = self
            .0
            .iter()
            .map(|key| key.over(&[id, b".", timestamp, b".", body]))
            .collect::<Vec<_>>();
        // Several signatures stand side by side while a secret is being rotated; those of versions
        // that are not known here are passed over.
        let given = signed
            .signature
            .split(' ')
            .filter_map(|entry| entry.strip_prefix("v1,"))
            .filter_map(|text| STANDARD.decode(text).ok());
        for signature in given {
            if tags.iter().any(|tag| tag.is(&signature)) {
                return Ok(());
            }
        }
        Err(Unverified::Wrong)
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let id = Signed::of(request).map_or("", |signed| signed.id);
        let document: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        let kind = document
            .as_ref()
            .and_then(|document| word(document.get("type")?.as_str()?))
            .unwrap_or(UNKNOWN_KIND)
            .to_owned();
        Ok(Event {
            delivery: Some(Delivery {
                key: caller_key(id)?,
                id: id.to_owned(),
            }),
            kind,
            operation: Operation::Delivery,
            thread: None,
            document,
            withheld: &[],
        })
    }
}

/// A secret is `whsec_` and strict base64 of 24 to 64 bytes, or `raw:` and a text that is the key
/// as it is. Which of the two is said, never guessed: under one prefix both are in use.
fn read_secret(secret: &Secret) -> Result<MacKey, String> {
    let text = secret.text()?;
    let key = if let Some(raw) = text.strip_prefix("raw:") {
        Secret::new(raw.to_owned()).text()?.as_bytes().to_vec()
    } else if let Some(encoded) = text.strip_prefix("whsec_") {
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
        decoded
    } else if text.starts_with("v1,") {
        return Err("starts with `v1,`, which is not part of it; paste it from `whsec_` on".into());
    } else if text.starts_with("whpk_") || text.starts_with("whsk_") {
        return Err("is an ed25519 key; `v1a` signatures are not supported yet".to_owned());
    } else {
        return Err("starts with neither `whsec_` nor `raw:`".to_owned());
    };
    MacKey::new(&key).ok_or_else(|| "is no key for HMAC".to_owned())
}

/// A time stamp in whole seconds: digits only, so that no other text can be signed in its place.
fn seconds(text: &str) -> Option<EpochMillis> {
    let digits = (1..=11).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = digits.then(|| text.parse().ok())??;
    Some(EpochMillis(seconds.checked_mul(1000)?))
}
