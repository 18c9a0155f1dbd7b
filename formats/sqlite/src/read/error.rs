use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a database cannot be read by its pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Reading failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A directory, a pipe, a device.
    #[error("{}: it is not a regular file", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// The file has 0 bytes.
    #[error("{}: it is empty; the program that made it wrote nothing", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It does not begin like a database, or is shorter than a header.
    #[error("{}: it is not a SQLite database", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The header cannot be right.
    #[error("{}: its header is damaged: {problem}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// A transaction was not completed, and the file may be half changed.
    #[error(
        "{}: a transaction was interrupted; open it once with sqlite3, which takes it back using {}",
        path.display(),
        journal.display()
    )]
    HotJournal {
        /// The file.
        path: PathBuf,
        /// Its journal.
        journal: PathBuf,
    },
    /// Rows are in the write-ahead log, and not in the file.
    #[error(
        "{}: the newest rows are still in {}; run sqlite3 with PRAGMA wal_checkpoint(TRUNCATE), or end the program that writes it",
        path.display(),
        wal.display()
    )]
    Wal {
        /// The file.
        path: PathBuf,
        /// Its log.
        wal: PathBuf,
    },
    /// A journal or write-ahead log that cannot be read: it may have rows that are not in the file.
    #[error(
        "{}: its journal {} cannot be read ({source}), and rows may be in it; check the permissions of the journal",
        path.display(),
        journal.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// What cannot be read.
        journal: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A database that only SQLite itself can read.
    #[error("{}: {what} can only be read by SQLite itself", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The feature.
        what: &'static str,
    },
}

/// A page that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: page {page}: {problem}", path.display())]
pub struct PageError {
    /// The database.
    pub path: Arc<Path>,
    /// Number of the page, from 1 on.
    pub page: u32,
    /// What is wrong.
    pub problem: PageProblem,
}

/// What is wrong with a page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageProblem {
    /// The file has no such page.
    #[error("the file ends before it")]
    Missing,
    /// It is no page of a table with rowids, or not of the level that its place in the tree demands.
    #[error("it is of type {0}, which does not belong there")]
    Type(u8),
    /// Another page leads to it as well.
    #[error("it is used twice")]
    Twice,
    /// Interior pages below interior pages without end.
    #[error("the tree is too deep")]
    Depth,
    /// Cells lie outside of the page or over each other.
    #[error("its cells do not fit in it")]
    Cells,
    /// Rowids do not ascend.
    #[error("its rows are out of order")]
    Order,
    /// A record contradicts itself.
    #[error("the row {rowid} is damaged")]
    Record {
        /// Its rowid.
        rowid: i64,
    },
    /// The rest of a row is not where it should be.
    #[error("the rest of row {rowid} is missing: overflow page {overflow} is not one")]
    Overflow {
        /// Its rowid.
        rowid: i64,
        /// Where the chain ends.
        overflow: u32,
    },
    /// Rows that are longer than the file, or too long to be decoded at once.
    #[error("its rows are too long; the file cannot hold them, or fewer pages must be decoded at once")]
    TooLong,
    /// The file is not the one that was opened.
    #[error("the file was changed or replaced while it was read; start again when nothing writes it")]
    Changed,
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}
