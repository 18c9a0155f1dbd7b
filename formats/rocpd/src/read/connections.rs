//! Connections of many threads to one file.

use super::error::ReadError;
use super::quiet;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Connections to a file that is only read, opened when they are needed.
#[derive(Debug)]
pub(super) struct Connections {
    path: PathBuf,
    bytes: u64,
    /// Whether SQLite has to be lenient with the file.
    torn: bool,
    /// Those that nobody uses at the moment.
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    pub(super) fn new(path: &Path, bytes: u64, torn: bool) -> Connections {
        Connections { path: path.to_owned(), bytes, torn, idle: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lets a connection do something; opens one if all are in use.
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

    /// Closes those that nobody uses.
    pub(super) fn release(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn open(&self) -> Result<Connection, ReadError> {
        let meta = std::fs::metadata(&self.path).map_err(ReadError::io(&self.path))?;
        if meta.len() != self.bytes {
            return Err(ReadError::Changed(self.path.clone()));
        }
        quiet::connect(&self.path, self.torn).map_err(ReadError::schema(&self.path))
    }
}
