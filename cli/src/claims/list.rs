//! `firstclaim list`: many records. A scan, which reads the whole table.

use std::io::{IsTerminal, Write};

use clap::{Args, ValueEnum};
use firstclaim::clock::EpochMillis;
use firstclaim::store::dynamodb::DynamoDb;
use firstclaim::{Config, Record, Status, StoreError};

use super::get::colours;
use super::table::Table;
use super::view::{State, is_unknown, untouched, when};
use super::{Error, Reader, print, print_json, store, view};
use crate::escape::Escaped;

/// The longest activity or error in a table's cell, in characters.
const CELL: usize = 48;

/// The options of `firstclaim list`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
This is a scan: it reads, and bills, the whole table, whatever is shown of it. With --json, one \
record a line.

Exit codes: 0 listed, 64 usage, 69 the store did not answer, or is not there.")]
pub struct Options {
    /// Only records with this status
    #[arg(long, value_name = "STATUS", value_enum, ignore_case = true)]
    pub status: Option<StatusName>,
    /// Only those whose attempt ended without a word, so that its outcome is unknown
    #[arg(long)]
    pub lapsed: bool,
    /// Only keys of this scope: what stands before the first '#'
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// Also those whose window is over
    #[arg(long)]
    pub all: bool,
    /// Where claims are, and how much is said
    #[command(flatten)]
    pub store: store::Options,
}

/// A status as the record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusName {
    /// Claimed, and neither completed nor failed
    Inprogress,
    /// Done
    Completed,
    /// Failed for good
    Failed,
}

impl Options {
    fn wants(&self, record: &Record, now: EpochMillis) -> bool {
        let state = State::of(record, now);
        let status = match self.status {
            None => true,
            Some(StatusName::Inprogress) => record.status == Status::InProgress,
            Some(StatusName::Completed) => record.status == Status::Completed,
            Some(StatusName::Failed) => record.status == Status::Failed,
        };
        status
            && (!self.lapsed || is_unknown(state))
            && (self.all || state != State::Over)
            && self
                .scope
                .as_deref()
                .is_none_or(|scope| record.id.split('#').next() == Some(scope))
    }
}

pub(super) async fn list(
    options: Options,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u8, Error> {
    let colours = colours(&environment);
    let said = options.store.said();
    let (claims, _) = options.store.open(Config::default(), environment).await?;
    let mut progress = Progress::new(!options.store.quiet);
    let scanned = scan(claims.store(), |count| progress.show(count)).await;
    progress.end();
    let (mut records, unreadable, count) = scanned?;
    let now = claims.now();
    records.retain(|record| options.wants(record, now));
    records.sort_by(|one, other| one.id.cmp(&other.id));
    for error in &unreadable {
        said.important(&error.to_string());
    }
    if options.store.json {
        for record in &records {
            if print_json(&view::json(record, None, now))? == Reader::Gone {
                return Ok(0);
            }
        }
    } else if !records.is_empty() {
        print(&table(&records, now, colours))?;
    }
    said.note(&format!(
        "{} of {count} items shown, after a scan of the whole table",
        records.len()
    ));
    Ok(0)
}

/// Every record, every item that can't be read, and how many items there were.
pub(super) async fn scan(
    store: &DynamoDb,
    mut read: impl FnMut(usize),
) -> Result<(Vec<Record>, Vec<StoreError>, usize), StoreError> {
    let mut records = Vec::new();
    let mut unreadable = Vec::new();
    let mut count = 0;
    let mut next = None;
    loop {
        let page = store.scan(next).await?;
        count += page.scanned;
        records.extend(page.records);
        unreadable.extend(page.unreadable);
        read(count);
        next = page.next;
        if next.is_none() {
            return Ok((records, unreadable, count));
        }
    }
}

fn table(records: &[Record], now: EpochMillis, colours: bool) -> String {
    let states: Vec<State> = records
        .iter()
        .map(|record| State::of(record, now))
        .collect();
    let mut table = Table::new(&["KEY", "STATE", "ATTEMPT", "LEASE", "ABOUT"]);
    for (record, state) in records.iter().zip(&states) {
        table.row(vec![
            Escaped(&record.id).to_string(),
            state.word().to_owned(),
            record.attempt.to_string(),
            when(record, *state, now),
            about(record, *state),
        ]);
    }
    let dress = |column: usize, cell: &str| match column {
        1 => {
            let state = states.iter().find(|state| state.word() == cell);
            state.map_or_else(|| cell.to_owned(), |state| state.dressed(colours))
        }
        _ => cell.to_owned(),
    };
    table.text(dress)
}

/// What is best to know of a record in one cell.
fn about(record: &Record, state: State) -> String {
    if let (State::Lapsed, Some(untouched)) = (state, untouched(record, state)) {
        return untouched.to_owned();
    }
    let text = match (&record.activity, &record.error, &record.settled) {
        (Some(activity), _, _) => activity.text.clone(),
        (None, Some(error), _) => format!("{}: {}", error.code, error.message),
        (None, None, Some(settled)) => format!("settled by {}: {}", settled.who, settled.why),
        (None, None, None) => String::new(),
    };
    let mut cell: String = text.chars().take(CELL).collect();
    if cell.len() < text.len() {
        cell.push('…');
    }
    Escaped(&cell).to_string()
}

/// One line on a terminal that counts what was read.
struct Progress {
    shown: bool,
    written: bool,
}

impl Progress {
    fn new(wanted: bool) -> Self {
        Self {
            shown: wanted && std::io::stderr().is_terminal(),
            written: false,
        }
    }

    fn show(&mut self, count: usize) {
        if self.shown {
            self.written = true;
            let mut stderr = std::io::stderr();
            // Progress that can't be shown is none that matters.
            let _ = write!(stderr, "\rfirstclaim: scanning, {count} items read")
                .and_then(|()| stderr.flush());
        }
    }

    fn end(&self) {
        if self.written {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
