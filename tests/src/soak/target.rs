//! A target that honours its `Idempotency-Key`, and fails one call of twenty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Request;
use hyper::body::Bytes;

use super::Random;
use crate::http::{Reply, Server, answer};

/// One call of so many fails.
const FAILURES: u64 = 20;

pub(crate) struct Idempotent {
    server: Server,
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    calls: usize,
    /// For each operation key the idempotency keys under which it was applied: an effect each.
    effects: BTreeMap<String, BTreeSet<String>>,
}

impl Idempotent {
    pub(crate) async fn start(seed: u64) -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            random: Random(seed ^ 0x5eed),
            calls: 0,
            effects: BTreeMap::new(),
        }));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| {
            let reply = serve(&mut lock(&shared), &request);
            async { reply }
        })
        .await?;
        Ok(Self { server, state })
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/apply", self.server.url())
    }

    pub(crate) fn calls(&self) -> usize {
        lock(&self.state).calls
    }

    pub(crate) fn effects(&self) -> usize {
        lock(&self.state).effects.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn doubled(&self) -> usize {
        let state = lock(&self.state);
        state.effects.values().map(|keys| keys.len() - 1).sum()
    }
}

fn serve(state: &mut State, request: &Request<Bytes>) -> Reply {
    state.calls += 1;
    let header = |name: &str| {
        let value = request.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let (operation, key) = (header("firstclaim-key"), header("idempotency-key"));
    let mut apply = || {
        state
            .effects
            .entry(operation.clone())
            .or_default()
            .insert(key.clone());
        answer(
            200,
            &[("content-type", "application/json")],
            r#"{"applied":true,"links":[{"kind":"branch","target":"codex/thread-42"}]}"#,
        )
    };
    match state.random.below(FAILURES * 4) {
        0 => answer(503, &[], "planned"),
        1 => answer(429, &[], "planned"),
        2 => Reply::Close,
        // Applied, and its answer is lost.
        3 => {
            apply();
            Reply::Close
        }
        _ => apply(),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
