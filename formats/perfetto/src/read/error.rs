use rpd_shard::WriteError;
use std::io;
use std::path::PathBuf;

/// Why a trace could not be translated.
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
    /// Not one packet could be read.
    #[error(
        "failed to read {}: no packet of a Perfetto trace is in it: {reason} (byte {offset}); leave the file out or record again",
        path.display()
    )]
    NoPacket {
        /// The file.
        path: PathBuf,
        /// Where reading stopped, bytes from the beginning.
        offset: u64,
        /// What was wrong there.
        reason: String,
    },
    /// The shard could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
