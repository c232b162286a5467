//! The record as an item, and back.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::Item;
use super::attribute::*;
use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::record::{
    Activity, AttemptError, Data, Omitted, Origin, Owner, Policy, Record, Settled, Status,
};
use crate::store::StoreError;

/// The text of the policy attribute; `rerun` is its absence.
pub(super) const HOLD: &str = "hold";

pub(super) fn data_values(data: Option<&Data>) -> [(&'static str, Option<AttributeValue>); 3] {
    let text = |text: &String| AttributeValue::S(text.clone());
    let (inline, companion, omitted) = match data {
        None => (None, None, None),
        Some(Data::Inline(json)) => (Some(text(json)), None, None),
        Some(Data::Companion { id, note }) => (None, Some(text(id)), Some(omitted_value(note))),
        Some(Data::Omitted(omitted)) => (None, None, Some(omitted_value(omitted))),
    };
    [
        (DATA, inline),
        (DATA_REF, companion),
        (DATA_OMITTED, omitted),
    ]
}

pub(super) fn to_item(record: &Record) -> Item {
    let mut item = Item::new();
    let mut put = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    let text = |text: &str| Some(AttributeValue::S(text.to_owned()));
    let number = |number: i64| Some(AttributeValue::N(number.to_string()));
    put(ID, text(&record.id));
    put(STATUS, text(record.status.as_str()));
    put(EXPIRATION, record.expiration.and_then(|end| number(end.0)));
    put(LEASE, record.lease.and_then(|end| number(end.0)));
    put(
        OWNER,
        record.owner.as_ref().and_then(|owner| text(owner.expose())),
    );
    put(ATTEMPT, number(record.attempt.into()));
    if record.policy == Policy::Hold {
        put(POLICY, text(HOLD));
    }
    put(
        UNENTERED,
        record.unentered.and_then(|attempt| number(attempt.into())),
    );
    if record.generation > 0 {
        put(GENERATION, number(record.generation.into()));
    }
    put(
        FINGERPRINT,
        record.fingerprint.and_then(|print| text(&print.to_hex())),
    );
    for (name, value) in data_values(record.data.as_ref()) {
        put(name, value);
    }
    put(
        CHECKPOINTS,
        Some(map(record
            .checkpoints
            .iter()
            .map(|(k, v)| (k.as_str(), v.clone())))),
    );
    if let Some(activity) = &record.activity {
        put(ACTIVITY, text(&activity.text));
        put(ACTIVITY_AT, number(activity.at.0));
    }
    put(ERROR, record.error.as_ref().map(error_value));
    put(ORIGIN, Some(origin_value(&record.origin)));
    put(SETTLED, record.settled.as_ref().map(settled_value));
    item
}

fn map<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> AttributeValue {
    AttributeValue::M(
        entries
            .map(|(name, text)| (name.to_owned(), AttributeValue::S(text)))
            .collect(),
    )
}

fn with_number(value: AttributeValue, name: &str, number: i64) -> AttributeValue {
    match value {
        AttributeValue::M(mut entries) => {
            entries.insert(name.to_owned(), AttributeValue::N(number.to_string()));
            AttributeValue::M(entries)
        }
        other => other,
    }
}

pub(super) fn error_value(error: &AttemptError) -> AttributeValue {
    let texts = [
        ("code", error.code.clone()),
        ("message", error.message.clone()),
    ];
    with_number(map(texts.into_iter()), "attempt", error.attempt.into())
}

pub(super) fn settled_value(settled: &Settled) -> AttributeValue {
    let texts = [("who", settled.who.clone()), ("why", settled.why.clone())];
    let value = with_number(map(texts.into_iter()), "at", settled.at.0);
    with_number(value, "attempt", settled.attempt.into())
}

fn omitted_value(omitted: &Omitted) -> AttributeValue {
    let texts = [
        ("sha256", omitted.sha256.clone()),
        ("reason", omitted.reason.clone()),
    ];
    let bytes = i64::try_from(omitted.bytes).unwrap_or(i64::MAX);
    with_number(map(texts.into_iter()), "bytes", bytes)
}

fn origin_value(origin: &Origin) -> AttributeValue {
    let texts = [
        ("function", &origin.function),
        ("request", &origin.request),
        ("trace", &origin.trace),
        ("event", &origin.event),
    ];
    map(texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, text.clone()?))))
}

/// Reads an item leniently: what another tool left out is `None`, a fractional number is floored,
/// but a status or lease that can't be understood is an error, because deciding without it could
/// run the work twice.
pub(super) fn from_item(id: &str, item: &Item) -> Result<Record, StoreError> {
    let reader = Reader { id, item };
    let status = match reader.text(STATUS) {
        Some(text) => Status::parse(text)
            .ok_or_else(|| reader.malformed(STATUS, format!("the unknown status {text:?}")))?,
        None => return Err(reader.malformed(STATUS, "missing or no text".to_owned())),
    };
    let owner = reader.text(OWNER).map(Owner::new);
    let counter = |name| {
        reader
            .number(name)
            .map(|found| found.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
    };
    let activity = match (reader.text(ACTIVITY), reader.number(ACTIVITY_AT)?) {
        (Some(text), at) => Some(Activity {
            text: text.to_owned(),
            at: EpochMillis(at.unwrap_or(0)),
        }),
        (None, _) => None,
    };
    Ok(Record {
        id: reader.text(ID).unwrap_or(id).to_owned(),
        status,
        expiration: reader.number(EXPIRATION)?.map(EpochSeconds),
        lease: reader.number(LEASE)?.map(EpochMillis),
        attempt: counter(ATTEMPT)?.unwrap_or(1),
        policy: match reader.text(POLICY) {
            Some(HOLD) => Policy::Hold,
            _ => Policy::Rerun,
        },
        unentered: counter(UNENTERED)?,
        generation: counter(GENERATION)?.unwrap_or(0),
        // Another tool's hash is made in another way: it binds nothing here.
        fingerprint: owner
            .as_ref()
            .and_then(|_| reader.text(FINGERPRINT))
            .and_then(Fingerprint::from_hex),
        owner,
        data: reader.data(),
        checkpoints: reader.checkpoints(),
        activity,
        error: reader.map(ERROR).map(|entries| AttemptError {
            code: text_in(entries, "code"),
            message: text_in(entries, "message"),
            attempt: count_in(entries, "attempt"),
        }),
        origin: reader.map(ORIGIN).map_or_else(Origin::default, |entries| {
            let text = |name: &str| entries.get(name)?.as_s().ok().cloned();
            Origin {
                function: text("function"),
                request: text("request"),
                trace: text("trace"),
                event: text("event"),
            }
        }),
        settled: reader.map(SETTLED).map(|entries| Settled {
            who: text_in(entries, "who"),
            at: EpochMillis(number_in(entries, "at")),
            why: text_in(entries, "why"),
            attempt: count_in(entries, "attempt"),
        }),
    })
}

/// An item that is being read.
struct Reader<'a> {
    id: &'a str,
    item: &'a Item,
}

impl<'a> Reader<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.item.get(name)?.as_s().ok().map(String::as_str)
    }

    fn map(&self, name: &str) -> Option<&'a Item> {
        self.item.get(name)?.as_m().ok()
    }

    /// A number; one with a fraction (another tool writes them) is floored.
    fn number(&self, name: &'static str) -> Result<Option<i64>, StoreError> {
        match self.item.get(name) {
            None | Some(AttributeValue::Null(_)) => Ok(None),
            Some(AttributeValue::N(text)) => whole(text)
                .map(Some)
                .ok_or_else(|| self.malformed(name, format!("the number {text:?}"))),
            Some(_) => Err(self.malformed(name, "not a number".to_owned())),
        }
    }

    fn data(&self) -> Option<Data> {
        if let Some(text) = self.text(DATA) {
            return Some(Data::Inline(text.to_owned()));
        }
        let note = self.map(DATA_OMITTED).map(|entries| Omitted {
            bytes: u64::try_from(number_in(entries, "bytes")).unwrap_or(0),
            sha256: text_in(entries, "sha256"),
            reason: text_in(entries, "reason"),
        });
        match (self.text(DATA_REF), note) {
            (Some(id), Some(note)) => Some(Data::Companion {
                id: id.to_owned(),
                note,
            }),
            (_, note) => note.map(Data::Omitted),
        }
    }

    fn checkpoints(&self) -> BTreeMap<String, String> {
        let entries = self.map(CHECKPOINTS).into_iter().flatten();
        entries
            .filter_map(|(name, value)| Some((name.clone(), value.as_s().ok()?.clone())))
            .collect()
    }

    fn malformed(&self, attribute: &'static str, found: String) -> StoreError {
        StoreError::Malformed {
            id: self.id.to_owned(),
            attribute,
            found,
        }
    }
}

fn whole(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float to integer cast saturates, and a time beyond that range is as good as its end"
    )]
    number.is_finite().then(|| number.floor() as i64)
}

fn text_in(entries: &Item, name: &str) -> String {
    let text = entries.get(name).and_then(|value| value.as_s().ok());
    text.cloned().unwrap_or_default()
}

fn number_in(entries: &Item, name: &str) -> i64 {
    let text = entries.get(name).and_then(|value| value.as_n().ok());
    text.and_then(|text| whole(text)).unwrap_or(0)
}

fn count_in(entries: &Item, name: &str) -> u32 {
    u32::try_from(number_in(entries, name)).unwrap_or(0)
}
