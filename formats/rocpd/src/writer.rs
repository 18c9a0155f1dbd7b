//! Writes a new database.

use crate::connect;
use crate::guid::Guid;
use crate::insert::{Insert, Refused, absent_columns};
use crate::schema::{self, METADATA, VERSION, table_name};
use crate::set::TableSet;
use rpd_files::{AnchorUse, output_place};
use rpd_shard::MERGE_APPLICATION_ID;
use rpd_shard::model::{Merged, Rows, Schema, TableId, native};
use rusqlite::{Connection, ErrorCode};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Metadata tags that [`Writer::create`] writes. A database has each of them exactly once.
pub(crate) const REQUIRED_TAGS: [&str; 6] = [
    "schema_version",
    "schema_version_major",
    "schema_version_minor",
    "schema_version_patch",
    "uuid",
    "guid",
];

/// Writes the rows of one merged output to a partial file.
///
/// There is no journal: after an error, or if a writer is dropped without [`Writer::commit`], the file is unusable.
/// The owner of the file then removes it.
pub struct Writer {
    path: PathBuf,
    sets: Vec<TableSet>,
    conn: Connection,
    /// Prepared statements by set, table and absent columns.
    inserts: HashMap<(usize, TableId, u128), Insert>,
}

/// Error of writing a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file already exists.
    #[error("create {}: the file exists; remove it, or choose another output", path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be created.
    #[error("create {}; check that the directory exists and can be written to", path.display())]
    Create {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file cannot be opened.
    #[error("open {}; check that it exists and can be written to", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file to continue was not created for this guid.
    #[error("continue {}: it is not a RocPD database of guid {guid}; start the merge again", path.display())]
    OtherDatabase {
        /// Path of the file.
        path: PathBuf,
        /// The expected guid.
        guid: String,
    },
    /// No disk space is left.
    #[error("write {}: the disk is full; free some space, or choose an output on another disk", path.display())]
    DiskFull {
        /// Path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A read or write failed in the file system.
    #[error("write {}: input/output error; check quota, file size limit and the file system", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The process reached its memory limit.
    #[error("write {}: out of memory; raise the memory limit, or use fewer threads", path.display())]
    OutOfMemory {
        /// Path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A row violates a constraint of the schema.
    #[error("write {}: constraint failed in table {table}, key {key}", path.display())]
    Constraint {
        /// Path of the file.
        path: PathBuf,
        /// The table.
        table: String,
        /// Key of the row.
        key: i64,
        /// The error of SQLite; it names the column.
        source: rusqlite::Error,
    },
    /// The rows belong to a table that RocPD databases do not have.
    #[error("write {}: {table} is not a table of RocPD; expand its rows before they are written", path.display())]
    UnknownTable {
        /// Path of the file.
        path: PathBuf,
        /// The table.
        table: String,
    },
    /// The writer itself writes this metadata tag.
    #[error("write {}: metadata tag {tag:?} is set already; use a tag that begins with \"rpd.\"", path.display())]
    ReservedTag {
        /// Path of the file.
        path: PathBuf,
        /// The tag.
        tag: String,
    },
    /// Any other error of SQLite.
    #[error("write {} ({table}): SQLite refused; this is a bug in rpd, please report it", path.display())]
    Sqlite {
        /// Path of the file.
        path: PathBuf,
        /// The table, or the operation.
        table: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

impl Writer {
    /// Creates a database of [`VERSION`]; see [`Writer::create_of`].
    pub fn create(path: &Path, guid: &Guid) -> Result<Writer, WriteError> {
        Writer::create_of(path, &[guid.into()], VERSION, Schema::builtin())
    }

    /// Creates the file, which must not exist yet.
    ///
    /// It has the tables of this schema for each set, the views, and the required metadata. Only its owner may read
    /// it, because it contains command lines and environments.
    pub fn create_of(
        path: &Path,
        sets: &[TableSet],
        version: [u32; 3],
        schema: &Schema,
    ) -> Result<Writer, WriteError> {
        let created = output_place(path).and_then(|(folder, name)| folder.create(name, 0o600));
        created.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists { path: path.to_owned() },
            _ => WriteError::Create { path: path.to_owned(), source },
        })?;
        Writer::fill(path, sets, version, schema).inspect_err(|_| {
            // The caller has no writer with which to remove the file.
            let _ = output_place(path).and_then(|(folder, name)| folder.remove(name));
        })
    }

    fn fill(
        path: &Path,
        sets: &[TableSet],
        version: [u32; 3],
        schema: &Schema,
    ) -> Result<Writer, WriteError> {
        let writer = Writer::connect(path, sets)?;
        // One statement per set: SQLite copies the rest of the text for each statement in it.
        for set in sets {
            writer.statement("schema", &schema::create_tables(schema, set))?;
        }
        writer.statement("schema", &schema::create_views(schema, sets))?;
        let [major, minor, patch] = version;
        for set in sets {
            let values = [
                format!("{major}.{minor}.{patch}"),
                major.to_string(),
                minor.to_string(),
                patch.to_string(),
                set.suffix().to_owned(),
                set.guid().to_owned(),
            ];
            for (tag, value) in REQUIRED_TAGS.iter().zip(&values) {
                writer.insert_metadata(set, tag, value)?;
            }
        }
        Ok(writer)
    }

    /// Continues a file that another writer created with the same sets and committed.
    pub fn open(path: &Path, sets: &[TableSet]) -> Result<Writer, WriteError> {
        let first = sets.first();
        let guid = first.map_or("", TableSet::guid);
        let other = || WriteError::OtherDatabase { path: path.to_owned(), guid: guid.to_owned() };
        let writer = Writer::connect(path, sets).map_err(|error| match error {
            WriteError::Sqlite { .. } => other(),
            error => error,
        })?;
        let table = connect::identifier(&table_name(METADATA, first.ok_or_else(other)?));
        let sql = format!("SELECT value FROM {table} WHERE tag = 'guid'");
        let found: Result<String, _> = writer.conn.query_row(&sql, [], |row| row.get(0));
        match found {
            Ok(found) if found == guid => Ok(writer),
            _ => Err(other()),
        }
    }

    fn connect(path: &Path, sets: &[TableSet]) -> Result<Writer, WriteError> {
        let conn = connect::open(path, AnchorUse::Outputs)
            .map_err(|source| WriteError::Open { path: path.to_owned(), source })?;
        // Enough for the statements of every table with some combinations of absent columns.
        conn.set_prepared_statement_cache_capacity(256);
        let writer = Writer { path: path.to_owned(), sets: sets.to_vec(), conn, inserts: HashMap::new() };
        // Foreign keys are off because tables are written in any order; verify::check examines them.
        // The cache is for the index of the strings.
        writer.statement(
            "settings",
            "PRAGMA page_size = 4096;
             PRAGMA auto_vacuum = 0;
             PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA journal_mode = OFF;
             PRAGMA synchronous = OFF;
             PRAGMA foreign_keys = OFF;
             PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -65536;
             BEGIN EXCLUSIVE;",
        )?;
        Ok(writer)
    }

    /// Marks the file in its header as the output of a merge, finished or not.
    pub fn mark_as_merge(&self) -> Result<(), WriteError> {
        self.statement("mark", &format!("PRAGMA application_id = {MERGE_APPLICATION_ID}"))
    }

    /// Adds rows to the first set; see [`Writer::append_to`].
    pub fn append(&mut self, rows: &Rows<Merged>) -> Result<u64, WriteError> {
        self.append_to(0, rows)
    }

    /// Adds rows to the set at this index. Returns their number. Any order is allowed; ascending keys are the
    /// fastest.
    ///
    /// A column that is absent gets its declared default, or NULL without one. A NULL that is not allowed becomes
    /// the default too.
    pub fn append_to(&mut self, set: usize, rows: &Rows<Merged>) -> Result<u64, WriteError> {
        let table = &rows.table;
        let target = self.set(set)?;
        if native::is_native(table.id) {
            return Err(WriteError::UnknownTable { path: self.path.clone(), table: table.name.clone() });
        }
        let absent = absent_columns(rows);
        let insert = self
            .inserts
            .entry((set, table.id, absent))
            .and_modify(|known| {
                if known.table != *table {
                    *known = Insert::new(table, &target, absent);
                }
            })
            .or_insert_with(|| Insert::new(table, &target, absent));
        let done = insert.run(&self.conn, rows, absent);
        done.map_err(|Refused { key, source }| self.error(&table.name, Some(key), source))?;
        Ok(rows.len as u64)
    }

    /// Sets how many bytes of the file SQLite may cache in memory; the default is 64 MiB.
    pub fn set_cache(&self, bytes: u64) -> Result<(), WriteError> {
        self.statement("cache", &format!("PRAGMA cache_size = -{}", (bytes >> 10).max(1)))
    }

    fn set(&self, set: usize) -> Result<TableSet, WriteError> {
        let unknown = || WriteError::UnknownTable { path: self.path.clone(), table: format!("set {set}") };
        self.sets.get(set).cloned().ok_or_else(unknown)
    }

    /// Adds a row of metadata to the first set.
    pub fn metadata(&mut self, tag: &str, value: &str) -> Result<(), WriteError> {
        self.metadata_of(0, tag, value)
    }

    /// Adds a row of metadata to the set at this index.
    pub fn metadata_of(&mut self, set: usize, tag: &str, value: &str) -> Result<(), WriteError> {
        if REQUIRED_TAGS.contains(&tag) {
            return Err(WriteError::ReservedTag { path: self.path.clone(), tag: tag.to_owned() });
        }
        self.insert_metadata(&self.set(set)?, tag, value)
    }

    /// Sets the highest key of a table to which SQLite did not add the rows. AUTOINCREMENT continues after it.
    pub fn sequence(&mut self, set: usize, table: &str, last: i64) -> Result<(), WriteError> {
        let name = table_name(table, &self.set(set)?);
        let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)";
        let added = self.conn.execute(sql, rusqlite::params![name, last]);
        added.map(drop).map_err(|source| self.error(table, None, source))
    }

    fn insert_metadata(&self, set: &TableSet, tag: &str, value: &str) -> Result<(), WriteError> {
        let table = connect::identifier(&table_name(METADATA, set));
        let added =
            self.conn.execute(&format!("INSERT INTO {table} (tag, value) VALUES (?, ?)"), [tag, value]);
        added.map(|_| ()).map_err(|source| self.error(METADATA, None, source))
    }

    /// Returns the root page of each table by its full name, and the current number of pages.
    pub fn roots(&self) -> Result<(HashMap<String, u32>, u32), WriteError> {
        let read = || -> rusqlite::Result<_> {
            let mut tables =
                self.conn.prepare("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'")?;
            let tables = tables.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
            let mut roots = HashMap::new();
            for table in tables {
                let (name, root) = table?;
                roots.insert(name, root);
            }
            Ok((roots, self.conn.query_row("PRAGMA page_count", [], |row| row.get(0))?))
        };
        read().map_err(|source| self.error("roots", None, source))
    }

    /// Commits and closes the file. The operating system then has all data, but the disk may not. The caller must
    /// sync the file before it renames it.
    pub fn commit(self) -> Result<(), WriteError> {
        self.statement("commit", "COMMIT")?;
        let Writer { path, sets, conn, .. } = self;
        conn.close().map_err(|(conn, source)| {
            Writer { path, sets, conn, inserts: HashMap::new() }.error("close", None, source)
        })
    }

    fn statement(&self, what: &str, sql: &str) -> Result<(), WriteError> {
        self.conn.execute_batch(sql).map_err(|source| self.error(what, None, source))
    }

    fn error(&self, table: &str, key: Option<i64>, source: rusqlite::Error) -> WriteError {
        let (path, table) = (self.path.clone(), table.to_owned());
        match (source.sqlite_error_code(), key) {
            (Some(ErrorCode::DiskFull), _) => WriteError::DiskFull { path, source },
            (Some(ErrorCode::SystemIoFailure), _) => WriteError::Io { path, source },
            (Some(ErrorCode::OutOfMemory), _) => WriteError::OutOfMemory { path, source },
            (Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied), _) => {
                WriteError::Open { path, source }
            }
            (Some(ErrorCode::ConstraintViolation), Some(key)) => {
                WriteError::Constraint { path, table, key, source }
            }
            _ => WriteError::Sqlite { path, table, source },
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).field("sets", &self.sets).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_shard::model::{RowsBuilder, Schema, Value, rocpd};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_full_disk_is_called_that() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("job.db.partial");
        let mut writer = Writer::create(&path, &Guid::from_bits(7))?;
        writer.statement("limit", "PRAGMA max_page_count = 100")?;
        let table = Schema::builtin().get(rocpd::STRING).ok_or("no string table")?;
        let mut rows = RowsBuilder::new(table);
        for i in 0..10_000 {
            rows.push(&[Value::from(format!("a string of some length, number {i}").as_str())]);
        }
        let rows = rows.finish(1);
        let (keys, columns) = (rows.keys.clone(), rows.columns.clone());
        let error = writer.append(&rows.into_merged(keys, columns)).err().ok_or("it fitted")?;
        assert!(matches!(error, WriteError::DiskFull { .. }), "{error:?}");
        assert!(error.to_string().contains("job.db.partial: the disk is full"), "{error}");
        Ok(())
    }
}
