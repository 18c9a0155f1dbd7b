//! Verifies that the output has as many rows as the inputs, table by table.

use super::verify::TableAccount;
use super::written_rows::WrittenRows;
use crate::input::{JobSchema, REGIONS, SAMPLES};
use rpd_comm::{Comm, all_gather_values, shared_failure};
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};
use serde::Serialize;
use std::collections::BTreeMap;

/// Row count of one table.
#[derive(Debug, Serialize)]
pub struct RowCount {
    /// Name of the table.
    pub table: String,
    /// Number of rows.
    pub rows: u64,
}

/// Row counts of the output.
#[derive(Debug)]
pub(crate) struct RowAccounts {
    /// Account of each table.
    pub accounts: BTreeMap<TableId, TableAccount>,
    /// Rows of each table.
    pub rows: Vec<RowCount>,
    /// Placeholder rows of each table.
    pub placeholders: Vec<RowCount>,
    /// Allocations at agents with numbers above 255.
    pub high_agents: u64,
    /// Table, column, and number of replaced values.
    pub replaced: Vec<(String, String, u64)>,
}

/// Compares the rows that all ranks wrote with those that they read and with those that were numbered.
///
/// # Errors
/// On all ranks, if the counts differ.
pub(crate) fn compare_counts(
    comm: &impl Comm,
    schema: &JobSchema,
    numbered: &BTreeMap<TableId, u64>,
    read: &BTreeMap<TableId, u64>,
    written: WrittenRows,
) -> Result<RowAccounts, Failure> {
    let mut all = WrittenRows::default();
    all_gather_values(comm, &written)?.into_iter().for_each(|rows| all.add(rows));
    let mut accounts = BTreeMap::new();
    for (&table, &expected) in numbered {
        let rows = all.rows.get(&table).copied().unwrap_or(0);
        let placeholders = all.placeholders.get(&table).copied().unwrap_or(0);
        let own = read.get(&table).copied().unwrap_or(0);
        accounts.insert(table, TableAccount { read: own, placeholders, numbered: expected });
        let read = rows_out_of(read, table).unwrap_or(rows - placeholders);
        if rows != expected || rows != read + placeholders {
            let text = format!(
                "{rows} rows of {} were written, {expected} were counted, {read} were read, \
                 {placeholders} stand for lost ones",
                schema.name(table)
            );
            return Err(shared_failure(comm, Failure::internal(text)));
        }
    }
    let named = |((table, column), rows)| (schema.name(table).into_owned(), column, rows);
    Ok(RowAccounts {
        accounts,
        rows: row_counts(schema, &all.rows),
        placeholders: row_counts(schema, &all.placeholders),
        high_agents: all.high_agents,
        replaced: all.replaced.into_iter().map(named).collect(),
    })
}

/// Returns the number of rows of a RocPD table that result from the rows read; `None` if it depends on their values.
fn rows_out_of(read: &BTreeMap<TableId, u64>, table: TableId) -> Option<u64> {
    let of = |tables: &[TableId]| -> u64 { tables.iter().filter_map(|t| read.get(t)).sum() };
    match table {
        rocpd::EVENT => Some(of(&[table]) + of(&REGIONS) + of(&SAMPLES)),
        rocpd::REGION => Some(of(&[table]) + of(&REGIONS)),
        rocpd::SAMPLE => Some(of(&[table]) + of(&SAMPLES)),
        rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS | rocpd::TRACK | rocpd::ARG => None,
        _ => Some(of(&[table])),
    }
}

/// Returns the row counts by table name.
pub(crate) fn row_counts(schema: &JobSchema, rows: &BTreeMap<TableId, u64>) -> Vec<RowCount> {
    rows.iter()
        .map(|(table, rows)| RowCount { table: schema.name(*table).into_owned(), rows: *rows })
        .collect()
}
