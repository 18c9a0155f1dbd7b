//! Whether a file is a database that nobody writes, and a connection that changes nothing beside it.

use super::error::ReadError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of the header of a database.
const HEADER: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What the header of a database says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Bytes that the database should have, where the header tells.
    pub(super) expected: Option<u64>,
}

impl Header {
    /// Whether the end of the file is missing.
    pub(super) fn is_truncated(&self) -> bool {
        self.expected.is_some_and(|expected| self.bytes < expected)
    }
}

/// Reads the header: an error where the file is none of SQLite's.
pub(super) fn header(path: &Path) -> Result<Header, ReadError> {
    let io = ReadError::io(path);
    let file = File::open(path).map_err(&io)?;
    let meta = file.metadata().map_err(&io)?;
    if !meta.is_file() {
        return Err(ReadError::NotADatabase(path.to_owned()));
    }
    let bytes = meta.len();
    if bytes == 0 {
        return Err(ReadError::Empty(path.to_owned()));
    }
    let mut head = Vec::with_capacity(HEADER);
    file.take(HEADER as u64).read_to_end(&mut head).map_err(&io)?;
    if head.len() < HEADER || !head.starts_with(MAGIC) {
        return Err(ReadError::NotADatabase(path.to_owned()));
    }
    let number = |at: usize, width: usize| {
        head.iter().skip(at).take(width).fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let page = match number(16, 2) {
        1 => 65536,
        page => page,
    };
    // The page count is good only if the program that wrote it last knew of it.
    let counted = number(24, 4) == number(92, 4) && number(28, 4) > 0;
    Ok(Header { bytes, expected: counted.then(|| number(28, 4) * page) })
}

/// Refuses a file with an unfinished transaction beside it.
pub(super) fn check_quiet(path: &Path) -> Result<(), ReadError> {
    // SQLite puts them beside the file that a link leads to.
    let real = path.canonicalize().map_err(ReadError::io(path))?;
    for file in [path, &real] {
        let wal = beside(file, "-wal");
        if first_byte(&wal).map_err(ReadError::io(&wal))?.is_some() {
            return Err(ReadError::Wal { path: path.to_owned(), wal });
        }
        let journal = beside(file, "-journal");
        // A journal that was kept (journal_mode PERSIST) begins with zeros.
        if first_byte(&journal).map_err(ReadError::io(&journal))?.is_some_and(|byte| byte != 0) {
            return Err(ReadError::HotJournal { path: path.to_owned(), journal });
        }
    }
    Ok(())
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// The first byte of a file; `None` where there is no file or no byte.
fn first_byte(path: &Path) -> std::io::Result<Option<u8>> {
    match File::open(path) {
        Ok(file) => file.bytes().next().transpose(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a quiet file for reading, without locks, so that nothing is made beside it.
///
/// The schema may be anybody's: no view, trigger or function of it is ever run. `torn` lets SQLite
/// open a file whose end is missing, or with entries in its schema that it does not understand.
pub(super) fn connect(path: &Path, torn: bool) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(uri(path), flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, !torn)?;
    conn.execute_batch("PRAGMA cell_size_check = ON; PRAGMA query_only = ON; PRAGMA mmap_size = 0;")?;
    if torn {
        conn.execute_batch("PRAGMA writable_schema = ON;")?;
    }
    Ok(conn)
}

/// A path as SQLite takes it with parameters; any byte may be in a path.
fn uri(path: &Path) -> String {
    use std::fmt::Write as _;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri + "?immutable=1&mode=ro"
}
