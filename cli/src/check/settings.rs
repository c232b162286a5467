//! What is to be checked: the functions' settings, as the functions read them, and the flags.

use std::path::Path;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use queue::config::{TargetSettings, ThreadsSettings, TokenSource};
use serde_json::Value;

use super::finding::Finding;
use super::trouble::sdk;
use super::{Error, Options};
use crate::dev::is_loopback;

/// Stands for a required variable of a function that is not set up here.
const UNSET: &str = "https://unset.invalid/";

/// What is to be checked.
pub(super) struct Settings {
    pub(super) table: String,
    /// The endpoint of DynamoDB, where it is not AWS's own.
    pub(super) dynamodb: Option<String>,
    pub(super) sqs: Option<String>,
    pub(super) secrets_manager: Option<String>,
    pub(super) queue_url: Option<String>,
    pub(super) dead_letter_url: Option<String>,
    pub(super) window: Duration,
    /// The longest lease of a claim, which a sender's window must exceed.
    pub(super) longest_lease: Duration,
    pub(super) senders: SendersFrom,
    /// The targets, with the name of the variable or sender that names each.
    pub(super) targets: Vec<(String, reqwest::Url)>,
    /// Whether a target is named that can't be used.
    pub(super) target_at_fault: bool,
    pub(super) token: TokenSource,
    /// The threads server, with the target's settings that its client shares.
    pub(super) threads: Option<(ThreadsSettings, TargetSettings)>,
    pub(super) worker_timeout: Option<Duration>,
    pub(super) limit: Duration,
    /// The environment's own credentials.
    keys: Option<Credentials>,
    /// Which settings are set, and what is wrong with them.
    set: Vec<&'static str>,
    faults: Vec<(&'static str, String)>,
}

/// Where the senders stand.
pub(super) enum SendersFrom {
    Nowhere,
    /// The worker's: targets without secrets.
    TargetsOnly,
    Json(String),
    Secret(String),
}

/// The variables whose values are read here, in the order of the contract.
const VARIABLES: [&str; 20] = [
    "CLAIMS_TABLE",
    "CLAIMS_WINDOW",
    "CLAIMS_ON_LAPSE",
    "QUEUE_URL",
    "DEAD_LETTER_URL",
    "SENDERS",
    "SENDERS_SECRET_ARN",
    "PUBLIC_URL",
    "BODY_LIMIT",
    "TARGET_URL",
    "TARGET_TIMEOUT",
    "TARGET_TOKEN",
    "TARGET_TOKEN_SECRET_ARN",
    "THREADS_URL",
    "THREADS_TOKEN",
    "THREADS_TOKEN_SECRET_ARN",
    "ALLOW_HTTP",
    "BATCH_CONCURRENCY",
    "MIN_REMAINING",
    "RUST_LOG",
];

impl Settings {
    pub(super) fn read(
        options: Options,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let table = options
            .table
            .or_else(|| set("FIRSTCLAIM_TABLE"))
            .or_else(|| set("CLAIMS_TABLE"))
            .ok_or(Error::NoTable)?;
        let senders = match &options.senders {
            Some(path) => Some(read_file(path)?),
            None => None,
        };
        // A flag stands in the place of its variable.
        let lookup = |name: &str| match name {
            "CLAIMS_TABLE" => Some(table.clone()),
            "QUEUE_URL" => options.queue_url.clone().or_else(|| set(name)),
            "DEAD_LETTER_URL" => options.dead_letter_url.clone().or_else(|| set(name)),
            "TARGET_URL" => options.target_url.clone().or_else(|| set(name)),
            "SENDERS" => senders.clone().or_else(|| set(name)),
            "SENDERS_SECRET_ARN" if senders.is_some() => None,
            _ => set(name),
        };

        let mut faults = Vec::new();
        let webhook = read_webhook(&lookup, &mut faults);
        let worker = read_worker(&lookup, &mut faults);
        let queue_url = lookup("QUEUE_URL").filter(|_| !at_fault(&faults, "QUEUE_URL"));
        let endpoint = |service: &str| set(service).or_else(|| set("AWS_ENDPOINT_URL"));
        let defaults = firstclaim::Config::default();
        let mut targets = Vec::new();
        let mut token = TokenSource::None;
        if let Some(worker) = worker.as_ref().map(|worker| &worker.target) {
            if worker.url.as_str() != UNSET {
                targets.push(("TARGET_URL".to_owned(), worker.url.clone()));
            }
            let of_senders = worker.senders.iter();
            targets.extend(of_senders.map(|(name, url)| (format!("sender {name}"), url.clone())));
            token = worker.token.clone();
        }
        Ok(Self {
            dynamodb: options
                .endpoint
                .or_else(|| set("FIRSTCLAIM_ENDPOINT"))
                .or_else(|| endpoint("AWS_ENDPOINT_URL_DYNAMODB")),
            sqs: endpoint("AWS_ENDPOINT_URL_SQS")
                .or_else(|| origin(queue_url.as_deref()?).filter(|origin| is_loopback(origin))),
            secrets_manager: endpoint("AWS_ENDPOINT_URL_SECRETS_MANAGER"),
            dead_letter_url: worker
                .as_ref()
                .and_then(|worker| worker.dead_letter_url.clone()),
            window: webhook.map_or(defaults.window, |webhook| webhook.claims.window),
            longest_lease: defaults.longest_lease,
            senders: senders_from(lookup("SENDERS"), lookup("SENDERS_SECRET_ARN")),
            targets,
            target_at_fault: at_fault(&faults, "TARGET_URL") && lookup("TARGET_URL").is_some(),
            token,
            threads: worker.as_ref().and_then(|worker| {
                let threads = worker.threads.clone()?;
                Some((threads, worker.target.clone()))
            }),
            queue_url,
            worker_timeout: options.worker_timeout,
            limit: options.limit,
            keys: set("AWS_ACCESS_KEY_ID").map(|id| {
                let secret = set("AWS_SECRET_ACCESS_KEY").unwrap_or_default();
                let session = set("AWS_SESSION_TOKEN");
                Credentials::new(id, secret, session, None, "environment")
            }),
            set: VARIABLES
                .into_iter()
                .filter(|name| lookup(name).is_some())
                .collect(),
            faults,
            table,
        })
    }

    /// What clients of `endpoint` are made of. One on this machine needs no credentials and gets the
    /// environment's where there are some: an emulator may evaluate what they allow.
    pub(super) async fn sdk(&self, endpoint: Option<&str>) -> SdkConfig {
        let config = sdk(endpoint, self.limit).await;
        let Some(keys) = self.keys.clone() else {
            return config;
        };
        let keys = SharedCredentialsProvider::new(keys);
        config.into_builder().credentials_provider(keys).build()
    }

    /// A line for each fault, or one that says which variables were read.
    pub(super) fn findings(&self) -> Vec<Finding> {
        if self.faults.is_empty() {
            return vec![Finding::ok("settings", self.set.join(", "))];
        }
        self.faults
            .iter()
            .map(|(variable, text)| {
                Finding::fault("settings", text, "the function refuses to start with it")
                    .of(*variable)
            })
            .collect()
    }
}

fn read_file(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Senders {
        path: path.to_owned(),
        source,
    })
}

/// The webhook's settings, without those that are at fault. What is required but not set belongs to
/// a function that is not set up here. The senders have a check of their own; what is looked at
/// here is whether the rest fits them.
fn read_webhook(
    lookup: &impl Fn(&str) -> Option<String>,
    faults: &mut Vec<(&'static str, String)>,
) -> Option<webhook::Settings> {
    let longest_lease = firstclaim::Config::default().longest_lease;
    let well_formed = |json: &String| webhook::Senders::from_json(json, longest_lease).is_ok();
    let read = |hidden: &[(&'static str, String)]| {
        let senders = lookup("SENDERS").filter(|json| hidden.is_empty() && well_formed(json));
        webhook::Settings::read(|name| match name {
            "SENDERS" => senders.clone(),
            "SENDERS_SECRET_ARN" if senders.is_some() => lookup(name),
            "SENDERS_SECRET_ARN" => Some(UNSET.to_owned()),
            _ if at_fault(hidden, name) => None,
            "QUEUE_URL" => lookup(name).or_else(|| Some(UNSET.to_owned())),
            _ => lookup(name),
        })
    };
    let found = match read(&[]) {
        Ok(settings) => return Some(settings),
        Err(found) => found,
    };
    let found = found.list().iter();
    faults.extend(found.map(|fault| (fault.variable, fault.text.clone())));
    read(faults).ok()
}

/// The worker's settings, likewise.
fn read_worker(
    lookup: &impl Fn(&str) -> Option<String>,
    faults: &mut Vec<(&'static str, String)>,
) -> Option<queue::config::Settings> {
    let read = |hidden: &[(&'static str, String)]| {
        queue::config::Settings::read(|name| match name {
            // The webhook's.
            "SENDERS_SECRET_ARN" => None,
            "TARGET_URL" if at_fault(hidden, name) => Some(UNSET.to_owned()),
            _ if at_fault(hidden, name) => None,
            "TARGET_URL" => lookup(name).or_else(|| Some(UNSET.to_owned())),
            _ => lookup(name),
        })
    };
    let found = match read(&[]) {
        Ok(settings) => return Some(settings),
        Err(found) => found,
    };
    for fault in found.0 {
        // Both functions read some variables.
        if !at_fault(faults, fault.variable) {
            faults.push((fault.variable, fault.found));
        }
    }
    read(faults).ok()
}

fn at_fault(faults: &[(&'static str, String)], name: &str) -> bool {
    faults.iter().any(|(variable, _)| *variable == name)
}

fn senders_from(json: Option<String>, secret: Option<String>) -> SendersFrom {
    match (json, secret) {
        (None, None) => SendersFrom::Nowhere,
        (None, Some(arn)) => SendersFrom::Secret(arn),
        // The webhook refuses both; the worker has targets beside the webhook's secret.
        (Some(json), arn) if targets_only(&json) => match arn {
            Some(arn) => SendersFrom::Secret(arn),
            None => SendersFrom::TargetsOnly,
        },
        (Some(json), _) => SendersFrom::Json(json),
    }
}

/// Whether the senders are as the worker has them: each with a target at the most.
fn targets_only(json: &str) -> bool {
    let Ok(Value::Object(senders)) = serde_json::from_str(json) else {
        return false;
    };
    let bare = |sender: &Value| sender.get("scheme").is_none() && sender.get("secrets").is_none();
    !senders.is_empty() && senders.values().all(bare)
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    Some(url.origin().ascii_serialization())
}
