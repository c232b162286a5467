//! Each way in which the service can fail, and the error that the store makes of it.

use std::time::Duration;

use anyhow::ensure;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use firstclaim::clock::EpochSeconds;
use firstclaim::protocol::Write;
use firstclaim::record::{Data, Status};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::store::{Read, Store, StoreError};
use firstclaim::{Claimed, Claims, Config, Key};
use integration::Lab;
use integration::proxy::{ANY, Failure, Step};

use crate::registry::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        shape:
            p83_each_failure_of_the_service_has_its_error,
            p85_the_cause_is_kept,
            an_unreachable_service_is_unavailable,
            a_missing_table_is_named,
            a_table_with_another_key_is_invalid,
            an_item_that_grows_too_large_is_told_apart,
        ;
        race:
    ]
}

/// What each call of the store ends with.
async fn all_calls(store: &DynamoDb) -> anyhow::Result<Vec<StoreError>> {
    let finish = Write::Finish {
        owner: firstclaim::Owner::new("nobody"),
        status: Status::Completed,
        data: Data::Inline("1".to_owned()),
        expiration: EpochSeconds(4_000_000_000),
    };
    let claims = Claims::new(store.clone(), Config::default())?;
    let once = claims
        .once(Key::new("failing", "1")?)
        .lease(Duration::from_secs(60));
    let put = match once.claim().await {
        Err(firstclaim::ClaimError::Store(error)) => error,
        other => anyhow::bail!("claimed: {other:?}"),
    };
    let (Err(update), Err(read)) = (
        store.write("failing#1", &finish).await,
        store.read("failing#1", Read::Consistent).await,
    ) else {
        anyhow::bail!("a planned fault did not arrive");
    };
    Ok(vec![put, update, read])
}

async fn p83_each_failure_of_the_service_has_its_error(lab: &Lab) -> anyhow::Result<()> {
    let store = lab.store_without_retries().await;
    for (failure, expected) in [
        (Failure::Internal, "unavailable"),
        (Failure::Throttled, "throttled"),
        (Failure::AccessDenied, "denied"),
        (Failure::ResourceNotFound, "no table"),
    ] {
        lab.dynamodb.always(ANY, Step::Fail(failure));
        for error in all_calls(&store).await? {
            assert_eq!(kind(&error), expected, "{failure:?}: {error:?}");
        }
    }
    lab.dynamodb.heal();
    ensure!(
        lab.ids().await?.is_empty(),
        "a refused call left something behind"
    );
    Ok(())
}

async fn p85_the_cause_is_kept(lab: &Lab) -> anyhow::Result<()> {
    lab.dynamodb.always(ANY, Step::Fail(Failure::AccessDenied));
    for error in all_calls(&lab.store_without_retries().await).await? {
        let chain = format!("{:?}", anyhow::Error::from(error));
        ensure!(chain.contains("AccessDeniedException"), "{chain}");
    }
    Ok(())
}

async fn an_unreachable_service_is_unavailable(lab: &Lab) -> anyhow::Result<()> {
    let store = lab.store_without_retries().await;
    lab.dynamodb.always(ANY, Step::DropRequest);
    for error in all_calls(&store).await? {
        assert_eq!(kind(&error), "unavailable", "{error:?}");
    }
    lab.dynamodb.shut().await;
    for error in all_calls(&store).await? {
        assert_eq!(kind(&error), "unavailable", "{error:?}");
    }
    lab.dynamodb.heal();
    lab.dynamodb.reopen().await?;
    let read = store.read("failing#1", Read::Consistent).await?;
    ensure!(read.is_none(), "{read:?}");
    Ok(())
}

async fn a_missing_table_is_named(lab: &Lab) -> anyhow::Result<()> {
    let client = lab.suite.engine.client();
    for error in all_calls(&DynamoDb::new(client.clone(), "no-such-table")).await? {
        assert_eq!(kind(&error), "no table", "{error:?}");
        ensure!(error.to_string().contains("no-such-table"), "{error}");
    }
    Ok(())
}

async fn a_table_with_another_key_is_invalid(lab: &Lab) -> anyhow::Result<()> {
    let client = lab.suite.engine.client();
    let table = format!("{}-other-key", lab.table);
    client
        .create_table()
        .table_name(&table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(
            AttributeDefinition::builder()
                .attribute_name("pk")
                .attribute_type(ScalarAttributeType::S)
                .build()?,
        )
        .key_schema(
            KeySchemaElement::builder()
                .attribute_name("pk")
                .key_type(KeyType::Hash)
                .build()?,
        )
        .send()
        .await?;
    for error in all_calls(&DynamoDb::new(client.clone(), &table)).await? {
        assert_eq!(kind(&error), "invalid", "{error:?}");
    }
    client.delete_table().table_name(&table).send().await?;
    Ok(())
}

async fn an_item_that_grows_too_large_is_told_apart(lab: &Lab) -> anyhow::Result<()> {
    let store = lab.store();
    let claims = Claims::new(store.clone(), Config::default())?;
    let key = Key::new("large", "1")?;
    let claimed = claims
        .once(key.clone())
        .lease(Duration::from_secs(60))
        .claim()
        .await?;
    let Claimed::Held(claim) = claimed else {
        anyhow::bail!("{claimed:?}");
    };
    let finish = Write::Finish {
        owner: claim.owner().clone(),
        status: Status::Completed,
        data: Data::Inline("x".repeat(410 * 1024)),
        expiration: EpochSeconds(4_000_000_000),
    };
    let written = store.write(&key.stored(), &finish).await;
    let Err(error) = written else {
        anyhow::bail!("{written:?}");
    };
    assert_eq!(kind(&error), "too large", "{error:?}");
    Ok(())
}

fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Throttled { .. } => "throttled",
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::NoTable { .. } => "no table",
        StoreError::Denied { .. } => "denied",
        StoreError::TooLarge { .. } => "too large",
        StoreError::Invalid { .. } => "invalid",
        StoreError::Malformed { .. } => "malformed",
        StoreError::Contended { .. } => "contended",
        _ => "another",
    }
}
