//! The Lambda Runtime API for one process: hands out invocations and takes the answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstclaim::clock::{EpochMillis, Source, SystemSource};
use hyper::body::Bytes;
use hyper::{Method, Request};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};

use crate::http::{Reply, Server, answer};

/// The function's ARN in every invocation.
const ARN: &str = "arn:aws:lambda:us-east-1:000000000000:function:firstclaim-test";

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a response.
    Response(Vec<u8>),
    /// With an error, as the runtime reported it.
    Error(Vec<u8>),
    /// The process was gone before it had answered.
    Killed,
}

/// How far a process has come with starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// It has not been heard of.
    No,
    /// It asked for work.
    Ready,
    /// It reported that it can't start.
    Failed(String),
}

/// The Runtime API of one process.
#[derive(Debug)]
pub struct RuntimeApi {
    server: Server,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    queue: mpsc::UnboundedSender<Invocation>,
    waiting: AsyncMutex<mpsc::UnboundedReceiver<Invocation>>,
    pending: Mutex<HashMap<String, oneshot::Sender<Ended>>>,
    started: watch::Sender<Started>,
}

#[derive(Debug)]
struct Invocation {
    id: String,
    event: Vec<u8>,
    deadline: EpochMillis,
}

impl RuntimeApi {
    /// A Runtime API that no process has asked yet.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let (queue, waiting) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            queue,
            waiting: AsyncMutex::new(waiting),
            pending: Mutex::default(),
            started: watch::Sender::new(Started::No),
        });
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| Arc::clone(&shared).serve(request)).await?;
        Ok(Self { server, state })
    }

    /// What `AWS_LAMBDA_RUNTIME_API` must say.
    #[must_use]
    pub fn authority(&self) -> String {
        self.server.authority()
    }

    /// Waits until the process has asked for work or reported that it can't start.
    pub async fn started(&self) -> Started {
        let mut started = self.state.started.subscribe();
        match started.wait_for(|now| *now != Started::No).await {
            Ok(now) => now.clone(),
            Err(_) => Started::No,
        }
    }

    /// Hands an event to the process and waits for its answer; `time` is what the deadline leaves.
    pub async fn invoke(&self, event: Vec<u8>, time: Duration) -> Ended {
        let id = uuid::Uuid::new_v4().to_string();
        let (answer, ended) = oneshot::channel();
        self.state.pending().insert(id.clone(), answer);
        let deadline = SystemSource.now().after(time);
        // The receiver lives in the same state.
        let _ = self.state.queue.send(Invocation {
            id,
            event,
            deadline,
        });
        ended.await.unwrap_or(Ended::Killed)
    }

    /// Ends every invocation that has no answer yet: the process is gone.
    pub fn killed(&self) {
        self.state.pending().clear();
    }
}

impl State {
    fn pending(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Ended>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, request: Request<Bytes>) -> Reply {
        let path = request.uri().path();
        let Some(path) = path.strip_prefix("/2018-06-01/runtime/") else {
            return answer(404, &[], "");
        };
        match (
            request.method(),
            path.split('/').collect::<Vec<_>>().as_slice(),
        ) {
            (&Method::GET, ["invocation", "next"]) => self.next().await,
            (&Method::POST, ["invocation", id, "response"]) => {
                self.end(id, Ended::Response(request.body().to_vec()))
            }
            (&Method::POST, ["invocation", id, "error"]) => {
                self.end(id, Ended::Error(request.body().to_vec()))
            }
            (&Method::POST, ["init", "error"]) => {
                let text = String::from_utf8_lossy(request.body()).into_owned();
                self.started.send_replace(Started::Failed(text));
                answer(202, &[], "")
            }
            _ => answer(404, &[], ""),
        }
    }

    async fn next(&self) -> Reply {
        self.started.send_replace(Started::Ready);
        let mut waiting = self.waiting.lock().await;
        let Some(invocation) = waiting.recv().await else {
            return Reply::Close;
        };
        let random = uuid::Uuid::new_v4().simple().to_string();
        let (root, parent) = (&random[..24], &random[16..]);
        let trace = format!("Root=1-6af5b0d4-{root};Parent={parent};Sampled=1");
        let headers = [
            ("Lambda-Runtime-Aws-Request-Id", invocation.id.as_str()),
            (
                "Lambda-Runtime-Deadline-Ms",
                &invocation.deadline.0.to_string(),
            ),
            ("Lambda-Runtime-Invoked-Function-Arn", ARN),
            ("Lambda-Runtime-Trace-Id", &trace),
            ("Content-Type", "application/json"),
        ];
        answer(200, &headers, invocation.event)
    }

    fn end(&self, id: &str, ended: Ended) -> Reply {
        match self.pending().remove(id) {
            Some(waiting) => {
                // Nobody listens any more where the test has given up, and then nobody needs it.
                let _ = waiting.send(ended);
                answer(202, &[], r#"{"status":"OK"}"#)
            }
            None => answer(403, &[], r#"{"errorType":"InvalidRequestID"}"#),
        }
    }
}
