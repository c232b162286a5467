//! One line per event for people, made from the functions' own events.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use firstclaim::clock::{EpochMillis, Source, SystemSource};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::check::chain;
use crate::escape::Escaped;

/// The longest foreign text in a line, in characters.
const LONGEST: usize = 160;

/// A layer that writes the lines to `out`.
#[derive(Debug)]
pub(super) struct Lines<W> {
    out: Mutex<W>,
    colours: bool,
}

impl<W: Write> Lines<W> {
    /// Lines to `out`, with colours if it is a terminal that has them.
    pub(super) fn new(out: W, colours: bool) -> Self {
        Self {
            out: Mutex::new(out),
            colours,
        }
    }
}

impl<S: Subscriber, W: Write + 'static> Layer<S> for Lines<W>
where
    Self: Send + Sync,
{
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let kind = Kind::of(metadata);
        let line = kind.line(metadata.target(), &fields, SystemSource.now(), self.colours);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody reads any more, the work goes on.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// Whether an event becomes a line: what the functions say of each event, their warnings, and
/// anybody's errors. (`firstclaim::outcome` is the claims' own account of the same.)
pub(super) fn shown(metadata: &Metadata<'_>) -> bool {
    match metadata.target() {
        "firstclaim::outcome" => false,
        DOOR | RECORD | TARGET => true,
        target => {
            let ours = ["firstclaim", "webhook", "queue"]
                .iter()
                .any(|name| target.split("::").next() == Some(name));
            *metadata.level() == Level::ERROR || (ours && *metadata.level() == Level::WARN)
        }
    }
}

const DOOR: &str = "firstclaim::door";
const RECORD: &str = "firstclaim::record";
const TARGET: &str = "firstclaim::target";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Door,
    Worker,
    Target,
    Warning,
    Error,
}

impl Kind {
    fn of(metadata: &Metadata<'_>) -> Self {
        match metadata.target() {
            DOOR => Self::Door,
            RECORD => Self::Worker,
            TARGET => Self::Target,
            _ if *metadata.level() == Level::ERROR => Self::Error,
            _ => Self::Warning,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Door => "door",
            Self::Worker => "worker",
            Self::Target => "target",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The whole line, with its end.
    fn line(self, target: &str, fields: &Fields, now: EpochMillis, colours: bool) -> String {
        let mut line = format!("{}  {:<7}  ", time(now), self.name());
        match self {
            Self::Door | Self::Worker => {
                let outcome = fields.shown("outcome").replace('_', " ");
                push_word(&mut line, &outcome, colours.then(|| colour(&outcome)));
                push_about(&mut line, fields);
            }
            Self::Target => {
                let again = fields.text("requests") != Some("1");
                let word = if again { "seen before" } else { "effect" };
                let what = format!("{word} {}", fields.shown("effect"));
                let tone = if again { DIM } else { BOLD };
                push_word(&mut line, &what, colours.then_some(tone));
                push_about(&mut line, fields);
            }
            Self::Warning | Self::Error => {
                let tone = if self == Self::Error { RED } else { YELLOW };
                let mut what = fields.shown("message");
                if what.is_empty() {
                    what = target.to_owned();
                }
                push_word(&mut line, &what, colours.then_some(tone));
                for name in fields.0.keys().filter(|name| **name != "message") {
                    // Writing to a text can't fail.
                    let _ = write!(line, "  {name}: {}", fields.shown(name));
                }
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Key, attempt, time taken and what else there is to know.
fn push_about(line: &mut String, fields: &Fields) {
    let about = ["key", "sender"]
        .iter()
        .find(|name| fields.text(name).is_some());
    let about = about.map_or_else(String::new, |name| fields.shown(name));
    // Writing to a text can't fail.
    let attempt = fields.labelled("attempt ", "attempt", "");
    let took = fields.labelled("", "ms", " ms");
    let _ = write!(line, "  {about:<40}  {attempt:<10}  {took:>8}");
    for name in ["status", "reason", "code"] {
        if fields.text(name).is_some() {
            let _ = write!(line, "  {}", fields.shown(name));
        }
    }
    match fields.text("answer") {
        Some("returned") if fields.text("visibility").is_some() => {
            line.push_str(&fields.labelled("  again in ", "visibility", " s"));
        }
        Some("returned") => line.push_str("  comes back"),
        Some("dead_lettered") => line.push_str("  dead letter"),
        _ => {}
    }
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BOLD: &str = "1";
const DIM: &str = "2";

fn colour(outcome: &str) -> &'static str {
    match outcome {
        "performed" | "accepted" => GREEN,
        "replayed" | "looked up" => DIM,
        "in flight" => YELLOW,
        _ => RED,
    }
}

fn push_word(line: &mut String, word: &str, colour: Option<&str>) {
    // Writing to a text can't fail.
    let _ = match colour {
        Some(colour) => write!(line, "\u{1b}[{colour}m{word:<20}\u{1b}[0m"),
        None => write!(line, "{word:<20}"),
    };
}

/// The time of day, in UTC.
fn time(now: EpochMillis) -> String {
    let ms = now.0.rem_euclid(24 * 60 * 60 * 1000);
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!(
        "{:02}:{:02}:{seconds:02}.{ms:03}",
        minutes / 60,
        minutes % 60
    )
}

/// An event's fields as texts.
#[derive(Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A field between two texts; empty where there is none.
    fn labelled(&self, before: &str, name: &str, after: &str) -> String {
        match self.text(name) {
            Some(_) => format!("{before}{}{after}", self.shown(name)),
            None => String::new(),
        }
    }

    /// A field for a terminal: bounded and escaped; empty where there is none.
    fn shown(&self, name: &str) -> String {
        let text = self.text(name).unwrap_or_default();
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", Escaped(&text[..end])),
            None => Escaped(text).to_string(),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.0.insert(field.name(), chain(value));
    }
}

#[cfg(test)]
mod tests;
