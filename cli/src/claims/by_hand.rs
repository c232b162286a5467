//! The protocol by hand, for scripts: claim a key, say what is done, end the claim.
//!
//! Each command is a process of its own: the owner token, which `claim` prints, is what makes them
//! one owner.

use std::io::Read;
use std::time::Duration;

use clap::Args;
use firstclaim::claims::{Claim, Claimed, Ended, Resumed};
use firstclaim::clock::EpochMillis;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{
    Answer, Config, Fingerprint, Invocation, Outcome, Owner, Policy, StepError, StoredFailure,
};
use serde_json::value::RawValue;

use super::duration::{about, parse};
use super::said::Said;
use super::{Error, FileOrTable, exit, key, print, store, who};

/// The variable that `run` gives its command the owner token in.
pub const OWNER_VARIABLE: &str = "FIRSTCLAIM_OWNER";

/// What the commands of an owner need.
#[derive(Args, Clone, Debug)]
pub struct Owned {
    /// The key
    pub key: String,
    /// The token that `claim` printed [env: FIRSTCLAIM_OWNER]
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    pub owner: Option<String>,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

/// How a claim is made; the same for `run`.
#[derive(Args, Clone, Debug)]
pub struct Terms {
    /// Until when the owner is presumed alive, from now on
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse)]
    pub lease: Duration,
    /// Wait so long for somebody who is at it, in place of an immediate exit with 75
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse)]
    pub wait: Duration,
    /// After a crash or an unknown outcome nobody takes over: a person settles it
    #[arg(long)]
    pub hold: bool,
    /// Bind the key to this payload; several count as a list. JSON counts as its value, and @FILE as
    /// the file's content
    #[arg(long, value_name = "TEXT|@FILE", num_args = 1..)]
    pub fingerprint: Vec<String>,
    /// For how long the finished record answers duplicates
    #[arg(long, value_name = "TIME", default_value = "31d", value_parser = parse)]
    pub window: Duration,
    /// How far clocks may differ: the work ends so long before its lease
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse)]
    pub grace: Duration,
}

impl Terms {
    /// The configuration that these terms fit in.
    pub(super) fn config(&self) -> Config {
        let usual = Config::default();
        Config {
            window: self.window,
            grace: self.grace,
            longest_lease: usual.longest_lease.max(self.lease),
            policy: self.policy(),
            ..usual
        }
    }

    pub(super) fn policy(&self) -> Policy {
        match self.hold {
            true => Policy::Hold,
            false => Policy::Rerun,
        }
    }

    pub(super) fn fingerprint(&self) -> Result<Option<Fingerprint>, Error> {
        let parts = self
            .fingerprint
            .iter()
            .map(|text| match text.strip_prefix('@') {
                None => Ok(text.clone().into_bytes()),
                Some(file) => std::fs::read(file).map_err(|source| {
                    Error::Usage(format!("the payload in {file} can't be read: {source}"))
                }),
            });
        let parts: Vec<Vec<u8>> = parts.collect::<Result<_, _>>()?;
        Ok(match parts.as_slice() {
            [] => None,
            [only] => Some(Fingerprint::of_bytes(only)),
            several => {
                let each = several
                    .iter()
                    .map(|part| Fingerprint::of_bytes(part).to_hex());
                let joined: Vec<String> = each.collect();
                Some(Fingerprint::of_bytes(joined.join("\n").as_bytes()))
            }
        })
    }
}

/// Who claims, for the record's origin. The lease is the claim's own.
pub(super) fn origin(command: &str, environment: impl Fn(&str) -> Option<String>) -> Invocation {
    Invocation {
        function: Some(format!("firstclaim {command}")),
        request: Some(format!("{} pid {}", who(environment), std::process::id())),
        ..Invocation::until(EpochMillis(i64::MAX))
    }
}

/// The options of `firstclaim claim`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Prints the owner token, which the other commands take as --owner or from FIRSTCLAIM_OWNER. With a \
token, the claim that it owns is extended.

Exit codes: 0 the claim is yours, 1 it is finished already, 64 usage, 69 the store did not answer, \
75 somebody is at it, 80 held, 81 bound to another payload, 82 the token is not the owner's.")]
pub struct ClaimOptions {
    /// The key
    pub key: String,
    /// How to claim it
    #[command(flatten)]
    pub terms: Terms,
    /// What you are about to do, for people who look at the record
    #[arg(long, value_name = "TEXT")]
    pub activity: Option<String>,
    /// Extend the claim of this token
    #[arg(long, value_name = "TOKEN")]
    pub owner: Option<String>,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

/// The options of `firstclaim activity`.
#[derive(Args, Clone, Debug)]
#[command(after_help = ENDED)]
pub struct ActivityOptions {
    /// Whose claim
    #[command(flatten)]
    pub owned: Owned,
    /// One line; an empty one clears it
    pub text: String,
}

/// The options of `firstclaim checkpoint`.
#[derive(Args, Clone, Debug)]
#[command(after_help = ENDED)]
pub struct CheckpointOptions {
    /// Whose claim
    #[command(flatten)]
    pub owned: Owned,
    /// The step's name
    pub name: String,
    /// Its value as JSON; what is no JSON is taken as a text
    pub value: String,
}

/// The options of `firstclaim complete`.
#[derive(Args, Clone, Debug)]
#[command(after_help = ENDED)]
pub struct CompleteOptions {
    /// Whose claim
    #[command(flatten)]
    pub owned: Owned,
    /// The result as JSON, '-' for stdin; what is no JSON is taken as a text
    #[arg(default_value = "null")]
    pub result: String,
}

/// The options of `firstclaim fail`.
#[derive(Args, Clone, Debug)]
#[command(after_help = ENDED)]
pub struct FailOptions {
    /// Whose claim
    #[command(flatten)]
    pub owned: Owned,
    /// A short name of the kind of failure
    #[arg(long, default_value = "failed")]
    pub code: String,
    /// What happened
    #[arg(long, default_value = "")]
    pub message: String,
}

/// The options of `firstclaim release`.
#[derive(Args, Clone, Debug)]
#[command(after_help = ENDED)]
pub struct ReleaseOptions {
    /// Whose claim
    #[command(flatten)]
    pub owned: Owned,
    /// A short name of the reason
    #[arg(long, default_value = "released")]
    pub code: String,
    /// Why it did not happen
    #[arg(long, default_value = "")]
    pub message: String,
}

const ENDED: &str = "\
Exit codes: 0 it stands in the record, 64 usage, 69 the store did not answer (say it again), 82 \
somebody else has the key, or it has ended already: nothing was changed.";

pub(super) async fn claim(
    options: ClaimOptions,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let key = key(&options.key)?;
    let said = options.store.said();
    let fingerprint = options.terms.fingerprint()?;
    let (claims, _) = options
        .store
        .open_to_claim(options.terms.config(), &environment)
        .await?;
    if let Some(token) = &options.owner {
        let claim = match resumed(&claims, said, &options.key, Some(token), &environment).await? {
            Ok(claim) => claim,
            Err(code) => return Ok(code),
        };
        if claim.extend(options.terms.lease).await? == Ended::Superseded {
            return Ok(superseded(said));
        }
        show_claim(&claim, options.store.json);
        return Ok(0);
    }
    let mut once = claims
        .once(key)
        .lease(options.terms.lease)
        .window(options.terms.window)
        .policy(options.terms.policy())
        .wait_for(options.terms.wait);
    if let Some(fingerprint) = fingerprint {
        once = once.fingerprint(fingerprint);
    }
    if let Some(activity) = options.activity {
        once = once.activity(activity);
    }
    let claiming = origin("claim", &environment).scope(once.claim());
    match claiming.await? {
        Claimed::Held(claim) => {
            show_claim(&claim, options.store.json);
            Ok(0)
        }
        Claimed::Answered(outcome) => {
            let answered = Answered::of(&outcome);
            match options.store.json {
                true => print(&format!("{}\n", answered.json(&outcome))),
                false => said.important(&answered.text),
            }
            Ok(answered.code)
        }
    }
}

fn show_claim(claim: &Claim<DynamoDb>, json: bool) {
    let token = claim.owner().expose();
    if !json {
        return print(&format!("{token}\n"));
    }
    let shown = serde_json::json!({
        "id": claim.key().as_str(),
        "outcome": "claimed",
        "owner": token,
        "attempt": claim.attempt(),
        "checkpoints": claim.checkpoints(),
        "downstream_key": claim.downstream_key(queue::target::STEP),
    });
    print(&format!("{shown}\n"));
}

pub(super) async fn activity(
    options: ActivityOptions,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let text = Some(options.text).filter(|text| !text.is_empty());
    options
        .owned
        .act(
            "activity",
            environment,
            async move |claim: Claim<DynamoDb>| Ok(claim.set_activity(text.as_deref()).await?),
        )
        .await
}

pub(super) async fn checkpoint(
    options: CheckpointOptions,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let value = json_or_text(&options.value);
    let name = options.name;
    options
        .owned
        .act(
            "checkpoint",
            environment,
            async move |claim: Claim<DynamoDb>| match claim.checkpoint(&name, &value).await {
                Ok(()) => Ok(Ended::Recorded),
                Err(StepError::Superseded(_) | StepError::Lost(_)) => Ok(Ended::Superseded),
                Err(StepError::Store { source, .. }) => Err(source.into()),
                Err(error) => Err(Error::Usage(error.to_string())),
            },
        )
        .await
}

pub(super) async fn complete(
    options: CompleteOptions,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let text = match options.result.as_str() {
        "-" => stdin()?,
        given => given.to_owned(),
    };
    let value = json_or_text(&text);
    options
        .owned
        .act(
            "completed",
            environment,
            async move |claim: Claim<DynamoDb>| match claim.complete(value).await.answer {
                Answer::Performed(_) => Ok(Ended::Recorded),
                Answer::NotRecorded(_) => Err(Error::Unrecorded),
                _ => Ok(Ended::Superseded),
            },
        )
        .await
}

pub(super) async fn fail(
    options: FailOptions,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let (code, message) = (options.code, options.message);
    options
        .owned
        .act(
            "failed",
            environment,
            async move |claim: Claim<DynamoDb>| {
                Ok(claim.fail(StoredFailure { code, message }).await?)
            },
        )
        .await
}

pub(super) async fn release(
    options: ReleaseOptions,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let (code, message) = (options.code, options.message);
    options
        .owned
        .act(
            "released",
            environment,
            async move |claim: Claim<DynamoDb>| {
                Ok(claim.release(StoredFailure { code, message }).await?)
            },
        )
        .await
}

impl Owned {
    /// Picks up the claim by its token and does something with it; says what became of it.
    async fn act<F>(
        self,
        word: &'static str,
        environment: impl Fn(&str) -> Option<String>,
        act: F,
    ) -> Result<u8, Error>
    where
        F: AsyncFnOnce(Claim<DynamoDb>) -> Result<Ended, Error>,
    {
        let said = self.store.said();
        let token = self.owner.as_deref();
        let (claims, _) = self.store.open(Config::default(), &environment).await?;
        let claim = match resumed(&claims, said, &self.key, token, &environment).await? {
            Ok(claim) => claim,
            Err(code) => return Ok(code),
        };
        let (key, attempt) = (claim.key().clone(), claim.attempt());
        let ended = act(claim).await?;
        if self.store.json {
            let outcome = match ended {
                Ended::Recorded => word,
                Ended::Superseded => "superseded",
            };
            let shown = serde_json::json!({"id": key, "outcome": outcome, "attempt": attempt});
            print(&format!("{shown}\n"));
        }
        match ended {
            Ended::Recorded => {
                said.note(&format!("{word}: {key}, attempt {attempt}"));
                Ok(0)
            }
            Ended::Superseded => Ok(superseded(said)),
        }
    }
}

/// The claim that a token owns, or the exit code where it owns none.
async fn resumed(
    claims: &FileOrTable,
    said: Said,
    text: &str,
    token: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Result<Claim<DynamoDb>, u8>, Error> {
    let key = key(text)?;
    let token = token
        .map(str::to_owned)
        .or_else(|| environment(OWNER_VARIABLE));
    let token = token.filter(|token| !token.is_empty()).ok_or_else(|| {
        Error::Usage(format!(
            "whose claim? Give the token that `firstclaim claim` printed, with --owner or in \
             {OWNER_VARIABLE}"
        ))
    })?;
    Ok(match claims.resume(key.clone(), Owner::new(token)).await? {
        Resumed::Owned(claim) => Ok(claim),
        Resumed::Foreign(record) => {
            said.important(&format!(
                "superseded: {key} belongs to somebody else now (attempt {}); nothing was changed",
                record.attempt
            ));
            Err(exit::SUPERSEDED)
        }
        Resumed::Gone => {
            // No proof that somebody else has it: this may be another store, or another key.
            said.important(&format!(
                "no record of {key} was found, so that nothing is known of the claim; is this the \
                 right store, and the right key?"
            ));
            Err(exit::UNAVAILABLE)
        }
    })
}

fn superseded(said: Said) -> u8 {
    said.important(
        "superseded: the claim has ended or somebody else has the key; nothing was changed",
    );
    exit::SUPERSEDED
}

/// What is said to one who did not get the key.
pub(super) struct Answered {
    pub(super) code: u8,
    pub(super) text: String,
}

impl Answered {
    pub(super) fn of<T>(outcome: &Outcome<T>) -> Self {
        let (key, attempt) = (&outcome.key, outcome.attempt);
        let by = outcome.origin.request.as_deref();
        let by = by.map_or_else(String::new, |request| format!(", claimed by {request}"));
        let (code, text) = match &outcome.answer {
            Answer::InProgress {
                activity,
                retry_after,
            } => {
                let doing = activity.as_ref().map(|text| format!(", doing: {text}"));
                let rest = about(*retry_after);
                let text = format!(
                    "in flight: {key}, attempt {attempt}{by}{}; its lease ends in {rest}",
                    doing.unwrap_or_default()
                );
                (exit::IN_FLIGHT, text)
            }
            Answer::Held { .. } => (
                exit::HELD,
                format!(
                    "held: what became of attempt {attempt} of {key}{by} is unknown, and nobody \
                     may take over; settle it: firstclaim settle '{key}' --why …"
                ),
            ),
            Answer::Mismatch { stored, given } => (
                exit::MISMATCH,
                format!(
                    "mismatch: {key} is bound to the payload {stored}, and {given} was given; \
                     nothing ran"
                ),
            ),
            Answer::Superseded => (
                exit::SUPERSEDED,
                format!("superseded: somebody else has {key} now, attempt {attempt}{by}"),
            ),
            Answer::ReplayedFailure(failure) => (
                exit::NO,
                format!(
                    "failed already: {key}, attempt {attempt}{by}: {} ({})",
                    failure.message, failure.code
                ),
            ),
            Answer::ResultOmitted(omitted) => (
                exit::NO,
                format!(
                    "done already: {key}, attempt {attempt}{by}; its result of {} bytes is not \
                     here: {}",
                    omitted.bytes, omitted.reason
                ),
            ),
            _ => (
                exit::NO,
                format!("done already: {key}, attempt {attempt}{by}; firstclaim get shows it"),
            ),
        };
        Self { code, text }
    }

    /// The same for programs.
    pub(super) fn json<T>(&self, outcome: &Outcome<T>) -> String {
        let mut shown = serde_json::json!({
            "id": outcome.key,
            "outcome": outcome.name(),
            "attempt": outcome.attempt,
            "origin": outcome.origin,
            "exit_code": self.code,
        });
        match &outcome.answer {
            Answer::InProgress {
                activity,
                retry_after,
            } => {
                shown["activity"] = serde_json::json!(activity);
                shown["retry_after_ms"] = serde_json::json!(retry_after.as_millis() as u64);
            }
            Answer::Mismatch { stored, given } => {
                shown["validation"] = serde_json::json!(stored.to_hex());
                shown["given"] = serde_json::json!(given.to_hex());
            }
            Answer::ReplayedFailure(failure) => shown["error"] = serde_json::json!(failure),
            _ => {}
        }
        shown.to_string()
    }
}

/// JSON as it is; anything else as a text.
pub(super) fn json_or_text(text: &str) -> Box<RawValue> {
    let json = RawValue::from_string(text.trim().to_owned());
    json.or_else(|_| RawValue::from_string(serde_json::Value::from(text).to_string()))
        // A text as JSON is JSON.
        .unwrap_or_default()
}

fn stdin() -> Result<String, Error> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|source| Error::Io {
        what: "stdin can't be read".to_owned(),
        source,
    })?;
    // The line end that `echo` and editors leave.
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}
