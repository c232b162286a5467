//! The engine under the schedules of one worker, and the ways to it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition, TokenBucket};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Credentials, IdentityCache, Region, StalledStreamProtectionConfig,
};
use dynoxide::actions::delete_item::DeleteItemRequest;
use dynoxide::actions::get_item::GetItemRequest;
use dynoxide::actions::put_item::PutItemRequest;
use dynoxide::{AttributeValue, Database, Item};
use firstclaim::store::dynamodb::DynamoDb;
use hyper::body::Bytes;
use tokio::net::TcpListener;

use super::mutant::Mutant;
use super::state::State;
use super::wire::{Answer, Message, NoDelay, Wire};

const TABLE: &str = "faults";

/// One table in an embedded engine, reached by HTTP over loopback, and two clients whose requests
/// go through a [`Wire`].
///
/// Every worker has its own engine on its own thread: schedules of one worker run one after the
/// other, and no other thread can reorder what they do.
pub(crate) struct World {
    database: Database,
    endpoint: String,
    http: reqwest::Client,
    pub(crate) wire: Wire,
    /// A client that sends each call up to three times.
    patient: DynamoDb,
    /// A client that sends each call once.
    hasty: DynamoDb,
    schedules: std::cell::Cell<u64>,
}

impl World {
    /// Must be called inside the worker's runtime, which the engine then runs on.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let database = Database::memory().context("the embedded engine")?;
        let table = serde_json::json!({
            "TableName": TABLE,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        });
        database.create_table(serde_json::from_value(table)?)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        // It ends with the worker's runtime.
        tokio::spawn(dynoxide::server::serve_on(listener, database.clone()));
        let wire = Wire::default();
        Ok(Self {
            database,
            http: reqwest::Client::builder().build()?,
            patient: DynamoDb::new(client(&endpoint, &wire, 3), TABLE),
            hasty: DynamoDb::new(client(&endpoint, &wire, 1), TABLE),
            endpoint,
            wire,
            schedules: std::cell::Cell::new(0),
        })
    }

    /// The store as its users have it, or a mutant of it.
    pub(crate) fn store(&self, retries: bool, mutant: Option<&Mutant>) -> DynamoDb {
        let store = if retries { &self.patient } else { &self.hasty };
        match mutant {
            Some(Mutant::Part { write, part }) => store.clone().without_part(write, part),
            _ => store.clone(),
        }
    }

    /// A number that no schedule of this worker has had, for its key.
    pub(crate) fn fresh(&self) -> u64 {
        let number = self.schedules.get();
        self.schedules.set(number + 1);
        number
    }

    /// Passes a request on to the engine.
    pub(crate) async fn forward(&self, message: &Message) -> anyhow::Result<Answer> {
        let mut request = self.http.post(&self.endpoint);
        for (name, value) in &message.headers {
            request = request.header(name, value);
        }
        let response = request.body(message.body.clone()).send().await;
        let response = response.context("the embedded engine did not answer")?;
        Ok(Answer {
            status: response.status().as_u16(),
            body: response.bytes().await?,
        })
    }

    /// The record as it stands in the table now.
    pub(crate) fn look(&self, id: &str) -> anyhow::Result<Option<State>> {
        let found = self.database.get_item(GetItemRequest {
            table_name: TABLE.to_owned(),
            key: key(id),
            consistent_read: Some(true),
            ..GetItemRequest::default()
        })?;
        found.item.map(State::read).transpose()
    }

    /// What TTL or a person does: the item goes, whatever it is.
    pub(crate) fn remove(&self, id: &str) -> anyhow::Result<()> {
        self.database.delete_item(DeleteItemRequest {
            table_name: TABLE.to_owned(),
            key: key(id),
            ..DeleteItemRequest::default()
        })?;
        Ok(())
    }

    /// What another tool does: the item is this, whatever stood there.
    pub(crate) fn put(&self, item: Item) -> anyhow::Result<()> {
        self.database.put_item(PutItemRequest {
            table_name: TABLE.to_owned(),
            item,
            ..PutItemRequest::default()
        })?;
        Ok(())
    }
}

fn key(id: &str) -> HashMap<String, AttributeValue> {
    HashMap::from([("id".to_owned(), AttributeValue::S(id.to_owned()))])
}

/// A client without time-outs and without waiting: what is slow or lost, the schedule decides.
fn client(endpoint: &str, wire: &Wire, attempts: u32) -> Client {
    let credentials = Credentials::new("firstclaim", "firstclaim", None, None, "loopback");
    let partition = RetryPartition::custom("faults").token_bucket(TokenBucket::unlimited());
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url(endpoint)
        .http_client(wire.clone())
        .sleep_impl(NoDelay)
        .identity_cache(IdentityCache::no_cache())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(TimeoutConfig::disabled())
        .retry_partition(partition.build())
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(attempts)
                .with_initial_backoff(Duration::from_millis(1)),
        )
        .build();
    Client::from_conf(config)
}

/// An answer that the network makes up.
pub(crate) fn refusal(status: u16, code: &str) -> Answer {
    let body = serde_json::json!({
        "__type": format!("com.amazonaws.faults#{code}"),
        "message": "a fault of the schedule",
    });
    Answer {
        status,
        body: Bytes::from(body.to_string()),
    }
}
