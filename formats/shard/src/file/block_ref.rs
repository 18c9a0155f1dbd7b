//! Blocks by their place in the file.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::{Bytes, checksum};
use crate::codec::DecodeError;
use std::cell::RefCell;
use std::io;
use zstd::bulk::Decompressor;

/// A block, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRef {
    /// Where its header begins.
    pub offset: u64,
    /// Its header.
    pub header: BlockHeader,
}

impl BlockRef {
    /// The offset after it.
    pub fn end(&self) -> u64 {
        self.offset + self.header.total_bytes()
    }
}

/// Bytes of a shard that belong to no whole block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// The header, where it alone is whole: the file was cut in this block.
    pub block: Option<BlockHeader>,
}

/// What is wrong with a block.
#[derive(Debug, thiserror::Error)]
pub enum BlockDamage {
    /// The operating system reported an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The stored bytes are not those that were written.
    #[error("checksum does not match")]
    Checksum,
    /// zstd cannot read them, or they have another length than in the header.
    #[error("compressed data is damaged")]
    Zstd,
    /// The columns are malformed.
    #[error("{0}")]
    Columns(#[from] DecodeError),
    /// A table that is described nowhere.
    #[error("the table is not described in this shard")]
    UnknownTable,
    /// More or longer strings than a shard may have, or ids that go backwards.
    #[error("strings are out of bounds")]
    Strings,
}

thread_local! {
    /// To make one takes longer than to read a small block, and some shards have a million of them.
    static ZSTD: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn decompressed(stored: &[u8], max_bytes: usize) -> io::Result<Vec<u8>> {
    ZSTD.with_borrow_mut(|known| match known {
        Some(zstd) => zstd.decompress(stored, max_bytes),
        None => known.insert(Decompressor::new()?).decompress(stored, max_bytes),
    })
}

/// The decompressed payload of a block.
pub(super) fn payload(bytes: &Bytes, block: &BlockRef) -> Result<Vec<u8>, BlockDamage> {
    let header = &block.header;
    let stored = bytes.read(block.offset + BLOCK_HEADER_BYTES as u64, header.stored_bytes as usize)?;
    if checksum(&stored) != header.checksum {
        return Err(BlockDamage::Checksum);
    }
    // The header's length bounds the output, whatever the compressed data claims.
    let raw = decompressed(&stored, header.raw_bytes as usize).map_err(|_| BlockDamage::Zstd)?;
    if raw.len() != header.raw_bytes as usize {
        return Err(BlockDamage::Zstd);
    }
    Ok(raw)
}
