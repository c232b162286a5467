//! Faults of the table, and of the claims in it.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification,
};
use serde_json::json;

use super::*;

/// A table with these key attributes, without TTL.
async fn table(client: &Client, key: &[(&str, ScalarAttributeType, KeyType)]) {
    let mut create = client
        .create_table()
        .table_name("claims")
        .billing_mode(BillingMode::PayPerRequest);
    for (name, kind, role) in key {
        let definition = AttributeDefinition::builder()
            .attribute_name(*name)
            .attribute_type(kind.clone())
            .build();
        let element = KeySchemaElement::builder()
            .attribute_name(*name)
            .key_type(role.clone())
            .build();
        create = create
            .attribute_definitions(definition.unwrap())
            .key_schema(element.unwrap());
    }
    create.send().await.unwrap();
}

#[tokio::test]
async fn a_table_as_it_should_be_has_no_fault_and_keeps_no_trace() {
    let engine = engine().await;
    let run = Run::at(&engine.endpoint());
    let report = run.report().await;
    for check in [
        "settings",
        "table",
        "key-schema",
        "ttl",
        "clock",
        "claim",
        "race",
    ] {
        report.only(check).is(Status::Ok, &[]);
    }
    report
        .only("claim")
        .is(Status::Ok, &["check.probe#", "removed"]);
    assert_eq!(report.exit_code(), 0, "{report:#?}");
    let left = engine
        .client()
        .await
        .scan()
        .table_name("claims")
        .send()
        .await
        .unwrap();
    assert_eq!(left.count(), 0, "{:?}", left.items());
}

#[tokio::test]
async fn a_missing_table_is_a_fault() {
    let engine = engine().await;
    let mut run = Run::at(&engine.endpoint());
    run.options.table = Some("other".to_owned());
    let report = run.report().await;
    report
        .only("table")
        .is(Status::Fault, &["does not exist", "deploy"]);
    for check in ["key-schema", "ttl", "clock", "claim"] {
        report.only(check).is(Status::Skipped, &[]);
    }
    assert_eq!(report.exit_code(), 1);
}

#[tokio::test]
async fn a_wrong_key_is_a_fault_and_nothing_is_claimed() {
    use KeyType::{Hash, Range};
    use ScalarAttributeType::{N, S};
    for (key, found) in [
        (&[("id", N, Hash)][..], "id (N HASH)"),
        (&[("pk", S, Hash)], "pk (S HASH)"),
        (
            &[("id", S, Hash), ("sort", S, Range)],
            "id (S HASH), sort (S RANGE)",
        ),
    ] {
        let engine = Engine::start(Storage::Memory).await.unwrap();
        let client = engine.client().await;
        table(&client, key).await;
        let report = Run::at(&engine.endpoint()).report().await;
        report.only("table").is(Status::Ok, &[]);
        report.only("key-schema").is(Status::Fault, &[found]);
        report.only("claim").is(Status::Skipped, &["another key"]);
        assert_eq!(report.exit_code(), 1);
        engine.stop().await;
    }
}

#[tokio::test]
async fn n39_ttl_that_is_off_or_reads_another_attribute_is_a_fault() {
    let engine = Engine::start(Storage::Memory).await.unwrap();
    let client = engine.client().await;
    table(&client, &[("id", ScalarAttributeType::S, KeyType::Hash)]).await;
    let run = Run::at(&engine.endpoint());
    let off = run.report().await;
    off.only("ttl").is(
        Status::Fault,
        &["off", "update-time-to-live --table-name claims"],
    );
    off.only("claim").is(Status::Ok, &[]);
    assert_eq!(off.exit_code(), 1);

    let foo = TimeToLiveSpecification::builder()
        .attribute_name("foo")
        .enabled(true);
    client
        .update_time_to_live()
        .table_name("claims")
        .time_to_live_specification(foo.build().unwrap())
        .send()
        .await
        .unwrap();
    let other = run.report().await;
    other.only("ttl").is(Status::Fault, &["foo", "expiration"]);
    assert_eq!(other.exit_code(), 1);
}

#[tokio::test]
async fn a_store_that_does_not_answer_has_an_exit_code_of_its_own() {
    let refused = Run::at(&format!("http://{}", stub::closed()))
        .report()
        .await;
    refused.only("table").is(Status::Fault, &["refused"]);
    assert_eq!(refused.exit_code(), 69);

    let silent = stub::silent();
    let mut run = Run::at(&format!("http://{}", silent.address));
    run.options.limit = Duration::from_millis(300);
    let hung = run.report().await;
    hung.only("table").is(Status::Fault, &[]);
    assert_eq!(hung.exit_code(), 69);
}

#[tokio::test]
async fn what_is_denied_is_named() {
    let all = stub::service(|_| Err("AccessDeniedException")).await;
    let report = Run::at(&all.url).report().await;
    report
        .only("table")
        .is(Status::Fault, &["grant dynamodb:DescribeTable"]);
    report
        .only("ttl")
        .is(Status::Fault, &["grant dynamodb:DescribeTimeToLive"]);
    report
        .only("clock")
        .is(Status::Fault, &["grant dynamodb:GetItem"]);
    report
        .only("claim")
        .is(Status::Fault, &["grant dynamodb:PutItem"]);
    assert_eq!(report.exit_code(), 1);

    let expired = stub::service(|_| Err("ExpiredTokenException")).await;
    let report = Run::at(&expired.url).report().await;
    report
        .only("table")
        .is(Status::Fault, &["ExpiredTokenException", "renew"]);
    assert_eq!(report.exit_code(), 1);
}

/// A DynamoDB that describes a table as it should be, and answers all else with `others`.
async fn pretender(
    others: impl Fn(&str) -> Result<serde_json::Value, &'static str> + Send + Sync + 'static,
) -> stub::Stub {
    stub::service(move |call| match call {
        "DescribeTable" => Ok(json!({ "Table": {
            "TableStatus": "ACTIVE",
            "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        }})),
        "DescribeTimeToLive" => Ok(json!({ "TimeToLiveDescription": {
            "TimeToLiveStatus": "ENABLED", "AttributeName": "expiration",
        }})),
        other => others(other),
    })
    .await
}

#[tokio::test]
async fn n33_an_engine_that_heeds_no_conditions_is_a_fault() {
    let careless = pretender(|_| Ok(json!({}))).await;
    let report = Run::at(&careless.url).report().await;
    report
        .only("claim")
        .is(Status::Fault, &["a second claim won too"]);
    report.only("race").is(Status::Fault, &["50 won"]);
    assert_eq!(report.exit_code(), 1);
}

#[tokio::test]
async fn a_table_that_is_not_active_is_a_fault() {
    let creating = stub::service(|call| match call {
        "DescribeTable" => Ok(json!({ "Table": { "TableStatus": "CREATING" } })),
        _ => Err("ResourceNotFoundException"),
    })
    .await;
    let report = Run::at(&creating.url).report().await;
    report.only("table").is(Status::Fault, &["CREATING"]);
    assert_eq!(report.exit_code(), 1);
}

#[tokio::test]
async fn a_probe_that_may_not_be_removed_is_said_to_stay() {
    let engine = engine().await;
    let behind = engine.client().await;
    // The functions' own rights: no DeleteItem.
    let proxy = stub::without(&engine.endpoint(), "DeleteItem").await;
    let report = Run::at(&proxy.url).report().await;
    report.only("claim").is(Status::Ok, &["stays for an hour"]);
    let left = behind.scan().table_name("claims").send().await.unwrap();
    let now = SystemSource.now().seconds().0;
    assert!(left.count() > 0);
    for item in left.items() {
        let expiration: i64 = item["expiration"].as_n().unwrap().parse().unwrap();
        assert!(expiration <= now + 60 * 60 + 5, "{item:?}");
    }
}

#[tokio::test]
async fn a_clock_that_is_off_is_told() {
    let engine = engine().await;
    let run = Run::at(&engine.endpoint());
    for (off_by, how) in [(60_000, "fast by"), (-60_000, "slow by")] {
        let report = run.report_by(OffBy(off_by)).await;
        report
            .only("clock")
            .is(Status::Fault, &[how, "more than the grace"]);
        assert_eq!(report.exit_code(), 1);
    }
    for (off_by, how) in [(1_100, "fast by"), (-1_500, "slow by")] {
        let report = run.report_by(OffBy(off_by)).await;
        report.only("clock").is(Status::Warning, &[how]);
        assert_eq!(report.exit_code(), 0);
    }
}
