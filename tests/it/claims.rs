//! Claims over the engine: races, what the network can do to a write, late writers, and what each
//! path costs.

mod cost;
mod late;
mod network;
mod races;
mod results;

use std::convert::Infallible;
use std::time::Duration;

use anyhow::bail;
use firstclaim::clock::{ManualSource, Source, SystemSource};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, Claim, Claimed, Claims, Config, Failure, Key, Outcome, StoredFailure};

use crate::registry::Test;

pub(crate) fn tests() -> Vec<Test> {
    [
        races::tests(),
        network::tests(),
        late::tests(),
        cost::tests(),
        results::tests(),
    ]
    .concat()
}

/// The lease of every claim here.
const LEASE: Duration = Duration::from_secs(60);

/// Claims over `store` on a clock that only the test moves. They remember nothing, so that every
/// answer comes from the table.
fn claims_on(store: DynamoDb, clock: &ManualSource) -> anyhow::Result<Claims<DynamoDb>> {
    let config = Config {
        cache_bytes: 0,
        ..Config::default()
    };
    Ok(Claims::new(store, config)?.with_source(clock.clone()))
}

/// What an owner says who gives its key back.
fn busy() -> StoredFailure {
    StoredFailure {
        code: "busy".to_owned(),
        message: "not now".to_owned(),
    }
}

/// A clock that stands at the present.
fn clock() -> ManualSource {
    ManualSource::at(SystemSource.now())
}

/// Claims `key`, which must be free.
async fn held(claims: &Claims<DynamoDb>, key: &Key) -> anyhow::Result<Claim<DynamoDb>> {
    match claims.once(key.clone()).lease(LEASE).claim().await? {
        Claimed::Held(claim) => Ok(claim),
        Claimed::Answered(outcome) => bail!("{key} was not free: {outcome:?}"),
    }
}

/// Runs an operation whose result is `result`.
async fn run(
    claims: &Claims<DynamoDb>,
    key: &Key,
    result: &str,
) -> anyhow::Result<Outcome<String>> {
    let once = claims.once(key.clone()).lease(LEASE);
    let result = result.to_owned();
    Ok(once
        .run(|_work| async move { Ok::<_, Failure<Infallible>>(result) })
        .await?)
}

/// A duplicate must get `result` without running anything.
async fn replays(claims: &Claims<DynamoDb>, key: &Key, result: &str) -> anyhow::Result<()> {
    let outcome = run(claims, key, "run again").await?;
    match outcome.answer {
        Answer::Replayed(text) if text == result => Ok(()),
        answer => bail!("{key}: expected the replay of {result:?}, got {answer:?}"),
    }
}
