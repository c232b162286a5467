//! The worker with a store and a target that take their time: how much is done at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use firstclaim::clock::{EpochSeconds, Source, SystemSource};
use firstclaim::protocol::Write;
use firstclaim::store::memory::Memory;
use firstclaim::store::{Read, Written};
use firstclaim::{Claims, Config, Record, Store, StoreError};
use lambda_runtime::{Context, LambdaEvent};
use queue::config::TargetSettings;
use queue::queues::{DeadLetter, QueueError, Queues};
use serde_json::json;

use crate::target::{Behaviour, Target};

/// What the store takes for a call.
pub const STORE: Duration = Duration::from_millis(5);

/// What the target takes for a call.
pub const TARGET: Duration = Duration::from_millis(20);

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The time that the batch took.
    pub took: Duration,
    /// The most calls of the target at once.
    pub peak: usize,
}

/// Works through one batch of so many messages with a key each.
///
/// # Errors
///
/// Not every message was done.
pub async fn measure(
    messages: usize,
    concurrency: usize,
    behaviour: Behaviour,
) -> anyhow::Result<Measured> {
    let target = Target::start().await?;
    target.always(behaviour);
    let settings = TargetSettings::to(target.url().parse()?);
    let client = queue::Target::new(settings, &aws_config::SdkConfig::builder().build())?;
    let claims = Claims::new(Slow(Memory::new()), Config::default())?;
    let worker = queue::Worker::new(claims, Nowhere, client, concurrency);
    let records: Vec<_> = (0..messages)
        .map(|number| {
            let body = json!({"key": format!("k{number}"), "payload": {"number": number}});
            json!({
                "messageId": format!("m{number}"),
                "receiptHandle": format!("r{number}"),
                "body": body.to_string(),
                "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:work",
            })
        })
        .collect();
    let mut context = Context::default();
    let deadline = SystemSource.now().after(Duration::from_secs(600));
    context.deadline = u64::try_from(deadline.0)?;
    let event = LambdaEvent::new(json!({"Records": records}), context);
    let started = Instant::now();
    let answer = worker.handle(event).await;
    let took = started.elapsed();
    let returned = answer.batch_item_failures.len();
    ensure!(returned == 0, "{returned} messages were returned");
    ensure!(
        target.effect_count() == messages,
        "not every message was done"
    );
    Ok(Measured {
        took,
        peak: target.peak(),
    })
}

/// A store that takes its time.
#[derive(Clone, Debug)]
struct Slow(Memory);

impl Store for Slow {
    async fn write(&self, id: &str, write: &Write) -> Result<Written, StoreError> {
        tokio::time::sleep(STORE).await;
        self.0.write(id, write).await
    }

    async fn read(&self, id: &str, read: Read) -> Result<Option<Record>, StoreError> {
        tokio::time::sleep(STORE).await;
        self.0.read(id, read).await
    }

    async fn put_companion(
        &self,
        id: &str,
        packed: Vec<u8>,
        expiration: EpochSeconds,
    ) -> Result<(), StoreError> {
        tokio::time::sleep(STORE).await;
        self.0.put_companion(id, packed, expiration).await
    }

    async fn companion(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        tokio::time::sleep(STORE).await;
        self.0.companion(id).await
    }
}

/// No queues.
#[derive(Clone, Copy, Debug)]
struct Nowhere;

impl Queues for Nowhere {
    fn takes_dead_letters(&self) -> bool {
        false
    }

    async fn set_visibility(&self, _: &str, _: &str, _: u32) -> Result<(), QueueError> {
        Err(QueueError::NoQueue)
    }

    async fn dead_letter(&self, _: DeadLetter) -> Result<(), QueueError> {
        Err(QueueError::NoQueue)
    }
}
