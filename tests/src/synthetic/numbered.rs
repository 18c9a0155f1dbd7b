use super::cell::{ModelCell, Row};
use super::process::ProcessRows;
use super::run::{PlannedProcess, Run};
use rpd_shard::model::{Schema, TableId, rocpd};
use rusqlite::types::Value;

/// How the symbols of a model become numbers.
pub trait IdNumbering {
    /// Id of a row of the process.
    fn id(&self, table: TableId, row: usize) -> i64;
    /// Id of a string.
    fn string(&mut self, text: &str) -> i64;
    /// A stack id.
    fn stack(&self, stack: i64) -> i64;
    /// A true time.
    fn time(&self, true_ns: i64) -> i64;
}

/// A row with its id, as a database holds it.
pub struct NumberedRow {
    /// Its table.
    pub table: TableId,
    /// Its id.
    pub id: i64,
    /// Its values, in the order of the columns.
    pub values: Vec<Value>,
}

/// Hands out the rows of a process as a database would hold them, with the rows of its node and
/// itself before them; strings are left to `numbers`. Native events are passed over: see [`super::expand`].
pub fn number(
    run: &Run,
    process: &PlannedProcess,
    rows: &ProcessRows,
    numbers: &mut dyn IdNumbering,
    take: &mut dyn FnMut(NumberedRow),
) {
    let node = vec![node_row(run, process)];
    let itself = vec![process_row(process)];
    let described = [(rocpd::INFO_NODE, &node), (rocpd::INFO_PROCESS, &itself)];
    for (table, rows) in described.into_iter().chain(rows.tables.iter().map(|(id, rows)| (*id, rows))) {
        for (i, row) in rows.iter().enumerate() {
            let values = row.iter().map(|cell| value(cell, numbers)).collect();
            take(NumberedRow { table, id: numbers.id(table, i), values });
        }
    }
}

/// Names of the columns of a table, without `id` and `guid`.
pub fn columns(table: TableId) -> Vec<&'static str> {
    let table = Schema::builtin().get(table);
    table.into_iter().flat_map(|table| &table.columns).map(|column| column.name.as_str()).collect()
}

fn value(cell: &ModelCell, numbers: &mut dyn IdNumbering) -> Value {
    match cell {
        ModelCell::Null => Value::Null,
        ModelCell::Int(v) => Value::Integer(*v),
        ModelCell::Real(v) => Value::Real(*v),
        ModelCell::Text(v) => Value::Text(v.to_string()),
        ModelCell::Name(v) => Value::Integer(numbers.string(v)),
        ModelCell::Time(v) => Value::Integer(numbers.time(*v)),
        ModelCell::Row(table, row) => Value::Integer(numbers.id(*table, *row)),
        ModelCell::Stack(0) => Value::Integer(0),
        ModelCell::Stack(v) => Value::Integer(numbers.stack(*v)),
        ModelCell::Json(v) => Value::Text(v.render(&|table, row| numbers.id(table, row))),
    }
}

fn node_row(run: &Run, process: &PlannedProcess) -> Row {
    let node = &run.nodes[process.node].node;
    let text = |text: &str| ModelCell::Text(text.into());
    vec![
        ModelCell::Int(process.node as i64 + 77),
        text(&node.machine_id),
        text(&node.system_name),
        text(&node.hostname),
        text(&node.release),
        text(&node.version),
        text(&node.hardware_name),
        text(&node.domain_name),
    ]
}

fn process_row(process: &PlannedProcess) -> Row {
    let environment = format!("{{\"OMPI_COMM_WORLD_RANK\": \"{}\"}}", process.rank);
    vec![
        ModelCell::Row(rocpd::INFO_NODE, 0),
        ModelCell::Int(process.ppid.into()),
        ModelCell::Int(process.pid.into()),
        ModelCell::Null,
        ModelCell::Null,
        ModelCell::Null,
        ModelCell::Null,
        ModelCell::Text(format!("python3 train.py --rank {}", process.rank).into()),
        ModelCell::Text(environment.into()),
        super::cell::JsonCell::empty(),
    ]
}
