//! Operation keys by rules: tables that say for a kind of event which parts of its body name it.

use firstclaim::Fingerprint;
use serde_json::Value;

use crate::keys;

/// What the rules say of an event.
pub(super) enum Found {
    /// The id of its operation.
    Named(String),
    /// No rule names it exactly.
    Unnamed,
    /// The body is not one of this event.
    Contradicted,
}

/// One kind of event: how its body is told from others, and its rules.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// What its body must have.
    pub(super) must: &'static [&'static str],
    /// What its body can't have: the subject of another event that also has what this one must.
    pub(super) without: &'static [&'static str],
    pub(super) rules: &'static [Rule],
}

/// For some actions, the parts of the key. The first rule whose parts are all there counts.
pub(super) struct Rule {
    /// The empty text for events that have no action.
    actions: &'static [&'static str],
    parts: &'static [Part],
}

/// One part of a key.
pub(super) enum Part {
    /// The value at this pointer.
    At(&'static str),
    /// The digest of the object, list or text at this pointer, if there is anything in it.
    Digest(&'static str),
    /// This word, to tell apart ids that are counted separately.
    Is(&'static str),
}

pub(super) const fn on(actions: &'static [&'static str], parts: &'static [Part]) -> Rule {
    Rule { actions, parts }
}

/// Names the operation of an event: its kind, its action if it has one, where it happened, and the
/// parts of its rule.
pub(super) fn find(
    kinds: &[Kind],
    name: &str,
    action: &str,
    place: Option<&Value>,
    document: &Value,
) -> Found {
    let Some(kind) = kinds.iter().find(|kind| kind.name == name) else {
        return Found::Unnamed;
    };
    let has = |pointer: &&str| {
        document
            .pointer(pointer)
            .is_some_and(|value| !value.is_null())
    };
    if !kind.must.iter().all(has) || kind.without.iter().any(has) {
        return Found::Contradicted;
    }
    kind.rules
        .iter()
        .filter(|rule| rule.actions.contains(&action))
        .find_map(|rule| {
            let mut parts = vec![name.into()];
            if !action.is_empty() {
                parts.push(action.into());
            }
            parts.push(place?.clone());
            for part in rule.parts {
                parts.push(part.of(document)?);
            }
            keys::id_of_parts(&parts)
        })
        .map_or(Found::Unnamed, Found::Named)
}

impl Part {
    fn of(&self, document: &Value) -> Option<Value> {
        match self {
            Self::At(pointer) => document.pointer(pointer).cloned(),
            Self::Digest(pointer) => {
                let value = document.pointer(pointer)?;
                let says_something = match value {
                    Value::Object(members) => !members.is_empty(),
                    Value::Array(parts) => !parts.is_empty(),
                    Value::String(text) => !text.is_empty(),
                    _ => false,
                };
                let digest = says_something.then(|| Fingerprint::of(value).ok())??;
                Some(digest.to_hex().into())
            }
            Self::Is(word) => Some((*word).into()),
        }
    }
}
