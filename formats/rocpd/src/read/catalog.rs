//! The tables of a file according to its schema.

use super::connections;
use super::error::ReadError;
use rpd_shard::model::RPD_TABLE_PREFIX;
use rpd_sqlite::read::{self as pages, SchemaRow};
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Maximum number of tables of a file. Outputs of AMD's merge have up to 500 table sets of about 25 tables.
const MAX_TABLES: usize = 1 << 16;
/// Maximum number of rows of a schema: tables, indexes and views.
const MAX_ROWS: usize = 4 * MAX_TABLES;
/// Maximum bytes of a table name.
const MAX_NAME: usize = 256;
/// Maximum number of invalid entries that are reported by name.
const MAX_TOLD: usize = 10;

/// A table in the schema.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Name with its suffix.
    pub(super) name: String,
    /// Root page.
    pub(super) root: u32,
    /// CREATE TABLE statement.
    pub(super) sql: String,
}

/// The tables with names that start with `rocpd_`, and those that come from a `.rpd`.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// The tables in the order of their creation.
    pub(super) entries: Vec<Entry>,
    /// Entries that have such names but cannot be read as tables, one line each.
    pub(super) remarks: Vec<String>,
    /// Names of tables that are not part of RocPD.
    pub(super) others: Vec<String>,
}

impl Catalog {
    /// Returns whether the file is a legacy `.rpd`.
    pub(super) fn is_legacy(&self) -> bool {
        self.entries.iter().any(|entry| entry.name == "rocpd_api")
    }
}

/// Reads the schema of a file from its pages.
pub(super) fn by_pages(database: &pages::PageDatabase) -> Result<Catalog, ReadError> {
    let rows = database.schema().map_err(|error| ReadError::page(error, database, "sqlite_master"))?;
    catalog(rows, database.path())
}

/// Reads the schema of a file with SQLite.
pub(super) fn by_sql(conn: &Connection, path: &Path) -> Result<Catalog, ReadError> {
    let schema = ReadError::schema(path);
    let sql = format!(
        "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master
         WHERE typeof(type) = 'text' AND typeof(name) = 'text' AND typeof(tbl_name) = 'text'
           AND typeof(rootpage) = 'integer' ORDER BY rowid LIMIT {}",
        MAX_ROWS + 1
    );
    let mut query = conn.prepare(&sql).map_err(&schema)?;
    let rows = query.query_map([], |row| {
        let (kind, name, table) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let root: i64 = row.get(3)?;
        let sql = row.get_ref(4)?.as_str_or_null().ok().flatten().map(str::to_owned);
        Ok(SchemaRow { kind, name, table, root: root.try_into().unwrap_or(0), sql })
    });
    let rows = rows.map_err(&schema)?.collect::<Result<Vec<_>, _>>().map_err(&schema)?;
    catalog(rows, path)
}

/// Reads the tables of a file from its pages or with SQLite. Ignores a journal of the file.
pub(super) fn of_any(path: &Path) -> Result<Catalog, ReadError> {
    match pages::PageDatabase::open(path) {
        Ok(database) => by_pages(&database),
        Err(
            pages::OpenError::Unsupported { .. }
            | pages::OpenError::HotJournal { .. }
            | pages::OpenError::Journal { .. }
            | pages::OpenError::Wal { .. },
        ) => {
            let conn = connections::connect(path, false)?;
            by_sql(&conn, path)
        }
        Err(error) => Err(error.into()),
    }
}

fn catalog(rows: Vec<SchemaRow>, path: &Path) -> Result<Catalog, ReadError> {
    let too_many = |what, limit| Err(ReadError::TooMany { path: path.to_owned(), what, limit });
    if rows.len() > MAX_ROWS {
        return too_many("entries in its schema", MAX_ROWS);
    }
    // A duplicate name may stand for a view in SQLite.
    let mut uses: HashMap<String, u32> = HashMap::new();
    for row in &rows {
        *uses.entry(row.name.to_ascii_lowercase()).or_default() += 1;
    }
    let mut catalog = Catalog::default();
    let mut tables = 0;
    // Only one table may use a root page. Thousands of tables with the same pages would have more rows than the file.
    let mut roots = HashSet::new();
    for SchemaRow { kind, name, root, sql, .. } in rows {
        if kind != "table" {
            continue;
        }
        if !name.starts_with("rocpd_") && !name.starts_with(RPD_TABLE_PREFIX) {
            // Virtual tables have no root page, and SQLite's own tables contain no data.
            if root >= 2 && !name.starts_with("sqlite_") && name.len() <= MAX_NAME {
                catalog.others.push(name);
            }
            continue;
        }
        tables += 1;
        if tables > MAX_TABLES {
            return too_many("tables", MAX_TABLES);
        }
        let is_table = |sql: &String| sql.get(..13).is_some_and(|s| s.eq_ignore_ascii_case("CREATE TABLE "));
        let sql = sql.filter(is_table);
        let is_alone = uses.get(&name.to_ascii_lowercase()) == Some(&1);
        match sql {
            Some(sql) if root >= 2 && is_alone && name.len() <= MAX_NAME && roots.insert(root) => {
                catalog.entries.push(Entry { name, root, sql });
            }
            _ if catalog.remarks.len() < MAX_TOLD => {
                let name: String = name.chars().take(MAX_NAME).collect();
                catalog.remarks.push(format!("{name} cannot be read as a table, and is skipped"));
            }
            _ => {}
        }
    }
    Ok(catalog)
}
