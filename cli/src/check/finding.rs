//! What a check found, and how it is shown.

use std::fmt::Write;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;

use super::Report;
use crate::escape::{Escaped, EscapedJson};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it is.
    pub status: Status,
    /// Which one of its kind, where there can be several.
    pub subject: Option<String>,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    pub advice: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but not for long, or not for everybody.
    Warning,
    /// It does not work, or could not be looked at.
    Fault,
    /// There was nothing to look at.
    Skipped,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
            Self::Skipped => "skipped",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "\u{1b}[32m",
            Self::Warning => "\u{1b}[33m",
            Self::Fault => "\u{1b}[31m",
            Self::Skipped => "\u{1b}[2m",
        }
    }
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, found, None)
    }

    pub(super) fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Skipped, found, None)
    }

    pub(super) fn warning(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, Status::Warning, found, Some(advice.into()))
    }

    pub(super) fn fault(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, Status::Fault, found, Some(advice.into()))
    }

    fn new(
        check: &'static str,
        status: Status,
        found: impl Into<String>,
        advice: Option<String>,
    ) -> Self {
        Self {
            check,
            status,
            subject: None,
            found: found.into(),
            advice,
        }
    }

    /// The same, of `subject`.
    pub(super) fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }
}

/// Ends a check that takes longer than `limit`: a service that hangs ends its check, not the
/// command.
pub(super) async fn bounded<T>(
    check: &'static str,
    limit: Duration,
    looking: impl Future<Output = T>,
) -> Result<T, Finding> {
    // Boxed: the SDK's futures are large, and nest deep.
    tokio::time::timeout(limit, Box::pin(looking))
        .await
        .map_err(|_| {
            Finding::fault(
                check,
                format!("no end within {limit:?}"),
                "see that the service can be reached from here, or give it more time with --limit",
            )
        })
}

impl Report {
    /// 0 without a fault, 1 with one, 69 where the store did not answer.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if !self.store_answered {
            return 69;
        }
        u8::from(self.count(Status::Fault) > 0)
    }

    fn count(&self, status: Status) -> usize {
        let of_it = |finding: &&Finding| finding.status == status;
        self.findings.iter().filter(of_it).count()
    }

    /// The lines for a person, and a last one that counts.
    #[must_use]
    pub fn to_text(&self, colours: bool) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let word = finding.status.word();
            let (on, off) = match colours {
                true => (finding.status.colour(), "\u{1b}[0m"),
                false => ("", ""),
            };
            let said = [
                finding.subject.as_deref().unwrap_or_default(),
                match finding.subject {
                    Some(_) => ": ",
                    None => "",
                },
                &finding.found,
                match finding.advice {
                    Some(_) => "; ",
                    None => "",
                },
                finding.advice.as_deref().unwrap_or_default(),
            ];
            // Writing to a text can't fail.
            let _ = writeln!(
                text,
                "{on}{word:<9}{off}{:<14}{}",
                finding.check,
                Escaped(&said.concat())
            );
        }
        let counts = [
            Some(format!("{} ok", self.count(Status::Ok))),
            self.counted(Status::Warning, "warning"),
            self.counted(Status::Fault, "fault"),
            match self.count(Status::Skipped) {
                0 => None,
                count => Some(format!("{count} skipped")),
            },
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        let _ = writeln!(text, "\n{}", counts.join(", "));
        text
    }

    fn counted(&self, status: Status, noun: &str) -> Option<String> {
        match self.count(status) {
            0 => None,
            1 => Some(format!("1 {noun}")),
            count => Some(format!("{count} {noun}s")),
        }
    }

    /// One JSON object per line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            // Texts and nulls are always JSON.
            if let Ok(json) = serde_json::to_string(finding) {
                let _ = writeln!(text, "{}", EscapedJson(&json));
            }
        }
        text
    }
}
