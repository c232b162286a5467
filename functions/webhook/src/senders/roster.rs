//! The senders' JSON, checked.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use sha2::{Digest, Sha256};

use crate::config::{Faults, NO_DURATION, duration, short_window};
use crate::rule::Rule;
use crate::sender::{AnyScheme, Presented, Secret, Sender};

/// Scopes of other keys than senders'; a sender of this name could make such keys.
const RESERVED: [&str; 3] = ["cli", "queue", "thread"];

/// Checked senders.
#[derive(Debug)]
pub(crate) struct Roster {
    senders: Vec<Arc<Sender>>,
    /// A short digest of the configuration, to tell in a log which one was used.
    pub(crate) generation: String,
}

impl Roster {
    /// The sender of this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Sender>> {
        self.senders.iter().find(|sender| sender.name == name)
    }

    /// The first sender of which nothing can be verified without `PUBLIC_URL`.
    pub(crate) fn needs_address(&self) -> Option<&str> {
        let sender = self.senders.iter().find(|sender| sender.needs_address())?;
        Some(&sender.name)
    }

    /// The `token` sender that this token is of. All of them are compared, so that the time does
    /// not tell which one it is.
    pub(crate) fn by_token(&self, presented: &Presented) -> Option<&Arc<Sender>> {
        let mut found = None;
        for sender in &self.senders {
            if sender.has_token(presented) == Some(true) {
                found = Some(sender);
            }
        }
        found
    }

    /// Reads and checks the senders' JSON; `longest_lease` is what a window must be longer than.
    pub(super) fn read(json: &str, longest_lease: Duration) -> Result<Self, Faults> {
        let faults = |texts| Faults::of("SENDERS", texts);
        let Members(members) =
            serde_json::from_str(json).map_err(|error| faults(vec![no_object(&error)]))?;
        let mut found = Vec::new();
        if members.is_empty() {
            found.push("names no sender; every request would be refused".to_owned());
        }
        let mut senders = Vec::new();
        let mut names = HashSet::new();
        let mut tokens: Vec<(Secret, String)> = Vec::new();
        for (name, value) in members {
            if !named(&name) {
                found.push(format!(
                    "sender {name:?}: a name has 1 to 63 characters of a-z, 0-9 and -"
                ));
            }
            if RESERVED.contains(&name.as_str()) {
                found.push(format!(
                    "sender {name:?}: the name is the scope of other keys"
                ));
            }
            if !names.insert(name.clone()) {
                found.push(format!("sender {name:?}: stands there twice"));
            }
            let mut draft = Draft::read(&value, longest_lease);
            found.extend(
                draft
                    .faults
                    .drain(..)
                    .map(|fault| format!("sender {name:?}: {fault}")),
            );
            if matches!(draft.scheme, Some(AnyScheme::Token(_))) {
                for secret in draft.secrets {
                    match tokens.iter().find(|(other, _)| *other == secret) {
                        Some((_, other)) if *other != name => found.push(format!(
                            "senders {other:?} and {name:?}: share a token, so that nobody knows \
                             whose a request is"
                        )),
                        _ => tokens.push((secret, name.clone())),
                    }
                }
            }
            if let Some(scheme) = draft.scheme {
                senders.push(Arc::new(Sender {
                    name,
                    scheme,
                    rule: draft.rule,
                    window: draft.window,
                }));
            }
        }
        if !found.is_empty() {
            return Err(faults(found));
        }
        let digest = hex::encode(Sha256::digest(json.as_bytes()));
        Ok(Self {
            senders,
            generation: digest[..8].to_owned(),
        })
    }
}

/// What was read of one sender. The values are looked at one by one: serde's own messages quote
/// what they did not expect, which could be a secret.
#[derive(Default)]
struct Draft {
    scheme: Option<AnyScheme>,
    secrets: Vec<Secret>,
    rule: Option<Rule>,
    window: Option<Duration>,
    faults: Vec<String>,
}

impl Draft {
    fn read(value: &Value, longest_lease: Duration) -> Self {
        let mut draft = Self::default();
        let Value::Object(fields) = value else {
            draft.fault("is no JSON object");
            return draft;
        };
        let mut scheme = None;
        for (field, value) in fields {
            match (field.as_str(), value) {
                ("scheme", Value::String(name)) => scheme = Some(name.as_str()),
                ("secrets", Value::Array(secrets)) => draft.read_secrets(secrets),
                // A template's optional field arrives as null.
                ("operation_key" | "target" | "window", Value::Null) => {}
                ("operation_key", Value::String(text)) => match Rule::compile(text) {
                    Ok(rule) => draft.rule = Some(rule),
                    Err(fault) => draft.fault(format!("`operation_key` is no JMESPath: {fault}")),
                },
                ("window", Value::String(text)) => match duration(text) {
                    Some(window) if window > longest_lease => draft.window = Some(window),
                    Some(window) => {
                        draft.fault(format!("`window` {}", short_window(window, longest_lease)));
                    }
                    None => draft.fault(format!("`window` {NO_DURATION}")),
                },
                // The worker reads it; here it is only checked.
                ("target", Value::String(url)) if is_url(url) => {}
                ("target", Value::String(_)) => draft.fault("`target` is no URL"),
                ("secrets", _) => draft.fault("`secrets` is no list"),
                ("scheme" | "operation_key" | "window" | "target", _) => {
                    draft.fault(format!("`{field}` is no text"));
                }
                _ => draft.fault(format!("field {field:?} is not known")),
            }
        }
        draft.read_scheme(scheme);
        draft
    }

    fn read_secrets(&mut self, secrets: &[Value]) {
        for (at, secret) in secrets.iter().enumerate() {
            match secret {
                Value::String(text) => self.secrets.push(Secret::new(text.clone())),
                _ => self.fault(format!("secret {} is no text", at + 1)),
            }
        }
    }

    fn read_scheme(&mut self, scheme: Option<&str>) {
        let names = AnyScheme::NAMES.join(", ");
        match scheme {
            None => self.fault(format!("`scheme` is missing; it is one of {names}")),
            Some(name) if !AnyScheme::NAMES.contains(&name) => {
                self.fault(format!(
                    "scheme {name:?} is not known; it is one of {names}"
                ));
            }
            Some(_) if self.secrets.is_empty() => {
                self.fault("has no secrets; anybody could send in its name");
            }
            Some(name) => match AnyScheme::new(name, &self.secrets) {
                Some(Ok(scheme)) => self.scheme = Some(scheme),
                Some(Err(faults)) => self.faults.extend(faults),
                None => self.fault(format!("scheme `{name}` is not known")),
            },
        }
    }

    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }
}

/// What is said of a text that is no object. Of a syntax error serde tells only the place; of
/// another type it would quote the text.
fn no_object(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => "is no JSON object of senders by name".to_owned(),
        _ => format!("is no JSON: {error}"),
    }
}

fn named(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_url(text: &str) -> bool {
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    printable && (text.starts_with("https://") || text.starts_with("http://"))
}

/// The members of an object in their order, those that are named twice too.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of senders by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = access.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
