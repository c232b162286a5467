//! Several responders, each a worker of its own that is woken by every event of its threads: they
//! are killed, the threads server loses answers, and the target fails. Then every event is looked
//! at: one effect, one reply, one result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use firstclaim::record::{Data, Status};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::store::{Read, Store};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::lab::Log;
use crate::queue_stub::QueueStub;
use crate::soak::target::Idempotent;
use crate::threads::{Dialect, ThreadsServer};

mod responder;

use responder::Responder;

const DEAD: &str = "responders-dead";

const REPO: &str = "teams/platform/website";

/// Of a hundred calls of the threads server so many go wrong.
const TROUBLE: u64 = 15;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many events there are; each is delivered to every responder.
    pub events: usize,
    /// How many responders.
    pub responders: usize,
    /// The seed of everything random, except what the machine adds.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was done.
    pub plan: Plan,
    /// Workers that were killed.
    pub killed: usize,
    /// Calls of the threads server that were done and not answered.
    pub dropped: usize,
    /// Calls of the target, those that failed included.
    pub calls: usize,
    /// Effects at the target.
    pub effects: usize,
    /// Effects beyond the first of an event.
    pub doubled: usize,
    /// Replies that carry a key.
    pub replies: usize,
    /// Events without exactly one reply.
    pub not_one_reply: Vec<String>,
    /// Events whose record is not completed, or names another reply than the thread's.
    pub other_results: Vec<String>,
    /// Acknowledged deliveries that told of another result than the event's, and those that lack.
    pub other_answers: Vec<String>,
    /// Acknowledged deliveries.
    pub answers: usize,
    /// What the agents say that they do, in the end.
    pub activity: String,
    /// Dead letters.
    pub dead: usize,
    /// What the workers did against the protocol.
    pub faults: Vec<String>,
    /// The time that it took.
    pub took: Duration,
}

impl Report {
    /// What is not as it should be.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut say = |is: bool, what: String| {
            if is {
                wrong.push(what);
            }
        };
        let events = self.plan.events;
        say(self.effects != events, format!("{} effects", self.effects));
        say(
            self.doubled > 0,
            format!("{} effects doubled", self.doubled),
        );
        say(
            !self.not_one_reply.is_empty(),
            format!("replies of {:?}", self.not_one_reply),
        );
        say(
            !self.other_results.is_empty(),
            format!("results of {:?}", self.other_results),
        );
        say(
            !self.other_answers.is_empty(),
            format!("answers of {:?}", self.other_answers),
        );
        say(
            !self.activity.is_empty(),
            format!("activity {:?}", self.activity),
        );
        say(self.dead > 0, format!("{} dead letters", self.dead));
        say(!self.faults.is_empty(), format!("faults {:?}", self.faults));
        wrong
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            events, responders, ..
        } = self.plan;
        write!(
            f,
            "{events} events to {responders} responders, {} of them killed, {} answers of the \
             threads server lost: {} effects ({} doubled), {} replies ({} events without exactly \
             one), {} of {} survivors' results the same, activity {}",
            self.killed,
            self.dropped,
            self.effects,
            self.doubled,
            self.replies,
            self.not_one_reply.len(),
            self.answers - self.other_answers.len().min(self.answers),
            self.answers,
            if self.activity.is_empty() {
                "clear"
            } else {
                "left"
            },
        )
    }
}

/// What everybody shares.
#[derive(Debug)]
struct Shared {
    killed: AtomicUsize,
    left: AtomicUsize,
}

/// Runs it with this binary as worker; `show` is told now and then how many deliveries are left.
///
/// # Errors
///
/// A part of it failed by itself.
pub async fn run(plan: Plan, worker: &Path, show: impl Fn(usize)) -> anyhow::Result<Report> {
    let started = Instant::now();
    let engine = Engine::start(None).await?;
    let table = engine.create_table().await?;
    let queues = QueueStub::start().await?;
    let target = Idempotent::start(plan.seed).await?;
    let dialect = match plan.seed % 2 {
        0 => Dialect::MODERN,
        _ => Dialect::LEGACY.streaming(),
    };
    let threads = ThreadsServer::speaking(dialect).await?;
    threads.misbehave(plan.seed, TROUBLE);
    let variables: BTreeMap<String, String> = [
        ("CLAIMS_TABLE", table.clone()),
        ("AWS_ENDPOINT_URL_DYNAMODB", engine.endpoint().to_owned()),
        ("AWS_ENDPOINT_URL_SQS", queues.endpoint()),
        ("DEAD_LETTER_URL", queues.queue_url(DEAD)),
        ("TARGET_URL", target.url()),
        ("THREADS_URL", threads.url()),
        ("RUST_LOG", "info".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();

    let log = Log::default();
    let shared = Arc::new(Shared {
        killed: AtomicUsize::new(0),
        left: AtomicUsize::new(plan.events * plan.responders),
    });
    let mut running = Vec::new();
    for number in 0..plan.responders {
        let shared = Arc::clone(&shared);
        let responder = Responder::start(number, plan, worker, &variables, &log, shared).await?;
        running.push(tokio::spawn(responder.run()));
    }
    while !running.iter().all(tokio::task::JoinHandle::is_finished) {
        show(shared.left.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for responder in running {
        responder.await?.with_context(|| log.text())?;
    }

    let store = DynamoDb::new(engine.client().clone(), &table);
    let answers = answers(&log);
    let mut report = Report {
        plan,
        killed: shared.killed.load(Ordering::SeqCst),
        dropped: threads.dropped(),
        calls: target.calls(),
        effects: target.effects(),
        doubled: target.doubled(),
        replies: 0,
        not_one_reply: Vec::new(),
        other_results: Vec::new(),
        other_answers: Vec::new(),
        answers: answers.values().map(Vec::len).sum(),
        activity: threads.activity(),
        dead: queues.messages(DEAD).len(),
        faults: threads.faults(),
        took: started.elapsed(),
    };
    for event in 0..plan.events {
        let key = Event(event).key();
        let mark = format!("firstclaim-key: {key}");
        let replies = threads.replies(REPO, Event(event).number());
        let mut replies = replies
            .iter()
            .filter(|reply| reply.body.lines().any(|line| line == mark));
        let reply = replies.next().map(|reply| reply.id.clone());
        let more = replies.count();
        report.replies += usize::from(reply.is_some()) + more;
        if reply.is_none() || more > 0 {
            report.not_one_reply.push(key.clone());
        }
        let record = store.read(&key, Read::Consistent).await?;
        let result = record.and_then(|record| match (record.status, record.data) {
            (Status::Completed, Some(Data::Inline(text))) => serde_json::from_str(&text).ok(),
            _ => None,
        });
        let result: Value = result.unwrap_or_default();
        if result["reply"].as_str() != reply.as_deref() || result["applied"]["status"] != 200 {
            report.other_results.push(key.clone());
        }
        let told = answers.get(&key).map_or(&[][..], Vec::as_slice);
        let others = told.iter().filter(|told| **told != reply);
        report.other_answers.extend(others.map(|_| key.clone()));
        // Every responder has had its answer.
        if told.len() < plan.responders {
            report.other_answers.push(key);
        }
    }
    Ok(report)
}

/// An event of one of a few threads.
#[derive(Clone, Copy, Debug)]
struct Event(usize);

impl Event {
    fn number(self) -> u64 {
        // Keys of several events stand in one thread, and some begin like others.
        (self.0 % 20) as u64 + 1
    }

    fn key(self) -> String {
        format!("thread#{REPO}:{}:{}", self.number(), self.0)
    }

    fn body(self) -> String {
        json!({
            "scopes": [format!("thread:{REPO}/{}", self.number())],
            "revision": self.0,
            "payload": {"event": self.0},
        })
        .to_string()
    }
}

/// For each key the reply that each acknowledged delivery told of.
fn answers(log: &Log) -> BTreeMap<String, Vec<Option<String>>> {
    let mut answers: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let done = BTreeSet::from(["performed", "replayed", "not_recorded"]);
    for line in log.text().lines() {
        let Some((_, line)) = line.split_once("| ") else {
            continue;
        };
        let Ok(said) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let outcome = said["outcome"].as_str().unwrap_or_default();
        if said["target"] == "firstclaim::record" && done.contains(outcome) {
            let key = said["key"].as_str().unwrap_or_default().to_owned();
            let reply = said["reply"].as_str().map(str::to_owned);
            answers.entry(key).or_default().push(reply);
        }
    }
    answers
}
