//! Writers that come too late: paused in the network while another owner takes over.

use std::time::Duration;

use anyhow::{Context, ensure};
use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::clock::ManualSource;
use firstclaim::record::Status;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, Claim, Claims, Key, Outcome, StoredFailure};
use integration::Lab;
use integration::proxy::{Gate, Step};
use tokio::task::JoinHandle;

use super::{LEASE, busy, claims_on, clock, held, replays};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            p20_a18_a_late_completion_changes_nothing,
            p20_an_early_completion_does_not_end_the_others_claim,
            p20_a_late_failure_does_not_release_the_others_claim,
            p20_a_late_failure_does_not_replace_a_result,
            p20_a_late_permanent_failure_does_not_replace_a_result,
            p12_a_vanished_record_is_restored_by_its_owner,
            p12_a_vanished_record_that_was_claimed_again_is_not_restored,
            a_late_copy_of_a_claim_changes_nothing,
            a_hung_claim_does_not_outlive_its_lease_in_its_own_process,
        ;
        race:
    ]
}

/// A is paused in the middle of its last write, and B has taken over.
struct Paused {
    key: Key,
    clock: ManualSource,
    late: Claim<DynamoDb>,
    gate: Gate,
    other: Claims<DynamoDb>,
}

impl Paused {
    async fn new(lab: &Lab) -> anyhow::Result<Self> {
        let clock = clock();
        let key = Key::new("late", "1")?;
        let late = claims_on(lab.store_without_retries().await, &clock)?;
        let other = claims_on(lab.store(), &clock)?;
        let late = held(&late, &key).await?;
        let gate = Gate::new();
        lab.dynamodb.plan("UpdateItem", [Step::Hold(gate.clone())]);
        Ok(Self {
            key,
            clock,
            late,
            gate,
            other,
        })
    }

    /// Lets A's lease lapse while its write is under way, and B take over.
    async fn overtaken(
        gate: &Gate,
        clock: &ManualSource,
        other: &Claims<DynamoDb>,
        key: &Key,
    ) -> anyhow::Result<Claim<DynamoDb>> {
        gate.reached(1).await;
        clock.advance(LEASE + Duration::from_millis(1));
        let claim = held(other, key).await?;
        ensure!(claim.attempt() == 2, "attempt {}", claim.attempt());
        Ok(claim)
    }
}

fn completing(claim: Claim<DynamoDb>) -> JoinHandle<Outcome<String>> {
    tokio::spawn(claim.complete("late".to_owned()))
}

async fn p20_a18_a_late_completion_changes_nothing(lab: &Lab) -> anyhow::Result<()> {
    let Paused {
        key,
        clock,
        late,
        gate,
        other,
    } = Paused::new(lab).await?;
    let late = completing(late);
    let claim = Paused::overtaken(&gate, &clock, &other, &key).await?;
    let outcome = claim.complete("first".to_owned()).await;
    assert_eq!(outcome.answer, Answer::Performed("first".to_owned()));
    gate.open();
    // The loser gets the winner's result.
    assert_eq!(late.await?.answer, Answer::Replayed("first".to_owned()));
    replays(&other, &key, "first").await
}

async fn p20_an_early_completion_does_not_end_the_others_claim(lab: &Lab) -> anyhow::Result<()> {
    let Paused {
        key,
        clock,
        late,
        gate,
        other,
    } = Paused::new(lab).await?;
    let late = completing(late);
    let claim = Paused::overtaken(&gate, &clock, &other, &key).await?;
    gate.open();
    assert_eq!(late.await?.answer, Answer::Superseded);
    let record = lab.record(key.as_str()).await?;
    ensure!(
        record.status == Status::InProgress && record.attempt == 2,
        "{record:?}"
    );
    claim.complete("second".to_owned()).await;
    replays(&other, &key, "second").await
}

async fn p20_a_late_failure_does_not_release_the_others_claim(lab: &Lab) -> anyhow::Result<()> {
    let Paused {
        key,
        clock,
        late,
        gate,
        other,
    } = Paused::new(lab).await?;
    let late = tokio::spawn(async move { late.release(busy()).await });
    let claim = Paused::overtaken(&gate, &clock, &other, &key).await?;
    gate.open();
    late.await??;
    let record = lab.record(key.as_str()).await?;
    ensure!(
        record.running(other.now()) && record.error.is_none(),
        "{record:?}"
    );
    claim.complete("second".to_owned()).await;
    replays(&other, &key, "second").await
}

async fn p20_a_late_failure_does_not_replace_a_result(lab: &Lab) -> anyhow::Result<()> {
    let Paused {
        key,
        clock,
        late,
        gate,
        other,
    } = Paused::new(lab).await?;
    let late = tokio::spawn(async move { late.release(busy()).await });
    let claim = Paused::overtaken(&gate, &clock, &other, &key).await?;
    claim.complete("second".to_owned()).await;
    gate.open();
    late.await??;
    replays(&other, &key, "second").await
}

async fn p20_a_late_permanent_failure_does_not_replace_a_result(lab: &Lab) -> anyhow::Result<()> {
    let Paused {
        key,
        clock,
        late,
        gate,
        other,
    } = Paused::new(lab).await?;
    let failure = StoredFailure {
        code: "gone".to_owned(),
        message: "late".to_owned(),
    };
    let late = tokio::spawn(async move { late.fail(failure).await });
    let claim = Paused::overtaken(&gate, &clock, &other, &key).await?;
    claim.complete("second".to_owned()).await;
    gate.open();
    late.await??;
    replays(&other, &key, "second").await
}

async fn vanish(lab: &Lab, key: &Key) -> anyhow::Result<()> {
    let client = lab.suite.engine.client();
    let id = AttributeValue::S(key.stored());
    client
        .delete_item()
        .table_name(&lab.table)
        .key("id", id)
        .send()
        .await?;
    Ok(())
}

async fn p12_a_vanished_record_is_restored_by_its_owner(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store(), &clock())?;
    let key = Key::new("vanished", "1")?;
    let claim = held(&claims, &key).await?;
    vanish(lab, &key).await?;
    let outcome = claim.complete("done".to_owned()).await;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    replays(&claims, &key, "done").await
}

async fn p12_a_vanished_record_that_was_claimed_again_is_not_restored(
    lab: &Lab,
) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store(), &clock)?;
    let key = Key::new("vanished", "2")?;
    let claim = held(&claims, &key).await?;
    vanish(lab, &key).await?;
    // Another process: in this one the key is still taken.
    let other = held(&claims_on(lab.store(), &clock)?, &key).await?;
    let outcome = claim.complete("late".to_owned()).await;
    assert_eq!(outcome.answer, Answer::Superseded);
    other.complete("first".to_owned()).await;
    replays(&claims, &key, "first").await
}

/// A claim is held in the network until its key has long been done by another: it may not begin
/// anew.
async fn a_late_copy_of_a_claim_changes_nothing(lab: &Lab) -> anyhow::Result<()> {
    let clock = clock();
    let key = Key::new("late", "claim")?;
    let slow = claims_on(lab.store_without_retries().await, &clock)?;
    let other = claims_on(lab.store(), &clock)?;
    let gate = Gate::new();
    lab.dynamodb.plan("PutItem", [Step::Hold(gate.clone())]);
    let once = slow.once(key.clone()).lease(LEASE);
    let late = tokio::spawn(once.claim());
    gate.reached(1).await;
    held(&other, &key).await?.complete("first".to_owned()).await;
    clock.advance(LEASE * 2);
    gate.open();
    let claimed = late.await?.context("the late claim")?;
    let firstclaim::Claimed::Answered(outcome) = claimed else {
        anyhow::bail!("a late claim began anew");
    };
    assert_eq!(
        outcome.answer,
        Answer::Replayed(r#""first""#.to_owned()),
        "as JSON text"
    );
    replays(&other, &key, "first").await
}

/// A hung operation keeps its claim in memory: when its lease is over, the next request takes over
/// in the same process as in any other.
async fn a_hung_claim_does_not_outlive_its_lease_in_its_own_process(
    lab: &Lab,
) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store(), &clock)?;
    let key = Key::new("hung", "1")?;
    let hung = held(&claims, &key).await?;
    clock.advance(LEASE + Duration::from_millis(1));
    let next = held(&claims, &key).await?;
    assert_eq!(next.attempt(), 2);
    assert_eq!(
        hung.complete("late".to_owned()).await.answer,
        Answer::Superseded
    );
    Ok(())
}
