//! Compares declared tables with those that a database should have.

use super::Problem;
use crate::amd;
use crate::connect::identifier;
use crate::guid::Guid;
use crate::schema;
use crate::set::TableSet;
use crate::shape::{self, Shape};
use rpd_shard::model::Schema;
use rusqlite::{Connection, Result};
use std::collections::BTreeMap;

/// The guid of the model database.
const MODEL: Guid = Guid::from_bits(0);

/// The expected tables of a database.
pub(super) struct Model {
    conn: Connection,
    shapes: BTreeMap<String, Shape>,
    /// Tables and columns with an unknown declaration. A column comes with its table.
    named_only: Vec<(&'static str, Option<&'static str>)>,
}

impl Model {
    /// Creates an empty database with these tables.
    pub(super) fn new(schema: &Schema) -> Result<Model> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch(&schema::create_all_of(schema, &[(&MODEL).into()]))?;
        let set = TableSet::from(&MODEL);
        let shapes = shape::of_tables(&conn, &shape::tables(&conn)?, set.suffix(), set.guid())?;
        Ok(Model { conn, shapes, named_only: Vec::new() })
    }

    /// Creates a model with the tables of a version of AMD's schema, or `None` if this release does not support it.
    pub(super) fn of_amd(version: [u32; 3]) -> Result<Option<Model>> {
        let Some(schema) = amd::schema_of(version) else { return Ok(None) };
        Ok(Some(Model { named_only: amd::named_only(version).collect(), ..Model::new(&schema)? }))
    }

    /// Returns the model database.
    pub(super) fn database(&self) -> &Connection {
        &self.conn
    }

    /// Returns the names of the required tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &str> {
        let named = self.named_only.iter().filter(|(_, column)| column.is_none()).map(|(table, _)| *table);
        self.shapes.keys().map(String::as_str).chain(named)
    }

    /// Returns the problems in the declarations of the tables of one set, which are given by name without the suffix.
    pub(super) fn compare(&self, found: &BTreeMap<String, Shape>) -> Vec<Problem> {
        let missing = self.tables().filter(|name| !found.contains_key(*name));
        let mut problems: Vec<_> = missing.map(|name| Problem::MissingTable(name.to_owned())).collect();
        for (table, expected) in &self.shapes {
            let Some(found) = found.get(table) else { continue };
            let found: Vec<_> =
                found.iter().filter(|line| !self.is_named_only(table, line)).cloned().collect();
            if found == *expected {
                continue;
            }
            let without =
                |a: &[String], b: &[String]| a.iter().filter(|line| !b.contains(line)).cloned().collect();
            problems.push(Problem::Declaration {
                table: table.clone(),
                found: without(&found, expected),
                expected: without(expected, &found),
            });
        }
        let extra = found
            .keys()
            .filter(|name| name.starts_with("rocpd_") && self.tables().all(|known| known != *name));
        problems.extend(extra.map(|name| Problem::Extra(format!("table {name}"))));
        problems
    }

    /// Returns whether a line of a shape is about a column with an unknown declaration.
    fn is_named_only(&self, table: &str, line: &str) -> bool {
        let columns = self.named_only.iter().filter(|(of, _)| *of == table).filter_map(|(_, column)| *column);
        columns.into_iter().any(|column| {
            ["column", "foreign key"].iter().any(|what| line.starts_with(&format!("{what} {column} ")))
        })
    }
}

/// Returns whether a table has the key of RocPD tables.
pub(super) fn has_id(shape: &Shape) -> bool {
    shape.iter().any(|line| line.starts_with("column id "))
}

/// Returns the number of rows of a table, and whether `sqlite_sequence` is lower than its largest key.
pub(super) fn rows_of(conn: &Connection, table: &str, shape: &Shape) -> Result<(u64, bool)> {
    let is_sequence_low = match has_id(shape) {
        true => "coalesce(max(id) > coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0), 0)",
        false => "?1 IS NULL",
    };
    let sql = format!("SELECT count(*), {is_sequence_low} FROM {}", identifier(table));
    conn.query_row(&sql, [table], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?)))
}
