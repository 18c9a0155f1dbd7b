/// Minimum memory for drawing a unit, bytes: two pieces of its rows, the values of their events, and the items.
const MIN_UNIT_BYTES: u64 = 12 << 20;
/// Memory for compressing a piece of a trace, bytes: input, output and the compressor.
const PIECE_BYTES: u64 = 3 << 20;

/// How the memory of a rank is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryShares {
    /// Number of units that are drawn at once.
    pub(crate) units_at_once: usize,
    /// Number of pieces that wait for compression.
    pub(crate) waiting_pieces: usize,
    /// Memory for sorting a unit's items, bytes.
    pub(crate) sort_bytes: u64,
    /// Memory for reading a unit's rows, bytes.
    pub(crate) read_bytes: u64,
}

impl MemoryShares {
    /// Divides `memory`, the bytes of a rank, between this many threads, for this many units.
    pub(crate) fn new(memory: u64, threads: usize, units: usize) -> MemoryShares {
        let waiting_pieces =
            usize::try_from(memory / 4 / PIECE_BYTES).unwrap_or(usize::MAX).clamp(1, 2 * threads);
        let left = memory.saturating_sub(waiting_pieces as u64 * PIECE_BYTES).max(MIN_UNIT_BYTES);
        let fit = usize::try_from(left / MIN_UNIT_BYTES).unwrap_or(usize::MAX);
        let units_at_once = fit.clamp(1, threads.min(units).max(1));
        let each = left / units_at_once as u64;
        MemoryShares { units_at_once, waiting_pieces, sort_bytes: each / 2, read_bytes: each / 4 }
    }
}
