//! One queue's messages on disk: a file each, so that whatever was confirmed survives the process.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::message::Message;
use crate::private;

/// The extension of a file that is still being written.
const PART: &str = "part";

/// The folder of one queue.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

/// Why messages could not be kept or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A file or folder could not be read or written.
    #[error("the queue's data in {} could not be read or written", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// A file that holds no message.
    #[error("{} holds no message; remove it to go on without", path.display())]
    NoMessage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Folder {
    /// Opens the folder, and makes it where it does not exist.
    pub(super) fn open(path: PathBuf) -> Result<Self, FolderError> {
        private::make_folder(&path).map_err(|source| io(&path, source))?;
        Ok(Self { path })
    }

    /// All messages, by their number.
    pub(super) fn load(&self) -> Result<Vec<(u64, Message)>, FolderError> {
        let mut messages = Vec::new();
        let entries = fs::read_dir(&self.path).map_err(|source| io(&self.path, source))?;
        for entry in entries {
            let path = entry.map_err(|source| io(&self.path, source))?.path();
            if path.extension() == Some(OsStr::new(PART)) {
                // A write that was cut off, and never confirmed.
                fs::remove_file(&path).map_err(|source| io(&path, source))?;
            } else if let Some(number) = number_of(&path) {
                let text = fs::read(&path).map_err(|source| io(&path, source))?;
                let message = serde_json::from_slice(&text)
                    .map_err(|source| FolderError::NoMessage { path, source })?;
                messages.push((number, message));
            }
        }
        Ok(messages)
    }

    /// Writes one message, in place of an earlier state of it. It is written beside and renamed, so
    /// that a process that is killed leaves the old state or the new one.
    pub(super) fn save(&self, number: u64, message: &Message) -> Result<(), FolderError> {
        let path = self.file(number);
        let beside = path.with_extension(PART);
        // Only texts and numbers, and maps with text keys: serialising them can't fail.
        let text = serde_json::to_vec(message).unwrap_or_default();
        private::write(&beside, &text)
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(|source| io(&path, source))
    }

    /// Removes one message.
    pub(super) fn remove(&self, number: u64) -> Result<(), FolderError> {
        let path = self.file(number);
        fs::remove_file(&path).map_err(|source| io(&path, source))
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016}.json"))
    }
}

fn number_of(path: &Path) -> Option<u64> {
    if path.extension() != Some(OsStr::new("json")) {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}

fn io(path: &Path, source: std::io::Error) -> FolderError {
    FolderError::Io {
        path: path.to_owned(),
        source,
    }
}
