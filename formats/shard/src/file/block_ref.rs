//! Positions of blocks in the file, and reading of their payload.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::{Bytes, checksum};
use crate::codec::DecodeError;
use std::cell::RefCell;
use std::io;
use zstd::bulk::Decompressor;

/// A block and its position in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRef {
    /// Offset of the block's header, bytes.
    pub offset: u64,
    /// Header of the block.
    pub header: BlockHeader,
}

impl BlockRef {
    /// Returns the offset of the first byte after the block.
    pub fn end(&self) -> u64 {
        self.offset + self.header.total_bytes()
    }
}

/// Bytes of a shard that do not belong to a complete block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Offset of the first of these bytes.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The block's header if only the header is intact: the file was truncated inside this block.
    pub block: Option<BlockHeader>,
}

/// Reason why a block cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BlockDamage {
    /// The operating system reported an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The stored bytes differ from those that were written.
    #[error("checksum does not match")]
    Checksum,
    /// zstd cannot decompress the bytes, or their length differs from the header.
    #[error("compressed data is damaged")]
    Zstd,
    /// The columns are malformed.
    #[error("{0}")]
    Columns(#[from] DecodeError),
    /// The shard does not describe the table.
    #[error("the table is not described in this shard")]
    UnknownTable,
    /// The strings exceed the limits of a shard, or their ids do not ascend.
    #[error("strings are out of bounds")]
    Strings,
}

thread_local! {
    /// Decompressor of this thread. Creating one takes longer than reading a small block, and some shards have a
    /// million blocks.
    static ZSTD: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn decompressed(stored: &[u8], max_bytes: usize) -> io::Result<Vec<u8>> {
    ZSTD.with_borrow_mut(|known| match known {
        Some(zstd) => zstd.decompress(stored, max_bytes),
        None => known.insert(Decompressor::new()?).decompress(stored, max_bytes),
    })
}

/// Reads the payload of a block, checks its checksum and decompresses it.
pub(super) fn payload(bytes: &Bytes, block: &BlockRef) -> Result<Vec<u8>, BlockDamage> {
    let header = &block.header;
    let stored = bytes.read(block.offset + BLOCK_HEADER_BYTES as u64, header.stored_bytes as usize)?;
    if checksum(&stored) != header.checksum {
        return Err(BlockDamage::Checksum);
    }
    // The length in the header bounds the output, whatever length the compressed data claims.
    let raw = decompressed(&stored, header.raw_bytes as usize).map_err(|_| BlockDamage::Zstd)?;
    if raw.len() != header.raw_bytes as usize {
        return Err(BlockDamage::Zstd);
    }
    Ok(raw)
}
