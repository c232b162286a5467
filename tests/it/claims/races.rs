//! Many at once, one winner.

use std::time::Duration;

use anyhow::ensure;
use firstclaim::clock::ManualSource;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, Claimed, Claims, Key};
use futures_util::future::join_all;
use integration::Lab;

use super::{LEASE, busy, claims_on, clock, held, run};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape: ;
        race:
            a34_of_parallel_claims_one_wins,
            a17_of_parallel_takeovers_of_a_lapsed_claim_one_wins,
            of_parallel_takeovers_of_a_released_claim_one_wins,
            p13_of_parallel_claims_of_an_ended_window_one_wins,
    ]
}

const RIVALS: usize = 64;
const ROUNDS: usize = 5;

/// How many of the rivals get the key; everybody else must be told that somebody is at it.
///
/// Each rival has claims of its own, as processes have: requests of one process share a flight.
async fn winners(store: &DynamoDb, clock: &ManualSource, key: &Key) -> anyhow::Result<Vec<u32>> {
    let rivals = (0..RIVALS).map(|_| async {
        let claims = claims_on(store.clone(), clock)?;
        anyhow::Ok(claims.once(key.clone()).lease(LEASE).claim().await?)
    });
    let mut attempts = Vec::new();
    for claimed in join_all(rivals).await {
        match claimed? {
            Claimed::Held(claim) => attempts.push(claim.attempt()),
            Claimed::Answered(outcome) => ensure!(
                matches!(outcome.answer, Answer::InProgress { .. }),
                "a loser was told {:?}",
                outcome.answer
            ),
        }
    }
    Ok(attempts)
}

async fn rounds<F>(lab: &Lab, expected_attempt: u32, prepare: F) -> anyhow::Result<()>
where
    F: AsyncFn(&Claims<DynamoDb>, &ManualSource, &Key) -> anyhow::Result<()>,
{
    let store = lab.store();
    for round in 0..ROUNDS {
        let clock = clock();
        let claims = claims_on(store.clone(), &clock)?;
        let key = Key::new("race", round.to_string())?;
        prepare(&claims, &clock, &key).await?;
        assert_eq!(
            winners(&store, &clock, &key).await?,
            [expected_attempt],
            "round {round}"
        );
    }
    Ok(())
}

async fn a34_of_parallel_claims_one_wins(lab: &Lab) -> anyhow::Result<()> {
    rounds(lab, 1, async |_, _, _| Ok(())).await
}

async fn a17_of_parallel_takeovers_of_a_lapsed_claim_one_wins(lab: &Lab) -> anyhow::Result<()> {
    rounds(lab, 2, async |claims, clock, key| {
        drop(held(claims, key).await?);
        clock.advance(LEASE + Duration::from_millis(1));
        Ok(())
    })
    .await
}

async fn of_parallel_takeovers_of_a_released_claim_one_wins(lab: &Lab) -> anyhow::Result<()> {
    rounds(lab, 2, async |claims, _, key| {
        held(claims, key).await?.release(busy()).await?;
        Ok(())
    })
    .await
}

async fn p13_of_parallel_claims_of_an_ended_window_one_wins(lab: &Lab) -> anyhow::Result<()> {
    rounds(lab, 1, async |claims, clock, key| {
        run(claims, key, "done").await?;
        clock.advance(claims.config().window + Duration::from_secs(2));
        Ok(())
    })
    .await
}
