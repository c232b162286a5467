//! `firstclaim send`: signs a sample delivery as its sender would, sends it once or several times,
//! and shows the answers.
//!
//! With `--json` each answer is one object with these members:
//!
//! | member | |
//! | --- | --- |
//! | `number` | 1 for the first |
//! | `delivery` | the delivery's id, the same in each; null where the sample has one of its own |
//! | `status` | the HTTP status; null where no answer came |
//! | `answer` | `accepted`, `replayed`, `answered` (another 2xx: a challenge, or the nothing that Slack's commands and interactions get), `no answer`, or what a problem is called: `in-flight`, `unauthorized`, `mismatch`, … |
//! | `key` | the operation's key, where it was told |
//! | `said` | the problem's title, or why no answer came; else null |
//! | `ms` | how long the answer took, in milliseconds |

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use firstclaim::clock::{Source, SystemSource};
use webhook::signing::SCHEMES;

use crate::arguments::USAGE;
use crate::dev::{DEVELOPMENT, is_loopback};
pub use crate::stdout::Unwritten;
use crate::stdout::print;

mod answer;
mod delivery;
mod sample;
mod shipped;

pub use answer::{Answer, Answers};
use delivery::Delivery;
use sample::Sample;

/// The most deliveries of one run.
const MOST: u64 = 1000;

/// The options of `firstclaim send`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = "\
A sample is the name of one that ships with the program, or a file: headers, an empty line and the \
body (its name ends with .http; {{id}} in it stands for the delivery's id), or a body alone. Each \
run makes a new delivery, as a second subscription or a redelivery under a new id does, unless --id \
repeats one. Whoever may run `ps` sees --secret: prefer FIRSTCLAIM_SECRET or --secret-file. Exit \
code: 0 all taken (or told to come back while another was), 75 all in flight, 1 refused, 64 usage, \
69 no answer.")]
pub struct Options {
    /// The sender's scheme
    #[arg(
        required_unless_present = "list",
        value_parser = PossibleValuesParser::new(SCHEMES)
    )]
    pub scheme: Option<String>,
    /// The sample: a name of --list, or a file
    #[arg(required_unless_present = "list", value_name = "SAMPLE")]
    pub sample: Option<String>,
    /// Where to send it [default: http://127.0.0.1:9000/webhooks/SCHEME, the local stack]
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub url: Option<String>,
    /// The secret to sign with [env: FIRSTCLAIM_SECRET] [default for this machine: the local
    /// stack's]
    #[arg(long, value_name = "SECRET", conflicts_with = "secret_file")]
    pub secret: Option<String>,
    /// A file with the secret; - is stdin
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The delivery's id, to repeat one [default: a new one]
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// A header beside the sample's, or in place of one
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// How often to send the same delivery
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=MOST)
    )]
    pub times: u64,
    /// Send them all at once, not one after another
    #[arg(long)]
    pub concurrent: bool,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", value_parser = crate::check::duration, default_value = "30s")]
    pub timeout: Duration,
    /// One JSON object per answer
    #[arg(long)]
    pub json: bool,
    /// Show the samples that ship with the program
    #[arg(long, conflicts_with_all = ["scheme", "sample"])]
    pub list: bool,
}

/// Why nothing was sent, or no answer came.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such sample, and no such file.
    #[error("{scheme} has no sample {name:?} (it has {there}), and there is no file of that name")]
    NoSample {
        /// The scheme.
        scheme: String,
        /// What was asked for.
        name: String,
        /// The samples that there are.
        there: String,
    },
    /// A file can't be read.
    #[error("{} can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The sample is none.
    #[error("the sample {name}: {fault}")]
    Sample {
        /// Its name.
        name: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The secret is not known.
    #[error(
        "{url} is not on this machine, so that the development secret is of no use there; set \
         FIRSTCLAIM_SECRET or give --secret-file"
    )]
    NoSecret {
        /// Where it was to go.
        url: String,
    },
    /// The secret is not one.
    #[error("the secret {0}")]
    Secret(String),
    /// The id can't be used.
    #[error("--id {0}")]
    Id(String),
    /// The header is none.
    #[error("--header {0:?} is no header; write \"name: value\"")]
    Header(String),
    /// The secret itself would go over the network, unencrypted.
    #[error("{scheme} sends the secret itself, and {url} is not encrypted; use https")]
    Unencrypted {
        /// The scheme.
        scheme: String,
        /// Where it was to go.
        url: String,
    },
    /// The HTTP client can't be made.
    #[error("the HTTP client could not be made; install the system's root certificates")]
    Client(#[source] reqwest::Error),
    /// No answer at all.
    #[error("no answer from {url}: {why}{hint}")]
    NoAnswer {
        /// Where it was sent.
        url: String,
        /// Why.
        why: String,
        /// What may help.
        hint: &'static str,
    },
    /// The answers can't be shown.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

impl Error {
    /// The process's exit code: 69 where nobody answered, 1 without an HTTP client or where the
    /// answers could not be shown, else 64.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoAnswer { .. } => 69,
            Self::Client(_) | Self::Unwritten(_) => 1,
            _ => USAGE,
        }
    }
}

/// Sends, prints the answers, and returns the exit code; see [`Answers::exit_code`]. `environment`
/// returns a variable's value.
///
/// # Errors
///
/// Nothing was sent, or nobody answered; see [`Error`].
pub async fn run(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let (text, code) = if options.list {
        (list(), 0)
    } else {
        let json = options.json;
        let answers = send(options, environment, &SystemSource).await?;
        let text = if json {
            answers.to_json()
        } else {
            answers.to_text()
        };
        (text, answers.exit_code())
    };
    // With nobody to read it, the exit code still tells.
    print(&text)?;
    Ok(code)
}

/// Sends, and prints nothing. `source` is the clock that signatures are made by.
///
/// # Errors
///
/// Nothing was sent, or nobody answered; see [`Error`].
pub async fn send(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
    source: &impl Source,
) -> Result<Answers, Error> {
    let scheme = options.scheme.unwrap_or_default();
    let sample = Sample::find(&scheme, &options.sample.unwrap_or_default())?;
    let url = match options.url {
        Some(url) => url,
        None => format!("{LOCAL}/webhooks/{scheme}"),
    };
    if KEYLESS.contains(&scheme.as_str()) && url.starts_with("http:") && !is_loopback(&url) {
        return Err(Error::Unencrypted { scheme, url });
    }
    let secret = match (options.secret, options.secret_file) {
        (Some(secret), _) => secret,
        (None, Some(path)) => read_secret(path)?,
        (None, None) => {
            match environment("FIRSTCLAIM_SECRET").filter(|secret| !secret.is_empty()) {
                Some(secret) => secret,
                None if is_loopback(&url) => development_secret(&scheme).to_owned(),
                None => return Err(Error::NoSecret { url }),
            }
        }
    };
    let delivery = Delivery::sign(
        &scheme,
        &secret,
        sample,
        &url,
        options.id,
        &options.headers,
        source.now(),
    )?;
    let http = client(&url, options.timeout)?;
    let mut answers = Vec::new();
    if options.concurrent {
        let sent = (1..=options.times).map(|number| answer::send(&http, &delivery, number));
        answers = futures_util::future::join_all(sent).await;
    } else {
        for number in 1..=options.times {
            let answer = answer::send(&http, &delivery, number).await;
            // Where nobody listens, asking on is of no use.
            let over = answer.never_sent;
            answers.push(answer);
            if over {
                break;
            }
        }
    }
    Answers::of(delivery, answers)
}

/// The local stack.
const LOCAL: &str = "http://127.0.0.1:9000";

/// The schemes that sign nothing, but show the secret itself.
const KEYLESS: [&str; 2] = ["gitlab", "token"];

pub(crate) fn development_secret(scheme: &str) -> &'static str {
    let mut secrets = DEVELOPMENT.into_iter();
    let found = secrets.find(|(of, _)| *of == scheme);
    found.map_or("", |(_, secret)| secret)
}

/// The text of a file, or of stdin, without the line end that editors put there.
pub(crate) fn read_secret(path: PathBuf) -> Result<String, Error> {
    let read = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&path)
    };
    match read {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(source) => Err(Error::Read { path, source }),
    }
}

fn client(url: &str, timeout: Duration) -> Result<reqwest::Client, Error> {
    // The process may have one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(timeout);
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(Error::Client)
}

/// The samples that ship with the program, one a line.
fn list() -> String {
    let mut text = String::new();
    for sample in shipped::SHIPPED {
        // Writing to a text can't fail.
        let _ = writeln!(
            text,
            "{:<10}{:<18}{}",
            sample.scheme, sample.name, sample.about
        );
    }
    text
}

#[cfg(test)]
mod tests;
