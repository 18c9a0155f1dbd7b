use crate::quiet::NotQuiet;
use std::io;
use std::path::PathBuf;

/// The reason why a `.rpd` could not be written. The partial file is removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpdWriteError {
    /// The database to read cannot be opened without changing anything beside it.
    #[error(transparent)]
    Source(#[from] NotQuiet),
    /// The database to read was not written by a merge.
    #[error("{} is not a merged RocPD database: {why}; merge the files first", path.display())]
    NotMerged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The output file already exists.
    #[error("create {}: the file exists; remove it, or choose another output", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The output file cannot be created.
    #[error("create {}: {source}; check that the directory exists and can be written to", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An id is at least as large as the distance between two nodes, and would collide with ids of the next node.
    #[error(
        "{}: {what} {value} does not fit the ids of RPD, which are 0 to {} on each node; write RocPD instead",
        path.display(), stride - 1
    )]
    IdTooLarge {
        /// The database that is read.
        path: PathBuf,
        /// The kind of id.
        what: &'static str,
        /// The id.
        value: i64,
        /// The distance between two nodes.
        stride: i64,
    },
    /// The number of rows read differs from the number of rows written and left out.
    #[error(
        "write {}: {read} {what} were read, {written} written and {left_out} left out: this is an error of rpd, \
         please report it", path.display()
    )]
    Counts {
        /// The file.
        path: PathBuf,
        /// The kind of rows.
        what: &'static str,
        /// Number of rows read.
        read: u64,
        /// Number of rows written.
        written: u64,
        /// Number of rows that `.rpd` cannot represent.
        left_out: u64,
    },
    /// The disk is full.
    #[error("write {}: the disk is full; free some space, or choose an output on another disk", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// SQLite reported an error.
    #[error("write {} of {}: {source}; check the database that is read with PRAGMA integrity_check", what, path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The content that was being written.
        what: &'static str,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file could not be flushed to the disk.
    #[error("write {}: {source}", path.display())]
    Sync {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
