//! Describes tables of a file in terms of the data model.

use super::declaration::{FileColumn, FileTable, Literal};
use super::shared::Shared;
use crate::schema::METADATA;
use rpd_shard::model::{Column, Declared, Kind, Schema, Table, TableId, current_table_name, rocpd};
use std::collections::HashMap;
use std::sync::Arc;

/// Columns that every table has and that the data model implies.
const IMPLIED_COLUMNS: [&str; 2] = ["id", "guid"];

/// Table descriptions that differ from the data model.
static TABLES: Shared<Table> = Shared::new();

/// Returns whether equal rows of all inputs are merged into one. Such a row cannot keep a separate value from each
/// input.
fn is_shared(name: &str) -> bool {
    let builtin = Schema::builtin();
    let shared = [rocpd::STRING, rocpd::INFO_NODE].into_iter().filter_map(|id| builtin.get(id));
    name == METADATA || shared.into_iter().any(|table| table.name == name)
}

/// A table described in terms of the data model, and the positions of its columns in the file.
pub(super) struct Described {
    pub(super) table: Arc<Table>,
    /// For each column of `table`, its index among the columns of the file.
    pub(super) places: Vec<Option<usize>>,
    pub(super) warnings: Vec<String>,
}

/// Adds the columns of the file to a known table, or describes a new table.
///
/// A known column has the kind of the data model, wherever it is; the file states whether it may be NULL, and which
/// words it allows. Each other column follows the column that it follows in the file. Other columns are left out if
/// equal rows of the table are merged.
pub(super) fn describe(
    id: TableId,
    name: &str,
    known: Option<&Arc<Table>>,
    file: &FileTable,
    targets: &HashMap<String, TableId>,
) -> Described {
    let mut warnings = Vec::new();
    let mut columns: Vec<(Column, Option<usize>)> = Vec::new();
    for column in known.map_or(&[][..], |known| &known.columns) {
        let place = file.columns.iter().position(|c| c.name.eq_ignore_ascii_case(&column.name));
        let mut column = column.clone();
        match place.map(|place| &file.columns[place]) {
            Some(found) => {
                column.sql.not_null &= found.not_null;
                column.sql.one_of.clone_from(&found.one_of);
                if found.stored_at.is_none() {
                    warnings.push(format!("{name}.{} is computed and is left out", column.name));
                }
            }
            None => warnings.push(format!("{name} has no column {}", column.name)),
        }
        columns.push((column, place.filter(|place| file.columns[*place].stored_at.is_some())));
    }
    let mut before: Option<String> = None;
    for (place, found) in file.columns.iter().enumerate() {
        let is_listed = columns.iter().any(|(c, _)| c.name.eq_ignore_ascii_case(&found.name));
        let is_implied = IMPLIED_COLUMNS.iter().any(|implied| found.name.eq_ignore_ascii_case(implied));
        if found.stored_at.is_none() && !is_listed {
            warnings.push(format!("{name}.{} is computed and is left out", found.name));
            continue;
        }
        if !is_listed && !is_implied && is_shared(name) {
            warnings.push(format!(
                "the column {} of {name} is left out: its rows are there once for all inputs",
                found.name.escape_debug()
            ));
            continue;
        }
        if !is_listed && !is_implied {
            let column = unknown(name, found, targets, &mut warnings);
            let after = before
                .as_ref()
                .and_then(|before| columns.iter().position(|(c, _)| c.name.eq_ignore_ascii_case(before)))
                .map_or(0, |at| at + 1);
            for (column, _) in &mut columns {
                let moved =
                    |near: u8| if usize::from(near) < after { Some(near) } else { near.checked_add(1) };
                column.near = column.near.and_then(moved);
            }
            columns.insert(after, (column, Some(place)));
        }
        if !is_implied {
            before = Some(found.name.clone());
        }
    }
    let (columns, places) = columns.into_iter().unzip();
    let table = Table { id, name: name.to_owned(), columns };
    let table = match known {
        Some(known) if **known == table => known.clone(),
        _ => TABLES.one_of(Arc::new(table)),
    };
    Described { table, places, warnings }
}

/// Describes a column that the data model lacks.
fn unknown(
    table: &str,
    found: &FileColumn,
    targets: &HashMap<String, TableId>,
    warnings: &mut Vec<String>,
) -> Column {
    let default = match &found.default {
        Literal::Null => None,
        Literal::Number(text) | Literal::Text(text) => Some(text.clone()),
        Literal::Other => {
            warnings.push(format!("the default of {table}.{} is not a constant and is skipped", found.name));
            None
        }
    };
    let sql = Declared {
        type_name: found.type_name.clone(),
        not_null: found.not_null,
        default,
        one_of: found.one_of.clone(),
        unique: found.unique,
    };
    Column { name: found.name.clone(), kind: kind(table, found, targets, warnings), sql, near: None }
}

fn kind(
    table: &str,
    found: &FileColumn,
    targets: &HashMap<String, TableId>,
    warnings: &mut Vec<String>,
) -> Kind {
    if let Some((target, to)) = &found.refers {
        let to_id = to.as_ref().is_none_or(|to| to.eq_ignore_ascii_case("id"));
        match targets.get(&*current_table_name(target)).filter(|_| to_id) {
            Some(&rocpd::STRING) => return Kind::Str,
            Some(target) => return Kind::Ref(*target),
            None => warnings.push(format!(
                "{table}.{} refers to {target}, which is not read: its values are copied as they are",
                found.name
            )),
        }
    }
    let type_name = found.type_name.to_ascii_uppercase();
    match found.name.as_str() {
        "stack_id" | "parent_stack_id" => Kind::Stack,
        "start" | "end" | "timestamp" if type_name == "BIGINT" => Kind::Time,
        "extdata" => Kind::Json(Vec::new()),
        _ if matches!(type_name.as_str(), "JSON" | "JSONB") => Kind::Json(Vec::new()),
        _ => Kind::Any,
    }
}
