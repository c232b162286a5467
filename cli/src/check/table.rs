//! The table: there, active, with the right key and TTL.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{TableDescription, TableStatus, TimeToLiveStatus};
use firstclaim::clock::Source;

use super::claim;
use super::finding::{Finding, Status, bounded};
use super::settings::Settings;
use super::trouble::Trouble;
use crate::dev::engine::{EXPIRATION, KEY_SCHEMA, key_schema};

/// What was found about the store.
pub(super) struct Store {
    pub(super) findings: Vec<Finding>,
    /// Whether it answered at all.
    pub(super) answered: bool,
}

/// Looks at the table, and claims a probe record in it.
pub(super) async fn check(settings: &Settings, source: impl Source + Clone) -> Store {
    let limit = settings.limit;
    let described = bounded("table", limit, async {
        let config = settings.sdk(settings.dynamodb.as_deref()).await;
        let client = Client::new(&config);
        let described = client
            .describe_table()
            .table_name(&settings.table)
            .send()
            .await;
        (client, described.map(|output| output.table))
    });
    let (client, described) = match described.await {
        Ok((client, described)) => (client, described),
        Err(hung) => return not_there(hung.of(place(settings)), false),
    };
    let mut findings = Vec::new();
    let mut fit = true;
    match described {
        Ok(Some(table)) => {
            let key = check_key(&table);
            fit = key.status == Status::Ok;
            findings.extend([check_status(&table).of(place(settings)), key]);
        }
        Ok(None) => {
            let odd = Finding::fault(
                "table",
                "the answer to dynamodb:DescribeTable describes no table",
                "see that the endpoint is DynamoDB's",
            );
            return not_there(odd.of(place(settings)), true);
        }
        Err(error) => {
            let trouble = Trouble::of(&error);
            let answered = !matches!(trouble, Trouble::Unreachable(_) | Trouble::NotConfigured(_));
            // Whoever may not describe the table may still be let to claim in it.
            let denied = trouble == Trouble::Denied;
            let finding = trouble.finding(
                "table",
                "dynamodb:DescribeTable",
                (
                    "does not exist in this account and Region",
                    "correct the name, or deploy the stack, which creates it",
                ),
            );
            let finding = finding.of(place(settings));
            if !denied {
                return not_there(finding, answered);
            }
            findings.extend([
                finding,
                Finding::skipped("key-schema", "the table could not be described"),
            ]);
        }
    }
    let ttl = bounded("ttl", limit, check_ttl(&client, &settings.table)).await;
    findings.push(ttl.unwrap_or_else(|hung| hung));
    if fit {
        findings.extend(claim::check(settings, &client, source).await);
    } else {
        findings.extend(skip(&LATER[2..], "the table has another key"));
    }
    Store {
        findings,
        answered: true,
    }
}

/// What is looked at once the table is there.
const LATER: [&str; 4] = ["key-schema", "ttl", "clock", "claim"];

fn not_there(finding: Finding, answered: bool) -> Store {
    let mut findings = vec![finding];
    findings.extend(skip(&LATER, "there is no table to look at"));
    Store { findings, answered }
}

fn skip(checks: &[&'static str], why: &str) -> impl Iterator<Item = Finding> {
    checks.iter().map(move |check| Finding::skipped(check, why))
}

fn place(settings: &Settings) -> String {
    match &settings.dynamodb {
        Some(endpoint) => format!("{} at {endpoint}", settings.table),
        None => settings.table.clone(),
    }
}

fn check_status(table: &TableDescription) -> Finding {
    match table.table_status() {
        // While it is updated it serves.
        Some(status @ (TableStatus::Active | TableStatus::Updating)) => {
            Finding::ok("table", status.as_str())
        }
        status => Finding::fault(
            "table",
            format!(
                "its status is {}",
                status.map_or("unknown", TableStatus::as_str)
            ),
            "wait until it is ACTIVE, or see in the console what happened to it",
        ),
    }
}

fn check_key(table: &TableDescription) -> Finding {
    let found = key_schema(table);
    if found == KEY_SCHEMA {
        return Finding::ok("key-schema", "partition key id (S), no sort key");
    }
    Finding::fault(
        "key-schema",
        format!("the key is {found}, not {KEY_SCHEMA}"),
        "a key can't be changed: use a table of its own, as the template creates it",
    )
}

async fn check_ttl(client: &Client, table: &str) -> Finding {
    let turn_on = || {
        format!(
            "turn it on: aws dynamodb update-time-to-live --table-name {table} \
             --time-to-live-specification AttributeName={EXPIRATION},Enabled=true"
        )
    };
    let described = client
        .describe_time_to_live()
        .table_name(table)
        .send()
        .await;
    let described = match described {
        Ok(output) => output.time_to_live_description,
        Err(error) => {
            return Trouble::of(&error).finding(
                "ttl",
                "dynamodb:DescribeTimeToLive",
                ("the table does not exist", "correct the name"),
            );
        }
    };
    let attribute = described.as_ref().and_then(|ttl| ttl.attribute_name());
    let status = described.as_ref().and_then(|ttl| ttl.time_to_live_status());
    match (status, attribute) {
        (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), Some(EXPIRATION)) => {
            Finding::ok("ttl", format!("on, reading {EXPIRATION}"))
        }
        (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), other) => Finding::fault(
            "ttl",
            format!(
                "it reads {}, not {EXPIRATION}: finished records are never removed",
                other.unwrap_or("an unnamed attribute")
            ),
            format!("turn it off for that attribute, then {}", turn_on()),
        ),
        (Some(TimeToLiveStatus::Disabling), _) => Finding::fault(
            "ttl",
            "it is being turned off: finished records are never removed",
            format!("when that has ended, {}", turn_on()),
        ),
        _ => Finding::fault(
            "ttl",
            "off: finished records are never removed, and the table grows for ever",
            turn_on(),
        ),
    }
}
