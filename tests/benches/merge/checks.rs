//! What an output is like.

use rpd_tests::harness::Database;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use twox_hash::XxHash3_64;

/// An output that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) bytes: u64,
    /// Of the whole file.
    pub(crate) digest: u64,
    /// Rows of all tables; 0 where it is no database.
    pub(crate) rows: i64,
    /// What `PRAGMA integrity_check` says; `None` where it is no database.
    pub(crate) integrity: Option<String>,
    /// Most memory of one merge process, bytes; 0 where that is not known.
    pub(crate) peak: u64,
}

pub(crate) fn checked(path: &Path, peak: u64, database: bool) -> Result<Checked, String> {
    let bytes = path.metadata().map_err(|error| error.to_string())?.len();
    let digest = digest(path).map_err(|error| error.to_string())?;
    if !database {
        return Ok(Checked { bytes, digest, rows: 0, integrity: None, peak });
    }
    let database = Database::open(path);
    let tables = database.names("table").into_iter().filter(|name| name.starts_with("rocpd_"));
    let rows = tables.map(|name| database.count(&format!("\"{name}\""))).sum();
    let integrity: Vec<String> = database.rows("PRAGMA integrity_check").into_iter().flatten().collect();
    let integrity = integrity.join("; ").replace('\'', "");
    Ok(Checked { bytes, digest, rows, integrity: Some(integrity), peak })
}

fn digest(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut part = Vec::with_capacity(1 << 20);
    let mut digest = 0u64;
    while file.by_ref().take(1 << 20).read_to_end(&mut part)? > 0 {
        digest = XxHash3_64::oneshot_with_seed(digest, &part);
        part.clear();
    }
    Ok(digest)
}
