use rpd_shard::WriteError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Error of translating a foreign file.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The file could not be read.
    #[error("failed to read {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has no content that a shard can store.
    #[error("failed to read {}: {missing}: {reason} ({position}); {advice}", path.display())]
    NoContent {
        /// Path of the file.
        path: PathBuf,
        /// Content that every file of the format has but this one lacks, as a sentence.
        missing: &'static str,
        /// Reason why reading stopped.
        reason: String,
        /// Position where reading stopped.
        position: FilePosition,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The file is a database that could not be read.
    #[error(transparent)]
    Database(Box<dyn std::error::Error + Send + Sync>),
    /// One shard cannot represent the content; the file can be merged as it is.
    #[error("{} {what}: it cannot become a shard, but can be merged as it is", path.display())]
    Unfit {
        /// Path of the file.
        path: PathBuf,
        /// Content that exceeds a limit or is ambiguous.
        what: &'static str,
    },
    /// The shard could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl TranslateError {
    /// Returns the error for a file that could not be read.
    pub fn io(path: &Path, source: io::Error) -> TranslateError {
        TranslateError::Io { path: path.to_owned(), source }
    }
}

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePosition {
    /// Bytes from the start of the decompressed file.
    Byte(u64),
    /// Line number, from 1.
    Line(u64),
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilePosition::Byte(offset) => write!(f, "byte {offset}"),
            FilePosition::Line(number) => write!(f, "line {number}"),
        }
    }
}
