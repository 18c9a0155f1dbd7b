//! The shard that a translation writes, within its limits, and the account of what went into it.

use super::schema::Input;
use super::value::{MAX_TEXT, cut};
use super::{TranslateError, Translation};
use rpd_shard::ShardWriter;
use rpd_shard::file::MAX_STRING_LENGTH;
use rpd_shard::model::{Table, TableId, Value};
use rpd_shard::record::{Loss, LossCause, Process};
use std::collections::BTreeMap;
use std::io::Write;

/// Rows and bytes of text that wait for their blocks, of all processes together.
const MAX_PENDING: (usize, usize) = (1 << 18, 64 << 20);

/// The shard, and the account.
pub(super) struct Output<'a, W: Write> {
    writer: ShardWriter<W>,
    input: &'a Input,
    text_bytes: usize,
    /// Regions of each process.
    regions: BTreeMap<u32, i64>,
    pub(super) account: Translation,
}

impl<'a, W: Write> Output<'a, W> {
    pub(super) fn new(writer: ShardWriter<W>, input: &'a Input, account: Translation) -> Output<'a, W> {
        Output { writer, input, text_bytes: 0, regions: BTreeMap::new(), account }
    }

    /// The file that is translated.
    pub(super) fn input(&self) -> &'a Input {
        self.input
    }

    /// Describes a process, or describes it again.
    pub(super) fn process(&mut self, process: &Process) -> Result<(), TranslateError> {
        self.writer.process(process).map_err(|e| self.input.shard_error(e))
    }

    /// Describes a table that is not RocPD's.
    pub(super) fn table(&mut self, table: &Table) -> Result<(), TranslateError> {
        self.writer.table(table).map_err(|e| self.input.shard_error(e))
    }

    /// Adds a row; returns its key.
    pub(super) fn push(
        &mut self,
        source: u32,
        table: TableId,
        row: &[Value<'_>],
    ) -> Result<i64, TranslateError> {
        let text = |v: &Value<'_>| if let Value::Text(t) | Value::Blob(t) = v { t.len() } else { 0 };
        self.text_bytes += row.iter().map(text).sum::<usize>();
        let key = self.writer.push(source, table, row).map_err(|e| self.input.shard_error(e))?;
        if self.writer.pending_rows() > MAX_PENDING.0 || self.text_bytes > MAX_PENDING.1 {
            self.writer.flush().map_err(|e| self.input.shard_error(e))?;
            self.text_bytes = 0;
        }
        Ok(key)
    }

    /// Counts a region; returns the key that it will have.
    pub(super) fn next_region(&mut self, source: u32) -> i64 {
        let regions = self.regions.entry(source).or_default();
        *regions += 1;
        *regions
    }

    /// The id of a string; one that is too long is cut.
    pub(super) fn string(&mut self, text: &[u8]) -> Result<Value<'static>, TranslateError> {
        let text = self.cut(text, MAX_TEXT.min(MAX_STRING_LENGTH));
        self.writer.string(text).map(Value::Int).map_err(|e| self.input.shard_error(e))
    }

    /// As much of a text as is kept; counts texts that are longer.
    pub(super) fn cut<'t>(&mut self, text: &'t [u8], most: usize) -> &'t [u8] {
        self.account.cut_texts += u64::from(text.len() > most);
        cut(text, most)
    }

    /// Counts a row of the file as read.
    pub(super) fn read(&mut self, table: &str) {
        self.reads(table, 1);
    }

    /// Counts rows of the file as read.
    pub(super) fn reads(&mut self, table: &str, rows: u64) {
        match self.account.rows.get_mut(table) {
            Some(count) => *count += rows,
            None if rows == 0 => {}
            None => drop(self.account.rows.insert(table.to_owned(), rows)),
        }
    }

    /// Counts a value that is missing, makes no sense, or refers to nothing.
    pub(super) fn miss(&mut self, table: &str, column: &str) {
        self.misses(table, column, 1);
    }

    /// Counts several such values.
    pub(super) fn misses(&mut self, table: &str, column: &str, values: u64) {
        if values > 0 {
            *self.account.misses.entry((table.to_owned(), column.to_owned())).or_default() += values;
        }
    }

    /// Counts rows of the file that have no place in the shard, as rows of the table that they belong into.
    pub(super) fn lose(&mut self, source: u32, from: &str, table: Option<TableId>, rows: u64) {
        if rows > 0 {
            *self.account.lost.entry(from.to_owned()).or_default() += rows;
            let cause = if table.is_some() { LossCause::BadRecord } else { LossCause::UnknownTable };
            self.writer.loss(Loss { source, table, cause, rows: Some(rows) });
        }
    }

    /// Notes that rows of a table that has no place in the shard are lost, and nobody knows how many.
    pub(super) fn lose_unknown(&mut self) {
        self.writer.loss(Loss { source: 0, table: None, cause: LossCause::UnknownTable, rows: None });
    }

    /// Ends the shard.
    pub(super) fn finish(self) -> Result<(W, Translation), TranslateError> {
        let sink = self.writer.finish().map_err(|e| self.input.shard_error(e))?;
        Ok((sink, self.account))
    }
}
