//! Senders and their schemes: how a request is verified, and what it is about.
//!
//! # Adding a ninth scheme
//!
//! 1. One file here, with one type that implements [`Scheme`]: its name, how its secrets are read,
//!    how a request is verified, what it is about, and how its sender signs.
//! 2. Two lines in this file: its `mod`, and its entry in `schemes!`. All else (configuration, door,
//!    keys, metrics, `firstclaim send`) goes by the trait.
//! 3. A folder of deliveries in `tests/events` with their signatures in `vectors.json`, a row for the
//!    tables in `tests/door`, a development secret in `cli/src/dev/senders.rs`, a row in the README.
//!
//! What a scheme must keep to: only its own headers are read; signatures are checked over the raw
//! bytes and compared in constant time; whatever its rule can't name exactly is
//! [`Operation::Unnamed`], so that the delivery stands in for it. To take two events for one is the
//! worse fault: it is silent, and lasts as long as the window.

mod event;
mod form;
mod github;
mod gitlab;
mod rules;
mod secret;
mod shopify;
mod slack;
mod stamp;
mod standard;
mod stripe;
mod token;
mod twilio;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use firstclaim::clock::EpochMillis;

use crate::request::Request;
use crate::rule::Rule;
use crate::signing::{Headers, Unsigned};

pub(crate) use event::{Event, MalformedKey, Operation, plain};
pub(crate) use secret::Secret;
pub(crate) use token::{CHALLENGE as TOKEN_CHALLENGE, Presented};

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
    /// Whether its signatures cover the address that the sender called.
    const SIGNS_ADDRESS: bool = false;
    /// The headers that are passed on to the target; never secrets.
    const PASSED_ON: &'static [&'static str];
    /// The header with the delivery's id, where there is one.
    const ID_HEADER: Option<&'static str>;

    /// Reads the secrets strictly. `Err`: what is wrong with which, in words that don't tell them.
    fn new(secrets: &[Secret]) -> Result<Self, Vec<String>>;

    /// Whether the sender made this request, and now.
    fn verify(&self, request: &Request, body: &[u8], now: EpochMillis) -> Result<(), Unverified>;

    /// What a verified request is about.
    fn read(&self, request: &Request, body: &[u8]) -> Result<Event, MalformedKey>;

    /// The text that a verified request asks to be answered with at once. Such a request is no
    /// event: the sender only wants to know whether somebody is there.
    fn probed(&self, _body: &[u8]) -> Option<String> {
        None
    }

    /// What the sender is answered once the event of this verified body is on the queue.
    fn acknowledgement(&self, _body: &[u8]) -> Acknowledgement {
        Acknowledgement::Queued
    }

    /// The headers that the sender makes for a delivery: its id and its signature. `Err`: what is
    /// wrong with the secret.
    fn sign(secret: &str, delivery: &Unsigned<'_>) -> Result<Headers, String>;

    /// The address that the sender calls in place of the one that it was given.
    fn address(delivery: &Unsigned<'_>) -> String {
        delivery.url.to_owned()
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

/// What a sender is answered once the queue has its event, and for each duplicate of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    /// 202, with the operation's key.
    Queued,
    /// 200 and nothing: the sender would show a body to a person, or take it for an error.
    Empty,
}

/// Why a request was not verified; for the log, never for the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unverified {
    NoSignature,
    Malformed,
    Stale,
    Wrong,
    UndecodableBody,
    /// The signature covers the address, and `PUBLIC_URL` is not set.
    NoAddress,
}

impl Unverified {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NoSignature => "no_signature",
            Self::Malformed => "malformed_signature",
            Self::Stale => "stale_signature",
            Self::Wrong => "wrong_signature",
            Self::UndecodableBody => "undecodable_body",
            Self::NoAddress => "no_public_url",
        }
    }
}

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

            /// The headers that the sender of the named scheme makes, and the address that it calls.
            pub(crate) fn sign(
                name: &str,
                secret: &str,
                delivery: &Unsigned<'_>,
            ) -> Option<Result<(String, Headers), String>> {
                $(if name == <$file::$scheme as Scheme>::NAME {
                    let url = $file::$scheme::address(delivery);
                    let signed = $file::$scheme::sign(secret, &Unsigned { url: &url, ..*delivery });
                    return Some(signed.map(|headers| (url, headers)));
                })*
                None
            }

            /// The header with the delivery's id of the named scheme.
            pub(crate) fn id_header(name: &str) -> Option<&'static str> {
                $(if name == <$file::$scheme as Scheme>::NAME {
                    return <$file::$scheme as Scheme>::ID_HEADER;
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

            fn signs_address(&self) -> bool {
                match self { $(Self::$scheme(_) => <$file::$scheme as Scheme>::SIGNS_ADDRESS,)* }
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

            fn acknowledgement(&self, body: &[u8]) -> Acknowledgement {
                match self { $(Self::$scheme(scheme) => scheme.acknowledgement(body),)* }
            }

            fn probed(&self, body: &[u8]) -> Option<String> {
                match self { $(Self::$scheme(scheme) => scheme.probed(body),)* }
            }
        }
    };
}

schemes! {
    github::GitHub,
    gitlab::GitLab,
    stripe::Stripe,
    slack::Slack,
    shopify::Shopify,
    standard::Standard,
    twilio::Twilio,
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

    /// The text that a verified request asks to be answered with, in place of an event.
    pub(crate) fn probed(&self, request: &Request) -> Option<String> {
        self.scheme.probed(request.body()?)
    }

    /// What this sender is answered once the queue has the event of a verified request.
    pub(crate) fn acknowledgement(&self, request: &Request) -> Acknowledgement {
        let body = request.body().unwrap_or_default();
        self.scheme.acknowledgement(body)
    }

    /// Whether nothing of this sender can be verified without the address that it calls.
    pub(crate) fn needs_address(&self) -> bool {
        self.scheme.signs_address()
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
