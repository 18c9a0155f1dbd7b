//! Pages whose place in the file is not known yet, and their place.

use super::PAGE_SIZE;
use super::page_map::{LogicalPage, PageNumberError, offset};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Consecutive leaves of one table, then the overflow pages of their rows in the order of the rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeafRun {
    bytes: Vec<u8>,
    last_rowids: Vec<i64>,
    links: Vec<Link>,
}

/// A page number that is written when the place of the run is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) at: Place,
    /// The overflow page it leads to, counted from the first of the run.
    pub(super) page: u64,
}

/// Where a link stands: an offset from the first leaf or from the first overflow page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Leaf(usize),
    Overflow(usize),
}

impl LeafRun {
    pub(super) fn new(
        mut leaves: Vec<u8>,
        last_rowids: Vec<i64>,
        overflow: &[u8],
        links: Vec<Link>,
    ) -> LeafRun {
        leaves.extend_from_slice(overflow);
        LeafRun { bytes: leaves, last_rowids, links }
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
        (self.bytes.len() / PAGE_SIZE) as u64
    }

    /// Settles where the first page goes; the others follow it.
    pub fn place(mut self, first: LogicalPage) -> Result<PlacedRun, PageNumberError> {
        let leaves = self.leaves();
        first.plus(self.pages().saturating_sub(1)).physical()?;
        for link in &self.links {
            let at = match link.at {
                Place::Leaf(at) => at,
                Place::Overflow(at) => self.last_rowids.len() * PAGE_SIZE + at,
            };
            let page = first.plus(leaves + link.page).physical()?;
            self.bytes[at..at + 4].copy_from_slice(&page.to_be_bytes());
        }
        Ok(PlacedRun { bytes: self.bytes, last_rowids: self.last_rowids, first })
    }
}

/// A run with its place in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedRun {
    bytes: Vec<u8>,
    last_rowids: Vec<i64>,
    first: LogicalPage,
}

impl PlacedRun {
    /// The pages as pieces of the file: offset in bytes, and content. Two where the run goes over the lock page.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let consecutive = usize::try_from(self.first.consecutive()).unwrap_or(usize::MAX);
        let (near, far) = self.bytes.split_at(self.bytes.len().min(consecutive.saturating_mul(PAGE_SIZE)));
        let behind = self.first.plus((near.len() / PAGE_SIZE) as u64);
        // `place` has seen that all pages have a number.
        let piece = |(first, bytes): (LogicalPage, _)| Some((offset(first.physical().ok()?), bytes));
        [(self.first, near), (behind, far)].into_iter().filter(|(_, b)| !b.is_empty()).filter_map(piece)
    }

    /// Writes the pages to their place. Any number of runs are written at once.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        self.pieces().try_for_each(|(offset, bytes)| file.write_all_at(bytes, offset))
    }

    /// Page and largest rowid of each leaf, in their order: what a [`Sealer`](super::Sealer) needs.
    pub fn leaves(&self) -> impl Iterator<Item = (LogicalPage, i64)> {
        (0..).map(|i| self.first.plus(i)).zip(self.last_rowids.iter().copied())
    }

    /// The first usable page behind the run.
    pub fn end(&self) -> LogicalPage {
        self.first.plus((self.bytes.len() / PAGE_SIZE) as u64)
    }

    /// The memory, for another [`LeafWriter`](super::LeafWriter).
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}
