use crate::ignored_names::IgnoredNames;
use crate::text::cut_text;
use crate::translation::Translation;
use rpd_shard::file::Owner;
use rpd_shard::model::row_types::{StringId, TableRow};
use rpd_shard::model::{Table, TableId, Value};
use rpd_shard::record::{ClockSet, Loss, Process};
use rpd_shard::{ShardWriter, WriteError};
use std::io::Write;

/// Maximum number of warnings about one file.
const MAX_WARNINGS: usize = 100;

/// Limit of rows that wait in memory for their block to fill, all processes together. Beyond the limit, the
/// translator writes the rows in blocks that are not full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingLimit {
    /// Number of rows.
    pub rows: usize,
    /// Text of the rows since the last flush, bytes.
    pub text_bytes: usize,
}

impl PendingLimit {
    /// No limit, for a file with one process: at most one block per table waits.
    pub const NONE: PendingLimit = PendingLimit { rows: usize::MAX, text_bytes: usize::MAX };
    /// Limit for a file with any number of processes.
    pub const MANY_PROCESSES: PendingLimit = PendingLimit { rows: 1 << 18, text_bytes: 64 << 20 };
}

/// Writes the rows of a foreign file as a shard and counts what was read, cut, ignored and lost.
pub struct Translator<'s> {
    shard: ShardWriter<&'s mut dyn Write>,
    limit: PendingLimit,
    /// Text of the rows since the last flush, bytes; 0 if there is no limit.
    text_bytes: usize,
    /// Number of rows, indexed by table number.
    rows: Vec<u64>,
    ignored: IgnoredNames,
    translation: Translation,
}

impl<'s> Translator<'s> {
    /// Begins a shard of this owner.
    pub fn new(
        sink: &'s mut dyn Write,
        owner: &Owner,
        limit: PendingLimit,
    ) -> Result<Translator<'s>, WriteError> {
        Ok(Translator {
            shard: ShardWriter::of_owner(sink, owner)?,
            limit,
            text_bytes: 0,
            rows: Vec::new(),
            ignored: IgnoredNames::default(),
            translation: Translation::default(),
        })
    }

    /// Returns the counts so far, except [`Translation::rows`] and [`Translation::ignored`].
    pub fn translation(&self) -> &Translation {
        &self.translation
    }

    /// Writes a description of a process, or a newer description of it.
    pub fn process(&mut self, process: &Process) -> Result<(), WriteError> {
        self.shard.process(process)
    }

    /// Stores a clock set of the node.
    pub fn clock_set(&mut self, set: &ClockSet) -> Result<(), WriteError> {
        self.shard.clock(set)
    }

    /// Describes a table that RocPD does not define.
    pub fn table(&mut self, table: &Table) -> Result<(), WriteError> {
        self.shard.table(table)
    }

    /// Adds a row of a process and returns its key.
    #[inline]
    pub fn row<R: TableRow>(&mut self, source: u32, row: &R) -> Result<R::Key, WriteError> {
        row.with_values(|values| self.values(source, R::TABLE, values)).map(R::key)
    }

    /// Adds a row of a table that is described in the shard: one value per column, in the order of the description.
    /// Columns omitted at the end get their defaults.
    #[inline]
    pub fn values(&mut self, source: u32, table: TableId, values: &[Value<'_>]) -> Result<i64, WriteError> {
        let key = self.shard.push(source, table, values)?;
        match self.rows.get_mut(usize::from(table.0)) {
            Some(rows) => *rows += 1,
            None => self.count_first_row(table),
        }
        if self.limit != PendingLimit::NONE {
            self.keep_limit(values)?;
        }
        Ok(key)
    }

    #[cold]
    fn count_first_row(&mut self, table: TableId) {
        let place = usize::from(table.0);
        self.rows.resize(place + 1, 0);
        self.rows[place] = 1;
    }

    /// Flushes the shard if, after a row with these values, pending rows exceed the limit.
    fn keep_limit(&mut self, values: &[Value<'_>]) -> Result<(), WriteError> {
        let text = |value: &Value<'_>| match value {
            Value::Text(text) | Value::Blob(text) => text.len(),
            _ => 0,
        };
        self.text_bytes += values.iter().map(text).sum::<usize>();
        if self.shard.pending_rows() > self.limit.rows || self.text_bytes > self.limit.text_bytes {
            self.shard.flush()?;
            self.text_bytes = 0;
        }
        Ok(())
    }

    /// Returns the id of a string.
    ///
    /// # Errors
    /// [`WriteError::TextTooLong`] for a string that no shard can hold; see [`Translator::cut`].
    #[inline]
    pub fn string(&mut self, text: &[u8]) -> Result<StringId, WriteError> {
        self.shard.string(text).map(StringId)
    }

    /// Cuts a text to at most `max_bytes`. Counts texts that are longer.
    #[inline]
    pub fn cut<'t>(&mut self, text: &'t [u8], max_bytes: usize) -> &'t [u8] {
        self.translation.cut_texts += u64::from(text.len() > max_bytes);
        cut_text(text, max_bytes)
    }

    /// Counts one element of the file as read.
    #[inline]
    pub fn count_element(&mut self) {
        self.translation.elements += 1;
    }

    /// Counts a loss under the name `what`, and adds it to the loss ledger.
    pub fn lose(&mut self, what: &str, loss: Loss) {
        if let Some(count) = loss.rows.filter(|count| *count > 0) {
            match self.translation.lost.get_mut(what) {
                Some(lost) => *lost += count,
                None => drop(self.translation.lost.insert(what.to_owned(), count)),
            }
        }
        self.shard.loss(loss);
    }

    /// Adds a loss of an amount that is unknown or counted elsewhere to the loss ledger.
    pub fn lose_uncounted(&mut self, loss: Loss) {
        self.shard.loss(loss);
    }

    /// Counts one item that RocPD cannot represent.
    pub fn ignore(&mut self, what: &str) {
        self.ignored.add(what, 1);
    }

    /// Returns the counts of content that RocPD cannot represent.
    pub fn ignored_names(&mut self) -> &mut IgnoredNames {
        &mut self.ignored
    }

    /// Adds a warning unless the limit is reached.
    pub fn warn(&mut self, line: String) {
        if self.translation.warnings.len() < MAX_WARNINGS {
            self.translation.warnings.push(line);
        }
    }

    /// Adds a warning for each kind of counted loss.
    pub fn warn_of_losses(&mut self) {
        let lines: Vec<String> =
            self.translation.lost.iter().map(|(what, count)| format!("{count} {what} are lost")).collect();
        lines.into_iter().for_each(|line| self.warn(line));
    }

    /// Adds a note.
    pub fn note(&mut self, line: String) {
        self.translation.notes.push(line);
    }

    /// Finishes the shard and returns the counts.
    pub fn finish(mut self) -> Result<Translation, WriteError> {
        let rows = (0u16..).map(TableId).zip(self.rows).filter(|(_, rows)| *rows > 0);
        self.translation.rows = rows.collect();
        self.translation.ignored = self.ignored.into_counts();
        self.shard.finish()?;
        Ok(self.translation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_shard::record::RunIdentity;

    #[test]
    fn pending_rows_are_written_at_the_limit() {
        use rpd_shard::model::row_types::StreamRow;
        let row = StreamRow { name: Some(b"stream"), extdata: None };
        let (run_id, run_id_from, version) = ("r".into(), "self".into(), "0".into());
        let owner = Owner::unknown(RunIdentity { run_id, run_id_from, rank: None, size: None, version });
        let written = |limit: PendingLimit| {
            let mut sink = Vec::new();
            let mut translator = Translator::new(&mut sink, &owner, limit).unwrap();
            for _ in 0..10 {
                translator.row(1, &row).unwrap();
            }
            (translator.shard.pending_rows(), translator.finish().unwrap().rows)
        };
        let rows = [(StreamRow::TABLE, 10)].into();
        assert_eq!(written(PendingLimit::NONE), (10, rows));
        assert_eq!(written(PendingLimit { rows: 3, text_bytes: usize::MAX }).0, 2);
        assert_eq!(written(PendingLimit { rows: usize::MAX, text_bytes: 20 }).0, 2);
    }
}
