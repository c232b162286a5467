//! Wiring for Lambda: settings, clients, worker, runtime.

use std::convert::Infallible;

use firstclaim::aws::{Patience, sdk_config};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, ConfigError};
use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;

use crate::config::{Fault, Faults, Settings};
use crate::queues::Sqs;
use crate::target::{Target, TargetError};
use crate::worker::Worker;

/// Why the function does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The environment has faults.
    #[error("{0}")]
    Faults(Faults),
    /// The settings don't fit together.
    #[error("the claims can't be configured so")]
    Config(#[from] ConfigError),
    /// There is no client for the target.
    #[error("there is no client for the target")]
    Target(#[from] TargetError),
    /// The Lambda runtime ended.
    #[error("the Lambda runtime ended")]
    Runtime(#[source] lambda_runtime::Error),
}

/// Serves invocations until the runtime ends. `lookup` returns a variable's value.
///
/// # Errors
///
/// See [`ServeError`]; faults of the environment are found before anything is called.
pub async fn serve(lookup: impl Fn(&str) -> Option<String>) -> Result<(), ServeError> {
    let settings = settings(&lookup).map_err(ServeError::Faults)?;
    let sdk = sdk_config(Patience::default()).await;
    let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(&sdk), settings.table);
    let claims = Claims::new(store, settings.claims)?;
    let queues = Sqs::new(
        aws_sdk_sqs::Client::new(&sdk),
        settings.dead_letter_url.as_deref(),
        settings.sqs_endpoint.as_deref(),
    );
    let target = Target::new(settings.target, &sdk)?;
    let worker = Worker::new(claims, queues, target, settings.concurrency);
    let service = service_fn(|event: LambdaEvent<Value>| {
        let worker = worker.clone();
        async move { Ok::<_, Infallible>(worker.handle(event).await) }
    });
    lambda_runtime::run(service)
        .await
        .map_err(ServeError::Runtime)
}

/// The settings; outside Lambda that is a fault too, where the runtime would panic.
fn settings(lookup: &impl Fn(&str) -> Option<String>) -> Result<Settings, Faults> {
    let outside = lookup("AWS_LAMBDA_RUNTIME_API").is_none().then(|| Fault {
        variable: "AWS_LAMBDA_RUNTIME_API",
        found: "is not set; this program runs in Lambda (`firstclaim dev` runs its handler here)"
            .to_owned(),
    });
    match (Settings::read(lookup), outside) {
        (Ok(settings), None) => Ok(settings),
        (Ok(_), Some(fault)) => Err(Faults(vec![fault])),
        (Err(mut faults), outside) => {
            faults.0.extend(outside);
            Err(faults)
        }
    }
}
