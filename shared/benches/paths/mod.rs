//! The paths that are measured: each once through the crate, and once as the bare SDK calls that
//! somebody would write by hand. The service is a canned answer inside the process, so that nothing
//! but the client's own work counts.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a measurement stops at what it did not expect"
)]

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, RuntimeComponents};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use firstclaim::clock::{Source, SystemSource};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, Claims, Config, Failure, Fingerprint, Key};

/// What is done: a first execution (two calls) or a duplicate of a completed one (one call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    First,
    Duplicate,
}

/// The payload of the operation.
const PAYLOAD: &[u8] = br#"{"order":42,"amount":1999}"#;

/// The operation's result as it is stored.
const RESULT: &str = r#"{"receipt":"r-42"}"#;

/// A service that answers every write of a path the same way.
#[derive(Clone, Debug)]
struct Canned {
    refuses: bool,
    /// The service's date, which is compared with the own clock once.
    date: String,
}

impl HttpConnector for Canned {
    fn call(&self, _request: HttpRequest) -> HttpConnectorFuture {
        let (status, body) = match self.refuses {
            false => (200, "{}".to_owned()),
            true => (400, refusal()),
        };
        let mut response =
            HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body));
        let headers = response.headers_mut();
        headers.insert("content-type", "application/x-amz-json-1.0");
        headers.insert("date", self.date.clone());
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl HttpClient for Canned {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

fn refusal() -> String {
    format!(
        r##"{{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed","Item":{{"id":{{"S":"charge#order-42"}},"status":{{"S":"COMPLETED"}},"expiration":{{"N":"99999999999"}},"owner":{{"S":"5f0c7d0e5d0c4b7e8f3c9a1b2d3e4f50"}},"attempt":{{"N":"1"}},"validation":{{"S":"{}"}},"data":{{"S":{}}},"checkpoints":{{"M":{{}}}},"origin":{{"M":{{}}}}}}}}"##,
        Fingerprint::of_bytes(PAYLOAD),
        serde_json::to_string(RESULT).unwrap(),
    )
}

/// One path, both ways.
pub(crate) struct Measured {
    path: Path,
    client: Client,
    claims: Claims<DynamoDb>,
}

impl Measured {
    pub(crate) fn new(path: Path) -> Self {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("a", "b", None, None, "bench"))
            .http_client(Canned {
                refuses: path == Path::Duplicate,
                date: DateTime::from_secs(SystemSource.now().seconds().0)
                    .fmt(DateTimeFormat::HttpDate)
                    .unwrap(),
            })
            .build();
        let client = Client::from_conf(config);
        // Nothing is remembered in the process: every duplicate asks the store.
        let settings = Config {
            cache_bytes: 0,
            ..Config::default()
        };
        let claims = Claims::new(DynamoDb::new(client.clone(), "claims"), settings).unwrap();
        Self {
            path,
            client,
            claims,
        }
    }

    /// Through the crate.
    pub(crate) async fn guarded(&self) {
        let outcome = self
            .claims
            .once(Key::new("charge", "order-42").unwrap())
            .fingerprint(Fingerprint::of_bytes(PAYLOAD))
            .lease(Duration::from_secs(30))
            .run(|_work| async { Ok::<serde_json::Value, Failure<String>>(result()) })
            .await
            .unwrap();
        let expected = match self.path {
            Path::First => Answer::Performed(result()),
            Path::Duplicate => Answer::Replayed(result()),
        };
        assert_eq!(outcome.answer, expected);
    }

    /// The same calls by hand.
    pub(crate) async fn bare(&self) {
        let item = HashMap::from([
            text("id", "charge#order-42"),
            text("status", "INPROGRESS"),
            number("expiration", 1_800_000_000),
            number("in_progress_expiration", 1_797_000_000_000),
            text("owner", "5f0c7d0e5d0c4b7e8f3c9a1b2d3e4f50"),
            number("attempt", 1),
            text("validation", &Fingerprint::of_bytes(PAYLOAD).to_hex()),
            ("checkpoints".to_owned(), AttributeValue::M(HashMap::new())),
            ("origin".to_owned(), AttributeValue::M(HashMap::new())),
        ]);
        let claimed = self
            .client
            .put_item()
            .table_name("claims")
            .set_item(Some(item))
            .condition_expression(
                "attribute_not_exists(#id) OR (#end < :s AND NOT (#status = :p AND #lease > :ms))",
            )
            .expression_attribute_names("#id", "id")
            .expression_attribute_names("#end", "expiration")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#lease", "in_progress_expiration")
            .expression_attribute_values(":s", AttributeValue::N("1797000000".to_owned()))
            .expression_attribute_values(":ms", AttributeValue::N("1797000000000".to_owned()))
            .expression_attribute_values(":p", AttributeValue::S("INPROGRESS".to_owned()))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .send()
            .await;
        match claimed {
            Ok(_) => self.bare_completion().await,
            Err(error) => {
                let refusal = error.into_service_error();
                let PutItemError::ConditionalCheckFailedException(refused) = refusal else {
                    panic!("another error than the canned refusal");
                };
                let stored = refused.item().unwrap()["data"].as_s().unwrap();
                let value: serde_json::Value = serde_json::from_str(stored).unwrap();
                assert_eq!(value, result());
            }
        }
    }

    async fn bare_completion(&self) {
        let stored = serde_json::to_string(&result()).unwrap();
        self.client
            .update_item()
            .table_name("claims")
            .key("id", AttributeValue::S("charge#order-42".to_owned()))
            .update_expression(
                "SET #status = :done, #end = :end, #data = :data \
                 REMOVE #ref, #omitted, #lease, #activity, #at",
            )
            .condition_expression("#owner = :me AND #status = :p AND #lease > :zero")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#end", "expiration")
            .expression_attribute_names("#data", "data")
            .expression_attribute_names("#ref", "data_ref")
            .expression_attribute_names("#omitted", "data_omitted")
            .expression_attribute_names("#lease", "in_progress_expiration")
            .expression_attribute_names("#activity", "activity")
            .expression_attribute_names("#at", "activity_at")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":done", AttributeValue::S("COMPLETED".to_owned()))
            .expression_attribute_values(":end", AttributeValue::N("1800000000".to_owned()))
            .expression_attribute_values(":data", AttributeValue::S(stored))
            .expression_attribute_values(
                ":me",
                AttributeValue::S("5f0c7d0e5d0c4b7e8f3c9a1b2d3e4f50".to_owned()),
            )
            .expression_attribute_values(":p", AttributeValue::S("INPROGRESS".to_owned()))
            .expression_attribute_values(":zero", AttributeValue::N("0".to_owned()))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .send()
            .await
            .unwrap();
    }
}

fn result() -> serde_json::Value {
    serde_json::from_str(RESULT).unwrap()
}

fn text(name: &str, value: &str) -> (String, AttributeValue) {
    (name.to_owned(), AttributeValue::S(value.to_owned()))
}

fn number(name: &str, value: i64) -> (String, AttributeValue) {
    (name.to_owned(), AttributeValue::N(value.to_string()))
}
