//! What a writer has not written yet: the open blocks, and strings.

use super::strings::MAX_STRINGS;
use crate::model::{RowsBuilder, Schema, TableId, TextCells};
use std::collections::HashMap;

/// An open block.
pub(super) struct Pending {
    pub(super) source: u32,
    pub(super) table: TableId,
    /// Rows in blocks. Keys of one process's table are dense from 1.
    pub(super) kept: u64,
    /// Rows that came when the shard was full, or were given up.
    pub(super) lost: u64,
    pub(super) rows: RowsBuilder,
    /// Key of each row of the open block, where they are handles.
    pub(super) handles: Vec<i64>,
}

impl Pending {
    /// Key of the last row.
    #[inline]
    pub(super) fn last_key(&self) -> i64 {
        (self.kept + self.lost) as i64 + self.rows.len() as i64
    }

    /// Counts the rows of the open block as lost.
    pub(super) fn lose_pending(&mut self, schema: &Schema) {
        self.lost += self.rows.len() as u64;
        if let Some(description) = schema.get(self.table) {
            self.rows = RowsBuilder::new(description);
        }
        self.handles.clear();
    }
}

/// Strings seen so far; those from `flushed` on are in no block yet.
#[derive(Default)]
pub(super) struct Strings {
    pub(super) cells: TextCells,
    pub(super) codes: HashMap<u64, u32>,
    pub(super) flushed: usize,
    /// How many came when the shard was full, or were given up.
    pub(super) lost: u64,
}

impl Strings {
    /// Counts the strings that are in no block as lost. The texts are not needed any more.
    pub(super) fn lose_pending(&mut self) {
        self.lost += self.cells.ends.len().saturating_sub(self.flushed) as u64;
        self.cells = TextCells::default();
    }

    /// Counts the last `rows` strings of blocks as lost.
    pub(super) fn give_up(&mut self, rows: u64) {
        self.flushed = self.flushed.saturating_sub(rows as usize);
        self.lost += rows;
    }

    /// Counts a string that comes when the shard is full, once; of more than a shard may have, each time.
    pub(super) fn lose(&mut self, hash: u64) -> i64 {
        let code = (self.flushed as u64 + self.lost) as u32;
        if self.codes.len() >= MAX_STRINGS {
            self.lost += 1;
            return i64::from(code) + 1;
        }
        let known = *self.codes.entry(hash).or_insert(code);
        self.lost += u64::from(known == code);
        i64::from(known) + 1
    }
}
