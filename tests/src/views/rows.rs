use super::referred::{ReferredTable, RowDescriptions};
use super::summaries;
use super::treatment::{ColumnTreatment, treatment};
use crate::content::DatabaseContent;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};
use serde_json::Value as JsonCell;

/// Under this name, kernels and the calls that launched them.
const LAUNCHES: &str = "kernels JOIN regions";

/// As tools ask for them. What is joined is computed first, or SQLite computes it once for each kernel.
const LAUNCHES_SQL: &str = "
    WITH k AS MATERIALIZED (SELECT guid, stack_id, name, start, \"end\", tid, pid, dispatch_id FROM kernels),
         r AS MATERIALIZED (SELECT guid, stack_id, name, start, \"end\", tid, pid, category FROM regions)
    SELECT k.name, k.start, k.\"end\", k.tid, k.pid, k.dispatch_id,
           r.name, r.start, r.\"end\", r.tid, r.pid, r.category
      FROM k JOIN r ON r.guid = k.guid AND r.stack_id = k.stack_id";

/// Per view of AMD's, sorted, the rows of all databases together; and the join of kernels to the calls
/// with the same guid and stack id. Of one database the summary views are as they are, of several they
/// are computed from each.
pub fn view_rows(databases: &[&Connection]) -> Result<DatabaseContent> {
    let mut content = DatabaseContent::new();
    for database in databases {
        let words = RowDescriptions::of(database)?;
        for view in views(database)? {
            let rows = content.entry(view.clone()).or_default();
            if databases.len() == 1 || !summaries::VIEWS.contains(&view.as_str()) {
                rows.extend(rows_of(database, &words, &view, &format!("SELECT * FROM \"{view}\""))?);
            }
        }
        let launches = rows_of(database, &words, LAUNCHES, LAUNCHES_SQL)?;
        content.entry(LAUNCHES.to_owned()).or_default().extend(launches);
    }
    if databases.len() > 1 {
        content.extend(summaries::together(databases)?);
    }
    content.values_mut().for_each(|rows| rows.sort());
    Ok(content)
}

/// Names of the data and summary views.
fn views(database: &Connection) -> Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT GLOB 'rocpd_*'";
    database.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

fn rows_of(database: &Connection, words: &RowDescriptions, view: &str, sql: &str) -> Result<Vec<String>> {
    let mut query = database.prepare(sql)?;
    let columns: Vec<String> = query.column_names().map(str::to_owned).collect();
    let treatments: Vec<ColumnTreatment> = columns.iter().map(|column| treatment(view, column)).collect();
    // Without a guid, ids of views with one process are those of its guid; `treatment` lists no other.
    let guid = columns.iter().position(|column| column == "guid");
    let mut rows = query.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let guid: String = guid.map_or(Ok(String::new()), |guid| row.get(guid))?;
        let mut line = String::new();
        for (i, treatment) in treatments.iter().enumerate().filter(|(_, t)| **t != ColumnTreatment::LeftOut) {
            let value = treated(words, &guid, *treatment, row.get_ref(i)?);
            line += &format!("{}={value} ", columns[i]);
        }
        out.push(line);
    }
    Ok(out)
}

fn treated(words: &RowDescriptions, guid: &str, treatment: ColumnTreatment, value: ValueRef<'_>) -> String {
    match (treatment, value) {
        (ColumnTreatment::Row(table), ValueRef::Integer(id)) => words.row(table, guid, id),
        (ColumnTreatment::Stack, ValueRef::Integer(stack)) => words.stack(guid, stack),
        (ColumnTreatment::LineInfo, ValueRef::Text(text)) => json(text, "code_object_id", &|id| {
            if guid.is_empty() { String::new() } else { words.row(ReferredTable::CodeObject, guid, id) }
        }),
        (ColumnTreatment::StreamOfArgument, ValueRef::Text(text)) => {
            json(text, "stream_id", &|_| String::new())
        }
        (ColumnTreatment::Provenance, ValueRef::Text(text)) => without_provenance(text),
        (ColumnTreatment::NameWithRank, ValueRef::Text(text)) => without_rank(text),
        _ => verbatim(value),
    }
}

/// The text as it is, unless a merge has something to say in it.
fn without_provenance(text: &[u8]) -> String {
    let Ok(JsonCell::Object(mut entries)) = serde_json::from_slice(text) else {
        return verbatim(ValueRef::Text(text));
    };
    match entries.remove("rpd") {
        Some(_) => format!("{:?}", JsonCell::Object(entries).to_string()),
        None => verbatim(ValueRef::Text(text)),
    }
}

/// A name without the rank that a merge puts in front of it; NULL for an empty name.
fn without_rank(text: &[u8]) -> String {
    let name = String::from_utf8_lossy(text);
    let ranked = name.strip_prefix("rank ").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    match ranked.map_or(&*name, str::trim_start) {
        "" => verbatim(ValueRef::Null),
        name => format!("{name:?}"),
    }
}

/// The text, and where it names an id under this key, the parsed text with words for it.
fn json(text: &[u8], key: &str, words: &dyn Fn(i64) -> String) -> String {
    let text = String::from_utf8_lossy(text);
    if !text.contains(key) {
        return format!("{text:?}");
    }
    match serde_json::from_str::<JsonCell>(&text) {
        Ok(mut json) => {
            replace(&mut json, key, words);
            json.to_string()
        }
        Err(_) => format!("{text:?}"),
    }
}

fn replace(json: &mut JsonCell, key: &str, words: &dyn Fn(i64) -> String) {
    match json {
        JsonCell::Object(entries) => {
            for (name, value) in entries {
                match value.as_i64() {
                    Some(id) if name == key => *value = words(id).into(),
                    _ => replace(value, key, words),
                }
            }
        }
        JsonCell::Array(items) => items.iter_mut().for_each(|item| replace(item, key, words)),
        _ => {}
    }
}

/// A value with its type. Sums of reals depend on the order in the last digit.
pub(super) fn verbatim(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(v) => v.to_string(),
        ValueRef::Real(v) => real(v),
        ValueRef::Text(v) => format!("{:?}", String::from_utf8_lossy(v)),
        ValueRef::Blob(v) => format!("x{v:02x?}"),
    }
}

pub(super) fn real(value: f64) -> String {
    format!("{value:.11e}")
}
