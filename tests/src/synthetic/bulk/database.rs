//! A RocPD database, filled in one transaction without a journal.

use crate::synthetic::databases::create_tables;
use crate::synthetic::run::{PlannedProcess, Run};
use rpd_rocpd::{Guid, schema};
use rpd_shard::model::{Kind, Table, TableId, Value, rocpd};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement};
use std::ops::Range;

/// Rows of one statement.
const ROWS_AT_ONCE: usize = 64;

pub(super) struct BulkDatabase<'c> {
    connection: &'c Connection,
    /// By the number of the table.
    tables: Vec<Option<Insert<'c>>>,
    strings: i64,
}

/// Rows of one table that are inserted at once: a statement for each row would read and write
/// `sqlite_sequence` each time.
struct Insert<'c> {
    connection: &'c Connection,
    /// The statement up to its values.
    sql: String,
    many: Statement<'c>,
    /// Columns that have `{}` where a row has nothing.
    json: Vec<bool>,
    /// Values of rows to come, the id first.
    cells: Vec<Cell>,
    rows: usize,
    /// The texts of those values.
    texts: Vec<u8>,
}

enum Cell {
    Null,
    Int(i64),
    Real(f64),
    Text(Range<usize>),
}

impl<'c> BulkDatabase<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        run: &Run,
        process: &PlannedProcess,
    ) -> rusqlite::Result<BulkDatabase<'c>> {
        let bits = u128::from(run.config.seed) << 64 | 1 << 48 | u128::from(process.rank);
        let guid = Guid::from_bits(bits);
        connection.execute_batch(
            "PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
             PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -65536; BEGIN;",
        )?;
        create_tables(connection, &guid)?;
        let suffix = guid.suffix();
        let mut tables = Vec::new();
        for table in schema::tables() {
            let place = usize::from(table.id.0);
            tables.resize_with(tables.len().max(place + 1), || None);
            tables[place] = Some(Insert::new(connection, table, &suffix)?);
        }
        Ok(BulkDatabase { connection, tables, strings: 0 })
    }

    #[inline]
    pub(super) fn push(&mut self, table: TableId, id: i64, row: &[Value<'_>]) -> rusqlite::Result<()> {
        match self.tables.get_mut(usize::from(table.0)) {
            Some(Some(insert)) => insert.row(id, row),
            _ => Err(rusqlite::Error::InvalidParameterName(table.to_string())),
        }
    }

    /// Adds a string that is not there yet.
    pub(super) fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        self.strings += 1;
        self.push(rocpd::STRING, self.strings, &[Value::Text(text.as_bytes())])?;
        Ok(self.strings)
    }

    pub(super) fn finish(self) -> rusqlite::Result<()> {
        let BulkDatabase { connection, tables, .. } = self;
        for mut insert in tables.into_iter().flatten() {
            insert.rest()?;
        }
        connection.execute_batch("COMMIT;")
    }
}

impl<'c> Insert<'c> {
    fn new(connection: &'c Connection, table: &Table, suffix: &str) -> rusqlite::Result<Insert<'c>> {
        let names: Vec<String> = table.columns.iter().map(|c| format!("\"{}\"", c.name)).collect();
        let (name, names) = (&table.name, names.join(", "));
        let sql = format!("INSERT INTO \"{name}{suffix}\" (id, {names}) VALUES ");
        let json: Vec<bool> = table.columns.iter().map(|c| matches!(c.kind, Kind::Json(_))).collect();
        let many = connection.prepare(&values(&sql, json.len() + 1, ROWS_AT_ONCE))?;
        Ok(Insert { connection, sql, many, json, cells: Vec::new(), rows: 0, texts: Vec::new() })
    }

    /// Columns that are left out at the end are NULL or `{}`.
    #[inline]
    fn row(&mut self, id: i64, row: &[Value<'_>]) -> rusqlite::Result<()> {
        self.cells.push(Cell::Int(id));
        for (i, json) in self.json.iter().enumerate() {
            let cell = match row.get(i) {
                Some(Value::Int(v)) => Cell::Int(*v),
                Some(Value::Real(v)) => Cell::Real(*v),
                Some(Value::Text(v) | Value::Blob(v)) => text(&mut self.texts, v),
                None | Some(Value::Null) if *json => text(&mut self.texts, b"{}"),
                None | Some(Value::Null) => Cell::Null,
            };
            self.cells.push(cell);
        }
        self.rows += 1;
        if self.rows < ROWS_AT_ONCE {
            return Ok(());
        }
        bind(&mut self.many, &self.cells, &self.texts)?;
        self.many.raw_execute()?;
        self.clear();
        Ok(())
    }

    /// Inserts the last rows.
    fn rest(&mut self) -> rusqlite::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut statement = self.connection.prepare(&values(&self.sql, self.json.len() + 1, self.rows))?;
        bind(&mut statement, &self.cells, &self.texts)?;
        statement.raw_execute()?;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.cells.clear();
        self.texts.clear();
        self.rows = 0;
    }
}

fn values(sql: &str, width: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; width].join(", "));
    sql.to_owned() + &vec![row; rows].join(", ")
}

fn text(texts: &mut Vec<u8>, text: &[u8]) -> Cell {
    let start = texts.len();
    texts.extend_from_slice(text);
    Cell::Text(start..texts.len())
}

fn bind(statement: &mut Statement<'_>, cells: &[Cell], texts: &[u8]) -> rusqlite::Result<()> {
    for (i, cell) in cells.iter().enumerate() {
        let value = match cell {
            Cell::Null => ValueRef::Null,
            Cell::Int(v) => ValueRef::Integer(*v),
            Cell::Real(v) => ValueRef::Real(*v),
            Cell::Text(range) => ValueRef::Text(&texts[range.clone()]),
        };
        statement.raw_bind_parameter(i + 1, ToSqlOutput::Borrowed(value))?;
    }
    Ok(())
}
