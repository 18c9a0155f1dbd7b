use rusqlite::{Connection, Result};
use std::path::Path;

/// The schema name of the attached input.
pub(super) const ATTACHED: &str = "input";

/// What there is in the attached input.
pub(super) struct PlainInput {
    /// `_` and the guid with `_` for `-`.
    pub(super) uuid: String,
    pub(super) guid: String,
    pub(super) tables: Vec<PlainTable>,
    /// Name and statement of each view, in the order in which they were made.
    pub(super) views: Vec<(String, String)>,
}

/// A table of the attached input.
pub(super) struct PlainTable {
    /// `rocpd_region`.
    pub(super) name: String,
    /// The statement that made it.
    pub(super) sql: String,
    pub(super) columns: Vec<String>,
    /// Column, and the table without suffix that it refers to.
    pub(super) references: Vec<(String, String)>,
}

impl PlainInput {
    /// Attaches a database and looks at it.
    pub(super) fn attach(output: &Connection, path: &Path) -> Result<PlainInput> {
        let uri = format!("file:{}?immutable=1", path.display());
        output.execute(&format!("ATTACH ? AS {ATTACHED}"), [uri])?;
        let tag = |tag: &str| -> Result<String> {
            let sql = format!("SELECT value FROM {ATTACHED}.rocpd_metadata WHERE tag = ?");
            output.query_row(&sql, [tag], |row| row.get(0))
        };
        let (uuid, guid) = (tag("uuid")?, tag("guid")?);
        let made = |kind: &str| -> Result<Vec<(String, String)>> {
            let sql = format!("SELECT name, sql FROM {ATTACHED}.sqlite_master WHERE type = ? ORDER BY rowid");
            let mut query = output.prepare(&sql)?;
            query.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        let mut tables = Vec::new();
        for (full, sql) in made("table")? {
            if let Some(name) = full.strip_suffix(&uuid) {
                tables.push(PlainTable::of(output, name, &full, &uuid, sql)?);
            }
        }
        let views = made("view")?;
        Ok(PlainInput { uuid, guid, tables, views })
    }

    /// Lets go of it.
    pub(super) fn detach(output: &Connection) -> Result<()> {
        output.execute_batch(&format!("DETACH {ATTACHED}"))
    }
}

impl PlainTable {
    fn of(output: &Connection, name: &str, full: &str, uuid: &str, sql: String) -> Result<PlainTable> {
        let mut columns = output.prepare("SELECT name FROM pragma_table_info(?, ?)")?;
        let columns = columns.query_map([full, ATTACHED], |row| row.get(0))?.collect::<Result<_>>()?;
        let mut references =
            output.prepare("SELECT \"from\", \"table\" FROM pragma_foreign_key_list(?, ?)")?;
        let without_suffix = |table: String| table.strip_suffix(uuid).map_or(table.clone(), str::to_owned);
        let references = references
            .query_map([full, ATTACHED], |row| Ok((row.get(0)?, without_suffix(row.get(1)?))))?
            .collect::<Result<_>>()?;
        Ok(PlainTable { name: name.to_owned(), sql, columns, references })
    }
}
