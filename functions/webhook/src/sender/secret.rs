//! Secrets, and what is compared with what was made from them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

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
pub(super) fn read_all<T>(
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

/// The keys of a scheme that signs with HMAC-SHA256: each configured one is tried. Its `Debug`
/// hides them.
#[derive(Clone)]
pub(super) struct MacKeys(Vec<Hmac<Sha256>>);

impl MacKeys {
    /// Reads secrets whose text is the key.
    pub(super) fn of_texts(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        read_all(secrets, |secret| keyed(secret.text()?.as_bytes())).map(Self)
    }

    /// Keys that were read before.
    pub(super) fn of_keys(keys: &[Vec<u8>]) -> Result<Self, String> {
        let keys: Result<_, _> = keys.iter().map(|key| keyed(key)).collect();
        keys.map(Self)
    }

    /// Whether one of these keys made one of the given signatures over the parts.
    pub(super) fn made<'a>(
        &self,
        parts: &[&[u8]],
        given: impl IntoIterator<Item = &'a [u8; 32]> + Clone,
    ) -> bool {
        self.0.iter().any(|key| {
            let tag = over(key, parts);
            given
                .clone()
                .into_iter()
                .any(|given| tag.ct_eq(given).into())
        })
    }
}

impl fmt::Debug for MacKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacKeys({} keys)", self.0.len())
    }
}

/// The HMAC-SHA256 over the parts, one behind the other.
pub(super) fn mac(key: &[u8], parts: &[&[u8]]) -> Result<[u8; 32], String> {
    Ok(over(&keyed(key)?, parts))
}

fn keyed(key: &[u8]) -> Result<Hmac<Sha256>, String> {
    // HMAC takes keys of any length.
    Hmac::new_from_slice(key).map_err(|_| "is no key for HMAC".to_owned())
}

fn over(key: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = key.clone();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Tokens that a sender shows as they are. Holds their digests, and hides them.
#[derive(Clone)]
pub(super) struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    pub(super) fn read(secrets: &[Secret]) -> Result<Self, Vec<String>> {
        read_all(secrets, |secret| Ok(digest(secret.text()?))).map(Self)
    }

    /// Whether the token with this digest is one of these. Digests are compared, so that the time
    /// tells nothing of a token; and all of them, so that it does not tell which one fits.
    pub(super) fn have(&self, shown: &[u8; 32]) -> bool {
        self.0
            .iter()
            .fold(Choice::from(0), |found, digest| found | digest.ct_eq(shown))
            .into()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// The digest of a token.
pub(super) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// 64 lower-case hex digits, as all senders write them; upper case is not taken.
pub(super) fn lower_hex(text: &str) -> Option<[u8; 32]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut bytes = [0; 32];
    let fits = text.len() == 64 && text.bytes().all(lower);
    (fits && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

/// Strict base64 of exactly so many bytes.
pub(super) fn base64_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    // Four characters stand for three bytes: no need to decode what can't fit.
    let fits = text.len() == N.div_ceil(3) * 4;
    fits.then(|| STANDARD.decode(text).ok()?.try_into().ok())?
}
