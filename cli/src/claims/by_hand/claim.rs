//! `firstclaim claim`: asks for a key, or extends the claim of a token.

use clap::Args;
use firstclaim::claims::{Claim, Claimed, Ended};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Fingerprint, Policy, StoredFailure};

use super::{origin, resumed, superseded};
use crate::claims::answered::Answered;
use crate::claims::said::Said;
use crate::claims::terms::Terms;
use crate::claims::{Error, exit, key, store};
use crate::stdout::{Reader, Unwritten, print, print_json};

/// The options of `firstclaim claim`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Prints the owner token, which the other commands take as --owner or from FIRSTCLAIM_OWNER. With a \
token, the claim that it owns is extended.

Exit codes: 0 the claim is yours, 1 it is finished already, or the token could not be \
printed and the key was given back (a claim that was extended stays), 64 usage, 69 the store did not answer, \
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

pub(in crate::claims) async fn claim(
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
        let extended = format!("extended: {}, attempt {}", claim.key(), claim.attempt());
        said.stands(&extended, show_claim(&claim, options.store.json))?;
        return Ok(0);
    }
    let (claims, place) = options.store.open_to_claim(config, &environment).await?;
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
            let answered = Answered::of(&outcome, &options.store.pasted(&place));
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
