//! The data folder: made where it is missing, kept out of version control, used by one process.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::private;

/// The data folder, locked for this process until it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The operating system lets go of the lock with the file, however the process ends.
    _lock: File,
}

/// Why the data folder can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It can't be made or written.
    #[error(
        "the data folder {} can't be written; choose another one with --data, or keep nothing with \
         --in-memory",
        path.display()
    )]
    Write {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has it.
    #[error(
        "the data folder {} is in use by another `firstclaim dev`; stop that one, or choose another \
         folder with --data",
        path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
}

impl Folder {
    /// Makes and locks the folder.
    pub(super) fn open(path: &Path) -> Result<Self, FolderError> {
        let write = |source| FolderError::Write {
            path: path.to_owned(),
            source,
        };
        private::make_folder(path).map_err(write)?;
        let lock = private::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(write)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FolderError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(write(source)),
        }
        ignore(path).map_err(write)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The file of the embedded DynamoDB.
    pub(super) fn claims(&self) -> PathBuf {
        self.path.join("claims.sqlite")
    }

    /// The folder of the local queue.
    pub(super) fn queue(&self) -> PathBuf {
        self.path.join("queue")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Keeps the folder out of version control; a file that is there already stays as it is.
fn ignore(path: &Path) -> std::io::Result<()> {
    match File::create_new(path.join(".gitignore")) {
        Ok(mut file) => file.write_all(b"*\n"),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_process_at_a_time_has_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep").join("data");
        let first = Folder::open(&path).unwrap();
        let second = Folder::open(&path).unwrap_err();
        assert!(matches!(second, FolderError::InUse { .. }), "{second:?}");
        drop(first);
        Folder::open(&path).unwrap();
    }

    #[test]
    fn it_is_kept_out_of_version_control_unless_somebody_decided_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let ignored = folder.path().join(".gitignore");
        drop(Folder::open(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(&ignored).unwrap(), "*\n");
        fs::write(&ignored, "lock\n").unwrap();
        drop(Folder::open(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(&ignored).unwrap(), "lock\n");
    }

    #[test]
    fn a_file_in_its_place_is_told() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        fs::write(&path, "").unwrap();
        let error = Folder::open(&path).unwrap_err();
        assert!(matches!(error, FolderError::Write { .. }), "{error:?}");
        assert!(error.to_string().contains("--data"), "{error}");
    }
}
