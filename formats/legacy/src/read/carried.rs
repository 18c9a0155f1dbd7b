//! Carries tables that are not RPD's own (`ext_*`) or have no counterpart in RocPD (`rocpd_barrierop` and others of
//! schema 2). A carried table is called `rpd_ext_NAME`, where NAME is its name without `ext_` or `rocpd_`.
//!
//! | column | becomes |
//! |---|---|
//! | refers to `rocpd_api`, or is `api_ptr_id` | the region of the call |
//! | refers to `rocpd_op` | the event of the operation |
//! | refers to `rocpd_string`, or is named in metadata `references::rocpd_string.id` | the string |
//! | is named in metadata `references::rocpd_ustring.id` | the text |
//! | `id`, `guid` | `rpd_id`, `rpd_guid`, values unchanged: RocPD's tables have columns of these names |
//! | any other, including references between such tables | itself, values unchanged |
//!
//! A row belongs to the process of the first call or operation that it refers to, else to that of its session.

use super::census::ProcessCensus;
use super::ids::IdMap;
use super::output::RpdOutput;
use super::schema::{ColumnInfo, RpdFile, TableInfo, identifier};
use super::value::{MAX_TEXT, int, text};
use super::{KNOWN_TABLES, RpdReadError};
use rpd_shard::model::{
    Column, Declared, FIRST_CARRIED_TABLE, Kind, OwnedValue, RPD_TABLE_PREFIX, Table, TableId, Value, rocpd,
};
use rpd_translator::cut_text;
use rusqlite::Statement;
use rusqlite::types::ValueRef;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Maximum number of carried tables; the second constant limits the columns of one table.
const MAX_TABLES: usize = 256;
const MAX_COLUMNS: usize = 256;
/// Maximum length of a table or column name in bytes.
const MAX_NAME: usize = 120;
/// Maximum number of bytes of text of one row.
const MAX_ROW: usize = 8 << 20;
/// Maximum number of strings that are remembered at a time.
const MAX_REMEMBERED: usize = 1 << 18;

/// The treatment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ColumnRole {
    Call,
    Operation,
    Str,
    Text,
    Plain,
}

/// Columns that hold ids of strings or of texts, as table and column in lower case.
struct ColumnReferences {
    strings: HashSet<(String, String)>,
    texts: HashSet<(String, String)>,
}

impl ColumnReferences {
    fn of(metadata: &[(String, String)]) -> ColumnReferences {
        let tagged = |tag: &str| {
            let rows = metadata.iter().filter(|(found, _)| found == tag);
            rows.filter_map(|(_, pair)| parse_pair(pair)).collect()
        };
        ColumnReferences {
            strings: tagged("references::rocpd_string.id"),
            texts: tagged("references::rocpd_ustring.id"),
        }
    }

    fn role(&self, table: &TableInfo, column: &ColumnInfo) -> ColumnRole {
        let place = (table.name.to_ascii_lowercase(), column.name.to_ascii_lowercase());
        match column.target.as_deref() {
            _ if self.strings.contains(&place) => ColumnRole::Str,
            _ if self.texts.contains(&place) => ColumnRole::Text,
            Some("rocpd_api") => ColumnRole::Call,
            Some("rocpd_op") => ColumnRole::Operation,
            Some("rocpd_string") => ColumnRole::Str,
            Some("rocpd_ustring") => ColumnRole::Text,
            None if place.1 == "api_ptr_id" => ColumnRole::Call,
            _ => ColumnRole::Plain,
        }
    }
}

/// Parses `("table", "column")` and converts it to lower case.
fn parse_pair(pair: &str) -> Option<(String, String)> {
    let inner = pair.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (table, column) = inner.split_once(',')?;
    let plain = |text: &str| text.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    Some((plain(table), plain(column)))
}

/// Carries all tables that have rows. Returns their names in the file and in the shard.
pub(super) fn translate(
    (calls, operations): (&IdMap, &IdMap),
    metadata: &[(String, String)],
    output: &mut RpdOutput<'_>,
) -> Result<Vec<(String, String)>, RpdReadError> {
    let (input, census) = (output.input, output.census);
    let references = ColumnReferences::of(metadata);
    let mut carried = Vec::new();
    let mut names = BTreeSet::new();
    for info in input.tables() {
        let lower = info.name.to_ascii_lowercase();
        if KNOWN_TABLES.contains(&lower.as_str()) || !input.has_rows(&lower)? {
            continue;
        }
        let number = names.len();
        if number == MAX_TABLES || info.columns.len() > MAX_COLUMNS || info.columns.is_empty() {
            let sql = format!("SELECT count(*) FROM {}", identifier(&info.name));
            let rows = input.number(&info.name, &sql)?.unsigned_abs();
            output.count_read(&info.name, rows);
            output.lose(0, &info.name, None, rows);
            continue;
        }
        let roles: Vec<ColumnRole> =
            info.columns.iter().map(|column| references.role(info, column)).collect();
        let table = Table {
            id: TableId(FIRST_CARRIED_TABLE.0 + number as u16),
            name: carried_name(&lower, &mut names),
            columns: columns(info, &roles),
        };
        output.translator.table(&table)?;
        carried.push((info.name.clone(), table.name.clone()));
        TableCarrier {
            input,
            census,
            calls,
            operations,
            info,
            roles,
            id: table.id,
            strings: StringQuery::new(input)?,
        }
        .rows(output)?;
    }
    Ok(carried)
}

/// Returns a name that no other table has.
fn carried_name(lower: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = lower.strip_prefix("ext_").or_else(|| lower.strip_prefix("rocpd_")).unwrap_or(lower);
    let plain: String = plain
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
        .take(MAX_NAME)
        .collect();
    let mut name = format!("{RPD_TABLE_PREFIX}{plain}");
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

fn columns(info: &TableInfo, roles: &[ColumnRole]) -> Vec<Column> {
    let mut taken = BTreeSet::from(["id".to_owned(), "guid".to_owned()]);
    let described = info.columns.iter().zip(roles);
    described
        .map(|(column, role)| {
            let mut name: String = column.name.chars().take(MAX_NAME).collect();
            if taken.contains(&name.to_ascii_lowercase()) {
                name = format!("rpd_{name}");
            }
            while !taken.insert(name.to_ascii_lowercase()) {
                name.push('_');
            }
            let (kind, type_name) = match role {
                ColumnRole::Call => (Kind::Ref(rocpd::REGION), "INTEGER"),
                ColumnRole::Operation => (Kind::Ref(rocpd::EVENT), "INTEGER"),
                ColumnRole::Str => (Kind::Str, "INTEGER"),
                ColumnRole::Text => (Kind::Any, "TEXT"),
                ColumnRole::Plain => (Kind::Any, affinity(&column.declared)),
            };
            let sql = Declared { type_name: type_name.to_owned(), ..Declared::default() };
            Column { name, kind, sql, near: None }
        })
        .collect()
}

/// Returns a type name of the same affinity, by SQLite's rules. The declared type of the file is never copied into
/// SQL.
fn affinity(declared: &str) -> &'static str {
    let declared = declared.to_ascii_uppercase();
    let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    match () {
        () if has(&["INT"]) => "INTEGER",
        () if has(&["CHAR", "CLOB", "TEXT"]) => "TEXT",
        () if declared.is_empty() || has(&["BLOB"]) => "BLOB",
        () if has(&["REAL", "FLOA", "DOUB"]) => "REAL",
        () => "NUMERIC",
    }
}

/// Carries one table.
struct TableCarrier<'i, 'c> {
    input: &'i RpdFile,
    census: &'c ProcessCensus,
    calls: &'c IdMap,
    operations: &'c IdMap,
    info: &'i TableInfo,
    roles: Vec<ColumnRole>,
    id: TableId,
    strings: StringQuery<'i>,
}

impl TableCarrier<'_, '_> {
    fn rows(mut self, output: &mut RpdOutput<'_>) -> Result<(), RpdReadError> {
        let failed = |source| self.input.error(&self.info.name, source);
        let columns: Vec<_> = self.info.columns.iter().map(|column| identifier(&column.name)).collect();
        let order =
            self.info.key().map_or(String::new(), |key| format!("ORDER BY {}", identifier(&key.name)));
        let sql = format!("SELECT {} FROM {} {order}", columns.join(", "), identifier(&self.info.name));
        let mut query = self.input.conn.prepare(&sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        let key = self.info.columns.iter().position(|column| column.key > 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let value = |i| row.get_ref(i).unwrap_or(ValueRef::Null);
            output.count_read(&self.info.name, 1);
            let found: Vec<_> =
                self.roles.iter().enumerate().map(|(i, role)| self.target(*role, value(i))).collect();
            let source = found.iter().flatten().next().map(|(source, _)| *source);
            let source =
                source.unwrap_or_else(|| self.census.by_session(key.and_then(|key| int(value(key)))));
            let mut free_bytes = MAX_ROW;
            let mut cells = Vec::with_capacity(found.len());
            for (i, found) in found.into_iter().enumerate() {
                let cell =
                    self.cell(i, value(i), found.filter(|(of, _)| *of == source), &mut free_bytes, output)?;
                cells.push(cell);
            }
            if self.census.processes.is_empty() {
                output.lose(0, &self.info.name, None, 1);
                continue;
            }
            let cells: Vec<Value<'_>> = cells.iter().map(OwnedValue::as_value).collect();
            output.translator.values(source, self.id, &cells)?;
        }
        Ok(())
    }

    /// Returns the process and row that a value refers to.
    fn target(&self, role: ColumnRole, value: ValueRef<'_>) -> Option<(u32, i64)> {
        match role {
            ColumnRole::Call => self.calls.get(int(value)?),
            ColumnRole::Operation => self.operations.get(int(value)?),
            _ => None,
        }
    }

    fn cell(
        &mut self,
        column: usize,
        value: ValueRef<'_>,
        found: Option<(u32, i64)>,
        free_bytes: &mut usize,
        output: &mut RpdOutput<'_>,
    ) -> Result<OwnedValue, RpdReadError> {
        if value == ValueRef::Null {
            return Ok(OwnedValue::Null);
        }
        let role = self.roles.get(column).copied().unwrap_or(ColumnRole::Plain);
        let cell = match role {
            ColumnRole::Call | ColumnRole::Operation => found.map(|(_, key)| OwnedValue::Int(key)),
            ColumnRole::Str => self.strings.id(value, output)?.map(OwnedValue::Int),
            ColumnRole::Text => {
                self.strings.text(value)?.map(|text| OwnedValue::Text(cut(&text, free_bytes, output).into()))
            }
            ColumnRole::Plain => Some(match value {
                ValueRef::Null => OwnedValue::Null,
                ValueRef::Integer(v) => OwnedValue::Int(v),
                ValueRef::Real(v) => OwnedValue::Real(v),
                ValueRef::Text(v) => OwnedValue::Text(cut(v, free_bytes, output).into()),
                ValueRef::Blob(v) => OwnedValue::Blob(cut(v, free_bytes, output).into()),
            }),
        };
        if cell.is_none() {
            let name = self.info.columns.get(column).map_or("", |column| &column.name);
            output.miss(&self.info.name, name);
        }
        Ok(cell.unwrap_or(OwnedValue::Null))
    }
}

/// Returns the part of a text that fits the row.
fn cut<'t>(text: &'t [u8], free_bytes: &mut usize, output: &mut RpdOutput<'_>) -> &'t [u8] {
    let text = output.cut(text, MAX_TEXT.min(*free_bytes));
    *free_bytes -= text.len();
    text
}

/// Looks up strings of the file by id.
struct StringQuery<'i> {
    input: &'i RpdFile,
    strings: Statement<'i>,
    texts: Statement<'i>,
    known: HashMap<i64, i64>,
}

impl<'i> StringQuery<'i> {
    fn new(input: &'i RpdFile) -> Result<StringQuery<'i>, RpdReadError> {
        let prepare = |table: &str| {
            let sql = format!("SELECT string FROM {table} WHERE id = ?");
            input.conn.prepare(&sql).map_err(|source| input.error(table, source))
        };
        let texts = if input.table("rocpd_ustring").is_some() { "rocpd_ustring" } else { "rocpd_string" };
        Ok(StringQuery {
            input,
            strings: prepare("rocpd_string")?,
            texts: prepare(texts)?,
            known: HashMap::new(),
        })
    }

    /// Returns the shard's id of a string.
    fn id(&mut self, value: ValueRef<'_>, output: &mut RpdOutput<'_>) -> Result<Option<i64>, RpdReadError> {
        let Some(id) = int(value) else { return Ok(None) };
        if let Some(known) = self.known.get(&id) {
            return Ok(Some(*known));
        }
        let Some(text) = find(&mut self.strings, id, self.input)? else { return Ok(None) };
        let found = output.string(&text)?.0;
        if self.known.len() >= MAX_REMEMBERED {
            self.known.clear();
        }
        self.known.insert(id, found);
        Ok(Some(found))
    }

    /// Returns a text that is not among the strings of the shard.
    fn text(&mut self, value: ValueRef<'_>) -> Result<Option<Vec<u8>>, RpdReadError> {
        int(value).map_or(Ok(None), |id| find(&mut self.texts, id, self.input))
    }
}

fn find(query: &mut Statement<'_>, id: i64, input: &RpdFile) -> Result<Option<Vec<u8>>, RpdReadError> {
    let failed = |source| input.error("rocpd_string", source);
    let mut rows = query.query([id]).map_err(failed)?;
    let row = rows.next().map_err(failed)?;
    let found = row.and_then(|row| row.get_ref(0).ok().and_then(text));
    Ok(found.map(|text| cut_text(&text, MAX_TEXT + 1).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_as_rpd_writes_it() {
        let pair = |text: &str| parse_pair(text);
        let wanted = Some(("ext_autogradapi".to_owned(), "autogradname_id".to_owned()));
        assert_eq!(pair(r#"("ext_autogradapi", "autogradName_id")"#), wanted);
        assert_eq!(pair("( 'ext_autogradapi','autogradName_id' )"), wanted);
        assert_eq!(pair("ext_autogradapi.autogradName_id"), None);
    }

    #[test]
    fn names_are_plain_and_different() {
        let mut taken = BTreeSet::new();
        let mut name = |text: &str| carried_name(text, &mut taken);
        assert_eq!(name("ext_autogradapi"), "rpd_ext_autogradapi");
        assert_eq!(name("rocpd_autogradapi"), "rpd_ext_autogradapi_");
        assert_eq!(name("a\"b; drop"), "rpd_ext_a_b__drop");
    }
}
