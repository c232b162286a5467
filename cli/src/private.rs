//! Files and folders for their user only: owner tokens, results and events are in them.
//!
//! What is there already keeps its mode, which is its owner's decision.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Makes the folder where it is missing, with those above it.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// Options that make a file, where one is made, for its user only.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

/// Makes a file, or empties the one that is there.
pub(crate) fn create(file: &Path) -> std::io::Result<File> {
    options().create(true).truncate(true).write(true).open(file)
}

/// Writes a file whole.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    create(file)?.write_all(bytes)
}

/// Sees to it that a file that is missing is made by this program, with the mode that it is to have.
pub(crate) fn touch(file: &Path) -> std::io::Result<()> {
    options().create(true).append(true).open(file).map(drop)
}
