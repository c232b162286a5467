//! A record as programs and people see it. The owner is in neither.

use std::collections::BTreeMap;
use std::fmt::Write;

use firstclaim::clock::EpochMillis;
use firstclaim::record::{Data, Origin, RELEASED, SUSPENDED};
use firstclaim::{Policy, Record, Status};
use serde::Serialize;
use serde_json::value::RawValue;

use super::duration::about;
use crate::escape::{Escaped, compact};

/// What a record's status and lease mean at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Its owner is presumed alive.
    Running,
    /// Its lease is over and nobody took over: what became of the attempt is unknown.
    Lapsed,
    /// Given up with an unknown outcome, under `hold`.
    Suspended,
    /// Given back: the next one may have it.
    Released,
    /// In progress without a lease: another tool wrote it.
    Locked,
    /// Done.
    Completed,
    /// Failed for good.
    Failed,
    /// Its window is over: it answers nobody any more.
    Over,
}

impl State {
    pub(super) fn of(record: &Record, now: EpochMillis) -> Self {
        if !record.in_window(now) && !record.running(now) {
            return Self::Over;
        }
        match (record.status, record.lease) {
            (Status::Completed, _) => Self::Completed,
            (Status::Failed, _) => Self::Failed,
            (Status::InProgress, Some(RELEASED)) => Self::Released,
            (Status::InProgress, Some(SUSPENDED)) => Self::Suspended,
            (Status::InProgress, Some(lease)) if lease > now => Self::Running,
            (Status::InProgress, Some(_)) => Self::Lapsed,
            (Status::InProgress, None) => Self::Locked,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Lapsed => "lapsed",
            Self::Suspended => "suspended",
            Self::Released => "released",
            Self::Locked => "locked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Over => "over",
        }
    }

    /// The number of its colour on a terminal.
    fn colour(self) -> u8 {
        match self {
            Self::Running => 36,
            Self::Lapsed | Self::Suspended | Self::Locked => 33,
            Self::Completed => 32,
            Self::Failed => 31,
            Self::Released | Self::Over => 90,
        }
    }

    /// The word in its colour, if that is wanted.
    pub(super) fn dressed(self, colours: bool) -> String {
        match colours {
            true => format!("\u{1b}[{}m{}\u{1b}[0m", self.colour(), self.word()),
            false => self.word().to_owned(),
        }
    }
}

/// Whether a state is one whose outcome nobody knows.
pub(super) fn is_unknown(state: State) -> bool {
    matches!(state, State::Lapsed | State::Suspended)
}

/// A record for programs, with the names that its attributes have in the table.
#[derive(Debug, Serialize)]
pub(super) struct Json<'a> {
    id: &'a str,
    state: State,
    status: &'static str,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_progress_expiration: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unentered: Option<u32>,
    #[serde(skip_serializing_if = "is_zero")]
    generation: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_omitted: Option<OmittedJson<'a>>,
    checkpoints: BTreeMap<&'a str, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson<'a>>,
    origin: &'a Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<SettledJson<'a>>,
}

/// JSON text as JSON in one line; what is none, as a text.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Text {
    Json(Box<RawValue>),
    Other(String),
}

impl Text {
    pub(super) fn of(text: &str) -> Self {
        match compact(text) {
            Some(json) => Self::Json(json),
            None => Self::Other(text.to_owned()),
        }
    }
}

#[derive(Debug, Serialize)]
struct OmittedJson<'a> {
    bytes: u64,
    sha256: &'a str,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct ErrorJson<'a> {
    code: &'a str,
    message: &'a str,
    attempt: u32,
}

#[derive(Debug, Serialize)]
struct SettledJson<'a> {
    who: &'a str,
    at: i64,
    why: &'a str,
    attempt: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The record as one line of JSON; `result` is its result where that is known.
pub(super) fn json(record: &Record, result: Option<&str>, now: EpochMillis) -> String {
    let inline = match &record.data {
        Some(Data::Inline(text)) => Some(text.as_str()),
        _ => None,
    };
    let omitted = match &record.data {
        // The name of a companion holds the owner's token: only what it says is shown.
        Some(Data::Companion { note, .. } | Data::Omitted(note)) => Some(OmittedJson {
            bytes: note.bytes,
            sha256: &note.sha256,
            reason: &note.reason,
        }),
        _ => None,
    };
    let seen = Json {
        id: &record.id,
        state: State::of(record, now),
        status: record.status.as_str(),
        attempt: record.attempt,
        expiration: record.expiration.map(|end| end.0),
        in_progress_expiration: record.lease.map(|lease| lease.0),
        policy: (record.policy == Policy::Hold).then_some("hold"),
        unentered: record.unentered,
        generation: record.generation,
        validation: record
            .fingerprint
            .map(|fingerprint| fingerprint.to_string()),
        data: result.or(inline).map(Text::of),
        data_omitted: omitted.filter(|_| result.is_none()),
        checkpoints: record
            .checkpoints
            .iter()
            .map(|(name, text)| (name.as_str(), Text::of(text)))
            .collect(),
        activity: record
            .activity
            .as_ref()
            .map(|activity| activity.text.as_str()),
        activity_at: record.activity.as_ref().map(|activity| activity.at.0),
        error: record.error.as_ref().map(|error| ErrorJson {
            code: &error.code,
            message: &error.message,
            attempt: error.attempt,
        }),
        origin: &record.origin,
        settled: record.settled.as_ref().map(|settled| SettledJson {
            who: &settled.who,
            at: settled.at.0,
            why: &settled.why,
            attempt: settled.attempt,
        }),
    };
    // Texts, numbers, and maps with text keys: writing them can't fail.
    serde_json::to_string(&seen).unwrap_or_default()
}

/// The record in lines for people.
pub(super) fn text(
    record: &Record,
    result: Option<&str>,
    now: EpochMillis,
    colours: bool,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: &str| {
        // Writing to a text can't fail.
        let _ = writeln!(text, "{name:<12}{what}");
    };
    let state = State::of(record, now);
    let ends = when(record, state, now);
    line("key", &Escaped(&record.id).to_string());
    line("state", format!("{} {ends}", state.dressed(colours)).trim());
    line("attempt", &record.attempt.to_string());
    if record.policy == Policy::Hold {
        line("policy", "hold: nobody takes over, a person settles it");
    }
    if let Some(untouched) = untouched(record, state) {
        line("entered", &format!("no: {untouched}"));
    }
    if record.generation > 0 {
        line("generation", &record.generation.to_string());
    }
    if let Some(fingerprint) = record.fingerprint {
        line("payload", &fingerprint.to_string());
    }
    if let Some(activity) = &record.activity {
        let ago = about(now.since(activity.at));
        line(
            "activity",
            &format!("{} ({ago} ago)", Escaped(&activity.text)),
        );
    }
    for (name, value) in &record.checkpoints {
        let (name, value) = (Escaped(name), Escaped(value));
        line("checkpoint", &format!("{name} = {value}"));
    }
    if let Some(error) = &record.error {
        let (code, message) = (Escaped(&error.code), Escaped(&error.message));
        line(
            "error",
            &format!("{code}: {message} (attempt {})", error.attempt),
        );
    }
    let origin = &record.origin;
    let names = [
        &origin.function,
        &origin.request,
        &origin.event,
        &origin.trace,
    ];
    let names: Vec<String> = names
        .into_iter()
        .flatten()
        .map(|name| Escaped(name).to_string())
        .collect();
    if !names.is_empty() {
        line("claimed by", &names.join(", "));
    }
    if let Some(settled) = &record.settled {
        let (who, why) = (Escaped(&settled.who), Escaped(&settled.why));
        line("settled by", &format!("{who} at {}: {why}", at(settled.at)));
    }
    match (&record.data, result) {
        (_, Some(result)) => line("result", &Escaped(result).to_string()),
        (Some(Data::Inline(result)), None) => line("result", &Escaped(result).to_string()),
        (Some(Data::Companion { note, .. } | Data::Omitted(note)), None) => {
            let (bytes, reason) = (note.bytes, Escaped(&note.reason));
            line("result", &format!("not here, {bytes} bytes: {reason}"));
        }
        (None, None) => {}
    }
    if let Some(end) = record.expiration {
        line("window", &format!("until {}", at(end.millis())));
    }
    text
}

/// What it means that an attempt has not entered its operation; `None` where it may have.
pub(super) fn untouched(record: &Record, state: State) -> Option<&'static str> {
    if !record.untouched() {
        return None;
    }
    match state {
        State::Running => Some("it says so before its call goes out, and has not yet"),
        State::Lapsed => Some("lost before its call went out; the next one may run it"),
        _ => None,
    }
}

/// When the lease ends or ended, in words.
pub(super) fn when(record: &Record, state: State, now: EpochMillis) -> String {
    match (state, record.lease) {
        (State::Running, Some(lease)) => {
            format!("until {} (in {})", at(lease), about(lease.since(now)))
        }
        (State::Lapsed, Some(lease)) => {
            format!("since {} ({} ago)", at(lease), about(now.since(lease)))
        }
        _ => String::new(),
    }
}

/// An instant, in UTC and to the second.
pub(super) fn at(instant: EpochMillis) -> String {
    jiff::Timestamp::from_second(instant.seconds().0)
        .map_or_else(|_| instant.0.to_string(), |at| at.to_string())
}
