use super::*;

const TABLE: &str = "firstclaim";

/// Many rounds on one engine, which is the one that `dev` runs.
#[tokio::test(flavor = "multi_thread")]
async fn n33_of_50_concurrent_claims_exactly_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    for storage in [
        Storage::Memory,
        Storage::File(folder.path().join("claims.sqlite")),
    ] {
        let engine = Engine::start(storage).await.unwrap();
        let client = engine.client().await;
        prepare_table(&client, TABLE, Missing::Create)
            .await
            .unwrap();
        for _ in 0..10 {
            self_test(&client, TABLE).await.unwrap();
        }
        let left = client.scan().table_name(TABLE).send().await.unwrap();
        assert_eq!(left.count(), 0, "the self test cleans up");
        engine.stop().await;
    }
}

/// An engine whose conditional writes all succeed must not pass.
#[tokio::test(flavor = "multi_thread")]
async fn n33_an_engine_where_all_claims_win_fails_the_self_test() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let careless = axum::Router::new().fallback(|| async { "{}" });
    let _serving = Serving::router(listener, careless).unwrap();
    let config = firstclaim::aws::loopback_config(&endpoint, Patience::default()).await;
    let error = self_test(&Client::new(&config), TABLE).await.unwrap_err();
    assert!(
        matches!(
            error,
            SelfTestError::Winners {
                winners: SELF_TEST_CLAIMS
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_table_is_created_once_with_ttl_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::File(folder.path().join("claims.sqlite"));
    let engine = Engine::start(storage.clone()).await.unwrap();
    let client = engine.client().await;
    let refused = prepare_table(&client, TABLE, Missing::Refuse)
        .await
        .unwrap_err();
    assert!(matches!(refused, TableError::Missing { .. }), "{refused:?}");
    prepare_table(&client, TABLE, Missing::Create)
        .await
        .unwrap();
    let ttl = client
        .describe_time_to_live()
        .table_name(TABLE)
        .send()
        .await
        .unwrap();
    let ttl = ttl.time_to_live_description.unwrap();
    assert_eq!(ttl.attribute_name(), Some(EXPIRATION));
    assert_eq!(ttl.time_to_live_status().unwrap().as_str(), "ENABLED");
    engine.stop().await;

    let engine = Engine::start(storage).await.unwrap();
    let client = engine.client().await;
    prepare_table(&client, TABLE, Missing::Refuse)
        .await
        .unwrap();
    engine.stop().await;
}

#[tokio::test]
async fn a_table_with_another_key_is_refused_with_what_was_found() {
    let engine = Engine::start(Storage::Memory).await.unwrap();
    let client = engine.client().await;
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(kind)
            .build()
            .unwrap()
    };
    let key = |name: &str, role| {
        KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(role)
            .build()
            .unwrap()
    };
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute("id", ScalarAttributeType::S))
        .attribute_definitions(attribute("at", ScalarAttributeType::N))
        .key_schema(key("id", KeyType::Hash))
        .key_schema(key("at", KeyType::Range))
        .send()
        .await
        .unwrap();
    let error = prepare_table(&client, TABLE, Missing::Create)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, TableError::KeySchema { found, .. } if found == "id (S HASH), at (N RANGE)"),
        "{error:?}"
    );
}
