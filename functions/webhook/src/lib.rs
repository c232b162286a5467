//! The webhook function: verified webhooks in, each accepted once and put on the queue.
//!
//! An event goes through one door, in this order: size, known sender, verified, parsed, keyed,
//! claimed. Until it is claimed no AWS service is called, so that a request which is refused costs
//! nothing. The door claims the *delivery* and puts an [`Envelope`](firstclaim::Envelope) on the
//! queue; the worker behind the queue claims the *operation*, and it alone decides whether work is
//! done.

mod accept;
mod door;
mod keys;
mod operations;
mod request;
mod response;
mod rule;
mod sender;

pub mod config;
pub mod outbox;
pub mod senders;

use std::convert::Infallible;

use firstclaim::aws::{self, Patience};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, ConfigError};
use lambda_runtime::{LambdaEvent, service_fn};

pub use config::{Faults, Options, Settings};
pub use door::Webhook;
pub use outbox::{Message, Outbox, SendError, Sqs};
pub use response::Response;
pub use senders::Senders;

use config::SendersFrom;

/// Serves the Lambda Runtime API with these settings until the environment is shut down.
///
/// # Errors
///
/// A window that could end before a lease, or a Runtime API that can't be reached.
pub async fn serve(settings: Settings) -> Result<(), lambda_runtime::Error> {
    let webhook = connect(settings).await?;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<serde_json::Value>| {
        let webhook = webhook.clone();
        async move { Ok::<_, Infallible>(webhook.handle(event).await) }
    }))
    .await
}

/// The handler over AWS clients that are configured by the environment.
async fn connect(settings: Settings) -> Result<Webhook<DynamoDb, Sqs>, ConfigError> {
    let sdk = aws::sdk_config(Patience::default()).await;
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
