//! A sample: the headers that its sender makes, and the body. Shipped, or read from a file.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::Error;
use super::shipped;

/// Headers that belong to the connection, or that would compress the answer.
const NOT_THE_SENDERS: [&str; 5] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
];

/// A delivery before it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// What it was asked for by.
    pub(super) name: String,
    /// By lower-case name, in the order of the file.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether `{{id}}` in it stands for the delivery's id.
    pub(super) template: bool,
}

/// A recorded delivery: as the gateway passes it on, with the body in Base64.
#[derive(Deserialize)]
struct Recorded {
    headers: std::collections::BTreeMap<String, String>,
    body_base64: String,
}

impl Sample {
    /// The shipped sample of this name, or the file.
    pub(super) fn find(scheme: &str, name: &str) -> Result<Self, Error> {
        if let Some(sample) = shipped::of(scheme).find(|sample| sample.name == name) {
            return Self::parse(name, sample.bytes);
        }
        let path = Path::new(name);
        if !path.exists() {
            let there: Vec<&str> = shipped::of(scheme).map(|sample| sample.name).collect();
            return Err(Error::NoSample {
                scheme: scheme.to_owned(),
                name: name.to_owned(),
                there: there.join(", "),
            });
        }
        let bytes = std::fs::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        if path.extension().is_some_and(|ending| ending == "http") {
            return Self::parse(name, &bytes);
        }
        match serde_json::from_slice::<Recorded>(&bytes) {
            Ok(recorded) => Self::recorded(name, recorded),
            Err(_) => Ok(Self::bare(name, bytes)),
        }
    }

    /// Headers, an empty line, and the body as it is.
    fn parse(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        let fault = |fault: &str| Error::Sample {
            name: name.to_owned(),
            fault: fault.to_owned(),
        };
        let (head, body) =
            halves(bytes).ok_or_else(|| fault("has no empty line before the body"))?;
        let head = std::str::from_utf8(head).map_err(|_| fault("has headers that are no text"))?;
        let headers = head
            .lines()
            .map(|line| header(line).ok_or_else(|| fault("has a line that is no header")))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name: name.to_owned(),
            headers: headers.into_iter().filter(is_the_senders).collect(),
            body: body.to_vec(),
            template: true,
        })
    }

    fn recorded(name: &str, recorded: Recorded) -> Result<Self, Error> {
        let body = STANDARD
            .decode(recorded.body_base64)
            .map_err(|_| Error::Sample {
                name: name.to_owned(),
                fault: "has no Base64 in body_base64".to_owned(),
            })?;
        let headers = recorded.headers.into_iter();
        let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
        Ok(Self {
            name: name.to_owned(),
            headers: headers.map(lower).filter(is_the_senders).collect(),
            body,
            template: false,
        })
    }

    /// A body alone, with the content type that it looks like.
    fn bare(name: &str, body: Vec<u8>) -> Self {
        let json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        let content_type = if json {
            "application/json"
        } else {
            "application/x-www-form-urlencoded"
        };
        Self {
            name: name.to_owned(),
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body,
            template: false,
        }
    }

    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(other, _)| other == name)?;
        Some(value)
    }

    /// Sets a header, in place of one of the same name.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }
}

/// What stands before and behind the first empty line.
fn halves(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let find = |end: &[u8]| bytes.windows(end.len()).position(|window| window == end);
    let ends: [&[u8]; 2] = [b"\n\n", b"\r\n\r\n"];
    let (at, end) = ends
        .into_iter()
        .filter_map(|end| Some((find(end)?, end.len())))
        .min()?;
    Some((&bytes[..at], &bytes[at + end..]))
}

/// Name and value of a header, with the name in lower case.
pub(super) fn header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let value = value.trim();
    let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let fits = !name.is_empty() && name.bytes().all(token) && printable;
    fits.then(|| (name.to_ascii_lowercase(), value.to_owned()))
}

fn is_the_senders((name, _): &(String, String)) -> bool {
    !NOT_THE_SENDERS.contains(&name.as_str())
}
