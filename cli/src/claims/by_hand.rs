//! The protocol by hand, for scripts: claim a key, say what is done, end the claim.
//!
//! Each command is a process of its own: the owner token, which `claim` prints, is what makes them
//! one owner.

use std::io::Read;

use clap::Args;
use firstclaim::claims::{Claim, Claimed, Ended, Resumed};
use firstclaim::clock::EpochMillis;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{
    Answer, Config, Fingerprint, Invocation, Owner, Policy, StepError, StoredFailure,
};
use serde_json::value::RawValue;

use super::answered::Answered;
use super::said::Said;
use super::terms::Terms;
use super::{Error, FileOrTable, Reader, Unwritten, exit, key, print, print_json, store, who};

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
    let config = options.terms.config();
    if let Some(token) = &options.owner {
        let (claims, _) = options.store.open(config, &environment).await?;
        let claim = match resumed(&claims, said, &options.key, Some(token), &environment).await? {
            Ok(claim) => claim,
            Err(code) => return Ok(code),
        };
        if let Some(code) = stricter(&claim, fingerprint, options.terms.hold, said)? {
            return Ok(code);
        }
        if claim.extend(options.terms.lease).await? == Ended::Superseded {
            return Ok(superseded(said));
        }
        if let Some(activity) = &options.activity {
            claim.set_activity(Some(activity)).await?;
        }
        show_claim(&claim, options.store.json)?;
        return Ok(0);
    }
    let (claims, _) = options.store.open_to_claim(config, &environment).await?;
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
        Claimed::Held(claim) => match show_claim(&claim, options.store.json) {
            Ok(Reader::There) => Ok(0),
            unread => {
                unshown(claim, said).await;
                // A claim whose token nobody has is none.
                unread.map(|_| exit::NO).map_err(Error::from)
            }
        },
        Claimed::Answered(outcome) => {
            let answered = Answered::of(&outcome);
            match options.store.json {
                true => drop(print_json(&answered.json(&outcome))?),
                false => said.important(&answered.text),
            }
            Ok(answered.code)
        }
    }
}

/// What is asked for must be what the claim of the token is: nothing stricter can be added to it. The
/// exit code where its payload is another one.
fn stricter(
    claim: &Claim<DynamoDb>,
    given: Option<Fingerprint>,
    hold: bool,
    said: Said,
) -> Result<Option<u8>, Error> {
    let key = claim.key();
    let lacks = match (claim.fingerprint(), given) {
        (Some(stored), Some(given)) if stored != given => {
            said.important(&format!(
                "mismatch: {key} is bound to the payload {stored}, and {given} was given; the claim \
                 was not extended"
            ));
            return Ok(Some(exit::MISMATCH));
        }
        (None, Some(_)) => "--fingerprint",
        _ if hold && claim.policy() != Policy::Hold => "--hold",
        _ => return Ok(None),
    };
    Err(Error::Usage(format!(
        "{key} was claimed without {lacks}, which can't be added to a claim that is held; it was not \
         extended. Leave that out, or release it and claim it again"
    )))
}

/// Nobody has the token of this claim, so that nobody could end it: the key is given back.
async fn unshown(claim: Claim<DynamoDb>, said: Said) {
    let key = claim.key().clone();
    let why = StoredFailure {
        code: "token_not_shown".to_owned(),
        message: "the owner token could not be printed".to_owned(),
    };
    match claim.release(why).await {
        Ok(_) => said.important(&format!(
            "the token could not be printed; {key} was given back, and nothing is claimed"
        )),
        Err(error) => said.important(&format!(
            "the token could not be printed, and {key} could not be given back ({error}); it is \
             free when the lease is over"
        )),
    }
}

fn show_claim(claim: &Claim<DynamoDb>, json: bool) -> Result<Reader, Unwritten> {
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
    print_json(&shown.to_string())
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
            print_json(&shown.to_string())?;
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
