//! Declarations of the tables of a file.

use super::catalog::Entry;
use crate::connect::literal;
use crate::create_table;
use rusqlite::Connection;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Maximum number of columns of a table. The widest table of RocPD has 25.
const MAX_COLUMNS: usize = 256;
/// Maximum bytes of a CREATE TABLE statement.
const MAX_SQL: usize = 1 << 16;
/// Maximum number of cached declarations.
const MAX_REMEMBERED: usize = 1024;

/// A column as declared in the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FileColumn {
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) not_null: bool,
    pub(super) default: Literal,
    /// The referenced table and column. The table name lacks the suffix if it has that of the table set.
    pub(super) refers: Option<(String, Option<String>)>,
    pub(super) unique: bool,
    pub(super) one_of: Vec<String>,
    /// Index of the value in a stored row; `None` for a generated column, which is not read.
    pub(super) stored_at: Option<usize>,
}

/// Declaration of a table in which `id` is the row number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FileTable {
    pub(super) columns: Vec<FileColumn>,
    /// Number of values in a stored row, including the key.
    pub(super) stored: usize,
}

/// A default value if it is a literal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Literal {
    /// No default, or NULL.
    #[default]
    Null,
    /// A number, as text.
    Number(String),
    /// A text.
    Text(String),
    /// An expression or a blob.
    Other,
}

impl FileTable {
    /// Returns the default of the column `guid`.
    pub(super) fn guid(&self) -> Option<&str> {
        match self.columns.iter().find(|column| column.name.eq_ignore_ascii_case("guid"))?.default {
            Literal::Text(ref guid) => Some(guid),
            _ => None,
        }
    }
}

/// Declarations of the tables of other files. Every rank writes the same statements except for suffix and guid.
static REMEMBERED: LazyLock<Mutex<HashMap<String, FileTable>>> = LazyLock::new(Mutex::default);

/// Placeholders for suffix and guid in a statement.
const PLACES: [char; 2] = ['\u{1}', '\u{2}'];

/// The suffix and, if known, the guid of a table set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) suffix: &'a str,
    pub(super) guid: Option<&'a str>,
}

impl Names<'_> {
    /// Replaces suffix and guid in a statement by placeholders. Returns `None` if they could be confused with other
    /// text.
    fn neutral(self, sql: &str) -> Option<String> {
        let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let guid = self.guid.filter(|guid| guid.len() > 8);
        if sql.contains(PLACES) || !is_plain(self.suffix) || !guid.is_none_or(is_plain) {
            return None;
        }
        let neutral = sql.replace(self.suffix, "\u{1}");
        Some(guid.map(|guid| neutral.replace(guid, "\u{2}")).unwrap_or(neutral))
    }

    /// Returns whether suffix and guid occur nowhere in a declaration, except in the default of `guid`.
    fn are_not_in(self, table: &FileTable) -> bool {
        let names =
            |text: &str| text.contains(self.suffix) || self.guid.is_some_and(|guid| text.contains(guid));
        !table.columns.iter().any(|column| {
            let default = match &column.default {
                Literal::Number(text) | Literal::Text(text) => {
                    !column.name.eq_ignore_ascii_case("guid") && names(text)
                }
                _ => false,
            };
            let refers = column.refers.as_ref().is_some_and(|(table, _)| names(table));
            default
                || refers
                || names(&column.name)
                || names(&column.type_name)
                || column.one_of.iter().any(|w| names(w))
        })
    }
}

/// Returns the declaration of a table; `ask` runs a query on a connection of SQLite. The inner error states why the
/// table is not read.
pub(super) fn declaration<E>(
    entry: &Entry,
    names: Names<'_>,
    ask: impl FnOnce(&dyn Fn(&Connection) -> rusqlite::Result<Found>) -> Result<Found, E>,
) -> Result<Found, E> {
    if entry.sql.len() > MAX_SQL {
        return Ok(Err("its declaration is too long"));
    }
    let remembered = || REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    let neutral = names.neutral(&entry.sql);
    if let Some(table) = neutral.as_ref().and_then(|neutral| remembered().get(neutral).cloned()) {
        return Ok(Ok(table));
    }
    let found = ask(&|conn| look_up(conn, entry, names.suffix))?;
    if let (Ok(table), Some(neutral)) = (&found, neutral)
        && names.are_not_in(table)
    {
        let mut remembered = remembered();
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(neutral, table.clone());
        }
    }
    Ok(found)
}

/// A declaration, or the reason why the table is not read.
pub(super) type Found = Result<FileTable, &'static str>;

/// Reads the declaration of a table with SQLite.
fn look_up(conn: &Connection, entry: &Entry, suffix: &str) -> rusqlite::Result<Found> {
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
            default: of_default(row.get::<_, Option<String>>(3)?.as_deref()),
            stored_at: (hidden == 0).then_some(found.stored),
            ..FileColumn::default()
        };
        // 2 is VIRTUAL: computed on every read. 3 is STORED: stored in the row.
        found.stored += usize::from(hidden != 2);
        if row.get::<_, i64>(4)? > 0 {
            keys.push((column.name.clone(), column.type_name.clone()));
        }
        found.columns.push(column);
    }
    let key_has_index = look_up_links(conn, &table, suffix, &mut found)?;
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
    Ok(Ok(found))
}

/// Adds foreign keys and UNIQUE. Returns whether the key has an index, which means that it is not the row number or
/// that the table is WITHOUT ROWID.
fn look_up_links(
    conn: &Connection,
    table: &str,
    suffix: &str,
    found: &mut FileTable,
) -> rusqlite::Result<bool> {
    let sql = format!(
        "SELECT count(*), max(\"from\"), max(\"table\"), max(\"to\") FROM pragma_foreign_key_list({table})
         GROUP BY id ORDER BY id DESC"
    );
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (count, from, target): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if let Some(column) = named(&mut found.columns, &from).filter(|_| count == 1) {
            column.refers = Some((without(&target, suffix).to_ascii_lowercase(), row.get(3)?));
        }
    }
    let sql = format!(
        "SELECT l.origin, count(*), max(i.name) FROM pragma_index_list({table}) l, pragma_index_info(l.name) i
         GROUP BY l.seq"
    );
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    let mut key_has_index = false;
    while let Some(row) = rows.next()? {
        let (origin, count): (String, i64) = (row.get(0)?, row.get(1)?);
        let name: Option<String> = row.get(2)?;
        key_has_index |= origin == "pk";
        if let (true, Some(name)) = (origin == "u" && count == 1, name)
            && let Some(column) = named(&mut found.columns, &name)
        {
            column.unique = true;
        }
    }
    Ok(key_has_index)
}

/// Removes a suffix from a name, ignoring case.
fn without<'a>(name: &'a str, suffix: &str) -> &'a str {
    let at = name.len().saturating_sub(suffix.len());
    match (name.get(..at), name.get(at..)) {
        (Some(short), Some(end)) if end.eq_ignore_ascii_case(suffix) => short,
        _ => name,
    }
}

fn named<'a>(columns: &'a mut [FileColumn], name: &str) -> Option<&'a mut FileColumn> {
    columns.iter_mut().find(|column| column.name.eq_ignore_ascii_case(name))
}

/// Parses a DEFAULT. AMD quotes texts like names.
fn of_default(default: Option<&str>) -> Literal {
    let Some(text) = default.map(str::trim) else { return Literal::Null };
    for quote in ['\'', '"'] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        let (one, two) = (quote.to_string(), quote.to_string().repeat(2));
        if let Some(inner) = inner {
            let is_one = !inner.replace(&two, "").contains(quote);
            return if is_one { Literal::Text(inner.replace(&two, &one)) } else { Literal::Other };
        }
    }
    match text.to_ascii_uppercase().as_str() {
        "NULL" => Literal::Null,
        "TRUE" => Literal::Number("1".to_owned()),
        "FALSE" => Literal::Number("0".to_owned()),
        _ if text.parse::<i64>().is_ok() => Literal::Number(text.trim_start_matches('+').to_owned()),
        // "inf" and "nan" are numbers in Rust and names in SQL.
        _ if text.bytes().all(|b| b"0123456789.eE+-".contains(&b)) && text.parse::<f64>().is_ok() => {
            Literal::Number(text.to_owned())
        }
        _ => Literal::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_texts_and_numbers() {
        let text = |text: &str| Literal::Text(text.to_owned());
        let number = |text: &str| Literal::Number(text.to_owned());
        for (given, wanted) in [
            (r#""{}""#, text("{}")),
            ("'it''s'", text("it's")),
            ("''", text("")),
            ("'5'", text("5")),
            ("-5", number("-5")),
            ("+5", number("5")),
            ("0.0", number("0.0")),
            ("1e3", number("1e3")),
            ("true", number("1")),
            ("null", Literal::Null),
            ("CURRENT_TIMESTAMP", Literal::Other),
            ("'a' || 'b'", Literal::Other),
            ("x'00'", Literal::Other),
            ("inf", Literal::Other),
            ("'", Literal::Other),
        ] {
            assert_eq!(of_default(Some(given)), wanted, "{given}");
        }
        assert_eq!(of_default(None), Literal::Null);
    }

    #[test]
    fn a_declaration_is_remembered_without_suffix_and_guid() {
        let names = Names { suffix: "_0123_abc", guid: Some("0123-abc-def") };
        let sql = "CREATE TABLE rocpd_x_0123_abc (guid TEXT DEFAULT \"0123-abc-def\")";
        assert_eq!(
            names.neutral(sql).as_deref(),
            Some("CREATE TABLE rocpd_x\u{1} (guid TEXT DEFAULT \"\u{2}\")")
        );
        assert_eq!(names.neutral("CREATE TABLE \u{1}"), None);
        assert_eq!(Names { suffix: "_a\"b", guid: None }.neutral(sql), None);
    }
}
