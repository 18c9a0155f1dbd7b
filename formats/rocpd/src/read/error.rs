//! Errors of reading a database or a piece of it.

use rpd_sqlite::read::{OpenError, PageDatabase, PageError, PageProblem};
use std::io;
use std::path::{Path, PathBuf};

/// Error of reading a database or a piece of it. Every message has the file and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("read {}; check that it exists and may be read", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{} is empty: its writer was killed before it wrote anything", .0.display())]
    Empty(PathBuf),
    /// The file does not start like a SQLite database.
    #[error("{} is not a SQLite database", .0.display())]
    NotADatabase(PathBuf),
    /// The header of the database is inconsistent.
    #[error("the header of {} is damaged: {problem}", path.display())]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// Inconsistency.
        problem: &'static str,
    },
    /// The file is a legacy `.rpd`, which is another format.
    #[error("{} is a legacy .rpd database, no RocPD; read it as one", .0.display())]
    LegacyRpd(PathBuf),
    /// The database has no RocPD tables.
    #[error("{} is a SQLite database without RocPD tables", .0.display())]
    NotRocPd(PathBuf),
    /// A transaction is incomplete: the file has neither the old nor the new content.
    #[error(
        "{} is in the middle of a transaction, {} is not empty: its writer runs, or was killed; open the database \
         once with sqlite3 to roll back",
        path.display(), journal.display()
    )]
    HotJournal {
        /// Path of the database.
        path: PathBuf,
        /// Path of its journal.
        journal: PathBuf,
    },
    /// Rows are in a write-ahead log and not in the file yet.
    #[error(
        "{} has rows in {}: its writer runs, or was killed; open the database once with sqlite3 and \
         say \"PRAGMA wal_checkpoint(TRUNCATE)\"",
        path.display(), wal.display()
    )]
    Wal {
        /// Path of the database.
        path: PathBuf,
        /// Path of its write-ahead log.
        wal: PathBuf,
    },
    /// This release does not support the version of the schema.
    #[error("{} has RocPD schema version {version:?}: this release reads version 3", path.display())]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// Version in the file.
        version: String,
    },
    /// The file exceeds a limit that valid databases satisfy.
    #[error("{} has more than {limit} {what}: it is damaged, or no output of a profiler", path.display())]
    TooMany {
        /// Path of the file.
        path: PathBuf,
        /// Items that are limited.
        what: &'static str,
        /// Maximum number.
        limit: usize,
    },
    /// The file was truncated, extended or replaced after it was opened.
    #[error("{} changed while it was read; merge again when its writer has ended", .0.display())]
    Changed(PathBuf),
    /// A page of the file has invalid content.
    #[error("{} is damaged at page {page} (byte {offset}), in table {table}: {reason}", path.display())]
    Page {
        /// Path of the file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
        /// Page number, from 1.
        page: u32,
        /// Offset of the page, bytes.
        offset: u64,
        /// Reason.
        reason: String,
    },
    /// The file was truncated, as [`damage`](super::Database::damage) reports, and the rows are beyond its
    /// end.
    #[error("{} is cut, and rows of {table} are after its end", path.display())]
    Cut {
        /// Path of the file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
    },
    /// SQLite cannot read some rows.
    #[error("read rows with ids {first} to {last} of {table} in {}", path.display())]
    Rows {
        /// Path of the file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
        /// First requested key.
        first: i64,
        /// Last requested key.
        last: i64,
        /// The error of SQLite.
        source: Box<rusqlite::Error>,
    },
    /// The keys do not ascend.
    #[error("{} is damaged: id {key} of {table} is out of order", path.display())]
    Order {
        /// Path of the file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
        /// Key that is out of order.
        key: i64,
    },
    /// A row has the largest possible id, but the merge needs the id after the last row.
    #[error(
        "{rows} rows of {table} in {} are left out: one of them has the id {}, and no id is left after it",
        path.display(), i64::MAX
    )]
    LastId {
        /// Path of the file.
        path: PathBuf,
        /// Name of the table.
        table: String,
        /// Number of rows that are left out because of it.
        rows: u64,
    },
    /// SQLite cannot read the schema.
    #[error("read the schema of {}; check it with \"PRAGMA integrity_check\" of sqlite3", path.display())]
    Schema {
        /// Path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file cannot be opened for another reason.
    #[error(transparent)]
    Other(OpenError),
    /// The requested rows take more memory than a piece may.
    #[error("rows of {table} in {} take too much memory; read them in smaller pieces", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
    },
}

impl ReadError {
    /// Returns the error for an I/O error at `path`.
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> ReadError {
        move |source| ReadError::Io { path: path.to_owned(), source }
    }

    /// Returns the error for a page of `table` that cannot be read.
    pub(super) fn page(error: PageError, database: &PageDatabase, table: &str) -> ReadError {
        let is_cut = is_after_the_end(&error, database);
        let PageError { path, page, problem } = error;
        let (path, table) = (path.to_path_buf(), table.to_owned());
        match problem {
            PageProblem::Changed => ReadError::Changed(path),
            PageProblem::Io(source) => ReadError::Io { path, source },
            PageProblem::TooLong => ReadError::TooLarge { path, table },
            _ if is_cut => ReadError::Cut { path, table },
            problem => {
                let offset = u64::from(page.saturating_sub(1)) * database.page_size() as u64;
                ReadError::Page { path, table, page, offset, reason: problem.to_string() }
            }
        }
    }

    /// Returns the error for a schema of `path` that SQLite does not understand.
    pub(super) fn schema(path: &Path) -> impl Fn(rusqlite::Error) -> ReadError {
        move |source| ReadError::Schema { path: path.to_owned(), source }
    }
}

/// Returns whether a page is invalid because the file was truncated, and not because of other damage.
pub(super) fn is_after_the_end(error: &PageError, database: &PageDatabase) -> bool {
    let is_after = match error.problem {
        PageProblem::Missing => true,
        PageProblem::Overflow { overflow, .. } => overflow > database.page_count(),
        _ => false,
    };
    is_after && database.truncated_pages() > 0
}

impl From<OpenError> for ReadError {
    fn from(error: OpenError) -> ReadError {
        match error {
            OpenError::Io { path, source } => ReadError::Io { path, source },
            OpenError::Empty { path } => ReadError::Empty(path),
            OpenError::HotJournal { path, journal } => ReadError::HotJournal { path, journal },
            OpenError::Wal { path, wal } => ReadError::Wal { path, wal },
            OpenError::Header { path, problem } => ReadError::Header { path, problem },
            OpenError::Unsupported { path, what } => ReadError::Header { path, problem: what },
            OpenError::NoFile { path } | OpenError::NotADatabase { path } => ReadError::NotADatabase(path),
            other => ReadError::Other(other),
        }
    }
}
