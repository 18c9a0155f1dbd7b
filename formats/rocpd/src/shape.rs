//! Facts that SQLite reports about the tables of a database, in a form that can be compared.

use crate::connect::{identifier, literal};
use crate::create_table;
use rusqlite::{Connection, Result};
use std::collections::BTreeMap;

/// All facts about one table that AMD's checks examine, one line each, without the guid.
pub(crate) type Shape = Vec<String>;

/// Returns name and CREATE TABLE of every table.
pub(crate) fn tables(conn: &Connection) -> Result<Vec<(String, String)>> {
    let mut tables = conn.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table'")?;
    let tables = tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    tables.collect()
}

/// Returns the shape of every table with a name that ends with `suffix`, by its name without the suffix.
pub(crate) fn of_tables(
    conn: &Connection,
    tables: &[(String, String)],
    suffix: &str,
    guid: &str,
) -> Result<BTreeMap<String, Shape>> {
    let mut shapes = BTreeMap::new();
    for (name, sql) in tables {
        if let Some(short) = name.strip_suffix(suffix) {
            let mut shape = of_table(conn, name, sql)?;
            for line in &mut shape {
                *line = line.replace(suffix, "").replace(&identifier(guid), "<guid>");
            }
            shapes.insert(short.to_owned(), shape);
        }
    }
    Ok(shapes)
}

fn of_table(conn: &Connection, name: &str, sql: &str) -> Result<Shape> {
    let table = literal(name);
    // `hidden` is not 0 for generated columns.
    let columns = format!(
        "SELECT 'column ' || name || ' ' || type || iif(\"notnull\", ' NOT NULL', '')
             || coalesce(' DEFAULT ' || dflt_value, '') || iif(pk, ' PRIMARY KEY', '')
             || iif(hidden, ' hidden', '')
           FROM pragma_table_xinfo({table}) ORDER BY cid"
    );
    let foreign_keys = format!(
        "SELECT 'foreign key ' || \"from\" || ' -> ' || \"table\" || '.' || \"to\"
             || ' update ' || on_update || ' delete ' || on_delete || ' match ' || match
           FROM pragma_foreign_key_list({table}) ORDER BY id, seq"
    );
    let indexes = format!(
        "SELECT 'index ' || group_concat(i.name) || ' unique ' || \"unique\" || ' origin ' || origin
             || ' partial ' || partial
           FROM pragma_index_list({table}) l, pragma_index_info(l.name) i GROUP BY l.name ORDER BY 1"
    );
    // Reports views, virtual tables, and tables that store their rows differently.
    let kind = format!(
        "SELECT 'is ' || type || iif(wr, ' WITHOUT ROWID', '') || iif(strict, ' STRICT', '')
           FROM pragma_table_list({table}) WHERE schema = 'main' AND (type <> 'table' OR wr OR strict)"
    );
    let mut shape = Shape::new();
    for sql in [kind, columns, foreign_keys, indexes] {
        let mut lines = conn.prepare(&sql)?;
        for line in lines.query_map([], |row| row.get(0))? {
            shape.push(line?);
        }
    }
    shape.extend(checks(sql).into_iter().map(|check| format!("CHECK {check}")));
    if sql.to_ascii_uppercase().contains("AUTOINCREMENT") {
        shape.push("AUTOINCREMENT".to_owned());
    }
    Ok(shape)
}

/// Returns the conditions of the CHECKs in a CREATE TABLE, without white space.
fn checks(sql: &str) -> Vec<String> {
    let conditions = create_table::conditions(sql).into_iter();
    conditions.map(|condition| condition.chars().filter(|c| !c.is_whitespace()).collect()).collect()
}
