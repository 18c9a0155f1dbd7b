//! Opens a database that no process writes, without creating files beside it.

use rpd_files::{AnchorUse, beside, entry_stat, file_uri, open_by_path, open_input};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, ffi};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum length in bytes of a value or row: more than any profiler writes, and small enough for a row of a shard.
const MAX_LENGTH: i32 = 15 << 20;
/// First bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// First bytes of a hot rollback journal. The journal of a finished transaction is zeroed or removed.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The reason why a database cannot be read without changing anything beside it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotQuiet {
    /// The operating system reported an error.
    #[error("failed to read {}: {source}; check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is empty, or its first bytes are not those of SQLite.
    #[error("{} is not an SQLite database ({bytes} bytes, no header at offset 0); name a .rpd or RocPD file", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// A transaction was interrupted, and its journal contains the previous content of the file.
    #[error(
        "{} has a hot journal ({}): its writer was killed in a transaction or still runs; wait for it, or open the \
         file once with sqlite3 to roll back",
        path.display(), journal.display()
    )]
    HotJournal {
        /// The file.
        path: PathBuf,
        /// The journal of the file.
        journal: PathBuf,
    },
    /// The last transactions are in the write-ahead log.
    #[error(
        "{} has a write-ahead log that is not empty ({}): its writer still runs or was killed; wait for it, or run \
         sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'",
        path.display(), wal.display()
    )]
    Wal {
        /// The file.
        path: PathBuf,
        /// The write-ahead log of the file.
        wal: PathBuf,
    },
    /// A journal or write-ahead log cannot be read. It may contain rows that are not in the file.
    #[error(
        "{}: its journal {} cannot be read ({source}), and rows may be in it; check the permissions of the journal",
        path.display(), journal.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// The unreadable journal or log.
        journal: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// SQLite reported an error.
    #[error("failed to open {}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

/// Opens a file read-only and immutable: takes no lock and creates no file beside it.
pub(crate) fn open(path: &Path) -> Result<Connection, NotQuiet> {
    check(path)?;
    let sqlite = |source| NotQuiet::Sqlite { path: path.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
    let connected =
        open_by_path(path, AnchorUse::Inputs, |path| Connection::open_with_flags(uri(path), flags));
    let io = |source| NotQuiet::Io { path: path.to_owned(), source };
    let conn = connected.map_err(io)?.map_err(sqlite)?;
    bound(&conn).map_err(sqlite)?;
    // The schema is untrusted: its functions may not run, and SQLite may not create automatic indexes.
    conn.execute_batch(
        "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON;
         PRAGMA automatic_index = OFF; PRAGMA mmap_size = 0; PRAGMA cache_size = -16384;",
    )
    .map_err(sqlite)?;
    Ok(conn)
}

/// Converts an error of the file system to the error that SQLite would report.
pub(crate) fn cannot_open(error: &io::Error) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(error.to_string()))
}

/// Limits the length of values of a connection.
pub(crate) fn bound(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_LENGTH).map(drop)
}

/// Checks that the file is a database that no process writes.
pub(crate) fn check(path: &Path) -> Result<(), NotQuiet> {
    let io = |source| NotQuiet::Io { path: path.to_owned(), source };
    let mut file = open_input(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let mut magic = [0; MAGIC.len()];
    match file.read_exact(&mut magic) {
        Ok(()) if magic == *MAGIC => {}
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(io(error)),
        _ => return Err(NotQuiet::NotADatabase { path: path.to_owned(), bytes }),
    }
    // SQLite keeps journals beside the file that a link points to.
    let real = std::fs::canonicalize(path).map_err(io)?;
    for name in [path, &real] {
        let journal = beside(name, "-journal");
        match starts_with_journal_magic(&journal) {
            Ok(false) => {}
            Ok(true) => return Err(NotQuiet::HotJournal { path: path.to_owned(), journal }),
            Err(source) => return Err(NotQuiet::Journal { path: path.to_owned(), journal, source }),
        }
        let wal = beside(name, "-wal");
        match entry_stat(&wal) {
            Ok(found) if found.length > 0 => return Err(NotQuiet::Wal { path: path.to_owned(), wal }),
            Err(source) if !is_missing(&source) => {
                return Err(NotQuiet::Journal { path: path.to_owned(), journal: wal, source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn starts_with_journal_magic(journal: &Path) -> io::Result<bool> {
    let mut magic = [0; JOURNAL_MAGIC.len()];
    match open_input(journal).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) => Ok(magic == JOURNAL_MAGIC),
        Err(error) if is_missing(&error) || error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether an error means that the entry does not exist.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename)
}

/// Returns the URI with which SQLite opens the file as immutable.
pub(crate) fn uri(path: &Path) -> String {
    file_uri(path) + "?mode=ro&immutable=1"
}
