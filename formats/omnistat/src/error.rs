use rpd_shard::WriteError;
use std::io;
use std::path::PathBuf;

/// Why a table could not be translated.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The file system said no.
    #[error("failed to read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It is no table of omnistat.
    #[error("failed to read {}: line {line}: {reason}; export it again with omnistat-query", path.display())]
    NoTable {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The shard could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
