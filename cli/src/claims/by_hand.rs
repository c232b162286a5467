//! The protocol by hand, for scripts: claim a key, say what is done, end the claim.
//!
//! Each command is a process of its own: the owner token, which `claim` prints, is what makes them
//! one owner.

use std::io::Read;

use clap::Args;
use firstclaim::claims::{Claim, Ended, Resumed};
use firstclaim::clock::EpochMillis;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, Config, Invocation, Owner, StepError, StoredFailure};
use serde_json::value::RawValue;

mod claim;

pub use claim::ClaimOptions;
pub(super) use claim::claim;

use super::said::Said;
use super::{Error, FileOrTable, exit, key, print_json, store, who};
use crate::check::chain;
use crate::stdout::Reader;

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

/// Who claims, for the record's origin. The lease is the claim's own.
pub(super) fn origin(command: &str, environment: impl Fn(&str) -> Option<String>) -> Invocation {
    Invocation {
        function: Some(format!("firstclaim {command}")),
        request: Some(format!("{} pid {}", who(environment), std::process::id())),
        ..Invocation::until(EpochMillis(i64::MAX))
    }
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
Exit codes: 0 it stands in the record, 1 it stands there and could not be printed (stderr says so), 64 \
usage, 69 the store did not answer (say it again), 82 somebody else has the key, or it has ended \
already: nothing was changed.";

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
        let outcome = match ended {
            Ended::Recorded => word,
            Ended::Superseded => "superseded",
        };
        let shown = match self.store.json {
            true => {
                let shown = serde_json::json!({"id": key, "outcome": outcome, "attempt": attempt});
                print_json(&shown.to_string())
            }
            false => Ok(Reader::There),
        };
        match ended {
            Ended::Recorded => {
                said.stands(&format!("{word}: {key}, attempt {attempt}"), shown)?;
                Ok(0)
            }
            Ended::Superseded => {
                let code = superseded(said);
                // That nothing was changed counts for more than how it was shown.
                if let Err(error) = shown {
                    said.important(&chain(&error));
                }
                Ok(code)
            }
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
