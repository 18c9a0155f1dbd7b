//! Data that the writer has not written yet: open blocks and strings.

use super::checksum;
use super::strings::{MAX_STRING_BYTES, MAX_STRING_LENGTH, MAX_STRINGS};
use super::writer::{ShardWriter, WriteError};
use crate::model::{RowsBuilder, Schema, TableId, TextCells, rocpd};
use crate::record::{Loss, LossCause};
use std::collections::HashMap;
use std::io::Write;

/// Replaces strings beyond the limits of a shard.
const TOO_MANY_STRINGS: &[u8] = b"(too many strings)";

/// An open block: rows of one table of one process.
pub(super) struct Pending {
    pub(super) source: u32,
    pub(super) table: TableId,
    /// Number of rows in written blocks. Keys of one process's table are dense from 1.
    pub(super) written: u64,
    /// Number of rows that were added to a full shard, or were in discarded blocks.
    pub(super) lost: u64,
    pub(super) rows: RowsBuilder,
    /// Keys of the rows of the open block if the keys are handles.
    pub(super) handles: Vec<i64>,
}

impl Pending {
    /// Returns the key of the last row.
    #[inline]
    pub(super) fn last_key(&self) -> i64 {
        (self.written + self.lost) as i64 + self.rows.len() as i64
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

/// All strings so far; those from `flushed` on are in no block yet.
#[derive(Default)]
pub(super) struct Strings {
    pub(super) cells: TextCells,
    pub(super) codes: HashMap<u64, u32>,
    pub(super) flushed: usize,
    /// Number of strings that were added to a full shard, or were in discarded blocks.
    pub(super) lost: u64,
}

impl Strings {
    /// Counts the strings that are in no block as lost. Their texts are no longer needed.
    pub(super) fn lose_pending(&mut self) {
        self.lost += self.cells.ends.len().saturating_sub(self.flushed) as u64;
        self.cells = TextCells::default();
    }

    /// Counts the last `rows` strings of blocks as lost.
    pub(super) fn give_up(&mut self, rows: u64) {
        self.flushed = self.flushed.saturating_sub(rows as usize);
        self.lost += rows;
    }

    /// Returns an id for a string that is added to a full shard and counts it as lost. Each distinct string counts
    /// once; beyond [`MAX_STRINGS`] it counts each time.
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

impl<W: Write> ShardWriter<W> {
    /// Returns the id of a string in this shard, from 1. Equal strings have one id.
    pub fn string(&mut self, text: &[u8]) -> Result<i64, WriteError> {
        if text.len() > MAX_STRING_LENGTH {
            let (bytes, most) = (text.len(), MAX_STRING_LENGTH);
            return Err(WriteError::TextTooLong { table: rocpd::STRING, bytes, most });
        }
        let hash = checksum(text);
        if self.reserve.full {
            return Ok(self.strings.lose(hash));
        }
        if let Some(code) = self.strings.codes.get(&hash)
            && self.strings.cells.entry(*code) == text
        {
            return Ok(i64::from(*code) + 1);
        }
        let full = self.strings.cells.ends.len() >= MAX_STRINGS - 1
            || self.strings.cells.bytes.len() + text.len() > MAX_STRING_BYTES - TOO_MANY_STRINGS.len();
        if full && text != TOO_MANY_STRINGS {
            let (table, cause, rows) = (Some(rocpd::STRING), LossCause::OverLimit, Some(1));
            self.loss(Loss { source: 0, table, cause, rows });
            return self.string(TOO_MANY_STRINGS);
        }
        let code = self.strings.cells.add_entry(text);
        self.strings.codes.insert(hash, code);
        Ok(i64::from(code) + 1)
    }
}
