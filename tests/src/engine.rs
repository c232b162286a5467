//! The DynamoDB engine of a run: embedded in the process and spoken to over HTTP, or any endpoint.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
    TimeToLiveSpecification,
};
use firstclaim::aws::{Patience, loopback_config};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claimed, Claims, Config, Key};
use futures_util::future::join_all;
use tokio::net::TcpListener;

use crate::poll;

/// How many rounds the self test has.
const ROUNDS: usize = 20;

/// How many claims race in one round.
const CLAIMS: usize = 50;

/// Longer than the self test takes.
const LEASE: Duration = Duration::from_secs(60);

/// A DynamoDB endpoint.
#[derive(Clone, Debug)]
pub struct Engine {
    endpoint: Arc<str>,
    name: Arc<str>,
}

/// What the self test found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// Every round had exactly one winner.
    OneWinnerEach,
    /// A round had another number of winners: races on this engine prove nothing.
    Failed {
        /// Which round.
        round: usize,
        /// How many claims won.
        winners: usize,
    },
}

impl Engine {
    /// The engine at `endpoint`, or an embedded one that lives as long as the process.
    ///
    /// # Errors
    ///
    /// The embedded engine could not be started.
    pub async fn start(endpoint: Option<String>) -> anyhow::Result<Self> {
        if let Some(endpoint) = endpoint {
            let name = Arc::from(endpoint.as_str());
            return Ok(Self {
                endpoint: Arc::from(endpoint),
                name,
            });
        }
        let database = dynoxide::Database::memory().context("the embedded engine")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        // Serving never ends by itself, and with the process there is nothing left to keep.
        tokio::spawn(dynoxide::server::serve_on(listener, database));
        Ok(Self {
            endpoint: Arc::from(endpoint),
            name: Arc::from("dynoxide-rs (embedded)"),
        })
    }

    /// Its address.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A client with the time-outs and retries of the functions, for this engine or for a proxy in
    /// front of it.
    pub async fn client(endpoint: &str) -> Client {
        Self::client_with(endpoint, Patience::default()).await
    }

    /// A client that sends each call once.
    pub async fn client_without_retries(endpoint: &str) -> Client {
        let patience = Patience {
            attempts: 1,
            attempt: Duration::from_secs(20),
            total: Duration::from_secs(20),
        };
        Self::client_with(endpoint, patience).await
    }

    async fn client_with(endpoint: &str, patience: Patience) -> Client {
        Client::new(&loopback_config(endpoint, patience).await)
    }

    /// Makes a table with a random name: key `id`, TTL on `expiration`.
    ///
    /// # Errors
    ///
    /// The engine refused it, or it did not become active.
    pub async fn create_table(&self) -> anyhow::Result<String> {
        let client = Self::client_without_retries(&self.endpoint).await;
        let table = format!("firstclaim-test-{}", uuid::Uuid::new_v4().simple());
        client
            .create_table()
            .table_name(&table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(
                AttributeDefinition::builder()
                    .attribute_name("id")
                    .attribute_type(ScalarAttributeType::S)
                    .build()?,
            )
            .key_schema(
                KeySchemaElement::builder()
                    .attribute_name("id")
                    .key_type(KeyType::Hash)
                    .build()?,
            )
            .send()
            .await
            .context("the table could not be created")?;
        poll::until("an active table", Duration::from_secs(60), async || {
            let described = client.describe_table().table_name(&table).send().await?;
            let status = described.table().and_then(|table| table.table_status());
            Ok((status == Some(&TableStatus::Active)).then_some(()))
        })
        .await?;
        client
            .update_time_to_live()
            .table_name(&table)
            .time_to_live_specification(
                TimeToLiveSpecification::builder()
                    .attribute_name("expiration")
                    .enabled(true)
                    .build()?,
            )
            .send()
            .await
            .context("TTL could not be switched on")?;
        Ok(table)
    }

    /// Deletes a table; one that is left behind does no harm but costs.
    ///
    /// # Errors
    ///
    /// The engine refused it.
    pub async fn delete_table(&self, table: &str) -> anyhow::Result<()> {
        let client = Self::client_without_retries(&self.endpoint).await;
        client.delete_table().table_name(table).send().await?;
        Ok(())
    }

    /// Case N33: of 50 concurrent claims over HTTP exactly one wins, in every round.
    ///
    /// # Errors
    ///
    /// The engine did not answer.
    pub async fn self_test(&self) -> anyhow::Result<SelfTest> {
        let table = self.create_table().await?;
        let store = DynamoDb::new(Self::client_without_retries(&self.endpoint).await, &table);
        let claims = Claims::new(store, Config::default())?;
        let mut verdict = SelfTest::OneWinnerEach;
        for round in 1..=ROUNDS {
            let key = Key::new("self-test", round.to_string())?;
            let winners = Self::race(&claims, &key).await?;
            if winners != 1 {
                verdict = SelfTest::Failed { round, winners };
                break;
            }
        }
        self.delete_table(&table).await?;
        Ok(verdict)
    }

    async fn race(claims: &Claims<DynamoDb>, key: &Key) -> anyhow::Result<usize> {
        let racing = (0..CLAIMS).map(|_| claims.once(key.clone()).lease(LEASE).claim());
        let mut winners = 0;
        for claimed in join_all(racing).await {
            if matches!(claimed?, Claimed::Held(_)) {
                winners += 1;
            }
        }
        Ok(winners)
    }

    /// The suite's last line.
    #[must_use]
    pub fn report(&self, verdict: &SelfTest) -> String {
        match verdict {
            SelfTest::OneWinnerEach => format!(
                "engine: {}, self test: {ROUNDS} rounds of {CLAIMS} claims, one winner each",
                self.name
            ),
            SelfTest::Failed { round, winners } => format!(
                "engine: {}, self test FAILED: {winners} winners of {CLAIMS} claims in round \
                 {round}; the race tests were refused",
                self.name
            ),
        }
    }
}
