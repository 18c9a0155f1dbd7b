//! Checks whether AMD's tools accept a finished database, and reads the operations of its job with the longest
//! total duration.

mod declared;
mod inspect;

use crate::connect::{self, identifier};
use crate::shape;
use inspect::inspect;
use rpd_files::{AnchorUse, beside};
use rpd_shard::model::Schema;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Result of checking a database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Number of table sets.
    pub sets: usize,
    /// The metadata tag `guid` of the first set; empty if it is missing.
    pub guid: String,
    /// The metadata tag `schema_version` of the first set; empty if it is missing.
    pub version: String,
    /// Number of rows of every table, by name without the suffix, all sets together.
    pub rows: BTreeMap<String, u64>,
    /// Number of rows of every table of each set, by full name.
    pub tables: BTreeMap<String, u64>,
    /// Violated rules; empty for a valid database.
    pub problems: Vec<Problem>,
    /// Reasons why AMD's strict validators reject a database that is as intended: several table sets, or tables and
    /// columns of inputs.
    pub refused_by_amd: Vec<Problem>,
    /// Tables and indexes beside those of RocPD, under other names. Depending on how they were built, AMD's
    /// validators reject them or print a warning.
    pub extras: Vec<String>,
}

impl CheckReport {
    /// Returns whether no rule is violated.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A violated rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The database has a journal: it was not closed. Nothing else was checked.
    #[error("{} is not empty: the database was not closed", .0.display())]
    Unfinished(PathBuf),
    /// A message of `PRAGMA integrity_check`.
    #[error("integrity check: {0}")]
    Integrity(String),
    /// References to missing rows.
    #[error(
        "{references} references from {table} to {parent} lead nowhere{}",
        .first_key.map_or(String::new(), |key| format!(", first in row {key}"))
    )]
    ForeignKey {
        /// Table with the references.
        table: String,
        /// Table of the missing rows.
        parent: String,
        /// Number of references.
        references: u64,
        /// Key of the first row with such a reference.
        first_key: Option<i64>,
    },
    /// A metadata tag that does not occur exactly once, or with a value that contradicts the others.
    #[error("metadata tag {tag}: found {found:?}")]
    Metadata {
        /// Name of the tag.
        tag: String,
        /// Its values.
        found: Vec<String>,
    },
    /// A table of the version that the database lacks.
    #[error("table {0} is missing")]
    MissingTable(String),
    /// A table `rocpd_*` that the version lacks, or an index or trigger on one of its tables.
    #[error("{0} is not in the schema")]
    Extra(String),
    /// More table sets than the one that AMD's strict validators accept.
    #[error("{0} table sets instead of one")]
    TableSets(usize),
    /// A view that AMD's tools read and the database lacks.
    #[error("view {0} is missing")]
    MissingView(String),
    /// A view `rocpd_<x>` that does not show the table of every set.
    #[error("view {view} does not show {table}")]
    NotShown {
        /// Name of the view.
        view: String,
        /// The first table that it does not show.
        table: String,
    },
    /// The declaration of a table differs from that of the version.
    #[error("table {table} is declared with {found:?} instead of {expected:?}")]
    Declaration {
        /// Name of the table.
        table: String,
        /// Facts that are not expected, or not at this position.
        found: Vec<String>,
        /// Facts that are expected.
        expected: Vec<String>,
    },
    /// `sqlite_sequence` is lower than the keys of a table: the next row would get a used key.
    #[error("sqlite_sequence is less than the keys of {0}")]
    Sequence(String),
}

/// Error: the database could not be checked.
#[derive(Debug, thiserror::Error)]
#[error("read {}; check that it exists and is a RocPD database", path.display())]
pub struct CheckError {
    /// Path of the file.
    pub path: PathBuf,
    /// The error of SQLite.
    pub source: rusqlite::Error,
}

/// Reads the whole database and checks the rules, without changing it.
///
/// Compares the tables with those of AMD's schema of the version that the database names. See also [`check_against`].
pub fn check(path: &Path) -> Result<CheckReport, CheckError> {
    check_all(path, None)
}

/// Intended content of a database.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Its tables.
    pub schema: &'a Schema,
    /// Its schema version: major, minor, patch.
    pub version: [u32; 3],
    /// Number of table sets.
    pub sets: usize,
}

/// Checks a database of known tables and version. The database must have exactly those. Where they differ
/// from AMD's, [`CheckReport::refused_by_amd`] lists the differences.
pub fn check_against(path: &Path, expected: Expected<'_>) -> Result<CheckReport, CheckError> {
    check_all(path, Some(expected))
}

fn check_all(path: &Path, expected: Option<Expected<'_>>) -> Result<CheckReport, CheckError> {
    let open_journals: Vec<_> = ["-journal", "-wal"]
        .map(|suffix| beside(path, suffix))
        .into_iter()
        .filter(|journal| std::fs::metadata(journal).is_ok_and(|m| m.len() > 0))
        .map(Problem::Unfinished)
        .collect();
    if !open_journals.is_empty() {
        return Ok(CheckReport { problems: open_journals, ..CheckReport::default() });
    }
    let error = |source| CheckError { path: path.to_owned(), source };
    inspect(&open(path)?, expected).map_err(error)
}

/// Runs `PRAGMA integrity_check` on any SQLite database. Returns its findings; empty if there are none.
pub fn check_integrity(path: &Path) -> Result<Vec<Problem>, CheckError> {
    open(path)
        .and_then(|conn| integrity(&conn).map_err(|source| CheckError { path: path.to_owned(), source }))
}

/// Counts the rows of every table of any SQLite database, by name.
///
/// Opens the file as other programs do: with locks, if the file system supports them, and with the journals beside
/// it.
///
/// # Errors
/// If SQLite cannot read the file or its schema.
pub fn table_rows(path: &Path) -> Result<BTreeMap<String, u64>, CheckError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite reads a leading `file:` as a URI.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let usual = Connection::open_with_flags(absolute, flags).and_then(|conn| count_tables(&conn));
    let counted = usual.or_else(|first| {
        connect::open(path, AnchorUse::Inputs).and_then(|conn| count_tables(&conn)).map_err(|_| first)
    });
    counted.map_err(|source| CheckError { path: path.to_owned(), source })
}

fn count_tables(conn: &Connection) -> rusqlite::Result<BTreeMap<String, u64>> {
    let names = shape::tables(conn)?.into_iter().map(|(name, _)| name);
    let count = |name: String| {
        let sql = format!("SELECT count(*) FROM {}", identifier(&name));
        let rows: i64 = conn.query_row(&sql, [], |row| row.get(0))?;
        Ok((name, rows.unsigned_abs()))
    };
    names.map(count).collect()
}

fn open(path: &Path) -> Result<Connection, CheckError> {
    // SQLite ignores the CHECKs of a database that is opened read-only, and integrity_check would skip them. A
    // write-protected file can still be opened.
    let conn = connect::open(path, AnchorUse::Inputs);
    conn.and_then(|conn| {
        conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -65536;")?;
        Ok(conn)
    })
    .map_err(|source| CheckError { path: path.to_owned(), source })
}

fn integrity(conn: &Connection) -> rusqlite::Result<Vec<Problem>> {
    let mut messages = conn.prepare("PRAGMA integrity_check")?;
    let messages = messages.query_map([], |row| row.get(0))?;
    let mut problems: Vec<_> = messages.map(|text| text.map(Problem::Integrity)).collect::<Result<_, _>>()?;
    problems.retain(|p| *p != Problem::Integrity("ok".to_owned()));
    Ok(problems)
}

/// One line of the view `top`: kernels, copies and regions of one name.
#[derive(Clone, PartialEq, Debug)]
pub struct TopRow {
    /// Name of the kernel, copy or region; empty if it has none.
    pub name: String,
    /// Number of executions.
    pub total_calls: u64,
    /// Sum of the durations, microseconds.
    pub total_duration_us: f64,
    /// Mean duration, microseconds.
    pub average_us: f64,
    /// Share of the sum over all names, percent.
    pub percentage: f64,
}

/// Returns the first `limit` lines of the view `top`, longest total duration first.
pub fn top(path: &Path, limit: usize) -> Result<Vec<TopRow>, CheckError> {
    let rows = |conn: &Connection| {
        let mut top = conn.prepare(
            "SELECT coalesce(CAST(name AS TEXT), ''), total_calls, coalesce(total_duration, 0.0),
                    coalesce(average, 0.0), coalesce(percentage, 0.0)
               FROM top ORDER BY total_duration DESC, name LIMIT ?",
        )?;
        let rows = top.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(TopRow {
                name: String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned(),
                total_calls: row.get::<_, i64>(1)?.unsigned_abs(),
                total_duration_us: row.get(2)?,
                average_us: row.get(3)?,
                percentage: row.get(4)?,
            })
        })?;
        rows.collect::<Result<Vec<_>, _>>()
    };
    rows(&open(path)?).map_err(|source| CheckError { path: path.to_owned(), source })
}
