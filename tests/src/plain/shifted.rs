use super::create;
use super::input::{ATTACHED, PlainInput, PlainTable};
use rusqlite::{Connection, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Stack ids of the input number n are moved by n times this.
const STACKS: i64 = 1 << 32;

/// All inputs in one set of tables: `INSERT .. SELECT` with the ids, and the columns that refer to
/// them, moved after those of the inputs before. Strings and nodes are kept as often as they come, and
/// ids inside JSON as they are: SQL alone does not know them.
pub fn shifted(inputs: &[PathBuf], path: &Path) -> Result<()> {
    let output = create(path)?;
    let mut set: Option<(String, String)> = None;
    let mut bases: HashMap<String, i64> = HashMap::new();
    for (number, path) in inputs.iter().enumerate() {
        let input = PlainInput::attach(&output, path)?;
        output.execute_batch("BEGIN")?;
        let first = set.is_none();
        let (uuid, guid) = set.get_or_insert_with(|| (input.uuid.clone(), input.guid.clone()));
        if first {
            make(&output, &input)?;
        }
        for table in input.tables.iter().filter(|table| first || table.name != "rocpd_metadata") {
            let select = moved(table, guid, &bases, number as i64 * STACKS);
            let (name, from) = (&table.name, &input.uuid);
            output.execute_batch(&format!(
                "INSERT INTO main.\"{name}{uuid}\" SELECT {select} FROM {ATTACHED}.\"{name}{from}\""
            ))?;
        }
        output.execute_batch("COMMIT")?;
        for table in &input.tables {
            let sql = format!("SELECT max(id) FROM main.\"{}{uuid}\"", table.name);
            let last: Option<i64> = output.query_row(&sql, [], |row| row.get(0))?;
            // The next one's ids may begin at 0.
            bases.insert(table.name.clone(), last.map_or(0, |last| last + 1));
        }
        // Views put both into one column.
        let both = ["rocpd_region", "rocpd_sample"];
        let base = both.iter().filter_map(|table| bases.get(*table)).max().copied().unwrap_or(0);
        bases.extend(both.map(|table| (table.to_owned(), base)));
        PlainInput::detach(&output)?;
    }
    Ok(())
}

/// The tables and views of the first input, where a string or node may stand twice.
fn make(output: &Connection, input: &PlainInput) -> Result<()> {
    for table in &input.tables {
        output.execute_batch(&table.sql.replace("UNIQUE ON CONFLICT ABORT", "").replace("UNIQUE", ""))?;
    }
    input.views.iter().try_for_each(|(_, sql)| output.execute_batch(sql))
}

/// The columns of a table, moved.
fn moved(table: &PlainTable, guid: &str, bases: &HashMap<String, i64>, stacks: i64) -> String {
    let base = |table: &str| bases.get(table).copied().unwrap_or(0);
    let column = |column: &String| {
        let referred = table.references.iter().find(|(from, _)| from == column);
        match (column.as_str(), referred) {
            (_, Some((_, target))) => format!("\"{column}\" + {}", base(target)),
            ("id", _) => format!("id + {}", base(&table.name)),
            ("guid", _) => format!("'{guid}'"),
            // 0 is no stack.
            ("stack_id" | "parent_stack_id", _) => format!("iif({column} = 0, 0, {column} + {stacks})"),
            _ => format!("\"{column}\""),
        }
    };
    table.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}
