//! What a file is, looked at without writing a byte of it: the embedded DynamoDB makes its own tables
//! in whatever database it opens.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// What every SQLite database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// How long another process's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// A database of the engine with the table in it; or one that only the engine can tell about.
    Store,
    /// Nothing is in it.
    Empty,
    /// No SQLite database.
    NoDatabase,
    /// Another program's database.
    Foreign,
    /// A database of the engine without the table.
    NoTable,
}

impl Identity {
    /// Looks at the file. What it does not let itself be asked is left to the engine to tell.
    pub(super) fn of(file: &Path, table: &str) -> std::io::Result<Self> {
        let mut beginning = Vec::new();
        let length = u64::try_from(MAGIC.len()).unwrap_or_default();
        File::open(file)?.take(length).read_to_end(&mut beginning)?;
        if beginning.is_empty() {
            return Ok(Self::Empty);
        }
        if beginning != MAGIC {
            return Ok(Self::NoDatabase);
        }
        // Without locks and without its log first, which costs least: a store is one for good.
        match look(file, table, "immutable=1") {
            Ok(Self::Store) => Ok(Self::Store),
            // It may be in the log only.
            _ => Ok(look(file, table, "mode=ro").unwrap_or_else(|error| told(&error))),
        }
    }
}

fn look(file: &Path, table: &str, how: &str) -> rusqlite::Result<Identity> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(uri(file, how), flags)?;
    database.busy_timeout(PATIENCE)?;
    let count = |query: &str| database.query_row(query, (), |row| row.get::<_, i64>(0));
    let own = count("SELECT count(*) FROM sqlite_master WHERE name IN ('_tables', '_config')")?;
    if own < 2 {
        return Ok(match count("SELECT count(*) FROM sqlite_master")? {
            0 => Identity::Empty,
            _ => Identity::Foreign,
        });
    }
    let query = "SELECT count(*) FROM _tables WHERE table_name = ?1";
    let found = database.query_row(query, [table], |row| row.get::<_, i64>(0));
    match found {
        Ok(0) => Ok(Identity::NoTable),
        Ok(_) => Ok(Identity::Store),
        // Tables of these names with other columns are not the engine's.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
            Ok(Identity::Foreign)
        }
        Err(error) => Err(error),
    }
}

fn told(error: &rusqlite::Error) -> Identity {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Identity::NoDatabase,
        _ => Identity::Store,
    }
}

/// The file as SQLite's URI.
fn uri(file: &Path, how: &str) -> String {
    let mut uri = "file:".to_owned();
    for byte in file.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri + "?" + how
}
