//! Scopes and idempotency keys: checked constructors, joining, long keys.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The longest `id` attribute that a record gets, in bytes. DynamoDB's limit for a partition key is
/// 2,048; half of it leaves room for the ids of companion items.
const STORED_LIMIT: usize = 1024;

/// Stands between the readable prefix and the digest of a long key. A control character, so that
/// no key of a caller can contain it.
const LONG_MARKER: char = '\u{1f}';

/// The longest scope, in bytes.
const SCOPE_LIMIT: usize = 128;

/// Why a scope or key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The scope is empty.
    #[error("the scope is empty; give the name of the operation, such as `orders`")]
    EmptyScope,
    /// The scope is longer than 128 bytes.
    #[error("the scope has {0} bytes; at most 128 are allowed")]
    LongScope(usize),
    /// The scope contains `#`, which separates scope and id.
    #[error("the scope contains '#', which separates scope and id")]
    Separator,
    /// The id is empty, so that it names no operation.
    #[error("the id is empty; a key must name one operation")]
    EmptyId,
    /// The scope or id contains a control character at this byte offset.
    #[error("control character U+{code:04X} at byte {at}")]
    Control {
        /// The character's code point.
        code: u32,
        /// The byte offset.
        at: usize,
    },
    /// A part that should have named the operation is null or an empty text, or has such a value in
    /// it.
    #[error(
        "part {0} of the key is null or empty, or has such a value in it; a partly missing key names no operation"
    )]
    MissingPart(usize),
    /// The text has no `#`, so that it has no scope.
    #[error("a key has the form <scope>#<id>; no '#' was found")]
    NoScope,
}

/// The first half of a key: which operation it is about. Holds no `#` and no control character, so
/// that no scope can be forged into another by the choice of an id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scope(String);

impl Scope {
    /// Checks and wraps a scope.
    ///
    /// # Errors
    ///
    /// Empty, longer than 128 bytes, or with a `#` or a control character in it.
    pub fn new(scope: impl Into<String>) -> Result<Self, KeyError> {
        let scope = scope.into();
        if scope.is_empty() {
            return Err(KeyError::EmptyScope);
        }
        if scope.len() > SCOPE_LIMIT {
            return Err(KeyError::LongScope(scope.len()));
        }
        if scope.contains('#') {
            return Err(KeyError::Separator);
        }
        refuse_control(&scope)?;
        Ok(Self(scope))
    }

    /// The scope's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The idempotency key of one logical operation: `<scope>#<id>`.
///
/// A key is a pure function of what it is made from: no code location, no process state, no version.
///
/// ```
/// use firstclaim::Key;
///
/// let key = Key::new("orders", "order-42")?;
/// assert_eq!(key.as_str(), "orders#order-42");
///
/// // Joined parts keep their borders and their types apart.
/// let joined = Key::join("orders", &["ab".into(), "c".into()])?;
/// assert_ne!(joined, Key::join("orders", &["a".into(), "bc".into()])?);
/// assert_ne!(Key::join("orders", &[1.into()])?, Key::join("orders", &["1".into()])?);
/// # Ok::<(), firstclaim::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    text: String,
    scope_end: usize,
}

impl Key {
    /// A key from a scope and an id.
    ///
    /// # Errors
    ///
    /// See [`Scope::new`]; further an empty id, or one with a control character in it.
    pub fn new(scope: impl Into<String>, id: impl AsRef<str>) -> Result<Self, KeyError> {
        Self::in_scope(&Scope::new(scope)?, id)
    }

    /// A key in a scope that was checked before.
    ///
    /// # Errors
    ///
    /// An empty id, or one with a control character in it.
    pub fn in_scope(scope: &Scope, id: impl AsRef<str>) -> Result<Self, KeyError> {
        let id = id.as_ref();
        if id.is_empty() {
            return Err(KeyError::EmptyId);
        }
        refuse_control(id)?;
        Ok(Self {
            text: format!("{}#{id}", scope.0),
            scope_end: scope.0.len(),
        })
    }

    /// A key whose id is several JSON scalars (or deeper values), written as a JSON array, so that
    /// `("ab", "c")` and `("a", "bc")` differ, and so do `1` and `"1"`.
    ///
    /// # Errors
    ///
    /// See [`Scope::new`]; further no part at all, or a part that is null or an empty text, or has
    /// such a value in it: a key that is partly missing names no operation.
    pub fn join(scope: impl Into<String>, parts: &[Value]) -> Result<Self, KeyError> {
        Self::in_scope(&Scope::new(scope)?, join(parts)?)
    }

    /// Reads `<scope>#<id>`.
    ///
    /// # Errors
    ///
    /// No `#` in it, or a scope or id that [`Key::new`] refuses.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (scope, id) = text.split_once('#').ok_or(KeyError::NoScope)?;
        Self::new(scope, id)
    }

    /// The whole key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What stands before the first `#`.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.text[..self.scope_end]
    }

    /// What stands behind the first `#`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.text[self.scope_end + 1..]
    }

    /// The record's `id` attribute: the key itself up to 1,024 bytes; for a longer one a readable
    /// prefix, U+001F (which no key can contain) and the SHA-256 of the whole key in hex.
    #[must_use]
    pub fn stored(&self) -> String {
        if self.text.len() <= STORED_LIMIT {
            return self.text.clone();
        }
        let digest = hex::encode(Sha256::digest(self.text.as_bytes()));
        let room = STORED_LIMIT - digest.len() - LONG_MARKER.len_utf8();
        let prefix = &self.text[..self.text.floor_char_boundary(room)];
        format!("{prefix}{LONG_MARKER}{digest}")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.text)
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// The whole key, as [`Display`](fmt::Display) and `Serialize` write it; see [`Key::parse`].
impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text)
    }
}

/// Checked like any other key: what was no key before it was written is none when it is read.
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// Joins parts into an id, as [`Key::join`] does, for callers that keep the id apart from its scope.
///
/// # Errors
///
/// No part, or one that is null or an empty text, or has such a value in it.
pub fn join(parts: &[Value]) -> Result<String, KeyError> {
    if parts.is_empty() {
        return Err(KeyError::EmptyId);
    }
    for (at, part) in parts.iter().enumerate() {
        if is_missing(part) {
            return Err(KeyError::MissingPart(at));
        }
    }
    // A JSON array of values that came from JSON: writing it can't fail.
    Ok(Value::Array(parts.to_vec()).to_string())
}

fn is_missing(part: &Value) -> bool {
    match part {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => parts.iter().any(is_missing),
        Value::Object(members) => members.values().any(is_missing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn refuse_control(text: &str) -> Result<(), KeyError> {
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => Err(KeyError::Control {
            code: u32::from(c),
            at,
        }),
        None => Ok(()),
    }
}
