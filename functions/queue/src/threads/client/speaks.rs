//! How a server is spoken to: its revision, its session, and the headers that it wants.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// The revision without sessions.
const MODERN: &str = "2026-07-28";

/// The revisions with `initialize`, as far as they are spoken over this transport; the first is
/// asked for.
pub(super) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// How the server is spoken to.
#[derive(Clone, Default)]
pub(super) struct Speaks {
    pub(super) era: Era,
    /// Counts the changes, so that of several who find a session over one makes the next.
    pub(super) changes: u64,
    /// For each tool the arguments that a header must mirror, and its name.
    pub(super) mirrored: BTreeMap<String, Vec<(String, HeaderName)>>,
}

#[derive(Clone, Default)]
pub(super) enum Era {
    #[default]
    Unknown,
    Modern,
    Legacy {
        version: HeaderValue,
        session: Option<HeaderValue>,
    },
}

impl Speaks {
    pub(super) fn change(&mut self, era: Era) {
        self.era = era;
        self.changes += 1;
    }

    /// A request as this server wants it.
    pub(super) fn dressed(
        &self,
        method: &'static str,
        tool: Option<&'static str>,
        mut body: Value,
    ) -> (HeaderMap, Value) {
        let mut headers = self.era.headers();
        if matches!(self.era, Era::Legacy { .. }) {
            return (headers, body);
        }
        headers.insert("mcp-method", HeaderValue::from_static(method));
        if let Some(tool) = tool {
            headers.insert("mcp-name", HeaderValue::from_static(tool));
            let arguments = &body["params"]["arguments"];
            for (argument, header) in self.mirrored.get(tool).into_iter().flatten() {
                headers.extend(
                    header_value(&arguments[argument]).map(|value| (header.clone(), value)),
                );
            }
        }
        body["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": client_info(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        (headers, body)
    }
}

impl Era {
    /// What every request says.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Unknown | Self::Modern => {
                headers.insert("mcp-protocol-version", HeaderValue::from_static(MODERN));
            }
            Self::Legacy { version, session } => {
                headers.insert("mcp-protocol-version", version.clone());
                if let Some(session) = session {
                    headers.insert("mcp-session-id", session.clone());
                }
            }
        }
        headers
    }
}

pub(super) fn client_info() -> Value {
    json!({"name": "firstclaim", "version": env!("CARGO_PKG_VERSION")})
}

/// The arguments of a tool that a header must mirror. Ours are all on the schema's first level.
pub(super) fn mirrored(schema: &Value) -> Vec<(String, HeaderName)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let named = properties
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| {
            let header = property.get("x-mcp-header")?.as_str()?;
            let header = HeaderName::try_from(format!("mcp-param-{header}")).ok()?;
            Some((name.clone(), header))
        });
    named.collect()
}

/// An argument as a header's value: in base64 where it can't stand there as it is.
fn header_value(argument: &Value) -> Option<HeaderValue> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let text = match argument {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => argument.to_string(),
        _ => return None,
    };
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    let text = match plain {
        true => text,
        false => format!("=?base64?{}?=", STANDARD.encode(text)),
    };
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_mirrored_as_the_revision_says() {
        let said = |argument: Value| {
            let value = header_value(&argument)?;
            value.to_str().ok().map(str::to_owned)
        };
        assert_eq!(said(json!("us-west1")).as_deref(), Some("us-west1"));
        assert_eq!(said(json!(42)).as_deref(), Some("42"));
        assert_eq!(
            said(json!(" padded ")).as_deref(),
            Some("=?base64?IHBhZGRlZCA=?=")
        );
        assert_eq!(
            said(json!("=?base64?literal?=")).as_deref(),
            Some("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=")
        );
        assert_eq!(said(json!(["no"])), None);
        let schema = json!({"properties": {
            "repo": {"type": "string", "x-mcp-header": "Repo"},
            "body": {"type": "string"},
            "odd": {"x-mcp-header": "a b"},
        }});
        let found = mirrored(&schema);
        assert_eq!(
            found,
            [("repo".to_owned(), HeaderName::from_static("mcp-param-repo"))]
        );
    }
}
