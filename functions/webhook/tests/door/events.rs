//! The events of HTTP APIs and Function URLs, and values that are none.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use webhook::Options;

use crate::bench::{Bench, Request, sample};

#[tokio::test]
async fn events_of_both_gateways_are_accepted() {
    let function_url = "https://fcs4mpl3url1d00000000000000000ab.lambda-url.us-east-1.on.aws";
    for file in [
        "lambda/function-url.github-issue_comment.json",
        "lambda/function-url.github-issue_comment.base64.json",
        "lambda/function-url.github-push-form.base64.json",
        "lambda/function-url.shopify-orders-create.json",
        "lambda/function-url.stripe-charge.json",
        "lambda/function-url.slack-slash-command.base64.json",
        "lambda/function-url.twilio-message.base64.json",
        "lambda/http-api.github-issue_comment.json",
        "lambda/http-api.custom-domain.twilio-json.json",
    ] {
        let mut options = crate::bench::options();
        if file.starts_with("lambda/function-url") {
            options.public_url = Some(function_url.to_owned());
        }
        let bench = Bench::with_options(options);
        let response = bench.event(sample(file)).await;
        let accepted = if file.contains("slack-slash-command") {
            200
        } else {
            202
        };
        assert_eq!(response.status_code, accepted, "{file}: {}", response.body);
    }
}

#[tokio::test]
async fn n21_a_base64_body_is_the_same_delivery_as_the_plain_one() {
    let bench = Bench::new();
    let plain = bench
        .event(sample("lambda/function-url.github-issue_comment.json"))
        .await;
    let encoded = sample("lambda/function-url.github-issue_comment.base64.json");
    let encoded = bench.event(encoded).await;
    assert_eq!(plain.body, encoded.body);
    assert_eq!(encoded.headers["idempotent-replayed"], "true");
    assert_eq!(bench.queue.messages().len(), 1);
}

#[tokio::test]
async fn a_probe_is_told_the_method() {
    let response = Bench::new()
        .event(sample("lambda/http-api.get-probe.json"))
        .await;
    assert_eq!(response.status_code, 405);
    assert_eq!(response.headers["allow"], "POST");
}

#[tokio::test]
async fn the_response_has_the_form_that_the_gateway_reads() {
    let response = Bench::new().send(&Request::of("github/ping.json")).await;
    let value = serde_json::to_value(&response).unwrap();
    let members: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        ["body", "headers", "isBase64Encoded", "statusCode"]
    );
    assert_eq!(value["statusCode"], 202);
    assert_eq!(value["isBase64Encoded"], false);
    assert!(
        value["headers"]
            .as_object()
            .unwrap()
            .values()
            .all(Value::is_string)
    );
}

#[tokio::test]
async fn n32_a_named_stage_is_taken_off_the_path() {
    let stages = [
        ("prod", "/prod/webhooks/github", 202),
        // A custom domain: the stage is not in the path.
        ("prod", "/webhooks/github", 202),
        ("webhooks", "/webhooks/webhooks/github", 202),
        ("webhooks", "/webhooks/github", 202),
        ("$default", "/webhooks/github", 202),
        ("prod", "/production/webhooks/github", 404),
        ("prod", "/other/webhooks/github", 404),
        ("prod", "/prod", 404),
    ];
    for (stage, path, status) in stages {
        let bench = Bench::new();
        let mut event = Request::of("github/ping.json").to(path).event();
        event["requestContext"]["stage"] = json!(stage);
        assert_eq!(
            bench.event(event).await.status_code,
            status,
            "{stage} {path}"
        );
    }
    let bench = Bench::new();
    let mut event = Request::operation("key", "{}")
        .to("/operations/operations")
        .event();
    event["requestContext"]["stage"] = json!("operations");
    assert_eq!(bench.event(event).await.status_code, 202);
}

#[tokio::test]
async fn n18_n32_a_named_stage_is_part_of_the_signed_address() {
    let event = sample("lambda/http-api.stage-prod.twilio-message.base64.json");
    let host = "https://fcs4mpl3id.execute-api.us-east-1.amazonaws.com";
    // Whether PUBLIC_URL ends with the stage or not.
    for (public_url, status) in [
        (host.to_owned(), 202),
        (format!("{host}/prod"), 202),
        (format!("{host}/other"), 401),
        ("https://hooks.example.com".to_owned(), 401),
    ] {
        let bench = Bench::with_options(Options {
            public_url: Some(public_url.clone()),
            ..Options::default()
        });
        let response = bench.event(event.clone()).await;
        assert_eq!(response.status_code, status, "{public_url}");
    }
}

#[tokio::test]
async fn n32_null_and_absent_fields_are_alike() {
    let whole = sample("lambda/http-api.github-issue_comment.json");
    let fields: Vec<String> = whole.as_object().unwrap().keys().cloned().collect();
    for field in fields {
        let mut null = whole.clone();
        null[&field] = Value::Null;
        let mut absent = whole.clone();
        absent.as_object_mut().unwrap().remove(&field);
        let null = Bench::new().event(null).await;
        let absent = Bench::new().event(absent).await;
        assert_eq!(null, absent, "{field}");
        assert!(
            (200..500).contains(&null.status_code),
            "{field}: {}",
            null.status_code
        );
    }
    for field in [
        "rawQueryString",
        "pathParameters",
        "routeKey",
        "version",
        "isBase64Encoded",
    ] {
        let mut event = whole.clone();
        event[field] = Value::Null;
        assert_eq!(Bench::new().event(event).await.status_code, 202, "{field}");
    }
}

#[tokio::test]
async fn header_names_are_read_in_any_case() {
    let mut event = Request::of("github/ping.json").event();
    let headers = event["headers"].as_object().unwrap();
    let upper: Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_uppercase(), value.clone()))
        .collect();
    event["headers"] = Value::Object(upper);
    assert_eq!(Bench::new().event(event).await.status_code, 202);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,8}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A good event with any of its fields replaced by anything.
    #[test]
    fn any_event_whatsoever_gets_an_http_answer(
        whole in any_json(),
        fields in prop::collection::vec((0_usize..9, any_json()), 0..3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = |event| runtime.block_on(Bench::new().event(event));
        prop_assert!((400..500).contains(&answer(whole).status_code));
        let mut event = Request::of("github/ping.json").event();
        for (field, value) in fields {
            match field {
                0 => event["headers"] = value,
                1 => event["body"] = value,
                2 => event["isBase64Encoded"] = value,
                3 => event["rawPath"] = value,
                4 => event["requestContext"] = value,
                5 => event["requestContext"] = json!({"http": value}),
                6 => event["requestContext"] = json!({"http": {"method": value}}),
                7 => event["headers"] = json!({"x-hub-signature-256": value}),
                _ => event["requestContext"] = json!({"http": {"method": "POST"}, "stage": value}),
            }
        }
        prop_assert!((200..500).contains(&answer(event).status_code));
    }
}
