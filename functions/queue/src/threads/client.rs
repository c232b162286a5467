//! A client for one MCP server over HTTP: calls of tools, and nothing else of the protocol.
//!
//! It is written here, over the HTTP client that the worker has for its target. What is needed of
//! the protocol is one kind of request with its answer; `rmcp`'s client keeps a task for each
//! connection that would go on behind the invocation's answer, and its size and start would be paid
//! for by every worker, also by those that know no threads.
//!
//! The revision of 2026-07-28 has no sessions: each request says its own version, and mirrors its
//! method and tool in headers. The older ones begin with `initialize` and may give a session, which
//! may end (404) at any time. Which of them a server speaks is found as the newer revision says: a
//! request of its own kind first, and `initialize` where the refusal is none that only a newer
//! server gives. The first request of a process reads, so that one of both kinds does no harm.

mod speaks;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstclaim::clock::EpochMillis;
use futures_util::lock::Mutex;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ThreadsError;
use super::answer::{Answer, Rejection, read};
use crate::token::Token;
use speaks::{Era, LEGACY, Speaks, client_info, mirrored};

/// The longest session id that is sent back, in bytes.
const SESSION_LIMIT: usize = 1024;

/// How many requests one call makes at the most: one that finds the revision, one that finds the
/// session over, one that lacks a mirrored parameter, and the one that counts.
const ROUNDS: u32 = 4;

/// The server, and what is known of it.
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    token: Token,
    /// Held while a session is made, so that the others wait for it.
    speaks: Mutex<Speaks>,
    ids: AtomicU64,
}

/// Until when a call must have ended, and the time that it is by the injected clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) deadline: Instant,
    pub(crate) now: EpochMillis,
}

impl Until {
    pub(crate) fn within(time: Duration, now: EpochMillis) -> Self {
        let deadline = Instant::now() + time;
        Self { deadline, now }
    }

    fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Client {
    pub(super) fn new(http: reqwest::Client, url: Url, token: Token) -> Self {
        Self {
            http,
            url,
            token,
            speaks: Mutex::default(),
            ids: AtomicU64::new(1),
        }
    }

    /// Calls a tool once. It is sent again only where the server has refused to look at it: for its
    /// token, its session, its revision or its headers.
    pub(super) async fn call(
        &self,
        tool: &'static str,
        arguments: &Value,
        until: Until,
    ) -> Result<Value, ThreadsError> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", Some(tool), params, until).await
    }

    /// The tools that the server has, by name, with their input schemas.
    pub(super) async fn tools(
        &self,
        until: Until,
    ) -> Result<BTreeMap<String, Value>, ThreadsError> {
        let result = self.request("tools/list", None, json!({}), until).await?;
        let tools = result.get("tools").and_then(Value::as_array);
        let tools = tools.ok_or(ThreadsError::Malformed("a list of tools has no `tools`"))?;
        let named = tools.iter().filter_map(|tool| {
            let name = tool.get("name")?.as_str()?.to_owned();
            Some((name, tool.get("inputSchema").cloned().unwrap_or_default()))
        });
        Ok(named.collect())
    }

    async fn request(
        &self,
        method: &'static str,
        tool: Option<&'static str>,
        params: Value,
        until: Until,
    ) -> Result<Value, ThreadsError> {
        for _ in 0..ROUNDS {
            let speaks = self.speaks.lock().await.clone();
            let id = self.ids.fetch_add(1, Ordering::Relaxed);
            let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            let (headers, body) = speaks.dressed(method, tool, body);
            let rejection = match self.post(&headers, &body, id, until).await?.1 {
                Answer::Result(result) => {
                    self.found_modern(&speaks).await;
                    return Ok(result);
                }
                Answer::Rejected(rejection) => rejection,
            };
            match &speaks.era {
                Era::Unknown if !rejection.is_modern() => {
                    self.initialize(speaks.changes, until).await?;
                }
                Era::Unknown | Era::Modern if rejection.offers(&LEGACY) => {
                    self.initialize(speaks.changes, until).await?;
                }
                Era::Unknown | Era::Modern
                    if rejection.is_header_mismatch() && method == "tools/call" =>
                {
                    self.learn_mirrored(until).await?;
                }
                Era::Legacy {
                    session: Some(_), ..
                } if !rejection.is_modern() && rejection.ends_session() => {
                    self.initialize(speaks.changes, until).await?;
                }
                Era::Modern | Era::Legacy { .. }
                    if rejection.is_modern() != matches!(speaks.era, Era::Modern) =>
                {
                    // It may be another server by now. The next request finds out; this one may
                    // be a write, and is not sent to a server that is not known.
                    self.forget(speaks.changes).await;
                    return Err(rejection.into());
                }
                _ => return Err(rejection.into()),
            }
        }
        Err(ThreadsError::Malformed(
            "the server refuses what it asks for",
        ))
    }

    /// A server that has taken a request of the newer kind speaks it.
    async fn found_modern(&self, spoken: &Speaks) {
        if matches!(spoken.era, Era::Unknown) {
            let mut speaks = self.speaks.lock().await;
            if speaks.changes == spoken.changes {
                speaks.change(Era::Modern);
            }
        }
    }

    async fn forget(&self, changes: u64) {
        let mut speaks = self.speaks.lock().await;
        if speaks.changes == changes {
            speaks.change(Era::Unknown);
        }
    }

    /// Begins with an older server, unless somebody else has meanwhile.
    async fn initialize(&self, changes: u64, until: Until) -> Result<(), ThreadsError> {
        let mut speaks = self.speaks.lock().await;
        if speaks.changes != changes {
            return Ok(());
        }
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let hello = json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": "initialize",
            "params": {
                "protocolVersion": LEGACY[0],
                "capabilities": {},
                "clientInfo": client_info(),
            },
        });
        let (answer, result) = self.post(&HeaderMap::new(), &hello, id, until).await?;
        let result = match result {
            Answer::Result(result) => result,
            Answer::Rejected(rejection) => {
                speaks.change(Era::Unknown);
                return Err(rejection.into());
            }
        };
        let version = result.get("protocolVersion").and_then(Value::as_str);
        let version = LEGACY
            .into_iter()
            .find(|known| version == Some(*known))
            .ok_or(ThreadsError::Malformed("a revision that is not known here"))?;
        let session = answer.get("mcp-session-id").cloned();
        if session.as_ref().is_some_and(|id| id.len() > SESSION_LIMIT) {
            return Err(ThreadsError::Malformed("a session id that is too long"));
        }
        let session = session.map(|mut id| {
            // Whoever has it speaks for this session.
            id.set_sensitive(true);
            id
        });
        let next = Era::Legacy {
            version: HeaderValue::from_static(version),
            session,
        };
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answer = self.send(&next.headers(), &begun, until).await?;
        if !answer.status().is_success() {
            return Err(read(answer, None)
                .await
                .err()
                .unwrap_or(ThreadsError::Malformed(
                    "a session that its server does not take up",
                )));
        }
        speaks.change(next);
        Ok(())
    }

    /// Asks for the tools: the server says there which arguments a header must mirror.
    async fn learn_mirrored(&self, until: Until) -> Result<(), ThreadsError> {
        // The list itself has no such headers, so that this ends.
        let tools = Box::pin(self.tools(until)).await?;
        let tools = tools.into_iter();
        let mirrored = tools.map(|(tool, schema)| (tool, mirrored(&schema)));
        self.speaks.lock().await.mirrored = mirrored.collect();
        Ok(())
    }

    /// Sends a request and reads its answer.
    async fn post(
        &self,
        headers: &HeaderMap,
        body: &Value,
        id: u64,
        until: Until,
    ) -> Result<(HeaderMap, Answer), ThreadsError> {
        let answer = self.send(headers, body, until).await?;
        let headers = answer.headers().clone();
        Ok((headers, read(answer, Some(id)).await?))
    }

    /// Sends a message; with a renewed token once more, where the first has been refused.
    async fn send(
        &self,
        headers: &HeaderMap,
        body: &Value,
        until: Until,
    ) -> Result<Response, ThreadsError> {
        let token = self.token.current(until.now).await;
        let token = token.map_err(|_| ThreadsError::NoToken)?;
        let answer = self.send_with(token.as_ref(), headers, body, until).await?;
        let renewed = match (&token, answer.status().as_u16()) {
            (Some(sent), 401) => self.token.renewed(sent, until.now).await,
            _ => None,
        };
        match renewed {
            // Refused for its token alone, so that nothing was done: sending it again is safe.
            Some(renewed) => self.send_with(Some(&renewed), headers, body, until).await,
            None => Ok(answer),
        }
    }

    async fn send_with(
        &self,
        token: Option<&HeaderValue>,
        headers: &HeaderMap,
        body: &Value,
        until: Until,
    ) -> Result<Response, ThreadsError> {
        let left = until.left();
        if left.is_zero() {
            return Err(ThreadsError::NoTime);
        }
        let mut request = self
            .http
            .post(self.url.clone())
            .headers(headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .timeout(left)
            .body(body.to_string());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        request.send().await.map_err(|error| (&error).into())
    }
}

impl From<Rejection> for ThreadsError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected {
            status: rejection.status,
            code: rejection.code,
        }
    }
}
