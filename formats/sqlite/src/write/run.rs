//! Encoded pages before and after their place in the file is known.

use super::PAGE_SIZE;
use super::memory::{PageMemory, PagePiece};
use super::page_map::{LogicalPage, PageNumberError, offset};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Consecutive leaves of one table, followed by the overflow pages of their rows in row order.
#[derive(Debug, Default)]
pub struct LeafRun {
    pages: Pages,
    last_rowids: Vec<i64>,
    links: Vec<Link>,
}

/// Consecutive pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pieces: Vec<PagePiece>,
    count: usize,
}

impl Pages {
    /// Appends a page with undefined content and returns it.
    pub(super) fn next_page(&mut self, memory: &PageMemory) -> &mut [u8] {
        if self.pieces.last().is_none_or(PagePiece::is_full) {
            self.pieces.push(memory.take(self.count));
        }
        self.count += 1;
        let last = self.pieces.len() - 1;
        self.pieces[last].next_page()
    }

    /// Returns the last page; an empty slice if there is none.
    pub(super) fn last_page(&mut self) -> &mut [u8] {
        let bytes = self.pieces.last_mut().map_or(&mut [][..], PagePiece::bytes_mut);
        let from = bytes.len().saturating_sub(PAGE_SIZE);
        &mut bytes[from..]
    }

    /// Appends pages.
    pub(super) fn append(&mut self, next: Pages) {
        self.count += next.count;
        self.pieces.extend(next.pieces);
    }

    /// Number of pages.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Writes a number at an offset; the number must not cross the end of a page.
    fn set(&mut self, mut at: usize, number: u32) {
        for piece in &mut self.pieces {
            let bytes = piece.bytes_mut();
            if let Some(bytes) = bytes.get_mut(at..at + 4) {
                return bytes.copy_from_slice(&number.to_be_bytes());
            }
            at -= bytes.len();
        }
    }
}

/// A page number that is written after the place of the run is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) at: RunPlace,
    /// Target overflow page, counted from the first overflow page of the run.
    pub(super) page: u64,
}

/// Position of a link: byte offset from the first leaf or from the first overflow page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunPlace {
    Leaf(usize),
    Overflow(usize),
}

impl LeafRun {
    pub(super) fn new(pages: Pages, last_rowids: Vec<i64>, links: Vec<Link>) -> LeafRun {
        LeafRun { pages, last_rowids, links }
    }

    /// Largest rowid of each leaf, in page order.
    pub fn last_rowids(&self) -> &[i64] {
        &self.last_rowids
    }

    /// Number of leaves.
    pub fn leaves(&self) -> u64 {
        self.last_rowids.len() as u64
    }

    /// Number of pages: leaves and overflow pages.
    pub fn pages(&self) -> u64 {
        self.pages.count as u64
    }

    /// Assigns the first page; the others follow it.
    pub fn place(mut self, first: LogicalPage) -> Result<PlacedRun, PageNumberError> {
        let leaves = self.leaves();
        first.plus(self.pages().saturating_sub(1)).physical()?;
        for link in &self.links {
            let at = match link.at {
                RunPlace::Leaf(at) => at,
                RunPlace::Overflow(at) => self.last_rowids.len() * PAGE_SIZE + at,
            };
            let page = first.plus(leaves + link.page).physical()?;
            self.pages.set(at, page);
        }
        Ok(PlacedRun { pages: self.pages, last_rowids: self.last_rowids, first })
    }
}

/// A run with an assigned place in the file.
#[derive(Debug)]
pub struct PlacedRun {
    pages: Pages,
    last_rowids: Vec<i64>,
    first: LogicalPage,
}

impl PlacedRun {
    /// Returns the pages as pieces of the file in page order: offset in bytes, and content. In memory the content
    /// starts at a multiple of the page size too. No piece includes the lock page.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut first = self.first;
        self.pages.pieces.iter().flat_map(move |piece| {
            let consecutive = usize::try_from(first.consecutive()).unwrap_or(usize::MAX);
            let bytes = piece.bytes();
            let (near, far) = bytes.split_at(bytes.len().min(consecutive.saturating_mul(PAGE_SIZE)));
            let after = first.plus((near.len() / PAGE_SIZE) as u64);
            // `place` has verified that all pages have a number.
            let piece = |(first, bytes): (LogicalPage, _)| Some((offset(first.physical().ok()?), bytes));
            let pieces = [(first, near), (after, far)];
            first = first.plus((bytes.len() / PAGE_SIZE) as u64);
            pieces.into_iter().filter(|(_, b)| !b.is_empty()).filter_map(piece)
        })
    }

    /// Writes the pages to their place. Any number of runs can be written at the same time.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        self.pieces().try_for_each(|(offset, bytes)| file.write_all_at(bytes, offset))
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.count as u64
    }

    /// Returns page and largest rowid of each leaf in page order, the input of a [`Sealer`](super::Sealer).
    pub fn leaves(&self) -> impl Iterator<Item = (LogicalPage, i64)> {
        (0..).map(|i| self.first.plus(i)).zip(self.last_rowids.iter().copied())
    }

    /// Returns the first usable page after the run.
    pub fn end(&self) -> LogicalPage {
        self.first.plus(self.pages())
    }

    /// Returns the memory for reuse by another [`LeafWriter`](super::LeafWriter).
    pub fn recycle(self, memory: &PageMemory) {
        memory.give(self.pages.pieces);
    }
}
