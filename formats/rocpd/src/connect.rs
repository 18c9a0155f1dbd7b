//! How SQLite opens our files.

use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Opens a file that exists.
///
/// Without file locks: Lustre mounted without `flock` fails them, and nobody else knows the name of
/// a partial file. The path is made absolute, because SQLite reads a leading `file:` as a URI.
pub(crate) fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Connection::open_with_flags_and_vfs(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX, "unix-none")
}

/// Text that is an identifier in SQL.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text that is a string literal in SQL.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
