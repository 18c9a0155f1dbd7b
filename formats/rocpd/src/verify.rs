//! Whether a finished database is one that AMD's tools accept, and what took its time.

use crate::connect::{self, identifier, literal};
use crate::guid::Guid;
use crate::schema::{self, METADATA, NEWEST, VERSION};
use crate::set::TableSet;
use crate::shape::{self, Shape};
use crate::writer::REQUIRED_TAGS;
use rpd_files::AnchorUse;
use rpd_shard::model::Schema;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What was found in a database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// How many sets of tables there are.
    pub sets: usize,
    /// The metadata tag `guid` of the first set, empty where it is missing.
    pub guid: String,
    /// The metadata tag `schema_version` of the first set, empty where it is missing.
    pub version: String,
    /// Rows of every table, by name without the suffix; of all sets together.
    pub rows: BTreeMap<String, u64>,
    /// Rows of every table of each set, by the whole name.
    pub tables: BTreeMap<String, u64>,
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
    /// A view `rocpd_<x>` that does not show the table of every set.
    NotShown {
        /// The view.
        view: String,
        /// The first table that it does not show.
        table: String,
    },
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
            Problem::NotShown { view, table } => write!(f, "view {view} does not show {table}"),
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
/// columns. See [`check_against`].
pub fn check(path: &Path) -> Result<CheckReport, CheckError> {
    check_all(path, None)
}

/// What a database is meant to be.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Its tables.
    pub schema: &'a Schema,
    /// Its version: major, minor, patch.
    pub version: [u32; 3],
    /// How many sets of tables it has.
    pub sets: usize,
}

/// The same for a database of which the tables and the version are known: declarations are compared
/// with those.
pub fn check_against(path: &Path, expected: Expected<'_>) -> Result<CheckReport, CheckError> {
    check_all(path, Some(expected))
}

fn check_all(path: &Path, expected: Option<Expected<'_>>) -> Result<CheckReport, CheckError> {
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
    inspect(&open(path)?, expected).map_err(error)
}

/// What `PRAGMA integrity_check` says of any SQLite database; nothing where all is well.
pub fn check_integrity(path: &Path) -> Result<Vec<Problem>, CheckError> {
    open(path)
        .and_then(|conn| integrity(&conn).map_err(|source| CheckError { path: path.to_owned(), source }))
}

/// Counts the rows of every table of any SQLite database, by name. It opens the file as other programs do: with
/// locks, where the file system has them, and with the journals beside it.
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
    // SQLite forgets the CHECKs of a database that is opened for reading only, and integrity_check
    // would pass over them. A write-protected file is still opened.
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

fn inspect(conn: &Connection, expected: Option<Expected<'_>>) -> rusqlite::Result<CheckReport> {
    let mut report = CheckReport { problems: integrity(conn)?, ..CheckReport::default() };
    let tables = shape::tables(conn)?;
    let suffixes = suffixes(&tables);
    if suffixes.is_empty() {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    report.sets = suffixes.len();
    if let Some(Expected { sets, .. }) = expected.filter(|expected| expected.sets != suffixes.len()) {
        let found = vec![format!("{} sets of tables instead of {sets}", suffixes.len())];
        report.problems.push(Problem::Metadata { tag: "uuid".to_owned(), found });
    }
    let model = model(expected)?;
    let set = TableSet::from(&MODEL);
    let shapes = shape::of_tables(&model, &shape::tables(&model)?, set.suffix(), set.guid())?;
    // The first set last: its guid is told.
    for suffix in suffixes.iter().rev() {
        check_metadata(conn, suffix, expected, &mut report)?;
        let own: Vec<_> = tables.iter().filter(|(name, _)| is_of(name, suffix, &suffixes)).cloned().collect();
        let is_comparable = expected.is_some() || report.version == text_of(VERSION);
        check_tables(conn, &own, suffix, &shapes, is_comparable, &mut report)?;
    }
    check_others(conn, &suffixes, &mut report)?;
    check_views(conn, &suffixes, &model, &mut report)?;
    check_references(conn, &suffixes, &mut report)?;
    Ok(report)
}

/// What the names of the tables of each set end in.
fn suffixes(tables: &[(String, String)]) -> Vec<&str> {
    let of = |mark: &str| -> Vec<&str> {
        let ends = tables.iter().filter_map(|(name, _)| name.strip_prefix(mark));
        ends.filter(|end| end.len() > 1 && end.starts_with('_')).collect()
    };
    let (mut found, processes) = (of(METADATA), of("rocpd_info_process"));
    if found.len() > 1 {
        found.retain(|end| processes.contains(end));
    }
    found
}

/// Whether a table is one of this set: the longest end that fits says whose it is.
fn is_of(table: &str, suffix: &str, suffixes: &[&str]) -> bool {
    table.ends_with(suffix)
        && !suffixes.iter().any(|other| other.len() > suffix.len() && table.ends_with(other))
}

fn check_metadata(
    conn: &Connection,
    suffix: &str,
    expected: Option<Expected<'_>>,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
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
    // Any guid has its own suffix, and AMD's have the simple one.
    let of_guid = TableSet::new(&report.guid).filter(|set| set.suffix() == suffix);
    let guid = match of_guid {
        Some(set) => set.guid().to_owned(),
        None => suffix.trim_start_matches('_').replace('_', "-"),
    };
    let parts = ["schema_version_major", "schema_version_minor", "schema_version_patch"];
    let wanted = [
        ("uuid", suffix.to_owned()),
        ("guid", guid),
        ("schema_version", parts.map(|p| found[p].as_str()).join(".")),
    ];
    let is_known = match expected {
        Some(expected) => report.version == text_of(expected.version),
        // Those that AMD's checks accept.
        None => (0..=NEWEST[2]).any(|patch| report.version == text_of([NEWEST[0], NEWEST[1], patch])),
    };
    if !is_known {
        let found = vec![report.version.clone()];
        report.problems.push(Problem::Metadata { tag: "schema_version".to_owned(), found });
    }
    for (tag, wanted) in wanted {
        if !found[tag].is_empty() && found[tag] != wanted {
            report
                .problems
                .push(Problem::Metadata { tag: tag.to_owned(), found: vec![found[tag].clone(), wanted] });
        }
    }
    Ok(())
}

fn text_of(version: [u32; 3]) -> String {
    version.map(|n| n.to_string()).join(".")
}

/// Compares the tables of one set with those that it should have; their declarations where
/// they are of the same version.
fn check_tables(
    conn: &Connection,
    tables: &[(String, String)],
    suffix: &str,
    expected: &BTreeMap<String, Shape>,
    is_comparable: bool,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let found = shape::of_tables(conn, tables, suffix, &report.guid)?;
    for (name, expected) in expected {
        match found.get(name) {
            None => report.problems.push(Problem::MissingTable(name.clone())),
            Some(found) if is_comparable && found != expected => {
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
    if is_comparable {
        let unknown = found.keys().filter(|name| !expected.contains_key(*name));
        report.problems.extend(unknown.map(|name| Problem::Extra(format!("table {name}"))));
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
        *report.rows.entry(name.clone()).or_default() += rows.unsigned_abs();
        report.tables.insert(table.clone(), rows.unsigned_abs());
        if behind {
            report.problems.push(Problem::Sequence(name.clone()));
        }
    }
    Ok(())
}

/// The guid of the databases that others are compared with.
const MODEL: Guid = Guid::from_bits(0);

/// An empty database that is as it should be.
fn model(expected: Option<Expected<'_>>) -> rusqlite::Result<Connection> {
    let model = Connection::open_in_memory()?;
    let schema = expected.map_or(Schema::builtin(), |expected| expected.schema);
    model.execute_batch(&schema::create_all_of(schema, &[(&MODEL).into()]))?;
    Ok(model)
}

/// Tables, indexes and triggers of no set.
fn check_others(conn: &Connection, suffixes: &[&str], report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut others = conn.prepare(
        "SELECT type || ' ' || name, name FROM sqlite_master
          WHERE type IN ('table', 'index', 'trigger') AND name NOT GLOB 'sqlite_*'",
    )?;
    let others = others.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for other in others {
        let (thing, name) = other?;
        if !name.starts_with("rocpd_") || !suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            report.problems.push(Problem::Extra(thing));
        }
    }
    Ok(())
}

fn check_views(
    conn: &Connection,
    suffixes: &[&str],
    model: &Connection,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let mut views = model.prepare("SELECT name FROM sqlite_master WHERE type = 'view'")?;
    let mut own = conn.prepare("SELECT sql FROM sqlite_master WHERE type = 'view' AND name = ?")?;
    for view in views.query_map([], |row| row.get::<_, String>(0))? {
        let view = view?;
        let Some(sql) = own.query_map([&view], |row| row.get::<_, String>(0))?.next().transpose()? else {
            report.problems.push(Problem::MissingView(view));
            continue;
        };
        if view.starts_with("rocpd_") {
            let tables = suffixes.iter().map(|suffix| format!("{view}{suffix}"));
            // A quote in a name is there twice.
            let shows = |table: &String| sql.contains(table.as_str()) || sql.contains(&identifier(table));
            let missing = tables.filter(|table| !shows(table)).take(1);
            let not_shown = missing.map(|table| Problem::NotShown { view: view.clone(), table });
            report.problems.extend(not_shown);
        }
    }
    Ok(())
}

fn check_references(conn: &Connection, suffixes: &[&str], report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut broken: BTreeMap<(String, String), (u64, Option<i64>)> = BTreeMap::new();
    let mut references = conn.prepare("PRAGMA foreign_key_check")?;
    for reference in references.query_map([], |row| Ok((row.get(0)?, row.get(2)?, row.get(1)?)))? {
        let (table, parent, key): (String, String, Option<i64>) = reference?;
        let (references, _) = broken.entry((table, parent)).or_insert((0, key));
        *references += 1;
    }
    let short = |name: &str| {
        let suffix = suffixes.iter().find(|suffix| is_of(name, suffix, suffixes));
        suffix.and_then(|suffix| name.strip_suffix(suffix)).unwrap_or(name).to_owned()
    };
    for ((table, parent), (references, first_key)) in broken {
        let (table, parent) = (short(&table), short(&parent));
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
