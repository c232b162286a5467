//! The target of the operations: records every request, counts effects, and misbehaves by a plan.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Request;
use hyper::body::Bytes;

use crate::http::{Reply, Server, answer};
use crate::proxy::Gate;

/// What the target does with one request.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Applies it and answers 200 with a JSON body.
    Apply,
    /// Does not apply it and answers with this status.
    Answer(u16),
    /// Does not apply it and answers with this status and `Retry-After`, in seconds.
    RetryAfter(u16, u32),
    /// Waits at the gate, then applies it and answers 200.
    Hang(Gate),
    /// Takes its time, then applies it and answers 200.
    Slow(Duration),
    /// Closes the connection without applying it.
    Reset,
    /// Applies it and closes the connection without an answer.
    ApplyAndClose,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The path.
    pub path: String,
    /// The headers, lower case.
    pub headers: BTreeMap<String, String>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Received {
    /// A header; empty where there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The idempotency key, without its quotes.
    #[must_use]
    pub fn key(&self) -> &str {
        self.header("idempotency-key").trim_matches('"')
    }
}

/// A target that does not deduplicate: every applied request is an effect.
#[derive(Debug)]
pub struct Target {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    plan: VecDeque<Behaviour>,
    always: Option<Behaviour>,
    received: Vec<Received>,
    effects: BTreeMap<String, usize>,
    /// What its answers have as `links`, as JSON.
    links: Option<String>,
    in_flight: usize,
    peak: usize,
}

impl Target {
    /// A target that applies everything until it is told otherwise.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| serve(Arc::clone(&shared), request)).await?;
        Ok(Self { server, state })
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/apply", self.server.url())
    }

    /// What happens to the next requests, in order; then what [`always`](Self::always) said.
    pub fn plan(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        lock(&self.state).plan.extend(behaviours);
    }

    /// What happens to every request that no plan speaks of.
    pub fn always(&self, behaviour: Behaviour) {
        lock(&self.state).always = Some(behaviour);
    }

    /// Names these links, as JSON, in each answer from now on.
    pub fn links(&self, links: &str) {
        lock(&self.state).links = Some(links.to_owned());
    }

    /// Every request, in the order of arrival.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        lock(&self.state).received.clone()
    }

    /// How often each idempotency key was applied.
    #[must_use]
    pub fn effects(&self) -> BTreeMap<String, usize> {
        lock(&self.state).effects.clone()
    }

    /// The most requests that there ever were at once.
    #[must_use]
    pub fn peak(&self) -> usize {
        lock(&self.state).peak
    }

    /// How many effects there were in all.
    #[must_use]
    pub fn effect_count(&self) -> usize {
        lock(&self.state).effects.values().sum()
    }
}

async fn serve(state: Arc<Mutex<State>>, request: Request<Bytes>) -> Reply {
    let received = Received {
        path: request.uri().path().to_owned(),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect(),
        body: request.body().to_vec(),
    };
    let key = received.key().to_owned();
    let behaviour = {
        let mut state = lock(&state);
        state.received.push(received);
        state.in_flight += 1;
        state.peak = state.peak.max(state.in_flight);
        let planned = state.plan.pop_front().or_else(|| state.always.clone());
        planned.unwrap_or(Behaviour::Apply)
    };
    let applied = || {
        let mut state = lock(&state);
        let count = state.effects.entry(key.clone()).or_default();
        *count += 1;
        let count = *count;
        let body = match &state.links {
            Some(links) => format!(r#"{{"effect":{count},"links":{links}}}"#),
            None => format!(r#"{{"effect":{count}}}"#),
        };
        answer(200, &[("content-type", "application/json")], body)
    };
    let reply = match behaviour {
        Behaviour::Slow(time) => {
            tokio::time::sleep(time).await;
            applied()
        }
        Behaviour::Apply => applied(),
        Behaviour::Answer(status) => answer(status, &[], "planned"),
        Behaviour::RetryAfter(status, seconds) => {
            answer(status, &[("retry-after", &seconds.to_string())], "planned")
        }
        Behaviour::Hang(gate) => {
            gate.pass().await;
            applied()
        }
        Behaviour::Reset => Reply::Close,
        Behaviour::ApplyAndClose => {
            let _ = applied();
            Reply::Close
        }
    };
    lock(&state).in_flight -= 1;
    reply
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
