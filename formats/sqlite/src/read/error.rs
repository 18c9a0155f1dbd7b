use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why a database cannot be read page by page.
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
    /// The path is a directory, a pipe or a device.
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
    /// The file does not begin like a database, or is shorter than a header.
    #[error("{}: it is not a SQLite database", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The header contains an impossible value.
    #[error("{}: its header is damaged: {problem}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The invalid value.
        problem: &'static str,
    },
    /// A transaction was not completed, and the file may be partly changed.
    #[error(
        "{}: a transaction was interrupted; open it once with sqlite3, which takes it back using {}",
        path.display(),
        journal.display()
    )]
    HotJournal {
        /// The file.
        path: PathBuf,
        /// The journal of the file.
        journal: PathBuf,
    },
    /// The newest rows are in the write-ahead log, and not in the file.
    #[error(
        "{}: the newest rows are still in {}; run sqlite3 with PRAGMA wal_checkpoint(TRUNCATE), or end the program that writes it",
        path.display(),
        wal.display()
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
        path.display(),
        journal.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// The unreadable journal or log.
        journal: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Only SQLite itself can read this database.
    #[error("{}: {what} can only be read by SQLite itself", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The feature that is not supported.
        what: &'static str,
    },
}

/// A page that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: page {page}: {problem}", path.display())]
pub struct PageError {
    /// The database.
    pub path: Arc<Path>,
    /// Page number; the first page is 1.
    pub page: u32,
    /// The problem of this page.
    pub problem: PageProblem,
}

/// A problem that makes a page unreadable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageProblem {
    /// The file does not contain this page.
    #[error("the file ends before it")]
    Missing,
    /// The page does not belong to a table with rowids, or has the wrong type for its level of the tree.
    #[error("it is of type {0}, which does not belong there")]
    Type(u8),
    /// A second page refers to it.
    #[error("it is used twice")]
    Twice,
    /// Interior pages are nested deeper than any valid tree.
    #[error("the tree is too deep")]
    Depth,
    /// Cells extend beyond the page or overlap.
    #[error("its cells do not fit in it")]
    Cells,
    /// Rowids do not ascend.
    #[error("its rows are out of order")]
    Order,
    /// A record is inconsistent.
    #[error("the row {rowid} is damaged")]
    Record {
        /// Rowid of the row.
        rowid: i64,
    },
    /// The overflow page with the rest of a row does not exist.
    #[error("the rest of row {rowid} is missing: overflow page {overflow} is not one")]
    Overflow {
        /// Rowid of the row.
        rowid: i64,
        /// Page number at which the chain of overflow pages breaks.
        overflow: u32,
    },
    /// Rows are longer than the file, or too long to be decoded in one call.
    #[error("its rows are too long; the file cannot hold them, or fewer pages must be decoded at once")]
    TooLong,
    /// The file is not the one that was opened.
    #[error("the file was changed or replaced while it was read; start again when nothing writes it")]
    Changed,
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}
