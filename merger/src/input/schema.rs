//! Tables of the output: those of RocPD, with additional columns from inputs, and tables that only inputs define.

use crate::budget::MemoryBudget;
use crate::input::source::StackIdLimit;
use crate::input::{InputTables, RowLengthLimit};
use rpd_shard::model::{Column, FIRST_CARRIED_TABLE, Kind, Schema, Table, TableId, rocpd};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Oldest schema version that is written; every later one extends it.
const OLDEST: [u32; 3] = [3, 0, 0];
/// Maximum number of tables that inputs may add.
const MAX_CARRIED: usize = 1_000;
/// Maximum number of different input schemas for which adopted tables are cached.
const MAX_ADOPTED: usize = 64;

/// Differences from the built-in tables; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSchema {
    /// Version of the output: the newest of the inputs.
    pub version: [u32; 3],
    /// Tables with more columns than the built-in ones, and carried tables.
    pub widened: Vec<Table>,
}

impl Default for PlannedSchema {
    fn default() -> PlannedSchema {
        PlannedSchema { version: OLDEST, widened: Vec::new() }
    }
}

impl PlannedSchema {
    /// Joins the tables of all inputs, given in merge order. Columns have the order of the first input with the
    /// newest version. Further columns of other inputs follow.
    pub fn join(inputs: &[([u32; 3], &Schema)]) -> PlannedSchema {
        let mut sorted: Vec<_> = inputs.to_vec();
        sorted.sort_by_key(|(version, _)| Reverse(*version));
        let version = sorted.first().map_or(OLDEST, |(version, _)| (*version).max(OLDEST));
        let mut job = Schema::builtin().clone();
        for (place, (_, found)) in sorted.iter().enumerate() {
            name_carried(&mut job, found);
            for table in found.output_tables() {
                let Some(known) = job.by_name(&table.name).cloned() else { continue };
                let translated = translate(table, found, &job, known.id);
                if let Some(wider) = widen(&known, &translated, place == 0) {
                    job.define(wider);
                }
            }
        }
        let differs = |table: &&Arc<Table>| Schema::builtin().get(table.id) != Some(*table);
        PlannedSchema {
            version,
            widened: job.tables().iter().filter(differs).map(|t| (**t).clone()).collect(),
        }
    }
}

/// Assigns a number to each new table.
fn name_carried(job: &mut Schema, found: &Schema) {
    for table in found.output_tables().filter(|t| t.id >= FIRST_CARRIED_TABLE) {
        let carried = job.tables().iter().filter(|t| t.id >= FIRST_CARRIED_TABLE).count();
        if job.by_name(&table.name).is_none() && carried < MAX_CARRIED {
            let id = TableId(FIRST_CARRIED_TABLE.0 + carried as u16);
            job.define(Table { id, name: table.name.clone(), columns: Vec::new() });
        }
    }
}

/// Returns the table with references to the job's tables.
fn translate(table: &Table, local: &Schema, job: &Schema, id: TableId) -> Table {
    let target = |of: TableId| local.get(of).and_then(|t| job.by_name(&t.name)).map(|t| t.id);
    let column = |column: &Column| {
        let kind = match &column.kind {
            Kind::Ref(of) => target(*of).map_or(Kind::Any, Kind::Ref),
            kind => kind.clone(),
        };
        Column { kind, near: None, ..column.clone() }
    };
    Table { id, name: table.name.clone(), columns: table.columns.iter().map(column).collect() }
}

/// Returns the job's table extended by the columns of this one; `None` if nothing is new.
fn widen(known: &Table, found: &Table, leads: bool) -> Option<Table> {
    let builtin = Schema::builtin().get(known.id);
    let is_builtin = |name: &str| builtin.is_some_and(|t| t.position(name).is_some());
    let mut wider = known.clone();
    for column in &found.columns {
        match wider.columns.iter_mut().find(|c| c.name == column.name) {
            // A later version may allow more words.
            Some(same) if !same.sql.one_of.is_empty() && !column.sql.one_of.is_empty() => {
                let new: Vec<_> =
                    column.sql.one_of.iter().filter(|w| !same.sql.one_of.contains(w)).cloned().collect();
                same.sql.one_of.extend(new);
            }
            Some(_) => {}
            None => wider.columns.push(column.clone()),
        }
    }
    if leads && wider.columns.iter().all(|c| found.position(&c.name).is_some()) {
        wider.columns.sort_by_key(|c| found.position(&c.name));
    }
    // Rows of an input without the column contain NULL there.
    let is_new_table = known.columns.is_empty();
    for column in wider.columns.iter_mut().filter(|c| !is_builtin(&c.name) && c.sql.default.is_none()) {
        let everywhere = found.position(&column.name).is_some()
            && (is_new_table || known.position(&column.name).is_some());
        column.sql.not_null &= everywhere;
        column.sql.unique = false;
    }
    (wider != *known).then_some(wider)
}

/// The tables of the output.
#[derive(Debug)]
pub struct JobSchema {
    /// Version of the output.
    pub version: [u32; 3],
    /// All tables, including native ones.
    pub schema: Schema,
    /// Tables with ids that are assigned per source: all but strings and nodes, in merge order.
    pub numbered: Vec<TableId>,
    /// Limit for stack ids of an input that need new numbers.
    pub stacks: StackIdLimit,
    /// Limit for the length of a database row.
    pub rows: RowLengthLimit,
    /// Adopted tables of input schemas. Most inputs of a job have the same schema.
    adopted: Mutex<Vec<(Schema, InputTables)>>,
}

impl JobSchema {
    /// Creates the schema from the plan, with limits for this memory of a merge rank.
    pub fn new(planned: &PlannedSchema, memory: MemoryBudget) -> JobSchema {
        let mut schema = Schema::builtin().clone();
        planned.widened.iter().for_each(|table| schema.define(table.clone()));
        let numbered = schema.output_tables().map(|t| t.id);
        let numbered = numbered.filter(|id| !matches!(*id, rocpd::STRING | rocpd::INFO_NODE)).collect();
        let (stacks, rows) = (StackIdLimit::new(memory.stack_ids()), RowLengthLimit::new(memory.row_bytes()));
        JobSchema { version: planned.version, schema, numbered, stacks, rows, adopted: Mutex::default() }
    }

    /// Returns the description of a table.
    pub fn get(&self, id: TableId) -> Option<&Arc<Table>> {
        self.schema.get(id)
    }

    /// Returns the name of a table for reports.
    pub fn name(&self, id: TableId) -> Cow<'_, str> {
        self.get(id).map_or_else(|| id.to_string().into(), |t| t.name.as_str().into())
    }

    /// Returns the tables of an input as tables of the job, by their number in the input. They have the input's
    /// columns, with the declarations of the job's tables and references to these. Inputs with the same tables share
    /// the result.
    pub fn adopt(&self, local: &Schema) -> InputTables {
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = adopted.iter().find(|(schema, _)| same_tables(schema, local)) {
            return tables.clone();
        }
        let tables: InputTables = Arc::new(self.adopted_tables(local));
        if adopted.len() < MAX_ADOPTED {
            adopted.push((local.clone(), tables.clone()));
        }
        tables
    }

    fn adopted_tables(&self, local: &Schema) -> BTreeMap<TableId, Arc<Table>> {
        let adopt = |table: &Arc<Table>| {
            let known = self.schema.by_name(&table.name)?;
            let mut adopted = translate(table, local, &self.schema, known.id);
            for column in &mut adopted.columns {
                if let Some(same) = known.columns.iter().find(|c| c.name == column.name) {
                    column.sql = same.sql.clone();
                }
            }
            Some((table.id, Arc::new(adopted)))
        };
        local.output_tables().filter_map(adopt).collect()
    }
}

/// Returns whether two inputs describe the same tables.
fn same_tables(a: &Schema, b: &Schema) -> bool {
    let same = |(a, b): (&Arc<Table>, &Arc<Table>)| Arc::ptr_eq(a, b) || a == b;
    a.tables().len() == b.tables().len() && a.tables().iter().zip(b.tables()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_shard::model::Declared;

    fn column(name: &str, kind: Kind) -> Column {
        let sql = Declared { type_name: "INTEGER".into(), not_null: true, ..Declared::default() };
        Column { name: name.into(), kind, sql, near: None }
    }

    #[test]
    fn columns_and_tables_of_a_newer_input_are_in_the_output() {
        let mut newer = Schema::builtin().clone();
        let mut dispatch = (**newer.get(rocpd::KERNEL_DISPATCH).unwrap()).clone();
        let at = dispatch.position("region_name_id").unwrap();
        dispatch.columns.insert(at, column("graph_node_id", Kind::Any));
        dispatch.columns[at].sql.default = Some("0".into());
        newer.define(dispatch);
        let graph = TableId(FIRST_CARRIED_TABLE.0 + 7);
        let launch = vec![column("event_id", Kind::Ref(rocpd::EVENT)), column("parent", Kind::Ref(graph))];
        newer.define(Table { id: graph, name: "rocpd_graph_launch".into(), columns: launch });
        let planned = PlannedSchema::join(&[(OLDEST, Schema::builtin()), ([3, 0, 2], &newer)]);
        let job = JobSchema::new(&planned, MemoryBudget::default());
        assert_eq!(job.version, [3, 0, 2]);
        assert_eq!(job.get(rocpd::KERNEL_DISPATCH).unwrap().position("graph_node_id"), Some(at));
        let carried = job.schema.by_name("rocpd_graph_launch").unwrap();
        assert_eq!(carried.id, FIRST_CARRIED_TABLE);
        assert_eq!(carried.columns[1].kind, Kind::Ref(FIRST_CARRIED_TABLE));
        assert!(carried.columns[0].sql.not_null);
        assert_eq!(job.adopt(&newer)[&graph].columns[1].kind, Kind::Ref(FIRST_CARRIED_TABLE));
        assert!(job.numbered.contains(&FIRST_CARRIED_TABLE));
        assert_eq!(PlannedSchema::join(&[(OLDEST, Schema::builtin())]), PlannedSchema::default());
    }
}
