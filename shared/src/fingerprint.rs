//! Fingerprints: SHA-256 of a canonical payload, to catch one key used for two requests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// How deep a JSON payload may nest to be taken as JSON; deeper ones are taken as bytes.
const DEPTH_LIMIT: usize = 128;

/// The SHA-256 of a payload.
///
/// JSON payloads are brought into a canonical form first: members sorted by name, no white space,
/// texts unescaped and written again. Numbers keep the digits that the sender wrote, so that
/// 9007199254740993 and 9007199254740992 differ (and 1 and 1.0 too: when in doubt two payloads are
/// two).
///
/// ```
/// use firstclaim::Fingerprint;
///
/// let one = Fingerprint::of_bytes(br#"{"amount": 5, "to": "ada"}"#);
/// let same = Fingerprint::of_bytes(br#"{"to":"ada","amount":5}"#);
/// let other = Fingerprint::of_bytes(br#"{"to":"ada","amount":"5"}"#);
/// assert_eq!(one, same);
/// assert_ne!(one, other);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a body: canonical if it is JSON, of the bytes as they are if not.
    #[must_use]
    pub fn of_bytes(body: &[u8]) -> Self {
        let canonical = std::str::from_utf8(body).ok().and_then(canonical_json);
        match canonical {
            Some(text) => Self::of_raw(text.as_bytes()),
            None => Self::of_raw(body),
        }
    }

    /// The fingerprint of the bytes as they are.
    #[must_use]
    pub fn of_raw(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The fingerprint of a value's JSON form.
    ///
    /// # Errors
    ///
    /// The value can't be written as JSON (a map with keys that aren't texts, for example).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::of_bytes(&serde_json::to_vec(value)?))
    }

    /// Reads 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// 64 lower-case hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

fn canonical_json(text: &str) -> Option<String> {
    let value: &RawValue = serde_json::from_str(text).ok()?;
    let mut out = String::with_capacity(text.len());
    write_canonical(value, DEPTH_LIMIT, &mut out)?;
    Some(out)
}

/// Appends the canonical form of `value`; `None` if it nests too deep or names a member twice
/// (which of the two counts is the reader's choice, so that they must not be taken for one).
fn write_canonical(value: &RawValue, depth: usize, out: &mut String) -> Option<()> {
    let text = value.get();
    let depth = depth.checked_sub(1)?;
    match text.as_bytes().first()? {
        b'{' => {
            let members: Members<'_> = serde_json::from_str(text).ok()?;
            out.push('{');
            for (at, (name, member)) in members.0.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::to_string(name).ok()?);
                out.push(':');
                write_canonical(member, depth, out)?;
            }
            out.push('}');
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, depth, out)?;
            }
            out.push(']');
        }
        b'"' => {
            let text: Text<'_> = serde_json::from_str(text).ok()?;
            out.push_str(&serde_json::to_string(&text.0).ok()?);
        }
        _ => out.push_str(text),
    }
    Some(())
}

/// A text that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object's members by name; an object that names one twice is refused.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut access: A,
            ) -> Result<Self::Value, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = access.next_entry::<String, &RawValue>()? {
                    if members.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a member is named twice"));
                    }
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}
