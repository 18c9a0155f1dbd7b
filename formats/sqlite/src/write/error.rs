use super::page_map::PageNumberError;
use std::io;
use std::path::PathBuf;

/// The reason why rows could not be encoded into pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageWriteError {
    /// SQLite cannot read rows of more than 1,000,000,000 bytes.
    #[error("row {rowid} takes {bytes} bytes, and SQLite stores at most 1000000000")]
    RowTooLong {
        /// Rowid of the row.
        rowid: i64,
        /// Length of the record in bytes.
        bytes: u64,
    },
    /// Rows must be added in the order of their keys.
    #[error("row {rowid} is out of the order of the rowids")]
    Order {
        /// The rowid that is not larger than the previous one.
        rowid: i64,
    },
}

/// The reason why a file could not be completed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// Pages cannot be added to this file.
    #[error("{}: pages cannot be added: {problem}", path.display())]
    Unfit {
        /// The database.
        path: PathBuf,
        /// The property that prevents it.
        problem: &'static str,
    },
    /// The table with this root page cannot be filled.
    #[error("{}: the table at page {root} cannot be filled: {problem}", path.display())]
    Root {
        /// The database.
        path: PathBuf,
        /// Root page of the table.
        root: u32,
        /// The property that prevents it.
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
