//! Encodes columns into leaf pages.

use super::error::PageWriteError;
use super::field::{Field, Plan};
use super::memory::PageMemory;
use super::record::Record;
use super::run::{LeafRun, Link, Pages};
use super::stage::{Leaves, push_varint, put_varint};
use super::{PAGE_SIZE, run};
use crate::format::local_payload;
use rpd_shard::model::Keys;
use std::sync::Arc;

/// Maximum row length in bytes that SQLite accepts.
const MAX_RECORD_BYTES: u64 = 1_000_000_000;
/// Number of rows that are planned together: few enough that many columns have a single serial type in all of them.
const TOGETHER: usize = 1024;
/// Maximum record length in bytes without overflow pages.
const LOCAL: usize = PAGE_SIZE - 35;

/// Encodes rows of one table into leaf pages, and fills each page as far as the rows allow.
#[derive(Debug)]
pub struct LeafWriter {
    leaves: Leaves,
    /// Overflow pages; links count from the first of them.
    overflow: Pages,
    links: Vec<Link>,
    last: Option<i64>,
}

impl Default for LeafWriter {
    fn default() -> Self {
        LeafWriter::new(Arc::default())
    }
}

impl LeafWriter {
    /// Creates a writer that takes its pages from this memory.
    pub fn new(memory: Arc<PageMemory>) -> LeafWriter {
        LeafWriter { leaves: Leaves::new(memory), overflow: Pages::default(), links: Vec::new(), last: None }
    }

    /// Number of bytes of the finished pages.
    pub fn bytes(&self) -> usize {
        (self.leaves.done.count() + self.overflow.count()) * PAGE_SIZE
    }

    /// Adds `rows` rows with larger keys than the previous ones. `fields` are the columns of the table in the order
    /// of its declaration. After an error the writer must be dropped.
    ///
    /// # Panics
    /// Panics if keys or cells have fewer than `rows` rows.
    pub fn append(&mut self, keys: &Keys, fields: &[Field<'_>], rows: usize) -> Result<(), PageWriteError> {
        if let Keys::Sparse(keys) = keys {
            assert!(keys.len() >= rows, "there are fewer keys than rows");
        }
        let key = |row: usize| match keys {
            // A key beyond i64 wraps to a key that is out of order.
            Keys::Dense(first) => first.wrapping_add(row as i64),
            Keys::Sparse(keys) => keys[row],
        };
        for from in (0..rows).step_by(TOGETHER) {
            let some = from..rows.min(from + TOGETHER);
            let Some(mut plan) = Plan::new(fields, some.clone()) else {
                some.into_iter().try_for_each(|row| {
                    self.ascending(key(row))?;
                    self.long_row(fields, row, key(row))
                })?;
                continue;
            };
            for row in some {
                let rowid = key(row);
                self.ascending(rowid)?;
                let Leaves { stage, start: end, .. } = &mut self.leaves;
                let end = *end;
                match plan.record(stage, end, row) {
                    Ok(start) if end - start <= LOCAL => {
                        let cell = put_varint(stage, start, rowid as u64);
                        let cell = put_varint(stage, cell, (end - start) as u64);
                        self.leaves.take(cell, rowid);
                    }
                    _ => self.long_row(fields, row, rowid)?,
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn ascending(&mut self, rowid: i64) -> Result<(), PageWriteError> {
        if self.last.is_some_and(|last| last >= rowid) {
            return Err(PageWriteError::Order { rowid });
        }
        self.last = Some(rowid);
        Ok(())
    }

    /// Encodes a row of any length, with overflow pages if necessary.
    #[cold]
    fn long_row(&mut self, fields: &[Field<'_>], row: usize, rowid: i64) -> Result<(), PageWriteError> {
        let record = Record::new(fields, row);
        if record.length > MAX_RECORD_BYTES {
            return Err(PageWriteError::RowTooLong { rowid, bytes: record.length });
        }
        let local = local_payload(record.length, PAGE_SIZE);
        let mut cell = Vec::with_capacity(local + 24);
        push_varint(&mut cell, record.length);
        push_varint(&mut cell, rowid as u64);
        let here = cell.len() + local;
        let first = self.overflow.count();
        let Leaves { memory, .. } = &self.leaves;
        let mut chain = Chain { pages: &mut self.overflow, memory, links: &mut self.links, free: 0 };
        record.pieces(|piece| {
            let (near, far) = piece.split_at(piece.len().min(here - cell.len()));
            cell.extend_from_slice(near);
            chain.extend(far);
        });
        chain.end(first);
        let overflows = record.length > local as u64;
        if overflows {
            cell.extend_from_slice(&[0; 4]);
        }
        let place = self.leaves.take_bytes(&cell, rowid);
        if overflows {
            self.links.push(Link { at: run::RunPlace::Leaf(place + cell.len() - 4), page: first as u64 });
        }
        Ok(())
    }

    /// Returns the pages of all rows.
    pub fn finish(self) -> LeafRun {
        let (pages, last_rowids) = self.leaves.finish(self.overflow);
        LeafRun::new(pages, last_rowids, self.links)
    }
}

/// Overflow pages of one row: each is a link to the next page, then bytes.
struct Chain<'a> {
    pages: &'a mut Pages,
    memory: &'a PageMemory,
    links: &'a mut Vec<Link>,
    /// Number of bytes that are free in the last page.
    free: usize,
}

impl Chain<'_> {
    fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.free == 0 {
                self.pages.next_page(self.memory)[..4].fill(0);
                self.free = PAGE_SIZE - 4;
            }
            let (here, rest) = bytes.split_at(bytes.len().min(self.free));
            let free = self.free_bytes();
            free[..here.len()].copy_from_slice(here);
            self.free -= here.len();
            bytes = rest;
        }
    }

    /// Returns the free bytes of the last page.
    fn free_bytes(&mut self) -> &mut [u8] {
        let page = self.pages.last_page();
        let from = page.len() - self.free;
        &mut page[from..]
    }

    /// Fills the rest of the last page with zeros, and links the pages from `first` on.
    fn end(&mut self, first: usize) {
        self.free_bytes().fill(0);
        for next in first + 1..self.pages.count() {
            let at = run::RunPlace::Overflow((next - 1) * PAGE_SIZE);
            self.links.push(Link { at, page: next as u64 });
        }
    }
}
