//! The room that is kept free for the end of a shard.

use super::block::{BLOCK_HEADER_BYTES, BlockKind};

/// Clock sets that are kept for the case that their blocks are given up, and as many bursts of probes.
const KEPT_CLOCKS: usize = 128;

/// What the end needs, as far as it is not counted elsewhere.
pub(super) struct Reserve {
    /// Maximum bytes of the shard.
    pub(super) limit: u64,
    /// Rows are counted only.
    pub(super) full: bool,
    /// Maximum bytes of all process records together.
    pub(super) process_bytes: u64,
    /// Clock sets and bursts of probes as they are stored.
    clocks: Vec<Kept>,
}

/// What is written again after the ledger if its block is given up.
pub(super) struct Kept {
    pub(super) kind: BlockKind,
    /// Where its block begins; `u64::MAX` if it is in none.
    offset: u64,
    pub(super) raw: Vec<u8>,
}

impl Default for Reserve {
    fn default() -> Reserve {
        Reserve { limit: u64::MAX, full: false, process_bytes: 0, clocks: Vec::new() }
    }
}

impl Reserve {
    /// Keeps a record. Of many of a kind, the older ones are thinned out: blocks are given up from the end.
    pub(super) fn keep(&mut self, kind: BlockKind, offset: u64, raw: Vec<u8>) {
        if self.clocks.iter().filter(|kept| kept.kind == kind).count() == KEPT_CLOCKS {
            let mut keep = false;
            self.clocks.retain(|kept| {
                keep ^= kept.kind == kind;
                keep || kept.kind != kind
            });
        }
        self.clocks.push(Kept { kind, offset, raw });
    }

    /// Records that are in no block before `position`: they ascend by offset.
    pub(super) fn clocks_from(&self, position: u64) -> &[Kept] {
        let first = self.clocks.partition_point(|kept| kept.offset < position);
        self.clocks.get(first..).unwrap_or_default()
    }
}

/// Maximum bytes of a block with a payload of `raw` bytes.
pub(super) fn max_block_bytes(raw: usize) -> u64 {
    (BLOCK_HEADER_BYTES + zstd::zstd_safe::compress_bound(raw)) as u64
}
