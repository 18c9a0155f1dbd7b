//! Read-only SQLite connections to a file.

use super::error::ReadError;
use rpd_files::{AnchorUse, entry_stat, file_uri, open_by_path};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Connections to a file, opened on demand. Each thread uses its own.
#[derive(Debug)]
pub(super) struct Connections {
    path: PathBuf,
    bytes: u64,
    /// Whether SQLite must tolerate damage of the file.
    torn: AtomicBool,
    /// Idle connections.
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    /// Creates it without connections. `torn`: the end of the file is missing.
    pub(super) fn new(path: &Path, bytes: u64, torn: bool) -> Connections {
        Connections { path: path.to_owned(), bytes, torn: torn.into(), idle: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether SQLite tolerates damage of the file.
    pub(super) fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Relaxed)
    }

    /// Makes SQLite tolerate damage from now on.
    pub(super) fn tear(&self) {
        self.torn.store(true, Ordering::Relaxed);
        self.release();
    }

    /// Runs `work` with an idle connection, or with a new one if all are in use.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = idle().pop();
        let conn = match conn {
            Some(conn) => conn,
            None => self.open()?,
        };
        let result = work(&conn);
        idle().push(conn);
        result
    }

    /// Closes idle connections.
    pub(super) fn release(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn open(&self) -> Result<Connection, ReadError> {
        let found = entry_stat(&self.path).map_err(ReadError::io(&self.path))?;
        if found.length != self.bytes {
            return Err(ReadError::Changed(self.path.clone()));
        }
        connect(&self.path, self.is_torn())
    }
}

/// Opens a file that has no writer for reading, without locks, so that SQLite creates no files beside it.
///
/// The schema is untrusted: no view, trigger or function of it is ever executed. With `torn`, SQLite opens files
/// without an end, or with schema entries that it does not understand.
pub(super) fn connect(path: &Path, torn: bool) -> Result<Connection, ReadError> {
    let connected = open_by_path(path, AnchorUse::Inputs, |path| connect_to(path, torn));
    connected.map_err(ReadError::io(path))?.map_err(ReadError::schema(path))
}

fn connect_to(path: &Path, torn: bool) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file_uri(path) + "?immutable=1&mode=ro", flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, !torn)?;
    conn.execute_batch("PRAGMA cell_size_check = ON; PRAGMA query_only = ON; PRAGMA mmap_size = 0;")?;
    if torn {
        conn.execute_batch("PRAGMA writable_schema = ON;")?;
    }
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, rename, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Requires SQLite to be built with the flags in .cargo/config.toml.
    #[test]
    fn sqlite_does_not_wait_for_a_fifo_in_place_of_a_database() {
        let folder = tempfile::tempdir().unwrap();
        // Any user may replace its entries.
        set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        let [path, fifo] = ["trace.db", "fifo"].map(|name| folder.path().join(name));
        write(&path, "").unwrap();
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let (done, opened) = channel();
        std::thread::spawn(move || {
            let exchange_and_open = |path: &Path| {
                rename(&fifo, path).unwrap();
                connect_to(path, false)?.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            };
            let opened = open_by_path::<i64, _>(&path, AnchorUse::Inputs, exchange_and_open);
            done.send(opened.map_err(|error| error.to_string()).map(|_| ()))
        });
        let opened = opened.recv_timeout(Duration::from_secs(10)).expect("SQLite waits for a writer");
        assert_eq!(opened.unwrap_err(), "it was exchanged while it was opened");
    }
}
