//! The end of a shard, and the space that is kept free for it.
//!
//! A shard is full when it has reached its limit, or when its file system accepts no more bytes. From then on the
//! writer counts rows without writing them. It still writes the end: ledger, processes, identity, index and
//! trailer.
//!
//! * With a limit, the writer keeps space for the end free.
//! * Without a limit, it discards the last blocks to make space.
//!
//! A row refers only to rows before it in the file. Therefore the remaining blocks are complete without the
//! discarded ones.

use super::block::BlockKind;
use super::block_ref::BlockRef;
use super::index::{self, ENTRY_BYTES, TRAILER_BYTES};
use super::reserve::max_block_bytes;
use super::writer::{ShardWriter, WriteError, record_header};
use super::{FILE_HEADER_BYTES, file_header};
use crate::codec::MAX_RAW_BYTES;
use crate::model::rocpd;
use crate::record::{Ledger, Loss, LossCause, wire};
use std::io::Write;

/// Maximum bytes of one entry of the ledger: for written rows, and for lost rows.
const LEDGER_ENTRY_BYTES: (usize, usize) = (17, 20);
/// Maximum bytes of the two list lengths in the ledger.
const LEDGER_LENGTH_BYTES: usize = 18;

/// Records that an end contains in addition to ledger, identity and index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Extras {
    None,
    Processes,
    ProcessesAndClocks,
}

impl<W: Write> ShardWriter<W> {
    /// Returns an upper bound of the size of the end, bytes.
    pub(super) fn max_end_bytes(&self) -> u64 {
        let tables = self.places.len() + 1;
        let (written, lost) = LEDGER_ENTRY_BYTES;
        let ledger = LEDGER_LENGTH_BYTES + tables * written + (self.losses.len() + tables) * lost;
        let clocks = self.reserve.clocks_from(self.position);
        let records = self.processes.len() + usize::from(self.command.is_some()) + clocks.len() + 2;
        let index = (self.blocks.len() + records) * ENTRY_BYTES;
        max_block_bytes(ledger)
            + self.reserve.process_bytes
            + clocks.iter().map(|held| max_block_bytes(held.raw.len())).sum::<u64>()
            + max_block_bytes(self.identity.len())
            + max_block_bytes(index)
            + (TRAILER_BYTES + FILE_HEADER_BYTES) as u64
    }

    /// Declares the shard full: from now on rows are only counted. Pending rows, which are in no block yet, count
    /// as lost.
    pub(super) fn fill(&mut self) {
        self.reserve.full = true;
        for open in &mut self.pending {
            open.lose_pending(&self.schema);
        }
        self.pending_rows = 0;
        self.strings.lose_pending();
    }

    /// Discards the last block and counts its rows as lost.
    fn give_up_block(&mut self) {
        let Some(BlockRef { offset, header }) = self.blocks.pop() else { return };
        // If no block remains, the file header must be written again too.
        self.position = if self.blocks.is_empty() { 0 } else { offset };
        let rows = u64::from(header.rows);
        match header.kind {
            BlockKind::Rows(rocpd::STRING) if header.source == 0 => self.strings.give_up(rows),
            BlockKind::Rows(table) => {
                if let Some(open) = self.places.get(&(header.source, table)).map(|p| &mut self.pending[*p]) {
                    open.written -= rows;
                    open.lost += rows;
                }
            }
            _ => {}
        }
    }

    fn ledger(&self) -> Ledger {
        let strings = (0, rocpd::STRING, self.strings.flushed as u64, self.strings.lost);
        let open = self.places.iter().map(|((source, table), place)| {
            let open = &self.pending[*place];
            (*source, *table, open.written, open.lost)
        });
        let tables: Vec<_> = std::iter::once(strings).chain(open).collect();
        let mut losses = self.losses.clone();
        for (source, table, _, lost) in tables.iter().filter(|(.., lost)| *lost > 0) {
            let sum = losses.entry((*source, Some(*table), LossCause::NoSpace)).or_insert(Some(0));
            *sum = sum.map(|sum| sum.saturating_add(*lost));
        }
        let losses = losses.into_iter();
        Ledger {
            written: tables.iter().map(|(source, table, written, _)| (*source, *table, *written)).collect(),
            losses: losses
                .map(|((source, table, cause), rows)| Loss { source, table, cause, rows })
                .collect(),
        }
    }

    /// Encodes the part after the last block.
    ///
    /// It contains the ledger, second copies of processes, command and identity, clock records of discarded blocks,
    /// the index and the trailer. The second copies survive damage to the first ones.
    fn end_bytes(&mut self, extras: Extras) -> Result<Vec<u8>, WriteError> {
        let mut records = vec![(BlockKind::Ledger, 0, wire::encode(&self.ledger()))];
        if extras >= Extras::Processes {
            let processes = self.processes.iter();
            records.extend(processes.map(|(source, raw)| (BlockKind::Process, *source, raw.clone())));
            records.extend(self.command.iter().map(|raw| (BlockKind::Command, 0, raw.clone())));
        }
        if extras >= Extras::ProcessesAndClocks {
            let clocks = self.reserve.clocks_from(self.position).iter();
            records.extend(clocks.map(|held| (held.kind, 0, held.raw.clone())));
        }
        records.push((BlockKind::Identity, 0, self.identity.clone()));

        let mut end = Vec::new();
        if self.blocks.is_empty() {
            end.extend_from_slice(&file_header());
        }
        let mut entries: Vec<u8> = self.blocks.iter().flat_map(index::entry).collect();
        for (kind, source, raw) in records {
            let offset = self.position + end.len() as u64;
            let header = self.compress(record_header(kind, source), &raw)?;
            end.extend_from_slice(&header.to_bytes());
            end.extend_from_slice(&self.stored);
            entries.extend_from_slice(&index::entry(&BlockRef { offset, header }));
        }
        // If the index is too long it is omitted; readers then walk the block headers.
        if entries.len() <= MAX_RAW_BYTES {
            let offset = self.position + end.len() as u64;
            let header = self.compress(record_header(BlockKind::Index, 0), &entries)?;
            end.extend_from_slice(&header.to_bytes());
            end.extend_from_slice(&self.stored);
            end.extend_from_slice(&index::trailer(offset));
        }
        Ok(end)
    }

    /// Ends the shard: writes pending rows, ledger, second copies of identity and processes, index and trailer.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        let end = self.end_bytes(Extras::ProcessesAndClocks)?;
        self.sink.write_all(&end)?;
        self.sink.flush()?;
        Ok(self.sink)
    }
}

/// Methods for a caller that writes the file itself, piece by piece, and tracks how many bytes it has written. The
/// sink holds the bytes that are not written yet.
impl ShardWriter<Vec<u8>> {
    /// Sets the maximum size of the file, bytes. Must be called before any byte is written. The writer keeps space
    /// for the end free.
    pub fn set_limit(&mut self, bytes: u64) {
        self.reserve.limit = bytes;
        if self.position + self.max_end_bytes() > bytes {
            self.stop(0);
        }
    }

    /// Returns whether the shard is full: further rows are only counted, as [`LossCause::NoSpace`].
    pub fn is_full(&self) -> bool {
        self.reserve.full
    }

    /// Returns the bytes to write next and their offset in the file.
    pub fn unwritten(&self) -> (u64, &[u8]) {
        (self.position - self.sink.len() as u64, &self.sink)
    }

    /// Clears the sink after the caller has written the bytes of [`ShardWriter::unwritten`] to the file.
    pub fn clear(&mut self) {
        self.sink.clear();
    }

    /// Declares the shard full after the file accepted only its first `reached` bytes. Blocks beyond that are
    /// discarded; from now on rows are only counted.
    pub fn stop(&mut self, reached: u64) {
        self.fill();
        while self.blocks.last().is_some_and(|block| block.end() > reached) {
            self.give_up_block();
        }
        self.sink.clear();
    }

    /// Returns the end of the shard as of now, and its offset in the file.
    ///
    /// The end follows the last block. If it would not fit into a file of `max_bytes` bytes, blocks are discarded until
    /// it fits. Rows that are in no block yet count as lost. Returns `None` if the end does not fit even without
    /// any block. May be called again with a smaller `max_bytes`.
    pub fn end(&mut self, max_bytes: u64) -> Result<Option<(u64, Vec<u8>)>, WriteError> {
        let (sink_offset, _) = self.unwritten();
        self.fill();
        let mut end = self.end_bytes(Extras::ProcessesAndClocks)?;
        if self.position + end.len() as u64 > max_bytes {
            while !self.blocks.is_empty() && self.position + self.max_end_bytes() > max_bytes {
                self.give_up_block();
            }
            self.cut_sink(sink_offset);
            for extras in [Extras::ProcessesAndClocks, Extras::Processes, Extras::None] {
                end = self.end_bytes(extras)?;
                if self.position + end.len() as u64 <= max_bytes {
                    break;
                }
            }
        }
        let fits = self.position + end.len() as u64 <= max_bytes;
        Ok(fits.then_some((self.position, end)))
    }

    /// Discards the bytes of the sink after the last block. `offset` is the position of the sink's first byte in
    /// the file.
    fn cut_sink(&mut self, offset: u64) {
        self.sink.truncate(usize::try_from(self.position.saturating_sub(offset)).unwrap_or(usize::MAX));
    }
}
