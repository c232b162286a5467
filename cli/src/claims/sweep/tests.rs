use firstclaim::clock::{EpochMillis, Source};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, Config, Key};

use super::super::store::open_file;
use super::super::{SOURCE, list};
use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// An item as any tool may have written it; times in seconds and milliseconds from now.
async fn put(client: &Client, id: &str, over_for: i64, status: &str, lease: Option<i64>) {
    let now = SOURCE.now();
    let mut put = client
        .put_item()
        .table_name(TABLE)
        .item("id", AttributeValue::S(id.to_owned()))
        .item("status", AttributeValue::S(status.to_owned()))
        .item("attempt", AttributeValue::N("1".to_owned()))
        .item(
            "expiration",
            AttributeValue::N((now.seconds().0 - over_for).to_string()),
        );
    if let Some(lease) = lease {
        let lease = (now.0 + lease).to_string();
        put = put.item("in_progress_expiration", AttributeValue::N(lease));
    }
    put.send().await.unwrap();
}

async fn ids(client: &Client) -> Vec<String> {
    let items = client.scan().table_name(TABLE).send().await.unwrap();
    let mut ids: Vec<String> = items.items().iter().filter_map(id_of).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn what_the_protocol_would_still_honour_stays() {
    let folder = tempfile::tempdir().unwrap();
    let client = open_file(folder.path()).await.unwrap();
    let day = 24 * 60 * 60;
    put(&client, "done", 2 * day, "COMPLETED", None).await;
    put(&client, "failed", day + 60, "FAILED", None).await;
    put(&client, "crashed", 2 * day, "INPROGRESS", Some(-1)).await;
    put(&client, "locked", 2 * day, "INPROGRESS", None).await;
    put(
        &client,
        "kept: within the margin",
        day - 60,
        "COMPLETED",
        None,
    )
    .await;
    put(&client, "kept: in its window", -60, "COMPLETED", None).await;
    put(
        &client,
        "kept: its lease runs",
        2 * day,
        "INPROGRESS",
        Some(60_000),
    )
    .await;
    client
        .put_item()
        .table_name(TABLE)
        .item("id", AttributeValue::S("kept: no end".to_owned()))
        .send()
        .await
        .unwrap();
    let now = SOURCE.now();
    assert_eq!(sweep(&client, folder.path(), now).await, 4);
    let left = ids(&client).await;
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.iter().all(|id| id.starts_with("kept")), "{left:?}");
    // A day later, and no sooner, it looks again.
    put(&client, "done", 2 * day, "COMPLETED", None).await;
    assert_eq!(sweep(&client, folder.path(), now.after(HOUR)).await, 0);
    let next = now.after(EVERY);
    assert_eq!(sweep(&client, folder.path(), next).await, 3);
    assert_eq!(ids(&client).await, ["kept: in its window", "kept: no end"]);
}

/// What was over when it was read, and is claimed when it is to be deleted.
#[tokio::test]
async fn n34_a_record_that_was_claimed_anew_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let client = open_file(folder.path()).await.unwrap();
    put(&client, "a#b", 2 * 24 * 60 * 60, "COMPLETED", None).await;
    let now = SOURCE.now();
    let (ids, _) = over(&client, None, now).await.unwrap();
    assert_eq!(ids, ["a#b"]);
    let claims = Claims::new(DynamoDb::new(client.clone(), TABLE), Config::default()).unwrap();
    let once = claims
        .once(Key::parse("a#b").unwrap())
        .lease(Duration::from_secs(60));
    let _claimed = once.claim().await.unwrap();
    assert!(!delete(&client, "a#b", now).await);
    let (records, _, _) = list::scan(claims.store(), |_| ()).await.unwrap();
    assert!(records[0].running(now));
}

#[tokio::test]
async fn a_sweep_is_bounded_and_the_next_command_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let client = open_file(folder.path()).await.unwrap();
    for number in 0..DELETED + 10 {
        put(
            &client,
            &format!("k#{number}"),
            9 * 24 * 60 * 60,
            "COMPLETED",
            None,
        )
        .await;
    }
    let now = SOURCE.now();
    assert_eq!(sweep(&client, folder.path(), now).await, DELETED);
    assert_eq!(ids(&client).await.len(), 10);
    assert_eq!(sweep(&client, folder.path(), now).await, 10);
    assert_eq!(ids(&client).await, [""; 0]);
    // It has come to the end.
    put(&client, "k#0", 9 * 24 * 60 * 60, "COMPLETED", None).await;
    assert_eq!(sweep(&client, folder.path(), now).await, 0);
    // What says otherwise, or nothing, is not believed.
    for wrong in ["{", r#"{"at":99999999999999,"after":null}"#] {
        put(&client, "k#0", 9 * 24 * 60 * 60, "COMPLETED", None).await;
        std::fs::write(folder.path().join(FILE), wrong).unwrap();
        assert_eq!(sweep(&client, folder.path(), now).await, 1, "{wrong}");
    }
    assert_eq!(
        sweep(&client, folder.path(), EpochMillis(now.0 + 1)).await,
        0
    );
}
