//! What is said about a record.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use firstclaim::clock::ManualSource;
use firstclaim::record::Data;
use firstclaim::store::memory::Memory;
use firstclaim::{Owner, Policy, Status};
use serde_json::Value;

use crate::rig::{Plan, RUN, Rig, body, record, returned};
use crate::stub::Reply;

thread_local! {
    /// What was logged on this thread, which is one test's own.
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Logs of this process go to the tests that make them. Every rig asks for this before anything is
/// logged: a subscriber that comes while others log can miss a place for good.
pub(crate) fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(|| Lines)
            .init();
    });
}

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Outcome and key in the event of this message.
pub(crate) fn told(message_id: &str) -> [String; 2] {
    let text = LINES.with_borrow(|lines| String::from_utf8_lossy(lines).into_owned());
    let mut events = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["target"] == "firstclaim::record");
    let event = events.find(|event| event["message_id"] == message_id);
    let event = event.unwrap_or_default();
    ["outcome", "key"].map(|field| event[field].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn each_record_is_one_event_with_key_attempt_outcome_and_answer() {
    let rig = Rig::new(Plan::default()).await;
    rig.handle(&[
        record("a", &body("a", 200)),
        record("b\u{7}\u{1b}[31m", &body("b", 503)),
        record("c", &body("c", 422)),
        record("d", "s3cr3t that is not json"),
        record(
            "e",
            "{\"v\":1,\"key\":\"a#b\",\"sender\":\"a\",\"thread\":\"s3cr3t\"}",
        ),
    ])
    .await;
    let text = String::from_utf8(LINES.take()).unwrap();
    assert!(!text.contains("s3cr3t"), "a body is never logged: {text}");
    assert!(!text.contains("\\u001b"), "no control characters: {text}");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["target"] == "firstclaim::record")
        .collect();
    let told = |id: &str| {
        let event = events
            .iter()
            .find(|event| event["message_id"] == id)
            .unwrap();
        assert!(event["ms"].is_u64());
        assert_eq!(event["span"]["requestId"], "request-1");
        ["outcome", "key", "attempt", "code", "answer"].map(|field| event[field].to_string())
    };
    assert_eq!(events.len(), 5, "{text}");
    assert_eq!(
        told("a"),
        [
            "\"performed\"",
            "\"queue#a\"",
            "1",
            "null",
            "\"acknowledged\""
        ]
    );
    assert_eq!(
        told("b\u{fffd}\u{fffd}[31m"),
        [
            "\"retryable\"",
            "\"queue#b\"",
            "1",
            "\"target_503\"",
            "\"returned\""
        ]
    );
    assert_eq!(
        told("c"),
        [
            "\"permanent\"",
            "\"queue#c\"",
            "1",
            "\"target_422\"",
            "\"dead_lettered\""
        ]
    );
    assert_eq!(
        told("d"),
        [
            "\"undecodable\"",
            "null",
            "null",
            "\"not_an_object\"",
            "\"dead_lettered\""
        ]
    );
}

#[tokio::test]
async fn every_record_is_counted_once_by_outcome_and_configured_sender_never_by_key() {
    let rig = Rig::new(Plan::default()).await;
    let odd = "{\"v\":1,\"key\":\"a#b\",\"sender\":\"Not A Sender\",\"body\":\"{}\"}";
    rig.handle(&[
        record("a", &body("a", 200)),
        record("again", &body("a", 200)),
        record("b", &body("b", 503)),
        record("c", &body("c", 422)),
        record("d", &body("d", 401)),
        record("e", "no json"),
        record("f", odd),
    ])
    .await;
    let mut metrics = Vec::new();
    rig.worker.flush_metrics(&mut metrics).unwrap();
    let lines: Vec<Value> = String::from_utf8(metrics)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let counted = |sender: Option<&str>| {
        let line = lines.iter().find(|line| line["sender"].as_str() == sender);
        let line = line.unwrap_or_else(|| panic!("no line for {sender:?}: {lines:?}"));
        assert_eq!(line["service"], "queue");
        [
            "Performed",
            "Replayed",
            "Retryable",
            "Permanent",
            "TargetMisconfigured",
        ]
        .map(|name| line[name].as_u64().unwrap_or(0))
    };
    assert_eq!(counted(Some("queue")), [1, 1, 1, 1, 1]);
    assert_eq!(counted(None), [1, 0, 0, 1, 0]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains("Not A Sender"), "{text}");
}

/// What becomes of the record while the target is at it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Lapses,
    TakenOver,
    DoneByAnother,
}

#[tokio::test]
async fn n47_a_claim_that_is_lost_while_the_target_is_called_is_counted() {
    for (policy, status, meanwhile, answer, counted) in [
        (
            Policy::Rerun,
            200,
            Meanwhile::Lapses,
            returned(&[]),
            [1, 0, 0, 1],
        ),
        (
            Policy::Rerun,
            200,
            Meanwhile::TakenOver,
            returned(&["m"]),
            [0, 0, 1, 1],
        ),
        (
            Policy::Rerun,
            200,
            Meanwhile::DoneByAnother,
            returned(&[]),
            [0, 0, 1, 1],
        ),
        // What a late one failed at is no more than the new owner's: no letter, no back-off.
        (
            Policy::Rerun,
            503,
            Meanwhile::TakenOver,
            returned(&["m"]),
            [0, 0, 1, 1],
        ),
        (
            Policy::Hold,
            503,
            Meanwhile::TakenOver,
            returned(&["m"]),
            [0, 0, 1, 1],
        ),
    ] {
        let world: Arc<OnceLock<(ManualSource, Memory)>> = Arc::default();
        let there = Arc::clone(&world);
        let plan = Plan {
            policy,
            ..Plan::default()
        };
        let rig = Rig::answering(plan, move |_seen| {
            let (source, memory) = there.get().unwrap();
            source.advance(RUN + Duration::from_secs(3));
            let mut record = memory.records().remove(0);
            if meanwhile != Meanwhile::Lapses {
                record.owner = Some(Owner::new("another"));
                record.attempt += 1;
            }
            if meanwhile == Meanwhile::DoneByAnother {
                record.status = Status::Completed;
                record.data = Some(Data::Inline(r#"{"status":200,"body":"its"}"#.to_owned()));
            }
            memory.put(record);
            Reply::status(status)
        })
        .await;
        world.set((rig.source.clone(), rig.memory.clone())).unwrap();
        let said = rig.handle(&[record("m", &body("k", 200))]).await;
        assert_eq!(said, answer, "{meanwhile:?}");
        assert_eq!(rig.queues.letters(), []);
        assert_eq!(rig.queues.visibilities(), []);
        let mut metrics = Vec::new();
        rig.worker.flush_metrics(&mut metrics).unwrap();
        let line: Value = serde_json::from_slice(&metrics).unwrap();
        let names = ["Performed", "Replayed", "Superseded", "LeaseLost"];
        let seen = names.map(|name| line[name].as_u64().unwrap_or(0));
        assert_eq!(seen, counted, "{meanwhile:?}: {line}");
    }
}
