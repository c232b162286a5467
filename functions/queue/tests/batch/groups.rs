//! FIFO queues: order within a group, groups side by side.

use crate::rig::{Plan, Rig, body, fifo, record, returned};

/// The delivery ids in the order in which the target saw them.
fn order(rig: &Rig, group: char) -> Vec<String> {
    rig.stub
        .seen()
        .iter()
        .filter_map(|seen| seen.header("firstclaim-delivery").map(str::to_owned))
        .filter(|id| id.starts_with(group))
        .collect()
}

#[tokio::test]
async fn a23_after_the_first_returned_record_the_rest_of_its_group_is_returned() {
    let rig = Rig::new(Plan::default()).await;
    let batch = [
        fifo("A1", "A", &body("a1", 200)),
        fifo("B1", "B", &body("b1", 200)),
        fifo("A2", "A", &body("a2", 503)),
        fifo("B2", "B", &body("b2", 200)),
        fifo("A3", "A", &body("a3", 200)),
        fifo("B3", "B", &body("b3", 200)),
        fifo("A4", "A", &body("a4", 200)),
    ];
    assert_eq!(rig.handle(&batch).await, returned(&["A2", "A3", "A4"]));
    assert_eq!(order(&rig, 'A'), ["A1", "A2"]);
    assert_eq!(order(&rig, 'B'), ["B1", "B2", "B3"]);
    let wait = rig.queues.visibility("A2");
    assert!(wait.is_some());
    assert_eq!(rig.queues.visibility("A3"), wait);
    assert_eq!(rig.queues.visibility("A4"), wait);
}

#[tokio::test]
async fn p93_a_conflict_stops_its_group() {
    let rig = Rig::new(Plan::default()).await;
    // Another process is at `a2`: as good as the record of an open lease.
    let elsewhere = rig.cold();
    let event = rig.event(&[record("x", &body("a2", 0))]);
    let held = tokio::spawn(async move { elsewhere.handle(event).await });
    while rig.effects() == 0 {
        tokio::task::yield_now().await;
    }
    let batch = [
        fifo("A1", "A", &body("a1", 200)),
        fifo("A2", "A", &body("a2", 0)),
        fifo("A3", "A", &body("a3", 200)),
    ];
    assert_eq!(rig.handle(&batch).await, returned(&["A2", "A3"]));
    assert_eq!(rig.queues.visibility("A2"), Some(63));
    assert_eq!(rig.queues.visibility("A3"), Some(63));
    held.abort();
}

#[tokio::test]
async fn n27_a_dead_letter_is_finished_and_its_group_goes_on() {
    for bad in ["not json".to_owned(), body("a2", 422)] {
        let batch = [
            fifo("A1", "A", &body("a1", 200)),
            fifo("A2", "A", &bad),
            fifo("A3", "A", &body("a3", 200)),
            fifo("B1", "B", &body("b1", 200)),
        ];
        let rig = Rig::new(Plan::default()).await;
        assert_eq!(rig.handle(&batch).await, returned(&[]));
        assert_eq!(rig.queues.letters().len(), 1);
        assert_eq!(rig.queues.letters()[0].group.as_deref(), Some("A"));
        assert_eq!(order(&rig, 'A').last().map(String::as_str), Some("A3"));
        // Without a dead-letter queue it is returned, and only its own group waits.
        let rig = Rig::new(Plan {
            dead_letters: false,
            ..Plan::default()
        })
        .await;
        assert_eq!(rig.handle(&batch).await, returned(&["A2", "A3"]));
    }
}

#[tokio::test]
async fn n28_a_group_on_a_standard_queue_keeps_nobody_back() {
    let rig = Rig::new(Plan::default()).await;
    let batch = ["1", "2", "3"].map(|id| {
        let answer = if id == "1" { 503 } else { 200 };
        let mut record = record(id, &body(id, answer));
        record["attributes"]["MessageGroupId"] = "A".into();
        record
    });
    assert_eq!(rig.handle(&batch).await, returned(&["1"]));
    assert_eq!(rig.effects(), 3);
}

#[tokio::test]
async fn one_key_in_two_groups_is_done_once() {
    let rig = Rig::new(Plan::default()).await;
    let batch = [
        fifo("A1", "A", &body("same", 200)),
        fifo("B1", "B", &body("same", 200)),
        fifo("C1", "C", &body("other", 503)),
        fifo("D1", "D", &body("other", 503)),
        fifo("B2", "B", &body("b2", 200)),
    ];
    assert_eq!(rig.handle(&batch).await, returned(&["C1", "D1"]));
    assert_eq!(rig.effects(), 3);
}
