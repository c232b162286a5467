//! A handler over a store in memory and a queue in memory, on a clock that stands still.

mod request;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, ManualSource};
use firstclaim::store::memory::{Failing, Memory};
use firstclaim::{Claims, Config, Envelope, Key};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use webhook::{Inspected, Message, Options, Outbox, Response, SendError, Senders, Webhook};

/// All schemes; a sender of each is named like it.
pub(crate) const SCHEMES: [&str; 8] = [
    "github", "gitlab", "stripe", "slack", "shopify", "standard", "twilio", "token",
];

/// The time by the samples' clock.
pub(crate) fn now() -> EpochMillis {
    EpochMillis(vectors()["now"].as_i64().unwrap() * 1000)
}

/// The options of a handler that the samples' senders reach.
pub(crate) fn options() -> Options {
    let public_url = vectors()["public_url"].as_str().map(str::to_owned);
    Options {
        public_url,
        ..Options::default()
    }
}

pub(crate) use request::{Request, mac};

/// How long an invocation may run.
pub(crate) const RUN: Duration = Duration::from_secs(10);

/// A second secret of the sender `github`, and one that nobody has.
pub(crate) const OTHER_TOKEN: &str = "another-caller-0123456789";

/// A file of the samples.
pub(crate) fn sample(file: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/events")
        .join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn vectors() -> &'static Value {
    static VECTORS: LazyLock<Value> = LazyLock::new(|| sample("vectors.json"));
    &VECTORS
}

pub(crate) fn secret(scheme: &str) -> String {
    vectors()["secrets"][scheme].as_str().unwrap().to_owned()
}

/// What the queue does with the next send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sending {
    Refuse,
    /// Takes the message and loses the reply.
    LoseReply,
    TooLarge,
}

/// A queue in memory, shared by clones.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    messages: Arc<Mutex<Vec<Message>>>,
    plan: Arc<Mutex<VecDeque<Sending>>>,
    gate: Arc<Semaphore>,
}

impl Queue {
    fn new() -> Self {
        Self {
            messages: Arc::default(),
            plan: Arc::default(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    pub(crate) fn plan(&self, sendings: impl IntoIterator<Item = Sending>) {
        self.plan.lock().unwrap().extend(sendings);
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }

    pub(crate) fn envelopes(&self) -> Vec<Envelope> {
        let messages = self.messages();
        messages
            .iter()
            .map(|message| Envelope::from_json(&message.body).unwrap())
            .collect()
    }

    /// The operation keys of what was queued, in order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.envelopes()
            .into_iter()
            .map(|envelope| envelope.key)
            .collect()
    }

    /// How many operations a worker would make of what was queued.
    pub(crate) fn operations(&self) -> usize {
        let mut keys = self.keys();
        keys.sort();
        keys.dedup();
        keys.len()
    }

    /// Lets every send wait.
    pub(crate) fn close(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn open(&self) {
        self.gate.add_permits(1024);
    }
}

impl Outbox for Queue {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let _permit = self.gate.acquire().await.unwrap();
        let planned = self.plan.lock().unwrap().pop_front();
        match planned {
            Some(Sending::Refuse) => return Err(SendError::Refused("planned".into())),
            Some(Sending::TooLarge) => {
                return Err(SendError::TooLarge {
                    bytes: message.body.len(),
                });
            }
            Some(Sending::LoseReply) | None => {}
        }
        self.messages.lock().unwrap().push(message.clone());
        match planned {
            Some(_) => Err(SendError::Unanswered("planned".into())),
            None => Ok(()),
        }
    }
}

/// The handler and all around it.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) webhook: Webhook<Failing<Memory>, Queue>,
    pub(crate) store: Failing<Memory>,
    pub(crate) memory: Memory,
    pub(crate) queue: Queue,
    pub(crate) clock: ManualSource,
    senders: Senders,
    options: Options,
}

impl Bench {
    /// A sender of each scheme, a second one of GitHub, and a second caller.
    pub(crate) fn new() -> Self {
        Self::with_senders(&Self::senders())
    }

    pub(crate) fn senders() -> Value {
        let vectors = vectors();
        let secrets = &vectors["secrets"];
        let mut senders = json!({
            "github-2": {"scheme": "github", "secrets": [secrets["github"]]},
            "other": {"scheme": "token", "secrets": [OTHER_TOKEN]},
        });
        for scheme in SCHEMES {
            senders[scheme] = json!({"scheme": scheme, "secrets": [secrets[scheme]]});
        }
        senders
    }

    pub(crate) fn with_senders(senders: &Value) -> Self {
        let longest_lease = Config::default().longest_lease;
        let senders = Senders::from_json(&senders.to_string(), longest_lease).unwrap();
        Self::over(senders, options())
    }

    pub(crate) fn with_options(options: Options) -> Self {
        let longest_lease = Config::default().longest_lease;
        let senders = Senders::from_json(&Self::senders().to_string(), longest_lease).unwrap();
        Self::over(senders, options)
    }

    pub(crate) fn over(senders: Senders, options: Options) -> Self {
        let memory = Memory::new();
        let store = Failing::new(memory.clone());
        let queue = Queue::new();
        let clock = ManualSource::at(now());
        Self {
            webhook: handler(&senders, &store, &queue, &clock, &options),
            store,
            memory,
            queue,
            clock,
            senders,
            options,
        }
    }

    /// The same as another process sees it, which remembers nothing.
    pub(crate) fn cold(&self) -> Self {
        Self {
            webhook: handler(
                &self.senders,
                &self.store,
                &self.queue,
                &self.clock,
                &self.options,
            ),
            ..self.clone()
        }
    }

    pub(crate) async fn send(&self, request: &Request) -> Response {
        self.event(request.event()).await
    }

    /// What a request would be taken for.
    pub(crate) async fn inspect(&self, request: &Request) -> Result<Inspected, Response> {
        use firstclaim::clock::Source;
        let now = self.clock.now();
        self.webhook.inspect(request.event(), now).await
    }

    /// What a good request is taken for.
    pub(crate) async fn seen(&self, request: &Request) -> Inspected {
        let inspected = self.inspect(request).await;
        inspected.unwrap_or_else(|response| panic!("{}: {}", request.path, response.body))
    }

    pub(crate) async fn event(&self, event: Value) -> Response {
        use firstclaim::clock::Source;
        let mut context = Context::default();
        let deadline = self.clock.now().after(RUN).0;
        context.deadline = u64::try_from(deadline).unwrap();
        context.request_id = "request-1".to_owned();
        self.webhook.handle(LambdaEvent::new(event, context)).await
    }
}

fn handler(
    senders: &Senders,
    store: &Failing<Memory>,
    queue: &Queue,
    clock: &ManualSource,
    options: &Options,
) -> Webhook<Failing<Memory>, Queue> {
    let claims = Claims::new(store.clone(), Config::default())
        .unwrap()
        .with_source(clock.clone());
    Webhook::new(senders.clone(), claims, queue.clone(), options.clone())
}

/// The answer's body as JSON.
pub(crate) fn body(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap()
}

/// The last part of a problem's type.
pub(crate) fn problem(response: &Response) -> String {
    assert_eq!(response.headers["content-type"], "application/problem+json");
    let body = body(response);
    assert_eq!(body["status"], response.status_code);
    let name = body["type"].as_str().unwrap();
    name.strip_prefix("urn:firstclaim:problem:")
        .unwrap()
        .to_owned()
}

/// Polls until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}
