use crate::quiet::NotQuiet;
use rpd_shard::WriteError;
use std::path::PathBuf;

/// The reason why a `.rpd` could not be translated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpdReadError {
    /// The file cannot be opened without changing anything beside it.
    #[error(transparent)]
    Open(#[from] NotQuiet),
    /// The file is a database without the tables of RPD.
    #[error("{} is not a .rpd: it has no table {missing}{hint}", path.display())]
    NotRpd {
        /// The file.
        path: PathBuf,
        /// The missing table.
        missing: &'static str,
        /// A hint at the actual format.
        hint: &'static str,
    },
    /// A required column is missing.
    #[error(
        "{}: table {table} has no column {column}: no profiler wrote it like this; leave the file out", path.display()
    )]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The column.
        column: &'static str,
    },
    /// A table cannot be searched by a column, because this is not its primary key.
    #[error(
        "{}: column {column} of table {table} is not its primary key, so that rows cannot be found by it; copy \
         the rows into a file with the original schema",
        path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The column.
        column: &'static str,
    },
    /// There are more rows or names than a job can have.
    #[error("{}: more than {limit} {what}: this is not a trace, or the column is damaged; leave the file out", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The kind of rows or names.
        what: &'static str,
        /// The maximum number.
        limit: usize,
    },
    /// SQLite could not read the table.
    #[error("failed to read table {table} of {}: {source}; check the file with PRAGMA integrity_check", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The shard could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
