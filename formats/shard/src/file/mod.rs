//! The shard file: header, self-contained blocks, index. docs/FORMATS.md has the byte tables.
//!
//! ```text
//!  file header 32 B | block | block | ... | index block | trailer 32 B
//!                     72 B header + zstd(payload)
//! ```
//!
//! A shard is append-only. If index and trailer are missing (the collector was killed), a reader finds the blocks
//! by walking their headers. After damage it continues at the next block header with a valid checksum.

mod block;
mod block_ref;
mod bytes;
mod file_end;
mod folder;
mod index;
mod open_error;
mod owner;
mod pending;
mod reader;
mod reserve;
mod side_records;
mod strings;
mod writer;

pub use block::{BLOCK_HEADER_BYTES, BlockHeader, BlockKind};
pub use block_ref::{BlockDamage, BlockRef, Damage};
use bytes::Bytes;
pub use folder::{folder_of_ranks, is_folder_of_ranks};
pub use open_error::OpenError;
pub use owner::{KnownProcesses, Owner};
pub use reader::{BlockError, Shard};
pub use strings::{MAX_STRING_BYTES, MAX_STRING_LENGTH, MAX_STRINGS, ShardStrings};
pub use writer::{MAX_VALUE_BYTES, ShardWriter, WriteError};

use twox_hash::XxHash3_64;

/// Version of the shard format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u8);

impl Version {
    /// Version that this release writes, and the newest that it reads. Version 1 had no probes between nodes;
    /// version 2 had no keys that are handles.
    pub const CURRENT: Version = Version(3);
}

/// First bytes of a shard.
pub const FILE_MAGIC: &[u8; 8] = b"RPDSHARD";
/// Length of the file header, bytes: magic, version (u8, then 7 zero bytes), 8 zero bytes, checksum.
const FILE_HEADER_BYTES: usize = 32;
/// Zstandard compression level of blocks.
const ZSTD_LEVEL: i32 = 1;

fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(FILE_MAGIC);
    header[8] = Version::CURRENT.0;
    let sum = checksum(&header[..24]);
    header[24..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Reads `N` bytes of a little-endian number at a fixed position of a fixed-size header.
fn le<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}
