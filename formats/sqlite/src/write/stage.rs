//! The leaf page that is being filled.

use super::PAGE_SIZE;
use super::memory::PageMemory;
use super::run::Pages;
use crate::format::TABLE_LEAF;
use std::sync::Arc;

/// Number of bytes before the page: a cell is encoded before the writer can check whether it fits.
const HEADROOM: usize = 3 * PAGE_SIZE;
/// Size of the staging buffer in bytes; the page is at its end.
pub(super) const STAGE: usize = HEADROOM + PAGE_SIZE;
/// Number of bytes before the cell pointers.
const HEAD: usize = 8;
/// Maximum number of cells on a page: a cell has at least 4 bytes, and a pointer of 2.
const MAX_CELLS: usize = (PAGE_SIZE - HEAD) / 6;

/// The staging buffer. Cells are written from its end to its start, each from its last byte to its first. Every
/// length is therefore known when it is written. A value may be stored as 8 bytes, because the bytes before it
/// overwrite the superfluous ones.
pub(super) type Bytes = [u8; STAGE];

/// Finished leaves, and the leaf that is being filled.
#[derive(Debug)]
pub(super) struct Leaves {
    /// Finished pages.
    pub(super) done: Pages,
    /// Source of the pages' memory.
    pub(super) memory: Arc<PageMemory>,
    /// The last rowid of each finished page.
    last_rowids: Vec<i64>,
    /// The cells of the current page, at the end of the buffer.
    pub(super) stage: Box<Bytes>,
    /// Offset of the first cell in `stage`.
    pub(super) start: usize,
    /// Page header and cell pointers of the current page.
    head: Box<[u8; HEAD + 2 * MAX_CELLS]>,
    cells: usize,
    last_rowid: i64,
}

impl Leaves {
    pub(super) fn new(memory: Arc<PageMemory>) -> Leaves {
        Leaves {
            done: Pages::default(),
            memory,
            last_rowids: Vec::new(),
            stage: Box::new([0; STAGE]),
            start: STAGE,
            head: Box::new([0; HEAD + 2 * MAX_CELLS]),
            cells: 0,
            last_rowid: 0,
        }
    }

    /// Adds the cell that was encoded directly before the others, starting at `start`. Uses a new page if the cell
    /// does not fit.
    #[inline]
    pub(super) fn take(&mut self, start: usize, rowid: i64) {
        let mut start = start;
        if start < HEADROOM + HEAD + 2 * (self.cells + 1) {
            start = self.turn(start);
        }
        let offset = ((start - HEADROOM) as u16).to_be_bytes();
        self.head[HEAD + 2 * self.cells..][..2].copy_from_slice(&offset);
        self.cells += 1;
        self.start = start;
        self.last_rowid = rowid;
    }

    /// Adds a cell that was encoded elsewhere. Returns its byte offset in the finished pages.
    pub(super) fn take_bytes(&mut self, cell: &[u8], rowid: i64) -> usize {
        let start = self.start - cell.len();
        self.stage[start..self.start].copy_from_slice(cell);
        self.take(start, rowid);
        self.done.count() * PAGE_SIZE + self.start - HEADROOM
    }

    /// Finishes the page without the cell at `start`, and moves that cell to the end of a new page.
    #[cold]
    fn turn(&mut self, start: usize) -> usize {
        let length = self.start - start;
        self.finish_page();
        self.stage.copy_within(start..start + length, STAGE - length);
        STAGE - length
    }

    /// Finishes the page; drops an empty one.
    fn finish_page(&mut self) {
        if self.cells == 0 {
            return;
        }
        let head = HEAD + 2 * self.cells;
        let cells = &self.stage[self.start..];
        let [count_high, count_low] = (self.cells as u16).to_be_bytes();
        let [content_high, content_low] = ((PAGE_SIZE - cells.len()) as u16).to_be_bytes();
        self.head[..HEAD].copy_from_slice(&[
            TABLE_LEAF,
            0,
            0,
            count_high,
            count_low,
            content_high,
            content_low,
            0,
        ]);
        let page = self.done.next_page(&self.memory);
        page[..head].copy_from_slice(&self.head[..head]);
        page[head..PAGE_SIZE - cells.len()].fill(0);
        page[PAGE_SIZE - cells.len()..].copy_from_slice(cells);
        self.last_rowids.push(self.last_rowid);
        self.cells = 0;
        self.start = STAGE;
    }

    /// Finishes the page, and appends the overflow pages.
    pub(super) fn finish(mut self, overflow: Pages) -> (Pages, Vec<i64>) {
        self.finish_page();
        self.done.append(overflow);
        (self.done, self.last_rowids)
    }
}

/// Writes a number so that its last byte is directly before `end`. Bytes before the number are overwritten.
#[inline(always)]
pub(super) fn put_number(stage: &mut Bytes, end: usize, bits: u64) {
    stage[end - 8..end].copy_from_slice(&bits.to_be_bytes());
}

/// Writes a varint that ends at `end`; returns its start.
#[inline(always)]
pub(super) fn put_varint(stage: &mut Bytes, end: usize, v: u64) -> usize {
    if v >> 56 != 0 {
        return put_long_varint(stage, end, v);
    }
    // Spreads groups of 7 bits to bytes: first halves, then quarters, then single groups.
    let halves = v & 0x0fff_ffff | (v & 0x00ff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    let groups = quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
    put_number(stage, end, groups | 0x8080_8080_8080_8000);
    end - varint_length(v)
}

/// Returns the length in bytes of the varint of a number below 2^56.
#[inline(always)]
fn varint_length(v: u64) -> usize {
    // Number of bits divided by 7, rounded up; exact up to 56 bits.
    let bits = (u64::BITS - (v | 1).leading_zeros()) as usize;
    ((bits + 6) * 37) >> 8
}

#[cold]
fn put_long_varint(stage: &mut Bytes, end: usize, v: u64) -> usize {
    let mut bytes = Vec::with_capacity(9);
    push_varint(&mut bytes, v);
    stage[end - bytes.len()..end].copy_from_slice(&bytes);
    end - bytes.len()
}

/// Appends a varint.
pub(super) fn push_varint(out: &mut Vec<u8>, v: u64) {
    if v >> 56 != 0 {
        (1..=8).rev().for_each(|group| out.push((v >> (group * 7 + 1)) as u8 | 0x80));
        out.push(v as u8);
        return;
    }
    let groups = varint_length(v);
    (1..groups).rev().for_each(|group| out.push((v >> (group * 7)) as u8 | 0x80));
    out.push(v as u8 & 0x7f);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints() {
        let mut stage = [0; STAGE];
        for shift in 0..64 {
            for v in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut pushed = Vec::new();
                push_varint(&mut pushed, v);
                let start = put_varint(&mut stage, 100, v);
                assert_eq!(stage[start..100], pushed, "{v:x}");
                let (last, first) = pushed.split_last().unwrap();
                assert!(first.iter().all(|b| b & 0x80 != 0));
                let read = first.iter().fold(0u64, |v, b| v << 7 | u64::from(b & 0x7f));
                let read = if pushed.len() == 9 {
                    read << 8 | u64::from(*last)
                } else {
                    read << 7 | u64::from(*last)
                };
                assert_eq!(read, v);
                assert!(matches!(pushed.len(), 1 | 9) || pushed[0] != 0x80);
            }
        }
    }
}
