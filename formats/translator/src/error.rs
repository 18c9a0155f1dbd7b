use rpd_shard::WriteError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be translated.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The file could not be read.
    #[error("failed to read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has nothing that a shard could hold.
    #[error("failed to read {}: {missing}: {reason} ({position}); {advice}", path.display())]
    NoContent {
        /// The file.
        path: PathBuf,
        /// What every file of the format has and this one has not, as a sentence.
        missing: &'static str,
        /// What was wrong where reading stopped.
        reason: String,
        /// Where reading stopped.
        position: FilePosition,
        /// What the user can do.
        advice: &'static str,
    },
    /// The shard could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl TranslateError {
    /// A file that could not be read.
    pub fn io(path: &Path, source: io::Error) -> TranslateError {
        TranslateError::Io { path: path.to_owned(), source }
    }
}

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePosition {
    /// Bytes from the beginning, in the unpacked file.
    Byte(u64),
    /// Number of a line, from 1.
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
