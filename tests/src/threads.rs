//! The threads server: MCP over HTTP with the tools that the worker calls, and without any
//! idempotency: what is asked for twice is done twice. It counts, and misbehaves by a plan or a
//! seed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Request;
use hyper::body::Bytes;
use serde_json::Value;

use crate::faults::random::Random;
use crate::http::{Reply, Server, answer};
use crate::proxy::Gate;

mod desk;
mod mcp;

use desk::Desk;
pub use desk::Posted;
pub use mcp::Dialect;

/// What happens to one call of a tool.
#[derive(Clone, Debug)]
pub enum Act {
    /// It is done and answered.
    Do,
    /// It is done, and the connection is closed without an answer.
    DoAndClose,
    /// It is done, and answered once the gate is open.
    DoThenWait(Gate),
    /// It waits at the gate, and is done and answered then.
    WaitThenDo(Gate),
    /// It takes its time, and is done and answered then.
    Slow(Duration),
    /// The connection is closed, and nothing is done.
    Close,
    /// Nothing is done; the answer has this status.
    Answer(u16),
    /// Nothing is done, as the tool says.
    Fail,
}

/// The server of one test.
#[derive(Debug)]
pub struct ThreadsServer {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    dialect: Dialect,
    token: Option<String>,
    sessions: mcp::Sessions,
    desk: Desk,
    plan: BTreeMap<String, VecDeque<Act>>,
    chaos: Option<Chaos>,
    calls: BTreeMap<String, usize>,
    faults: Vec<String>,
    dropped: usize,
}

/// Random faults: of a hundred calls so many.
#[derive(Debug)]
struct Chaos {
    random: Random,
    percent: u64,
}

impl ThreadsServer {
    /// A server of today's revision that answers in JSON and asks for no token.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn start() -> anyhow::Result<Self> {
        Self::speaking(Dialect::MODERN).await
    }

    /// A server of this dialect.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn speaking(dialect: Dialect) -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            dialect,
            token: None,
            sessions: mcp::Sessions::default(),
            desk: Desk::default(),
            plan: BTreeMap::new(),
            chaos: None,
            calls: BTreeMap::new(),
            faults: Vec::new(),
            dropped: 0,
        }));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| serve(Arc::clone(&shared), request)).await?;
        Ok(Self { server, state })
    }

    /// Its MCP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/mcp", self.server.url())
    }

    /// Asks for this bearer token from now on.
    pub fn require_token(&self, token: &str) {
        lock(&self.state).token = Some(token.to_owned());
    }

    /// What happens to the next calls of a tool, in order; then they are done.
    pub fn plan(&self, tool: &str, acts: impl IntoIterator<Item = Act>) {
        let mut state = lock(&self.state);
        state.plan.entry(tool.to_owned()).or_default().extend(acts);
    }

    /// Misbehaves at random in so many of a hundred calls that no plan speaks of: loses answers,
    /// closes, is slow or unwell, and restarts.
    pub fn misbehave(&self, seed: u64, percent: u64) {
        let random = Random::new(seed);
        lock(&self.state).chaos = Some(Chaos { random, percent });
    }

    /// Behaves from now on.
    pub fn heal(&self) {
        lock(&self.state).chaos = None;
    }

    /// Restarts: no session is known any more. Threads and replies stay.
    pub fn restart(&self) {
        lock(&self.state).sessions.forget();
    }

    /// Speaks another dialect from now on, as after a deployment.
    pub fn speak(&self, dialect: Dialect) {
        let mut state = lock(&self.state);
        state.dialect = dialect;
        state.sessions.forget();
    }

    /// Closes a thread.
    pub fn close(&self, repo: &str, number: u64) {
        lock(&self.state).desk.close(repo, number);
    }

    /// Posts a reply, as somebody else does. Its id.
    pub fn post(&self, repo: &str, number: u64, body: &str) -> String {
        lock(&self.state).desk.post(repo, number, body)
    }

    /// The replies of a thread, in order.
    #[must_use]
    pub fn replies(&self, repo: &str, number: u64) -> Vec<Posted> {
        lock(&self.state).desk.replies(repo, number)
    }

    /// Every reply in the order of posting, with its thread.
    #[must_use]
    pub fn posted(&self) -> Vec<(String, u64, Posted)> {
        lock(&self.state).desk.posted()
    }

    /// What the agents say that they do; empty where they say that they do nothing.
    #[must_use]
    pub fn activity(&self) -> String {
        lock(&self.state).desk.activity.clone()
    }

    /// Every activity that was ever said, in order.
    #[must_use]
    pub fn activities(&self) -> Vec<String> {
        lock(&self.state).desk.activities.clone()
    }

    /// How often a tool was called, whatever came of it.
    #[must_use]
    pub fn calls(&self, tool: &str) -> usize {
        lock(&self.state).calls.get(tool).copied().unwrap_or(0)
    }

    /// How many calls were done whose answer was not sent.
    #[must_use]
    pub fn dropped(&self) -> usize {
        lock(&self.state).dropped
    }

    /// What callers did against the protocol.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        lock(&self.state).faults.clone()
    }
}

async fn serve(state: Arc<Mutex<State>>, request: Request<Bytes>) -> Reply {
    let (call, act) = {
        let mut state = lock(&state);
        let dialect = state.dialect;
        let bearer = request.headers().get("authorization");
        let bearer = bearer.and_then(|value| value.to_str().ok());
        let expected = state.token.as_ref().map(|token| format!("Bearer {token}"));
        if expected
            .as_deref()
            .is_some_and(|token| bearer != Some(token))
        {
            return answer(401, &[("www-authenticate", "Bearer")], "");
        }
        match mcp::read(dialect, &mut state.sessions, &request) {
            mcp::Asked::Answered(reply) => return reply,
            mcp::Asked::Fault(reply, fault) => {
                state.faults.push(fault);
                return reply;
            }
            mcp::Asked::Tools(call) => return call.result(&desk::tools()),
            mcp::Asked::Tool(call) => {
                *state.calls.entry(call.tool.clone()).or_default() += 1;
                let act = state.act(&call.tool);
                (call, act)
            }
        }
    };
    let done = |call: &mcp::Call| {
        let result = lock(&state).desk.call(&call.tool, &call.arguments);
        call.result(&tool_result(result))
    };
    match act {
        Act::Do => done(&call),
        Act::DoAndClose => {
            let _ = done(&call);
            lock(&state).dropped += 1;
            Reply::Close
        }
        Act::DoThenWait(gate) => {
            let reply = done(&call);
            gate.pass().await;
            reply
        }
        Act::WaitThenDo(gate) => {
            gate.pass().await;
            done(&call)
        }
        Act::Slow(time) => {
            tokio::time::sleep(time).await;
            done(&call)
        }
        Act::Close => Reply::Close,
        Act::Answer(status) => answer(status, &[], "planned"),
        Act::Fail => call.result(&tool_result(Err("planned"))),
    }
}

impl State {
    fn act(&mut self, tool: &str) -> Act {
        if let Some(act) = self.plan.get_mut(tool).and_then(VecDeque::pop_front) {
            return act;
        }
        let Some(Chaos { random, percent }) = &mut self.chaos else {
            return Act::Do;
        };
        if !random.chance(*percent) {
            return Act::Do;
        }
        match random.below(6) {
            0 | 1 => Act::DoAndClose,
            2 => Act::Close,
            3 => Act::Answer(503),
            4 => Act::Slow(Duration::from_millis(random.below(80))),
            _ => {
                self.sessions.forget();
                Act::Do
            }
        }
    }
}

/// What a tool answers, as MCP wraps it.
fn tool_result(result: Result<Value, &'static str>) -> Value {
    match result {
        Ok(value) => serde_json::json!({
            "resultType": "complete",
            "content": [{"type": "text", "text": value.to_string()}],
            "structuredContent": value,
            "isError": false,
        }),
        Err(text) => serde_json::json!({
            "resultType": "complete",
            "content": [{"type": "text", "text": text}],
            "isError": true,
        }),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
