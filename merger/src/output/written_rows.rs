//! Counts of written rows.

use crate::number::ReplacedValues;
use rpd_shard::model::TableId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of written rows.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct WrittenRows {
    /// Rows per table.
    pub rows: BTreeMap<TableId, u64>,
    /// Placeholder rows per table; included in `rows`.
    pub placeholders: BTreeMap<TableId, u64>,
    /// Replaced values.
    pub replaced: ReplacedValues,
}

impl WrittenRows {
    /// Adds to a table's rows.
    pub(crate) fn count(&mut self, table: TableId, rows: u64) {
        *self.rows.entry(table).or_default() += rows;
    }

    /// Adds the counts of another thread or rank.
    pub(crate) fn add(&mut self, other: WrittenRows) {
        other.rows.into_iter().for_each(|(table, rows)| self.count(table, rows));
        for (table, rows) in other.placeholders {
            *self.placeholders.entry(table).or_default() += rows;
        }
        for (place, rows) in other.replaced {
            *self.replaced.entry(place).or_default() += rows;
        }
    }
}
