//! Real databases, and queries on them.

use rusqlite::Connection;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Unpacks AMD's databases into `dir`. Without the shared directory, prints a note and returns no databases.
pub(crate) fn real_databases(dir: &Path) -> Outcome<Vec<PathBuf>> {
    let shared = match std::env::var_os("RPD_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let Ok(entries) = std::fs::read_dir(shared.join("data/rocpd")) else {
        eprintln!("SKIPPED: no data/rocpd in {} (set RPD_SHARED)", shared.display());
        return Ok(Vec::new());
    };
    let mut databases = Vec::new();
    for entry in entries {
        let packed = entry?.path();
        if packed.extension().is_some_and(|e| e == "gz") {
            let mut gzip = Command::new("gzip").arg("-dc").arg(&packed).stdout(Stdio::piped()).spawn()?;
            let mut bytes = Vec::new();
            gzip.stdout.take().ok_or("no output")?.read_to_end(&mut bytes)?;
            assert!(gzip.wait()?.success());
            let path = dir.join(packed.file_stem().ok_or("no name")?);
            std::fs::write(&path, bytes)?;
            databases.push(path);
        }
    }
    databases.sort();
    assert!(!databases.is_empty(), "no database in {}", shared.display());
    Ok(databases)
}

/// Returns the column names, and one line per row with typed values, in the order of the query.
pub(crate) fn rows(conn: &Connection, sql: &str) -> Outcome<(Vec<String>, Vec<String>)> {
    let mut query = conn.prepare(sql)?;
    let names: Vec<String> = query.column_names().map(str::to_owned).collect();
    let lines = query.query_map([], |row| {
        let values = (0..names.len()).map(|i| Ok(format!("{:?}", row.get::<_, rusqlite::types::Value>(i)?)));
        Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.join(" | "))
    })?;
    let lines = lines.collect::<rusqlite::Result<_>>()?;
    Ok((names, lines))
}

/// Returns the first column of a query as text.
pub(crate) fn texts(conn: &Connection, sql: &str) -> Outcome<Vec<String>> {
    let mut query = conn.prepare(sql)?;
    let texts = query.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(texts)
}
