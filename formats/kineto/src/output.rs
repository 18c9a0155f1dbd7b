//! The shard that is written, and the word about it.

use crate::text::cut;
use rpd_shard::file::MAX_STRING_LENGTH;
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_shard::{ShardWriter, WriteError};
use std::collections::BTreeMap;
use std::io::Write;

/// The process is the only one of its shard.
pub(crate) const SOURCE: u32 = 1;
/// Warnings that are told of one file.
const MAX_WARNINGS: usize = 20;
/// Names of one kind that are told apart in the account.
const MAX_IGNORED: usize = 1000;
/// Longest text of a name.
const MAX_NAME: usize = 64 << 10;

/// What became of a file.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Rows of the shard, per table.
    pub rows: BTreeMap<TableId, u64>,
    /// Elements of `traceEvents` that were read.
    pub events: u64,
    /// Elements that made no sense or were too many, as far as they were counted. They are in the shard's ledger too.
    pub lost: u64,
    /// What is in the file and has no place in RocPD, and how often.
    pub ignored: BTreeMap<String, u64>,
    /// One line for each thing that is not as it should be.
    pub warnings: Vec<String>,
}

/// Writes the rows.
pub(crate) struct Output<W: Write> {
    pub(crate) shard: ShardWriter<W>,
    rows: [u64; 32],
    pub(crate) account: Translation,
    /// Names that were cut.
    cut_names: u64,
    /// Elements that were left out, by why: where the first one was, and how many.
    left_out: BTreeMap<&'static str, (u64, u64)>,
}

/// The cut form of a name.
pub(crate) fn short(name: &[u8]) -> &[u8] {
    cut(name, MAX_NAME.min(MAX_STRING_LENGTH))
}

impl<W: Write> Output<W> {
    pub(crate) fn new(shard: ShardWriter<W>) -> Output<W> {
        let account = Translation::default();
        Output { shard, rows: [0; 32], account, cut_names: 0, left_out: BTreeMap::new() }
    }

    /// Adds a row; returns its key.
    #[inline]
    pub(crate) fn push(&mut self, table: TableId, row: &[Value<'_>]) -> Result<i64, WriteError> {
        if let Some(rows) = self.rows.get_mut(usize::from(table.0)) {
            *rows += 1;
        }
        self.shard.push(SOURCE, table, row)
    }

    /// The id of a string; one that is too long is cut, and counted.
    #[inline]
    pub(crate) fn string(&mut self, text: &[u8]) -> Result<Value<'static>, WriteError> {
        let short = short(text);
        self.cut_names += u64::from(short.len() < text.len());
        self.shard.string(short).map(Value::Int)
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if self.account.warnings.len() < MAX_WARNINGS {
            self.account.warnings.push(warning);
        }
    }

    /// Counts what has no place.
    pub(crate) fn ignore(&mut self, what: &str) {
        let ignored = &mut self.account.ignored;
        if let Some(count) = ignored.get_mut(what) {
            *count += 1;
            return;
        }
        let what = if ignored.len() < MAX_IGNORED { what } else { "other things" };
        *ignored.entry(what.to_owned()).or_default() += 1;
    }

    /// Counts an element at a byte of the file that is in no row.
    pub(crate) fn leave_out(&mut self, at: u64, why: &'static str, cause: LossCause, table: Option<TableId>) {
        self.account.lost += 1;
        self.left_out.entry(why).or_insert((at, 0)).1 += 1;
        self.shard.loss(Loss { source: SOURCE, table, cause, rows: Some(1) });
    }

    /// Notes that nobody knows how much is lost.
    pub(crate) fn lose_unknown(&mut self, cause: LossCause) {
        self.shard.loss(Loss { source: SOURCE, table: Some(rocpd::EVENT), cause, rows: None });
    }

    /// The end of the shard.
    pub(crate) fn finish(mut self) -> Result<(W, Translation), WriteError> {
        for (why, (at, count)) in std::mem::take(&mut self.left_out) {
            self.warn(match count {
                1 => format!("an event at byte {at} is left out: {why}"),
                _ => format!("{count} events are left out, the first one at byte {at}: {why}"),
            });
        }
        if self.cut_names > 0 {
            self.warn(format!("{} names of more than {MAX_NAME} bytes are cut", self.cut_names));
        }
        let rows = (0u16..).map(TableId).zip(self.rows).filter(|(_, rows)| *rows > 0);
        self.account.rows = rows.collect();
        Ok((self.shard.finish()?, self.account))
    }
}
