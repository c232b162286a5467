//! The embedded DynamoDB, the table in it, and the test that it is fit for claims.

use std::path::PathBuf;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TableDescription, TableStatus, TimeToLiveSpecification,
};
use dynoxide::Database;
use firstclaim::aws::Patience;
use firstclaim::clock::{Source, SystemSource};
use firstclaim::protocol::Terms;
use firstclaim::record::Origin;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::store::{Cause, Written};
use firstclaim::{Policy, Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::serving::Serving;
use crate::private;

/// How many claims the self test sends at once.
pub const SELF_TEST_CLAIMS: usize = 50;

/// How long a new table may take to become usable.
const TABLE_BOUND: Duration = Duration::from_secs(30);

/// The attribute that is a table's partition key.
const KEY: &str = "id";

/// The key that a table must have, as [`key_schema`] writes it.
pub(crate) const KEY_SCHEMA: &str = "id (S HASH)";

/// The attribute that DynamoDB's TTL reads.
pub(crate) const EXPIRATION: &str = "expiration";

/// Where the embedded DynamoDB keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Gone when the process ends.
    Memory,
    /// In this file, which is made if it does not exist.
    File(PathBuf),
}

/// An embedded DynamoDB that answers over HTTP on this machine.
#[derive(Debug)]
pub struct Engine {
    serving: Serving,
}

/// Why the embedded DynamoDB could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The data could not be opened.
    #[error("the embedded DynamoDB could not open its data, {place}; move that away to start anew")]
    Open {
        /// The file, or the memory.
        place: String,
        /// What is wrong with it.
        #[source]
        source: dynoxide::DynoxideError,
    },
    /// No free port, or the listener is broken.
    #[error("the embedded DynamoDB could not listen")]
    Listen(#[source] std::io::Error),
}

impl Engine {
    /// Starts one on a free port of this machine.
    ///
    /// # Errors
    ///
    /// See [`EngineError`].
    pub async fn start(storage: Storage) -> Result<Self, EngineError> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .map_err(EngineError::Listen)?;
        Self::serve(listener, storage)
    }

    /// Starts one on `listener`.
    ///
    /// # Errors
    ///
    /// See [`EngineError`].
    pub fn serve(listener: TcpListener, storage: Storage) -> Result<Self, EngineError> {
        let (place, database) = match storage {
            Storage::Memory => ("in memory".to_owned(), Database::memory()),
            Storage::File(path) => {
                let place = path.to_string_lossy().into_owned();
                // Those that SQLite makes beside it get its mode. What keeps it from being made keeps
                // it from being opened.
                let _ = private::touch(&path);
                let database = Database::new(&place);
                (place, database)
            }
        };
        let database = database.map_err(|source| EngineError::Open { place, source })?;
        let serving = Serving::spawn(listener, |listener, stopped| async move {
            let served = dynoxide::server::serve_with_shutdown(listener, database, stopped).await;
            if let Err(error) = served {
                tracing::error!(error, "the embedded DynamoDB ended");
            }
        })
        .map_err(EngineError::Listen)?;
        Ok(Self { serving })
    }

    /// Its endpoint URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.serving.address())
    }

    /// A client for it.
    pub async fn client(&self) -> Client {
        let endpoint = self.endpoint();
        Client::new(&firstclaim::aws::loopback_config(&endpoint, Patience::default()).await)
    }

    /// Stops it: running requests are answered, within a second.
    pub async fn stop(self) {
        self.serving.stop(Duration::from_secs(1)).await;
    }
}

/// What to do where the table does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Create it, on demand and with TTL.
    Create,
    /// Say so.
    Refuse,
}

/// Why a table can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Nothing answers there, or the service refuses.
    #[error("DynamoDB did not answer {operation} on table {table}")]
    Unreachable {
        /// The call.
        operation: &'static str,
        /// The table.
        table: String,
        /// The client's or service's error.
        #[source]
        source: Cause,
    },
    /// There is none, and it is not for us to create it.
    #[error(
        "table {table} does not exist there; deploy the stack, or create it: aws dynamodb \
         create-table --table-name {table} --billing-mode PAY_PER_REQUEST \
         --attribute-definitions AttributeName=id,AttributeType=S \
         --key-schema AttributeName=id,KeyType=HASH"
    )]
    Missing {
        /// The table.
        table: String,
    },
    /// Its key is another one.
    #[error(
        "table {table} has the key {found}; claims need the partition key id (S) and no sort key. \
         Use another table, or another endpoint"
    )]
    KeySchema {
        /// The table.
        table: String,
        /// What was found: name, type and role of each key attribute.
        found: String,
    },
    /// It was created but does not become usable.
    #[error("table {table} is still not active")]
    NotActive {
        /// The table.
        table: String,
    },
}

/// Sees to it that `table` can take claims: it exists (or is created) and has the right key. An
/// existing table is not changed.
///
/// # Errors
///
/// See [`TableError`].
pub async fn prepare_table(
    client: &Client,
    table: &str,
    missing: Missing,
) -> Result<(), TableError> {
    match (describe(client, table).await?, missing) {
        (Some(found), _) => check_key(table, &found),
        (None, Missing::Create) => create(client, table).await,
        (None, Missing::Refuse) => Err(TableError::Missing {
            table: table.to_owned(),
        }),
    }
}

async fn describe(client: &Client, table: &str) -> Result<Option<TableDescription>, TableError> {
    match client.describe_table().table_name(table).send().await {
        Ok(output) => Ok(output.table),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_resource_not_found_exception()) =>
        {
            Ok(None)
        }
        Err(error) => Err(unreachable("DescribeTable", table, error)),
    }
}

fn check_key(table: &str, found: &TableDescription) -> Result<(), TableError> {
    let found = key_schema(found);
    if found == KEY_SCHEMA {
        return Ok(());
    }
    Err(TableError::KeySchema {
        table: table.to_owned(),
        found,
    })
}

/// Name, type and role of each attribute of a table's key.
pub(crate) fn key_schema(found: &TableDescription) -> String {
    let kind = |name: &str| {
        found
            .attribute_definitions()
            .iter()
            .find(|definition| definition.attribute_name() == name)
            .map_or("?", |definition| definition.attribute_type().as_str())
    };
    let key: Vec<String> = found
        .key_schema()
        .iter()
        .map(|element| {
            let name = element.attribute_name();
            format!("{name} ({} {})", kind(name), element.key_type().as_str())
        })
        .collect();
    key.join(", ")
}

async fn create(client: &Client, table: &str) -> Result<(), TableError> {
    // Both builders have all their required members, so that only a change of the service's model
    // could make them fail.
    let definition = AttributeDefinition::builder()
        .attribute_name(KEY)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(|error| unreachable("CreateTable", table, error))?;
    let key = KeySchemaElement::builder()
        .attribute_name(KEY)
        .key_type(KeyType::Hash)
        .build()
        .map_err(|error| unreachable("CreateTable", table, error))?;
    client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(definition)
        .key_schema(key)
        .send()
        .await
        .map_err(|error| unreachable("CreateTable", table, error))?;
    wait_until_active(client, table).await?;
    let ttl = TimeToLiveSpecification::builder()
        .attribute_name(EXPIRATION)
        .enabled(true)
        .build()
        .map_err(|error| unreachable("UpdateTimeToLive", table, error))?;
    client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(ttl)
        .send()
        .await
        .map_err(|error| unreachable("UpdateTimeToLive", table, error))?;
    Ok(())
}

async fn wait_until_active(client: &Client, table: &str) -> Result<(), TableError> {
    let active = async {
        loop {
            let found = describe(client, table).await?;
            if found.and_then(|found| found.table_status) == Some(TableStatus::Active) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TABLE_BOUND, active)
        .await
        .unwrap_or_else(|_| {
            Err(TableError::NotActive {
                table: table.to_owned(),
            })
        })
}

fn unreachable(
    operation: &'static str,
    table: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> TableError {
    TableError::Unreachable {
        operation,
        table: table.to_owned(),
        source: source.into(),
    }
}

/// Why an engine is not fit for claims.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// A conditional write could not be sent.
    #[error("the self test of the DynamoDB engine could not run")]
    Store(#[from] StoreError),
    /// More or fewer than one claim won.
    #[error(
        "of {SELF_TEST_CLAIMS} concurrent claims of one key {winners} won, not 1: the conditional \
         writes of this DynamoDB engine are not atomic, so that claims on it mean nothing. Use \
         another engine"
    )]
    Winners {
        /// How many won.
        winners: usize,
    },
}

/// Sends 50 claims of one fresh key at once and counts the winners: on an engine whose conditional
/// writes are not atomic, nothing here would hold. The record is removed afterwards.
///
/// # Errors
///
/// The engine is not fit, or does not answer.
pub async fn self_test(client: &Client, table: &str) -> Result<(), SelfTestError> {
    let store = DynamoDb::new(client.clone(), table);
    let source = SystemSource;
    let id = format!("self-test#{}", uuid::Uuid::new_v4());
    let mut claims = JoinSet::new();
    for _ in 0..SELF_TEST_CLAIMS {
        let (store, id) = (store.clone(), id.clone());
        let now = source.now();
        let terms = Terms {
            id: id.clone(),
            owner: source.token(),
            lease: now.after(Duration::from_secs(10)),
            ends: now.after(Duration::from_secs(10)),
            // Should the removal fail, TTL removes the record soon.
            window: Duration::from_secs(60),
            policy: Policy::Rerun,
            fingerprint: None,
            activity: None,
            origin: Origin::default(),
            silent_limit: 1,
            inspects: false,
            marks: false,
        };
        claims.spawn(async move {
            let written = store.write(&id, &terms.claim(now)).await?;
            // A refusal by one's own record is a win whose reply was lost.
            Ok(match written {
                Written::Applied(_) => true,
                Written::Refused(met) => met.is_some_and(|met| met.owner == Some(terms.owner)),
            })
        });
    }
    let mut winners = 0;
    let mut failed = None;
    while let Some(claim) = claims.join_next().await {
        match claim {
            Ok(Ok(won)) => winners += usize::from(won),
            Ok(Err(error)) => failed = Some(SelfTestError::Store(error)),
            // Nobody aborts these tasks, and a panic in one is a bug here.
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    let removed = client
        .delete_item()
        .table_name(table)
        .key(KEY, AttributeValue::S(id))
        .send()
        .await;
    if let Err(error) = removed {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "the self test's record stays until TTL removes it"
        );
    }
    match failed {
        Some(error) => Err(error),
        None if winners == 1 => Ok(()),
        None => Err(SelfTestError::Winners { winners }),
    }
}

#[cfg(test)]
mod tests;
