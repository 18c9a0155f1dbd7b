//! Creates files to translate, and converts shards to tables for SQL queries.

use rpd_legacy::{RpdOptions, RpdTranslation, translate};
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, Owner};
use rpd_shard::model::Value;
use rpd_shard::record::RunIdentity;
use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns default options.
pub(crate) fn options() -> RpdOptions {
    let run = RunIdentity {
        run_id: "job".into(),
        run_id_from: "test".into(),
        rank: None,
        size: None,
        version: "0".into(),
    };
    RpdOptions { owner: Owner::unknown(run), clock: None, marker_offset: None }
}

/// Decompresses a real file into `dir`; returns `None`, with a note, if the shared directory is missing.
pub(crate) fn real(name: &str, dir: &Path) -> Option<PathBuf> {
    let shared = match std::env::var_os("RPD_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let (plain, packed) = (shared.join("data/rpd").join(name), shared.join(format!("data/rpd/{name}.gz")));
    let bytes = if packed.exists() {
        let mut gzip = Command::new("gzip").arg("-dc").arg(&packed).stdout(Stdio::piped()).spawn().unwrap();
        let mut bytes = Vec::new();
        gzip.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
        assert!(gzip.wait().unwrap().success());
        bytes
    } else if plain.exists() {
        std::fs::read(plain).unwrap()
    } else {
        eprintln!("SKIPPED: no data/rpd/{name} in {} (set RPD_SHARED)", shared.display());
        return None;
    };
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    Some(path)
}

/// Returns the shard of a file.
pub(crate) fn shard(path: &Path, options: &RpdOptions) -> (Shard, RpdTranslation) {
    let mut bytes = Vec::new();
    let translation = translate(path, &mut bytes, options).unwrap();
    let shard = Shard::from_memory("translated", &bytes).unwrap();
    assert!(shard.complete() && shard.damage().is_empty(), "{:?}", shard.damage());
    assert_eq!(shard.processes.len(), translation.processes as usize);
    (shard, translation)
}

/// Copies the rows of a shard into a database in memory. Each table has the columns `source` and `id` before its
/// own.
pub(crate) fn tables(shard: &Shard) -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    // Native tables, of which one has such a column itself, have no rows in these files.
    let schema = shard.schema();
    let tables =
        schema.tables().iter().filter(|table| table.columns.iter().all(|column| column.name != "source"));
    for table in tables {
        let columns: Vec<_> = table.columns.iter().map(|c| format!(", \"{}\"", c.name)).collect();
        let sql = format!("CREATE TABLE \"{}\" (source, id{})", table.name, columns.concat());
        conn.execute_batch(&sql).unwrap();
    }
    for block in shard.blocks() {
        if !matches!(block.header.kind, BlockKind::Rows(_)) {
            continue;
        }
        let rows = shard.rows(block).unwrap();
        let marks = vec!["?"; rows.columns.len() + 2].join(", ");
        let sql = format!("INSERT INTO \"{}\" VALUES ({marks})", rows.table.name);
        let mut insert = conn.prepare(&sql).unwrap();
        for i in 0..rows.len {
            let defaults = rows.table.columns.iter().map(|c| c.sql.default.clone());
            let cells = rows.columns.iter().zip(defaults).map(|(cells, default)| {
                ToSqlOutput::Owned(match cells.get(i) {
                    Value::Null => default.map_or(Owned::Null, Owned::Text),
                    Value::Int(v) => Owned::Integer(v),
                    Value::Real(v) => Owned::Real(v),
                    Value::Text(v) => Owned::Text(String::from_utf8_lossy(v).into_owned()),
                    Value::Blob(v) => Owned::Blob(v.to_vec()),
                })
            });
            let keys =
                [block.header.source.into(), rows.keys.get(i)].map(|v| ToSqlOutput::Owned(Owned::Integer(v)));
            insert.execute(rusqlite::params_from_iter(keys.into_iter().chain(cells))).unwrap();
        }
    }
    conn.execute_batch("CREATE TABLE process (source, pid, first, last, node)").unwrap();
    for process in shard.processes.values() {
        let row =
            (process.source, process.pid, process.first_seen, process.last_seen, &process.node.hostname);
        conn.execute("INSERT INTO process VALUES (?, ?, ?, ?, ?)", row).unwrap();
    }
    conn.execute_batch(
        "CREATE INDEX s ON rocpd_string (id);
         CREATE INDEX e ON rocpd_event (source, id);
         CREATE INDEX k ON rocpd_info_kernel_symbol (source, id);
         CREATE INDEX r ON rocpd_region (source, id);
         CREATE INDEX a ON rocpd_arg (source, event_id);
         CREATE INDEX ae ON rocpd_arg (event_id);
         CREATE INDEX p ON rocpd_sample (source, event_id);",
    )
    .unwrap();
    conn
}

/// Returns the rows of a query, one line each.
pub(crate) fn lines(conn: &Connection, sql: &str) -> Vec<String> {
    let mut query = conn.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let width = query.column_count();
    let show = |value: ValueRef<'_>| match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(v) => v.to_string(),
        ValueRef::Real(v) => v.to_string(),
        ValueRef::Text(v) | ValueRef::Blob(v) => String::from_utf8_lossy(v).into_owned(),
    };
    let rows = query.query_map([], |row| {
        Ok((0..width).map(|i| show(row.get_ref(i).unwrap())).collect::<Vec<_>>().join(" | "))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Returns the only number that a query yields.
pub(crate) fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Checks that both queries return the same rows, and at least one.
pub(crate) fn same(what: &str, (file, in_file): (&Connection, &str), (shard, in_shard): (&Connection, &str)) {
    let (wanted, found) = (lines(file, in_file), lines(shard, in_shard));
    assert!(!wanted.is_empty(), "{what}: nothing to compare");
    let differs = wanted.iter().zip(&found).position(|(a, b)| a != b);
    let at = differs.unwrap_or(wanted.len().min(found.len()));
    assert_eq!(wanted.get(at), found.get(at), "{what}: line {at}");
    assert_eq!(wanted.len(), found.len(), "{what}");
}
