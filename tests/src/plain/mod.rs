//! Merges of RocPD databases with SQL alone: what a merge costs without rpd-merge, and what it has to
//! agree with. Nothing is checked here; the inputs are sound databases of one uuid each.

mod input;
mod shifted;
mod stacked;

pub use shifted::shifted;
pub use stacked::stacked;

use rusqlite::{Connection, OpenFlags, Result};
use std::path::Path;

/// A new database, written as fast as SQLite can: no journal, no sync, nobody else.
fn create(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let output = Connection::open_with_flags(path, flags)?;
    // Where foreign keys are on, every row is looked up in the tables that it refers to.
    output.execute_batch(
        "PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA locking_mode = EXCLUSIVE;",
    )?;
    Ok(output)
}
