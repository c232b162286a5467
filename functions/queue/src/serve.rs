//! Wiring for Lambda: settings, clients, worker, runtime.

use std::convert::Infallible;

use firstclaim::aws::{Patience, sdk_config};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, ConfigError};
use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;

use crate::config::Settings;
use crate::queues::Sqs;
use crate::target::{Target, TargetError};
use crate::threads::Threads;
use crate::worker::Worker;

/// Why the function does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
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

/// Serves invocations until the runtime ends.
///
/// # Errors
///
/// See [`ServeError`].
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let sdk = sdk_config(Patience::default()).await;
    let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(&sdk), settings.table);
    let claims = Claims::new(store, settings.claims)?;
    let queues = Sqs::new(
        aws_sdk_sqs::Client::new(&sdk),
        settings.dead_letter_url.as_deref(),
        settings.sqs_endpoint.as_deref(),
    );
    let target = Target::new(settings.target, &sdk)?;
    let threads = settings
        .threads
        .map(|settings| Threads::new(settings, &target, &sdk));
    let threads = threads.transpose()?;
    let worker = Worker::new(claims, queues, target, settings.concurrency).with_threads(threads);
    let service = service_fn(|event: LambdaEvent<Value>| {
        let worker = worker.clone();
        async move {
            let answer = worker.handle(event).await;
            // A metric that can't be written must not cost an answer.
            let _ = worker.flush_metrics(&mut std::io::stdout());
            Ok::<_, Infallible>(answer)
        }
    });
    lambda_runtime::run(service)
        .await
        .map_err(ServeError::Runtime)
}
