//! How SQLite opens our files.

use rpd_files::{AnchorUse, open_by_path};
use rusqlite::{Connection, OpenFlags, ffi};
use std::io;
use std::path::Path;

/// Opens a file that exists for reading and writing.
///
/// Without file locks: Lustre mounted without `flock` fails them, and no other process knows the name of
/// a partial file. The path is made absolute, because SQLite reads a leading `file:` as a URI.
pub(crate) fn open(path: &Path, used_for: AnchorUse) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = open_by_path(path, used_for, |path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Connection::open_with_flags_and_vfs(path, flags, "unix-none")
    });
    opened.unwrap_or_else(|refused| Err(cannot_open(&refused)))
}

/// The file system's error, as SQLite would report it.
fn cannot_open(error: &io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(error.to_string()))
}

/// Text that is an identifier in SQL.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text that is a string literal in SQL.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
