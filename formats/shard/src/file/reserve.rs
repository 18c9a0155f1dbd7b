//! Space that is kept free for the end of a shard.

use super::block::{BLOCK_HEADER_BYTES, BlockKind};

/// Maximum number of clock sets that are kept in case their blocks are discarded. The same number of probe bursts
/// is kept.
const KEPT_CLOCKS: usize = 128;

/// Space that the end needs, as far as it is not counted elsewhere.
pub(super) struct Reserve {
    /// Maximum bytes of the shard.
    pub(super) limit: u64,
    /// Whether rows are only counted.
    pub(super) full: bool,
    /// Maximum bytes of all process records together.
    pub(super) process_bytes: u64,
    /// Clock sets and probe bursts as stored.
    clocks: Vec<Kept>,
}

/// A record that is written again after the ledger if its block is discarded.
pub(super) struct Kept {
    pub(super) kind: BlockKind,
    /// Offset of its block; `u64::MAX` if it was not written to a block.
    offset: u64,
    pub(super) raw: Vec<u8>,
}

impl Default for Reserve {
    fn default() -> Reserve {
        Reserve { limit: u64::MAX, full: false, process_bytes: 0, clocks: Vec::new() }
    }
}

impl Reserve {
    /// Counts the record of a process, in place of an earlier one.
    pub(super) fn exchange_process(&mut self, before: Option<Vec<u8>>, raw: &[u8]) {
        self.process_bytes += max_block_bytes(raw.len());
        self.process_bytes -= before.map_or(0, |before| max_block_bytes(before.len()));
    }

    /// Keeps a record. If the limit of its kind is reached, every second kept record is dropped first. Older
    /// records thus become sparse and recent ones stay dense. Recent ones matter most, because blocks are discarded
    /// from the end.
    pub(super) fn keep(&mut self, kind: BlockKind, offset: u64, raw: Vec<u8>) {
        if self.clocks.iter().filter(|held| held.kind == kind).count() == KEPT_CLOCKS {
            let mut keep = false;
            self.clocks.retain(|held| {
                keep ^= held.kind == kind;
                keep || held.kind != kind
            });
        }
        self.clocks.push(Kept { kind, offset, raw });
    }

    /// Returns the records that are in no block before `position`. The records ascend by offset.
    pub(super) fn clocks_from(&self, position: u64) -> &[Kept] {
        let first = self.clocks.partition_point(|held| held.offset < position);
        self.clocks.get(first..).unwrap_or_default()
    }
}

/// Returns the maximum bytes of a block with a payload of `raw` bytes.
pub(super) fn max_block_bytes(raw: usize) -> u64 {
    (BLOCK_HEADER_BYTES + zstd::zstd_safe::compress_bound(raw)) as u64
}
