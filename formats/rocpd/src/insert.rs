//! INSERT statements of one table, and binding of rows to them.

use crate::connect::{identifier, literal};
use crate::schema::{default_number, default_value, table_name};
use crate::set::TableSet;
use rpd_shard::model::{Cells, Column, Keys, Merged, Rows, Table, TextCells, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement};
use std::sync::Arc;

/// Maximum number of values in one statement. For an AUTOINCREMENT table, SQLite reads and writes sqlite_sequence
/// once per statement. One row per statement would therefore take twice as long.
const VALUES_PER_STATEMENT: usize = 512;

/// The statements for rows of one table with the same absent columns. An absent column is a literal in the
/// statement and is not bound.
pub(crate) struct Insert {
    /// The table for which the statements were generated.
    pub(crate) table: Arc<Table>,
    one: String,
    many: String,
    /// Number of rows per execution of `many`.
    batch: usize,
}

/// Returns the columns without values, one bit each. Columns from 128 on are always bound.
pub(crate) fn absent_columns(rows: &Rows<Merged>) -> u128 {
    let absent = |(i, cells): (usize, &Cells)| match cells {
        Cells::Absent => 1u128 << i,
        _ => 0,
    };
    rows.columns.iter().enumerate().take(128).map(absent).sum()
}

fn is_absent(mask: u128, column: usize) -> bool {
    column < 128 && mask >> column & 1 == 1
}

/// A row that SQLite rejected.
pub(crate) struct Refused {
    pub(crate) key: i64,
    pub(crate) source: rusqlite::Error,
}

impl Insert {
    pub(crate) fn new(table: &Arc<Table>, set: &TableSet, absent: u128) -> Insert {
        let bound = (0..table.columns.len()).filter(|i| !is_absent(absent, *i)).count() + 1;
        let mut head = "INSERT OR FAIL INTO ".to_owned();
        head += &identifier(&table_name(&table.name, set));
        head += " (id, guid";
        let mut row = format!("(?, {}", literal(set.guid()));
        for (i, column) in table.columns.iter().enumerate() {
            head = head + ", " + &identifier(&column.name);
            row += ", ";
            row += &if is_absent(absent, i) { absent_value(column) } else { "?".to_owned() };
        }
        head += ") VALUES ";
        row += ")";
        let batch = (VALUES_PER_STATEMENT / bound).max(1);
        let many = format!("{head}{}", vec![row.as_str(); batch].join(", "));
        Insert { table: table.clone(), one: head + &row, many, batch }
    }

    /// Inserts all rows.
    pub(crate) fn run(&self, conn: &Connection, rows: &Rows<Merged>, absent: u128) -> Result<(), Refused> {
        let feeds: Vec<_> = (0..rows.columns.len())
            .filter(|i| !is_absent(absent, *i))
            .map(|i| Feed::new(&rows.table.columns[i], &rows.columns[i]))
            .collect();
        let whole = rows.len - rows.len % self.batch;
        self.run_batches(conn, &self.many, &rows.keys, &feeds, 0..whole, self.batch)?;
        self.run_batches(conn, &self.one, &rows.keys, &feeds, whole..rows.len, 1)
    }

    fn run_batches(
        &self,
        conn: &Connection,
        sql: &str,
        keys: &Keys,
        feeds: &[Feed<'_>],
        range: std::ops::Range<usize>,
        batch: usize,
    ) -> Result<(), Refused> {
        let first = range.start;
        if range.is_empty() {
            return Ok(());
        }
        let refused = |row: usize, source| Refused { key: keys.get(row), source };
        let mut statement = conn.prepare_cached(sql).map_err(|e| refused(first, e))?;
        let statement: &mut Statement<'_> = &mut statement;
        for start in range.step_by(batch) {
            let mut slot = 0;
            for row in start..start + batch {
                bind(statement, &mut slot, Value::Int(keys.get(row))).map_err(|e| refused(row, e))?;
                for feed in feeds {
                    // SQLite keeps bindings between executions, and a constant is the same in every batch.
                    if feed.constant && start != first {
                        slot += 1;
                        continue;
                    }
                    bind(statement, &mut slot, feed.get(row)).map_err(|e| refused(row, e))?;
                }
            }
            // OR FAIL keeps the rows before the rejected one, and `changes` returns their number.
            statement.raw_execute().map_err(|source| {
                let stored = usize::try_from(conn.changes()).unwrap_or(0);
                refused(start + stored.min(batch - 1), source)
            })?;
        }
        Ok(())
    }
}

/// Source of the values that are bound for one column.
struct Feed<'a> {
    cells: &'a Cells,
    /// Value that replaces NULL: the default of a column that must not be NULL.
    null: Value<'a>,
    /// Whether all rows have the same value.
    constant: bool,
}

impl<'a> Feed<'a> {
    fn new(column: &'a Column, cells: &'a Cells) -> Feed<'a> {
        let must_default = column.sql.not_null || matches!(cells, Cells::Absent);
        let null = if must_default { default_value(column) } else { Value::Null };
        let constant = match cells {
            Cells::Text(text) => text.ends.len() == 1 && !text.codes.contains(&TextCells::NULL),
            Cells::Absent => true,
            _ => false,
        };
        Feed { cells, null, constant }
    }

    #[inline]
    fn get(&self, row: usize) -> Value<'_> {
        match self.cells.get(row) {
            Value::Null => self.null,
            value => value,
        }
    }
}

#[inline]
fn bind(statement: &mut Statement<'_>, slot: &mut usize, value: Value<'_>) -> rusqlite::Result<()> {
    *slot += 1;
    let value = match value {
        Value::Null => ValueRef::Null,
        Value::Int(v) => ValueRef::Integer(v),
        Value::Real(v) => ValueRef::Real(v),
        Value::Text(v) => ValueRef::Text(v),
        Value::Blob(v) => ValueRef::Blob(v),
    };
    statement.raw_bind_parameter(*slot, ToSqlOutput::Borrowed(value))
}

/// Returns the default of a column as SQL text.
fn absent_value(column: &Column) -> String {
    match &column.sql.default {
        Some(number) if default_number(column).is_some() => number.clone(),
        Some(text) => literal(text),
        None => "NULL".to_owned(),
    }
}
