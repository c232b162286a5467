//! Wiring for Lambda: settings, clients, handler, runtime.

use std::convert::Infallible;

use firstclaim::aws;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, ConfigError};
use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::Value;

use crate::budget::PATIENCE;
use crate::config::{Faults, SendersFrom, Settings};
use crate::door::Webhook;
use crate::outbox::Sqs;
use crate::senders::Senders;

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
    let webhook = connect(settings).await?;
    let service = service_fn(|event: LambdaEvent<Value>| {
        let webhook = webhook.clone();
        async move {
            // Boxed: the whole way of a request nests deeper than the compiler lays out in one piece.
            let response = Box::pin(webhook.handle(event)).await;
            // A metric that can't be written must not cost an answer.
            let _ = webhook.flush_metrics(&mut std::io::stdout());
            Ok::<_, Infallible>(response)
        }
    });
    lambda_runtime::run(service)
        .await
        .map_err(ServeError::Runtime)
}

/// The handler over AWS clients that the environment configures.
async fn connect(settings: Settings) -> Result<Webhook<DynamoDb, Sqs>, ConfigError> {
    let sdk = aws::sdk_config(PATIENCE).await;
    let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(&sdk), settings.table);
    let claims = Claims::new(store, settings.claims)?;
    let senders = match settings.senders {
        SendersFrom::Inline(senders) => senders,
        SendersFrom::Secret(arn) => {
            Senders::from_secret(aws_sdk_secretsmanager::Client::new(&sdk), arn)
        }
    };
    let outbox = Sqs::new(aws_sdk_sqs::Client::new(&sdk), settings.queue_url);
    Ok(Webhook::new(senders, claims, outbox, settings.options))
}

/// The settings; outside Lambda that is a fault too, where the runtime would panic.
fn settings(lookup: &impl Fn(&str) -> Option<String>) -> Result<Settings, Faults> {
    let settings = Settings::read(lookup);
    if lookup("AWS_LAMBDA_RUNTIME_API").is_some() {
        return settings;
    }
    let mut faults = settings.err().unwrap_or_default();
    faults.add(
        "AWS_LAMBDA_RUNTIME_API",
        "is not set; this program runs in Lambda (`firstclaim dev` runs its handler here)",
    );
    Err(faults)
}
