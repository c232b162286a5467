//! The two functions, configured as in Lambda: through their own settings.

use std::collections::BTreeMap;

use aws_config::SdkConfig;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Claims, ConfigError};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

use super::function::Handler;
use super::senders::{Senders, SendersError};

/// What the functions may be told by the environment of `dev` too. All else it decides itself.
const PASSED_ON: [&str; 10] = [
    "ALLOW_HTTP",
    "BATCH_CONCURRENCY",
    "BODY_LIMIT",
    "CLAIMS_ON_LAPSE",
    "CLAIMS_WINDOW",
    "MIN_REMAINING",
    "TARGET_TIMEOUT",
    "TARGET_TOKEN",
    "THREADS_TOKEN",
    "THREADS_URL",
];

/// The functions' settings, checked.
#[derive(Debug)]
pub(super) struct Functions {
    webhook: webhook::config::Settings,
    queue: queue::config::Settings,
}

/// Why the functions can't be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionsError {
    /// The senders' file.
    #[error(transparent)]
    Senders(#[from] SendersError),
    /// The environment, or an option.
    #[error("the functions can't be configured so: {0}")]
    Settings(String),
    /// The claims.
    #[error("the claims can't be configured so")]
    Claims(#[from] ConfigError),
    /// The target's client.
    #[error("the target can't be used")]
    Target(#[from] queue::target::TargetError),
}

impl Functions {
    /// Reads both settings from `ours`, and what is passed on from `environment`.
    pub(super) fn read(
        ours: &BTreeMap<&'static str, String>,
        environment: impl Fn(&str) -> Option<String>,
        senders: &Senders,
    ) -> Result<Self, FunctionsError> {
        let lookup = |name: &str| match ours.get(name) {
            Some(value) => Some(value.clone()),
            None if PASSED_ON.contains(&name) => environment(name),
            None => None,
        };
        let webhook = webhook::config::Settings::read(lookup);
        let queue = queue::config::Settings::read(lookup);
        match (webhook, queue) {
            (Ok(webhook), Ok(queue)) => Ok(Self { webhook, queue }),
            (webhook, queue) => {
                let webhook = webhook.err().map(|faults| faults.to_string());
                let queue = queue.err().map(|faults| faults.to_string());
                Err(refused(webhook, queue, senders))
            }
        }
    }

    /// The webhook's handler, over DynamoDB at `dynamodb` and the queue at `sqs`.
    pub(super) fn webhook(
        &self,
        dynamodb: &SdkConfig,
        sqs: &SdkConfig,
    ) -> Result<impl Handler, FunctionsError> {
        let settings = self.webhook.clone();
        let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(dynamodb), settings.table);
        let claims = Claims::new(store, settings.claims)?;
        let webhook::config::SendersFrom::Inline(senders) = settings.senders else {
            // Only `SENDERS` is passed on.
            return Err(FunctionsError::Settings("SENDERS is not set".to_owned()));
        };
        let outbox = webhook::outbox::Sqs::new(aws_sdk_sqs::Client::new(sqs), settings.queue_url);
        let webhook = webhook::Webhook::new(senders, claims, outbox, settings.options);
        Ok(move |event: LambdaEvent<Value>| {
            let webhook = webhook.clone();
            async move { serde_json::to_value(webhook.handle(event).await) }
        })
    }

    /// The worker's handler, over the same.
    pub(super) fn worker(
        &self,
        dynamodb: &SdkConfig,
        sqs: &SdkConfig,
    ) -> Result<impl Handler, FunctionsError> {
        let settings = self.queue.clone();
        let store = DynamoDb::new(aws_sdk_dynamodb::Client::new(dynamodb), settings.table);
        let claims = Claims::new(store, settings.claims)?;
        let queues = queue::queues::Sqs::new(
            aws_sdk_sqs::Client::new(sqs),
            settings.dead_letter_url.as_deref(),
            settings.sqs_endpoint.as_deref(),
        );
        let target = queue::Target::new(settings.target, sqs)?;
        let threads = settings
            .threads
            .map(|settings| queue::Threads::new(settings, &target, sqs));
        let threads = threads.transpose()?;
        let worker =
            queue::Worker::new(claims, queues, target, settings.concurrency).with_threads(threads);
        Ok(move |event: LambdaEvent<Value>| {
            let worker = worker.clone();
            async move { serde_json::to_value(worker.handle(event).await) }
        })
    }
}

/// The faults as one line; those of `SENDERS` are the file's.
fn refused(webhook: Option<String>, queue: Option<String>, senders: &Senders) -> FunctionsError {
    let (webhook, queue) = (webhook.unwrap_or_default(), queue.unwrap_or_default());
    let mut of_senders = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    for fault in webhook.lines() {
        match fault.strip_prefix("SENDERS: ") {
            Some(fault) => of_senders.push(fault),
            None => others.push(fault),
        }
    }
    // Both functions read some variables, and the worker a part of `SENDERS`.
    let told = |fault: &&str| fault.starts_with("SENDERS: ") && !of_senders.is_empty();
    for fault in queue.lines().filter(|fault| !told(fault)) {
        let variable = |fault: &str| fault.split(':').next().unwrap_or_default().to_owned();
        if !others
            .iter()
            .any(|other| variable(other) == variable(fault))
        {
            others.push(fault);
        }
    }
    match &senders.file {
        Some(path) if !of_senders.is_empty() => SendersError::Faults {
            path: path.clone(),
            faults: of_senders.join("; "),
        }
        .into(),
        // Only an option can be the cause.
        _ => FunctionsError::Settings(others.join("; ").replace("TARGET_URL:", "--target:")),
    }
}
