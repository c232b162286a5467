//! The DynamoDB engine of a run: embedded in the process and spoken to over HTTP, or any endpoint.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use aws_sdk_dynamodb::Client;
use firstclaim::aws::{Patience, loopback_config};
use firstclaim_cli::dev::engine::{
    Engine as Embedded, Missing, SELF_TEST_CLAIMS, SelfTestError, Storage, prepare_table, self_test,
};

/// How many rounds the self test has.
const ROUNDS: usize = 20;

/// A DynamoDB endpoint.
#[derive(Clone, Debug)]
pub struct Engine {
    endpoint: Arc<str>,
    name: Arc<str>,
    /// Serves for as long as somebody holds it.
    _embedded: Option<Arc<Embedded>>,
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
    /// The engine at `endpoint`, or an embedded one that lives as long as the value's clones.
    ///
    /// # Errors
    ///
    /// The embedded engine could not be started.
    pub async fn start(endpoint: Option<String>) -> anyhow::Result<Self> {
        if let Some(endpoint) = endpoint {
            let name = Arc::from(endpoint.as_str());
            return Ok(Self { endpoint: Arc::from(endpoint), name, _embedded: None });
        }
        let embedded = Embedded::start(Storage::Memory).await?;
        Ok(Self {
            endpoint: Arc::from(embedded.endpoint()),
            name: Arc::from("dynoxide-rs (embedded)"),
            _embedded: Some(Arc::new(embedded)),
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

    /// A client that sends each call once and waits long: for what a test itself does.
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
        prepare_table(&client, &table, Missing::Create).await?;
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
        let client = Self::client_without_retries(&self.endpoint).await;
        let mut verdict = SelfTest::OneWinnerEach;
        for round in 1..=ROUNDS {
            match self_test(&client, &table).await {
                Ok(()) => {}
                Err(SelfTestError::Winners { winners }) => {
                    verdict = SelfTest::Failed { round, winners };
                    break;
                }
                Err(error) => return Err(error).context("the engine did not answer"),
            }
        }
        self.delete_table(&table).await?;
        Ok(verdict)
    }

    /// The suite's last line.
    #[must_use]
    pub fn report(&self, verdict: &SelfTest) -> String {
        match verdict {
            SelfTest::OneWinnerEach => format!(
                "engine: {}, self test: {ROUNDS} rounds of {SELF_TEST_CLAIMS} claims, one winner \
                 each",
                self.name
            ),
            SelfTest::Failed { round, winners } => format!(
                "engine: {}, self test FAILED: {winners} winners of {SELF_TEST_CLAIMS} claims in \
                 round {round}; the race tests were refused",
                self.name
            ),
        }
    }
}
