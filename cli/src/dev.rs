//! `firstclaim dev`: the whole system on this machine.
//!
//! The handlers are those that run in Lambda, configured through the same settings and fed the same
//! event JSON; around them are an embedded DynamoDB, a local queue, a gateway, an event source
//! mapping and a target.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

pub mod engine;
pub mod sqs;

mod banner;
mod folder;
mod function;
mod functions;
mod gateway;
mod lines;
mod poller;
mod senders;
mod serving;
pub(crate) mod signals;
mod stack;
mod target;

pub use folder::FolderError;
pub use functions::FunctionsError;
pub(crate) use senders::DEVELOPMENT;
pub use senders::SendersError;
pub(crate) use stack::is_loopback;

use signals::Signals;
use stack::Stack;

/// The options of `firstclaim dev`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = "\
The functions' other settings are read from the environment: BATCH_CONCURRENCY, BODY_LIMIT, \
CLAIMS_ON_LAPSE, CLAIMS_WINDOW, MIN_REMAINING, PUBLIC_URL, TARGET_TIMEOUT, TARGET_TOKEN, \
THREADS_TOKEN, THREADS_URL, ALLOW_HTTP. RUST_LOG=info shows the functions' logs, as JSON on stderr. NO_COLOR is honoured. A \
port of 0 means any free one.")]
pub struct Options {
    /// Port of the webhook endpoint
    #[arg(long, value_name = "PORT", default_value_t = 9000)]
    pub port: u16,
    /// Port of the embedded DynamoDB
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 8000,
        conflicts_with = "endpoint"
    )]
    pub dynamodb_port: u16,
    /// Port of the local queue, for those who send to it themselves (0: any free one)
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub queue_port: u16,
    /// Use the DynamoDB at this URL (DynamoDB Local, or the real one) in place of the embedded one
    #[arg(long, value_name = "URL", value_parser = url)]
    pub endpoint: Option<String>,
    /// Folder for claims and queued messages; it survives a restart
    #[arg(long, value_name = "DIR", default_value = ".firstclaim")]
    pub data: PathBuf,
    /// Keep nothing
    #[arg(long, conflicts_with = "data")]
    pub in_memory: bool,
    /// Apply operations at this URL in place of the built-in target
    #[arg(long, value_name = "URL", value_parser = url)]
    pub target: Option<String>,
    /// JSON file that says who may send, as SENDERS does in Lambda [default: one of each scheme,
    /// with development secrets]
    #[arg(long, value_name = "FILE")]
    pub senders: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 9000,
            dynamodb_port: 8000,
            queue_port: 0,
            endpoint: None,
            data: PathBuf::from(".firstclaim"),
            in_memory: false,
            target: None,
            senders: None,
        }
    }
}

pub(crate) fn url(text: &str) -> Result<String, String> {
    let uri: axum::http::Uri = text.parse().map_err(|_| "no URL".to_owned())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(text.to_owned()),
        _ => Err("give a whole URL, http://… or https://…".to_owned()),
    }
}

/// Why `dev` does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The senders' file can't be used.
    #[error(transparent)]
    Senders(#[from] SendersError),
    /// A port can't be had.
    #[error("port {port} can't be had; stop what uses it, or choose another one with {flag}")]
    Port {
        /// The port.
        port: u16,
        /// The flag that chooses another.
        flag: &'static str,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The data folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The embedded DynamoDB can't be started.
    #[error(transparent)]
    Engine(#[from] engine::EngineError),
    /// No DynamoDB answers.
    #[error(
        "no DynamoDB answers at {endpoint}; start it, or leave out --endpoint to use the embedded one"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// Why.
        #[source]
        source: engine::TableError,
    },
    /// The table can't be used.
    #[error("the DynamoDB at {endpoint} can't be used")]
    Table {
        /// The endpoint.
        endpoint: String,
        /// Why.
        #[source]
        source: engine::TableError,
    },
    /// The engine is not fit for claims.
    #[error(transparent)]
    SelfTest(#[from] engine::SelfTestError),
    /// The local queue can't be started.
    #[error(transparent)]
    Queue(#[from] sqs::ServerError),
    /// A queue is missing.
    #[error(transparent)]
    NoQueue(#[from] sqs::Refused),
    /// The functions can't be configured so.
    #[error(transparent)]
    Functions(#[from] FunctionsError),
    /// A server or a signal handler can't be set up.
    #[error("the local stack can't be set up")]
    Io(#[from] std::io::Error),
    /// `RUST_LOG` can't be read.
    #[error("RUST_LOG can't be read")]
    LogFilter(#[from] tracing_subscriber::filter::ParseError),
}

impl Error {
    /// The process's exit code: 69 for a store that can't be reached, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } => 69,
            _ => 1,
        }
    }
}

/// Runs the local stack until a signal ends it. `environment` returns a variable's value.
///
/// # Errors
///
/// Whatever keeps it from starting; see [`Error`].
pub async fn run(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    subscribe(&environment)?;
    let stack = tokio::select! {
        stack = Stack::start(&options, &environment) => stack?,
        () = signals.next() => return Ok(()),
    };
    say(&banner::text(&stack));
    signals.next().await;
    say("\nStopping: what runs may finish. Ctrl-C again ends it at once.\n");
    tokio::select! {
        left = stack.stop() => say(&format!("Stopped.{left}\n")),
        () = signals.next() => say("Ended at once.\n"),
    }
    Ok(())
}

/// Lines for people on stdout; with `RUST_LOG`, the functions' own logs on stderr.
fn subscribe(environment: &impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let stdout = std::io::stdout();
    let colours = stdout.is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|terminal| terminal != "dumb");
    let lines = lines::Lines::new(stdout, colours).with_filter(filter_fn(lines::shown));
    let logs = match set("RUST_LOG") {
        None => None,
        Some(filter) => {
            let json = tracing_subscriber::fmt::layer().json();
            let logs = json.with_writer(std::io::stderr);
            Some(logs.with_filter(EnvFilter::try_new(filter)?))
        }
    };
    // Where a subscriber is set already, this one was not asked for.
    let _ = tracing_subscriber::registry()
        .with(lines)
        .with(logs)
        .try_init();
    Ok(())
}

fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // Where nobody reads any more, the work goes on.
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
