//! Memory for pages, which are encoded there and written from there without a copy.

use super::PAGE_SIZE;
use std::sync::{Mutex, PoisonError};

/// Number of piece sizes: 1, 2, 4, 8, 16 and 32 pages.
const SIZES: usize = 6;

/// Consecutive pages in memory. They start at a multiple of the page size, as direct I/O requires, and never move.
#[derive(Debug)]
pub(super) struct PagePiece {
    memory: Box<[u8]>,
    /// Offset of the first page in `memory`.
    start: usize,
    /// Number of filled bytes: whole pages.
    length: usize,
}

impl PagePiece {
    fn new(pages: usize) -> PagePiece {
        let memory = vec![0; (pages + 1) * PAGE_SIZE].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
        PagePiece { memory, start, length: 0 }
    }

    fn capacity(&self) -> usize {
        self.memory.len() - PAGE_SIZE
    }

    pub(super) fn is_full(&self) -> bool {
        self.length == self.capacity()
    }

    /// Returns the next page with undefined previous content. The piece must not be full.
    pub(super) fn next_page(&mut self) -> &mut [u8] {
        let from = self.start + self.length;
        self.length += PAGE_SIZE;
        &mut self.memory[from..from + PAGE_SIZE]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Memory of written pages, kept for reuse: the first access to fresh memory takes as long as the encoding. Several
/// threads share it.
#[derive(Debug, Default)]
pub struct PageMemory {
    spare: Mutex<Spare>,
    /// Maximum number of bytes that are kept.
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Spare {
    /// Unused pieces of each size.
    pieces: [Vec<PagePiece>; SIZES],
    bytes: usize,
}

impl PageMemory {
    /// Creates memory that keeps at most this many unused bytes.
    pub fn new(bytes: usize) -> PageMemory {
        PageMemory { spare: Mutex::default(), max_bytes: bytes }
    }

    /// Returns a piece for the pages that follow the first `preceding` pages of a run. Pieces are small at first,
    /// because most tables of a small input have few rows.
    pub(super) fn take(&self, preceding: usize) -> PagePiece {
        let size = (preceding + 1).ilog2().min(SIZES as u32 - 1) as usize;
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match spare.pieces[size].pop() {
            Some(piece) => {
                spare.bytes -= piece.memory.len();
                piece
            }
            None => PagePiece::new(1 << size),
        }
    }

    /// Accepts pieces for reuse, after their pages were written.
    pub(super) fn give(&self, pieces: Vec<PagePiece>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        for mut piece in pieces {
            if spare.bytes + piece.memory.len() <= self.max_bytes {
                spare.bytes += piece.memory.len();
                piece.length = 0;
                let size = (piece.capacity() / PAGE_SIZE).ilog2() as usize;
                spare.pieces[size].push(piece);
            }
        }
    }
}
