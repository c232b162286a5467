//! Settings from the environment, read once; every fault is reported, not just the first.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use firstclaim::{Config, Policy};
use reqwest::Url;
use tracing_subscriber::EnvFilter;

mod read;
mod threads;

use crate::config::read::Reader;

pub use threads::ThreadsSettings;

/// How many records are worked on at once, unless `BATCH_CONCURRENCY` says otherwise.
pub const CONCURRENCY: usize = 10;

/// The longest call of the target, unless `TARGET_TIMEOUT` says otherwise. A call never lasts
/// longer than its claim, whatever is set.
pub const TARGET_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest run of a Lambda: nothing that is waited for within one can be longer.
const LONGEST_RUN: Duration = Duration::from_secs(15 * 60);

/// What the queue function is told by its environment. A variable that is set to an empty text
/// counts as not set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// `CLAIMS_TABLE`: the table of the records. Required.
    pub table: String,
    /// `CLAIMS_WINDOW`, `CLAIMS_ON_LAPSE` and `MIN_REMAINING`.
    pub claims: Config,
    /// Where and how the operation is applied.
    pub target: TargetSettings,
    /// `THREADS_URL`: the server that events of threads are told to; `None` where nothing is.
    pub threads: Option<ThreadsSettings>,
    /// `DEAD_LETTER_URL`: the queue for what can't succeed. Without one it is returned to SQS,
    /// whose redrive policy moves it.
    pub dead_letter_url: Option<String>,
    /// `BATCH_CONCURRENCY`: how many records are worked on at once, 1 to 100.
    pub concurrency: usize,
    /// `AWS_ENDPOINT_URL_SQS`, else `AWS_ENDPOINT_URL`: the base of queue URLs, where it is not
    /// AWS's own.
    pub sqs_endpoint: Option<String>,
    /// `RUST_LOG`: what is logged. Default `info`.
    pub log_filter: String,
}

/// Where and how the operation is applied.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetSettings {
    /// `TARGET_URL`: where events go whose sender has no target of its own. Required.
    pub url: Url,
    /// The targets of single senders: from `SENDERS`, of which nothing else is read here.
    pub senders: BTreeMap<String, Url>,
    /// `TARGET_TIMEOUT`: the longest call.
    pub timeout: Duration,
    /// `TARGET_TOKEN` or `TARGET_TOKEN_SECRET_ARN`.
    pub token: TokenSource,
}

impl TargetSettings {
    /// One target for all events, without a token and with the default time-out.
    #[must_use]
    pub fn to(url: Url) -> Self {
        Self {
            url,
            senders: BTreeMap::new(),
            timeout: TARGET_TIMEOUT,
            token: TokenSource::None,
        }
    }
}

/// Where a bearer token comes from.
#[derive(Clone)]
#[non_exhaustive]
pub enum TokenSource {
    /// None is asked for.
    None,
    /// This token.
    Fixed(String),
    /// The secret with this ARN or name in Secrets Manager.
    SecretsManager(String),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Fixed(_) => f.write_str("Fixed(…)"),
            Self::SecretsManager(arn) => f.debug_tuple("SecretsManager").field(arn).finish(),
        }
    }
}

/// What is wrong with one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The variable.
    pub variable: &'static str,
    /// What is wrong with it. Never its value, which may be a secret.
    pub found: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.found)
    }
}

/// Everything that is wrong with an environment; displayed as one line for each fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl Settings {
    /// Like [`read`](Self::read), for a process that is a Lambda function: that it is none is one
    /// more fault.
    ///
    /// # Errors
    ///
    /// Every fault that there is, together.
    pub fn read_in_lambda(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        let missing = RUNTIME.into_iter().find(|name| lookup(name).is_none());
        let outside = missing.map(|variable| Fault {
            variable,
            found: "is not set; this program runs in Lambda only (`firstclaim dev` runs its \
                    handler on your machine)"
                .to_owned(),
        });
        match (Self::read(lookup), outside) {
            (settings, None) => settings,
            (Ok(_), Some(fault)) => Err(Faults(vec![fault])),
            (Err(mut faults), Some(fault)) => {
                faults.0.push(fault);
                Err(faults)
            }
        }
    }

    /// Reads the settings through `lookup`, which returns a variable's value.
    ///
    /// # Errors
    ///
    /// Every fault that there is, together.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        let mut read = Reader::new(lookup);
        let table = read.required("CLAIMS_TABLE", |text| Ok(text.to_owned()));
        let claims = claims(&mut read);
        let target = target(&mut read);
        let dead_letter_url = read.optional("DEAD_LETTER_URL", queue_url);
        let concurrency = read.optional("BATCH_CONCURRENCY", concurrency);
        let sqs_endpoint = read
            .text("AWS_ENDPOINT_URL_SQS")
            .or_else(|| read.text("AWS_ENDPOINT_URL"));
        let log_filter = read.optional("RUST_LOG", |text| match EnvFilter::try_new(text) {
            Ok(_) => Ok(text.to_owned()),
            Err(_) => Err("must be a log filter, such as info or queue=debug".to_owned()),
        });
        let threads = threads::read(&mut read);
        match (table, target, read.into_faults()) {
            (Some(table), Some(target), None) => Ok(Self {
                table,
                claims,
                target,
                threads,
                dead_letter_url,
                concurrency: concurrency.unwrap_or(CONCURRENCY),
                sqs_endpoint,
                log_filter: log_filter.unwrap_or_else(|| "info".to_owned()),
            }),
            (_, _, faults) => Err(faults.unwrap_or(Faults(Vec::new()))),
        }
    }
}

/// What the Lambda runtime must find in the environment, in place of the panic that it ends with.
const RUNTIME: [&str; 4] = [
    "AWS_LAMBDA_RUNTIME_API",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_VERSION",
];

fn claims<L: Fn(&str) -> Option<String>>(read: &mut Reader<L>) -> Config {
    let default = Config::default();
    let window = read.optional("CLAIMS_WINDOW", |text| {
        let window = read::duration(text)?;
        if window <= default.longest_lease {
            return Err(format!(
                "must be longer than the longest lease, {} s",
                default.longest_lease.as_secs()
            ));
        }
        Ok(window)
    });
    let policy = read.optional("CLAIMS_ON_LAPSE", |text| match text {
        "rerun" => Ok(Policy::Rerun),
        "hold" => Ok(Policy::Hold),
        _ => Err("must be `rerun` or `hold`".to_owned()),
    });
    let min_remaining = read.optional("MIN_REMAINING", |text| {
        let floor = read::duration(text)?;
        if floor >= LONGEST_RUN {
            return Err("must be shorter than 15m, the longest run of a Lambda".to_owned());
        }
        Ok(floor)
    });
    Config {
        window: window.unwrap_or(default.window),
        policy: policy.unwrap_or(default.policy),
        min_remaining: min_remaining.unwrap_or(default.min_remaining),
        // A record that a person has settled must be seen at once: by one that is remembered a
        // redriven message would be acknowledged, and its event lost.
        cache_bytes: 0,
        ..default
    }
}

fn target<L: Fn(&str) -> Option<String>>(read: &mut Reader<L>) -> Option<TargetSettings> {
    let allow_http = allow_http(read);
    let url = read.required("TARGET_URL", |text| {
        target_url(text, "TARGET_TOKEN", allow_http)
    });
    let senders = read.optional("SENDERS", |text| sender_targets(text, allow_http));
    if senders.is_none() && read.text("SENDERS_SECRET_ARN").is_some() {
        read.fault(
            "SENDERS_SECRET_ARN",
            "is not read by this function, which needs no sender's secrets; give the targets of \
             single senders in SENDERS: {\"<name>\":{\"target\":\"<URL>\"}}",
        );
    }
    let timeout = read.optional("TARGET_TIMEOUT", |text| {
        let timeout = read::duration(text)?;
        if timeout.is_zero() || timeout > LONGEST_RUN {
            return Err("must be more than 0s and at most 15m".to_owned());
        }
        Ok(timeout)
    });
    let token = token(read, "TARGET_TOKEN", "TARGET_TOKEN_SECRET_ARN");
    Some(TargetSettings {
        url: url?,
        senders: senders.unwrap_or_default(),
        timeout: timeout.unwrap_or(TARGET_TIMEOUT),
        token,
    })
}

/// A token, given as it is or by its secret's ARN.
fn token<L: Fn(&str) -> Option<String>>(
    read: &mut Reader<L>,
    as_it_is: &'static str,
    by_arn: &'static str,
) -> TokenSource {
    let fixed = read.optional(as_it_is, |text| {
        // A token that can't stand in a header would fail every call, one by one.
        if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(text.to_owned())
        } else {
            Err("must be visible ASCII characters only".to_owned())
        }
    });
    match (fixed, read.text(by_arn)) {
        (None, None) => TokenSource::None,
        (Some(token), None) => TokenSource::Fixed(token),
        (None, Some(arn)) => TokenSource::SecretsManager(arn),
        (Some(_), Some(_)) => {
            let found = format!("is set together with {as_it_is}; only one can hold");
            read.fault(by_arn, found);
            TokenSource::None
        }
    }
}

fn allow_http<L: Fn(&str) -> Option<String>>(read: &mut Reader<L>) -> bool {
    let allowed = read.optional("ALLOW_HTTP", |text| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be `true` or `false`".to_owned()),
    });
    allowed.unwrap_or(false)
}

fn concurrency(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=100).contains(number))
        .ok_or_else(|| "must be a whole number from 1 to 100".to_owned())
}

fn queue_url(text: &str) -> Result<String, String> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "https" | "http") => Ok(text.to_owned()),
        _ => Err("must be the URL of an SQS queue".to_owned()),
    }
}

fn target_url(text: &str, token: &str, allow_http: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("contains credentials; use {token}"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_http || loopback(&url) => Ok(url),
        "http" => Err("must be https (or set ALLOW_HTTP=true)".to_owned()),
        _ => Err("must be an https URL".to_owned()),
    }
}

fn loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse()
                .is_ok_and(|address: IpAddr| address.is_loopback())
    })
}

/// The part of a sender's configuration that this function needs.
#[derive(serde::Deserialize)]
struct Sender {
    #[serde(default)]
    target: Option<String>,
}

fn sender_targets(text: &str, allow_http: bool) -> Result<BTreeMap<String, Url>, String> {
    // The parser's message could quote a secret: only the place is said.
    let senders: BTreeMap<String, Sender> = serde_json::from_str(text).map_err(|error| {
        format!(
            "is not the JSON of senders (line {}, column {})",
            error.line(),
            error.column()
        )
    })?;
    senders
        .into_iter()
        .filter_map(|(name, sender)| sender.target.map(|target| (name, target)))
        .map(
            |(name, target)| match target_url(&target, "TARGET_TOKEN", allow_http) {
                Ok(url) => Ok((name, url)),
                Err(found) => Err(format!("the target of {name:?} {found}")),
            },
        )
        .collect()
}

#[cfg(test)]
mod tests;
