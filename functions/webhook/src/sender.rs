//! Senders and their schemes: how a request is verified, and what it is about.
//!
//! A new scheme is one file here with one type that implements [`Scheme`], its `mod` line, and its
//! line in `schemes!`.

mod github;
mod secret;
mod standard;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use firstclaim::KeyError;
use firstclaim::clock::EpochMillis;
use firstclaim::envelope::Thread;
use serde_json::Value;

use crate::keys::{self, Keys};
use crate::request::Request;
use crate::rule::Rule;

pub(crate) use secret::Secret;

/// How far a signature's time stamp may be from the clock, to either side.
const TOLERANCE: Duration = Duration::from_secs(300);

/// One configured sender.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The path segment and the scope of its keys.
    pub(crate) name: String,
    pub(crate) scheme: AnyScheme,
    /// `operation_key`, which overrides the scheme's own rule.
    pub(crate) rule: Option<Rule>,
    /// How long its finished deliveries answer duplicates, in place of the configured window.
    pub(crate) window: Option<Duration>,
}

/// What a scheme knows how to do. Reads no other headers than its own.
pub(crate) trait Scheme: fmt::Debug + Sized {
    /// Its name in the configuration.
    const NAME: &'static str;
    /// What `WWW-Authenticate` says.
    const CHALLENGE: &'static str = "Signature";
    /// What a duplicate is told while the first is still being accepted.
    const IN_FLIGHT: InFlight = InFlight::Conflict;
    /// Whether the caller chooses the key, so that it must be bound to one payload.
    const CALLER_KEYED: bool = false;
    /// The headers that are passed on to the target; never secrets.
    const PASSED_ON: &'static [&'static str];

    /// Reads the secrets strictly. `Err`: what is wrong with which, in words that don't tell them.
    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>>;

    /// Whether the sender made this request, and now.
    fn verify(&self, request: &Request, body: &[u8], now: EpochMillis) -> Result<(), Unverified>;

    /// What a verified request is about.
    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey>;
}

/// The key that the caller sent is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedKey;

impl From<KeyError> for MalformedKey {
    fn from(_: KeyError) -> Self {
        Self
    }
}

/// What a duplicate is told while the first is still being accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFlight {
    /// The sender tries again by itself: 409.
    Conflict,
    /// The sender never does: the event is put on the queue again, and the worker's claim decides.
    SendAgain,
}

/// Why a request was not verified; for the log, never for the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unverified {
    NoSignature,
    Malformed,
    Stale,
    Wrong,
    UndecodableBody,
}

impl Unverified {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NoSignature => "no_signature",
            Self::Malformed => "malformed_signature",
            Self::Stale => "stale_signature",
            Self::Wrong => "wrong_signature",
            Self::UndecodableBody => "undecodable_body",
        }
    }
}

/// What a verified request is about.
#[derive(Debug)]
pub(crate) struct Event {
    /// What a redelivery repeats; `None` where the caller sent no key.
    pub(crate) delivery: Option<Delivery>,
    /// The event's kind; only characters that are safe in a log and a header.
    pub(crate) kind: String,
    /// What the scheme's own rule says of the operation.
    pub(crate) operation: Operation,
    /// The thread that it belongs to.
    pub(crate) thread: Option<Thread>,
    /// The body's JSON, for an `operation_key` rule.
    pub(crate) document: Option<Value>,
    /// Headers that the body contradicts; they are not passed on.
    pub(crate) withheld: &'static [&'static str],
}

impl Event {
    /// The delivery's id, for people.
    pub(crate) fn delivery_id<'a>(&'a self, keys: &'a Keys) -> &'a str {
        match &self.delivery {
            Some(delivery) => &delivery.id,
            None => &keys.delivery,
        }
    }
}

/// What a redelivery repeats.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The id in the keys.
    pub(crate) key: String,
    /// The id that people know.
    pub(crate) id: String,
}

/// What a scheme's own rule says of the operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The delivery names it.
    Delivery,
    /// This id names it.
    Named(String),
    /// The rule can't name it exactly. The delivery stands in for it, and that is counted.
    Unnamed,
}

/// The kind of an event whose body does not say what it must.
pub(crate) const UNKNOWN_KIND: &str = "unknown";

/// Schemes that are planned: while they are not in `schemes!`, configuring one is told so.
pub(crate) const LATER: [&str; 5] = ["gitlab", "stripe", "slack", "shopify", "twilio"];

macro_rules! schemes {
    ($($file:ident::$scheme:ident,)*) => {
        /// Any of the schemes.
        #[derive(Debug)]
        pub(crate) enum AnyScheme {
            $($scheme($file::$scheme),)*
        }

        impl AnyScheme {
            /// The names of all schemes.
            pub(crate) const NAMES: &'static [&'static str] =
                &[$(<$file::$scheme as Scheme>::NAME,)*];

            /// The scheme of this name with these secrets; `None` if there is none.
            pub(crate) fn new(
                name: &str,
                secrets: &[Secret],
            ) -> Option<Result<Self, Vec<String>>> {
                $(if name == <$file::$scheme as Scheme>::NAME {
                    return Some($file::$scheme::new(secrets).map(Self::$scheme));
                })*
                None
            }

            pub(crate) fn name(&self) -> &'static str {
                match self { $(Self::$scheme(_) => <$file::$scheme as Scheme>::NAME,)* }
            }

            pub(crate) fn challenge(&self) -> &'static str {
                match self { $(Self::$scheme(_) => <$file::$scheme as Scheme>::CHALLENGE,)* }
            }

            pub(crate) fn in_flight(&self) -> InFlight {
                match self { $(Self::$scheme(_) => <$file::$scheme as Scheme>::IN_FLIGHT,)* }
            }

            pub(crate) fn caller_keyed(&self) -> bool {
                match self { $(Self::$scheme(_) => <$file::$scheme as Scheme>::CALLER_KEYED,)* }
            }

            fn passed_on(&self) -> &'static [&'static str] {
                match self { $(Self::$scheme(_) => <$file::$scheme as Scheme>::PASSED_ON,)* }
            }

            fn verify(
                &self,
                request: &Request,
                body: &[u8],
                now: EpochMillis,
            ) -> Result<(), Unverified> {
                match self { $(Self::$scheme(scheme) => scheme.verify(request, body, now),)* }
            }

            fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey> {
                match self { $(Self::$scheme(scheme) => scheme.read(request, body),)* }
            }
        }
    };
}

schemes! {
    github::GitHub,
    standard::Standard,
    token::Token,
}

impl Sender {
    /// Whether this sender made the request, and now.
    pub(crate) fn verify(&self, request: &Request, now: EpochMillis) -> Result<(), Unverified> {
        let body = request.body().ok_or(Unverified::UndecodableBody)?;
        self.scheme.verify(request, body, now)
    }

    /// What a verified request is about.
    pub(crate) fn read(&self, request: &Request) -> Result<Event, MalformedKey> {
        self.scheme
            .read(request, request.body().unwrap_or_default())
    }

    /// The headers that go on to the target.
    pub(crate) fn passed_on(&self, request: &Request, event: &Event) -> BTreeMap<String, String> {
        let passed = |name: &&str| !event.withheld.contains(name);
        self.scheme
            .passed_on()
            .iter()
            .copied()
            .filter(passed)
            .filter_map(|name| Some((name.to_owned(), plain(request.header(name)?)?.to_owned())))
            .collect()
    }

    /// Whether this is a `token` sender; and if so, whether `presented` is one of its tokens.
    pub(crate) fn has_token(&self, presented: &token::Presented) -> Option<bool> {
        match &self.scheme {
            AnyScheme::Token(scheme) => Some(scheme.has(presented)),
            _ => None,
        }
    }
}

pub(crate) use token::{CHALLENGE as TOKEN_CHALLENGE, Presented};

/// The longest key that a caller may choose, in characters.
const KEY_LIMIT: usize = 255;

/// The id that a key of the caller's choice is.
fn caller_key(text: &str) -> Result<String, MalformedKey> {
    let fits = (1..=KEY_LIMIT).contains(&text.chars().count());
    if !fits || text.contains(char::is_control) {
        return Err(MalformedKey);
    }
    Ok(keys::id_of_text(text)?)
}

/// A header's value, if it can be passed on as it is.
pub(crate) fn plain(value: &str) -> Option<&str> {
    let fits = (1..=1024).contains(&value.len());
    let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (fits && printable).then_some(value)
}

/// A word of an event's kind, if it has only characters that are safe everywhere.
fn word(text: &str) -> Option<&str> {
    let fits = (1..=100).contains(&text.len());
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (fits && text.bytes().all(safe)).then_some(text)
}
