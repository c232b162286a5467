//! Long outages, on a clock that is moved by hand: messages wait in a queue that hides, counts and
//! gives up as SQS does.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use firstclaim::Status;
use firstclaim::clock::{EpochMillis, ManualSource, Source};
use firstclaim::store::memory::Fault;
use serde_json::Value;

use crate::rig::{NOW, Plan, Rig, body, record, returned, target_at};
use crate::stub::{Reply, Stub};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The visibility of the deployed queue.
const VISIBILITY: Duration = Duration::from_secs(360);

struct Waiting {
    id: String,
    body: String,
    visible: EpochMillis,
    receives: u32,
}

/// After how many receives the deployed queue gives a message up.
fn most_receives() -> u32 {
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/template.yaml");
    let template = std::fs::read_to_string(template).unwrap();
    let (_, rest) = template.split_once("maxReceiveCount: ").unwrap();
    rest.lines().next().unwrap().trim().parse().unwrap()
}

/// Works through `count` messages until the queue is empty; how many it gave up. The store does not
/// answer for the time `away` from the beginning.
async fn drain(rig: &Rig, clock: &ManualSource, count: usize, away: Duration) -> usize {
    let most = most_receives();
    let mut given_up = 0;
    let mut queue: Vec<Waiting> = (0..count)
        .map(|at| Waiting {
            id: format!("m{at}"),
            body: body(&format!("k{at}"), 200),
            visible: NOW,
            receives: 0,
        })
        .collect();
    while !queue.is_empty() {
        let next = queue.iter().map(|waiting| waiting.visible).min().unwrap();
        clock.advance(next.since(clock.now()));
        let now = clock.now();
        let mut batch: Vec<Value> = Vec::new();
        queue.retain_mut(|waiting| {
            if waiting.visible > now || batch.len() == 10 {
                return true;
            }
            if waiting.receives == most {
                given_up += 1;
                return false;
            }
            waiting.receives += 1;
            waiting.visible = now.after(VISIBILITY);
            let mut message = record(&waiting.id, &waiting.body);
            message["attributes"]["ApproximateReceiveCount"] = waiting.receives.to_string().into();
            batch.push(message);
            true
        });
        let in_batch: BTreeSet<String> = batch
            .iter()
            .map(|message| message["messageId"].as_str().unwrap().to_owned())
            .collect();
        rig.store.mend();
        if now < NOW.after(away) {
            rig.store.plan([Fault::Refuse; 1000]);
        }
        let before = rig.queues.visibilities().len();
        let answer = rig.worker.handle(rig.event(&batch)).await;
        let back: BTreeSet<_> = answer
            .batch_item_failures
            .into_iter()
            .map(|item| item.item_identifier)
            .collect();
        queue.retain(|waiting| !in_batch.contains(&waiting.id) || back.contains(&waiting.id));
        for (receipt, seconds) in &rig.queues.visibilities()[before..] {
            let hidden = queue
                .iter_mut()
                .find(|one| *receipt == format!("receipt-{}", one.id));
            if let Some(waiting) = hidden {
                waiting.visible = now.after(Duration::from_secs(u64::from(*seconds)));
            }
        }
    }
    given_up
}

/// A rig whose target answers by the time of day: `wrong` until `end`, with this `Retry-After` if
/// there is one, then 200.
async fn down(wrong: u16, word: Option<&'static str>, end: Duration) -> (Rig, ManualSource) {
    let clock = ManualSource::at(NOW);
    let seen_by_target = clock.clone();
    let stub = Stub::new(move |_| {
        if seen_by_target.now() >= NOW.after(end) {
            return Reply::status(200);
        }
        Reply::Answer {
            status: wrong,
            headers: word
                .map(|word| ("retry-after", word.to_owned()))
                .into_iter()
                .collect(),
            body: Vec::new(),
        }
    })
    .await;
    let target = target_at(&stub.url, Duration::from_secs(5));
    let rig = Rig::at(&Plan::default(), stub.into(), target, clock.clone());
    (rig, clock)
}

fn all_done(rig: &Rig, count: usize) {
    let records = rig.memory.records();
    assert_eq!(records.len(), count);
    assert!(
        records
            .iter()
            .all(|record| record.status == Status::Completed)
    );
    assert_eq!(rig.queues.letters(), []);
}

#[tokio::test]
async fn a_target_that_is_down_for_twelve_hours_dead_letters_nothing() {
    for (wrong, word) in [
        (503, None),
        (503, Some("0")),
        (503, Some("1")),
        (503, Some("600")),
        (429, Some("1")),
        (401, Some("1")),
    ] {
        let (rig, clock) = down(wrong, word, 12 * HOUR).await;
        let given_up = drain(&rig, &clock, 60, Duration::ZERO).await;
        assert_eq!(given_up, 0, "{wrong}, Retry-After {word:?}");
        all_done(&rig, 60);
        assert!(clock.now() >= NOW.after(12 * HOUR));
    }
}

#[tokio::test]
async fn a_store_that_is_away_for_twelve_hours_dead_letters_nothing() {
    let (rig, clock) = down(200, None, Duration::ZERO).await;
    assert_eq!(drain(&rig, &clock, 60, 12 * HOUR).await, 0);
    all_done(&rig, 60);
    assert!(clock.now() >= NOW.after(12 * HOUR));
    assert_eq!(rig.effects(), 60, "nothing ran without its claim");
}

#[tokio::test]
async fn a_target_in_a_hurry_is_asked_when_it_likes_three_times() {
    let rig = Rig::answering(Plan::default(), |_| Reply::Answer {
        status: 429,
        headers: vec![("retry-after", "2".to_owned())],
        body: Vec::new(),
    })
    .await;
    let batch: Vec<Value> = (1..=5)
        .map(|receives| {
            let id = format!("m{receives}");
            let mut message = record(&id, &body(&id, 429));
            message["attributes"]["ApproximateReceiveCount"] = receives.to_string().into();
            message
        })
        .collect();
    rig.handle(&batch).await;
    let waits = [1, 2, 3, 4, 5].map(|receives| rig.queues.visibility(&format!("m{receives}")));
    // The target took nothing of the batch, so that the back-off is without jitter.
    assert_eq!(waits, [Some(2), Some(2), Some(2), Some(240), Some(480)]);
}

#[tokio::test]
async fn n35_a_token_that_is_wrong_for_an_hour_spends_no_event() {
    for wrong in [401, 403, 404] {
        let (rig, clock) = down(wrong, None, HOUR).await;
        assert_eq!(drain(&rig, &clock, 30, Duration::ZERO).await, 0);
        all_done(&rig, 30);
    }
}

#[tokio::test]
async fn where_the_target_took_nothing_of_a_batch_all_of_it_backs_off_fully() {
    let rig = Rig::new(Plan::default()).await;
    let message = |id: &str, answer: u16, receives: &str| {
        let mut message = record(id, &body(id, answer));
        message["attributes"]["ApproximateReceiveCount"] = receives.into();
        message
    };
    let batch = [
        message("a", 503, "1"),
        message("b", 401, "3"),
        message("c", 429, "20"),
        message("d", 1, "7"),
    ];
    assert_eq!(rig.handle(&batch).await, returned(&["a", "b", "c", "d"]));
    let waits = ["a", "b", "c", "d"].map(|id| rig.queues.visibility(id));
    assert_eq!(waits, [Some(30), Some(120), Some(3600), Some(1920)]);

    // One that it takes shows that it is up: the others come back as ever, spread out.
    let mut spread = BTreeSet::new();
    for _ in 0..20 {
        let rig = Rig::new(Plan::default()).await;
        let batch = [message("a", 503, "20"), message("b", 200, "1")];
        assert_eq!(rig.handle(&batch).await, returned(&["a"]));
        spread.insert(rig.queues.visibility("a").unwrap());
    }
    assert!(spread.len() > 1, "{spread:?}");
    assert!(
        spread.iter().all(|wait| (3375..=3600).contains(wait)),
        "{spread:?}"
    );
}

#[tokio::test]
async fn a41_a42_an_event_that_comes_every_hour_of_a_day_is_one_effect() {
    let rig = Rig::new(Plan::default()).await;
    for hour in 0..24 {
        let answer = rig.cold();
        let event = rig.event(&[record(&format!("m{hour}"), &body("alert", 200))]);
        assert_eq!(answer.handle(event).await.batch_item_failures, []);
        rig.source.advance(HOUR);
    }
    assert_eq!(rig.effects(), 1);
}
