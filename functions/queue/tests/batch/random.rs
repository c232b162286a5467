//! Random batches of good, bad, duplicate, slow and panicking records, some in flight elsewhere:
//! nothing is lost, nothing is returned that was not there, order is kept.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use firstclaim::Claims;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use queue::Target;
use serde_json::{Value, json};

use crate::rig::{Plan, RUN, Rig, answer_in_body, body, fifo, record, target_at};
use crate::stub::Stub;

#[derive(Clone, Debug)]
struct Planned {
    kind: Kind,
    group: u8,
    with_id: bool,
    /// Whether its dead letter panics, if it comes to one.
    panics: bool,
}

/// The target never answers this.
const SLOW: u16 = 0;

/// How long the target is waited for: long enough for a busy machine, as most cases have no slow
/// record.
const PATIENCE: Duration = Duration::from_millis(600);

#[derive(Clone, Debug)]
enum Kind {
    /// Another worker is at it.
    InFlight,
    Message {
        key: u8,
        answer: u16,
    },
    Garbage,
    NoBody,
    FutureVersion,
}

fn planned() -> impl Strategy<Value = Planned> {
    let answer = prop_oneof![
        4 => Just(200_u16),
        1 => Just(204_u16),
        1 => Just(422_u16),
        1 => Just(429_u16),
        1 => Just(503_u16),
        1 => Just(404_u16),
        1 => Just(1_u16),
    ];
    let answer = prop_oneof![60 => answer, 1 => Just(SLOW)];
    let kind = prop_oneof![
        1 => Just(Kind::InFlight),
        8 => (0..5_u8, answer).prop_map(|(key, answer)| Kind::Message { key, answer }),
        1 => Just(Kind::Garbage),
        1 => Just(Kind::NoBody),
        1 => Just(Kind::FutureVersion),
    ];
    let rarely = prop::bool::weighted(0.05);
    (kind, 0..3_u8, rarely, rarely).prop_map(|(kind, group, no_id, panics)| Planned {
        kind,
        group,
        with_id: !no_id,
        panics,
    })
}

/// The key that another worker holds.
const IN_FLIGHT: &str = "in-flight";

fn event(at: usize, planned: &Planned, ordered: bool) -> Value {
    let body = match &planned.kind {
        Kind::Message { key, answer } => body(&format!("k{key}"), *answer),
        Kind::InFlight => body(IN_FLIGHT, 200),
        Kind::Garbage => "garbage".to_owned(),
        Kind::NoBody => String::new(),
        Kind::FutureVersion => "{\"v\":2}".to_owned(),
    };
    let id = format!("m{at}");
    let mut event = if ordered {
        fifo(&id, &format!("g{}", planned.group), &body)
    } else {
        record(&id, &body)
    };
    if !planned.with_id {
        event["messageId"] = json!(null);
    }
    event
}

async fn check(
    (stub, target): &(Arc<Stub>, Target),
    batch: &[Planned],
    ordered: bool,
    dead_letters: bool,
    hold: bool,
) -> Result<(), TestCaseError> {
    let policy = if hold {
        firstclaim::Policy::Hold
    } else {
        firstclaim::Policy::Rerun
    };
    let plan = Plan {
        policy,
        dead_letters,
        ..Plan::default()
    };
    stub.forget();
    let rig = Rig::over(&plan, Arc::clone(stub), target.clone());
    let elsewhere = Claims::new(rig.memory.clone(), rig.config.clone()).unwrap();
    let key = firstclaim::Key::new("queue", IN_FLIGHT).unwrap();
    let elsewhere = elsewhere.with_source(rig.source.clone());
    let until = rig.source_now().after(RUN);
    let _held = elsewhere.once(key).deadline(until).claim().await.unwrap();
    for at in (0..batch.len()).filter(|at| batch[*at].panics) {
        rig.queues.panic_on(&format!("m{at}"));
    }
    let events: Vec<_> = batch
        .iter()
        .enumerate()
        .map(|(at, planned)| event(at, planned, ordered))
        .collect();
    let answer = rig.worker.handle(rig.event(&events)).await;
    let returned: Vec<_> = answer
        .batch_item_failures
        .iter()
        .map(|item| item.item_identifier.as_str())
        .collect();

    // Identifiers come from the batch, in its order, each once.
    let known: BTreeMap<String, usize> = (0..batch.len())
        .filter(|at| batch[*at].with_id)
        .map(|at| (format!("m{at}"), at))
        .collect();
    let places: Option<Vec<usize>> = returned.iter().map(|id| known.get(*id).copied()).collect();
    let places = places.ok_or_else(|| TestCaseError::fail(format!("foreign: {returned:?}")))?;
    prop_assert!(
        places.windows(2).all(|pair| pair[0] < pair[1]),
        "{:?}",
        places
    );
    let returned: BTreeSet<usize> = places.into_iter().collect();

    // What is not returned was done, or is a dead letter.
    let letters = rig.queues.letters();
    for (at, planned) in batch
        .iter()
        .enumerate()
        .filter(|(_, planned)| planned.with_id)
    {
        let id = format!("m{at}");
        let dead = letters
            .iter()
            .any(|letter| letter.message_id.as_deref() == Some(&id));
        prop_assert!(
            !(dead && returned.contains(&at)),
            "{} is dead and returned",
            id
        );
        let done = match &planned.kind {
            Kind::Message { key, .. } => rig
                .record(&format!("queue#k{key}"))
                .is_some_and(|record| record.status != firstclaim::Status::InProgress),
            _ => false,
        };
        prop_assert!(done || dead || returned.contains(&at), "{} is lost", id);
        if let Kind::InFlight = planned.kind {
            prop_assert!(returned.contains(&at), "{} is somebody else's", id);
        }
    }
    prop_assert!(dead_letters || letters.is_empty());

    // Each operation was done at most once for good.
    let mut succeeded = BTreeMap::<String, usize>::new();
    for seen in rig.stub.seen() {
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        if body["answer"]
            .as_u64()
            .is_some_and(|answer| (200..300).contains(&answer))
        {
            let key = seen.header("firstclaim-key").unwrap_or_default().to_owned();
            *succeeded.entry(key).or_default() += 1;
        }
    }
    prop_assert!(
        succeeded.values().all(|times| *times == 1),
        "{:?}",
        succeeded
    );

    if ordered {
        for group in 0..3 {
            let members: Vec<_> = (0..batch.len())
                .filter(|at| batch[*at].group == group)
                .collect();
            // Behind the first returned one everything with an identifier is returned.
            let first = members.iter().position(|at| returned.contains(at));
            for at in first.map_or(&[][..], |first| &members[first..]) {
                prop_assert!(
                    !batch[*at].with_id || returned.contains(at),
                    "m{} overtook",
                    at
                );
            }
            // The target saw the group in its order.
            let seen: Vec<usize> = rig
                .stub
                .seen()
                .iter()
                .filter_map(|seen| known.get(seen.header("firstclaim-delivery")?).copied())
                .filter(|at| batch[*at].group == group)
                .collect();
            prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", seen);
        }
    }
    Ok(())
}

#[test]
fn p92_n25_nothing_of_a_batch_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(async {
        let stub = Arc::new(Stub::new(answer_in_body).await);
        let target = target_at(&stub.url, PATIENCE);
        (stub, target)
    });
    let config = ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let batches = (
        prop::collection::vec(planned(), 0..12),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    TestRunner::new(config)
        .run(&batches, |(batch, ordered, dead_letters, hold)| {
            runtime.block_on(check(&server, &batch, ordered, dead_letters, hold))
        })
        .unwrap();
}
