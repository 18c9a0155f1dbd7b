//! Memory of pages: where they are encoded, and from where they are written without being copied.

use super::PAGE_SIZE;
use std::sync::{Mutex, PoisonError};

/// Sizes of pieces: 1, 2, 4, 8, 16 and 32 pages.
const SIZES: usize = 6;

/// Consecutive pages in memory. They begin at a multiple of the page size, as direct I/O asks for, and stay where
/// they are.
#[derive(Debug)]
pub(super) struct PagePiece {
    memory: Box<[u8]>,
    /// Where the first page begins.
    start: usize,
    /// Bytes that are filled: whole pages.
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

    /// The next page, with whatever was in this memory before. There must be room for it.
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

/// Memory of pages that were written, for those to come: the first touch of fresh memory takes as long as the
/// encoding. Threads share it.
#[derive(Debug, Default)]
pub struct PageMemory {
    spare: Mutex<Spare>,
    /// Maximum bytes that are kept.
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Spare {
    /// Pieces of each size.
    pieces: [Vec<PagePiece>; SIZES],
    bytes: usize,
}

impl PageMemory {
    /// Keeps at most this many bytes that are not in use.
    pub fn new(bytes: usize) -> PageMemory {
        PageMemory { spare: Mutex::default(), max_bytes: bytes }
    }

    /// A piece for what comes after so many pages of a run: most tables of a small input have few rows.
    pub(super) fn take(&self, behind: usize) -> PagePiece {
        let size = (behind + 1).ilog2().min(SIZES as u32 - 1) as usize;
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match spare.pieces[size].pop() {
            Some(piece) => {
                spare.bytes -= piece.memory.len();
                piece
            }
            None => PagePiece::new(1 << size),
        }
    }

    /// Takes back pieces whose pages were written.
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
