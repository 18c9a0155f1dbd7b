//! Writes the shard of a translation, and counts the rows and misses of the file's tables.

use super::census::ProcessCensus;
use super::devices::DeviceRows;
use super::schema::RpdFile;
use super::value::MAX_TEXT;
use rpd_shard::WriteError;
use rpd_shard::file::MAX_STRING_LENGTH;
use rpd_shard::model::TableId;
use rpd_shard::model::row_types::{StringId, TableRow};
use rpd_shard::record::{Loss, LossCause};
use rpd_translator::Translator;
use std::collections::BTreeMap;

/// The shard, its rows to which others refer, and the counts of the file's tables.
pub(super) struct RpdOutput<'a> {
    pub(super) translator: Translator<'a>,
    /// The file that is translated.
    pub(super) input: &'a RpdFile,
    /// Processes and threads of the file.
    pub(super) census: &'a ProcessCensus,
    /// Rows to which others refer.
    pub(super) devices: DeviceRows,
    /// Number of copies for which the file states no size.
    pub(super) unknown_copy_sizes: u64,
    /// Number of regions of each process.
    regions: BTreeMap<u32, i64>,
    /// Number of rows read, per table of the file.
    pub(super) rows_read: BTreeMap<String, u64>,
    /// Number of missing or malformed values, per table and column of the file.
    pub(super) misses: BTreeMap<(String, String), u64>,
}

impl<'a> RpdOutput<'a> {
    pub(super) fn new(
        translator: Translator<'a>,
        input: &'a RpdFile,
        census: &'a ProcessCensus,
    ) -> RpdOutput<'a> {
        let (devices, regions, rows_read, misses) = Default::default();
        RpdOutput { translator, input, census, devices, unknown_copy_sizes: 0, regions, rows_read, misses }
    }

    /// Writes a row; returns its key.
    pub(super) fn row<R: TableRow>(&mut self, source: u32, row: &R) -> Result<R::Key, WriteError> {
        self.translator.row(source, row)
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

    /// Counts rows of the file as read.
    pub(super) fn count_read(&mut self, table: &str, rows: u64) {
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
}
