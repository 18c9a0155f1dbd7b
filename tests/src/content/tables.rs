use crate::synthetic::{IdNumbering, ModelCell, NativeCall, ProcessRows, Run, columns, expand, number};
use rpd_shard::model::{Schema, TableId, rocpd};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::collections::{BTreeMap, HashMap};

/// Rows by id: values by the name of the column.
pub type RowsById = BTreeMap<i64, BTreeMap<String, Value>>;

/// The RocPD tables of one database, in memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ContentTables {
    /// By name without suffix.
    pub tables: BTreeMap<String, RowsById>,
}

impl ContentTables {
    /// All `rocpd_*` tables of a database of one uuid, through its views.
    pub fn of_database(database: &Connection) -> rusqlite::Result<ContentTables> {
        let mut tables = ContentTables::default();
        for table in Schema::builtin().tables().iter().filter(|t| t.name.starts_with("rocpd_")) {
            let mut statement = database.prepare(&format!("SELECT * FROM {}", table.name))?;
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let mut rows = statement.query([])?;
            let by_id = tables.tables.entry(table.name.clone()).or_default();
            while let Some(row) = rows.next()? {
                let mut values = BTreeMap::new();
                for (i, name) in names.iter().enumerate().filter(|(_, n)| *n != "id" && *n != "guid") {
                    values.insert(name.clone(), row.get(i)?);
                }
                by_id.insert(row.get("id")?, values);
            }
        }
        Ok(tables)
    }

    /// What a merge of the run must hold, numbered in the plainest way: one counter per table.
    pub fn of_model(run: &Run) -> ContentTables {
        let mut tables = ContentTables::default();
        for table in Schema::builtin().tables().iter().filter(|t| t.name.starts_with("rocpd_")) {
            tables.tables.insert(table.name.clone(), BTreeMap::new());
        }
        let shifts: Vec<i64> = (0..run.nodes.len()).map(|node| run.shift(node)).collect();
        let mut strings = HashMap::new();
        let mut bases: HashMap<TableId, i64> = HashMap::new();
        let mut stacks = 0;
        for process in run.processes() {
            let recorded = run.rows(process);
            let rows = expand(&recorded);
            let clock = &run.nodes[process.node].clock;
            let time = |true_ns| clock.local(true_ns) + shifts[process.node];
            let highest = highest_stack(&rows);
            let mut numbers =
                Plain { node: process.node as i64, bases: bases.clone(), strings, stacks, time: &time };
            number(run, process, &rows, &mut numbers, &mut |row| {
                let names = columns(row.table).into_iter().map(str::to_owned);
                let values = names.zip(row.values).collect();
                let name = Schema::builtin().get(row.table).map(|t| t.name.clone()).unwrap_or_default();
                tables.tables.entry(name).or_default().insert(row.id, values);
            });
            for name in names_of_shards(&recorded) {
                numbers.string(name);
            }
            strings = numbers.strings;
            stacks += highest;
            *bases.entry(rocpd::INFO_PROCESS).or_default() += 1;
            rows.tables.iter().for_each(|(id, rows)| *bases.entry(*id).or_default() += rows.len() as i64);
        }
        let by_id = |(text, id)| (id, BTreeMap::from([("string".to_owned(), Value::Text(text))]));
        tables.tables.insert("rocpd_string".into(), strings.into_iter().map(by_id).collect());
        tables
    }

    /// Rows of a table.
    pub fn of(&self, table: &str) -> &RowsById {
        static NONE: RowsById = BTreeMap::new();
        self.tables.get(table).unwrap_or(&NONE)
    }
}

/// Texts that shards keep in their string table, and databases in arguments and JSON.
fn names_of_shards(rows: &ProcessRows) -> impl Iterator<Item = &str> {
    rows.native
        .iter()
        .flat_map(|native| match &native.call {
            NativeCall::Mpi { comm, .. } => vec![*comm],
            NativeCall::Rccl { comm, elements, .. } => vec![*comm, elements.map(|(_, datatype, _)| datatype)],
            NativeCall::Request { function, .. } => vec![Some(*function)],
            NativeCall::Communicator { function, comm, label, .. } => {
                vec![Some(*function), Some(*comm), *label]
            }
            NativeCall::Mark(text) => vec![Some(&**text)],
            NativeCall::Range(_) => vec![],
        })
        .flatten()
}

fn highest_stack(rows: &ProcessRows) -> i64 {
    let stacks = rows.of(rocpd::EVENT).iter().flatten().filter_map(|cell| match cell {
        ModelCell::Stack(v) => Some(*v),
        _ => None,
    });
    stacks.max().unwrap_or(0)
}

/// Ids counted through all processes.
struct Plain<'a> {
    node: i64,
    bases: HashMap<TableId, i64>,
    strings: HashMap<String, i64>,
    stacks: i64,
    time: &'a dyn Fn(i64) -> i64,
}

impl IdNumbering for Plain<'_> {
    fn id(&self, table: TableId, row: usize) -> i64 {
        match table {
            rocpd::INFO_NODE => self.node + 1,
            _ => self.bases.get(&table).copied().unwrap_or(0) + row as i64 + 1,
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        let next = self.strings.len() as i64 + 1;
        *self.strings.entry(text.to_owned()).or_insert(next)
    }

    fn stack(&self, stack: i64) -> i64 {
        self.stacks + stack
    }

    fn time(&self, true_ns: i64) -> i64 {
        (self.time)(true_ns)
    }
}
