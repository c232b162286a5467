//! Inputs: what senders send, torn and put together anew.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::bench::{Request, sample};

/// A small delivery of a scheme with its proof, and what of it is signed.
#[derive(Debug)]
pub(super) struct Good {
    pub(super) request: Request,
    /// The headers that take part in the proof.
    pub(super) proofs: &'static [&'static str],
    /// Whether the body does.
    body: bool,
}

impl Good {
    /// Whether all that is signed is as it was, and the proof is there.
    pub(super) fn still_proved(&self, request: &Request) -> bool {
        let same = |name: &&str| request.headers.get(*name) == self.request.headers.get(*name);
        let body = !self.body || request.body == self.request.body;
        // Lists of signatures may hold others; Twilio signs parameters and not their bytes; a bearer
        // is announced in any case.
        let (file, header) = (&*self.request.path, self.proofs[0]);
        let value = |request: &Request| request.headers.get(header).cloned().unwrap_or_default();
        let (is, was) = (value(request), value(&self.request));
        let others = self.proofs[1..].iter().all(same);
        match file {
            "/webhooks/stripe" => {
                let has = |part: &str| is.split(',').any(|item| item == part);
                body && was.split(',').all(has)
            }
            "/webhooks/standard" => body && others && is.split(' ').any(|entry| entry == was),
            "/webhooks/twilio" => is == was && parameters(request) == parameters(&self.request),
            "/webhooks/token" => {
                let (is, was) = (is.split_once(' '), was.split_once(' '));
                is.zip(was)
                    .is_some_and(|(is, was)| is.0.eq_ignore_ascii_case(was.0) && is.1 == was.1)
            }
            _ => body && others && is == was,
        }
    }
}

/// A form's parameters in order, decoded without our own decoder.
fn parameters(request: &Request) -> Vec<Vec<u8>> {
    let mut fields: Vec<Vec<u8>> = request
        .body
        .split(|byte| *byte == b'&')
        .filter(|field| !field.is_empty())
        .map(|field| {
            let mut bytes = Vec::new();
            let mut at = 0;
            let mut named = false;
            while let Some(byte) = field.get(at) {
                let hex = field
                    .get(at + 1..at + 3)
                    .and_then(|hex| std::str::from_utf8(hex).ok());
                let hex = hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
                match (byte, hex) {
                    (b'%', Some(hex)) => {
                        bytes.push(u8::from_str_radix(hex, 16).unwrap());
                        at += 2;
                    }
                    (b'+', _) => bytes.push(b' '),
                    // Twilio does not sign where a name ends.
                    (b'=', _) if !named => named = true,
                    (byte, _) => bytes.push(*byte),
                }
                at += 1;
            }
            bytes
        })
        .collect();
    fields.sort();
    fields.dedup();
    // Nor where a parameter ends: only the whole counts.
    vec![fields.concat()]
}

/// The good delivery of each scheme.
pub(super) fn good(scheme: &str) -> &'static Good {
    static GOOD: LazyLock<Vec<Good>> = LazyLock::new(|| {
        let good = |file, proofs, body| Good {
            request: Request::of(file),
            proofs,
            body,
        };
        let token = good("token/operation.json", &["authorization"], false);
        vec![
            good("github/ping.json", &["x-hub-signature-256"], true).small("github"),
            good("gitlab/push.json", &["x-gitlab-token"], false).small("gitlab"),
            good(
                "stripe/connect.payout.paid.json",
                &["stripe-signature"],
                true,
            )
            .small("stripe"),
            good(
                "slack/slash_command.json",
                &["x-slack-signature", "x-slack-request-timestamp"],
                true,
            ),
            good(
                "shopify/orders-create.json",
                &["x-shopify-hmac-sha256"],
                true,
            )
            .small("shopify"),
            good(
                "standard/user.created.json",
                &["webhook-signature", "webhook-id", "webhook-timestamp"],
                true,
            ),
            good(
                "twilio/message-status.sent.json",
                &["x-twilio-signature"],
                true,
            ),
            Good {
                request: token.request.to("/webhooks/token"),
                ..token
            },
        ]
    });
    let of_scheme = |good: &&Good| good.request.path == format!("/webhooks/{scheme}");
    GOOD.iter().find(of_scheme).unwrap()
}

impl Good {
    /// The same with a small body, so that more of them are tried.
    fn small(self, scheme: &str) -> Self {
        let request = self
            .request
            .body(r#"{"id":"evt_1","object_kind":"push","action":"b"}"#);
        Self {
            request: request.signed_by(scheme),
            ..self
        }
    }
}

/// Pieces of header values.
const PIECES: [&str; 34] = [
    "t=",
    "v1=",
    "v0=",
    "v1,",
    "v1a,",
    "sha256=",
    "sha1=",
    "Bearer ",
    "bearer ",
    "Basic ",
    ",",
    " ",
    ";",
    "=",
    "==",
    ".",
    "-",
    "+",
    "\t",
    "\"",
    "\\",
    "\u{0}",
    "é",
    "💥",
    "1794478900",
    "1794478867",
    "99999999999",
    "000000000000000000000",
    "AAAA",
    "ec3c01e303a40e743246c1332cf7869016a7ae84984b723d146a1d834daf7ce7",
    "7DwB4wOkDnQyRsEzLPeGkBanroSYS3I9FGodg02vfOc=",
    "ME+C7TzZFxEo8Vh59xOs5Tisuco=",
    "whsec_",
    "token-bench-0123456789abcdef",
];

pub(super) fn header_values() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        1 => ".{0,8}",
        1 => "[0-9a-f]{64}",
        1 => "[A-Za-z0-9+/]{0,90}={0,2}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// One change of a delivery.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A bit of the body, at a place from 0 to 1.
    Bit(f64, u8),
    Cut(f64),
    Append(Vec<u8>),
    Swap(f64, f64),
    /// A bit of a header's value.
    HeaderBit(prop::sample::Index, f64, u8),
    HeaderTwice(prop::sample::Index),
    HeaderGone(prop::sample::Index),
    Header(prop::sample::Index, String),
    Query(String),
}

pub(super) fn changes() -> impl Strategy<Value = Change> {
    let place = || 0.0..1.0_f64;
    let header = any::<prop::sample::Index>;
    prop_oneof![
        3 => (place(), 0..8_u8).prop_map(|(at, bit)| Change::Bit(at, bit)),
        1 => place().prop_map(Change::Cut),
        1 => prop::collection::vec(any::<u8>(), 0..9).prop_map(Change::Append),
        1 => (place(), place()).prop_map(|(one, other)| Change::Swap(one, other)),
        3 => (header(), place(), 0..7_u8).prop_map(|(name, at, bit)| Change::HeaderBit(name, at, bit)),
        1 => header().prop_map(Change::HeaderTwice),
        1 => header().prop_map(Change::HeaderGone),
        2 => (header(), header_values()).prop_map(|(name, value)| Change::Header(name, value)),
        1 => "[a-zA-Z0-9=&%]{0,12}".prop_map(Change::Query),
    ]
}

fn at<T>(items: &[T], place: f64) -> usize {
    ((items.len() as f64) * place) as usize
}

impl Change {
    pub(super) fn apply(&self, mut request: Request) -> Request {
        let names: Vec<String> = request.headers.keys().cloned().collect();
        let named = |which: &prop::sample::Index| which.get(&names).clone();
        let body = &mut request.body;
        match self {
            _ if names.is_empty() => {}
            Self::Bit(place, bit) => {
                let place = at(body, *place);
                if let Some(byte) = body.get_mut(place) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Cut(place) => body.truncate(at(body, *place)),
            Self::Append(bytes) => body.extend(bytes),
            Self::Swap(one, other) => {
                let (one, other) = (at(body, *one), at(body, *other));
                if one.max(other) < body.len() {
                    body.swap(one, other);
                }
            }
            Self::HeaderBit(which, place, bit) => {
                let name = named(which);
                let mut bytes = request.headers[&name].clone().into_bytes();
                let place = at(&bytes, *place);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << bit;
                }
                if let Ok(value) = String::from_utf8(bytes) {
                    return request.with(&name, &value);
                }
            }
            Self::HeaderTwice(which) => {
                let name = named(which);
                let value = request.headers[&name].clone();
                return request.with(&name, &format!("{value},{value}"));
            }
            Self::HeaderGone(which) => return request.without(&named(which)),
            Self::Header(which, value) => return request.with(&named(which), value),
            Self::Query(query) => {
                // Other schemes than Twilio's sign no address.
                if request.path != "/webhooks/twilio" {
                    request.path = format!("{}?{query}", request.path);
                }
            }
        }
        request
    }
}

/// Names that rules look for.
const NAMES: [&str; 40] = [
    "action",
    "issue",
    "comment",
    "id",
    "updated_at",
    "repository",
    "full_name",
    "number",
    "label",
    "changes",
    "pull_request",
    "before",
    "after",
    "ref",
    "pushed_at",
    "object_kind",
    "event_name",
    "object_attributes",
    "project",
    "project_id",
    "status",
    "builds",
    "build_id",
    "build_status",
    "finished_at",
    "type",
    "event",
    "event_id",
    "trigger_id",
    "payload",
    "challenge",
    "command",
    "account",
    "livemode",
    "context",
    "MessageSid",
    "MessageStatus",
    "CallSid",
    "CallStatus",
    "CallbackSource",
];

const WORDS: [&str; 16] = [
    "",
    "0",
    "0000000000000000",
    "opened",
    "created",
    "labeled",
    "push",
    "note",
    "pipeline",
    "url_verification",
    "event_callback",
    "evt_1",
    "2026-11-12T09:52:30Z",
    "call-progress-events",
    "a\u{0}b",
    "\u{202e}[\"",
];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(&WORDS[..]).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let name = prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
        let members = prop::collection::vec((name, inner.clone()), 0..6);
        prop_oneof![
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
            4 => members.prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The recorded JSON bodies that are not long.
fn recorded() -> &'static [Value] {
    static BODIES: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let index = sample("index.json");
        let files = index["deliveries"].as_array().unwrap().iter();
        let files = files.filter(|delivery| delivery["bytes"].as_u64().unwrap() < 6000);
        files
            .filter_map(|delivery| {
                let request = Request::unsigned(delivery["file"].as_str().unwrap());
                serde_json::from_slice(&request.body).ok()
            })
            .collect()
    });
    &BODIES
}

/// A recorded body with a value in a place that the numbers lead to.
fn changed() -> impl Strategy<Value = Value> {
    let path = prop::collection::vec(any::<prop::sample::Index>(), 1..4);
    (any::<prop::sample::Index>(), path, json()).prop_map(|(which, path, value)| {
        let mut body = which.get(recorded()).clone();
        let mut here = &mut body;
        for step in path {
            let size = match here {
                Value::Object(members) => members.len(),
                Value::Array(parts) => parts.len(),
                _ => 0,
            };
            if size == 0 {
                break;
            }
            let at = step.index(size);
            here = match here {
                Value::Object(members) => members.values_mut().nth(at).unwrap(),
                other => &mut other[at],
            };
        }
        *here = value;
        body
    })
}

fn forms() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        prop::sample::select(&WORDS[..]).prop_map(str::to_owned),
        "[a-z0-9%+=]{0,12}",
        json().prop_map(|json| json.to_string().replace('&', "%26").replace('+', "%2B")),
    ];
    let field = (prop::sample::select(&NAMES[..]), value);
    prop::collection::vec(field, 0..8).prop_map(|fields| {
        let fields = fields.iter().map(|(name, value)| format!("{name}={value}"));
        fields.collect::<Vec<_>>().join("&").into_bytes()
    })
}

pub(super) fn bodies() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => json().prop_map(|json| json.to_string().into_bytes()),
        3 => changed().prop_map(|json| json.to_string().into_bytes()),
        3 => forms(),
        1 => prop::collection::vec(any::<u8>(), 0..64),
        1 => (1..3000_usize).prop_map(|depth| "[".repeat(depth).into_bytes()),
    ]
}

/// What the headers that nobody signs say of a delivery.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    header: &'static str,
    value: String,
}

impl Kind {
    pub(super) fn apply(&self, request: Request) -> Request {
        request.with(self.header, &self.value)
    }
}

pub(super) fn kinds() -> impl Strategy<Value = Kind> {
    const HEADERS: [&str; 7] = [
        "x-github-event",
        "x-github-delivery",
        "x-shopify-topic",
        "x-shopify-event-id",
        "idempotency-key",
        "x-gitlab-event-uuid",
        "content-type",
    ];
    const VALUES: [&str; 10] = [
        "push",
        "issues",
        "pull_request",
        "workflow_run",
        "orders/cancelled",
        "orders/create",
        "app/uninstalled",
        "\"quoted\"",
        "application/x-www-form-urlencoded",
        "",
    ];
    let value = prop_oneof![
        3 => prop::sample::select(&VALUES[..]).prop_map(str::to_owned),
        1 => ".{0,20}",
    ];
    (prop::sample::select(&HEADERS[..]), value).prop_map(|(header, value)| Kind { header, value })
}
