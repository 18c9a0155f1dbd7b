//! Checks the rules one by one.

use super::declared::{Model, rows_of};
use super::{CheckReport, Expected, Problem, integrity};
use crate::connect::identifier;
use crate::schema::{METADATA, NEWEST};
use crate::set::TableSet;
use crate::shape;
use crate::writer::REQUIRED_TAGS;
use rpd_shard::model::Schema;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The models that a database is compared with.
struct Models {
    /// The tables that the database must have.
    planned: Model,
    /// The tables of AMD's schema, if they may differ.
    amd: Option<Model>,
}

impl Models {
    /// Returns the models for a database that is as `expected`. Without `expected`, those of `version`.
    fn new(expected: Option<Expected<'_>>, version: &str) -> rusqlite::Result<Models> {
        if let Some(Expected { schema, version, .. }) = expected {
            return Ok(Models { planned: Model::new(schema)?, amd: Model::of_amd(version)? });
        }
        let known = known_versions().find(|known| text_of(*known) == version);
        let planned = known.map(Model::of_amd).transpose()?.flatten();
        // An unknown version is reported as a separate problem.
        let planned = planned.map_or_else(|| Model::new(Schema::builtin()), Ok)?;
        Ok(Models { planned, amd: None })
    }
}

pub(super) fn inspect(conn: &Connection, expected: Option<Expected<'_>>) -> rusqlite::Result<CheckReport> {
    let mut report = CheckReport { problems: integrity(conn)?, ..CheckReport::default() };
    let tables = shape::tables(conn)?;
    let suffixes = suffixes(&tables);
    if suffixes.is_empty() {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    report.sets = suffixes.len();
    if suffixes.len() > 1 {
        report.refused_by_amd.push(Problem::TableSets(suffixes.len()));
    }
    if let Some(Expected { sets, .. }) = expected.filter(|expected| expected.sets != suffixes.len()) {
        let found = vec![format!("{} sets of tables instead of {sets}", suffixes.len())];
        report.problems.push(Problem::Metadata { tag: "uuid".to_owned(), found });
    }
    let mut models: Option<Models> = None;
    // The first set comes last, so that its guid is in the report.
    for suffix in suffixes.iter().rev() {
        check_metadata(conn, suffix, expected, &mut report)?;
        let models = match &mut models {
            Some(models) => models,
            none => none.insert(Models::new(expected, &report.version)?),
        };
        let own: Vec<_> = tables.iter().filter(|(name, _)| is_of(name, suffix, &suffixes)).cloned().collect();
        check_tables(conn, &own, suffix, models, &mut report)?;
    }
    check_others(conn, &suffixes, &mut report)?;
    if let Some(models) = &models {
        check_views(conn, &suffixes, models.planned.database(), &mut report)?;
    }
    check_references(conn, &suffixes, &mut report)?;
    // Sets usually have the same declarations.
    let mut problems: Vec<Problem> = Vec::new();
    for problem in std::mem::take(&mut report.refused_by_amd) {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    report.refused_by_amd = problems;
    Ok(report)
}

/// Returns the suffix of the table names of each set.
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

/// Returns whether a table belongs to this set: the longest matching suffix determines its set.
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
    // Every guid has its own suffix; AMD's suffix is the guid with "_" instead of "-".
    let of_guid = TableSet::new(&report.guid).filter(|set| set.suffix() == suffix);
    let guid = match of_guid {
        Some(set) => set.guid().to_owned(),
        None => suffix.trim_start_matches('_').replace('_', "-"),
    };
    let of_amd = format!("_{}", guid.replace('-', "_"));
    if suffix != of_amd {
        let found = vec![suffix.to_owned(), of_amd];
        report.refused_by_amd.push(Problem::Metadata { tag: "uuid".to_owned(), found });
    }
    let parts = ["schema_version_major", "schema_version_minor", "schema_version_patch"];
    let wanted = [
        ("uuid", suffix.to_owned()),
        ("guid", guid),
        ("schema_version", parts.map(|p| found[p].as_str()).join(".")),
    ];
    let is_known = match expected {
        Some(expected) => report.version == text_of(expected.version),
        // Versions that AMD's checks accept.
        None => known_versions().any(|known| report.version == text_of(known)),
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

/// Returns the versions of which this release supports AMD's rules.
fn known_versions() -> impl Iterator<Item = [u32; 3]> {
    (0..=NEWEST[2]).map(|patch| [NEWEST[0], NEWEST[1], patch])
}

fn text_of(version: [u32; 3]) -> String {
    version.map(|n| n.to_string()).join(".")
}

/// Compares the tables of one set with those that it should have, and counts their rows.
fn check_tables(
    conn: &Connection,
    tables: &[(String, String)],
    suffix: &str,
    models: &Models,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let found = shape::of_tables(conn, tables, suffix, &report.guid)?;
    let problems = models.planned.compare(&found);
    if let Some(amd) = &models.amd {
        let by_amd = amd.compare(&found).into_iter();
        report.refused_by_amd.extend(by_amd.filter(|problem| !problems.contains(problem)));
    }
    report.problems.extend(problems);
    for (name, shape) in &found {
        let table = format!("{name}{suffix}");
        let (rows, is_sequence_low) = rows_of(conn, &table, shape)?;
        *report.rows.entry(name.clone()).or_default() += rows;
        report.tables.insert(table, rows);
        if is_sequence_low {
            report.problems.push(Problem::Sequence(name.clone()));
        }
    }
    Ok(())
}

/// Finds tables, indexes and triggers that no version has. Those with RocPD names or on RocPD tables are problems.
fn check_others(conn: &Connection, suffixes: &[&str], report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut others = conn.prepare(
        "SELECT type, name, tbl_name FROM sqlite_master
          WHERE type IN ('table', 'index', 'trigger') AND name NOT GLOB 'sqlite_*' ORDER BY type, name",
    )?;
    let others = others.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    for other in others {
        let (kind, name, table): (String, String, String) = other?;
        let is_of_set = suffixes.iter().any(|suffix| name.ends_with(suffix));
        match name.starts_with("rocpd_") || table.starts_with("rocpd_") {
            // Already compared with the tables of the set.
            true if kind == "table" && is_of_set => {}
            true => report.problems.push(Problem::Extra(format!("{kind} {name}"))),
            false => report.extras.push(format!("{kind} {name}")),
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
            // A quote in a name is doubled.
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
