//! Form bodies: `application/x-www-form-urlencoded`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The most fields that a form may have. The senders' have a few dozen; it bounds what a body can
/// cost before its signature is known.
const FIELD_LIMIT: usize = 1000;

/// The fields of a form, decoded, in their order.
#[derive(Debug)]
pub(super) struct Form<'a>(Vec<(Bytes<'a>, Bytes<'a>)>);

/// A name or a value, decoded.
type Bytes<'a> = Cow<'a, [u8]>;

impl<'a> Form<'a> {
    /// Reads a body; `None` if it has too many fields. Any other bytes are a form.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        for field in body.split(|byte| *byte == b'&') {
            if field.is_empty() {
                continue;
            }
            if fields.len() == FIELD_LIMIT {
                return None;
            }
            let at = field.iter().position(|byte| *byte == b'=');
            let (name, value) = match at {
                Some(at) => (&field[..at], &field[at + 1..]),
                None => (field, &[][..]),
            };
            fields.push((decoded(name), decoded(value)));
        }
        Some(Self(fields))
    }

    /// The value of a field that stands there once and is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    /// The bytes of a field that stands there once.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let mut found = self
            .0
            .iter()
            .filter(|(field, _)| **field == *name.as_bytes());
        let (_, value) = found.next()?;
        found.next().is_none().then_some(&**value)
    }

    /// The fields' names, where they are text.
    pub(super) fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0
            .iter()
            .map(|(name, _)| std::str::from_utf8(name).ok())
    }

    /// Names and values in the order of their bytes; one that stands there twice with the same value
    /// counts once.
    pub(super) fn sorted(&self) -> Vec<(&[u8], &[u8])> {
        let mut fields: Vec<_> = self
            .0
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// The form as JSON, for rules: an object of texts; a name that repeats has a list of them. What
    /// is no text is left out, so that no two values look alike.
    pub(super) fn document(&self) -> Value {
        let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (name, value) in &self.0 {
            let texts = std::str::from_utf8(name)
                .ok()
                .zip(std::str::from_utf8(value).ok());
            if let Some((name, value)) = texts {
                values.entry(name).or_default().push(value.into());
            }
        }
        let members = values.into_iter().map(|(name, mut values)| {
            let value = match values.len() {
                1 => values.remove(0),
                _ => Value::Array(values),
            };
            (name.to_owned(), value)
        });
        Value::Object(members.collect::<Map<_, _>>())
    }
}

/// Decodes a name or a value: `+` is a space, `%` and two hex digits a byte. Anything else stands
/// for itself.
fn decoded(text: &[u8]) -> Bytes<'_> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, behind @ ..]) => {
                let mut byte = [0];
                if hex::decode_to_slice([*high, *low], &mut byte).is_ok() {
                    decoded.push(byte[0]);
                    rest = behind;
                } else {
                    decoded.push(b'%');
                }
            }
            (byte, _) => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}
