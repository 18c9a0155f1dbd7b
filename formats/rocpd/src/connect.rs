//! Opens databases of this project with SQLite, and quotes SQL text.

use rpd_files::{AnchorUse, open_by_path};
use rusqlite::{Connection, OpenFlags, ffi};
use std::io;
use std::path::Path;

/// Opens an existing file for reading and writing.
///
/// Does not use file locks: on Lustre mounted without `flock` they fail, and no other process has the name of a
/// partial file. The path is made absolute because SQLite reads a leading `file:` as a URI.
pub(crate) fn open(path: &Path, used_for: AnchorUse) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = open_by_path(path, used_for, |path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Connection::open_with_flags_and_vfs(path, flags, "unix-none")
    });
    opened.unwrap_or_else(|refused| Err(cannot_open(&refused)))
}

/// Converts an error of the file system to the error that SQLite would report.
fn cannot_open(error: &io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(error.to_string()))
}

/// Quotes text as an SQL identifier.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes text as an SQL string literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
