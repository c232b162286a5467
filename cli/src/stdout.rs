//! Results on stdout: written whole, or said not to be.

use std::io::{ErrorKind, Write};

use crate::escape::EscapedJson;

/// Whether anybody still reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// As far as is known.
    There,
    /// It has gone, which is its right: nothing is left to be shown.
    Gone,
}

/// A result could not be written to stdout, because the disk is full for example.
#[derive(Debug, thiserror::Error)]
#[error("stdout can't be written")]
pub struct Unwritten(#[from] std::io::Error);

/// Writes a text to stdout.
pub(crate) fn print(text: &str) -> Result<Reader, Unwritten> {
    write(text.as_bytes())
}

/// Writes JSON to stdout, in one line.
pub(crate) fn print_json(json: &str) -> Result<Reader, Unwritten> {
    print(&format!("{}\n", EscapedJson(json)))
}

/// Writes bytes to stdout.
pub(crate) fn write(bytes: &[u8]) -> Result<Reader, Unwritten> {
    let mut stdout = std::io::stdout().lock();
    reader(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// What the end of a write says of whoever reads.
pub(crate) fn reader(written: std::io::Result<()>) -> Result<Reader, Unwritten> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error.into()),
    }
}
