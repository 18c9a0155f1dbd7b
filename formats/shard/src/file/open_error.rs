//! Checks of a file header, and errors of opening a shard.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::{Bytes, FILE_HEADER_BYTES, FILE_MAGIC, Version, checksum, le};
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a file could not be opened as a shard.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system reported an error.
    #[error("failed to read {path}: {source}; check the path and its permissions")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a shard.
    #[error(
        "{path} is not a shard of rpd-collect (no RPDSHARD header at offset 0); name a run folder or *.rpdshard files"
    )]
    NotAShard {
        /// Path of the file.
        path: PathBuf,
    },
    /// A newer release wrote the shard.
    #[error(
        "{path} has shard format version {version}, this rpd reads up to {}; use the rpd-merge of the release that wrote it, or a newer one",
        Version::CURRENT.0
    )]
    NewerVersion {
        /// Path of the file.
        path: PathBuf,
        /// Version of its format.
        version: u8,
    },
    /// Both copies of the identity are damaged or missing.
    #[error("{path} has no readable run identity: it was cut directly after its header, or is damaged")]
    NoIdentity {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Checks the header of a file and returns its version. A damaged header is ignored if a block follows it, because
/// the rows can still be read.
pub(super) fn check_file_header(path: &Path, bytes: &Bytes) -> Result<Version, OpenError> {
    let not_a_shard = || OpenError::NotAShard { path: path.to_owned() };
    let header = bytes.read(0, FILE_HEADER_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => not_a_shard(),
        _ => OpenError::Io { path: path.to_owned(), source: error },
    })?;
    let whole = &header[..8] == FILE_MAGIC && checksum(&header[..24]) == u64::from_le_bytes(le(&header, 24));
    if whole && header[8] > Version::CURRENT.0 {
        return Err(OpenError::NewerVersion { path: path.to_owned(), version: header[8] });
    }
    let first = bytes.read(FILE_HEADER_BYTES as u64, BLOCK_HEADER_BYTES).ok();
    if whole {
        return Ok(Version(header[8]));
    }
    if first.is_some_and(|h| BlockHeader::from_bytes(&h).is_some()) {
        return Ok(Version::CURRENT);
    }
    Err(not_a_shard())
}
