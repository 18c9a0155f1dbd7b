use crate::quiet::NotQuiet;
use std::io;
use std::path::PathBuf;

/// Why a `.rpd` could not be written. What was written of it is removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpdWriteError {
    /// The database to read cannot be opened without changing anything beside it.
    #[error(transparent)]
    Source(#[from] NotQuiet),
    /// The database to read is not what a merge writes.
    #[error("{} is not a merged RocPD database: {why}; merge the files first", path.display())]
    NotMerged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file is there already.
    #[error("create {}: the file exists; remove it, or choose another output", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made.
    #[error("create {}: {source}; check that the directory exists and can be written to", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An id that is as large as the distance between two nodes, so that it would be one of the next node.
    #[error(
        "{}: {what} {value} does not fit the ids of RPD, which has room for 0 to {} on each node; write RocPD instead",
        path.display(), stride - 1
    )]
    IdTooLarge {
        /// The database that is read.
        path: PathBuf,
        /// What it is the id of.
        what: &'static str,
        /// The id.
        value: i64,
        /// The distance.
        stride: i64,
    },
    /// Rows in are not rows out.
    #[error(
        "write {}: {read} {what} were read, {written} written and {left_out} left out: this is an error of rpd, \
         please report it", path.display()
    )]
    Counts {
        /// The file.
        path: PathBuf,
        /// Of what.
        what: &'static str,
        /// How many were read.
        read: u64,
        /// How many were written.
        written: u64,
        /// How many have no place.
        left_out: u64,
    },
    /// No space left.
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
        /// What was being written.
        what: &'static str,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file could not be brought to the disk.
    #[error("write {}: {source}", path.display())]
    Sync {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
