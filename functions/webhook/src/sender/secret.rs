//! Secrets, and the MACs that are made with them.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The shortest secret that is taken as text, in bytes: 128 bits if each byte were random. All
/// senders generate longer ones; a shorter one was made up by hand.
const LEAST_TEXT: usize = 16;

/// One secret of a sender as it stands in the configuration. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret as text, if it is long enough and was not pasted with white space around it.
    pub(crate) fn text(&self) -> Result<&str, String> {
        if self.0.trim() != self.0 {
            return Err("starts or ends with white space".to_owned());
        }
        match self.0.len() {
            0 => Err("is empty".to_owned()),
            length if length < LEAST_TEXT => Err(format!(
                "has {length} bytes; at least {LEAST_TEXT} are needed"
            )),
            _ => Ok(&self.0),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads each secret; all that is wrong is told by the secret's place in the list.
pub(crate) fn read_all<T>(
    secrets: &[Secret],
    read: impl Fn(&Secret) -> Result<T, String>,
) -> Result<Vec<T>, Vec<String>> {
    let mut keys = Vec::new();
    let mut faults = Vec::new();
    for (at, secret) in secrets.iter().enumerate() {
        match read(secret) {
            Ok(key) => keys.push(key),
            Err(fault) => faults.push(format!("secret {} {fault}", at + 1)),
        }
    }
    if faults.is_empty() {
        Ok(keys)
    } else {
        Err(faults)
    }
}

/// A key for HMAC-SHA256. Its `Debug` hides it.
#[derive(Clone)]
pub(crate) struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// `None` only if HMAC does not take the key; it takes any length.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        Hmac::new_from_slice(key).ok().map(Self)
    }

    /// The MAC over the parts, one behind the other.
    pub(crate) fn over(&self, parts: &[&[u8]]) -> Tag {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        Tag(mac)
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(…)")
    }
}

/// A MAC that was computed, to compare given ones with.
pub(crate) struct Tag(Hmac<Sha256>);

impl Tag {
    /// Whether `given` is this MAC, in constant time.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.clone().verify_slice(given).is_ok()
    }
}
