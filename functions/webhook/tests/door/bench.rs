//! A handler over a store in memory and a queue in memory, on a clock that stands still.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use firstclaim::clock::{EpochMillis, ManualSource};
use firstclaim::store::memory::{Failing, Memory};
use firstclaim::{Claims, Config, Envelope, Key};
use hmac::{Hmac, KeyInit, Mac};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::Semaphore;
use webhook::{Message, Options, Outbox, Response, SendError, Senders, Webhook};

/// All schemes; a sender of each is named like it.
pub(crate) const SCHEMES: [&str; 8] = [
    "github", "gitlab", "stripe", "slack", "shopify", "standard", "twilio", "token",
];

/// The options of a handler that the samples' senders reach.
pub(crate) fn options() -> Options {
    let public_url = vectors()["public_url"].as_str().map(str::to_owned);
    Options {
        public_url,
        ..Options::default()
    }
}

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

pub(crate) fn vectors() -> Value {
    sample("vectors.json")
}

pub(crate) fn secret(scheme: &str) -> String {
    vectors()["secrets"][scheme].as_str().unwrap().to_owned()
}

/// A request, to be made an event.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: BTreeMap::new(),
            body: Vec::new(),
        }
    }

    /// A recorded delivery with the signature that the sender's own library made for it.
    pub(crate) fn of(file: &str) -> Self {
        let vectors = vectors();
        let all = vectors["vectors"].as_array().unwrap();
        let vector = all.iter().find(|vector| vector["file"] == file).unwrap();
        Self::unsigned(file).with_all(&vector["headers"])
    }

    /// A recorded delivery without its signature.
    pub(crate) fn unsigned(file: &str) -> Self {
        let sample = sample(file);
        let text = |field: &str| sample[field].as_str().unwrap();
        Self {
            method: text("method").to_owned(),
            path: text("path").to_owned(),
            headers: BTreeMap::new(),
            body: STANDARD.decode(text("body_base64")).unwrap(),
        }
        .with_all(&sample["headers"])
    }

    /// A delivery of GitHub, signed.
    pub(crate) fn github(event: &str, delivery: &str, body: &Value) -> Self {
        Self::new("POST", "/webhooks/github")
            .with("x-github-event", event)
            .with("x-github-delivery", delivery)
            .with("content-type", "application/json")
            .body(body.to_string())
            .signed()
    }

    /// An operation of the caller `token`.
    pub(crate) fn operation(key: &str, body: &str) -> Self {
        Self::new("POST", "/operations")
            .with("authorization", &format!("Bearer {}", secret("token")))
            .with("idempotency-key", key)
            .with("content-type", "application/json")
            .body(body)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub(crate) fn with_all(self, headers: &Value) -> Self {
        let headers = headers.as_object().unwrap();
        headers.iter().fold(self, |request, (name, value)| {
            request.with(name, value.as_str().unwrap())
        })
    }

    /// To this path, or whole address.
    pub(crate) fn to(mut self, address: &str) -> Self {
        let public_url = options().public_url.unwrap();
        let path = address.strip_prefix(&public_url).unwrap_or(address);
        path.clone_into(&mut self.path);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Signs the body as GitHub does.
    pub(crate) fn signed(self) -> Self {
        let mac = mac(secret("github").as_bytes(), &[&self.body]);
        self.with(
            "x-hub-signature-256",
            &format!("sha256={}", hex::encode(mac)),
        )
    }

    /// Signs as Standard Webhooks do.
    pub(crate) fn signed_standard(self, id: &str, timestamp: &str) -> Self {
        let key = STANDARD
            .decode(secret("standard").trim_start_matches("whsec_"))
            .unwrap();
        let parts: [&[u8]; 5] = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &self.body];
        let signature = format!("v1,{}", STANDARD.encode(mac(&key, &parts)));
        self.with("webhook-id", id)
            .with("webhook-timestamp", timestamp)
            .with("webhook-signature", &signature)
    }

    /// The event as a Function URL makes it; a body that is not UTF-8 arrives as base64.
    pub(crate) fn event(&self) -> Value {
        let (body, encoded) = match std::str::from_utf8(&self.body) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (STANDARD.encode(&self.body), true),
        };
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": query,
            "headers": self.headers,
            "requestContext": {
                "http": {"method": self.method, "path": path},
                "stage": "$default",
            },
            "body": body,
            "isBase64Encoded": encoded,
        })
    }
}

pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
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
        let now = vectors()["now"].as_i64().unwrap() * 1000;
        let clock = ManualSource::at(EpochMillis(now));
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
