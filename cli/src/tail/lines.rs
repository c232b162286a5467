//! What a person or a program sees of each event.

use std::time::Duration;

use serde::Serialize;

use super::event::Event;
use crate::check::chain;
use crate::claims::said::Said;
use crate::stdout::print_json;

/// Lines on stderr for people, on stdout for programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    said: Said,
    json: bool,
}

/// What became of an event, for programs.
#[derive(Debug, Serialize)]
struct Line<'a> {
    outcome: &'a str,
    id: &'a str,
    kind: Option<&'a str>,
    scope: Option<&'a str>,
    key: Option<&'a str>,
    why: Option<&'a str>,
    tries: u32,
    ms: u64,
}

impl Lines {
    pub(super) fn new(quiet: bool, json: bool) -> Self {
        Self {
            said: Said::new(quiet),
            json,
        }
    }

    pub(super) fn note(self, text: &str) {
        self.said.note(text);
    }

    pub(super) fn important(self, text: &str) {
        self.said.important(text);
    }

    pub(super) fn handed_on(self, id: &str, event: &Event, tries: u32, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let again = match tries {
            1 => String::new(),
            _ => format!(", {tries} tries"),
        };
        let Event { key, kind, .. } = event;
        let named: Vec<&str> = [id, kind, key]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let named = named.join(" ");
        self.said
            .note(&format!("handed on {named} ({ms} ms{again})"));
        self.print(&Line {
            outcome: "handed-on",
            id,
            kind: Some(kind)
                .filter(|kind| !kind.is_empty())
                .map(String::as_str),
            scope: Some(&event.scope),
            key: Some(key),
            why: None,
            tries,
            ms,
        });
    }

    /// What was not handed on; `outcome` is `refused` or `gap`.
    pub(super) fn not_handed_on(self, outcome: &str, id: &str, why: &str, event: Option<&Event>) {
        self.print(&Line {
            outcome,
            id,
            kind: event
                .map(|event| event.kind.as_str())
                .filter(|kind| !kind.is_empty()),
            scope: event.map(|event| event.scope.as_str()),
            key: event.map(|event| event.key.as_str()),
            why: Some(why),
            tries: 0,
            ms: 0,
        });
    }

    fn print(self, line: &Line<'_>) {
        if !self.json {
            return;
        }
        // Texts and numbers: writing them can't fail.
        let text = serde_json::to_string(line).unwrap_or_default();
        // Where nobody reads any more, or the disk is full, the work goes on.
        if let Err(error) = print_json(&text) {
            self.important(&format!("a line of --json is missing: {}", chain(&error)));
        }
    }
}
