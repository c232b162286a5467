//! A signed delivery: sent as it is, as often as is asked for.

use firstclaim::clock::EpochMillis;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use webhook::signing::{SigningError, Unsigned, id_header, sign};

use super::Error;
use super::sample::{Sample, header};

/// What stands for the delivery's id in a sample whose sender writes it into the body.
const PLACE: &str = "{{id}}";

/// A signed delivery.
pub(super) struct Delivery {
    /// Scheme and sample, for people.
    pub(super) what: String,
    pub(super) url: String,
    /// Its id; `None` where the sample has one of its own.
    pub(super) id: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Delivery {
    /// Signs `sample`, under `id` or a new one.
    pub(super) fn sign(
        scheme: &str,
        secret: &str,
        mut sample: Sample,
        url: &str,
        id: Option<String>,
        headers: &[String],
        at: EpochMillis,
    ) -> Result<Self, Error> {
        for line in headers {
            let (name, value) = header(line).ok_or_else(|| Error::Header(line.clone()))?;
            sample.set(&name, &value);
        }
        let placed = sample.template && holds(&sample.body, PLACE.as_bytes());
        let has_id = placed || id_header(scheme).is_some();
        let id = match id {
            Some(_) if !has_id => {
                let fault = format!(
                    "can't be set: {scheme} has it in the body; write {PLACE} there, in a file \
                     whose name ends with .http"
                );
                return Err(Error::Id(fault));
            }
            Some(id) => checked(id)?,
            None => fresh(scheme),
        };
        if placed {
            sample.body = replaced(&sample.body, PLACE.as_bytes(), id.as_bytes());
        }
        let unsigned = Unsigned {
            url,
            content_type: sample.header("content-type").unwrap_or_default(),
            body: &sample.body,
            id: &id,
            at,
        };
        let signed = sign(scheme, secret, &unsigned).map_err(|error| match error {
            SigningError::Secret(fault) => Error::Secret(fault),
            other => Error::Secret(other.to_string()),
        })?;
        for (name, value) in &signed.headers {
            sample.set(name, value);
        }
        Ok(Self {
            what: format!("{scheme} {}", sample.name),
            url: signed.url,
            id: has_id.then_some(id),
            headers: header_map(&sample)?,
            body: sample.body,
        })
    }
}

/// An id that can stand in a header and in a body of any form.
fn checked(id: String) -> Result<String, Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    if id.is_empty() || id.len() > 255 || !id.bytes().all(plain) {
        let fault = "has 1 to 255 of A-Z a-z 0-9 - _ . : /".to_owned();
        return Err(Error::Id(fault));
    }
    Ok(id)
}

/// An id in the form of the sender's.
fn fresh(scheme: &str) -> String {
    let id = uuid::Uuid::new_v4();
    match scheme {
        "stripe" => format!("evt_{}", id.simple()),
        "slack" => format!("Ev{}", id.simple().to_string().to_uppercase()),
        "standard" => format!("msg_{}", id.simple()),
        _ => id.to_string(),
    }
}

fn header_map(sample: &Sample) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in &sample.headers {
        let pair = (HeaderName::try_from(name), HeaderValue::try_from(value));
        let (Ok(name), Ok(mut value)) = pair else {
            // A secret can be in one of them.
            let fault = format!("makes a header {name} that HTTP does not take");
            return Err(Error::Secret(fault));
        };
        value.set_sensitive(name == "authorization" || name == "x-gitlab-token");
        map.insert(name, value);
    }
    Ok(map)
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn replaced(bytes: &[u8], part: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(part.len()).position(|window| window == part) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(by);
        rest = &rest[at + part.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}
