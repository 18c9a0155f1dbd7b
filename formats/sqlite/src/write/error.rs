use super::page_map::PageNumberError;
use std::io;
use std::path::PathBuf;

/// Why rows could not become pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageWriteError {
    /// SQLite reads no row of more than 1,000,000,000 bytes.
    #[error("row {rowid} takes {bytes} bytes, and SQLite stores at most 1000000000")]
    RowTooLong {
        /// Its rowid.
        rowid: i64,
        /// Length of its record.
        bytes: u64,
    },
    /// Rows must come in the order of their keys.
    #[error("row {rowid} is out of the order of the rowids")]
    Order {
        /// The rowid that is no larger than the one before it.
        rowid: i64,
    },
}

/// Why a file could not be completed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The file is not one that pages can be added to.
    #[error("{}: pages cannot be added: {problem}", path.display())]
    Unfit {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// The table named by its root page cannot be filled.
    #[error("{}: the table at page {root} cannot be filled: {problem}", path.display())]
    Root {
        /// The database.
        path: PathBuf,
        /// Root page of the table.
        root: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// The database would be too large.
    #[error(transparent)]
    PageNumber(#[from] PageNumberError),
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The database.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
