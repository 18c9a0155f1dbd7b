//! Finds the blocks of a shard: by the index at the end, or by walking the block headers.

use super::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockHeader, BlockKind};
use super::block_ref::{BlockRef, Damage, payload};
use super::{Bytes, FILE_HEADER_BYTES, checksum, le};
use std::io;

/// Length of the trailer, bytes: offset of the index block, 8 zero bytes, magic, checksum.
pub(super) const TRAILER_BYTES: usize = 32;
const TRAILER_MAGIC: &[u8; 8] = b"RPDINDEX";
/// Length of one index entry, bytes: offset of the block, then its header.
pub(super) const ENTRY_BYTES: usize = 8 + BLOCK_HEADER_BYTES;
/// Bytes that the first search for a block after damage reads, and the maximum that one search reads.
const SEARCH_BYTES: (usize, usize) = (4 << 10, 1 << 20);

/// All blocks of a shard, by ascending offset, and its damage.
pub(super) struct Blocks {
    pub(super) blocks: Vec<BlockRef>,
    pub(super) damage: Vec<Damage>,
}

pub(super) fn trailer(index_offset: u64) -> [u8; TRAILER_BYTES] {
    let mut out = [0; TRAILER_BYTES];
    out[..8].copy_from_slice(&index_offset.to_le_bytes());
    out[16..24].copy_from_slice(TRAILER_MAGIC);
    let sum = checksum(&out[..24]);
    out[24..].copy_from_slice(&sum.to_le_bytes());
    out
}

pub(super) fn entry(block: &BlockRef) -> [u8; ENTRY_BYTES] {
    let mut out = [0; ENTRY_BYTES];
    out[..8].copy_from_slice(&block.offset.to_le_bytes());
    out[8..].copy_from_slice(&block.header.to_bytes());
    out
}

/// Finds all blocks: by the index if it is intact and matches the file, otherwise by walking the headers.
pub(super) fn find(bytes: &Bytes) -> io::Result<Blocks> {
    match from_index(bytes)? {
        Some(blocks) => Ok(Blocks { blocks, damage: Vec::new() }),
        None => walk(bytes),
    }
}

fn from_index(bytes: &Bytes) -> io::Result<Option<Vec<BlockRef>>> {
    let Some(trailer_offset) = bytes.len().checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let trailer = bytes.read(trailer_offset, TRAILER_BYTES)?;
    if &trailer[16..24] != TRAILER_MAGIC || checksum(&trailer[..24]) != u64::from_le_bytes(le(&trailer, 24)) {
        return Ok(None);
    }
    let offset = u64::from_le_bytes(le(&trailer, 0));
    let Ok(header) = bytes.read(offset, BLOCK_HEADER_BYTES) else { return Ok(None) };
    let Some(header) = BlockHeader::from_bytes(&header).filter(|h| h.kind == BlockKind::Index) else {
        return Ok(None);
    };
    let index = BlockRef { offset, header };
    if index.end() != trailer_offset {
        return Ok(None);
    }
    let Ok(payload) = payload(bytes, &index) else { return Ok(None) };
    if payload.len() % ENTRY_BYTES != 0 {
        return Ok(None);
    }
    let mut end = FILE_HEADER_BYTES as u64;
    let mut blocks = Vec::with_capacity(payload.len() / ENTRY_BYTES);
    for entry in payload.chunks_exact(ENTRY_BYTES) {
        let offset = u64::from_le_bytes(le(entry, 0));
        let Some(header) = BlockHeader::from_bytes(&entry[8..]) else { return Ok(None) };
        let block = BlockRef { offset, header };
        // Blocks are contiguous: an index that contradicts this was not written by this program.
        if offset != end {
            return Ok(None);
        }
        end = block.end();
        blocks.push(block);
    }
    Ok((end == index.offset).then_some(blocks))
}

fn walk(bytes: &Bytes) -> io::Result<Blocks> {
    let mut blocks = Vec::new();
    let mut damage = Vec::new();
    let mut offset = FILE_HEADER_BYTES as u64;
    while offset < bytes.len() {
        let header = bytes.read(offset, BLOCK_HEADER_BYTES).ok().and_then(|b| BlockHeader::from_bytes(&b));
        if let Some(header) = header {
            let block = BlockRef { offset, header };
            if block.end() > bytes.len() {
                // The file was truncated inside this block; its header still describes the lost rows.
                damage.push(Damage { offset, bytes: bytes.len() - offset, block: Some(header) });
                break;
            }
            offset = block.end();
            if header.kind != BlockKind::Index {
                blocks.push(block);
            }
            continue;
        }
        let next = search(bytes, offset + 1)?.unwrap_or(bytes.len());
        let is_trailer = next == bytes.len() && next - offset == TRAILER_BYTES as u64;
        if !is_trailer {
            damage.push(Damage { offset, bytes: next - offset, block: None });
        }
        offset = next;
    }
    Ok(Blocks { blocks, damage })
}

/// Returns the offset of the first valid block header at or after `from`.
fn search(bytes: &Bytes, mut from: u64) -> io::Result<Option<u64>> {
    // The next block is usually near. The search starts small so that a file with much damage is not read over and
    // over.
    let mut wanted = SEARCH_BYTES.0;
    while from < bytes.len() {
        let length = wanted.min((bytes.len() - from) as usize);
        let chunk = bytes.read(from, length)?;
        let candidates = chunk.windows(BLOCK_MAGIC.len()).enumerate().filter(|(_, w)| w == BLOCK_MAGIC);
        for (i, _) in candidates {
            let offset = from + i as u64;
            let header = bytes.read(offset, BLOCK_HEADER_BYTES).ok();
            if header.is_some_and(|h| BlockHeader::from_bytes(&h).is_some()) {
                return Ok(Some(offset));
            }
        }
        if length < wanted {
            return Ok(None);
        }
        wanted = (wanted * 2).min(SEARCH_BYTES.1);
        // A magic may extend across the boundary of two chunks.
        from += (length - BLOCK_MAGIC.len() + 1) as u64;
    }
    Ok(None)
}
