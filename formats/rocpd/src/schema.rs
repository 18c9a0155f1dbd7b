//! The statements that create the tables and views of a RocPD database.
//!
//! Tables are generated from their description in the data model. `PRAGMA table_info`, `foreign_key_list`,
//! `index_list` and the CHECKs are equal to those of AMD's own files of the same version.

use crate::connect::{identifier, literal};
use crate::guid::Guid;
use crate::set::TableSet;
use rpd_shard::model::rocpd::{MEMORY_ALLOCATE, MEMORY_COPY, PMC_EVENT, STRING};
use rpd_shard::model::{Column, Kind, Schema, Table, TableId, Value};
use std::fmt::Write as _;
use std::sync::Arc;

/// Version of the schema that this project writes: major, minor, patch.
pub const VERSION: [u32; 3] = [3, 0, 0];
/// Newest version of which this release supports the additions and AMD's rules.
pub const NEWEST: [u32; 3] = [3, 0, 5];

/// The data and summary views. Like AMD's, they read the `rocpd_<x>` views instead of the tables. A tool that
/// redefines those views over several databases therefore gets the totals of all of them here.
const DATA_VIEWS: &str = include_str!("views.sql");

/// The table of metadata rows. It has no guid and is not merged; the data model therefore does not contain it.
pub const METADATA: &str = "rocpd_metadata";

/// Additions of each version by table; `None` stands for the table itself.
const ADDED: [([u32; 3], &str, Option<&str>); 9] = [
    ([3, 0, 2], "rocpd_kernel_dispatch", Some("graph_exec_id")),
    ([3, 0, 2], "rocpd_memory_copy", Some("graph_exec_id")),
    ([3, 0, 2], "rocpd_graph_launch", None),
    ([3, 0, 3], "rocpd_pmc_event", Some("sample_id")),
    ([3, 0, 3], "rocpd_pmc_event", Some("shader_engine")),
    ([3, 0, 3], "rocpd_info_pmc", Some("spm_support")),
    ([3, 0, 4], "rocpd_hip_event", None),
    ([3, 0, 5], "rocpd_pmc_event", Some("shader_array")),
    ([3, 0, 5], "rocpd_pmc_event", Some("wgp")),
];
/// Columns with the kind of a processor, which may also be `NIC` from this version on.
const WITH_NIC: ([u32; 3], [(&str, &str); 2]) =
    ([3, 0, 1], [("rocpd_info_agent", "type"), ("rocpd_info_pmc", "target_arch")]);

/// Returns the version of tables in a file that does not state it, such as a shard.
///
/// The result is the newest version that added any of the tables or of their columns. A column that no version
/// added has no influence.
pub fn version_of(schema: &Schema) -> [u32; 3] {
    let is_there = |table: &str, column: Option<&str>| {
        let table = schema.by_name(table);
        table.is_some_and(|table| column.is_none_or(|column| table.position(column).is_some()))
    };
    let there = ADDED.iter().filter(|(_, table, column)| is_there(table, *column));
    there.map(|(version, ..)| *version).max().unwrap_or(VERSION)
}

/// Adds the kinds of processors that a version allows to a schema.
pub fn with_words_of(version: [u32; 3], schema: &Schema) -> Schema {
    let mut schema = schema.clone();
    for (name, column) in WITH_NIC.1.iter().filter(|_| version >= WITH_NIC.0) {
        let Some(mut table) = schema.by_name(name).map(|table| (**table).clone()) else { continue };
        let column = table.columns.iter_mut().find(|found| found.name == *column);
        if let Some(words) = column.map(|column| &mut column.sql.one_of).filter(|words| !words.is_empty())
            && !words.iter().any(|word| word == "NIC")
        {
            words.push("NIC".to_owned());
            schema.define(table);
        }
    }
    schema
}

/// Returns the RocPD tables in the order of creation: a table follows those that it refers to.
pub fn tables() -> impl Iterator<Item = &'static Arc<Table>> {
    Schema::builtin().rocpd_tables()
}

/// Returns all statements of a new database of [`VERSION`]: tables, `rocpd_<x>` views, data and summary views.
pub fn create_all(guid: &Guid) -> String {
    create_all_of(Schema::builtin(), &[guid.into()])
}

/// Returns all statements of a new database with the tables of a wider schema, once per table set. The `rocpd_<x>`
/// views show all sets.
pub fn create_all_of(schema: &Schema, sets: &[TableSet]) -> String {
    let tables: String = sets.iter().map(|set| create_tables(schema, set)).collect();
    tables + &create_views(schema, sets)
}

/// Returns the statements that create the tables of one set.
pub(crate) fn create_tables(schema: &Schema, set: &TableSet) -> String {
    let tables = schema.output_tables().map(|table| create_table(table, schema, set));
    std::iter::once(create_metadata(set)).chain(tables).collect()
}

/// Returns the statements that create the views over all sets.
pub(crate) fn create_views(schema: &Schema, sets: &[TableSet]) -> String {
    let mut sql = String::new();
    for name in std::iter::once(METADATA).chain(schema.output_tables().map(|t| t.name.as_str())) {
        let select = |set| format!("SELECT * FROM {}", identifier(&table_name(name, set)));
        let selects: Vec<String> = sets.iter().map(select).collect();
        let _ = writeln!(sql, "CREATE VIEW {} AS {};", identifier(name), selects.join(" UNION ALL "));
    }
    sql + DATA_VIEWS
}

/// Returns the name of a table in a set.
pub fn table_name(name: &str, set: &TableSet) -> String {
    format!("{name}{}", set.suffix())
}

/// Returns the `CREATE TABLE` of the metadata.
fn create_metadata(set: &TableSet) -> String {
    let name = identifier(&table_name(METADATA, set));
    format!(
        "CREATE TABLE {name} (\n    \"id\" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,\n    \
         \"tag\" TEXT NOT NULL,\n    \"value\" TEXT NOT NULL\n);\n"
    )
}

/// Returns the `CREATE TABLE` of one table. Its references are to tables of `schema`.
pub fn create_table(table: &Table, schema: &Schema, set: &TableSet) -> String {
    let mut lines = vec![
        "\"id\" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT".to_owned(),
        format!("\"guid\" TEXT DEFAULT {} NOT NULL", identifier(set.guid())),
    ];
    lines.extend(table.columns.iter().map(declare));
    for (column, target) in foreign_keys(table) {
        let Some(target) = schema.get(target) else { continue };
        lines.push(format!(
            "FOREIGN KEY ({}) REFERENCES {} (\"id\") ON UPDATE CASCADE",
            identifier(column),
            identifier(&table_name(&target.name, set)),
        ));
    }
    let name = identifier(&table_name(&table.name, set));
    format!("CREATE TABLE {name} (\n    {}\n);\n", lines.join(",\n    "))
}

fn declare(column: &Column) -> String {
    let mut line = format!("{} {}", identifier(&column.name), column.sql.type_name);
    if let Some(default) = &column.sql.default {
        // AMD quotes text defaults like identifiers, and PRAGMA table_info shows the quotes.
        let default = if default_number(column).is_some() { default.clone() } else { identifier(default) };
        let _ = write!(line, " DEFAULT {default}");
    }
    if column.sql.not_null {
        line += " NOT NULL";
    }
    if column.sql.unique {
        line += " UNIQUE";
    }
    if !column.sql.one_of.is_empty() {
        let values: Vec<_> = column.sql.one_of.iter().map(|v| literal(v)).collect();
        let _ = write!(line, " CHECK ({} IN ({}))", identifier(&column.name), values.join(", "));
    }
    line
}

/// Returns the default as a number if the column holds numbers.
pub(crate) fn default_number(column: &Column) -> Option<Value<'static>> {
    let default = column.sql.default.as_ref()?;
    match column.kind {
        Kind::Text | Kind::Json(_) => None,
        _ => default.parse().map(Value::Int).or_else(|_| default.parse().map(Value::Real)).ok(),
    }
}

/// Returns the default of a column as a value; NULL if it has none.
pub fn default_value(column: &Column) -> Value<'_> {
    match &column.sql.default {
        Some(text) => default_number(column).unwrap_or(Value::Text(text.as_bytes())),
        None => Value::Null,
    }
}

/// Returns referring columns and their target tables in AMD's order, which `PRAGMA foreign_key_list` shows.
fn foreign_keys(table: &Table) -> Vec<(&str, TableId)> {
    /// Columns with a foreign key that AMD lists after that of the following column.
    const SWAPPED: [(TableId, &str); 2] = [(MEMORY_COPY, "queue_id"), (MEMORY_ALLOCATE, "queue_id")];
    let mut keys: Vec<_> = table
        .columns
        .iter()
        .filter_map(|column| match column.kind {
            Kind::Ref(target) => Some((column.name.as_str(), target)),
            Kind::Str => Some((column.name.as_str(), STRING)),
            _ => None,
        })
        .collect();
    for (id, first) in SWAPPED {
        let at = keys.iter().position(|(column, _)| id == table.id && *column == first);
        if let Some(at) = at.filter(|at| at + 1 < keys.len()) {
            keys.swap(at, at + 1);
        }
    }
    // AMD lists the counter before the columns for the measured object, however many those are.
    keys.sort_by_key(|(column, _)| table.id == PMC_EVENT && *column != "pmc_id");
    keys
}
