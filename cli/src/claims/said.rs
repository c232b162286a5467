//! What is said on stderr beside the results on stdout.

use std::io::Write;

use crate::escape::Escaped;
use crate::stdout::{Reader, Unwritten};

/// How much is said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    quiet: bool,
}

impl Said {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Something good to know.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            self.important(text);
        }
    }

    /// What stands in the record now, and was to be shown as well: one who does not see it must know
    /// that it stands.
    pub(crate) fn stands(
        self,
        text: &str,
        shown: Result<Reader, Unwritten>,
    ) -> Result<Reader, Unwritten> {
        match &shown {
            Ok(_) => self.note(text),
            Err(_) => self.important(&format!("{text}, but it can't be shown")),
        }
        shown
    }

    /// Something that must be known. Foreign text in it is escaped.
    pub(crate) fn important(self, text: &str) {
        // With nobody to read it there is nothing else to do.
        let _ = writeln!(std::io::stderr(), "firstclaim: {}", Escaped(text));
    }
}
