//! The commands for claims: whoever reacts to an event from a shell, a CI job or an agent uses the
//! same records and the same protocol as the functions.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use firstclaim::clock::SystemSource;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{ClaimError, Claims, ConfigError, Key, KeyError, StoreError};
use tracing_subscriber::filter::EnvFilter;

use crate::stdout::{Reader, print, print_json};

pub mod by_hand;
pub mod completions;
pub mod duration;
pub mod exit;
pub mod get;
pub mod list;
pub mod mcp;
pub mod run;
pub mod settle;
pub mod store;
pub mod terms;
pub mod watch;

mod advice;
mod answered;
mod file;
pub(crate) mod said;
mod sweep;
mod table;
mod view;

pub use crate::stdout::Unwritten;
pub use file::OpenError;

/// A command for claims.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command once per key: duplicates get its stored output and exit code
    Run(run::Options),
    /// Show the record of a key
    Get(get::Options),
    /// List records; reads the whole table
    List(list::Options),
    /// Show changes of a record, or of all, until Ctrl-C
    Watch(watch::Options),
    /// Claim a key by hand, or extend a claim; prints the owner token
    Claim(by_hand::ClaimOptions),
    /// Say what you are doing, for people who look at the record
    Activity(by_hand::ActivityOptions),
    /// Keep an intermediate result, which a later attempt finds in the record
    Checkpoint(by_hand::CheckpointOptions),
    /// Record the result, which answers every duplicate from now on
    Complete(by_hand::CompleteOptions),
    /// Record a permanent failure, which answers every duplicate from now on
    Fail(by_hand::FailOptions),
    /// Give the key back: the next one may have it at once
    Release(by_hand::ReleaseOptions),
    /// Decide by hand about a key whose outcome is unknown, failed or wrong
    Settle(settle::Options),
    /// Serve claims as tools to an agent, over the Model Context Protocol on stdin and stdout
    Mcp(mcp::Options),
    /// Print the completions for a shell
    Completions(completions::Options),
}

/// What this program is when `run` starts it, which nobody else does.
#[derive(Debug, Parser)]
enum Inside {
    /// Becomes the command
    #[command(name = "__exec")]
    Exec(run::ExecOptions),
    /// Ends the command if `run` can't
    #[command(name = "__watch")]
    Watchdog,
}

/// Whether `run` has started this process to be a part of it: then that part, to its end; the exit
/// code.
///
/// # Errors
///
/// The command can't be executed.
pub fn inside_run(arguments: &[OsString]) -> Option<Result<u8, Error>> {
    let name = arguments.get(1)?;
    if !name.as_encoded_bytes().starts_with(b"__") {
        return None;
    }
    Some(match Inside::try_parse_from(arguments).ok()? {
        Inside::Exec(options) => run::exec(options),
        Inside::Watchdog => Ok(run::watchdog()),
    })
}

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments can't be used so.
    #[error("{0}")]
    Usage(String),
    /// The key is none.
    #[error("the key can't be used")]
    Key(#[from] KeyError),
    /// The times don't fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key could not be claimed.
    #[error(transparent)]
    Claim(ClaimError),
    /// The store did not answer.
    #[error(transparent)]
    Store(StoreError),
    /// The result could not be written.
    #[error("the result could not be recorded; say it again before the lease has lapsed")]
    Unrecorded,
    /// The folder of the file store can't be used.
    #[error("the folder {folder} can't be used; choose another one with --data")]
    Folder {
        /// The folder.
        folder: String,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// There is no file.
    #[error(
        "there is no store at {file}, and none was made: nothing is known of any claim. Is it the \
         right store (--data, FIRSTCLAIM_DATA)? The first command that claims makes it"
    )]
    NoStore {
        /// The file.
        file: String,
    },
    /// Nothing could be asked: the AWS settings are missing or not right.
    #[error("{0}")]
    Settings(String),
    /// The file can't be used.
    #[error("the file {file} can't be used as a store")]
    File {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The command of `run` can't be executed.
    #[error("{path} can't be executed")]
    Exec {
        /// Its file.
        path: String,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The result could not be shown.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
    /// The process can't be set up.
    #[error("{what}")]
    Io {
        /// What could not be done.
        what: String,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match advice::of(&error) {
            Some(advice) => Self::Settings(advice),
            None => Self::Store(error),
        }
    }
}

impl From<ClaimError> for Error {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Store(error) => error.into(),
            other => Self::Claim(other),
        }
    }
}

impl Error {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Key(_) | Self::Config(_) => exit::USAGE,
            // Clocks that are apart make a store useless.
            Self::Claim(ClaimError::Store(_) | ClaimError::Clock { .. })
            | Self::Store(_)
            | Self::Unrecorded
            | Self::Folder { .. }
            | Self::NoStore { .. }
            | Self::Settings(_)
            | Self::File { .. } => exit::UNAVAILABLE,
            Self::Claim(_) => exit::USAGE,
            Self::Exec { .. } => exit::NOT_EXECUTABLE,
            Self::Unwritten(_) | Self::Io { .. } => exit::NO,
        }
    }
}

/// Runs a command to its end; the process's exit code. `environment` returns a variable's value.
///
/// # Errors
///
/// See [`Error`], which has an exit code of its own.
pub fn execute(
    command: Command,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    subscribe(&environment);
    // One thread, and this one: the command of `run` is to end with its parent, which to the
    // operating system is the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Io {
            what: "the process could not be set up".to_owned(),
            source,
        })?;
    let done = runtime.block_on(async {
        match command {
            Command::Run(options) => run::run(options, &environment).await,
            Command::Get(options) => get::get(options, &environment).await,
            Command::List(options) => list::list(options, &environment).await,
            Command::Watch(options) => watch::watch(options, &environment).await,
            Command::Claim(options) => by_hand::claim(options, &environment).await,
            Command::Activity(options) => by_hand::activity(options, &environment).await,
            Command::Checkpoint(options) => by_hand::checkpoint(options, &environment).await,
            Command::Complete(options) => by_hand::complete(options, &environment).await,
            Command::Fail(options) => by_hand::fail(options, &environment).await,
            Command::Release(options) => by_hand::release(options, &environment).await,
            Command::Settle(options) => settle::settle(options, &environment).await,
            Command::Mcp(options) => mcp::serve(options, &environment).await,
            Command::Completions(options) => completions::print(&options),
        }
    });
    // A call that still waits for the store must not hold up the end: it may land late, as ever.
    runtime.shutdown_background();
    done
}

/// The claims that the commands work with.
type FileOrTable = Claims<DynamoDb>;

/// A key as people write it: without a `#` it is in the scope `cli`.
fn key(text: &str) -> Result<Key, KeyError> {
    if text.contains('#') {
        Key::parse(text)
    } else {
        Key::new("cli", text)
    }
}

/// Who acts, for records: `user@host`.
fn who(environment: impl Fn(&str) -> Option<String>) -> String {
    let set = |name| environment(name).filter(|value: &String| !value.is_empty());
    let user = set("USER").or_else(|| set("LOGNAME"));
    let user = user.unwrap_or_else(|| "somebody".to_owned());
    let system = rustix::system::uname();
    format!("{user}@{}", system.nodename().to_string_lossy())
}

/// With `RUST_LOG`, what the library says goes to stderr.
fn subscribe(environment: &impl Fn(&str) -> Option<String>) {
    let Some(filter) = environment("RUST_LOG").filter(|filter| !filter.is_empty()) else {
        return;
    };
    // Where a subscriber is set already, this one was not asked for; a filter that can't be read
    // leaves out what it does not name.
    let _ = tracing_subscriber::fmt()
        .json()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .try_init();
}

/// The clock and the tokens of all commands.
const SOURCE: SystemSource = SystemSource;
