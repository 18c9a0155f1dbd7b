//! Why a database, or a piece of one, cannot be read.

use rpd_sqlite::read::{OpenError, PageDatabase, PageError, PageProblem};
use std::io;
use std::path::{Path, PathBuf};

/// A database or a piece of it cannot be read. Every message has the file and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("read {}: check that it exists and may be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("{} is empty: its writer was killed before it wrote anything", .0.display())]
    Empty(PathBuf),
    /// The file does not begin like a SQLite database.
    #[error("{} is not a SQLite database", .0.display())]
    NotADatabase(PathBuf),
    /// The header of the database contradicts itself.
    #[error("the header of {} is damaged: {problem}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// A legacy `.rpd`, which is another format.
    #[error("{} is a legacy .rpd database, no RocPD: read it as one", .0.display())]
    LegacyRpd(PathBuf),
    /// A database without tables of RocPD.
    #[error("{} is a SQLite database without RocPD tables", .0.display())]
    NotRocPd(PathBuf),
    /// A transaction was not finished: what the file holds is neither the old nor the new content.
    #[error(
        "{} is in the middle of a transaction, {} is not empty: its writer runs, or was killed; open the database \
         once with sqlite3 to roll back",
        path.display(), journal.display()
    )]
    HotJournal {
        /// The database.
        path: PathBuf,
        /// The journal beside it.
        journal: PathBuf,
    },
    /// Rows are in a write-ahead log, and not yet in the file.
    #[error(
        "{} has rows in {}: its writer runs, or was killed; open the database once with sqlite3 and \
         say \"PRAGMA wal_checkpoint(TRUNCATE)\"",
        path.display(), wal.display()
    )]
    Wal {
        /// The database.
        path: PathBuf,
        /// The log beside it.
        wal: PathBuf,
    },
    /// The schema is of a version that this release does not know.
    #[error("{} has RocPD schema version {version:?}: this release reads version 3", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version as the file has it.
        version: String,
    },
    /// More of something than a sound database has.
    #[error("{} has more than {limit} {what}: it is damaged, or no output of a profiler", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// Of what.
        what: &'static str,
        /// How many are read.
        limit: usize,
    },
    /// The file was shortened, extended or replaced since it was opened.
    #[error("{} changed while it was read: merge again when its writer has ended", .0.display())]
    Changed(PathBuf),
    /// A page of the file does not hold what it should.
    #[error("{} is damaged at page {page} (byte {offset}), in table {table}: {reason}", path.display())]
    Page {
        /// The file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
        /// Number of the page, from 1.
        page: u32,
        /// Byte at which the page begins.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file was cut, which [`damage`](super::PageDatabase::damage) reports, and the rows are after its end.
    #[error("{} is cut, and rows of {table} are after its end", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
    },
    /// SQLite cannot read some rows.
    #[error("read rows with ids {first} to {last} of {table} in {}", path.display())]
    Rows {
        /// The file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
        /// First key asked for.
        first: i64,
        /// Last key asked for.
        last: i64,
        /// The error of SQLite.
        source: Box<rusqlite::Error>,
    },
    /// Keys do not ascend.
    #[error("{} is damaged: id {key} of {table} is out of order", path.display())]
    Order {
        /// The file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
        /// The key.
        key: i64,
    },
    /// A row has the largest id that there is, and rows are numbered up to the id after the last one.
    #[error(
        "{rows} rows of {table} in {} are left out: one of them has the id {}, and no id is left after it",
        path.display(), i64::MAX
    )]
    LastId {
        /// The file.
        path: PathBuf,
        /// Name of the table.
        table: String,
        /// How many rows are left out with it.
        rows: u64,
    },
    /// SQLite cannot read the schema.
    #[error("read the schema of {}: check it with \"PRAGMA integrity_check\" of sqlite3", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file cannot be opened for another reason.
    #[error(transparent)]
    Other(OpenError),
    /// The rows asked for take more memory than a piece may.
    #[error("rows of {table} in {} take too much memory: read them in smaller pieces", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Name of the table, with its suffix.
        table: String,
    },
}

impl ReadError {
    /// An error of the system at `path`.
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> ReadError {
        move |source| ReadError::Io { path: path.to_owned(), source }
    }

    /// A page of `table` cannot be read.
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

    /// SQLite does not understand the schema of `path`.
    pub(super) fn schema(path: &Path) -> impl Fn(rusqlite::Error) -> ReadError {
        move |source| ReadError::Schema { path: path.to_owned(), source }
    }
}

/// Whether a page is damaged because a file was cut, and not by itself.
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
