//! Replies that get lost and writes that arrive twice: an owner stays an owner, and a stranger a
//! stranger.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{bail, ensure};
use firstclaim::record::Status;
use firstclaim::{Answer, ClaimError, Key, StoreError};
use integration::Lab;
use integration::proxy::{Failure, Step};

use super::{LEASE, busy, claims_on, clock, held, replays, run};
use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            p21_a13_a_claim_whose_reply_was_lost_is_recognised,
            p21_a_takeover_whose_reply_was_lost_is_recognised,
            a_completion_whose_reply_was_lost_is_recognised,
            p23_a_release_whose_reply_was_lost_stays_a_release,
            writes_that_arrive_twice_count_once,
            lost_replies_are_recognised_without_the_item_too,
            a_claim_without_an_answer_fails_closed_and_lapses,
            p28_a_completion_is_sent_again_until_it_stands,
            n43_a_read_back_that_fails_is_no_lost_race,
        ;
        race:
    ]
}

fn calls(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

async fn p21_a13_a_claim_whose_reply_was_lost_is_recognised(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store_through_proxy().await, &clock())?;
    let key = Key::new("lost", "claim")?;
    lab.dynamodb.plan("PutItem", [Step::DropReply]);
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    assert_eq!(outcome.attempt, 1);
    assert_eq!(
        lab.dynamodb.calls(),
        calls(&[("PutItem", 2), ("UpdateItem", 1)])
    );
    replays(&claims, &key, "done").await
}

async fn p21_a_takeover_whose_reply_was_lost_is_recognised(lab: &Lab) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store_through_proxy().await, &clock)?;
    let key = Key::new("lost", "takeover")?;
    drop(held(&claims, &key).await?);
    clock.advance(LEASE + Duration::from_millis(1));
    lab.dynamodb.plan("UpdateItem", [Step::DropReply]);
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    assert_eq!(outcome.attempt, 2);
    replays(&claims, &key, "done").await
}

async fn a_completion_whose_reply_was_lost_is_recognised(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store_through_proxy().await, &clock())?;
    let key = Key::new("lost", "completion")?;
    lab.dynamodb
        .plan("UpdateItem", [Step::DropReply, Step::DropReply]);
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    assert_eq!(
        lab.dynamodb.calls(),
        calls(&[("PutItem", 1), ("UpdateItem", 3)])
    );
    replays(&claims, &key, "done").await
}

async fn p23_a_release_whose_reply_was_lost_stays_a_release(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store_through_proxy().await, &clock())?;
    let key = Key::new("lost", "release")?;
    let claim = held(&claims, &key).await?;
    lab.dynamodb.plan("UpdateItem", [Step::DropReply]);
    claim.release(busy()).await?;
    let record = lab.record(key.as_str()).await?;
    ensure!(record.released() && record.attempt == 1, "{record:?}");
    Ok(())
}

async fn writes_that_arrive_twice_count_once(lab: &Lab) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store_through_proxy().await, &clock)?;
    let key = Key::new("twice", "all")?;
    lab.dynamodb.always("PutItem", Step::Twice);
    lab.dynamodb.always("UpdateItem", Step::Twice);
    let claim = held(&claims, &key).await?;
    assert_eq!(claim.attempt(), 1);
    claim.release(busy()).await?;
    drop(held(&claims, &key).await?);
    clock.advance(LEASE + Duration::from_millis(1));
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    assert_eq!(outcome.attempt, 3);
    replays(&claims, &key, "done").await
}

async fn lost_replies_are_recognised_without_the_item_too(lab: &Lab) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store_through_proxy().await, &clock)?;
    let key = Key::new("lost", "no item")?;
    lab.dynamodb.plan("PutItem", [Step::DropReply]);
    lab.dynamodb.plan("UpdateItem", [Step::DropReply]);
    lab.dynamodb.always("PutItem", Step::StripItem);
    lab.dynamodb.always("UpdateItem", Step::StripItem);
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    assert_eq!(
        lab.dynamodb.calls(),
        calls(&[("PutItem", 2), ("GetItem", 2), ("UpdateItem", 2)])
    );
    replays(&claims, &key, "done").await
}

async fn a_claim_without_an_answer_fails_closed_and_lapses(lab: &Lab) -> anyhow::Result<()> {
    let clock = clock();
    let claims = claims_on(lab.store_without_retries().await, &clock)?;
    let key = Key::new("lost", "for good")?;
    lab.dynamodb.plan("PutItem", [Step::DropReply]);
    match claims.once(key.clone()).lease(LEASE).claim().await {
        Err(ClaimError::Store(StoreError::Unavailable { .. })) => {}
        other => bail!("not closed: {other:?}"),
    }
    // It landed all the same: nobody else may run until its lease is over, and then anybody may.
    let outcome = run(&claims, &key, "too early").await?;
    ensure!(
        matches!(outcome.answer, Answer::InProgress { .. }),
        "{outcome:?}"
    );
    clock.advance(LEASE + Duration::from_millis(1));
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(
        (outcome.answer, outcome.attempt),
        (Answer::Performed("done".to_owned()), 2)
    );
    Ok(())
}

async fn p28_a_completion_is_sent_again_until_it_stands(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store_without_retries().await, &clock())?;
    let key = Key::new("refused", "completion")?;
    lab.dynamodb.plan(
        "UpdateItem",
        [
            Step::Fail(Failure::Internal),
            Step::DropRequest,
            Step::Fail(Failure::Throttled),
        ],
    );
    let outcome = run(&claims, &key, "done").await?;
    assert_eq!(outcome.answer, Answer::Performed("done".to_owned()));
    replays(&claims, &key, "done").await?;

    let lost = Key::new("refused", "for good")?;
    lab.dynamodb
        .always("UpdateItem", Step::Fail(Failure::Internal));
    let outcome = run(&claims, &lost, "ran").await?;
    assert_eq!(outcome.answer, Answer::NotRecorded("ran".to_owned()));
    let record = lab.record(lost.as_str()).await?;
    ensure!(
        record.status == Status::InProgress && !record.released(),
        "{record:?}"
    );
    Ok(())
}

async fn n43_a_read_back_that_fails_is_no_lost_race(lab: &Lab) -> anyhow::Result<()> {
    let claims = claims_on(lab.store_without_retries().await, &clock())?;
    let key = Key::new("read back", "1")?;
    drop(held(&claims, &key).await?);
    lab.dynamodb.always("PutItem", Step::StripItem);
    lab.dynamodb
        .always("GetItem", Step::Fail(Failure::Internal));
    let claimed = claims.once(key).lease(LEASE).claim().await;
    ensure!(
        matches!(
            claimed,
            Err(ClaimError::Store(StoreError::Unavailable { .. }))
        ),
        "can't tell was taken for {claimed:?}"
    );
    Ok(())
}
