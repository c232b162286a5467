//! `firstclaim tail`: follows a thread server's event stream, and hands each event to the queue or
//! to a webhook.
//!
//! At least once: the position in the stream goes on when an event was handed over, never before.
//! What comes twice has the same key twice, which is what the claims are for.
//!
//! With `--json` there is one object for each event that was wanted, with these members:
//!
//! | member | |
//! | --- | --- |
//! | `outcome` | `handed-on`; `refused` (kept among the letters); `gap` |
//! | `id` | the last id that the stream has named; empty where there is none |
//! | `kind`, `scope`, `key` | of the event; null where they are not known |
//! | `why` | why it was not handed on; else null |
//! | `tries`, `ms` | how often it was handed over, and how long that took with its pauses |

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, ValueEnum};
use firstclaim::clock::SystemSource;
use tokio::sync::watch;

use crate::arguments::USAGE;
use crate::claims::{duration, exit, store};
use crate::dev::is_loopback;
use crate::dev::signals::Signals;
use crate::send::{development_secret, read_secret};

mod backoff;
mod destination;
mod event;
mod follow;
mod lines;
mod position;
mod stream;

use destination::{Destination, Queue, Webhook};
use event::Filter;
use follow::Follower;
use lines::Lines;
use position::Position;
use stream::Stream;

/// The schemes that a webhook of one's own can have.
const SCHEMES: [&str; 2] = ["standard", "token"];

/// Events of these types or kinds say that the server can't replay all, if no others are named.
const GAPS: [&str; 3] = ["gap", "stream.gap", "stream.reset"];

/// The folder of the positions, below the folder of the file store.
const FOLDER: &str = "tail";

/// The options of `firstclaim tail`.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("destination").required(true).args(["queue", "webhook"]),
    after_help = "\
The stream's bearer token is read from FIRSTCLAIM_TAIL_TOKEN, else from THREADS_TOKEN; the webhook's \
secret from FIRSTCLAIM_SECRET or --secret-file.

Each event is handed on at least once, with a key that its replay has too; the position is stored \
behind it. The first one of all, which no position leads back to, is kept beside it until it is \
handed on. An event that is refused for good is kept in the position's file with .letters behind its \
name.

Exit codes: 0 ended by a signal or by the server (204), 1 refused, 64 usage, 69 the position can't \
be kept, 75 another process follows with this position, 80 the stream has a gap and a person decides."
)]
pub struct Options {
    /// The stream's address
    #[arg(value_name = "URL", value_parser = crate::dev::url)]
    pub url: String,
    /// Only events of this scope, or of scopes below it; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    pub scopes: Vec<String>,
    /// Only events of this kind; with * at its end, of all that begin so; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// Send them to this SQS queue
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub queue: Option<String>,
    /// Post them to this webhook, signed
    #[arg(long, value_name = "URL", value_parser = crate::dev::url)]
    pub webhook: Option<String>,
    /// How the webhook knows its sender
    #[arg(
        long,
        value_name = "SCHEME",
        default_value = SCHEMES[0],
        value_parser = PossibleValuesParser::new(SCHEMES),
        conflicts_with = "queue"
    )]
    pub scheme: String,
    /// A file with the webhook's secret; - is stdin [env: FIRSTCLAIM_SECRET] [default for this
    /// machine: the local stack's]
    #[arg(long, value_name = "FILE", conflicts_with = "queue")]
    pub secret_file: Option<PathBuf>,
    /// Begin behind this id where no position is stored yet [default: with what comes from now on]
    #[arg(long, value_name = "ID")]
    pub from: Option<String>,
    /// Keep the position in this file [default: one for each URL and choice of scopes, below
    /// $XDG_STATE_HOME/firstclaim]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// What to do when the server can't replay all
    #[arg(long, value_enum, default_value_t = OnGap::Stop)]
    pub on_gap: OnGap,
    /// Type or kind of the events that say so; may be repeated [default: gap, stream.gap,
    /// stream.reset]
    #[arg(long = "gap-event", value_name = "NAME")]
    pub gaps: Vec<String>,
    /// How long nothing may come, not even a comment, before the connection counts as dead
    #[arg(long, value_name = "DURATION", value_parser = idle, default_value = "2m")]
    pub idle: Duration,
    /// One JSON object per event on stdout, for programs
    #[arg(long)]
    pub json: bool,
    /// Say on stderr only what must be known
    #[arg(long, short)]
    pub quiet: bool,
}

/// What to do at a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnGap {
    /// End, with exit code 80
    Stop,
    /// Say it, and go on with what comes
    Continue,
}

/// Why the stream is not followed, or not any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments can't be used so.
    #[error("{0}")]
    Usage(String),
    /// The secret can't be read.
    #[error(transparent)]
    Secret(#[from] crate::send::Error),
    /// The HTTP client can't be made.
    #[error("the HTTP client could not be made; install the system's root certificates")]
    Client(#[source] reqwest::Error),
    /// The server refuses to be followed.
    #[error("{url} can't be followed: {why}")]
    Refused {
        /// The stream.
        url: String,
        /// Why.
        why: String,
    },
    /// Whatever is handed over is refused.
    #[error(
        "no event can be handed on: {why}; {lost}: {key} ({id}) is the first when this is mended \
         and started again"
    )]
    HandOver {
        /// The event's id, in words.
        id: String,
        /// Its key.
        key: String,
        /// Why.
        why: String,
        /// What of the stream is lost by it.
        lost: &'static str,
    },
    /// The server can't replay all.
    #[error(
        "GAP: events behind {id} are missing, since the server can't replay them ({said}); look at \
         the current state of {scopes} for what they asked for, then go on with --on-gap continue"
    )]
    Gap {
        /// The position.
        id: String,
        /// What the server said.
        said: String,
        /// What is followed.
        scopes: String,
    },
    /// The position's file can't be used.
    #[error("the position can't be kept in {}; choose another file with --state", file.display())]
    State {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The position's file is another one's.
    #[error("{} {why}; choose another file with --state, or remove it to begin from now on", file.display())]
    Position {
        /// The file.
        file: PathBuf,
        /// What it is.
        why: String,
    },
    /// Another process follows.
    #[error(
        "another process follows with the position in {}; a second destination needs a position of \
         its own: --state FILE",
        file.display()
    )]
    InUse {
        /// The file.
        file: PathBuf,
    },
    /// Signals can't be heard.
    #[error("the process could not be set up")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Secret(_) | Self::Position { .. } => USAGE,
            Self::State { .. } => exit::UNAVAILABLE,
            Self::InUse { .. } => exit::IN_FLIGHT,
            Self::Gap { .. } => exit::HELD,
            Self::Client(_) | Self::Refused { .. } | Self::HandOver { .. } | Self::Io(_) => {
                exit::NO
            }
        }
    }
}

/// Follows the stream until a signal or the server ends it. `environment` returns a variable's
/// value.
///
/// # Errors
///
/// See [`Error`].
pub async fn run(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    for url in [
        Some(&options.url),
        options.webhook.as_ref(),
        options.queue.as_ref(),
    ] {
        plain(url.map_or("", String::as_str))?;
    }
    let token = set("FIRSTCLAIM_TAIL_TOKEN").or_else(|| set("THREADS_TOKEN"));
    let stream = Stream::new(options.url.clone(), token.as_deref(), options.idle)?;
    let destination = match (&options.queue, &options.webhook) {
        (Some(url), _) => Destination::Queue(Queue::new(url).await),
        (None, url) => {
            Destination::Webhook(webhook(url.as_deref().unwrap_or_default(), &options, set)?)
        }
    };
    let position = Position::open(
        file(&options, set)?,
        &options.url,
        stream.shown(),
        options.from.clone(),
    )?;
    let lines = Lines::new(options.quiet, options.json);
    lines.note(&format!("position in {}", position.file().display()));
    lines.note(&destination.records());
    let gaps = match options.gaps.is_empty() {
        true => GAPS.map(str::to_owned).to_vec(),
        false => options.gaps,
    };
    let mut signals = Signals::new()?;
    let (stopping, stop) = watch::channel(false);
    let follower = Follower {
        stream,
        filter: Filter {
            scopes: options.scopes,
            kinds: options.kinds,
            gaps,
        },
        destination,
        position,
        idle: options.idle,
        on_gap: options.on_gap,
        lines,
        source: SystemSource,
        stop,
        count: follow::Count::default(),
    };
    let mut following = std::pin::pin!(follower.run());
    tokio::select! {
        done = &mut following => return done,
        () = signals.next() => {}
    }
    // An event that is being handed over may land; the position is then stored behind it.
    lines.note("ending");
    stopping.send_replace(true);
    tokio::select! {
        done = &mut following => done,
        // The position is behind the last event that was handed on, as at any moment.
        () = signals.next() => Ok(()),
    }
}

fn webhook(
    url: &str,
    options: &Options,
    set: impl Fn(&str) -> Option<String>,
) -> Result<Webhook, Error> {
    let scheme = SCHEMES.into_iter().find(|scheme| *scheme == options.scheme);
    let scheme = scheme.unwrap_or(SCHEMES[0]);
    let secret = match &options.secret_file {
        Some(path) => read_secret(path.clone())?,
        None => match set("FIRSTCLAIM_SECRET") {
            Some(secret) => secret,
            None if is_loopback(url) => development_secret(scheme).to_owned(),
            None => {
                return Err(Error::Usage(format!(
                    "{} is not on this machine, so that the development secret is of no use there; set \
                 FIRSTCLAIM_SECRET or give --secret-file",
                    stream::shown(url)
                )));
            }
        },
    };
    Webhook::new(url, scheme, secret)
}

/// Where the position is kept.
fn file(options: &Options, set: impl Fn(&str) -> Option<String>) -> Result<PathBuf, Error> {
    if let Some(file) = &options.state {
        return Ok(file.clone());
    }
    let folder = set(store::DATA_VARIABLE).map(PathBuf::from);
    match folder.or_else(|| store::default_folder(set)) {
        Some(folder) => {
            let name = position::file_name(&options.url, &options.scopes);
            Ok(folder.join(FOLDER).join(name))
        }
        None => Err(Error::Usage(
            "neither XDG_STATE_HOME nor HOME is set; give --state FILE".to_owned(),
        )),
    }
}

/// An address without a password in it: whoever may run `ps` sees the arguments.
fn plain(url: &str) -> Result<(), Error> {
    let uri = url.parse::<axum::http::Uri>().unwrap_or_default();
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => Err(Error::Usage(
            "an address can't have a user and password in it; the stream's token is read from \
             FIRSTCLAIM_TAIL_TOKEN"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

fn idle(text: &str) -> Result<Duration, String> {
    duration::parse(text).and_then(|idle| match idle.is_zero() {
        true => Err("give more than nothing".to_owned()),
        false => Ok(idle),
    })
}
