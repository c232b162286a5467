//! What a thread is called, and the keys of its events.

use std::fmt;

use firstclaim::{Key, KeyError};

/// The scope of the keys of events that name a thread.
const SCOPE: &str = "thread";

/// The longest name of a repository, in bytes.
const REPO_LIMIT: usize = 255;

/// The largest number: the largest that every JSON reader takes for what it is.
const NUMBER_LIMIT: u64 = (1 << 53) - 1;

/// A thread of a repository: its name can stand in a key, a log line and a text as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadName {
    repo: String,
    number: u64,
}

/// Why a text names no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error(
        "a repository's name is 1 to 255 letters, digits and -._~ in parts that a slash divides"
    )]
    Repo,
    #[error("a thread's number is a whole number from 1 to 9007199254740991")]
    Number,
}

impl ThreadName {
    /// # Errors
    ///
    /// The repository's name or the number has another form.
    pub(crate) fn new(repo: &str, number: u64) -> Result<Self, NameError> {
        let part = |part: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain)
        };
        // No colon, so that repository, number and revision of a key can't be cut otherwise.
        if repo.len() > REPO_LIMIT || !repo.split('/').all(part) {
            return Err(NameError::Repo);
        }
        if !(1..=NUMBER_LIMIT).contains(&number) {
            return Err(NameError::Number);
        }
        let repo = repo.to_owned();
        Ok(Self { repo, number })
    }

    /// Reads `teams/platform/website/42`.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new); a number that is written otherwise than in digits alone, or with a
    /// zero before them, is none: a thread has one name.
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        let (repo, number) = text.rsplit_once('/').ok_or(NameError::Repo)?;
        let parsed: u64 = number.parse().map_err(|_| NameError::Number)?;
        if parsed.to_string() != number {
            return Err(NameError::Number);
        }
        Self::new(repo, parsed)
    }

    /// The key of the event of this thread with this revision.
    ///
    /// # Errors
    ///
    /// The revision can't stand in a key.
    pub(crate) fn key(&self, revision: &str) -> Result<Key, KeyError> {
        if revision.is_empty() {
            return Err(KeyError::EmptyId);
        }
        Key::new(SCOPE, format!("{}:{}:{revision}", self.repo, self.number))
    }

    pub(crate) fn repo(&self) -> &str {
        &self.repo
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// `teams/platform/website thread #42`.
impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} thread #{}", self.repo, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_name() {
        let name = ThreadName::parse("teams/platform/website/42").unwrap();
        assert_eq!((name.repo(), name.number()), ("teams/platform/website", 42));
        assert_eq!(name.to_string(), "teams/platform/website thread #42");
        assert_eq!(ThreadName::new("teams/platform/website", 42), Ok(name));
        for wrong in [
            "",
            "42",
            "/42",
            "a/",
            "a/0",
            "a/042",
            "a/+42",
            "a/-1",
            "a/4 2",
            "a/4x",
            "a//42",
            "/a/42",
            "a:7/42",
            "a#b/42",
            "a b/42",
            "é/42",
            "../42",
            "a/./b/42",
            "a\n/42",
            "a/9007199254740992",
            "a/99999999999999999999999",
        ] {
            assert!(ThreadName::parse(wrong).is_err(), "{wrong}");
        }
        assert!(ThreadName::new(&"r".repeat(256), 1).is_err());
    }
}
