//! Describes the tables of a file with several table sets once for all sets.

use crate::read::StoredTableSet;
use rpd_shard::model::{FIRST_CARRIED_TABLE, Kind, Schema, Table, TableId, is_wider};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of columns of a table in a shard.
const MAX_COLUMNS: usize = 64;
/// Maximum number of tables, over all sets, that the data model lacks.
const MAX_CARRIED: usize = 256;

const TOO_WIDE: &str = "has a table of more than 64 columns";
const TOO_MANY: &str = "has too many tables that are none of RocPD's";
const UNEQUAL_SETS: &str = "has sets of tables with different columns";

/// Returns the tables of each set, in its order, as described in the shard. Tables with the same name get the same
/// number. The error is the reason why that is impossible.
pub(super) fn described(table_sets: &[&StoredTableSet]) -> Result<Vec<Vec<Arc<Table>>>, &'static str> {
    let mut numbers: HashMap<String, TableId> = HashMap::new();
    let mut known: HashMap<TableId, Arc<Table>> = HashMap::new();
    let mut all = Vec::with_capacity(table_sets.len());
    for set in table_sets {
        let mut own = HashMap::new();
        for table in &set.tables {
            let id = table.table.id;
            if id < FIRST_CARRIED_TABLE {
                own.insert(id, id);
                continue;
            }
            let next = TableId(FIRST_CARRIED_TABLE.0 + numbers.len() as u16);
            own.insert(id, *numbers.entry(table.table.name.clone()).or_insert(next));
            if numbers.len() > MAX_CARRIED {
                return Err(TOO_MANY);
            }
        }
        let mut tables = Vec::with_capacity(set.tables.len());
        for table in &set.tables {
            if table.table.columns.len() > MAX_COLUMNS {
                return Err(TOO_WIDE);
            }
            let table = renumbered(&table.table, &own);
            if known.entry(table.id).or_insert_with(|| table.clone()) != &table {
                return Err(UNEQUAL_SETS);
            }
            tables.push(table);
        }
        all.push(tables);
    }
    Ok(all)
}

/// Returns whether readers of a shard need the description of a table, because they know no such table, or not all
/// of its columns.
pub(super) fn needs_description(table: &Table) -> bool {
    table.id >= FIRST_CARRIED_TABLE
        || Schema::builtin().get(table.id).is_some_and(|known| is_wider(table, known))
}

/// Replaces the numbers of tables in a description.
fn renumbered(table: &Arc<Table>, numbers: &HashMap<TableId, TableId>) -> Arc<Table> {
    let new = |id: TableId| numbers.get(&id).copied().unwrap_or(id);
    if numbers.iter().all(|(old, new)| old == new) {
        return table.clone();
    }
    let mut table = Table::clone(table);
    table.id = new(table.id);
    for column in &mut table.columns {
        match &mut column.kind {
            Kind::Ref(target) => *target = new(*target),
            Kind::Json(refs) => refs.iter_mut().for_each(|reference| reference.table = new(reference.table)),
            _ => {}
        }
    }
    Arc::new(table)
}
