//! `firstclaim check`: whether a deployment can do what it is there for, a line for each thing that
//! can be wrong, with what to do about it.
//!
//! It reads the environment that the functions read, and flags for what it does not find there.
//! Nothing that it does has an effect: one probe record is claimed, answered and removed again; the
//! target is asked with `OPTIONS`, which is safe by definition, without body and token; the threads
//! server is asked for its tools; nothing is sent to a queue.
//!
//! Each line has a status: `ok`; `warning`, which works but not for long or not for everybody;
//! `fault`; `skipped`, where there was nothing to look at. What could not be looked at (a call that
//! is denied, or not answered in time) is a fault too: nothing is known of it.
//!
//! With `--json` each line is one object with these members, all of them texts or null:
//!
//! | member | |
//! | --- | --- |
//! | `check` | what was looked at, one of the words of the table below |
//! | `status` | `ok`, `warning`, `fault` or `skipped` |
//! | `subject` | which one: a table, a queue's URL, a target's address, a variable |
//! | `found` | what was found |
//! | `advice` | what to do; null where nothing is to be done |
//!
//! | `check` | looks at |
//! | --- | --- |
//! | `settings` | every variable of the functions that is set |
//! | `table` | it is there and active |
//! | `key-schema` | partition key `id` (S), no sort key |
//! | `ttl` | on, and reading `expiration` |
//! | `clock` | this machine's against the service's |
//! | `claim` | one wins, a second one loses, the result is replayed |
//! | `race` | of 50 claims at once one wins; only for an endpoint that is not AWS's own |
//! | `queue` | the work queue is there |
//! | `visibility` | its visibility time-out against the worker's time-out |
//! | `redrive` | its redrive policy |
//! | `retention` | how long messages live, against the window |
//! | `dead-letters` | the dead-letter queue is there, is another one, and keeps long enough |
//! | `senders` | the senders and their secrets can be read and are well formed |
//! | `target` | each target answers |
//! | `target-token` | its token can be read |
//! | `threads` | the threads server answers, takes the token, and has the tools |

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use firstclaim::clock::{Source, SystemSource};

mod claim;
mod finding;
mod queue;
mod senders;
mod settings;
mod table;
mod target;
mod threads;
mod trouble;

use crate::stdout::print;

pub use crate::stdout::Unwritten;
pub use finding::{Finding, Status};
use settings::Settings;
pub(crate) use trouble::{Trouble, chain, root, sdk};

/// The options of `firstclaim check`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = "\
Whatever no flag says is read from the environment, as the functions read it: CLAIMS_TABLE, \
QUEUE_URL, DEAD_LETTER_URL, SENDERS or SENDERS_SECRET_ARN, TARGET_URL, TARGET_TOKEN or \
TARGET_TOKEN_SECRET_ARN, CLAIMS_WINDOW, …, and Region, credentials and endpoints as every AWS SDK \
does. Nothing has an effect: a probe record is claimed and removed again, the target is asked with \
OPTIONS. Exit code: 0 no fault, 1 a fault, 64 usage, 69 the store did not answer. NO_COLOR is \
honoured.")]
pub struct Options {
    /// The table of the claims [env: FIRSTCLAIM_TABLE, CLAIMS_TABLE]
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// A DynamoDB other than AWS's own [env: FIRSTCLAIM_ENDPOINT, AWS_ENDPOINT_URL_DYNAMODB]
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub endpoint: Option<String>,
    /// The work queue [env: QUEUE_URL]
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub queue_url: Option<String>,
    /// The dead-letter queue [env: DEAD_LETTER_URL; else the one of the redrive policy]
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub dead_letter_url: Option<String>,
    /// JSON file that says who may send [env: SENDERS, SENDERS_SECRET_ARN]
    #[arg(long, value_name = "FILE")]
    pub senders: Option<PathBuf>,
    /// Where operations are applied [env: TARGET_URL]
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub target_url: Option<String>,
    /// The worker function's time-out, to compare the queue's visibility with
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub worker_timeout: Option<Duration>,
    /// The longest that one check may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub limit: Duration,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Reads a duration that an option gives.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    webhook::config::duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write a whole number and a unit: 60s, 5m or 500ms".to_owned())
}

/// Why nothing was checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No table is named.
    #[error("no table is named; give --table, or set CLAIMS_TABLE")]
    NoTable,
    /// The senders' file can't be read.
    #[error("the senders' file {} can't be read", path.display())]
    Senders {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The report can't be shown.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

impl Error {
    /// The process's exit code: 64, wrong usage; 1 where it was checked and could not be shown.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unwritten(_) => 1,
            _ => crate::arguments::USAGE,
        }
    }
}

/// Checks, prints a line for each thing that was looked at, and returns the exit code: 0 where
/// there is no fault, 1 where there is one, 69 where the store did not answer. `environment` returns
/// a variable's value.
///
/// # Errors
///
/// Nothing was checked; see [`Error`].
pub async fn run(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let stdout = std::io::stdout();
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let colours = stdout.is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|terminal| terminal != "dumb");
    let json = options.json;
    let report = check(options, environment, SystemSource).await?;
    let text = if json {
        report.to_json()
    } else {
        report.to_text(colours)
    };
    // With nobody to read it, the exit code still tells.
    print(&text)?;
    Ok(report.exit_code())
}

/// What was found, in the order of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// A line each.
    pub findings: Vec<Finding>,
    /// Whether the store answered.
    pub store_answered: bool,
}

/// Checks, and prints nothing. `source` is this machine's clock.
///
/// # Errors
///
/// Nothing was checked; see [`Error`].
pub async fn check(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
    source: impl Source + Clone,
) -> Result<Report, Error> {
    let settings = Settings::read(options, environment)?;
    let (store, queues, senders, targets, token, threads) = tokio::join!(
        Box::pin(table::check(&settings, source)),
        Box::pin(queue::check(&settings)),
        Box::pin(senders::check(&settings)),
        Box::pin(target::check(&settings)),
        Box::pin(target::check_token(&settings)),
        Box::pin(threads::check(&settings)),
    );
    let store_answered = store.answered;
    let findings = [
        settings.findings(),
        store.findings,
        queues,
        senders,
        targets,
        token,
        threads,
    ];
    Ok(Report {
        findings: findings.concat(),
        store_answered,
    })
}

#[cfg(test)]
mod tests;
