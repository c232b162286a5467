//! The claim: one wins, a second one loses, its result is replayed. And the clock that leases are
//! made from.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use firstclaim::clock::{EpochMillis, EpochSeconds, Source};
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Answer, ClaimError, Claimed, Claims, Config, Key, StoreError};

use super::finding::{Finding, bounded};
use super::settings::Settings;
use super::trouble::{Trouble, root};
use crate::dev::engine::{SELF_TEST_CLAIMS, SelfTestError, self_test};

/// The scope of the probe's key. No sender's name has a dot, so that no sender's key can be one.
const SCOPE: &str = "check.probe";

/// How long the probe's claim lasts.
const LEASE: Duration = Duration::from_secs(10);

/// When the probe's record expires, should it not be removed.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// Compares the clock, claims the probe, and (on an engine that is not AWS's own) races.
pub(super) async fn check(
    settings: &Settings,
    client: &Client,
    source: impl Source + Clone,
) -> Vec<Finding> {
    let limit = settings.limit;
    let store = DynamoDb::new(client.clone(), settings.table.clone());
    let key = match Key::new(SCOPE, uuid::Uuid::new_v4().to_string()) {
        Ok(key) => key,
        // Its parts are ours.
        Err(error) => return vec![Finding::fault("claim", error.to_string(), "report it")],
    };
    let clock = bounded("clock", limit, check_clock(&store, &key, &source)).await;
    let claim = bounded("claim", limit, check_claim(&store, &key, client, &source)).await;
    let mut findings = vec![
        clock.unwrap_or_else(|hung| hung),
        claim.unwrap_or_else(|hung| hung),
    ];
    if settings.dynamodb.is_some() {
        let race = bounded("race", limit, check_race(client, &settings.table)).await;
        findings.push(race.unwrap_or_else(|hung| hung));
    }
    findings
}

async fn check_clock(store: &DynamoDb, key: &Key, source: &impl Source) -> Finding {
    let sent = source.now();
    match store.service_time(&key.stored()).await {
        Err(error) => not_answered("clock", &error),
        Ok(Some(service)) => compare(sent, service, source.now()),
        Ok(None) => Finding::skipped("clock", "the service says no time"),
    }
}

/// The service said its time, in whole seconds, at some instant between `sent` and `got`.
fn compare(sent: EpochMillis, service: EpochSeconds, got: EpochMillis) -> Finding {
    let grace = Config::default().grace;
    let (earliest, latest) = (service.millis(), EpochMillis(service.millis().0 + 999));
    let fast = sent.since(latest);
    let slow = earliest.since(got);
    let (off, how) = if fast >= slow {
        (fast, "fast")
    } else {
        (slow, "slow")
    };
    if off.is_zero() {
        return Finding::ok("clock", "agrees with the service's");
    }
    let found = format!("this machine's is {how} by {} ms", off.as_millis());
    let advice = "set it (NTP); leases and windows are made from it";
    if off > grace {
        let found = format!("{found}, more than the grace of {} ms", grace.as_millis());
        Finding::fault("clock", found, advice)
    } else {
        Finding::warning("clock", found, advice)
    }
}

async fn check_claim(
    store: &DynamoDb,
    key: &Key,
    client: &Client,
    source: &(impl Source + Clone),
) -> Finding {
    let tried = try_claims(store, key, source).await;
    let removed = client
        .delete_item()
        .table_name(store.table())
        .key("id", AttributeValue::S(key.stored()))
        .send()
        .await;
    match (tried, removed) {
        (Ok(()), Ok(_)) => Finding::ok(
            "claim",
            format!("one won, a second one lost, the result was replayed; {key} is removed again"),
        ),
        // Whoever may claim need not be let to delete: the functions never do.
        (Ok(()), Err(error)) => Finding::ok(
            "claim",
            format!(
                "one won, a second one lost, the result was replayed; {key} stays for an hour ({})",
                match Trouble::of(&error) {
                    Trouble::Denied => "there is no right to delete it".to_owned(),
                    _ => root(&error),
                }
            ),
        ),
        (Err(Refusal::Claim(ClaimError::Store(error))), _) => not_answered("claim", &error),
        (Err(Refusal::Claim(error)), _) => {
            Finding::fault("claim", error.to_string(), "see the message")
        }
        (Err(Refusal::Wrong(found)), _) => Finding::fault(
            "claim",
            found,
            "claims on this engine mean nothing: use another one",
        ),
    }
}

/// Why the probe did not go as it must.
enum Refusal {
    Claim(ClaimError),
    Wrong(String),
}

impl From<ClaimError> for Refusal {
    fn from(error: ClaimError) -> Self {
        Self::Claim(error)
    }
}

/// Two processes, as it were, that want one key: their claims know nothing of each other.
async fn try_claims(
    store: &DynamoDb,
    key: &Key,
    source: &(impl Source + Clone),
) -> Result<(), Refusal> {
    let (first, second) = (claims(store, source)?, claims(store, source)?);
    let deadline = source.now().after(LEASE);
    let once = |claims: &Claims<DynamoDb>| {
        let once = claims.once(key.clone()).deadline(deadline);
        once.window(WINDOW).claim()
    };
    let claim = match once(&first).await? {
        Claimed::Held(claim) => claim,
        Claimed::Answered(other) => {
            let found = format!("the claim of a fresh key was answered {:?}", other.name());
            return Err(Refusal::Wrong(found));
        }
    };
    match once(&second).await? {
        Claimed::Answered(outcome) if matches!(outcome.answer, Answer::InProgress { .. }) => {}
        Claimed::Answered(other) => {
            let found = format!(
                "a second claim was answered {:?}, not in_flight",
                other.name()
            );
            return Err(Refusal::Wrong(found));
        }
        Claimed::Held(_) => {
            let found = "a second claim won too: the engine does not heed conditions";
            return Err(Refusal::Wrong(found.to_owned()));
        }
    }
    let result = "done".to_owned();
    let completed = claim.complete(result.clone()).await;
    if !matches!(completed.answer, Answer::Performed(_)) {
        let found = format!("the completion ended {:?}", completed.name());
        return Err(Refusal::Wrong(found));
    }
    let stored = serde_json::Value::String(result).to_string();
    match once(&second).await? {
        Claimed::Answered(outcome) if outcome.answer == Answer::Replayed(stored) => Ok(()),
        Claimed::Answered(other) => {
            let found = format!("a duplicate was answered {:?}, not replayed", other.name());
            Err(Refusal::Wrong(found))
        }
        Claimed::Held(_) => {
            let found = "a duplicate of the completed claim won";
            Err(Refusal::Wrong(found.to_owned()))
        }
    }
}

fn claims(store: &DynamoDb, source: &(impl Source + Clone)) -> Result<Claims<DynamoDb>, Refusal> {
    let config = Config {
        // Each answer comes from the store.
        cache_bytes: 0,
        ..Config::default()
    };
    let claims = Claims::new(store.clone(), config);
    let claims = claims.map_err(|error| Refusal::Wrong(error.to_string()))?;
    Ok(claims.with_source(source.clone()))
}

async fn check_race(client: &Client, table: &str) -> Finding {
    match self_test(client, table).await {
        Ok(()) => Finding::ok(
            "race",
            format!("of {SELF_TEST_CLAIMS} claims at once one won"),
        ),
        Err(SelfTestError::Store(error)) => not_answered("race", &error),
        Err(SelfTestError::Winners { winners }) => Finding::fault(
            "race",
            format!(
                "of {SELF_TEST_CLAIMS} claims at once {winners} won: its conditional writes are not atomic"
            ),
            "claims on it mean nothing: use another engine",
        ),
    }
}

/// The store's own words: they name the right that is missing, or what it refused.
fn not_answered(check: &'static str, error: &StoreError) -> Finding {
    let advice = match error {
        StoreError::Denied { operation, .. } => {
            format!("grant dynamodb:{operation} to whoever runs this check, and to the functions")
        }
        StoreError::Throttled { .. } => {
            "raise the table's capacity, or make it on demand".to_owned()
        }
        StoreError::Unavailable { .. } => {
            "see that the service can be reached from here".to_owned()
        }
        _ => "see the service's message".to_owned(),
    };
    Finding::fault(check, format!("{error} ({})", root(error)), advice)
}
