//! What each path costs in calls.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use firstclaim::{Answer, Failure, Key};
use integration::Lab;

use super::{LEASE, claims_on, clock, held, run};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape: p100_each_path_has_its_price, p100_a_small_record_takes_one_unit_a_write;
        race:
    ]
}

async fn p100_each_path_has_its_price(lab: &Lab) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store_through_proxy().await, &clock)?;
    let key = Key::new("cost", "1")?;

    run(&claims, &key, "done").await?;
    cost(lab, "first execution", 1, 1)?;
    run(&claims, &key, "again").await?;
    cost(lab, "completed duplicate", 1, 0)?;

    let busy = Key::new("cost", "2")?;
    drop(held(&claims, &busy).await?);
    cost(lab, "claim", 1, 0)?;
    let outcome = run(&claims, &busy, "again").await?;
    ensure!(
        matches!(outcome.answer, Answer::InProgress { .. }),
        "{outcome:?}"
    );
    cost(lab, "duplicate in flight", 1, 0)?;
    clock.advance(LEASE + Duration::from_millis(1));
    run(&claims, &busy, "done").await?;
    cost(lab, "takeover and completion", 1, 2)?;

    let failing = Key::new("cost", "3")?;
    let once = claims.once(failing.clone()).lease(LEASE);
    let failed = once
        .run(|_work| async { Err::<(), _>(Failure::unknown("reset", "the connection broke")) })
        .await;
    ensure!(failed.is_err(), "{failed:?}");
    cost(lab, "failure", 1, 1)?;
    run(&claims, &failing, "done").await?;
    cost(lab, "retry after a failure", 1, 2)
}

async fn p100_a_small_record_takes_one_unit_a_write(lab: &Lab) -> anyhow::Result<()> {
    lab.dynamodb.measure();
    let clock = clock();
    let claims = claims_on(lab.store_through_proxy().await, &clock)?;
    let key = Key::new("units", "1")?;

    run(&claims, &key, "done").await?;
    // A write takes whole units. An engine that reports parts of one (moto does) makes them up.
    if lab.dynamodb.units().fract() > 0.0 {
        return Ok(());
    }
    units(lab, "first execution", 2.0)?;

    // A hint reads first, and eventually: half a unit in place of a refused write.
    let hinted = claims_on(lab.store_through_proxy().await, &clock)?;
    let outcome = hinted
        .once(key)
        .lease(LEASE)
        .redelivered(true)
        .run(|_work| async { Ok::<String, Failure<String>>("again".to_owned()) })
        .await?;
    ensure!(matches!(outcome.answer, Answer::Replayed(_)), "{outcome:?}");
    units(lab, "hinted duplicate", 0.5)?;

    let busy = Key::new("units", "2")?;
    drop(held(&claims, &busy).await?);
    units(lab, "claim", 1.0)?;
    clock.advance(LEASE + Duration::from_millis(1));
    run(&claims, &busy, "done").await?;
    units(lab, "takeover and completion", 2.0)
}

/// The capacity units since the last look, where the engine reports them.
fn units(lab: &Lab, path: &str, expected: f64) -> anyhow::Result<()> {
    let units = lab.dynamodb.units();
    lab.dynamodb.forget();
    ensure!(
        (units - expected).abs() < 0.01,
        "{path}: {units} capacity units instead of {expected}"
    );
    Ok(())
}

/// What was called since the last look.
fn cost(lab: &Lab, path: &str, puts: usize, updates: usize) -> anyhow::Result<()> {
    let mut expected = BTreeMap::from([("PutItem".to_owned(), puts)]);
    if updates > 0 {
        expected.insert("UpdateItem".to_owned(), updates);
    }
    let calls = lab.dynamodb.calls();
    lab.dynamodb.forget();
    ensure!(
        calls == expected,
        "{path}: {calls:?} instead of {expected:?}"
    );
    Ok(())
}
