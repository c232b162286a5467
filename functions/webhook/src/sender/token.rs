//! Scheme `token`: a bearer token, and a key that the caller chooses.

use firstclaim::clock::EpochMillis;

use super::event::{Delivery, Event, MalformedKey, Operation, caller_key};
use super::secret::{Secret, Tokens, digest};
use super::{Scheme, Unverified};
use crate::request::Request;
use crate::signing::{Headers, Unsigned};

/// What `WWW-Authenticate` says.
pub(crate) const CHALLENGE: &str = "Bearer";

/// A sender that shows a bearer token.
#[derive(Debug)]
pub(crate) struct Token(Tokens);

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
        Ok(Self(digest(token)))
    }
}

impl Token {
    /// Whether the token is one of this sender's.
    pub(crate) fn has(&self, presented: &Presented) -> bool {
        self.0.have(&presented.0)
    }
}

impl Scheme for Token {
    const NAME: &'static str = "token";
    const CHALLENGE: &'static str = CHALLENGE;
    const CALLER_KEYED: bool = true;
    const PASSED_ON: &'static [&'static str] = &[];
    const ID_HEADER: Option<&'static str> = Some("idempotency-key");

    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        Tokens::read(secrets).map(Self)
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

    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String> {
        // As it is, whether it is quoted or bare: both are one key.
        Ok(vec![
            ("authorization", format!("Bearer {secret}")),
            ("idempotency-key", delivery.id.to_owned()),
        ])
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
