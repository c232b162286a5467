//! The settings: read once from the environment, all faults reported together.

use std::fmt;
use std::time::Duration;

use firstclaim::Config;

use crate::senders::Senders;

/// How long an invocation of a Lambda can last.
const LONGEST_RUN: Duration = Duration::from_secs(15 * 60);

/// The longest body that is taken, in bytes, unless `BODY_LIMIT` says less: the most that a Lambda
/// is sent.
pub const BODY_LIMIT: usize = firstclaim::envelope::BODY_LIMIT;

/// Everything that the function is told at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `CLAIMS_TABLE`.
    pub table: String,
    /// `QUEUE_URL`.
    pub queue_url: String,
    /// `SENDERS` or `SENDERS_SECRET_ARN`.
    pub senders: SendersFrom,
    /// `CLAIMS_WINDOW` and `MIN_REMAINING`, with the defaults for the rest.
    pub claims: Config,
    /// The rest.
    pub options: Options,
}

/// Where the senders' configuration stands.
#[derive(Clone, Debug)]
pub enum SendersFrom {
    /// In `SENDERS`; checked already.
    Inline(Senders),
    /// In this secret of Secrets Manager, read when the first event arrives.
    Secret(String),
}

/// How the handler answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest body that is taken, in bytes.
    pub body_limit: usize,
    /// The address that senders use, without a slash at its end; makes `Location` absolute.
    pub public_url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_limit: BODY_LIMIT,
            public_url: None,
        }
    }
}

/// All that is wrong with a configuration. `Display` lists one fault a line; secrets are never
/// printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Faults(Vec<Fault>);

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The variable's name.
    pub variable: &'static str,
    /// What is wrong with it.
    pub text: String,
}

impl Faults {
    /// The faults, in the order of the variables.
    #[must_use]
    pub fn list(&self) -> &[Fault] {
        &self.0
    }

    pub(crate) fn of(variable: &'static str, texts: Vec<String>) -> Self {
        let fault = |text| Fault { variable, text };
        Self(texts.into_iter().map(fault).collect())
    }

    pub(crate) fn add(&mut self, variable: &'static str, text: impl Into<String>) {
        self.0.push(Fault {
            variable,
            text: text.into(),
        });
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            let end = if at + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{}: {}{end}", fault.variable, fault.text)?;
        }
        Ok(())
    }
}

impl Settings {
    /// Reads the settings through `lookup`. An empty variable counts as one that is not set, since
    /// a template's optional parameter arrives so.
    ///
    /// # Errors
    ///
    /// Every fault of the configuration, by the variable's name.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let mut faults = Faults::default();

        let table = set("CLAIMS_TABLE").unwrap_or_else(|| {
            faults.add(
                "CLAIMS_TABLE",
                "is not set; it names the table of the claims",
            );
            String::new()
        });
        let queue_url = read_queue_url(set("QUEUE_URL"), &mut faults);
        let claims = read_claims(&set, &mut faults);
        let senders = read_senders(&set, claims.longest_lease, &mut faults);
        let options = Options {
            body_limit: read_body_limit(set("BODY_LIMIT"), &mut faults),
            public_url: read_public_url(set("PUBLIC_URL"), &mut faults),
        };
        if let (Some(SendersFrom::Inline(senders)), None) = (&senders, set("PUBLIC_URL"))
            && let Some(name) = senders.needs_address()
        {
            faults.add(
                "PUBLIC_URL",
                format!("is not set; sender {name:?} signs the address that it calls"),
            );
        }
        match senders {
            Some(senders) if faults.0.is_empty() => Ok(Self {
                table,
                queue_url,
                senders,
                claims,
                options,
            }),
            _ => Err(faults),
        }
    }
}

fn read_queue_url(value: Option<String>, faults: &mut Faults) -> String {
    let Some(url) = value else {
        faults.add("QUEUE_URL", "is not set; it says where verified events go");
        return String::new();
    };
    if !url.starts_with("https://") && !url.starts_with("http://") {
        faults.add(
            "QUEUE_URL",
            "is no URL; give the queue's URL, not its name or ARN",
        );
    }
    url
}

fn read_claims(set: &impl Fn(&str) -> Option<String>, faults: &mut Faults) -> Config {
    let mut claims = Config::default();
    if let Some(text) = set("CLAIMS_WINDOW") {
        match duration(&text) {
            Some(window) if window > claims.longest_lease => claims.window = window,
            Some(window) => faults.add("CLAIMS_WINDOW", short_window(window, claims.longest_lease)),
            None => faults.add("CLAIMS_WINDOW", NO_DURATION),
        }
    }
    if let Some(text) = set("MIN_REMAINING") {
        match duration(&text) {
            Some(floor) if floor < LONGEST_RUN => claims.min_remaining = floor,
            Some(_) => faults.add(
                "MIN_REMAINING",
                "is longer than any invocation lasts; nothing would ever be accepted",
            ),
            None => faults.add("MIN_REMAINING", NO_DURATION),
        }
    }
    claims
}

fn read_senders(
    set: &impl Fn(&str) -> Option<String>,
    longest_lease: Duration,
    faults: &mut Faults,
) -> Option<SendersFrom> {
    match (set("SENDERS"), set("SENDERS_SECRET_ARN")) {
        (Some(json), None) => match Senders::from_json(&json, longest_lease) {
            Ok(senders) => Some(SendersFrom::Inline(senders)),
            Err(found) => {
                faults.0.extend(found.0);
                None
            }
        },
        (None, Some(arn)) => Some(SendersFrom::Secret(arn)),
        (Some(_), Some(_)) => {
            faults.add(
                "SENDERS",
                "is set beside SENDERS_SECRET_ARN; set one of them",
            );
            None
        }
        (None, None) => {
            faults.add(
                "SENDERS",
                "is not set, and neither is SENDERS_SECRET_ARN; without senders every request \
                 would be refused",
            );
            None
        }
    }
}

fn read_body_limit(value: Option<String>, faults: &mut Faults) -> usize {
    let Some(text) = value else {
        return BODY_LIMIT;
    };
    match bytes(&text) {
        Some(limit @ 1..=BODY_LIMIT) => limit,
        Some(_) => {
            faults.add(
                "BODY_LIMIT",
                format!("must be from 1 to {BODY_LIMIT} bytes"),
            );
            BODY_LIMIT
        }
        None => {
            faults.add(
                "BODY_LIMIT",
                "is no size; write bytes, or for example `512KB` or `6MB`",
            );
            BODY_LIMIT
        }
    }
}

fn read_public_url(value: Option<String>, faults: &mut Faults) -> Option<String> {
    let url = value?;
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic()) && !url.contains(['?', '#']);
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    if !plain || rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
        faults.add(
            "PUBLIC_URL",
            "is no address such as `https://hooks.example.com`, without query and fragment",
        );
        return None;
    }
    Some(url.trim_end_matches('/').to_owned())
}

/// What is said of a text that [`duration`] does not read.
pub(crate) const NO_DURATION: &str =
    "is no duration; write a whole number and a unit: `31d`, `12h`, `30m`, `90s` or `500ms`";

/// Reads a whole number with its unit: `d`, `h`, `m`, `s` or `ms`. `None` for anything else, and for
/// more than a century.
pub fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    let milliseconds = number.checked_mul(milliseconds)?;
    // A longer time than this is a slip, and would reach the end of the clock's range.
    let century = 100 * 366 * 24 * 60 * 60 * 1000;
    (milliseconds <= century).then(|| Duration::from_millis(milliseconds))
}

/// What is said of a window that a record could outlive.
pub(crate) fn short_window(window: Duration, longest_lease: Duration) -> String {
    format!(
        "is {} s; it must be longer than the longest lease, {} s",
        window.as_secs(),
        longest_lease.as_secs()
    )
}

fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match (text.strip_suffix("KB"), text.strip_suffix("MB")) {
        (Some(number), _) => (number, 1024),
        (_, Some(number)) => (number, 1024 * 1024),
        _ => (text, 1),
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| number.parse::<usize>().ok())??
        .checked_mul(unit)
}
