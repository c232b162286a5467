//! A local queue service that speaks the JSON protocol of Amazon SQS: send, receive, delete,
//! visibility, receive counts, redrive to a dead-letter queue.
//!
//! It serves any AWS SDK and the AWS CLI. Standard queues only.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use firstclaim::clock::{Source, SystemSource};
use tokio::net::TcpListener;

use super::serving::Serving;

mod actions;
mod folder;
pub(super) mod message;
mod queue;
mod refused;

pub use folder::FolderError;
pub use message::{Attribute, Draft, Received};
pub use queue::{Count, Queue};
pub use refused::Refused;

/// The account in queue URLs and ARNs.
const ACCOUNT: &str = "000000000000";

/// The Region in ARNs.
pub(super) const REGION: &str = "us-east-1";

/// The longest request that is read, in bytes: a message of 1 MiB in which each byte is escaped.
const REQUEST_LIMIT: usize = 8 * 1024 * 1024;

/// One queue that a [`Server`] is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// 1 to 80 of `A-Z a-z 0-9 - _`.
    pub name: String,
    /// How long a received message stays hidden. SQS's own default is 30 s.
    pub visibility: Duration,
    /// Where messages go that were received too often. That queue must come earlier in the list.
    pub redrive: Option<Redrive>,
}

/// A redrive policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// The dead-letter queue's name.
    pub queue: String,
    /// How often a message is received at the most.
    pub max_receives: u32,
}

impl Settings {
    /// A queue with SQS's default visibility and no redrive.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            visibility: Duration::from_secs(30),
            redrive: None,
        }
    }

    /// The same with another visibility.
    #[must_use]
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// The same with a dead-letter queue, which must come earlier in the list.
    #[must_use]
    pub fn redrive(mut self, queue: impl Into<String>, max_receives: u32) -> Self {
        self.redrive = Some(Redrive {
            queue: queue.into(),
            max_receives,
        });
        self
    }
}

/// Where a [`Server`] keeps its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Gone when the process ends.
    Memory,
    /// One file per message, in one folder per queue below this one. Whatever was confirmed to its
    /// sender survives the end of the process (not that of the machine: nothing is synced).
    Folder(PathBuf),
}

/// A running queue service.
#[derive(Debug)]
pub struct Server {
    serving: Serving,
    queues: Queues,
}

/// Why a [`Server`] could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No free port, or the listener is broken.
    #[error("the local queue could not listen")]
    Listen(#[source] std::io::Error),
    /// A name that SQS would not take, or a FIFO queue.
    #[error(
        "{0:?} is no name for a local queue: 1 to 80 of A-Z a-z 0-9 - _ are (FIFO is not there)"
    )]
    Name(String),
    /// The dead-letter queue does not come earlier in the list.
    #[error("queue {queue:?} names the dead-letter queue {dead:?}, which does not come before it")]
    NoDeadLetterQueue {
        /// The queue.
        queue: String,
        /// The dead-letter queue that it names.
        dead: String,
    },
    /// The messages could not be read back.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl Server {
    /// Starts one on a free port of this machine.
    ///
    /// # Errors
    ///
    /// See [`ServerError`].
    pub async fn start(queues: &[Settings], storage: &Storage) -> Result<Self, ServerError> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .map_err(ServerError::Listen)?;
        Self::serve(listener, queues, storage, Arc::new(SystemSource))
    }

    /// Starts one on `listener`, with a clock of one's own.
    ///
    /// # Errors
    ///
    /// See [`ServerError`].
    pub fn serve(
        listener: TcpListener,
        queues: &[Settings],
        storage: &Storage,
        source: Arc<dyn Source>,
    ) -> Result<Self, ServerError> {
        let address = listener.local_addr().map_err(ServerError::Listen)?;
        let queues = Queues {
            endpoint: Arc::from(format!("http://{address}")),
            by_name: Arc::new(open(queues, storage, &source)?),
        };
        let router = Router::new().fallback(answer).with_state(queues.clone());
        let serving = Serving::router(listener, router).map_err(ServerError::Listen)?;
        Ok(Self { serving, queues })
    }

    /// Its endpoint URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.queues.endpoint
    }

    /// A queue's URL, whether or not there is a queue of that name.
    #[must_use]
    pub fn queue_url(&self, name: &str) -> String {
        self.queues.url(name)
    }

    /// A queue, to use it in this process.
    ///
    /// # Errors
    ///
    /// [`Refused::NoQueue`]: there is none of that name.
    pub fn queue(&self, name: &str) -> Result<Queue, Refused> {
        self.queues
            .by_name
            .get(name)
            .cloned()
            .ok_or(Refused::NoQueue)
    }

    /// Stops it. Long polls are cut off after a second.
    pub async fn stop(self) {
        self.serving.stop(Duration::from_secs(1)).await;
    }
}

/// The URL of the queue `name` on the server at `endpoint`.
#[must_use]
pub fn queue_url(endpoint: &str, name: &str) -> String {
    format!("{endpoint}/{ACCOUNT}/{name}")
}

/// The queues of one server.
#[derive(Clone, Debug)]
struct Queues {
    endpoint: Arc<str>,
    by_name: Arc<BTreeMap<String, Queue>>,
}

impl Queues {
    fn url(&self, name: &str) -> String {
        queue_url(&self.endpoint, name)
    }
}

fn open(
    settings: &[Settings],
    storage: &Storage,
    source: &Arc<dyn Source>,
) -> Result<BTreeMap<String, Queue>, ServerError> {
    let mut queues = BTreeMap::new();
    for settings in settings {
        let name = &settings.name;
        let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 80 || !name.chars().all(known) {
            return Err(ServerError::Name(name.clone()));
        }
        let redrive = match &settings.redrive {
            None => None,
            Some(redrive) => {
                let dead: &Queue =
                    queues
                        .get(&redrive.queue)
                        .ok_or_else(|| ServerError::NoDeadLetterQueue {
                            queue: name.clone(),
                            dead: redrive.queue.clone(),
                        })?;
                Some((dead.clone(), redrive.max_receives))
            }
        };
        let folder = match storage {
            Storage::Memory => None,
            Storage::Folder(path) => Some(folder::Folder::open(path.join(name))?),
        };
        let queue = Queue::open(settings, redrive, folder, Arc::clone(source))?;
        queues.insert(name.clone(), queue);
    }
    Ok(queues)
}

async fn answer(State(queues): State<Queues>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let action = head
        .headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok())
        .and_then(|target| target.strip_prefix("AmazonSQS."))
        .unwrap_or_default()
        .to_owned();
    let answer = match to_bytes(body, REQUEST_LIMIT).await {
        Ok(body) => actions::answer(&queues, &action, &body).await,
        Err(_) => Err(Refused::Invalid("the request is too long".to_owned())),
    };
    let (status, body, refused) = match answer {
        Ok(answer) => (StatusCode::OK, answer, None),
        Err(refused) => (refused.status(), refused.to_json(), Some(refused)),
    };
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let json = axum::http::HeaderValue::from_static("application/x-amz-json-1.0");
    headers.insert(axum::http::header::CONTENT_TYPE, json);
    if let Ok(id) = uuid::Uuid::new_v4().to_string().parse() {
        headers.insert("x-amzn-requestid", id);
    }
    // SDKs take the error's code from here, as it was before SQS spoke JSON.
    if let Some(code) = refused.and_then(|refused| refused.query_error().parse().ok()) {
        headers.insert("x-amzn-query-error", code);
    }
    response
}

#[cfg(test)]
mod tests;
