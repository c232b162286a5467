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
    /// One for all that the tests themselves do: making one takes longer than using it.
    client: Client,
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
        let (endpoint, name, embedded) = match endpoint {
            Some(endpoint) => (endpoint.clone(), endpoint, None),
            None => {
                let embedded = Embedded::start(Storage::Memory).await?;
                let name = "dynoxide-rs (embedded)".to_owned();
                (embedded.endpoint(), name, Some(Arc::new(embedded)))
            }
        };
        Ok(Self {
            client: client(&endpoint, ONCE).await,
            endpoint: Arc::from(endpoint),
            name: Arc::from(name),
            _embedded: embedded,
        })
    }

    /// Its address.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A client straight to the engine, which sends each call once.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a table with a random name: key `id`, TTL on `expiration`.
    ///
    /// # Errors
    ///
    /// The engine refused it, or it did not become active.
    pub async fn create_table(&self) -> anyhow::Result<String> {
        let table = format!("firstclaim-test-{}", uuid::Uuid::new_v4().simple());
        prepare_table(&self.client, &table, Missing::Create).await?;
        Ok(table)
    }

    /// Deletes a table; one that is left behind does no harm but costs.
    ///
    /// # Errors
    ///
    /// The engine refused it.
    pub async fn delete_table(&self, table: &str) -> anyhow::Result<()> {
        self.client.delete_table().table_name(table).send().await?;
        Ok(())
    }

    /// Case N33: of 50 concurrent claims over HTTP exactly one wins, in every round.
    ///
    /// # Errors
    ///
    /// The engine did not answer.
    pub async fn self_test(&self) -> anyhow::Result<SelfTest> {
        let table = self.create_table().await?;
        let mut verdict = SelfTest::OneWinnerEach;
        for round in 1..=ROUNDS {
            match self_test(&self.client, &table).await {
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

/// Sends each call once and waits long for the answer.
pub const ONCE: Patience = Patience {
    attempts: 1,
    attempt: Duration::from_secs(20),
    total: Duration::from_secs(20),
};

/// Sends a call again as the functions do, and waits longer: on a busy machine no reply may count
/// as lost that a test did not lose.
pub const AGAIN: Patience = Patience {
    attempts: 3,
    attempt: Duration::from_secs(20),
    total: Duration::from_secs(60),
};

/// A client of the engine or of a proxy in front of it.
pub async fn client(endpoint: &str, patience: Patience) -> Client {
    Client::new(&loopback_config(endpoint, patience).await)
}
