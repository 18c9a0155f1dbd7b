//! The tables of a file, and how they are declared.

use super::describe::{Literal, literal as literal_of};
use super::error::ReadError;
use crate::connect::literal;
use crate::create_table;
use rusqlite::Connection;
use std::path::Path;

/// Most tables of a file. A merge of AMD's has up to 500 sets of some 25.
const MAX_TABLES: usize = 1 << 16;
/// Most columns of a table. The widest of RocPD has 25.
pub(super) const MAX_COLUMNS: usize = 256;
/// Most bytes of a name.
const MAX_NAME: usize = 256;
/// Most bytes of a CREATE TABLE.
const MAX_SQL: usize = 1 << 16;

/// A table as `sqlite_master` has it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Name with suffix.
    pub(super) name: String,
    /// Page of its root.
    pub(super) root: u32,
    /// The CREATE TABLE.
    pub(super) sql: String,
}

/// Real tables whose names begin with `rocpd_`, in the order in which they were made.
pub(super) fn entries(conn: &Connection, path: &Path) -> Result<Vec<Entry>, ReadError> {
    let schema = ReadError::schema(path);
    // A virtual table has no page; names that are there twice are no tables.
    let sql = format!(
        "SELECT name, rootpage, sql FROM sqlite_master
         WHERE type = 'table' AND name LIKE 'rocpd\\_%' ESCAPE '\\' AND typeof(name) = 'text'
           AND length(name) <= {MAX_NAME} AND typeof(rootpage) = 'integer'
           AND rootpage BETWEEN 2 AND 4294967295 AND typeof(sql) = 'text' AND length(sql) <= {MAX_SQL}
           AND sql LIKE 'CREATE TABLE %'
         ORDER BY rowid LIMIT {}",
        MAX_TABLES + 1
    );
    let mut query = conn.prepare(&sql).map_err(&schema)?;
    let entries = query
        .query_map([], |row| Ok(Entry { name: row.get(0)?, root: row.get(1)?, sql: row.get(2)? }))
        .map_err(&schema)?;
    let entries: Vec<Entry> = entries.collect::<Result<_, _>>().map_err(&schema)?;
    if entries.len() > MAX_TABLES {
        return Err(ReadError::TooMany { path: path.to_owned(), what: "tables", limit: MAX_TABLES });
    }
    Ok(entries)
}

/// A column as the file declares it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FileColumn {
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) not_null: bool,
    /// The text of the DEFAULT.
    pub(super) default: Option<String>,
    /// The table that it refers to, with suffix, and the column there.
    pub(super) refers: Option<(String, Option<String>)>,
    pub(super) unique: bool,
    pub(super) one_of: Vec<String>,
    /// Place of the value in a stored row; `None` for what is computed, which is not read.
    pub(super) stored_at: Option<usize>,
}

/// How a table is declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FileTable {
    pub(super) columns: Vec<FileColumn>,
    /// The default of the column `guid`.
    pub(super) guid: Option<String>,
    /// Values of a stored row, the key included.
    pub(super) stored: usize,
}

/// Asks SQLite how a table is declared. The inner error says why the table is not read.
pub(super) fn declaration(
    conn: &Connection,
    entry: &Entry,
) -> rusqlite::Result<Result<FileTable, &'static str>> {
    let table = literal(&entry.name);
    let mut found = FileTable::default();
    let mut keys = Vec::new();
    let sql =
        format!("SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo({table})");
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let hidden: i64 = row.get(5)?;
        if found.columns.len() == MAX_COLUMNS {
            return Ok(Err("it has too many columns"));
        }
        let column = FileColumn {
            name: row.get(0)?,
            type_name: row.get(1)?,
            not_null: row.get(2)?,
            default: row.get(3)?,
            stored_at: (hidden == 0).then_some(found.stored),
            ..FileColumn::default()
        };
        // 2: VIRTUAL, is computed whenever it is read. 3: STORED, has a place in the row.
        found.stored += usize::from(hidden != 2);
        if row.get::<_, i64>(4)? > 0 {
            keys.push((column.name.clone(), column.type_name.clone()));
        }
        found.columns.push(column);
    }
    let sql = format!(
        "SELECT count(*), max(\"from\"), max(\"table\"), max(\"to\") FROM pragma_foreign_key_list({table})
         GROUP BY id ORDER BY id DESC"
    );
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (count, from): (i64, String) = (row.get(0)?, row.get(1)?);
        if let Some(column) = named(&mut found.columns, &from).filter(|_| count == 1) {
            column.refers = Some((row.get(2)?, row.get(3)?));
        }
    }
    let sql = format!(
        "SELECT l.origin, count(*), max(i.name) FROM pragma_index_list({table}) l, pragma_index_info(l.name) i
         GROUP BY l.seq"
    );
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    // The key of a table WITHOUT ROWID, and one that is not the number of the row, has an index.
    let mut key_has_index = false;
    while let Some(row) = rows.next()? {
        let (origin, count): (String, i64) = (row.get(0)?, row.get(1)?);
        let name: Option<String> = row.get(2)?;
        match (origin.as_str(), name) {
            ("pk", _) => key_has_index = true,
            ("u", Some(name)) if count == 1 => {
                if let Some(column) = named(&mut found.columns, &name) {
                    column.unique = true;
                }
            }
            _ => {}
        }
    }
    for (name, words) in create_table::allowed_words(&entry.sql) {
        if let Some(column) = named(&mut found.columns, &name) {
            column.one_of = words;
        }
    }
    let is_integer_id = |(name, kind): &(String, String)| {
        name.eq_ignore_ascii_case("id") && kind.eq_ignore_ascii_case("INTEGER")
    };
    if !matches!(keys.as_slice(), [key] if is_integer_id(key)) || key_has_index {
        return Ok(Err("it has no id that is the number of the row"));
    }
    found.guid =
        named(&mut found.columns, "guid").and_then(|column| match literal_of(column.default.as_deref()) {
            Literal::Is(guid) => Some(guid),
            _ => None,
        });
    Ok(Ok(found))
}

fn named<'a>(columns: &'a mut [FileColumn], name: &str) -> Option<&'a mut FileColumn> {
    columns.iter_mut().find(|column| column.name.eq_ignore_ascii_case(name))
}
