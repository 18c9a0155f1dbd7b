//! Sets of tables, and comparison of table descriptions.

use super::native::{self, is_native};
use super::rocpd;
use super::table::{Column, Table, TableId};
use std::fmt;
use std::sync::Arc;

/// A set of tables: the built-in ones, and those that an input describes.
#[derive(Clone, Debug)]
pub struct Schema {
    tables: Vec<Arc<Table>>,
}

impl Schema {
    /// Returns the tables of this release: RocPD 3.0.0 and the native tables.
    pub fn builtin() -> &'static Schema {
        static BUILTIN: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(|| {
            let tables = rocpd::tables().into_iter().chain(native::tables());
            Schema { tables: tables.map(Arc::new).collect() }
        });
        &BUILTIN
    }

    /// Returns the description of a table.
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.iter().find(|t| t.id == id)
    }

    /// Returns the table with this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.iter().find(|t| t.name == name)
    }

    /// Returns all tables, in the order in which they are merged and written.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Iterates over the RocPD tables. The other tables are native or carried.
    pub fn rocpd_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().filter(|t| t.id < native::RANGE)
    }

    /// Iterates over the tables that an output can contain: RocPD tables and carried tables.
    pub fn output_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().filter(|t| !is_native(t.id))
    }

    /// Adds a table, or replaces the description of a known table by a wider one.
    pub fn define(&mut self, table: impl Into<Arc<Table>>) {
        let table = table.into();
        match self.tables.iter_mut().find(|t| t.id == table.id) {
            Some(known) => *known = table,
            None => self.tables.push(table),
        }
    }
}

/// Returns whether `table` is the RocPD table `known` with the additional columns of a later version.
pub fn is_wider(table: &Table, known: &Table) -> bool {
    let is_there = |column: &Column| {
        let found = table.position(&column.name).and_then(|at| table.columns.get(at));
        found.is_some_and(|found| found.kind == column.kind)
    };
    table.id == known.id
        && !is_native(table.id)
        && table.name == known.name
        && table.columns.len() > known.columns.len()
        && known.columns.iter().all(is_there)
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Schema::builtin().get(*self) {
            Some(table) => f.write_str(&table.name),
            None => write!(f, "table {}", self.0),
        }
    }
}
