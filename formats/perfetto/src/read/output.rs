//! The shard that a trace becomes, within its limits, and the account of what went into it.

use super::error::TranslateError;
use super::packets::Damage;
use rpd_shard::ShardWriter;
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::record::{Loss, LossCause};
use std::collections::BTreeMap;
use std::io::Write;

/// The node and process row of a source.
pub(super) const OWNER: Value<'static> = Value::Int(1);
pub(super) const NULL: Value<'static> = Value::Null;
pub(super) const ZERO: Value<'static> = Value::Int(0);

/// Rows and bytes of text that wait for their blocks, of all processes together.
const MAX_PENDING: (usize, usize) = (1 << 18, 64 << 20);

/// What became of a trace.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Rows of the shard, per table, of all processes together.
    pub rows: BTreeMap<TableId, u64>,
    /// What could not be read or kept, by what it was. It is in the shard's ledger too.
    pub lost: BTreeMap<String, u64>,
    /// What is in the file and has no place in RocPD, by what it is and how often it is there.
    pub ignored: BTreeMap<String, u64>,
    /// One line for each thing that is not as it should be.
    pub warnings: Vec<String>,
}

/// The shard, and the account.
pub(super) struct Output<'a, W: Write> {
    pub(super) shard: &'a mut ShardWriter<W>,
    text_bytes: usize,
    pub(super) account: Translation,
}

impl<'a, W: Write> Output<'a, W> {
    pub(super) fn new(shard: &'a mut ShardWriter<W>) -> Output<'a, W> {
        Output { shard, text_bytes: 0, account: Translation::default() }
    }

    /// Adds a row; returns its key. What it leaves out has its default.
    pub(super) fn push(
        &mut self,
        source: u32,
        table: TableId,
        row: &[Value<'_>],
    ) -> Result<i64, TranslateError> {
        let text = |v: &Value<'_>| if let Value::Text(t) | Value::Blob(t) = v { t.len() } else { 0 };
        self.text_bytes += row.iter().map(text).sum::<usize>();
        let key = self.shard.push(source, table, row)?;
        *self.account.rows.entry(table).or_default() += 1;
        if self.shard.pending_rows() > MAX_PENDING.0 || self.text_bytes > MAX_PENDING.1 {
            self.shard.flush()?;
            self.text_bytes = 0;
        }
        Ok(key)
    }

    /// The id of a string.
    pub(super) fn string(&mut self, text: &[u8]) -> Result<Value<'static>, TranslateError> {
        Ok(Value::Int(self.shard.string(text)?))
    }

    /// An arg of an event.
    pub(super) fn arg(
        &mut self,
        source: u32,
        event: i64,
        position: i64,
        (kind, name, value): (&str, &[u8], &[u8]),
    ) -> Result<(), TranslateError> {
        let row = [
            Value::Int(event),
            Value::Int(position),
            kind.into(),
            Value::Text(super::sequence::cut(name)),
            Value::Text(super::sequence::cut(value)),
        ];
        self.push(source, rocpd::ARG, &row).map(drop)
    }

    /// Counts what is in no row.
    pub(super) fn lose(
        &mut self,
        what: &str,
        source: u32,
        table: Option<TableId>,
        cause: LossCause,
        rows: u64,
    ) {
        if rows > 0 {
            *self.account.lost.entry(what.to_owned()).or_default() += rows;
            self.shard.loss(Loss { source, table, cause, rows: Some(rows) });
        }
    }

    /// Notes that what stands behind some place is lost, and nobody knows how much.
    pub(super) fn damaged(&mut self, damage: &Damage, inside: &str) {
        let Damage { offset, reason } = damage;
        self.warn(format!("it is damaged at byte {offset}{inside}: {reason}; what stands behind is lost"));
        self.shard.loss(Loss { source: 0, table: None, cause: LossCause::Truncated, rows: None });
    }

    /// Counts what has no place in RocPD.
    pub(super) fn ignore(&mut self, what: &str) {
        match self.account.ignored.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(self.account.ignored.insert(what.to_owned(), 1)),
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        const MAX_WARNINGS: usize = 100;
        if self.account.warnings.len() < MAX_WARNINGS {
            self.account.warnings.push(warning);
        }
    }
}
