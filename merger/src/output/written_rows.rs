//! Counts of written rows.

use crate::number::ReplacedValues;
use rpd_shard::model::{Merged, Rows, TableId, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest number of an agent that fits into a byte.
const MAX_BYTE_AGENT: i64 = 255;

/// Counts of written rows.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct WrittenRows {
    /// Rows per table.
    pub rows: BTreeMap<TableId, u64>,
    /// Placeholder rows per table; included in `rows`.
    pub placeholders: BTreeMap<TableId, u64>,
    /// Allocations at agents with numbers beyond those that one byte holds.
    pub high_agents: u64,
    /// Replaced values.
    pub replaced: ReplacedValues,
}

impl WrittenRows {
    /// Adds to a table's rows.
    pub(crate) fn count(&mut self, table: TableId, rows: u64) {
        *self.rows.entry(table).or_default() += rows;
    }

    /// Adds to the rows of the table of these rows.
    pub(crate) fn count_rows(&mut self, rows: &Rows<Merged>) {
        self.count(rows.id(), rows.len as u64);
        if rows.id() == rocpd::MEMORY_ALLOCATE {
            let agents = rows.column("agent_id");
            let high = (0..rows.len).filter(|i| agents.int(*i).is_some_and(|agent| agent > MAX_BYTE_AGENT));
            self.high_agents += high.count() as u64;
        }
    }

    /// Adds the counts of another thread or rank.
    pub(crate) fn add(&mut self, other: WrittenRows) {
        other.rows.into_iter().for_each(|(table, rows)| self.count(table, rows));
        self.high_agents += other.high_agents;
        for (table, rows) in other.placeholders {
            *self.placeholders.entry(table).or_default() += rows;
        }
        for (place, rows) in other.replaced {
            *self.replaced.entry(place).or_default() += rows;
        }
    }
}
