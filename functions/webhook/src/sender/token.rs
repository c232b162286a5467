//! Scheme `token`: a bearer token, and a key that the caller chooses.

use std::fmt;

use firstclaim::clock::EpochMillis;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::secret::{Secret, read_all};
use super::{Delivery, Event, MalformedKey, Operation, Scheme, Unverified, caller_key};
use crate::request::Request;

/// What `WWW-Authenticate` says.
pub(crate) const CHALLENGE: &str = "Bearer";

/// A sender that shows a bearer token. Holds the tokens' digests, not the tokens.
pub(crate) struct Token(Vec<[u8; 32]>);

/// The digest of a token that a request presents.
pub(crate) struct Presented([u8; 32]);

impl Presented {
    /// The request's bearer token.
    pub(crate) fn of(request: &Request) -> Result<Self, Unverified> {
        let value = request
            .header("authorization")
            .ok_or(Unverified::NoSignature)?;
        let (scheme, token) = value.split_once(' ').ok_or(Unverified::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
            return Err(Unverified::Malformed);
        }
        Ok(Self(Sha256::digest(token.as_bytes()).into()))
    }
}

impl Token {
    /// Whether the token is one of this sender's. Digests are compared, so that the time tells
    /// nothing of a token; and all of them, so that it does not tell which one fits.
    pub(crate) fn has(&self, presented: &Presented) -> bool {
        self.0
            .iter()
            .fold(Choice::from(0), |found, digest| {
                found | digest.ct_eq(&presented.0)
            })
            .into()
    }
}

impl Scheme for Token {
    const NAME: &'static str = "token";
    const CHALLENGE: &'static str = CHALLENGE;
    const CALLER_KEYED: bool = true;
    const PASSED_ON: &'static [&'static str] = &[];

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        let digest = |secret: &Secret| Ok(Sha256::digest(secret.text()?.as_bytes()).into());
        read_all(secrets, digest).map(Self)
    }

    fn verify(&self, request: &Request, _body: &[u8], _now: EpochMillis) -> Result<(), Unverified> {
        if self.has(&Presented::of(request)?) {
            Ok(())
        } else {
            Err(Unverified::Wrong)
        }
    }

    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
        let delivery = match request.header("idempotency-key") {
            None => None,
            Some(value) => {
                let id = header_key(value)?;
                Some(Delivery {
                    key: caller_key(&id)?,
                    id,
                })
            }
        };
        Ok(Event {
            delivery,
            kind: "operation".to_owned(),
            operation: Operation::Delivery,
            thread: None,
            document: serde_json::from_slice(body).ok(),
            withheld: &[],
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} tokens)", self.0.len())
    }
}

/// The key in an `Idempotency-Key` header: a string as RFC 8941 writes it, in quotes, or the bare
/// text; both are one key.
fn header_key(value: &str) -> Result<String, MalformedKey> {
    let value = value.trim_matches([' ', '\t']);
    let Some(quoted) = value.strip_prefix('"') else {
        return Ok(value.to_owned());
    };
    let mut key = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            // Nothing may stand behind the closing quote.
            '"' if characters.as_str().is_empty() => return Ok(key),
            '"' => return Err(MalformedKey),
            '\\' => match characters.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err(MalformedKey),
            },
            other => key.push(other),
        }
    }
    Err(MalformedKey)
}
