//! Rows of `rocpd_string`, written in batches.

use super::write_failure;
use rpd_console::Failure;
use rpd_rocpd::Writer;
use rpd_shard::model::{Keys, RowsBuilder, Table, Value};
use std::sync::Arc;

/// Maximum number of string rows that are written at once.
const STRING_BATCH: usize = 16_384;
/// Bytes of strings that are written at once.
const STRING_BATCH_BYTES: usize = 2 << 20;

/// Writes string rows to one table set.
pub(super) struct StringRows<'a> {
    writer: &'a mut Writer,
    set: usize,
    table: &'a Arc<Table>,
    keys: Vec<i64>,
    rows: RowsBuilder,
    written: u64,
}

impl<'a> StringRows<'a> {
    pub(super) fn new(writer: &'a mut Writer, set: usize, table: &'a Arc<Table>) -> StringRows<'a> {
        StringRows { writer, set, table, keys: Vec::new(), rows: RowsBuilder::new(table), written: 0 }
    }

    /// Adds a string with its id in the job.
    pub(super) fn add(&mut self, id: i64, text: &[u8]) -> Result<(), Failure> {
        self.keys.push(id);
        self.rows.push(&[Value::Text(text)]);
        if self.keys.len() < STRING_BATCH && self.rows.text_bytes() < STRING_BATCH_BYTES {
            return Ok(());
        }
        self.write_batch()
    }

    /// Writes the last batch. Returns the number of all rows.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.write_batch()?;
        Ok(self.written)
    }

    fn write_batch(&mut self) -> Result<(), Failure> {
        let batch = std::mem::replace(&mut self.rows, RowsBuilder::new(self.table)).finish(1);
        let columns = batch.columns.clone();
        let keys = Keys::Sparse(std::mem::take(&mut self.keys));
        self.written +=
            self.writer.append_to(self.set, &batch.into_merged(keys, columns)).map_err(write_failure)?;
        Ok(())
    }
}
