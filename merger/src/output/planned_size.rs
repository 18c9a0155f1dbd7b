//! Estimates the size of an output from the survey, before the output is written.
//!
//! Rows of shards are counted by table, together with the bytes of their texts; the pages of SQLite are computed from
//! both. An input database takes about as much space in the output. On the inputs of the tests
//! (`tests/tests/planned_sizes.rs`), the estimate is between 5 % too low and 30 % too high. A merge that grows beyond
//! `--max-output` nevertheless is stopped while it writes.

use crate::input::survey::InputSurvey;
use crate::input::{JobSchema, OpenInput};
use crate::options::OutputFormat;
use rpd_comm::{Comm, all_gather_counts};
use rpd_console::Failure;
use rpd_rocpd::schema::default_value;
use rpd_shard::model::{Column, Kind, Table, TableId, Value, rocpd};
use std::collections::BTreeMap;

/// Bytes of a guid and its length in a row.
const GUID_BYTES: u64 = 37;
/// Bytes of a page that are available to cells and their pointers.
const PAGE_BYTES: u64 = 4088;
/// Bytes of the tables and views of a database with one table set, without rows.
const BASE_BYTES: u64 = 160 << 10;
/// Bytes of the tables and views of each further table set.
const SET_BYTES: u64 = 110 << 10;
/// Approximate bytes of metadata per process and node.
const METADATA_BYTES: u64 = 700;
/// Approximate bytes of a process row beside command and environment.
const PROCESS_BYTES: u64 = 1_600;
/// Approximate bytes of an integer column.
const INT_BYTES: u64 = 3;
/// Approximate bytes by which ids of a database row may grow.
const ROW_GROWTH_BYTES: u64 = 2;

/// Content that the inputs of one merge rank contribute to the output.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedContent {
    /// Rows and bytes of text of shards, per table.
    tables: BTreeMap<TableId, (u64, u64)>,
    /// Rows of databases, per table.
    database_rows: BTreeMap<TableId, u64>,
    /// Bytes of all databases, without the empty tables and views.
    database_bytes: u64,
}

impl PlannedContent {
    /// Adds a surveyed input.
    pub(crate) fn add(&mut self, survey: &InputSurvey) {
        if let OpenInput::Database(open) = &survey.input {
            let rows = open.database.bytes().saturating_sub(BASE_BYTES);
            self.database_bytes = self.database_bytes.saturating_add(rows);
            for (table, space) in survey.sources.iter().flat_map(|source| source.spaces.iter()) {
                *self.database_rows.entry(table).or_default() += space.rows();
            }
            return;
        }
        for (table, bytes) in &survey.texts {
            self.count(*table, 0, *bytes);
        }
        self.count(rocpd::STRING, survey.rows_read.get(&rocpd::STRING).copied().unwrap_or(0), 0);
        for source in &survey.sources {
            source.spaces.iter().for_each(|(table, space)| self.count(table, space.rows(), 0));
            let process = &source.process;
            let environment = process.environment.iter().map(|(name, value)| name.len() + value.len() + 8);
            let text = process.command.len() + environment.sum::<usize>();
            self.count(rocpd::INFO_PROCESS, 0, text as u64 + PROCESS_BYTES);
        }
    }

    fn count(&mut self, table: TableId, rows: u64, text: u64) {
        let (known_rows, known_text) = self.tables.entry(table).or_default();
        *known_rows = known_rows.saturating_add(rows);
        *known_text = known_text.saturating_add(text);
    }

    /// Returns the sum over all ranks.
    fn of_all(&self, comm: &impl Comm, tables: &[TableId]) -> Result<PlannedContent, Failure> {
        let mut own = vec![self.database_bytes];
        for table in tables {
            let (rows, text) = self.tables.get(table).copied().unwrap_or_default();
            own.extend([rows, text, self.database_rows.get(table).copied().unwrap_or(0)]);
        }
        let all = all_gather_counts(comm, &own)?;
        let sum = |i: usize| all.iter().map(|numbers| numbers[i]).fold(0, u64::saturating_add);
        let mut content = PlannedContent { database_bytes: sum(0), ..PlannedContent::default() };
        for (i, table) in tables.iter().enumerate() {
            content.tables.insert(*table, (sum(3 * i + 1), sum(3 * i + 2)));
            content.database_rows.insert(*table, sum(3 * i + 3));
        }
        Ok(content)
    }
}

/// Properties of the output that are the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedRows<'a> {
    /// Tables of the output.
    pub schema: &'a JobSchema,
    /// Rows of the output, per table.
    pub totals: &'a BTreeMap<TableId, u64>,
    /// Number of table sets.
    pub sets: u64,
}

/// Estimates the bytes of the database. Every rank calls this and gets the same result.
pub(crate) fn planned_bytes(
    comm: &impl Comm,
    content: &PlannedContent,
    numbers: PlannedRows<'_>,
) -> Result<u64, Failure> {
    let mut tables = numbers.schema.numbered.clone();
    tables.push(rocpd::STRING);
    let content = content.of_all(comm, &tables)?;
    let mut bytes = 0u64;
    let mut least_of_databases = 0u64;
    for id in tables {
        let Some(table) = numbers.schema.get(id) else { continue };
        let row = row_bytes(table, &numbers);
        let rows_of_databases = content.database_rows.get(&id).copied().unwrap_or(0);
        least_of_databases = least_of_databases.saturating_add(table_bytes(rows_of_databases, row, 0));
        bytes = bytes.saturating_add(rows_of_databases.saturating_mul(ROW_GROWTH_BYTES));
        let (rows, text) = content.tables.get(&id).copied().unwrap_or_default();
        bytes = bytes.saturating_add(match id {
            rocpd::STRING => strings_bytes(rows, text, row, numbers.total(id)),
            _ => table_bytes(rows, row, text),
        });
    }
    let processes = numbers.total(rocpd::INFO_PROCESS) + numbers.total(rocpd::INFO_NODE);
    let always =
        BASE_BYTES + SET_BYTES.saturating_mul(numbers.sets.saturating_sub(1)) + METADATA_BYTES * processes;
    Ok(bytes.saturating_add(content.database_bytes.max(least_of_databases)).saturating_add(always))
}

/// Returns the bytes that are on disk at the same time while a database is converted: the database and the result of
/// the conversion.
pub(crate) fn with_converted(database: u64, form: OutputFormat) -> u64 {
    match form {
        OutputFormat::Rocpd => database,
        OutputFormat::Rpd => database.saturating_add(database),
        OutputFormat::Perfetto | OutputFormat::ChromeJson => database.saturating_add(trace_bytes(database)),
    }
}

/// Returns the bytes that traces of a database take while they are made. Traces take up to a tenth of the database;
/// the temporary parts from which they are assembled take as much again.
pub(crate) fn trace_bytes(database: u64) -> u64 {
    database / 4
}

impl PlannedRows<'_> {
    fn total(&self, table: TableId) -> u64 {
        self.totals.get(&table).copied().unwrap_or(0)
    }
}

/// Returns the bytes of a table, including the pages above its leaf pages.
fn table_bytes(rows: u64, row: u64, text: u64) -> u64 {
    if rows == 0 {
        return 0;
    }
    let content = rows.saturating_mul(row).saturating_add(text);
    let cell = (content / rows).max(1);
    // The last cell of a page seldom fits exactly. Each unit starts new leaf pages, and there are pages above them.
    let unused = content / PAGE_BYTES * (cell.min(1_500) / 2 + 8) + content / 80;
    content.saturating_add(unused).saturating_add(4096)
}

/// Returns the bytes of the distinct strings and of the unique index on them. The pages of the index are two thirds
/// full.
fn strings_bytes(rows: u64, text: u64, row: u64, distinct: u64) -> u64 {
    let distinct = distinct.min(rows);
    let text = (u128::from(text) * u128::from(distinct) / u128::from(rows.max(1))) as u64;
    let index = table_bytes(distinct, 10, text);
    table_bytes(distinct, row, text).saturating_add(index).saturating_add(index / 2)
}

/// Returns the bytes of a row without its texts: the cell, its header, and its numbers.
fn row_bytes(table: &Table, numbers: &PlannedRows<'_>) -> u64 {
    let total = numbers.total(table.id);
    let cell = 2 + 2 + varint_bytes(total);
    let header = 2 + table.columns.len() as u64;
    cell + header + GUID_BYTES + table.columns.iter().map(|column| column_bytes(column, numbers)).sum::<u64>()
}

fn column_bytes(column: &Column, numbers: &PlannedRows<'_>) -> u64 {
    match &column.kind {
        Kind::Ref(target) => int_bytes(numbers.total(*target)),
        Kind::Str => int_bytes(numbers.total(rocpd::STRING)),
        Kind::Stack => int_bytes(numbers.total(rocpd::EVENT)),
        Kind::Time | Kind::Real => 8,
        Kind::Int => INT_BYTES,
        Kind::Text | Kind::Json(_) | Kind::Any => match default_value(column) {
            Value::Text(text) | Value::Blob(text) => text.len() as u64 + 1,
            _ => 1,
        },
    }
}

/// Returns the bytes of an integer in a row of SQLite.
fn int_bytes(value: u64) -> u64 {
    match value {
        0..2 => 0,
        2..0x80 => 1,
        0x80..0x8000 => 2,
        0x8000..0x80_0000 => 3,
        0x80_0000..0x8000_0000 => 4,
        _ => 6,
    }
}

/// Returns the bytes of a key.
fn varint_bytes(value: u64) -> u64 {
    u64::from(u64::BITS - value.leading_zeros()).div_ceil(7).max(1)
}
