//! Pages whose place in the file is not known yet, and their place.

use super::PAGE_SIZE;
use super::memory::{PageMemory, PagePiece};
use super::page_map::{LogicalPage, PageNumberError, offset};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Consecutive leaves of one table, then the overflow pages of their rows in the order of the rows.
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
    /// The page after the last one, with any content.
    pub(super) fn next_page(&mut self, memory: &PageMemory) -> &mut [u8] {
        if self.pieces.last().is_none_or(PagePiece::is_full) {
            self.pieces.push(memory.take(self.count));
        }
        self.count += 1;
        let last = self.pieces.len() - 1;
        self.pieces[last].next_page()
    }

    /// The last page; nothing where there is none.
    pub(super) fn last_page(&mut self) -> &mut [u8] {
        let bytes = self.pieces.last_mut().map_or(&mut [][..], PagePiece::bytes_mut);
        let from = bytes.len().saturating_sub(PAGE_SIZE);
        &mut bytes[from..]
    }

    /// Adds pages after these.
    pub(super) fn append(&mut self, behind: Pages) {
        self.count += behind.count;
        self.pieces.extend(behind.pieces);
    }

    /// Number of pages.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Writes a number at an offset, which does not go over the end of a page.
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

/// A page number that is written when the place of the run is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) at: RunPlace,
    /// The overflow page it leads to, counted from the first of the run.
    pub(super) page: u64,
}

/// Where a link is: an offset from the first leaf or from the first overflow page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunPlace {
    Leaf(usize),
    Overflow(usize),
}

impl LeafRun {
    pub(super) fn new(pages: Pages, last_rowids: Vec<i64>, links: Vec<Link>) -> LeafRun {
        LeafRun { pages, last_rowids, links }
    }

    /// The largest rowid of each leaf, in their order.
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

    /// Settles where the first page goes; the others follow it.
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

/// A run with its place in the file.
#[derive(Debug)]
pub struct PlacedRun {
    pages: Pages,
    last_rowids: Vec<i64>,
    first: LogicalPage,
}

impl PlacedRun {
    /// The pages as pieces of the file, in their order: offset in bytes, and content, which begins at a multiple of
    /// the page size in memory, too. No piece goes over the lock page.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut first = self.first;
        self.pages.pieces.iter().flat_map(move |piece| {
            let consecutive = usize::try_from(first.consecutive()).unwrap_or(usize::MAX);
            let bytes = piece.bytes();
            let (near, far) = bytes.split_at(bytes.len().min(consecutive.saturating_mul(PAGE_SIZE)));
            let behind = first.plus((near.len() / PAGE_SIZE) as u64);
            // `place` has seen that all pages have a number.
            let piece = |(first, bytes): (LogicalPage, _)| Some((offset(first.physical().ok()?), bytes));
            let pieces = [(first, near), (behind, far)];
            first = first.plus((bytes.len() / PAGE_SIZE) as u64);
            pieces.into_iter().filter(|(_, b)| !b.is_empty()).filter_map(piece)
        })
    }

    /// Writes the pages to their place. Any number of runs are written at once.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        self.pieces().try_for_each(|(offset, bytes)| file.write_all_at(bytes, offset))
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.count as u64
    }

    /// Page and largest rowid of each leaf, in their order: what a [`Sealer`](super::Sealer) needs.
    pub fn leaves(&self) -> impl Iterator<Item = (LogicalPage, i64)> {
        (0..).map(|i| self.first.plus(i)).zip(self.last_rowids.iter().copied())
    }

    /// The first usable page after the run.
    pub fn end(&self) -> LogicalPage {
        self.first.plus(self.pages())
    }

    /// Gives the memory back, for another [`LeafWriter`](super::LeafWriter).
    pub fn recycle(self, memory: &PageMemory) {
        memory.give(self.pages.pieces);
    }
}
