//! Whether a finished database is one that AMD's tools accept, and what took its time.

use crate::connect::{self, identifier, literal};
use crate::guid::Guid;
use crate::schema::{self, METADATA, VERSION};
use crate::shape;
use crate::writer::REQUIRED_TAGS;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Versions that AMD's checks accept.
const KNOWN_VERSIONS: [&str; 6] = ["3.0.0", "3.0.1", "3.0.2", "3.0.3", "3.0.4", "3.0.5"];

/// What was found in a database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// The metadata tag `guid`, empty where it is missing.
    pub guid: String,
    /// The metadata tag `schema_version`, empty where it is missing.
    pub version: String,
    /// Rows of every table, by name without the suffix.
    pub rows: BTreeMap<String, u64>,
    /// Broken rules, none in a good database.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// Whether no rule is broken.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// A journal beside the database: it was not closed. Nothing else was looked at.
    Unfinished(PathBuf),
    /// What `PRAGMA integrity_check` says.
    Integrity(String),
    /// References to rows that are not there.
    ForeignKey {
        /// Table of the references.
        table: String,
        /// Table of the missing rows.
        parent: String,
        /// Number of references.
        references: u64,
        /// Key of the first row with one.
        first_key: Option<i64>,
    },
    /// A metadata tag that is not there once, or has a value that does not fit the others.
    Metadata {
        /// The tag.
        tag: String,
        /// Its values.
        found: Vec<String>,
    },
    /// A table that the version has and the database has not.
    MissingTable(String),
    /// A table or index that the version does not have.
    Extra(String),
    /// A view that AMD's tools read and the database has not.
    MissingView(String),
    /// A table is declared in another way than the version says.
    Declaration {
        /// The table.
        table: String,
        /// What is there and should not be, or is in another place.
        found: Vec<String>,
        /// What should be there.
        expected: Vec<String>,
    },
    /// `sqlite_sequence` is behind the keys of a table: the next row would get a used key.
    Sequence(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unfinished(path) => {
                write!(f, "{} is not empty: the database was not closed", path.display())
            }
            Problem::Integrity(text) => write!(f, "integrity check: {text}"),
            Problem::ForeignKey { table, parent, references, first_key } => {
                write!(f, "{references} references from {table} to {parent} lead nowhere")?;
                first_key.map_or(Ok(()), |key| write!(f, ", first in row {key}"))
            }
            Problem::Metadata { tag, found } => write!(f, "metadata tag {tag}: found {found:?}"),
            Problem::MissingTable(name) => write!(f, "table {name} is missing"),
            Problem::Extra(name) => write!(f, "{name} is not in the schema"),
            Problem::MissingView(name) => write!(f, "view {name} is missing"),
            Problem::Declaration { table, found, expected } => {
                write!(f, "table {table} is declared with {found:?} instead of {expected:?}")
            }
            Problem::Sequence(table) => write!(f, "sqlite_sequence is behind the keys of {table}"),
        }
    }
}

/// Why a database could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("read {}: check that it exists and is a RocPD database", path.display())]
pub struct CheckError {
    /// The file.
    pub path: PathBuf,
    /// What SQLite says.
    pub source: rusqlite::Error,
}

/// Reads the whole database and compares it with the rules. It changes nothing.
///
/// Declarations are compared in databases of the version that we write; other versions have other
/// columns.
pub fn check(path: &Path) -> Result<CheckReport, CheckError> {
    let open_journals: Vec<_> = ["-journal", "-wal"]
        .iter()
        .map(|end| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        })
        .filter(|journal| std::fs::metadata(journal).is_ok_and(|m| m.len() > 0))
        .map(Problem::Unfinished)
        .collect();
    if !open_journals.is_empty() {
        return Ok(CheckReport { problems: open_journals, ..CheckReport::default() });
    }
    let error = |source| CheckError { path: path.to_owned(), source };
    inspect(&open(path)?).map_err(error)
}

fn open(path: &Path) -> Result<Connection, CheckError> {
    // SQLite forgets the CHECKs of a database that is opened for reading only, and integrity_check
    // would pass over them. A write-protected file is still opened.
    let conn = connect::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE);
    conn.and_then(|conn| {
        conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -65536;")?;
        Ok(conn)
    })
    .map_err(|source| CheckError { path: path.to_owned(), source })
}

fn inspect(conn: &Connection) -> rusqlite::Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut messages = conn.prepare("PRAGMA integrity_check")?;
    for message in messages.query_map([], |row| row.get::<_, String>(0))? {
        report.problems.push(Problem::Integrity(message?));
    }
    report.problems.retain(|p| *p != Problem::Integrity("ok".to_owned()));

    let suffix = suffix(conn)?;
    check_metadata(conn, &suffix, &mut report)?;
    check_tables(conn, &suffix, &mut report)?;
    check_references(conn, &suffix, &mut report)?;
    Ok(report)
}

/// What the name of the metadata table ends in.
fn suffix(conn: &Connection) -> rusqlite::Result<String> {
    conn.query_row(
        "SELECT substr(name, length(?1) + 1) FROM sqlite_master WHERE type = 'table' AND name GLOB ?1 || '_?*'",
        [METADATA],
        |row| row.get(0),
    )
}

fn check_metadata(conn: &Connection, suffix: &str, report: &mut CheckReport) -> rusqlite::Result<()> {
    let table = identifier(&format!("{METADATA}{suffix}"));
    let mut values = conn.prepare(&format!("SELECT CAST(value AS TEXT) FROM {table} WHERE tag = ?"))?;
    let mut found = BTreeMap::new();
    for tag in REQUIRED_TAGS {
        let values: Vec<String> = values.query_map([tag], |row| row.get(0))?.collect::<Result<_, _>>()?;
        if values.len() != 1 {
            report.problems.push(Problem::Metadata { tag: tag.to_owned(), found: values.clone() });
        }
        found.insert(tag, values.into_iter().next().unwrap_or_default());
    }
    report.guid = found["guid"].clone();
    report.version = found["schema_version"].clone();
    let parts = ["schema_version_major", "schema_version_minor", "schema_version_patch"];
    let expected = [
        ("uuid", suffix.to_owned()),
        ("guid", suffix.trim_start_matches('_').replace('_', "-")),
        ("schema_version", parts.map(|p| found[p].as_str()).join(".")),
    ];
    if !KNOWN_VERSIONS.contains(&report.version.as_str()) {
        let found = vec![report.version.clone()];
        report.problems.push(Problem::Metadata { tag: "schema_version".to_owned(), found });
    }
    for (tag, expected) in expected {
        if !found[tag].is_empty() && found[tag] != expected {
            report
                .problems
                .push(Problem::Metadata { tag: tag.to_owned(), found: vec![found[tag].clone(), expected] });
        }
    }
    Ok(())
}

fn check_tables(conn: &Connection, suffix: &str, report: &mut CheckReport) -> rusqlite::Result<()> {
    let model = Connection::open_in_memory()?;
    let guid = Guid::from_bits(0);
    model.execute_batch(&schema::create_all(&guid))?;
    let expected = shape::of_tables(&model, &guid.suffix(), &guid.to_string())?;
    let found = shape::of_tables(conn, suffix, &report.guid)?;
    let same_version = report.version == VERSION.map(|n| n.to_string()).join(".");

    for (name, expected) in &expected {
        match found.get(name) {
            None => report.problems.push(Problem::MissingTable(name.clone())),
            Some(found) if same_version && found != expected => {
                let without =
                    |a: &[String], b: &[String]| a.iter().filter(|l| !b.contains(l)).cloned().collect();
                report.problems.push(Problem::Declaration {
                    table: name.clone(),
                    found: without(found, expected),
                    expected: without(expected, found),
                });
            }
            Some(_) => {}
        }
    }
    let mut others = conn.prepare(
        "SELECT type || ' ' || name FROM sqlite_master
          WHERE type IN ('table', 'index', 'trigger') AND name NOT GLOB 'sqlite_*' AND name NOT GLOB 'rocpd_*' || ?",
    )?;
    for other in others.query_map([suffix], |row| row.get(0))? {
        report.problems.push(Problem::Extra(other?));
    }
    if same_version {
        let unknown = found.keys().filter(|name| !expected.contains_key(*name));
        report.problems.extend(unknown.map(|name| Problem::Extra(format!("table {name}"))));
    }
    let mut views = model.prepare("SELECT name FROM sqlite_master WHERE type = 'view'")?;
    for view in views.query_map([], |row| row.get::<_, String>(0))? {
        let view = view?;
        let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'view' AND name = ?";
        if conn.query_row(sql, [&view], |row| row.get::<_, i64>(0))? == 0 {
            report.problems.push(Problem::MissingView(view));
        }
    }
    for name in found.keys() {
        let table = format!("{name}{suffix}");
        let (rows, behind) = conn.query_row(
            &format!(
                "SELECT count(*), coalesce(max(id) > coalesce((SELECT seq FROM sqlite_sequence WHERE name = {}), 0), 0)
                   FROM {}",
                literal(&table),
                identifier(&table)
            ),
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)),
        )?;
        report.rows.insert(name.clone(), rows.unsigned_abs());
        if behind {
            report.problems.push(Problem::Sequence(name.clone()));
        }
    }
    Ok(())
}

fn check_references(conn: &Connection, suffix: &str, report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut broken: BTreeMap<(String, String), (u64, Option<i64>)> = BTreeMap::new();
    let mut references = conn.prepare("PRAGMA foreign_key_check")?;
    for reference in references.query_map([], |row| Ok((row.get(0)?, row.get(2)?, row.get(1)?)))? {
        let (table, parent, key): (String, String, Option<i64>) = reference?;
        let (references, _) = broken.entry((table, parent)).or_insert((0, key));
        *references += 1;
    }
    for ((table, parent), (references, first_key)) in broken {
        let (table, parent) = (table.replace(suffix, ""), parent.replace(suffix, ""));
        report.problems.push(Problem::ForeignKey { table, parent, references, first_key });
    }
    Ok(())
}

/// One line of the view `top`: kernels, copies and regions of one name.
#[derive(Clone, PartialEq, Debug)]
pub struct TopRow {
    /// Name of the kernel, copy or region; empty where it has none.
    pub name: String,
    /// How often it ran.
    pub total_calls: u64,
    /// Sum of the durations, in microseconds.
    pub total_duration_us: f64,
    /// Mean duration, in microseconds.
    pub average_us: f64,
    /// Share of the sum over all names.
    pub percentage: f64,
}

/// The first `limit` lines of the view `top`, longest total duration first.
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
