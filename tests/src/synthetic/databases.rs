use super::cell::ModelCell;
use super::expand::expand;
use super::numbered::{IdNumbering, NumberedRow, columns, number};
use super::process::ProcessRows;
use super::run::{PlannedProcess, Run, SyntheticNode};
use rpd_rocpd::{Guid, schema};
use rpd_shard::model::{Schema, TableId, rocpd};
use rusqlite::{Connection, params, params_from_iter};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Writes `<dir>/<host>_<pid>_results.db` for every process that is there, as rocprofv3 does at the
/// end of one: ids are handles, region ids sparse and shared with samples. Returns the files.
/// Native events are in it as the regions that they stand for.
pub fn write_rocpd(run: &Run, dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let file_of = |process: &PlannedProcess| {
        let SyntheticNode { node, .. } = &run.nodes[process.node];
        let path = dir.join(format!("{}_{}_results.db", node.hostname, process.pid));
        write(run, process, &path).map_err(io::Error::other)?;
        Ok(path)
    };
    run.processes().map(file_of).collect()
}

/// Creates the tables, the views and the metadata of an empty database.
pub(super) fn create_tables(database: &Connection, guid: &Guid) -> rusqlite::Result<()> {
    database.execute_batch(&schema::create_all(guid))?;
    let suffix = guid.suffix();
    let [major, minor, patch] = schema::VERSION.map(|v| v.to_string());
    let tags = [
        ("schema_version", format!("{major}.{minor}.{patch}")),
        ("schema_version_major", major),
        ("schema_version_minor", minor),
        ("schema_version_patch", patch),
        ("uuid", suffix.clone()),
        ("guid", guid.to_string()),
    ];
    let sql = format!("INSERT INTO \"{}{suffix}\" (tag, value) VALUES (?, ?)", schema::METADATA);
    for (tag, value) in tags {
        database.execute(&sql, params![tag, value])?;
    }
    Ok(())
}

fn write(run: &Run, process: &PlannedProcess, path: &Path) -> rusqlite::Result<()> {
    let bits = u128::from(run.config.seed) << 64 | u128::from(process.rank) << 8 | u128::from(process.source);
    let guid = Guid::from_bits(bits);
    let database = Connection::open(path)?;
    database.execute_batch(
        "PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;",
    )?;
    create_tables(&database, &guid)?;
    let suffix = guid.suffix();

    let rows = expand(&run.rows(process));
    let mut handles = Handles::new(run, process, &rows);
    let statements: HashMap<TableId, String> = Schema::builtin()
        .tables()
        .iter()
        .map(|table| {
            let names: Vec<_> = columns(table.id).into_iter().map(|c| format!("\"{c}\"")).collect();
            let places = vec!["?"; names.len() + 1].join(", ");
            let name = format!("{}{suffix}", table.name);
            (table.id, format!("INSERT INTO \"{name}\" (id, {}) VALUES ({places})", names.join(", ")))
        })
        .collect();
    let mut result = Ok(());
    number(run, process, &rows, &mut handles, &mut |NumberedRow { table, id, values }| {
        let values = std::iter::once(rusqlite::types::Value::Integer(id)).chain(values);
        let insert = || database.prepare_cached(&statements[&table])?.execute(params_from_iter(values));
        if result.is_ok() {
            result = insert().map(drop);
        }
    });
    result?;
    let sql = format!("INSERT INTO \"rocpd_string{suffix}\" (id, string) VALUES (?, ?)");
    for (text, id) in &handles.strings {
        database.execute(&sql, params![id, text])?;
    }
    database.execute_batch("COMMIT;")
}

/// Ids as rocprofv3 chooses them.
struct Handles<'a> {
    run: &'a Run,
    process: &'a PlannedProcess,
    rows: &'a ProcessRows,
    strings: HashMap<String, i64>,
}

impl<'a> Handles<'a> {
    fn new(run: &'a Run, process: &'a PlannedProcess, rows: &'a ProcessRows) -> Handles<'a> {
        Handles { run, process, rows, strings: HashMap::from([(String::new(), 1)]) }
    }
}

impl IdNumbering for Handles<'_> {
    fn id(&self, table: TableId, row: usize) -> i64 {
        match table {
            rocpd::INFO_NODE => 2_066_035_298 + self.process.node as i64,
            rocpd::INFO_PROCESS => i64::from(self.process.pid),
            // The tid is the fourth column.
            rocpd::INFO_THREAD => match self.rows.of(table)[row][3] {
                ModelCell::Int(tid) => tid,
                _ => row as i64,
            },
            rocpd::INFO_AGENT | rocpd::INFO_QUEUE | rocpd::INFO_STREAM => row as i64,
            rocpd::REGION | rocpd::SAMPLE => self.rows.api_ids[&table][row],
            _ => row as i64 + 1,
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        let next = self.strings.len() as i64 + 1;
        *self.strings.entry(text.to_owned()).or_insert(next)
    }

    fn stack(&self, stack: i64) -> i64 {
        stack
    }

    fn time(&self, true_ns: i64) -> i64 {
        self.run.nodes[self.process.node].clock.local(true_ns)
    }
}
