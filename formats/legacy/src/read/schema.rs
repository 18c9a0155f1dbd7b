//! Reads the tables and columns of a file. Views are never used, because they may contain anything.

use super::RpdReadError;
use crate::quiet;
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of tables that are examined.
const MAX_TABLES: usize = 4096;

/// An open `.rpd`.
pub(super) struct RpdFile {
    pub(super) conn: Connection,
    path: PathBuf,
    /// Tables by name in lower case.
    tables: BTreeMap<String, TableInfo>,
}

/// A table of the file.
#[derive(Clone, Debug)]
pub(super) struct TableInfo {
    pub(super) name: String,
    pub(super) columns: Vec<ColumnInfo>,
}

/// A column of the file.
#[derive(Clone, Debug)]
pub(super) struct ColumnInfo {
    pub(super) name: String,
    pub(super) declared: String,
    /// Position in the primary key, from 1.
    pub(super) key: i64,
    /// Table and column that the column refers to.
    pub(super) target: Option<String>,
}

impl TableInfo {
    /// Returns the column with this name.
    pub(super) fn column(&self, name: &str) -> Option<&ColumnInfo> {
        self.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// Returns the only column of the primary key.
    pub(super) fn key(&self) -> Option<&ColumnInfo> {
        let mut keys = self.columns.iter().filter(|c| c.key > 0);
        keys.next().filter(|_| keys.next().is_none())
    }
}

impl RpdFile {
    /// Opens a file, and checks that it is a `.rpd` with rows that can be found by id.
    pub(super) fn open(path: &Path) -> Result<RpdFile, RpdReadError> {
        let conn = quiet::open(path)?;
        let mut input = RpdFile { conn, path: path.to_owned(), tables: BTreeMap::new() };
        let tables = input.read_tables().map_err(|source| input.error("sqlite_master", source))?;
        if tables.len() > MAX_TABLES {
            return Err(input.too_many("tables", MAX_TABLES));
        }
        input.tables = tables;
        input.require()?;
        Ok(input)
    }

    fn read_tables(&self) -> rusqlite::Result<BTreeMap<String, TableInfo>> {
        // Virtual tables have no root page.
        let mut names = self.conn.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0
              AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT ?",
        )?;
        let names = names.query_map([MAX_TABLES as i64 + 1], |row| row.get::<_, String>(0))?;
        let names = names.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut columns = self.conn.prepare("SELECT name, type, pk FROM pragma_table_info(?)")?;
        let mut targets = self.conn.prepare("SELECT \"from\", \"table\" FROM pragma_foreign_key_list(?)")?;
        let mut tables = BTreeMap::new();
        for name in names {
            let column = |row: &Row<'_>| {
                Ok(ColumnInfo { name: row.get(0)?, declared: row.get(1)?, key: row.get(2)?, target: None })
            };
            let mut columns: Vec<_> = columns.query_map([&name], column)?.collect::<Result<_, _>>()?;
            let targets = targets.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
            for target in targets {
                let (from, table): (String, String) = target?;
                if let Some(column) = columns.iter_mut().find(|c| c.name.eq_ignore_ascii_case(&from)) {
                    column.target = Some(table.to_ascii_lowercase());
                }
            }
            tables.insert(name.to_ascii_lowercase(), TableInfo { name, columns });
        }
        Ok(tables)
    }

    /// Checks that all required tables and columns exist.
    fn require(&self) -> Result<(), RpdReadError> {
        for missing in ["rocpd_api", "rocpd_string"] {
            if self.table(missing).is_none() {
                let is_rocpd = self.tables.keys().any(|name| name.starts_with("rocpd_info_"));
                let hint = if is_rocpd { ", but those of RocPD (ROCm 7)" } else { "" };
                return Err(RpdReadError::NotRpd { path: self.path.clone(), missing, hint });
            }
        }
        let needed: [(&str, &[&'static str]); 2] = [
            ("rocpd_api", &["id", "pid", "tid", "start", "end", "apiName_id"]),
            ("rocpd_op", &["id", "start", "end", "gpuId", "opType_id", "description_id"]),
        ];
        for (table, columns) in needed {
            let Some(info) = self.table(table) else { continue };
            if let Some(column) = columns.iter().find(|c| info.column(c).is_none()) {
                return Err(RpdReadError::NoColumn {
                    path: self.path.clone(),
                    table: table.to_owned(),
                    column,
                });
            }
        }
        let keyed = [
            ("rocpd_api", "id"),
            ("rocpd_op", "id"),
            ("rocpd_string", "id"),
            ("rocpd_ustring", "id"),
            ("rocpd_kernelapi", "api_ptr_id"),
            ("rocpd_copyapi", "api_ptr_id"),
        ];
        for (table, column) in keyed {
            let Some(info) = self.table(table) else { continue };
            if info.key().is_none_or(|key| !key.name.eq_ignore_ascii_case(column)) {
                return Err(RpdReadError::NoKey { path: self.path.clone(), table: table.to_owned(), column });
            }
        }
        Ok(())
    }

    /// Returns a table by its name in lower case.
    pub(super) fn table(&self, name: &str) -> Option<&TableInfo> {
        self.tables.get(name)
    }

    /// Returns all tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &TableInfo> {
        self.tables.values()
    }

    /// Converts an error of SQLite on a table.
    pub(super) fn error(&self, table: &str, source: rusqlite::Error) -> RpdReadError {
        RpdReadError::Sqlite { path: self.path.clone(), table: table.to_owned(), source }
    }

    /// Returns the error for a limit that was exceeded.
    pub(super) fn too_many(&self, what: &'static str, limit: usize) -> RpdReadError {
        RpdReadError::TooMany { path: self.path.clone(), what, limit }
    }

    /// Returns whether a table has rows.
    pub(super) fn has_rows(&self, table: &str) -> Result<bool, RpdReadError> {
        let Some(info) = self.table(table) else { return Ok(false) };
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {})", identifier(&info.name));
        self.conn.query_row(&sql, [], |row| row.get(0)).map_err(|source| self.error(table, source))
    }

    /// Returns the only number that a query without parameters yields.
    pub(super) fn number(&self, table: &str, sql: &str) -> Result<i64, RpdReadError> {
        self.conn.query_row(sql, [], |row| row.get(0)).map_err(|source| self.error(table, source))
    }

    /// Starts a query on `table` with this alias. Columns and joins are added one by one.
    pub(super) fn select(&self, table: &str, alias: &str) -> Select<'_> {
        let name = self.table(table).map_or(table, |info| &info.name);
        Select { input: self, columns: Vec::new(), from: format!("{} AS {alias}", identifier(name)) }
    }
}

/// A query that is composed for the tables and columns of the file. Missing columns are NULL.
pub(super) struct Select<'a> {
    input: &'a RpdFile,
    columns: Vec<String>,
    from: String,
}

impl Select<'_> {
    /// Adds a column; returns its position in a row.
    pub(super) fn column(&mut self, table: &str, alias: &str, name: &str) -> usize {
        let column = self.input.table(table).and_then(|info| info.column(name));
        let column = column.map_or("NULL".to_owned(), |c| format!("{alias}.{}", identifier(&c.name)));
        self.expression(&column)
    }

    /// Adds an expression; returns its position in a row.
    pub(super) fn expression(&mut self, expression: &str) -> usize {
        self.columns.push(expression.to_owned());
        self.columns.len() - 1
    }

    /// Joins a table by its key, and keeps rows without a match. If the table does not exist, its columns are NULL.
    pub(super) fn join(&mut self, table: &str, alias: &str, key: &str, value: &str) {
        if let Some(info) = self.input.table(table) {
            self.from += &format!(
                " LEFT JOIN {} AS {alias} ON {alias}.{} = {value}",
                identifier(&info.name),
                identifier(key)
            );
        }
    }

    /// Adds the text for a column that contains the id of a string; returns its position in a row.
    pub(super) fn text(&mut self, owner: (&str, &str, &str), strings: &str, alias: &str) -> usize {
        let (table, of, column) = owner;
        match self.input.table(table).and_then(|info| info.column(column)) {
            Some(found) => {
                let value = format!("{of}.{}", identifier(&found.name));
                self.join(strings, alias, "id", &value);
                self.column(strings, alias, "string")
            }
            None => self.expression("NULL"),
        }
    }

    /// Returns the statement.
    pub(super) fn sql(&self, rest: &str) -> String {
        format!("SELECT {} FROM {} {rest}", self.columns.join(", "), self.from)
    }
}

/// Quotes an SQL identifier.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
