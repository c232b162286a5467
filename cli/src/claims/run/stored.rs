//! What is stored of a command that ran, and how it is replayed: byte for byte.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::{Fingerprint, Key};
use serde::{Deserialize, Serialize};

use crate::stdout::{Unwritten, reader, write};

/// How much of each stream is stored, in bytes. Both together always fit into a record's companion,
/// also where they can't be compressed.
pub(super) const LIMIT: usize = 128 * 1024;

/// A command's result, as it stands in the record's `data`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// A remembered failure has a code and a message, as every other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    exit_code: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout: Option<Stream>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stderr: Option<Stream>,
}

/// One stream of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Stream {
    /// All of it.
    Text(String),
    /// No UTF-8, or cut.
    Part {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
        /// How much there was.
        bytes: u64,
    },
}

impl Stream {
    fn of(kept: &[u8], total: u64) -> Self {
        match (std::str::from_utf8(kept), total == kept.len() as u64) {
            (Ok(text), true) => Self::Text(text.to_owned()),
            (Ok(text), false) => Self::Part {
                text: Some(text.to_owned()),
                base64: None,
                bytes: total,
            },
            (Err(_), _) => Self::Part {
                text: None,
                base64: Some(STANDARD.encode(kept)),
                bytes: total,
            },
        }
    }

    /// The stored bytes, and how many there were.
    fn bytes(&self) -> (Vec<u8>, u64) {
        match self {
            Self::Text(text) => (text.clone().into_bytes(), text.len() as u64),
            Self::Part {
                text: Some(text),
                bytes,
                ..
            } => (text.clone().into_bytes(), *bytes),
            Self::Part { base64, bytes, .. } => {
                let kept = base64.as_ref().and_then(|text| STANDARD.decode(text).ok());
                (kept.unwrap_or_default(), *bytes)
            }
        }
    }
}

impl Stored {
    /// The digest of what would have been recorded, as the library's log tells it too.
    pub(super) fn digest(&self) -> String {
        // Texts and numbers: writing them can't fail.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        Fingerprint::of_raw(&bytes).to_hex()
    }

    pub(super) fn exit(exit_code: u8) -> Self {
        Self {
            exit_code,
            ..Self::default()
        }
    }

    /// With what was kept of the streams, and how much they were.
    pub(super) fn output(mut self, stdout: (&[u8], u64), stderr: (&[u8], u64)) -> Self {
        self.stdout = Some(Stream::of(stdout.0, stdout.1));
        self.stderr = Some(Stream::of(stderr.0, stderr.1));
        self
    }

    /// As a remembered failure.
    pub(super) fn failed(mut self, code: &str, message: &str) -> Self {
        self.code = Some(code.to_owned());
        self.message = Some(message.to_owned());
        self
    }

    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Writes the streams as the command did. Where nobody reads, the exit code still tells.
    pub(super) fn replay(&self) -> Result<(), Unwritten> {
        let stdout = match &self.stdout {
            Some(stdout) => write(&stdout.bytes().0).map(drop),
            None => Ok(()),
        };
        let stderr = match &self.stderr {
            Some(stderr) => reader(std::io::stderr().write_all(&stderr.bytes().0)).map(drop),
            None => Ok(()),
        };
        stdout.and(stderr)
    }

    /// Where the streams were cut, in words; empty where they were not.
    pub(super) fn cut(&self) -> String {
        let mut text = String::new();
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            match stream.as_ref().map(Stream::bytes) {
                Some((kept, total)) if (kept.len() as u64) < total => {
                    text.push_str(&format!(
                        "; {name} was cut: {} of {total} bytes were stored",
                        kept.len()
                    ));
                }
                Some(_) => {}
                None => text.push_str(&format!("; {name} was not stored")),
            }
        }
        text
    }

    /// One line for programs.
    pub(super) fn json(&self, key: &Key, attempt: u32, outcome: &str, code: u8) -> String {
        serde_json::json!({
            "id": key,
            "outcome": outcome,
            "attempt": attempt,
            "exit_code": code,
            "data": self,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(stored: &Stored) -> Stored {
        serde_json::from_str(&serde_json::to_string(stored).unwrap()).unwrap()
    }

    #[test]
    fn streams_come_back_byte_for_byte() {
        for bytes in [&b""[..], b"done\n", b"\0\xff\xfe", "h\u{e9}".as_bytes()] {
            let total = bytes.len() as u64;
            let stored = Stored::exit(3).output((bytes, total), (b"", 0));
            let read = again(&stored);
            assert_eq!(read, stored);
            assert_eq!(
                read.stdout.as_ref().unwrap().bytes(),
                (bytes.to_vec(), total)
            );
            assert_eq!(read.cut(), "");
        }
    }

    #[test]
    fn a_cut_stream_says_so() {
        let stored = again(&Stored::exit(0).output((b"ab", 5), (b"", 0)));
        assert_eq!(stored.cut(), "; stdout was cut: 2 of 5 bytes were stored");
    }

    #[test]
    fn a_remembered_failure_reads_as_one() {
        let stored = Stored::exit(3).failed("exit_3", "no");
        let text = serde_json::to_string(&stored).unwrap();
        let failure: firstclaim::StoredFailure = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("exit_3", "no")
        );
        assert_eq!(again(&stored), stored);
    }

    #[test]
    fn another_tools_result_is_none_of_ours() {
        for text in ["null", "7", r#"{"status": 200}"#, r#""done""#] {
            assert!(serde_json::from_str::<Stored>(text).is_err(), "{text}");
        }
    }
}
