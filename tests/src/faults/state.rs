//! A record as it stands in the table, read without the crate that is tested.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use anyhow::Context;
use dynoxide::{AttributeValue, Item};
use firstclaim::clock::EpochMillis;
use firstclaim::protocol::Seen;
use firstclaim::record::{Owner, Status};
use sha2::{Digest, Sha256};

/// A record, and the item that it was read from.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) status: Status,
    /// Epoch seconds.
    pub(crate) expiration: Option<i64>,
    /// Epoch milliseconds.
    pub(crate) lease: Option<i64>,
    pub(crate) owner: Option<String>,
    pub(crate) attempt: i64,
    pub(crate) hold: bool,
    /// The attempt that has not entered its operation yet.
    pub(crate) unentered: Option<i64>,
    pub(crate) generation: i64,
    pub(crate) fingerprint: Option<String>,
    pub(crate) result: Option<Kept>,
    pub(crate) checkpoints: BTreeMap<String, String>,
    /// The attempt that last told of its failure, or was settled.
    pub(crate) told: i64,
    item: Item,
}

/// A result as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Text(String),
    /// In a companion or not at all; its SHA-256 is here.
    Digest(String),
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.item == other.item
    }
}

impl State {
    pub(crate) fn read(item: Item) -> anyhow::Result<Self> {
        let text = |name: &str| text(&item, name);
        let number = |name: &str| number(&item, name);
        let status = text("status").and_then(|text| Status::parse(&text));
        let told = |name: &str| match item.get(name) {
            Some(AttributeValue::M(fields)) => self::number(fields, "attempt").unwrap_or(0),
            _ => 0,
        };
        let digest = match item.get("data_omitted") {
            Some(AttributeValue::M(fields)) => self::text(fields, "sha256"),
            _ => None,
        };
        Ok(Self {
            status: status.context("a record without a status")?,
            expiration: number("expiration"),
            lease: number("in_progress_expiration"),
            owner: text("owner"),
            attempt: number("attempt").unwrap_or(1),
            hold: text("policy").is_some(),
            unentered: number("unentered"),
            generation: number("generation").unwrap_or(0),
            fingerprint: text("validation"),
            result: text("data").map(Kept::Text).or(digest.map(Kept::Digest)),
            checkpoints: match item.get("checkpoints") {
                Some(AttributeValue::M(fields)) => fields
                    .keys()
                    .filter_map(|name| Some((name.clone(), self::text(fields, name)?)))
                    .collect(),
                _ => BTreeMap::new(),
            },
            told: told("error").max(told("settled")),
            item,
        })
    }

    pub(crate) fn item(&self) -> Item {
        self.item.clone()
    }

    pub(crate) fn in_progress(&self) -> bool {
        self.status == Status::InProgress
    }

    /// Whether its window is open at `now`.
    pub(crate) fn in_window(&self, now: i64) -> bool {
        self.expiration
            .is_none_or(|end| end >= now.div_euclid(1000))
    }

    /// Whether somebody is presumed to work on it at `now`.
    pub(crate) fn running(&self, now: i64) -> bool {
        self.in_progress() && self.lease.is_some_and(|lease| lease > now)
    }

    /// Whether its owner has promised to mark its entry, and has not done so.
    pub(crate) fn untouched(&self) -> bool {
        self.in_progress() && self.unentered == Some(self.attempt)
    }

    pub(crate) fn owned_by(&self, owner: &str) -> bool {
        self.owner.as_deref() == Some(owner)
    }

    /// Whether this is its result, as JSON text.
    pub(crate) fn keeps(&self, json: &str) -> bool {
        match &self.result {
            Some(Kept::Text(text)) => text == json,
            Some(Kept::Digest(digest)) => *digest == hex::encode(Sha256::digest(json.as_bytes())),
            // Another tool stores nothing for an empty result.
            None => json == "null",
        }
    }

    /// How many attempts in a row ended without a word.
    pub(crate) fn silent_attempts(&self) -> i64 {
        self.attempt - self.told
    }

    pub(crate) fn seen(&self) -> Seen {
        let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        Seen {
            owner: self.owner.clone().map(Owner::new),
            attempt: count(self.attempt),
            status: self.status,
            lease: self.lease.map(EpochMillis),
            generation: count(self.generation),
            untouched: self.untouched(),
        }
    }
}

/// One line, with times relative to the start of the schedule.
pub(crate) struct Shown<'a>(pub(crate) Option<&'a State>, pub(crate) i64);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(state) = self.0 else {
            return f.write_str("no record");
        };
        let owner = state.owner.as_deref().unwrap_or("nobody");
        write!(f, "{} of {owner}", state.status.as_str())?;
        write!(f, ", attempt {}", state.attempt)?;
        match state.lease {
            None => {}
            Some(0) => f.write_str(", released")?,
            Some(1) => f.write_str(", suspended")?,
            Some(lease) => write!(f, ", lease +{}", lease - self.1)?,
        }
        if let Some(end) = state.expiration {
            write!(f, ", window +{} s", end - self.1.div_euclid(1000))?;
        }
        if state.hold {
            f.write_str(", hold")?;
        }
        if state.untouched() {
            f.write_str(", not entered")?;
        }
        if !state.checkpoints.is_empty() {
            write!(f, ", checkpoints {:?}", state.checkpoints)?;
        }
        if let Some(result) = &state.result {
            match result {
                Kept::Text(text) => write!(f, ", data {text}")?,
                Kept::Digest(digest) => write!(f, ", data of sha256 {:.8}…", digest)?,
            }
        }
        Ok(())
    }
}

fn text(item: &HashMap<String, AttributeValue>, name: &str) -> Option<String> {
    match item.get(name) {
        Some(AttributeValue::S(text)) => Some(text.clone()),
        _ => None,
    }
}

fn number(item: &HashMap<String, AttributeValue>, name: &str) -> Option<i64> {
    match item.get(name) {
        Some(AttributeValue::N(text)) => text.parse().ok(),
        _ => None,
    }
}
