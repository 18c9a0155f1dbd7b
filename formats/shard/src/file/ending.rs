//! The end of a shard, and where its room comes from.
//!
//! A shard is full when it has reached its limit, or when its file system takes no more. From then on
//! rows are counted and not written. The end (ledger, processes, identity, index, trailer) still comes:
//! below a limit its room is kept free, and elsewhere the last blocks are given up for it. What a row
//! refers to is before it in the file, so that the blocks before any other are whole without it.

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

/// Maximum bytes of an entry of the ledger: of what is written, and of what is lost.
const LEDGER_ENTRY_BYTES: (usize, usize) = (17, 20);
/// Maximum bytes of the two lengths in the ledger.
const LEDGER_LENGTH_BYTES: usize = 18;

/// What an end has beside ledger, identity and index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Extras {
    None,
    Processes,
    ProcessesAndClocks,
}

impl<W: Write> ShardWriter<W> {
    /// Upper bound of the size of the end, bytes.
    pub(super) fn max_end_bytes(&self) -> u64 {
        let tables = self.places.len() + 1;
        let (written, lost) = LEDGER_ENTRY_BYTES;
        let ledger = LEDGER_LENGTH_BYTES + tables * written + (self.losses.len() + tables) * lost;
        let clocks = self.reserve.clocks_from(self.position);
        let records = self.processes.len() + usize::from(self.command.is_some()) + clocks.len() + 2;
        let index = (self.blocks.len() + records) * ENTRY_BYTES;
        max_block_bytes(ledger)
            + self.reserve.process_bytes
            + clocks.iter().map(|kept| max_block_bytes(kept.raw.len())).sum::<u64>()
            + max_block_bytes(self.identity.len())
            + max_block_bytes(index)
            + (TRAILER_BYTES + FILE_HEADER_BYTES) as u64
    }

    /// From now on rows are counted, and so are those in no block yet.
    pub(super) fn fill(&mut self) {
        self.reserve.full = true;
        for open in &mut self.pending {
            open.lose_pending(&self.schema);
        }
        self.pending_rows = 0;
        self.strings.lose_pending();
    }

    /// Takes the last block out of the shard and counts its rows as lost.
    fn give_up_block(&mut self) {
        let Some(BlockRef { offset, header }) = self.blocks.pop() else { return };
        // Without its first block, a shard begins again with its header.
        self.position = if self.blocks.is_empty() { 0 } else { offset };
        let rows = u64::from(header.rows);
        match header.kind {
            BlockKind::Rows(rocpd::STRING) if header.source == 0 => self.strings.give_up(rows),
            BlockKind::Rows(table) => {
                if let Some(open) = self.places.get(&(header.source, table)).map(|p| &mut self.pending[*p]) {
                    open.kept -= rows;
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
            (*source, *table, open.kept, open.lost)
        });
        let tables: Vec<_> = std::iter::once(strings).chain(open).collect();
        let mut losses = self.losses.clone();
        for (source, table, _, lost) in tables.iter().filter(|(.., lost)| *lost > 0) {
            let sum = losses.entry((*source, Some(*table), LossCause::NoSpace)).or_insert(Some(0));
            *sum = sum.map(|sum| sum.saturating_add(*lost));
        }
        let losses = losses.into_iter();
        Ledger {
            written: tables.iter().map(|(source, table, kept, _)| (*source, *table, *kept)).collect(),
            losses: losses
                .map(|((source, table, cause), rows)| Loss { source, table, cause, rows })
                .collect(),
        }
    }

    /// What comes after the last block: ledger, processes and identity once more (they survive damage
    /// to the first copies), clocks whose blocks were given up, index, trailer.
    fn end_bytes(&mut self, extras: Extras) -> Result<Vec<u8>, WriteError> {
        let mut records = vec![(BlockKind::Ledger, 0, wire::encode(&self.ledger()))];
        if extras >= Extras::Processes {
            let processes = self.processes.iter();
            records.extend(processes.map(|(source, raw)| (BlockKind::Process, *source, raw.clone())));
            records.extend(self.command.iter().map(|raw| (BlockKind::Command, 0, raw.clone())));
        }
        if extras >= Extras::ProcessesAndClocks {
            let clocks = self.reserve.clocks_from(self.position).iter();
            records.extend(clocks.map(|kept| (kept.kind, 0, kept.raw.clone())));
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
        // A reader does without an index that would be too long: it walks the headers.
        if entries.len() <= MAX_RAW_BYTES {
            let offset = self.position + end.len() as u64;
            let header = self.compress(record_header(BlockKind::Index, 0), &entries)?;
            end.extend_from_slice(&header.to_bytes());
            end.extend_from_slice(&self.stored);
            end.extend_from_slice(&index::trailer(offset));
        }
        Ok(end)
    }

    /// Ends the shard: pending rows, ledger, identity and processes once more, index, trailer.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        let end = self.end_bytes(Extras::ProcessesAndClocks)?;
        self.sink.write_all(&end)?;
        self.sink.flush()?;
        Ok(self.sink)
    }
}

/// For a file whose owner writes it piece by piece, and knows how far that went: the sink holds what
/// is not written yet.
impl ShardWriter<Vec<u8>> {
    /// Sets the most bytes that the file may have, before any of them is written. Room for the end is
    /// kept free.
    pub fn set_limit(&mut self, bytes: u64) {
        self.reserve.limit = bytes;
        if self.position + self.max_end_bytes() > bytes {
            self.stop(0);
        }
    }

    /// Whether rows are no longer written: they are counted as [`LossCause::NoSpace`].
    pub fn is_full(&self) -> bool {
        self.reserve.full
    }

    /// Offset in the file and bytes that are to be written next.
    pub fn unwritten(&self) -> (u64, &[u8]) {
        (self.position - self.sink.len() as u64, &self.sink)
    }

    /// What [`ShardWriter::unwritten`] gave is in the file.
    pub fn clear(&mut self) {
        self.sink.clear();
    }

    /// The file takes no more, and no more than its first `reached` bytes are there: blocks after
    /// that are given up, and rows are counted from now on.
    pub fn stop(&mut self, reached: u64) {
        self.fill();
        while self.blocks.last().is_some_and(|block| block.end() > reached) {
            self.give_up_block();
        }
        self.sink.clear();
    }

    /// The end as of now, and its offset in the file: after the last block, or before it if it would
    /// not fit into `room` bytes of file otherwise. What is in no block by then counts as lost. `None`
    /// if there is no room even without any block. May be asked again with less room.
    pub fn end(&mut self, room: u64) -> Result<Option<(u64, Vec<u8>)>, WriteError> {
        let (sink_offset, _) = self.unwritten();
        self.fill();
        let mut end = self.end_bytes(Extras::ProcessesAndClocks)?;
        if self.position + end.len() as u64 > room {
            while !self.blocks.is_empty() && self.position + self.max_end_bytes() > room {
                self.give_up_block();
            }
            self.cut_sink(sink_offset);
            for extras in [Extras::ProcessesAndClocks, Extras::Processes, Extras::None] {
                end = self.end_bytes(extras)?;
                if self.position + end.len() as u64 <= room {
                    break;
                }
            }
        }
        let fits = self.position + end.len() as u64 <= room;
        Ok(fits.then_some((self.position, end)))
    }

    /// Forgets what is after the last block.
    fn cut_sink(&mut self, offset: u64) {
        self.sink.truncate(usize::try_from(self.position.saturating_sub(offset)).unwrap_or(usize::MAX));
    }
}
