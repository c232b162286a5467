//! Records in the file whose time is over: DynamoDB deletes them by its TTL, a file needs somebody who
//! does.
//!
//! What is deleted could be claimed as if it were not there: its window has been over for a day (the
//! margin that a result's companion outlives its record by), and nobody works on it. That is asked
//! again in the transaction that deletes, because another process may have claimed it meanwhile.
//! Companions have an `expiration` of their own, a day behind their record's.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::clock::EpochMillis;
use serde::{Deserialize, Serialize};

use super::store::TABLE;
use crate::private;

/// The file beside the store that says how far the last sweep came.
const FILE: &str = "claims.swept";

/// How long a record stays behind its window's end.
const MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// How often the whole table is gone through.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many items one command reads at the most.
const READ: i32 = 1000;

/// How many items one command deletes at the most: each is on disk before the next.
const DELETED: usize = 50;

/// Old enough to be deleted, and nobody is at it.
const OVER: &str = "#expiration < :over AND NOT (#status = :inprogress AND #lease > :now)";

/// How far the last sweep came.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Swept {
    /// When it was, epoch milliseconds.
    at: i64,
    /// The last item's id, where it did not come to the end.
    after: Option<String>,
}

/// Deletes some of what is over, if it is time to; how many. Whoever claims does this first, and
/// claims whatever comes of it.
pub(super) async fn sweep(client: &Client, folder: &Path, now: EpochMillis) -> usize {
    let file = folder.join(FILE);
    // One that can't be read is written anew.
    let swept: Swept = fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let since = now.since(EpochMillis(swept.at));
    // A time that lies ahead was written under another clock.
    let whole = since >= EVERY || swept.at > now.0;
    if !whole && swept.after.is_none() {
        return 0;
    }
    // Said before it is done: of several processes at once the others need not do it too.
    let mut going = Swept {
        at: now.0,
        after: swept.after.clone(),
    };
    keep(&file, &going);
    let Ok((ids, mut next)) = over(client, swept.after, now).await else {
        return 0;
    };
    let mut deleted = 0;
    for id in ids {
        if deleted == DELETED {
            break;
        }
        if !delete(client, &id, now).await {
            continue;
        }
        deleted += 1;
        if deleted == DELETED {
            next = Some(id);
        }
    }
    going.after = next;
    keep(&file, &going);
    deleted
}

/// The ids behind `after` of what is over, and where to go on.
async fn over(
    client: &Client,
    after: Option<String>,
    now: EpochMillis,
) -> Result<(Vec<String>, Option<String>), SdkError<aws_sdk_dynamodb::operation::scan::ScanError>> {
    let start = after.map(|id| HashMap::from([("id".to_owned(), AttributeValue::S(id))]));
    let page = client
        .scan()
        .table_name(TABLE)
        .limit(READ)
        .set_exclusive_start_key(start)
        .projection_expression("#id")
        .filter_expression(OVER)
        .set_expression_attribute_names(Some(names(&[("#id", "id")])))
        .set_expression_attribute_values(Some(values(now)))
        .send()
        .await?;
    let next = page.last_evaluated_key().and_then(id_of);
    let ids = page.items().iter().filter_map(id_of).collect();
    Ok((ids, next))
}

/// Deletes an item if it is over still.
async fn delete(client: &Client, id: &str, now: EpochMillis) -> bool {
    let sent: Result<_, SdkError<DeleteItemError>> = client
        .delete_item()
        .table_name(TABLE)
        .key("id", AttributeValue::S(id.to_owned()))
        .condition_expression(OVER)
        .set_expression_attribute_names(Some(names(&[])))
        .set_expression_attribute_values(Some(values(now)))
        .send()
        .await;
    sent.is_ok()
}

fn names(more: &[(&str, &str)]) -> HashMap<String, String> {
    [
        ("#expiration", "expiration"),
        ("#status", "status"),
        ("#lease", "in_progress_expiration"),
    ]
    .iter()
    .chain(more)
    .map(|(place, name)| ((*place).to_owned(), (*name).to_owned()))
    .collect()
}

fn values(now: EpochMillis) -> HashMap<String, AttributeValue> {
    let number = |number: i64| AttributeValue::N(number.to_string());
    HashMap::from([
        (":over".to_owned(), number(now.before(MARGIN).seconds().0)),
        (":now".to_owned(), number(now.0)),
        (
            ":inprogress".to_owned(),
            AttributeValue::S(firstclaim::Status::InProgress.as_str().to_owned()),
        ),
    ])
}

fn id_of(item: &HashMap<String, AttributeValue>) -> Option<String> {
    item.get("id")?.as_s().ok().cloned()
}

/// A sweep that nobody remembers is done again, which harms nothing.
fn keep(file: &Path, swept: &Swept) {
    if let Ok(bytes) = serde_json::to_vec(swept) {
        let _ = private::write(file, &bytes);
    }
}

#[cfg(test)]
mod tests;
