//! How far the stream was followed, and what could not be handed on: files that outlive the process.
//!
//! The position is the last id behind which nothing is owed: every wanted event up to it was handed
//! on, or lies in the letters. It is written whole or not at all, and never before the event that it
//! speaks of was handed on; so that a process that ends at any moment, or a machine, repeats some
//! events and leaves out none.
//!
//! An event that no id on disk leads back to (the first one of all, the first one behind a gap, one
//! without an id of its own) is kept in the same file before its hand-over begins, and is handed over
//! first by the next process.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use firstclaim::Fingerprint;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Error;
use crate::private;

/// The longest id that is sent back, in bytes; servers take headers of 8 KiB.
const ID_LIMIT: usize = 4096;

/// How often a position is written that only events moved which were not wanted: they cost nothing
/// when they come again.
const SELDOM: Duration = Duration::from_secs(1);

/// The version of the file.
const VERSION: u32 = 1;

/// Its version while an event is kept in it: a program that does not know of those must not take the
/// file for a mere position.
const KEEPING: u32 = 2;

/// The position in one stream, locked for this process until it is dropped.
#[derive(Debug)]
pub(super) struct Position {
    file: PathBuf,
    /// The stream's address as people may see it.
    shown: String,
    digest: String,
    id: String,
    /// What the file says.
    stored: Option<Stored>,
    /// Whether the id in the file is one to go on from.
    leads_back: bool,
    written: Option<Instant>,
    /// The operating system lets go of the lock with the file, however the process ends.
    _lock: File,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    v: u32,
    /// The stream's address without its query, for people.
    stream: String,
    /// The digest of its whole address: another stream's ids mean nothing here.
    digest: String,
    id: String,
    /// The event whose hand-over has begun, where the id does not lead back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Kept>,
}

/// An event as the stream said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The last id that the stream had named, and whether it is the event's own.
    pub(super) id: String,
    pub(super) own_id: bool,
    /// Its type.
    pub(super) event: String,
    pub(super) data: String,
}

/// An event that could not be handed on.
#[derive(Debug, Serialize)]
pub(super) struct Letter<'a> {
    /// When, RFC 3339.
    pub(super) at: String,
    pub(super) id: &'a str,
    pub(super) event: &'a str,
    pub(super) why: &'a str,
    /// The event's data; null where it was too long to be kept.
    pub(super) data: Option<&'a str>,
}

/// The name of a position's file: one for each stream and choice of scopes.
pub(super) fn file_name(url: &str, scopes: &[String]) -> String {
    let mut scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let whole = serde_json::json!([url, scopes]).to_string();
    let digest = Fingerprint::of_raw(whole.as_bytes()).to_hex();
    format!("{}.json", digest.get(..32).unwrap_or(&digest))
}

impl Position {
    /// Locks and reads the position in `file`; `from` where none is stored. `shown` is `url` as
    /// people may see it.
    pub(super) fn open(
        file: PathBuf,
        url: &str,
        shown: &str,
        from: Option<String>,
    ) -> Result<Self, Error> {
        let digest = Fingerprint::of_raw(url.as_bytes()).to_hex();
        let failed = |source| Error::State {
            file: file.clone(),
            source,
        };
        if let Some(folder) = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            private::make_folder(folder).map_err(failed)?;
        }
        let lock = private::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(beside(&file, "lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { file }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let stored = match fs::read(&file) {
            Ok(bytes) => Some(read(&file, &bytes, &digest)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(failed(source)),
        };
        let id = stored.as_ref().map(|stored| stored.id.clone());
        let id = id.filter(|id| !id.is_empty());
        Ok(Self {
            leads_back: id.is_some(),
            id: id.or(from).unwrap_or_default(),
            shown: shown.to_owned(),
            digest,
            stored,
            file,
            written: None,
            _lock: lock,
        })
    }

    /// The id that nothing is owed before; empty where there is none.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Where letters go.
    pub(super) fn letters(&self) -> PathBuf {
        beside(&self.file, "letters")
    }

    /// The event whose hand-over an earlier process has begun and not ended.
    pub(super) fn kept(&self) -> Option<Kept> {
        self.stored.as_ref()?.event.clone()
    }

    /// Sees to it, before the hand-over of an event begins, that a later process finds it: by the id
    /// on disk, else by itself.
    pub(super) fn secure(&mut self, event: &Kept) -> Result<(), Error> {
        let found_by_id = event.own_id && !self.id.is_empty();
        if self.kept().as_ref() == Some(event) || (found_by_id && self.leads_back) {
            return Ok(());
        }
        self.put((!found_by_id).then(|| event.clone()))
    }

    /// Goes on to `id`, behind an event that was handed on; stays where it is for `None`.
    pub(super) fn advance(&mut self, id: Option<&str>) -> Result<(), Error> {
        let kept = self.kept().is_some();
        // An event that was kept without an id says nothing of the position, and the process that
        // hands it over may have begun with one.
        if let Some(id) = id.filter(|id| !kept || !id.is_empty()) {
            id.clone_into(&mut self.id);
        }
        match kept {
            true => self.put(None),
            false => self.write(),
        }
    }

    /// Goes on to `id`, behind what was not wanted; written later.
    pub(super) fn pass(&mut self, id: Option<&str>) -> Result<(), Error> {
        if self.kept().is_some() {
            return self.advance(id);
        }
        if let Some(id) = id {
            id.clone_into(&mut self.id);
        }
        match self.written {
            Some(written) if written.elapsed() < SELDOM => Ok(()),
            _ => self.write(),
        }
    }

    /// Forgets the id for this run; the one in the file stays until there is another.
    pub(super) fn forget(&mut self) {
        self.id.clear();
        self.leads_back = false;
    }

    /// Writes what is not written yet. An event that is kept stays so.
    pub(super) fn write(&mut self) -> Result<(), Error> {
        let same = self.stored.as_ref().is_some_and(|it| it.id == self.id);
        if self.id.is_empty() || (self.leads_back && same) {
            return Ok(());
        }
        self.put(self.kept())
    }

    /// Writes the file: with the id, or with the one that it has where there is none.
    fn put(&mut self, event: Option<Kept>) -> Result<(), Error> {
        let before = self.stored.as_ref().map(|stored| stored.id.clone());
        let stored = Stored {
            v: match event {
                Some(_) => KEEPING,
                None => VERSION,
            },
            stream: self.shown.clone(),
            digest: self.digest.clone(),
            id: match self.id.is_empty() {
                true => before.unwrap_or_default(),
                false => self.id.clone(),
            },
            event,
        };
        // Texts and numbers: writing them can't fail.
        let mut bytes = serde_json::to_vec(&stored).unwrap_or_default();
        bytes.push(b'\n');
        replace(&self.file, &bytes).map_err(|source| self.failed(source))?;
        self.stored = Some(stored);
        self.leads_back = !self.id.is_empty();
        self.written = Some(Instant::now());
        Ok(())
    }

    /// Keeps what could not be handed on. Only when this is on disk may the position go on.
    pub(super) fn keep(&self, letter: &Letter<'_>) -> Result<(), Error> {
        let mut bytes = serde_json::to_vec(letter).unwrap_or_default();
        bytes.push(b'\n');
        let append = || {
            let mut file = private::options()
                .create(true)
                .append(true)
                .open(self.letters())?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        append().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::State {
            file: self.file.clone(),
            source,
        }
    }
}

/// Whether an id can be sent back as it is.
pub(super) fn can_be_sent(id: &str) -> bool {
    id.len() <= ID_LIMIT && HeaderValue::from_bytes(id.as_bytes()).is_ok()
}

fn read(file: &Path, bytes: &[u8], digest: &str) -> Result<Stored, Error> {
    let told = |why: &str| Error::Position {
        file: file.to_owned(),
        why: why.to_owned(),
    };
    let stored: Stored =
        serde_json::from_slice(bytes).map_err(|_| told("is no position of firstclaim tail"))?;
    if ![VERSION, KEEPING].contains(&stored.v) {
        return Err(told("was written by another version"));
    }
    if stored.digest != digest {
        let why = format!("is the position in another stream, {}", stored.stream);
        return Err(told(&why));
    }
    Ok(stored)
}

/// Replaces a file's content, whole or not at all, on disk when it returns. Only the holder of the
/// lock does this, so that the other name is free.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = beside(file, "new");
    let mut written = private::create(&new)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(&new, file)?;
    match file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn beside(file: &Path, extension: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}
