//! A proxy in front of DynamoDB or SQS that counts calls and, by a plan, refuses, loses, repeats
//! or holds them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::{Reply, Server, answer, json as json_answer};

/// Stands for every operation in a plan.
pub const ANY: &str = "*";

/// What happens to one call.
#[derive(Clone, Debug)]
pub enum Step {
    /// It is passed on.
    Pass,
    /// It is not passed on; the service's answer is this error.
    Fail(Failure),
    /// It is not passed on, and the connection closes.
    DropRequest,
    /// It is passed on, and the connection closes without the reply.
    DropReply,
    /// It is passed on twice, one after the other; the second reply is the answer.
    Twice,
    /// It waits at the gate and is then passed on, even if its sender has gone away meanwhile.
    Hold(Gate),
    /// It is passed on, and a refused condition comes back without the item, as from an old engine.
    StripItem,
    /// It is not passed on, and the answer is that there is nothing, as from a stale read.
    Empty,
}

/// Errors that a service answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 500.
    Internal,
    /// The rate is limited.
    Throttled,
    /// The credentials may not do it.
    AccessDenied,
    /// There is no such table.
    ResourceNotFound,
}

/// A gate that calls wait at until a test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    waiting: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(GateState {
            waiting: watch::Sender::new(0),
            open: watch::Sender::new(false),
        }))
    }

    /// Lets everybody through from now on.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Waits until `number` calls have arrived at the gate in all.
    pub async fn reached(&self, number: usize) {
        let mut waiting = self.0.waiting.subscribe();
        // The sender lives in this gate, so that the wait ends only by the condition.
        let _ = waiting.wait_for(|count| *count >= number).await;
    }

    /// Waits at the gate.
    pub(crate) async fn pass(&self) {
        let mut open = self.0.open.subscribe();
        self.0.waiting.send_modify(|count| *count += 1);
        let _ = open.wait_for(|open| *open).await;
    }
}

/// A counting, faulty way to a service.
#[derive(Debug)]
pub struct Proxy {
    server: Server,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    upstream: String,
    client: reqwest::Client,
    plan: Mutex<Plan>,
    /// How many calls were held and have arrived since.
    arrived: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Plan {
    once: HashMap<String, VecDeque<Step>>,
    always: HashMap<String, Step>,
    calls: BTreeMap<String, usize>,
    /// The capacity that the engine says it took, once that is asked for.
    units: Option<f64>,
}

impl Proxy {
    /// A proxy in front of `upstream`, which passes everything on until it is told otherwise.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn start(upstream: &str) -> anyhow::Result<Self> {
        let state = Arc::new(State {
            upstream: upstream.to_owned(),
            client: reqwest::Client::builder()
                .build()
                .context("the proxy's client")?,
            plan: Mutex::default(),
            arrived: watch::Sender::new(0),
        });
        let server = Server::start(handler(Arc::clone(&state))).await?;
        Ok(Self { server, state })
    }

    /// Its address, to be used in place of the service's.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// What happens to the next calls of `operation` (or of [`ANY`]), in order; then what
    /// [`always`](Self::always) said, or nothing.
    pub fn plan(&self, operation: &str, steps: impl IntoIterator<Item = Step>) {
        let mut plan = self.state.plan();
        plan.once
            .entry(operation.to_owned())
            .or_default()
            .extend(steps);
    }

    /// What happens to every call of `operation` (or of [`ANY`]) that no plan speaks of.
    pub fn always(&self, operation: &str, step: Step) {
        self.state.plan().always.insert(operation.to_owned(), step);
    }

    /// Passes everything on again.
    pub fn heal(&self) {
        let mut plan = self.state.plan();
        plan.once.clear();
        plan.always.clear();
    }

    /// Waits until so many calls that were held have arrived behind the proxy.
    pub async fn arrived(&self, number: usize) {
        let mut arrived = self.state.arrived.subscribe();
        // The sender lives in this proxy, so that the wait ends only by the condition.
        let _ = arrived.wait_for(|count| *count >= number).await;
    }

    /// Refuses connections, and closes those that are open.
    pub async fn shut(&self) {
        self.server.stop().await;
    }

    /// Accepts connections again, on the same port.
    ///
    /// # Errors
    ///
    /// Somebody took the port meanwhile.
    pub async fn reopen(&self) -> anyhow::Result<()> {
        self.server.resume(handler(Arc::clone(&self.state))).await
    }

    /// How often each operation was called since the last [`forget`](Self::forget), failed calls
    /// and a client's own repeats too.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, usize> {
        self.state.plan().calls.clone()
    }

    /// How many calls there were in all.
    #[must_use]
    pub fn total(&self) -> usize {
        self.state.plan().calls.values().sum()
    }

    /// Asks the engine from now on what capacity each DynamoDB call takes.
    pub fn measure(&self) {
        self.state.plan().units = Some(0.0);
    }

    /// The capacity units that the engine reported since the last [`forget`](Self::forget). It
    /// reports none for a refused write, though DynamoDB bills it by the size of the stored item.
    #[must_use]
    pub fn units(&self) -> f64 {
        self.state.plan().units.unwrap_or_default()
    }

    /// Counts from zero again.
    pub fn forget(&self) {
        let mut plan = self.state.plan();
        plan.calls.clear();
        plan.units = plan.units.map(|_| 0.0);
    }
}

impl State {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and takes its step from the plan.
    fn next(&self, operation: &str) -> Step {
        let mut plan = self.plan();
        *plan.calls.entry(operation.to_owned()).or_default() += 1;
        for name in [operation, ANY] {
            if let Some(step) = plan.once.get_mut(name).and_then(VecDeque::pop_front) {
                return step;
            }
        }
        let always = plan.always.get(operation).or_else(|| plan.always.get(ANY));
        always.cloned().unwrap_or(Step::Pass)
    }

    async fn serve(self: Arc<Self>, request: Request<Bytes>) -> Reply {
        let step = self.next(&operation(&request));
        match step {
            Step::Pass => self.forward(&request).await,
            Step::Fail(failure) => failure.reply(),
            Step::DropRequest => Reply::Close,
            Step::DropReply => {
                self.forward(&request).await;
                Reply::Close
            }
            Step::Twice => {
                self.forward(&request).await;
                self.forward(&request).await
            }
            Step::Hold(gate) => {
                // In a task of its own: the network delivers what it holds, even if the sender has
                // hung up.
                let held = tokio::spawn(async move {
                    gate.pass().await;
                    let reply = self.forward(&request).await;
                    self.arrived.send_modify(|count| *count += 1);
                    reply
                });
                held.await.unwrap_or(Reply::Close)
            }
            Step::Empty => json_answer(200, &json!({})),
            Step::StripItem => match self.forward(&request).await {
                Reply::Answer(response) => {
                    let status = response.status().as_u16();
                    let body = without_item(response.body());
                    answer(
                        status,
                        &[("content-type", "application/x-amz-json-1.0")],
                        body,
                    )
                }
                Reply::Close => Reply::Close,
            },
        }
    }

    async fn forward(&self, request: &Request<Bytes>) -> Reply {
        let url = format!("{}{}", self.upstream, request.uri());
        let mut headers = request.headers().clone();
        headers.remove("host");
        headers.remove("content-length");
        let sent = self
            .client
            .request(request.method().clone(), url)
            .headers(headers)
            .body(self.measured(request.body()))
            .send()
            .await;
        let Ok(response) = sent else {
            return Reply::Close;
        };
        let status = response.status().as_u16();
        let content_type = response.headers().get("content-type");
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type
            .unwrap_or("application/x-amz-json-1.0")
            .to_owned();
        match response.bytes().await {
            Ok(body) => {
                self.add_units(&body);
                answer(status, &[("content-type", &content_type)], body)
            }
            Err(_) => Reply::Close,
        }
    }

    /// The body, with the question for its capacity if that is to be measured.
    fn measured(&self, body: &Bytes) -> Bytes {
        if self.plan().units.is_none() {
            return body.clone();
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(mut fields)) => {
                fields.insert("ReturnConsumedCapacity".to_owned(), json!("TOTAL"));
                Bytes::from(Value::Object(fields).to_string())
            }
            _ => body.clone(),
        }
    }

    fn add_units(&self, body: &Bytes) {
        if let Some(units) = &mut self.plan().units
            && let Ok(answer) = serde_json::from_slice::<Value>(body)
            && let Some(taken) = answer["ConsumedCapacity"]["CapacityUnits"].as_f64()
        {
            *units += taken;
        }
    }
}

impl Failure {
    fn reply(self) -> Reply {
        let (status, code) = match self {
            Self::Internal => (500, "InternalServerError"),
            Self::Throttled => (400, "ThrottlingException"),
            Self::AccessDenied => (400, "AccessDeniedException"),
            Self::ResourceNotFound => (400, "ResourceNotFoundException"),
        };
        let code = format!("com.amazonaws.planned#{code}");
        json_answer(
            status,
            &json!({"__type": code, "message": "a planned fault"}),
        )
    }
}

fn handler(
    state: Arc<State>,
) -> impl Fn(Request<Bytes>) -> std::pin::Pin<Box<dyn Future<Output = Reply> + Send>> + Clone {
    move |request| Box::pin(Arc::clone(&state).serve(request))
}

/// The operation's name from `X-Amz-Target: DynamoDB_20120810.PutItem`.
fn operation(request: &Request<Bytes>) -> String {
    let target = request.headers().get("x-amz-target");
    let target = target
        .and_then(|value| value.to_str().ok())
        .unwrap_or("unknown");
    target.rsplit('.').next().unwrap_or(target).to_owned()
}

/// A refusal without its `Item`; anything else as it is.
fn without_item(body: &Bytes) -> Bytes {
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut fields)) if fields.contains_key("__type") => {
            fields.remove("Item");
            Bytes::from(Value::Object(fields).to_string())
        }
        _ => body.clone(),
    }
}
