//! Writes the shard of a translation, and counts the rows and misses of the file's tables.

use super::schema::RpdFile;
use super::value::MAX_TEXT;
use rpd_shard::file::MAX_STRING_LENGTH;
use rpd_shard::model::row_types::{StringId, TableRow};
use rpd_shard::model::{Table, TableId, Value};
use rpd_shard::record::{Loss, LossCause, Process};
use rpd_shard::{ShardWriter, WriteError};
use rpd_translator::{PendingLimit, Translation, Translator};
use std::collections::BTreeMap;
use std::io::Write;

/// The shard, and the counts of the file's tables.
pub(super) struct RpdOutput<'a, W: Write> {
    translator: Translator<W>,
    input: &'a RpdFile,
    /// Number of regions of each process.
    regions: BTreeMap<u32, i64>,
    /// Number of rows read, per table of the file.
    rows_read: BTreeMap<String, u64>,
    /// Number of missing or malformed values, per table and column of the file.
    misses: BTreeMap<(String, String), u64>,
}

/// The finished shard, and the counts of the file's tables.
pub(super) struct FinishedShard<W> {
    pub(super) sink: W,
    pub(super) translation: Translation,
    pub(super) rows_read: BTreeMap<String, u64>,
    pub(super) misses: BTreeMap<(String, String), u64>,
}

impl<'a, W: Write> RpdOutput<'a, W> {
    pub(super) fn new(shard: ShardWriter<W>, input: &'a RpdFile) -> RpdOutput<'a, W> {
        RpdOutput {
            translator: Translator::new(shard, PendingLimit::MANY_PROCESSES),
            input,
            regions: BTreeMap::new(),
            rows_read: BTreeMap::new(),
            misses: BTreeMap::new(),
        }
    }

    /// The file that is translated.
    pub(super) fn input(&self) -> &'a RpdFile {
        self.input
    }

    /// Writes the description of a process, or replaces it.
    pub(super) fn process(&mut self, process: &Process) -> Result<(), WriteError> {
        self.translator.process(process)
    }

    /// Writes the description of a carried table.
    pub(super) fn table(&mut self, table: &Table) -> Result<(), WriteError> {
        self.translator.table(table)
    }

    /// Writes a row; returns its key.
    pub(super) fn row<R: TableRow>(&mut self, source: u32, row: &R) -> Result<R::Key, WriteError> {
        self.translator.row(source, row)
    }

    /// Writes a row of a carried table.
    pub(super) fn values(
        &mut self,
        source: u32,
        table: TableId,
        values: &[Value<'_>],
    ) -> Result<(), WriteError> {
        self.translator.values(source, table, values).map(drop)
    }

    /// Counts a region; returns its future key.
    pub(super) fn next_region(&mut self, source: u32) -> i64 {
        let regions = self.regions.entry(source).or_default();
        *regions += 1;
        *regions
    }

    /// Returns the id of a string; cuts a string that is too long.
    pub(super) fn string(&mut self, text: &[u8]) -> Result<StringId, WriteError> {
        let text = self.cut(text, MAX_TEXT.min(MAX_STRING_LENGTH));
        self.translator.string(text)
    }

    /// Returns the beginning of a text; counts texts that are cut.
    pub(super) fn cut<'t>(&mut self, text: &'t [u8], max_bytes: usize) -> &'t [u8] {
        self.translator.cut(text, max_bytes)
    }

    pub(super) fn warn(&mut self, line: String) {
        self.translator.warn(line);
    }

    /// Counts one row of the file as read.
    pub(super) fn read(&mut self, table: &str) {
        self.reads(table, 1);
    }

    /// Counts rows of the file as read.
    pub(super) fn reads(&mut self, table: &str, rows: u64) {
        match self.rows_read.get_mut(table) {
            Some(count) => *count += rows,
            None if rows == 0 => {}
            None => drop(self.rows_read.insert(table.to_owned(), rows)),
        }
    }

    /// Counts a value that is missing, malformed, or refers to no row.
    pub(super) fn miss(&mut self, table: &str, column: &str) {
        self.misses(table, column, 1);
    }

    /// Counts several such values.
    pub(super) fn misses(&mut self, table: &str, column: &str, values: u64) {
        if values > 0 {
            *self.misses.entry((table.to_owned(), column.to_owned())).or_default() += values;
        }
    }

    /// Counts rows of the file that cannot be stored in the shard, as losses of the table that they belong to.
    pub(super) fn lose(&mut self, source: u32, from: &str, table: Option<TableId>, rows: u64) {
        if rows > 0 {
            let cause = if table.is_some() { LossCause::BadRecord } else { LossCause::UnknownTable };
            self.translator.lose(from, Loss { source, table, cause, rows: Some(rows) });
        }
    }

    /// Records a loss of unknown size for a table that has no place in the shard.
    pub(super) fn lose_unknown(&mut self) {
        let (table, cause, rows) = (None, LossCause::UnknownTable, None);
        self.translator.lose_uncounted(Loss { source: 0, table, cause, rows });
    }

    /// Finishes the shard.
    pub(super) fn finish(self) -> Result<FinishedShard<W>, WriteError> {
        let RpdOutput { translator, rows_read, misses, .. } = self;
        let (sink, translation) = translator.finish()?;
        Ok(FinishedShard { sink, translation, rows_read, misses })
    }
}
