//! Tests of databases as input.

mod carried;
mod content;
mod damage;
mod facts;
mod hostile;
mod quiet;
mod table_sets;
mod versions;

use crate::real::Outcome;
use rpd_rocpd::read::{Database, Wanted};
use rpd_rocpd::{Guid, schema};
use rpd_shard::model::{Cells, Local, Rows, Value};
use rusqlite::Connection;
use std::path::Path;

/// Returns the statements that create a database with a version and no rows.
pub(crate) fn empty(guid: &Guid, version: &str) -> String {
    format!("{}{}", schema::create_all(guid), metadata(guid, version))
}

/// Returns the statement that inserts the metadata rows of a table set.
pub(crate) fn metadata(guid: &Guid, version: &str) -> String {
    let suffix = guid.suffix();
    let tags = [("schema_version", version), ("uuid", &suffix), ("guid", &guid.to_string())];
    let rows = tags.map(|(tag, value)| format!("('{tag}', '{value}')")).join(", ");
    format!("INSERT INTO \"rocpd_metadata{suffix}\" (tag, value) VALUES {rows};")
}

/// Returns statements that insert a few rows of every kind: a node, a process, two regions, a kernel.
pub(crate) fn some_rows(guid: &Guid) -> String {
    let x = guid.suffix();
    format!(
        r#"INSERT INTO "rocpd_string{x}" (id, string) VALUES (1, ''), (2, 'launch'), (7, 'API'), (8, 'kernel');
        INSERT INTO "rocpd_info_node{x}" (id, hash, machine_id, hostname) VALUES (77, 77, 'm-1', 'node1');
        INSERT INTO "rocpd_info_process{x}" (id, nid, pid, start, end, environment)
            VALUES (4242, 77, 4242, 5, 9000, '{{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}}');
        INSERT INTO "rocpd_info_thread{x}" (id, nid, pid, tid) VALUES (4243, 77, 4242, 4243);
        INSERT INTO "rocpd_info_agent{x}" (id, nid, pid, type) VALUES (1, 77, 4242, 'GPU');
        INSERT INTO "rocpd_info_queue{x}" (id, nid, pid) VALUES (0, 77, 4242);
        INSERT INTO "rocpd_info_stream{x}" (id, nid, pid) VALUES (0, 77, 4242);
        INSERT INTO "rocpd_info_code_object{x}" (id, nid, pid) VALUES (1, 77, 4242);
        INSERT INTO "rocpd_info_kernel_symbol{x}" (id, nid, pid, code_object_id, kernel_name)
            VALUES (5, 77, 4242, 1, 'axpy.kd');
        INSERT INTO "rocpd_info_pmc{x}" (id, nid, pid, name, symbol) VALUES (1, 77, 4242, 'n', 's');
        INSERT INTO "rocpd_event{x}" (id, category_id, stack_id) VALUES (1, 7, 21), (2, 7, 22), (5, 8, 21);
        INSERT INTO "rocpd_region{x}" (id, nid, pid, tid, start, end, name_id, event_id)
            VALUES (21, 77, 4242, 4243, 1000, 3000, 2, 1), (90, 77, 4242, 4243, 4000, 5500, 2, 2);
        INSERT INTO "rocpd_pmc_event{x}" (event_id, pmc_id, value) VALUES (5, 1, 18446744073709551615), (5, 1, 3), (5, 1, NULL);
        INSERT INTO "rocpd_kernel_dispatch{x}" (id, nid, pid, agent_id, kernel_id, dispatch_id, queue_id, stream_id,
            start, end, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, event_id)
            VALUES (1, 77, 4242, 1, 5, 1, 0, 0, 1500, 2500, 1, 1, 1, 64, 1, 1, 5);
        "#
    )
}

/// Creates a database by executing SQL.
pub(crate) fn make(path: &Path, sql: &str) -> Outcome {
    let conn = Connection::open(path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN;",
    )?;
    conn.execute_batch(sql)?;
    conn.execute_batch("COMMIT")?;
    Ok(())
}

/// Returns all rows of a table of a table set, piece by piece. Each line has the key and the value of each column.
pub(crate) fn lines(database: &Database, set: usize, table: usize) -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    for piece in &database.table_sets()[set].tables[table].pieces {
        lines.extend(lines_of(&database.rows(set, table, piece, Wanted::All)?));
    }
    Ok(lines)
}

/// Formats each row as a line. An absent column is shown as its default.
pub(crate) fn lines_of(rows: &Rows<Local>) -> Vec<String> {
    let line = |row: usize| {
        let values = rows.table.columns.iter().zip(&rows.columns).map(|(column, cells)| match cells {
            Cells::Absent => format!("{}=default", column.name),
            cells => format!("{}={}", column.name, show(cells.get(row))),
        });
        let values: Vec<_> = values.collect();
        format!("{} {}", rows.keys.get(row), values.join(" "))
    };
    (0..rows.len).map(line).collect()
}

pub(crate) fn show(value: Value<'_>) -> String {
    match value {
        Value::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        Value::Null => "NULL".to_owned(),
        value => format!("{value:?}"),
    }
}

/// Returns the rows of a table by its name without the suffix.
pub(crate) fn rows_of(database: &Database, set: usize, name: &str, wanted: Wanted) -> Outcome<Rows<Local>> {
    let tables = &database.table_sets()[set].tables;
    let table = tables.iter().position(|t| t.table.name == name).ok_or("no such table")?;
    let [piece] = tables[table].pieces.as_slice() else { return Err("not one piece".into()) };
    Ok(database.rows(set, table, piece, wanted)?)
}
