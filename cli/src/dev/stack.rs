//! The parts of the local stack, put together and taken apart.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use firstclaim::aws::{Patience, loopback_config, sdk_config};
use firstclaim::clock::SystemSource;
use tokio::net::TcpListener;

use super::engine::{self, Engine, Missing, TableError};
use super::folder::Folder;
use super::function::{Function, Invocations};
use super::functions::Functions;
use super::poller::Poller;
use super::senders::Senders;
use super::serving::Serving;
use super::sqs::{self, Queue};
use super::target::{self, Effects};
use super::{Error, Options, gateway};

/// The table of the claims.
pub(super) const TABLE: &str = "firstclaim";

/// The work queue.
const WORK: &str = "firstclaim";

/// The dead-letter queue.
const DEAD: &str = "firstclaim-dead";

/// How often a message is received before it becomes a dead letter.
const MAX_RECEIVES: u32 = 10;

/// The webhook's time-out: what the most patient of senders waits.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The worker's time-out.
const WORKER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a received message is hidden: longer than the worker runs.
const VISIBILITY: Duration = Duration::from_secs(40);

/// How long running invocations may take to end when the stack is stopped.
const STOP_BOUND: Duration = Duration::from_secs(10);

/// A running local stack.
pub(super) struct Stack {
    /// The gateway's address.
    pub(super) webhook: String,
    /// The built-in target's address, if it runs.
    pub(super) target: Option<String>,
    pub(super) target_url: String,
    /// The DynamoDB endpoint.
    pub(super) dynamodb: String,
    pub(super) embedded: bool,
    pub(super) queue_url: String,
    pub(super) dead_letter_url: String,
    /// The data folder, if anything is kept.
    pub(super) data: Option<PathBuf>,
    pub(super) senders: Senders,
    parts: Parts,
}

/// What has to be stopped.
struct Parts {
    gateway: Serving,
    webhook: Invocations,
    poller: Poller,
    target: Option<Serving>,
    sqs: sqs::Server,
    work: Queue,
    dead: Queue,
    engine: Option<Engine>,
    /// Locked until all else has ended.
    _folder: Option<Folder>,
}

impl Stack {
    /// Starts all of it. What can be wrong with files, ports and settings is found before the data
    /// folder is touched.
    pub(super) async fn start(
        options: &Options,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let senders = Senders::read(options.senders.as_deref())?;
        let ports = Ports::bind(options).await?;
        let sqs_endpoint = ports.sqs.url()?;
        let target_url = match (&options.target, &ports.target) {
            (Some(url), _) => url.clone(),
            (None, Some(listener)) => listener.url()?,
            (None, None) => String::new(),
        };
        // What senders call: this machine, unless a tunnel leads here.
        let public_url = match environment("PUBLIC_URL").filter(|url| !url.is_empty()) {
            Some(url) => url,
            None => ports.gateway.url()?,
        };
        let functions = Functions::read(
            &BTreeMap::from([
                ("CLAIMS_TABLE", TABLE.to_owned()),
                ("QUEUE_URL", sqs::queue_url(&sqs_endpoint, WORK)),
                ("DEAD_LETTER_URL", sqs::queue_url(&sqs_endpoint, DEAD)),
                ("AWS_ENDPOINT_URL_SQS", sqs_endpoint.clone()),
                ("SENDERS", senders.json.clone()),
                ("PUBLIC_URL", public_url),
                ("TARGET_URL", target_url.clone()),
            ]),
            environment,
            &senders,
        )?;
        let folder = match options.in_memory {
            true => None,
            false => Some(Folder::open(&options.data)?),
        };

        let engine = match ports.dynamodb {
            None => None,
            Some(listener) => {
                let storage = folder.as_ref().map_or(engine::Storage::Memory, |folder| {
                    engine::Storage::File(folder.claims())
                });
                Some(Engine::serve(listener.0, storage)?)
            }
        };
        let dynamodb = match (&engine, &options.endpoint) {
            (Some(engine), _) => engine.endpoint(),
            (None, endpoint) => endpoint.clone().unwrap_or_default(),
        };
        let config = if is_loopback(&dynamodb) {
            loopback_config(&dynamodb, Patience::default()).await
        } else {
            remote_config(&dynamodb).await
        };
        check_engine(&config, &dynamodb).await?;

        let queues = [
            sqs::Settings::new(DEAD),
            sqs::Settings::new(WORK)
                .visibility(VISIBILITY)
                .redrive(DEAD, MAX_RECEIVES),
        ];
        let storage = folder.as_ref().map_or(sqs::Storage::Memory, |folder| {
            sqs::Storage::Folder(folder.queue())
        });
        let sqs = sqs::Server::serve(ports.sqs.0, &queues, &storage, Arc::new(SystemSource))?;
        let sqs_config = loopback_config(sqs.endpoint(), Patience::default()).await;
        let target = match ports.target {
            None => None,
            Some(listener) => Some(Serving::router(
                listener.0,
                target::router(Effects::default()),
            )?),
        };

        let webhook = functions.webhook(&config, &sqs_config)?;
        let webhook = Function::new("webhook", WEBHOOK_TIMEOUT, webhook);
        let worker = functions.worker(&config, &sqs_config)?;
        let worker = Function::new("queue", WORKER_TIMEOUT, worker);
        let (work, dead) = (sqs.queue(WORK)?, sqs.queue(DEAD)?);
        let poller = Poller::start(work.clone(), worker);
        let invocations = webhook.invocations();
        let gateway = Serving::router(ports.gateway.0, gateway::router(webhook))?;
        Ok(Self {
            webhook: format!("http://{}", gateway.address()),
            target: target
                .as_ref()
                .map(|target| format!("http://{}", target.address())),
            target_url,
            dynamodb,
            embedded: engine.is_some(),
            queue_url: sqs.queue_url(WORK),
            dead_letter_url: sqs.queue_url(DEAD),
            data: folder.as_ref().map(|folder| folder.path().to_owned()),
            senders,
            parts: Parts {
                gateway,
                webhook: invocations,
                poller,
                target,
                sqs,
                work,
                dead,
                engine,
                _folder: folder,
            },
        })
    }

    /// What lies in the queues, in words; `None` where nothing does.
    pub(super) fn waiting(&self) -> Option<String> {
        waiting(&self.parts.work, &self.parts.dead)
    }

    /// Stops all of it, the doors first; what runs may finish within a bound. Says what is left.
    pub(super) async fn stop(self) -> String {
        let parts = self.parts;
        // A caller that still sends its request is not waited for longer than a running webhook.
        parts.gateway.stop(STOP_BOUND).await;
        let answered = parts.webhook.drain(STOP_BOUND).await;
        let worked = parts.poller.stop(STOP_BOUND).await;
        let mut said = Vec::new();
        if !(answered && worked) {
            said.push("What still ran was cut off; it comes back after its visibility.".to_owned());
        }
        if let Some(waiting) = waiting(&parts.work, &parts.dead) {
            said.push(match &self.data {
                Some(_) => format!("Kept for the next start: {waiting}."),
                None => format!("Gone with this process: {waiting}."),
            });
        }
        if let Some(target) = parts.target {
            target.stop(Duration::from_secs(1)).await;
        }
        parts.sqs.stop().await;
        if let Some(engine) = parts.engine {
            engine.stop().await;
        }
        said.iter().map(|said| format!(" {said}")).collect()
    }
}

fn waiting(work: &Queue, dead: &Queue) -> Option<String> {
    let (work, dead) = (work.count().all(), dead.count().all());
    let messages = |count: usize, name: &str| match count {
        0 => None,
        1 => Some(format!("1 {name}")),
        count => Some(format!("{count} {name}s")),
    };
    let both = [
        messages(work, "queued message"),
        messages(dead, "dead letter"),
    ];
    let said: Vec<String> = both.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// The listeners, bound before anything runs, so that a port that can't be had ends it early.
struct Ports {
    gateway: Listener,
    dynamodb: Option<Listener>,
    sqs: Listener,
    target: Option<Listener>,
}

struct Listener(TcpListener);

impl Ports {
    async fn bind(options: &Options) -> Result<Self, Error> {
        Ok(Self {
            gateway: Listener::chosen(options.port, "--port").await?,
            dynamodb: match &options.endpoint {
                Some(_) => None,
                None => Some(Listener::chosen(options.dynamodb_port, "--dynamodb-port").await?),
            },
            sqs: Listener::chosen(options.queue_port, "--queue-port").await?,
            target: match &options.target {
                Some(_) => None,
                None => Some(Listener::free().await?),
            },
        })
    }
}

impl Listener {
    async fn chosen(port: u16, flag: &'static str) -> Result<Self, Error> {
        let bound = TcpListener::bind(("127.0.0.1", port)).await;
        bound
            .map(Self)
            .map_err(|source| Error::Port { port, flag, source })
    }

    async fn free() -> Result<Self, Error> {
        Ok(Self(TcpListener::bind(("127.0.0.1", 0)).await?))
    }

    fn url(&self) -> Result<String, Error> {
        Ok(format!("http://{}", self.0.local_addr()?))
    }
}

/// Whether a URL's host is this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let Ok(uri) = url.parse::<axum::http::Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// For a DynamoDB elsewhere: Region and credentials as every AWS SDK finds them.
async fn remote_config(endpoint: &str) -> SdkConfig {
    let config = sdk_config(Patience::default()).await;
    config.into_builder().endpoint_url(endpoint).build()
}

/// The table is there and right, and the engine's conditional writes are atomic.
async fn check_engine(config: &SdkConfig, endpoint: &str) -> Result<(), Error> {
    let client = aws_sdk_dynamodb::Client::new(config);
    let missing = if is_loopback(endpoint) {
        Missing::Create
    } else {
        Missing::Refuse
    };
    engine::prepare_table(&client, TABLE, missing)
        .await
        .map_err(|source| {
            let endpoint = endpoint.to_owned();
            match source {
                TableError::Unreachable { .. } => Error::Unreachable { endpoint, source },
                _ => Error::Table { endpoint, source },
            }
        })?;
    Ok(engine::self_test(&client, TABLE).await?)
}
