//! Records in a file: the embedded DynamoDB in this process, in place of the SDK's HTTP client.
//!
//! The store above it is the same as for the real DynamoDB, with the same expressions. Several
//! processes may use one file at once: each call is one SQLite transaction that takes the file's
//! write lock before it reads the condition's item, and SQLite's log rolls back what a killed
//! process left half written.

use std::path::Path;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Credentials, HttpClient, IdentityCache, Region, RuntimeComponents,
    StalledStreamProtectionConfig,
};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use dynoxide::{Database, DynoxideError};
use firstclaim::aws::Patience;
use firstclaim::clock::Source;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SOURCE;
use super::store::Missing;
use crate::private;
use identity::Identity;

mod identity;

/// How long other processes that open the same file are waited for.
const OPENING: Duration = Duration::from_secs(20);

/// How long a local stack may take to make its table.
const MAKING: Duration = Duration::from_millis(500);

/// The pause before the file is opened again.
const PAUSE: Duration = Duration::from_millis(15);

/// Why a file could not be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is no database, can't be written, or stays locked.
    #[error("it could not be opened")]
    Open(#[source] DynoxideError),
    /// It could not be made.
    #[error("it could not be made")]
    Make(#[source] std::io::Error),
    /// It could not be read.
    #[error("it could not be read")]
    Read(#[source] std::io::Error),
    /// Nothing is in it.
    #[error("it is empty, and no store; remove it, or choose another folder with --data")]
    Empty,
    /// It is no database.
    #[error("it is no SQLite database, and was not touched; choose another folder with --data")]
    NoDatabase,
    /// It is another program's.
    #[error(
        "it is the database of another program, and was not touched; choose another folder with \
         --data"
    )]
    Foreign,
    /// It has no table for claims.
    #[error(
        "there is no table {table} in it, so that it is no store of claims; choose another folder \
         with --data"
    )]
    NoTable {
        /// The table.
        table: String,
    },
}

/// A client of the embedded DynamoDB in `file`, which is made if it does not exist and that is wanted.
///
/// # Errors
///
/// The file is not there, is none of its own, can't be written, or stays locked.
pub(super) async fn client(
    file: &Path,
    table: &str,
    missing: Missing,
    patience: Patience,
) -> Result<Client, OpenError> {
    // One that can't be looked at is no missing one.
    if missing == Missing::Make && !file.try_exists().map_err(OpenError::Read)? {
        let (file, table) = (file.to_owned(), table.to_owned());
        let made = tokio::task::spawn_blocking(move || make(&file, &table)).await;
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    }
    identify(file, table).await?;
    let database = open(file.to_string_lossy().into_owned()).await?;
    let credentials = Credentials::new("firstclaim", "firstclaim", None, None, "file");
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url("http://file.invalid")
        .http_client(Embedded(database))
        .identity_cache(IdentityCache::no_cache())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(patience.attempts)
                .with_initial_backoff(Duration::from_millis(25)),
        )
        .timeout_config(
            TimeoutConfig::builder()
                .operation_attempt_timeout(patience.attempt)
                .operation_timeout(patience.total)
                .build(),
        )
        .build();
    Ok(Client::from_conf(config))
}

/// Makes a file with an empty table in it, whole or not at all: it gets its name when it is ready,
/// and only if no other process was faster.
fn make(file: &Path, table: &str) -> Result<(), OpenError> {
    let own = file.with_extension(format!("{}.new", SOURCE.token().expose()));
    let made = fill(&own, table).and_then(|()| match std::fs::hard_link(&own, file) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(OpenError::Make(error))
        }
        _ => Ok(()),
    });
    // One that stays behind is in nobody's way.
    let _ = std::fs::remove_file(&own);
    made
}

/// Sees to it that the file is a store. One that a local stack is just making becomes one within a
/// moment.
async fn identify(file: &Path, table: &str) -> Result<(), OpenError> {
    let end = SOURCE.now().after(MAKING);
    loop {
        let (path, wanted) = (file.to_owned(), table.to_owned());
        let looked = tokio::task::spawn_blocking(move || Identity::of(&path, &wanted)).await;
        let looked = looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let error = match looked.map_err(OpenError::Read)? {
            Identity::Store => return Ok(()),
            Identity::NoDatabase => return Err(OpenError::NoDatabase),
            Identity::Foreign => return Err(OpenError::Foreign),
            Identity::Empty => OpenError::Empty,
            Identity::NoTable => OpenError::NoTable {
                table: table.to_owned(),
            },
        };
        if SOURCE.now() >= end {
            return Err(error);
        }
        SOURCE.sleep(PAUSE).await;
    }
}

fn fill(own: &Path, table: &str) -> Result<(), OpenError> {
    // An empty file is filled, and keeps its mode, which those beside it are given too.
    private::touch(own).map_err(OpenError::Make)?;
    let database = Database::memory().map_err(OpenError::Open)?;
    let definition = serde_json::json!({
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    });
    let ttl = serde_json::json!({
        "TableName": table,
        "TimeToLiveSpecification": {"AttributeName": "expiration", "Enabled": true},
    });
    let filled = request(definition)
        .and_then(|definition| database.create_table(definition).map(drop))
        .and_then(|()| request(ttl))
        .and_then(|ttl| database.update_time_to_live(ttl).map(drop))
        .and_then(|()| database.vacuum_into(&own.to_string_lossy()));
    filled.map_err(OpenError::Open)
}

fn request<Q: DeserializeOwned>(json: serde_json::Value) -> Result<Q, DynoxideError> {
    serde_json::from_value(json)
        .map_err(|error| DynoxideError::SerializationException(error.to_string()))
}

/// Opens the database. Two processes that do so at the same moment can find it locked for longer
/// than SQLite itself waits, so that it is tried again.
async fn open(path: String) -> Result<Database, OpenError> {
    let end = SOURCE.now().after(OPENING);
    loop {
        let wanted = path.clone();
        let opened = tokio::task::spawn_blocking(move || Database::new(&wanted)).await;
        match opened {
            Ok(Ok(database)) => return Ok(database),
            Ok(Err(error)) if busy(&error) && SOURCE.now() < end => {
                SOURCE.sleep(PAUSE).await;
            }
            Ok(Err(error)) => return Err(OpenError::Open(error)),
            // Nobody aborts the task, and a panic in it is a bug there.
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// Whether another process has the file just now.
fn busy(error: &DynoxideError) -> bool {
    let text = error.to_string();
    text.contains("locked") || text.contains("busy")
}

/// Answers the SDK's requests from the database.
#[derive(Clone)]
struct Embedded(Database);

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Embedded(…)")
    }
}

impl HttpClient for Embedded {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Embedded {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let database = self.0.clone();
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body = request.body().bytes().unwrap_or_default().to_vec();
        HttpConnectorFuture::new(async move {
            // A thread of its own: the call waits while another process has the file.
            let answered =
                tokio::task::spawn_blocking(move || dispatch(&database, &operation, &body)).await;
            let (status, body) = match answered {
                Ok(Ok(body)) => (200, body),
                Ok(Err(error)) => (error.status_code(), error.to_json()),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            };
            let status = status
                .try_into()
                .map_err(|error| ConnectorError::other(Box::new(error), None))?;
            let mut response = HttpResponse::new(status, body.into_bytes().into());
            response
                .headers_mut()
                .insert("content-type", "application/x-amz-json-1.0");
            Ok(response)
        })
    }
}

/// The operations that the commands use.
fn dispatch(database: &Database, operation: &str, body: &[u8]) -> Result<String, DynoxideError> {
    match operation {
        "PutItem" => answer(body, |request| database.put_item(request)),
        "UpdateItem" => answer(body, |request| database.update_item(request)),
        "GetItem" => answer(body, |request| database.get_item(request)),
        "DeleteItem" => answer(body, |request| database.delete_item(request)),
        "Scan" => answer(body, |request| database.scan(request)),
        "DescribeTable" => answer(body, |request| database.describe_table(request)),
        "CreateTable" => answer(body, |request| database.create_table(request)),
        "UpdateTimeToLive" => answer(body, |request| database.update_time_to_live(request)),
        "DescribeTimeToLive" => answer(body, |request| database.describe_time_to_live(request)),
        other => Err(DynoxideError::ValidationException(format!(
            "{other} is not used here"
        ))),
    }
}

fn answer<Q: DeserializeOwned, A: Serialize>(
    body: &[u8],
    call: impl FnOnce(Q) -> Result<A, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request = serde_json::from_slice(body)
        .map_err(|error| DynoxideError::SerializationException(error.to_string()))?;
    serde_json::to_string(&call(request)?)
        .map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}
