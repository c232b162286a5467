//! What an event of the stream is about, whether it is wanted, and the message that it becomes.
//!
//! | the event has | key |
//! | --- | --- |
//! | `key`: a text, number or boolean | that one; the message is the event as it came |
//! | one thread in `scopes`, and `revision` | `thread#<repo>:<number>:<revision>` |
//! | `id` | `event-id:<stream>#<id>` |
//! | an id in the stream | `event:<stream>#<id>` |
//! | none of these | none: nothing tells it from others, and it is refused |
//!
//! A replay says the same, so it has the same key. No two rows make one key: a repository holds
//! neither `:` nor `#`, and a stream's address no `#`.

use std::collections::BTreeMap;
use std::fmt::Write;

use firstclaim::envelope::Thread;
use firstclaim::{Fingerprint, Key};
use serde_json::Value;
use serde_json::value::RawValue;
use webhook::outbox::{queueable, thread_group};

/// The longest id of a delivery, in bytes; what a door takes as a key in a header.
const DELIVERY_LIMIT: usize = 255;

/// What the id of a delivery begins with where it is not the key itself.
const DIGEST: &str = "sha256-";

/// Which events are wanted.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) scopes: Vec<String>,
    /// Empty: all.
    pub(super) kinds: Vec<String>,
    /// Types and kinds with which the server says that it can't replay all.
    pub(super) gaps: Vec<String>,
}

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// One that is wanted.
    Wanted(Box<Event>),
    /// Of another scope or kind, or a notice of the server's own.
    Other,
    /// The server says that events are missing.
    Gap(String),
    /// It can't be handed on, for good.
    Broken(&'static str),
}

/// An event that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The key, for people.
    pub(super) key: String,
    /// The kind; empty where none is given.
    pub(super) kind: String,
    /// The scope that it is wanted for.
    pub(super) scope: String,
    /// What is handed on: a JSON object with `key`.
    pub(super) body: String,
    /// What it must stay in order with.
    pub(super) group: String,
    /// The key in a form that can stand in a header and be signed.
    pub(super) delivery: String,
}

/// Where an event was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The stream, without secrets.
    pub(super) stream: &'a str,
    /// Its own id in the stream.
    pub(super) id: Option<&'a str>,
    /// Its type in the stream; empty where none is given.
    pub(super) event: &'a str,
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Filter {
    /// Reads an event's data.
    pub(super) fn read(&self, source: Source<'_>, data: &str) -> Read {
        let members: Option<Members<'_>> = serde_json::from_str(data).ok();
        let member = |name: &str| members.as_ref()?.get(name).copied();
        let kind = member("kind")
            .and_then(text)
            .unwrap_or_else(|| source.event.to_owned());
        if self
            .gaps
            .iter()
            .any(|gap| *gap == kind || gap == source.event)
        {
            return Read::Gap(data.to_owned());
        }
        let Some(members) = &members else {
            // Events have ids, so that they can be replayed; without one it is a notice.
            return match source.id {
                Some(_) => Read::Broken("it is no JSON object"),
                None => Read::Other,
            };
        };
        let scopes = match member("scopes").filter(|scopes| scopes.get() != "null") {
            None => return Read::Other,
            Some(raw) => match serde_json::from_str::<Vec<String>>(raw.get()) {
                Ok(scopes) => scopes,
                Err(_) => return Read::Broken("its `scopes` is no list of texts"),
            },
        };
        let Some(scope) = scopes.iter().find(|scope| self.wants_scope(scope)) else {
            return Read::Other;
        };
        if !self.wants_kind(&kind) {
            return Read::Other;
        }
        let threads = scopes.iter().filter_map(|scope| thread(scope)).collect();
        match Event::of(source, members, data, kind, scope.clone(), threads) {
            Ok(event) => Read::Wanted(Box::new(event)),
            Err(why) => Read::Broken(why),
        }
    }

    /// A scope is wanted if it is one of those named, or lies below one.
    fn wants_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|wanted| {
            scope.strip_prefix(wanted.as_str()).is_some_and(|below| {
                below.is_empty() || below.starts_with('/') || wanted.ends_with(['/', ':'])
            })
        })
    }

    fn wants_kind(&self, kind: &str) -> bool {
        self.kinds.is_empty()
            || self
                .kinds
                .iter()
                .any(|wanted| match wanted.strip_suffix('*') {
                    Some(prefix) => kind.starts_with(prefix),
                    None => kind == wanted,
                })
    }
}

impl Event {
    fn of(
        source: Source<'_>,
        members: &Members<'_>,
        data: &str,
        kind: String,
        scope: String,
        threads: Vec<Thread>,
    ) -> Result<Self, &'static str> {
        let given = members.get("key").filter(|key| key.get() != "null");
        let (key, raw, body) = match given {
            Some(raw) => {
                let key = scalar(raw).ok_or("its `key` is no text, number or boolean")?;
                (key, raw.get().to_owned(), data.to_owned())
            }
            None => {
                let key = made(source, members, &threads)?;
                let raw = Value::from(key.as_str()).to_string();
                let body = with_key(members, &raw);
                (key, raw, body)
            }
        };
        // Whatever the worker makes of it: what is no key at all can be told here.
        Key::new("queue", &key).map_err(|_| "its key is empty or has a control character in it")?;
        let group = match threads.first() {
            Some(thread) => thread_group(thread),
            None => Fingerprint::of_raw(scope.as_bytes()).to_hex(),
        };
        Ok(Self {
            delivery: delivery(&key, &raw),
            key,
            kind,
            scope,
            body: queueable(&body),
            group,
        })
    }
}

/// A key for an event that brings none.
fn made(
    source: Source<'_>,
    members: &Members<'_>,
    threads: &[Thread],
) -> Result<String, &'static str> {
    let member = |name: &str| scalar(members.get(name)?).filter(|text| !text.is_empty());
    let stream = source.stream;
    if let ([thread], Some(revision)) = (threads, member("revision")) {
        let Thread { repo, number } = thread;
        return Ok(format!("thread#{repo}:{number}:{revision}"));
    }
    if let Some(id) = member("id") {
        return Ok(format!("event-id:{stream}#{id}"));
    }
    match source.id.filter(|id| !id.is_empty()) {
        Some(id) => Ok(format!("event:{stream}#{id}")),
        None => Err("it has no `key`, no `revision` of one thread and no id"),
    }
}

/// The event with this `key` (as JSON), its other members as they came.
fn with_key(members: &Members<'_>, key: &str) -> String {
    let mut body = format!("{{\"key\":{key}");
    for (name, value) in members.iter().filter(|(name, _)| *name != "key") {
        // Writing to a text can't fail.
        let _ = write!(body, ",{}:{}", Value::from(name.as_str()), value.get());
    }
    body.push('}');
    body
}

/// The thread that a scope names: `thread:<repo>/<number>`. One whose repository could be taken
/// for another's in a key is none.
fn thread(scope: &str) -> Option<Thread> {
    let (repo, number) = scope.strip_prefix("thread:")?.rsplit_once('/')?;
    let digits = !number.starts_with(['0', '+']);
    let plain = !repo.is_empty() && !repo.contains([':', '#']);
    (digits && plain).then_some(())?;
    Some(Thread {
        repo: repo.to_owned(),
        number: number.parse().ok()?,
    })
}

/// A text, or a number or boolean as it is written.
fn scalar(raw: &RawValue) -> Option<String> {
    match raw.get().as_bytes().first()? {
        b'"' => text(raw),
        b't' | b'f' | b'-' | b'0'..=b'9' => Some(raw.get().to_owned()),
        _ => None,
    }
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// The key where it is plain text, else its digest: what a header takes, a signature can hold (no
/// dot), and no two keys share.
fn delivery(key: &str, raw: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:/#".contains(&byte);
    let is_text = raw.starts_with('"');
    if is_text && key.len() <= DELIVERY_LIMIT && key.bytes().all(plain) && !key.starts_with(DIGEST)
    {
        return key.to_owned();
    }
    format!("{DIGEST}{}", Fingerprint::of_raw(raw.as_bytes()))
}

#[cfg(test)]
mod tests;
