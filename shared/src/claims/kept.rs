//! How a result is kept: in the record, in a companion item, or not at all.

use std::io::{Read as _, Write as _};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::outcome::{MESSAGE_LIMIT, bounded};
use crate::record::{Data, Omitted};

/// The largest companion, in compressed bytes: DynamoDB's items end at 400 KB.
const COMPANION_LIMIT: usize = 380 * 1024;

/// The longest result that a companion may unpack to, in bytes.
const UNPACKED_LIMIT: u64 = 64 * 1024 * 1024;

/// A result, ready to be kept.
pub(super) enum Kept {
    /// Small: goes into the record.
    Inline(String),
    /// Larger: goes into a companion item, compressed.
    Companion { packed: Vec<u8>, note: Omitted },
    /// Can't be kept; this is what is known of it.
    Not(Omitted),
}

impl Kept {
    pub(super) fn of<T: Serialize>(value: &T, inline_limit: usize) -> Self {
        let text = match serde_json::to_string(value) {
            Ok(text) => text,
            Err(error) => {
                return Self::Not(Omitted {
                    bytes: 0,
                    sha256: String::new(),
                    reason: bounded(&format!("can't be written as JSON: {error}"), MESSAGE_LIMIT),
                });
            }
        };
        if text.len() <= inline_limit {
            return Self::Inline(text);
        }
        let packed = pack(text.as_bytes());
        if packed.len() <= COMPANION_LIMIT {
            let note = note(&text, "kept in a companion item");
            return Self::Companion { packed, note };
        }
        Self::Not(note(&text, "too large, even compressed"))
    }
}

/// What is known of a JSON text that is not kept.
pub(super) fn note(text: &str, reason: &str) -> Omitted {
    Omitted {
        bytes: text.len() as u64,
        sha256: hex::encode(Sha256::digest(text.as_bytes())),
        reason: bounded(reason, MESSAGE_LIMIT),
    }
}

/// The SHA-256 in hex of a result's JSON text, however it is kept.
pub(super) fn digest(data: &Data) -> String {
    match data {
        Data::Inline(text) => hex::encode(Sha256::digest(text.as_bytes())),
        Data::Companion { note, .. } | Data::Omitted(note) if note.sha256.is_empty() => {
            "unserialisable".to_owned()
        }
        Data::Companion { note, .. } | Data::Omitted(note) => note.sha256.clone(),
    }
}

/// The note in place of data that the store would not take.
pub(super) fn without_content(data: Data, reason: &str) -> Data {
    match data {
        Data::Inline(text) => Data::Omitted(note(&text, reason)),
        Data::Companion { note, .. } | Data::Omitted(note) => Data::Omitted(Omitted {
            reason: reason.to_owned(),
            ..note
        }),
    }
}

/// Unpacks a companion; `None` if it is not what the record says.
pub(super) fn unpack(packed: &[u8], expected: &Omitted) -> Option<String> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .take(UNPACKED_LIMIT)
        .read_to_string(&mut text)
        .ok()?;
    (hex::encode(Sha256::digest(text.as_bytes())) == expected.sha256).then_some(text)
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // Writing to memory can't fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
