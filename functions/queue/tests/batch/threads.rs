//! Events of threads where the store fails between two steps. (The whole scenario, with processes
//! and a server that loses answers, is in the integration tests.)
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't have its server fails"
)]

use std::sync::{Arc, Mutex};

use firstclaim::record::RELEASED;
use firstclaim::store::memory::{Failing, Fault, Memory};
use firstclaim::{Policy, Status};
use queue::config::ThreadsSettings;
use queue::queues::Reason;
use queue::{Threads, Worker};
use serde_json::{Value, json};

use crate::rig::{Kept, Plan, Rig, record, returned};
use crate::stub::{Reply, Stub};

const KEY: &str = "thread#teams/platform/website:42:7";

/// A threads server with one thread, and what was called there.
struct Server {
    stub: Stub,
    posted: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    async fn new() -> Self {
        let posted: Arc<Mutex<Vec<Value>>> = Arc::default();
        let replies = Arc::clone(&posted);
        let stub = Stub::new(move |seen| {
            let body: Value = serde_json::from_slice(&seen.body).unwrap();
            let mut replies = replies.lock().unwrap();
            let arguments = &body["params"]["arguments"];
            let result = match body["params"]["name"].as_str().unwrap() {
                "get_thread_context" => json!({"state": "open", "replies": *replies}),
                "create_reply" => {
                    let reply = json!({"id": replies.len(), "body": arguments["body"]});
                    replies.push(reply.clone());
                    reply
                }
                _ => json!({}),
            };
            let answer = json!({
                "jsonrpc": "2.0", "id": body["id"], "result": {"structuredContent": result},
            });
            Reply::Answer {
                status: 200,
                headers: Vec::new(),
                body: answer.to_string().into_bytes(),
            }
        });
        let stub = stub.await;
        Self { stub, posted }
    }

    /// The rig's worker with this server.
    fn told_by(&self, rig: &Rig) -> Worker<Failing<Memory>, Kept> {
        let settings = ThreadsSettings::at(self.stub.url.parse().unwrap());
        let sdk = aws_config::SdkConfig::builder().build();
        let threads = Threads::new(settings, &rig.target, &sdk).unwrap();
        rig.worker.clone().with_threads(Some(threads))
    }

    fn replies(&self) -> usize {
        self.posted.lock().unwrap().len()
    }
}

fn event() -> Value {
    let body = json!({"scopes": ["thread:teams/platform/website/42"], "revision": 7});
    record("m", &body.to_string())
}

async fn handle(rig: &Rig, worker: &Worker<Failing<Memory>, Kept>) -> String {
    let answer = worker.handle(rig.event(&[event()])).await;
    serde_json::to_string(&answer).unwrap()
}

#[tokio::test]
async fn an_event_of_a_thread_costs_four_writes_and_one_read() {
    for (policy, calls) in [(Policy::Rerun, 5), (Policy::Hold, 6)] {
        let rig = Rig::new(Plan {
            policy,
            ..Plan::default()
        })
        .await;
        let server = Server::new().await;
        let worker = server.told_by(&rig);
        assert_eq!(handle(&rig, &worker).await, returned(&[]));
        assert_eq!(rig.store.calls(), calls);
        assert_eq!((rig.effects(), server.replies()), (1, 1));
        assert_eq!(server.stub.seen().len(), 5);
        assert_eq!(rig.status(KEY), Some(Status::Completed));
        // Two connections at the most: the target's and the server's are one client's.
        assert_eq!(server.stub.connections(), 1);
    }
}

#[tokio::test]
async fn what_was_applied_and_could_not_be_noted_is_asked_again_or_held() {
    for policy in [Policy::Rerun, Policy::Hold] {
        let rig = Rig::new(Plan {
            policy,
            ..Plan::default()
        })
        .await;
        let server = Server::new().await;
        let worker = server.told_by(&rig);
        let before = match policy {
            Policy::Rerun => 1,
            Policy::Hold => 2,
        };
        rig.store.plan(vec![Fault::None; before]);
        rig.store.plan([Fault::Refuse; 4]);
        let answer = handle(&rig, &worker).await;
        assert_eq!((rig.effects(), server.replies()), (1, 0));
        let letters = rig.queues.letters();
        match policy {
            Policy::Rerun => {
                assert_eq!(answer, returned(&["m"]));
                assert_eq!(rig.record(KEY).unwrap().lease, Some(RELEASED));
                assert_eq!(handle(&rig, &worker).await, returned(&[]));
                assert_eq!((rig.effects(), server.replies()), (2, 1));
                let sent = rig.stub.seen();
                assert_eq!(
                    sent[0].header("idempotency-key"),
                    sent[1].header("idempotency-key")
                );
            }
            Policy::Hold => {
                assert_eq!(answer, returned(&[]));
                assert_eq!(letters.len(), 1);
                assert_eq!(letters[0].reason, Reason::Held);
            }
        }
    }
}

#[tokio::test]
async fn without_knowing_whose_the_key_is_nothing_is_posted() {
    for policy in [Policy::Rerun, Policy::Hold] {
        let rig = Rig::new(Plan {
            policy,
            ..Plan::default()
        })
        .await;
        let server = Server::new().await;
        let worker = server.told_by(&rig);
        let before = match policy {
            Policy::Rerun => 2,
            Policy::Hold => 3,
        };
        rig.store.plan(vec![Fault::None; before]);
        rig.store.plan([Fault::Refuse]);
        assert_eq!(handle(&rig, &worker).await, returned(&["m"]));
        assert_eq!((rig.effects(), server.replies()), (1, 0));
        // Given back under both policies: what the target has done is in the record.
        assert_eq!(rig.record(KEY).unwrap().lease, Some(RELEASED));
        assert_eq!(handle(&rig, &worker).await, returned(&[]));
        assert_eq!((rig.effects(), server.replies()), (1, 1));
        assert_eq!(rig.queues.letters(), []);
    }
}

#[tokio::test]
async fn a_reply_that_could_not_be_noted_is_found_by_the_next_attempt() {
    let rig = Rig::new(Plan::default()).await;
    let server = Server::new().await;
    let worker = server.told_by(&rig);
    rig.store.plan([Fault::None, Fault::None, Fault::None]);
    rig.store.plan([Fault::Refuse; 4]);
    assert_eq!(handle(&rig, &worker).await, returned(&["m"]));
    assert_eq!(server.replies(), 1);
    assert_eq!(handle(&rig, &worker).await, returned(&[]));
    assert_eq!((rig.effects(), server.replies()), (1, 1));
    assert_eq!(rig.status(KEY), Some(Status::Completed));
}
