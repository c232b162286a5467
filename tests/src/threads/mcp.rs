//! The protocol around the tools: what a request must be like in each revision, and how its answer
//! is written.

use std::collections::BTreeSet;

use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::http::{Reply, answer};

const MODERN: &str = "2026-07-28";

/// How a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Its revision: today's, or an older one with `initialize` and sessions.
    pub revision: &'static str,
    /// Whether its answers come as streams of events.
    pub streams: bool,
    /// Whether it wants the argument `repo` in a header too; only today's revision knows that.
    pub mirrors: bool,
}

impl Dialect {
    /// Today's revision, with answers in JSON.
    pub const MODERN: Self = Self {
        revision: MODERN,
        streams: false,
        mirrors: false,
    };

    /// The last revision with sessions, with answers in JSON.
    pub const LEGACY: Self = Self {
        revision: "2025-11-25",
        ..Self::MODERN
    };

    /// The same with answers as streams.
    #[must_use]
    pub const fn streaming(self) -> Self {
        Self {
            streams: true,
            ..self
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: BTreeSet<String>,
}

impl Sessions {
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

/// What a request comes to.
pub(super) enum Asked {
    Tool(Call),
    Tools(Call),
    /// The protocol's own business, or a refusal that a right caller meets.
    Answered(Reply),
    /// A refusal of what no right caller does.
    Fault(Reply, String),
}

/// A call of a tool, or of their list.
pub(super) struct Call {
    id: Value,
    streams: bool,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

impl Call {
    pub(super) fn result(&self, result: &Value) -> Reply {
        let message = json!({"jsonrpc": "2.0", "id": self.id, "result": result});
        if !self.streams {
            return answer(
                200,
                &[("content-type", "application/json")],
                message.to_string(),
            );
        }
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
        let text =
            format!(": hello\r\n\r\nevent: message\r\ndata: {note}\r\n\r\ndata: {message}\n\n");
        answer(
            200,
            &[("content-type", "text/event-stream; charset=utf-8")],
            text,
        )
    }
}

pub(super) fn read(dialect: Dialect, sessions: &mut Sessions, request: &Request<Bytes>) -> Asked {
    let header = |name: &str| {
        let value = request.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let fault = |text: &str| Asked::Fault(answer(400, &[], ""), text.to_owned());
    if request.method() != hyper::Method::POST || request.uri().path() != "/mcp" {
        return Asked::Fault(answer(405, &[], ""), "no POST to the endpoint".to_owned());
    }
    let accept = header("accept");
    if !accept.contains("application/json") || !accept.contains("text/event-stream") {
        return fault("Accept lacks a form of answer");
    }
    let Ok(body) = serde_json::from_slice::<Value>(request.body()) else {
        return fault("a body that is no JSON");
    };
    if body["jsonrpc"] != "2.0" {
        return fault("a body that is no JSON-RPC");
    }
    let method = body["method"].as_str().unwrap_or_default().to_owned();
    let call = Call {
        id: body["id"].clone(),
        streams: dialect.streams,
        tool: body["params"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        arguments: body["params"]["arguments"].clone(),
    };
    let refused = if dialect.revision == MODERN {
        modern(dialect, &body, &method, &call, &header)
    } else {
        legacy(dialect, sessions, &method, &call, &header)
    };
    match (refused, method.as_str()) {
        (Some(refused), _) => refused,
        (None, "tools/call") => Asked::Tool(call),
        (None, "tools/list") => Asked::Tools(call),
        (None, _) => Asked::Answered(error(404, &body["id"], -32601, json!(null))),
    }
}

/// What today's revision refuses.
fn modern(
    dialect: Dialect,
    body: &Value,
    method: &str,
    call: &Call,
    header: &impl Fn(&str) -> String,
) -> Option<Asked> {
    if method == "initialize" {
        let reply = error(400, &body["id"], -32022, json!({"supported": [MODERN]}));
        return Some(Asked::Fault(reply, "initialize".to_owned()));
    }
    let meta = &body["params"]["_meta"];
    let version = &meta["io.modelcontextprotocol/protocolVersion"];
    let mismatch = |text: &str| {
        Some(Asked::Fault(
            error(400, &body["id"], -32020, json!(null)),
            text.to_owned(),
        ))
    };
    if header("mcp-protocol-version") != MODERN || version != MODERN {
        return mismatch("the version");
    }
    if !meta["io.modelcontextprotocol/clientCapabilities"].is_object()
        || !meta["io.modelcontextprotocol/clientInfo"].is_object()
    {
        return mismatch("no client");
    }
    if header("mcp-method") != method || header("mcp-name") != call.tool {
        return mismatch("method or name");
    }
    let repo = call.arguments["repo"].as_str().unwrap_or_default();
    if dialect.mirrors && header("mcp-param-repo") != repo {
        // The caller can't know before it has asked.
        return Some(Asked::Answered(error(
            400,
            &body["id"],
            -32020,
            json!(null),
        )));
    }
    None
}

/// What the older revisions refuse, and how they begin.
fn legacy(
    dialect: Dialect,
    sessions: &mut Sessions,
    method: &str,
    call: &Call,
    header: &impl Fn(&str) -> String,
) -> Option<Asked> {
    if method == "initialize" {
        let session = uuid::Uuid::new_v4().to_string();
        sessions.known.insert(session.clone());
        let result = json!({
            "protocolVersion": dialect.revision,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "threads", "version": "1"},
        });
        let Reply::Answer(mut reply) = call.result(&result) else {
            return Some(Asked::Answered(Reply::Close));
        };
        if let Ok(session) = session.parse() {
            reply.headers_mut().insert("mcp-session-id", session);
        }
        return Some(Asked::Answered(Reply::Answer(reply)));
    }
    let session = header("mcp-session-id");
    if session.is_empty() {
        // A caller of today's revision that looks what it has before it.
        let reply = error(400, &json!(null), -32000, json!(null));
        return Some(Asked::Answered(reply));
    }
    if !sessions.known.contains(&session) {
        return Some(Asked::Answered(answer(404, &[], "")));
    }
    if header("mcp-protocol-version") != dialect.revision {
        let reply = answer(400, &[], "");
        return Some(Asked::Fault(
            reply,
            "another version in a session".to_owned(),
        ));
    }
    (method == "notifications/initialized").then(|| Asked::Answered(answer(202, &[], "")))
}

fn error(status: u16, id: &Value, code: i64, data: Value) -> Reply {
    let error = json!({"code": code, "message": "planned", "data": data});
    let message = json!({"jsonrpc": "2.0", "id": id, "error": error});
    answer(
        status,
        &[("content-type", "application/json")],
        message.to_string(),
    )
}
