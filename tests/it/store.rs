//! The DynamoDB store: the same answers as the in-memory store for the same writes, and the right
//! error for each way in which the service can fail.

mod errors;
mod generator;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::clock::{ManualSource, Source, SystemSource};
use firstclaim::protocol::Write;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::store::memory::Memory;
use firstclaim::store::{Read, Store, Written};
use firstclaim::{Claimed, Claims, Config, Fingerprint, Key};
use firstclaim_cli::claims::store::{TABLE, open_file};
use integration::Lab;
use integration::proxy::{ANY, Step};

use crate::registry::{Test, tests};
use generator::{Generator, Move};

pub(crate) fn tests() -> Vec<Test> {
    let mut list = tests![
        shape:
            answers_like_the_memory_store,
            answers_like_the_memory_store_when_refusals_bring_no_item,
            the_file_answers_like_the_memory_store,
            p98_no_name_is_reserved,
            p4_p9_times_stand_in_their_units,
            a_record_survives_the_table,
        ;
        race:
    ];
    list.extend(errors::tests());
    list
}

/// How many writes one random history has.
const LENGTH: usize = 80;

async fn answers_like_the_memory_store(lab: &Lab) -> anyhow::Result<()> {
    let table = Table::of(lab, lab.store());
    let mut met = BTreeMap::new();
    for seed in 1..=12 {
        compare(&table, seed, true, &mut met).await?;
    }
    // Without this, a generator that never gets past a claim would prove nothing.
    for write in [
        "claim",
        "takeover",
        "renew",
        "checkpoint",
        "activity",
        "finish",
        "restore",
        "suspend",
        "release",
        "settle",
    ] {
        for answer in ["applied", "refused"] {
            let count = met.get(&(write, answer)).copied().unwrap_or(0);
            ensure!(count > 0, "no {write} was ever {answer}: {met:?}");
        }
    }
    Ok(())
}

async fn answers_like_the_memory_store_when_refusals_bring_no_item(
    lab: &Lab,
) -> anyhow::Result<()> {
    lab.dynamodb.always(ANY, Step::StripItem);
    let table = Table::of(lab, lab.store_without_retries().await);
    let mut met = BTreeMap::new();
    for seed in 101..=103 {
        compare(&table, seed, false, &mut met).await?;
    }
    Ok(())
}

/// The file that the command line uses, opened anew for each history.
async fn the_file_answers_like_the_memory_store(_lab: &Lab) -> anyhow::Result<()> {
    let name = format!("firstclaim-it-{}", SystemSource.token().expose());
    let folder = std::env::temp_dir().join(name);
    let mut met = BTreeMap::new();
    for seed in 201..=202 {
        let client = open_file(&folder).await?;
        let table = Table {
            store: DynamoDb::new(client.clone(), TABLE),
            name: TABLE.to_owned(),
            client,
        };
        compare(&table, seed, true, &mut met).await?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// A table as a store, and the way past the store.
struct Table {
    store: DynamoDb,
    client: Client,
    name: String,
}

impl Table {
    fn of(lab: &Lab, store: DynamoDb) -> Self {
        Self {
            store,
            client: lab.suite.engine.client().clone(),
            name: lab.table.clone(),
        }
    }
}

/// Runs one random history against both stores and compares the answers and the records after each
/// write.
async fn compare(
    table: &Table,
    seed: u64,
    brings_items: bool,
    met: &mut BTreeMap<(&'static str, &'static str), usize>,
) -> anyhow::Result<()> {
    let memory = Memory::new();
    let Table { store, client, .. } = table;
    let mut generator = Generator::new(seed);
    for step in 0..LENGTH {
        let id = generator.id();
        let before = memory.read(&id, Read::Consistent).await?;
        let context = || format!("seed {seed}, step {step}, before: {before:?}");
        match generator.next_move(&id, before.as_ref()) {
            Move::Write(write) => {
                let expected = memory.write(&id, &write).await?;
                let got = store.write(&id, &write).await;
                let got = got.with_context(|| format!("{}, {write:?}", context()))?;
                let answer = same_answer(&write, &expected, &got, brings_items);
                let answer = answer.with_context(|| format!("{}, {write:?}", context()))?;
                *met.entry((write.name(), answer)).or_default() += 1;
            }
            Move::Foreign { item, record } => {
                let put = client
                    .put_item()
                    .table_name(&table.name)
                    .set_item(Some(item));
                put.send().await?;
                memory.put(*record);
            }
            Move::Vanish => {
                let key = AttributeValue::S(id.clone());
                client
                    .delete_item()
                    .table_name(&table.name)
                    .key("id", key)
                    .send()
                    .await?;
                memory.remove(&id);
            }
        }
        let expected = memory.read(&id, Read::Consistent).await?;
        let got = store
            .read(&id, Read::Consistent)
            .await
            .with_context(context)?;
        ensure!(
            got == expected,
            "{}\nexpected {expected:?}\n     got {got:?}",
            context()
        );
    }
    for id in Generator::ids() {
        let key = AttributeValue::S(id);
        client
            .delete_item()
            .table_name(&table.name)
            .key("id", key)
            .send()
            .await?;
    }
    Ok(())
}

fn same_answer(
    write: &Write,
    expected: &Written,
    got: &Written,
    brings_items: bool,
) -> anyhow::Result<&'static str> {
    match (expected, got) {
        (Written::Applied(expected), Written::Applied(got)) => {
            let brings_record = matches!(write, Write::Takeover { .. } | Write::Settle { .. });
            ensure!(
                !brings_record || got == expected,
                "applied, but brought {got:?}"
            );
            Ok("applied")
        }
        (Written::Refused(_), Written::Refused(None)) if !brings_items => Ok("refused"),
        (Written::Refused(expected), Written::Refused(got)) => {
            ensure!(got == expected, "refused, but met {got:?}");
            Ok("refused")
        }
        _ => anyhow::bail!("expected {expected:?}, got {got:?}"),
    }
}

async fn p98_no_name_is_reserved(lab: &Lab) -> anyhow::Result<()> {
    let store = lab.store();
    let names = [
        "status",
        "data",
        "ttl",
        "key",
        "size",
        "owner",
        "a.b",
        "a-b",
        "a b",
        "#x",
        ":y",
        "0",
        "[0]",
        "naïve",
        "\"quoted\"",
        "checkpoints",
    ];
    let claims = Claims::new(store.clone(), Config::default())?;
    let key = Key::new("reserved", "status.data-ttl key")?;
    let claimed = claims
        .once(key.clone())
        .lease(Duration::from_secs(60))
        .claim()
        .await?;
    let Claimed::Held(claim) = claimed else {
        anyhow::bail!("not claimed: {claimed:?}");
    };
    for name in names {
        let write = Write::Checkpoint {
            owner: claim.owner().clone(),
            name: name.to_owned(),
            text: format!("{name:?}"),
        };
        let written = store
            .write(&key.stored(), &write)
            .await
            .with_context(|| name.to_owned())?;
        ensure!(
            matches!(written, Written::Applied(_)),
            "{name:?}: {written:?}"
        );
    }
    let record = lab.record(key.as_str()).await?;
    let stored: BTreeSet<&str> = record.checkpoints.keys().map(String::as_str).collect();
    assert_eq!(stored, BTreeSet::from(names));
    Ok(())
}

async fn p4_p9_times_stand_in_their_units(lab: &Lab) -> anyhow::Result<()> {
    let claims = Claims::new(lab.store(), Config::default())?;
    let key = Key::new("units", "1")?;
    let claimed = claims
        .once(key.clone())
        .lease(Duration::from_secs(60))
        .claim()
        .await?;
    ensure!(matches!(claimed, Claimed::Held(_)), "{claimed:?}");
    drop(claimed);
    let client = lab.suite.engine.client();
    let output = client
        .get_item()
        .table_name(&lab.table)
        .key("id", AttributeValue::S(key.stored()))
        .send()
        .await?;
    let item = output.item().context("no item")?;
    for (name, digits) in [("expiration", 10), ("in_progress_expiration", 13)] {
        let number = item
            .get(name)
            .and_then(|value| value.as_n().ok())
            .context(name)?;
        ensure!(
            number.len() == digits && number.bytes().all(|byte| byte.is_ascii_digit()),
            "{name} is {number}"
        );
    }
    let lapsed = ManualSource::at(SystemSource.now().after(Duration::from_secs(61)));
    let later = claims
        .with_source(lapsed)
        .once(key)
        .lease(Duration::from_secs(60));
    ensure!(
        matches!(later.claim().await?, Claimed::Held(_)),
        "a lapsed lease was not taken over"
    );
    Ok(())
}

async fn a_record_survives_the_table(lab: &Lab) -> anyhow::Result<()> {
    let mut generator = Generator::new(7);
    let store = lab.store();
    for number in 0..40 {
        let id = format!("whole#{number}");
        let mut record = generator.whole_record(&id);
        record.fingerprint = Some(Fingerprint::of_raw(id.as_bytes()));
        let write = Write::Restore {
            record: Box::new(record.clone()),
        };
        store.write(&id, &write).await?;
        let read = store.read(&id, Read::Consistent).await?;
        assert_eq!(read.as_ref(), Some(&record));
    }
    Ok(())
}
