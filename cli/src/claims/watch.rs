//! `firstclaim watch`: changes of one record or of all, as they come.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use firstclaim::clock::{EpochMillis, Source};
use firstclaim::{Config, Record};

use super::get::colours;
use super::said::Said;
use super::view::{State, at};
use super::{Error, FileOrTable, Reader, SOURCE, key, list, print, store, view};
use crate::escape::{Escaped, EscapedJson};

/// The pause between two looks at one record.
const ONE: Duration = Duration::from_millis(500);

/// The pause between two scans of the table.
const ALL: Duration = Duration::from_secs(3);

/// The options of `firstclaim watch`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
One line per change (with --json, the whole record). One key is read twice a second; without a key \
the whole table is scanned every three seconds, which DynamoDB bills. Ctrl-C ends it, with exit code \
0, and so does the end of whoever reads; 69: the store did not answer at the start. Later it is asked \
again, and a file that is not there yet is waited for.")]
pub struct Options {
    /// The key; without one, all
    pub key: Option<String>,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

pub(super) async fn watch(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let key = options.key.as_deref().map(key).transpose()?;
    let colours = colours(&environment);
    let said = options.store.said();
    let claims = tokio::select! {
        opened = opened(&options.store, said, &environment) => opened?,
        // Where Ctrl-C can't be heard, it ends the process all the same.
        _ = tokio::signal::ctrl_c() => return Ok(0),
    };
    let pause = if key.is_some() { ONE } else { ALL };
    let mut known = BTreeMap::new();
    let mut answered = None;
    let looking = async {
        loop {
            let found = match &key {
                Some(key) => claims.read(key).await.map(|record| {
                    let record = record.into_iter();
                    record.collect::<Vec<_>>()
                }),
                None => {
                    let scanned = list::scan(claims.store(), |_| {}).await;
                    scanned.map(|(records, _, _)| records)
                }
            };
            match found {
                Ok(records) => {
                    if answered == Some(false) {
                        said.important("the store answers again");
                    }
                    answered = Some(true);
                    for line in
                        changes(
                            &mut known,
                            records,
                            SOURCE.now(),
                            |record, now| match options.store.json {
                                true => {
                                    let json = view::json(record, None, now);
                                    format!("{}\n", EscapedJson(&json))
                                }
                                false => line(record, now, colours),
                            },
                        )
                    {
                        match print(&line) {
                            Ok(Reader::There) => {}
                            Ok(Reader::Gone) => return Ok(0),
                            Err(error) => return Err(error.into()),
                        }
                    }
                }
                Err(error) if answered.is_none() => return Err(Error::from(error)),
                Err(error) => {
                    if answered == Some(true) {
                        said.important(&format!("{error}; asking again"));
                    }
                    answered = Some(false);
                }
            }
            SOURCE.sleep(pause).await;
        }
    };
    tokio::select! {
        ended = looking => ended,
        // Where Ctrl-C can't be heard, it ends the process all the same.
        _ = tokio::signal::ctrl_c() => Ok(0),
    }
}

/// The store, once there is one: whoever watches may be there before the first claim.
async fn opened(
    store: &store::Options,
    said: Said,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<FileOrTable, Error> {
    let mut told = false;
    loop {
        match store.open(Config::default(), environment).await {
            Ok((claims, _)) => return Ok(claims),
            Err(error @ Error::NoStore { .. }) => {
                if !told {
                    said.important(&format!("{error}; waiting for it"));
                }
                told = true;
            }
            Err(error) => return Err(error),
        }
        SOURCE.sleep(ONE).await;
    }
}

/// A record as it was last seen, with what it meant then.
type Known = BTreeMap<String, (Record, State)>;

/// What is to be said of the records that are new or not what they were.
fn changes(
    known: &mut Known,
    records: Vec<Record>,
    now: EpochMillis,
    say: impl Fn(&Record, EpochMillis) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for record in records {
        let state = State::of(&record, now);
        let same = known.get(&record.id).is_some_and(|(seen, meant)| {
            // A renewal is no news.
            let renewed = Record {
                lease: seen.lease,
                expiration: seen.expiration,
                ..record.clone()
            };
            *meant == state && renewed == *seen
        });
        if !same {
            lines.push(say(&record, now));
        }
        known.insert(record.id.clone(), (record, state));
    }
    lines
}

fn line(record: &Record, now: EpochMillis, colours: bool) -> String {
    let state = State::of(record, now);
    let mut line = format!(
        "{}  {}  {}  attempt {}",
        at(now),
        state.dressed(colours),
        Escaped(&record.id),
        record.attempt
    );
    let more = match (&record.activity, &record.error) {
        (Some(activity), _) => Some(activity.text.clone()),
        (None, Some(error)) => Some(format!("{}: {}", error.code, error.message)),
        (None, None) => None,
    };
    if let Some(more) = more {
        line.push_str("  ");
        line.push_str(&Escaped(&more).to_string());
    }
    if !record.checkpoints.is_empty() {
        let names: Vec<&str> = record.checkpoints.keys().map(String::as_str).collect();
        line.push_str("  checkpoints: ");
        line.push_str(&Escaped(&names.join(", ")).to_string());
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use firstclaim::record::Activity;
    use firstclaim::store::memory::Memory;
    use firstclaim::{Claims, Key};

    use super::*;

    #[tokio::test]
    async fn a_change_is_said_once_and_a_renewal_is_none() {
        let memory = Memory::new();
        let claims = Claims::new(memory.clone(), Config::default()).unwrap();
        let once = claims.once(Key::new("cli", "k").unwrap());
        let claimed = once.lease(Duration::from_secs(60)).claim().await.unwrap();
        let mut known = Known::new();
        let mut look = |change: &dyn Fn(&mut Record)| {
            let mut record = memory.records().remove(0);
            change(&mut record);
            let now = SOURCE.now();
            changes(&mut known, vec![record], now, |record, now| {
                line(record, now, false)
            })
        };
        assert_eq!(look(&|_| {}).len(), 1);
        assert_eq!(look(&|_| {}).len(), 0);
        let renewed = |record: &mut Record| {
            record.lease = record
                .lease
                .map(|lease| lease.after(Duration::from_secs(9)));
        };
        assert_eq!(look(&renewed).len(), 0);
        let lines = look(&|record| {
            record.activity = Some(Activity {
                text: "pla\u{1b}n".to_owned(),
                at: SOURCE.now(),
            });
        });
        assert!(lines[0].contains(r"pla\u{1b}n"), "{lines:?}");
        drop(claimed);
    }
}
