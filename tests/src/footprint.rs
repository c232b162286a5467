//! What a function's binary weighs: the size of its archive, the time from its start to its first
//! question for work, and the memory that it holds then and after many events.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::{Value, json};

use crate::http::{Server, json as json_answer};
use crate::lab::Log;
use crate::process::Process;
use crate::queue_stub::returned;

/// How many records a batch has.
const BATCH: usize = 10;

/// A binary, and the environment that it needs to start.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where its binary is.
    pub binary: std::path::PathBuf,
    /// Its variables.
    pub variables: BTreeMap<String, String>,
}

impl Function {
    /// The function `name` at `binary`, with all that it is asked to have.
    #[must_use]
    pub fn new(name: &str, binary: &Path, variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            name: name.to_owned(),
            binary: binary.to_owned(),
            variables: variables.iter().map(owned).collect(),
        }
    }

    /// The bytes of the binary as an archive that Lambda takes, without the few that name it.
    ///
    /// # Errors
    ///
    /// The binary can't be read.
    pub fn archived(&self) -> anyhow::Result<u64> {
        let bytes =
            std::fs::read(&self.binary).with_context(|| self.binary.display().to_string())?;
        let mut archive = DeflateEncoder::new(Vec::new(), Compression::default());
        archive.write_all(&bytes)?;
        Ok(u64::try_from(archive.finish()?.len())?)
    }

    /// Starts it, and returns how long it took until it asked for work.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub async fn start(&self) -> anyhow::Result<(Process, Duration)> {
        let started = Instant::now();
        let log = Log::default();
        let process = Process::start(&self.name, &self.binary, &self.variables, log.clone())
            .await
            .with_context(|| log.text())?;
        Ok((process, started.elapsed()))
    }
}

/// A service that says yes to every call, so that the memory is the function's own.
#[derive(Debug)]
pub struct Yes(Server);

impl Yes {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// No loopback port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let server = Server::start(|_| async { json_answer(200, &json!({})) }).await?;
        Ok(Self(server))
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url()
    }
}

/// Hands a worker `events` records under as many keys, in batches.
///
/// # Errors
///
/// A record was not acknowledged.
pub async fn work(process: &Process, events: usize) -> anyhow::Result<()> {
    for first in (0..events).step_by(BATCH) {
        let records: Vec<_> = (first..events.min(first + BATCH)).map(record).collect();
        let answer = process.invoke(&json!({ "Records": records })).await?;
        ensure!(returned(&answer)?.is_empty(), "{answer}");
    }
    Ok(())
}

fn record(number: usize) -> Value {
    let body = json!({"key": format!("event-{number}"), "payload": {"number": number}});
    json!({
        "messageId": format!("message-{number}"),
        "receiptHandle": format!("receipt-{number}"),
        "body": body.to_string(),
        "attributes": {"ApproximateReceiveCount": "1"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:work",
        "awsRegion": "us-east-1",
    })
}
