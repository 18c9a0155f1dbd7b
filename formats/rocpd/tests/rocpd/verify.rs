//! Tests of `verify::check`.

use crate::real::{Outcome, real_databases};
use crate::writer::write_small_job;
use rpd_rocpd::verify::{Expected, Problem, check, check_against, check_integrity, top};
use rpd_rocpd::{MAX_SETS, TableSet, Writer};
use rpd_shard::model::{Keys, RowsBuilder, Schema, Value, rocpd};
use rusqlite::Connection;
use std::path::Path;

#[test]
fn amds_own_files_are_clean() -> Outcome {
    let dir = tempfile::tempdir()?;
    for path in real_databases(dir.path())? {
        let before = std::fs::read(&path)?;
        let report = check(&path)?;
        assert!(report.is_clean(), "{:?}", report.problems);
        assert_eq!((report.version.as_str(), report.rows["rocpd_event"]), ("3.0.0", 3000));
        assert!(!top(&path, 3)?.is_empty());
        assert!(before == std::fs::read(&path)?, "the check changed the file");
    }
    Ok(())
}

/// Returns the problems of a valid database after executing some SQL.
fn problems_after(sql: &str) -> Outcome<Vec<Problem>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    write_small_job(&path)?;
    let conn = Connection::open(&path)?;
    conn.execute_batch("PRAGMA foreign_keys = OFF")?;
    conn.execute_batch(&sql.replace('$', "_00000000_0000_0000_0000_000000005eed"))
        .map_err(|e| format!("{sql}: {e}"))?;
    conn.close().map_err(|(_, e)| e)?;
    Ok(check(&path)?.problems)
}

#[test]
fn every_broken_rule_is_named() -> Outcome {
    for (sql, expected) in [
        (
            "UPDATE rocpd_region$ SET tid = 99",
            "2 references from rocpd_region to rocpd_info_thread lead nowhere, first in row 1",
        ),
        ("DELETE FROM rocpd_metadata$ WHERE tag = 'uuid'", "metadata tag uuid: found []"),
        (
            "INSERT INTO rocpd_metadata$ (tag, value) VALUES ('guid', 'x')",
            "metadata tag guid: found [\"00000000-",
        ),
        (
            "UPDATE rocpd_metadata$ SET value = '4' WHERE tag = 'schema_version_minor'",
            "metadata tag schema_version: found [\"3.0.0\", \"3.4.0\"]",
        ),
        (
            "UPDATE rocpd_metadata$ SET value = '3' WHERE tag = 'schema_version'",
            "metadata tag schema_version: found [\"3\"]",
        ),
        ("DROP VIEW regions; DROP VIEW regions_and_samples", "view regions is missing"),
        ("DROP TABLE rocpd_memory_copy$", "table rocpd_memory_copy is missing"),
        ("CREATE TABLE rocpd_notes$ (id INTEGER PRIMARY KEY)", "table rocpd_notes is not in the schema"),
        ("CREATE INDEX fast ON rocpd_event$ (stack_id)", "index fast is not in the schema"),
        (
            "ALTER TABLE rocpd_event$ ADD COLUMN x INTEGER",
            "table rocpd_event is declared with [\"column x INTEGER\"] instead of []",
        ),
        ("ALTER TABLE rocpd_event$ ADD COLUMN x AS (id + 1)", "column x  hidden"),
        (
            "UPDATE sqlite_sequence SET seq = 3 WHERE name GLOB 'rocpd_event*'",
            "sqlite_sequence is less than the keys of rocpd_event",
        ),
        (
            "PRAGMA ignore_check_constraints = ON; UPDATE rocpd_info_agent$ SET type = 'TPU'",
            "integrity check: CHECK constraint failed",
        ),
    ] {
        let problems = problems_after(sql)?;
        assert!(problems.iter().any(|p| p.to_string().contains(expected)), "{sql}: {problems:?}");
    }
    assert_eq!(problems_after("SELECT 1")?, []);
    Ok(())
}

#[test]
fn a_database_with_a_journal_beside_it_is_unfinished() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    write_small_job(&path)?;
    std::fs::write(dir.path().join("job.db-wal"), "")?;
    assert!(check(&path)?.is_clean());
    let journal = dir.path().join("job.db-journal");
    std::fs::write(&journal, "pages")?;
    assert_eq!(check(&path)?.problems, [Problem::Unfinished(journal)]);
    Ok(())
}

#[test]
fn a_file_that_is_no_database_is_an_error_with_its_path() -> Outcome {
    let dir = tempfile::tempdir()?;
    for (name, content) in [("text", "no database at all, only text".repeat(300)), ("empty", String::new())] {
        let path = dir.path().join(name);
        std::fs::write(&path, content)?;
        let error = check(&path).err().ok_or("accepted")?;
        assert!(error.to_string().contains(name), "{error}");
        assert!(top(&path, 1).is_err());
    }
    assert!(check(&dir.path().join("missing")).is_err());
    Ok(())
}

/// Guids in the forms of other tools, and guids that no tool should write.
const GUIDS: [&str; 8] = [
    "00000000-0000-0000-0000-000000005eed",
    "eca26941bc5147d1a2983961edb6dbb6",
    "a-b",
    "a_b",
    "A_b",
    "it's \"quoted\" \u{fc}",
    "x'); DROP TABLE rocpd_string_a; --",
    "_",
];

/// Creates a database with one table set per guid, each with a string and a node.
fn write_sets(path: &Path) -> Outcome<Vec<TableSet>> {
    let sets: Vec<TableSet> = GUIDS.iter().filter_map(|guid| TableSet::new(guid)).collect();
    Writer::create_of(path, &sets, [3, 0, 0], Schema::builtin())?.commit()?;
    let mut writer = Writer::open(path, &sets)?;
    let table = Schema::builtin().get(rocpd::STRING).ok_or("no table")?;
    for (set, guid) in GUIDS.iter().enumerate() {
        let mut rows = RowsBuilder::new(table);
        rows.push(&[Value::Text(guid.as_bytes())]);
        let rows = rows.finish(1);
        let columns = rows.columns.clone();
        let rows = rows.into_merged(Keys::Dense(7), columns);
        writer.append_to(set, &rows)?;
        assert!(writer.append_to(GUIDS.len(), &rows).is_err());
    }
    writer.metadata("rpd.run_id", "r")?;
    writer.commit()?;
    Ok(sets)
}

#[test]
fn sqlite_joins_as_many_sets_as_are_allowed_and_no_more() -> Outcome {
    let conn = Connection::open_in_memory()?;
    let joined = |sets: usize| conn.prepare(&vec!["SELECT 1"; sets].join(" UNION ALL ")).map(drop);
    joined(MAX_SETS)?;
    assert!(joined(MAX_SETS + 1).is_err());
    Ok(())
}

#[test]
fn sets_of_any_guid_stand_beside_each_other() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let sets = write_sets(&path)?;
    assert_eq!(sets.len(), GUIDS.len());
    let expected = Expected { schema: Schema::builtin(), version: [3, 0, 0], sets: sets.len() };
    for report in [check(&path)?, check_against(&path, expected)?] {
        assert_eq!(report.problems, []);
        assert_eq!((report.sets, report.rows["rocpd_string"], report.guid.as_str()), (8, 8, GUIDS[0]));
        // AMD's validators reject several table sets, and suffixes that are not derived from the guid.
        let refused: Vec<_> = report.refused_by_amd.iter().map(Problem::to_string).collect();
        assert!(refused.contains(&"8 table sets instead of one".to_owned()), "{refused:?}");
        assert!(refused.iter().any(|why| why.starts_with("metadata tag uuid: found [\"_x")), "{refused:?}");
    }
    let conn = Connection::open(&path)?;
    let count = "SELECT count(*) FROM rocpd_string WHERE guid = string AND id = 7";
    assert_eq!(conn.query_row(count, [], |row| row.get::<_, i64>(0))?, 8);
    let other = Expected { version: [3, 0, 1], sets: 9, ..expected };
    let problems: Vec<_> = check_against(&path, other)?.problems.iter().map(Problem::to_string).collect();
    assert!(problems[0].contains("8 sets of tables instead of 9"), "{problems:?}");
    assert!(problems[1].contains("found [\"3.0.0\"]"), "{problems:?}");
    Ok(())
}

#[test]
fn a_broken_rule_is_found_in_any_of_the_sets() -> Outcome {
    let dir = tempfile::tempdir()?;
    for (number, (sql, expected)) in [
        (
            "DROP VIEW rocpd_string; CREATE VIEW rocpd_string AS SELECT * FROM \"rocpd_string$\"",
            "view rocpd_string does not show rocpd_string_00000000",
        ),
        ("DROP TABLE \"rocpd_memory_copy$\"", "table rocpd_memory_copy is missing"),
        (
            "INSERT INTO \"rocpd_track$\" (nid) VALUES (3)",
            "1 references from rocpd_track to rocpd_info_node lead nowhere",
        ),
        (
            "UPDATE \"rocpd_metadata$\" SET value = 'a-b' WHERE tag = 'guid'",
            "metadata tag guid: found [\"a-b\", ",
        ),
        ("ALTER TABLE \"rocpd_event$\" ADD COLUMN x INTEGER", "table rocpd_event is declared with"),
        (
            "UPDATE sqlite_sequence SET seq = 3 WHERE name = 'rocpd_string$'",
            "sqlite_sequence is less than the keys of rocpd_string",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(format!("{number}.db"));
        let sets = write_sets(&path)?;
        let conn = Connection::open(&path)?;
        conn.execute_batch("PRAGMA foreign_keys = OFF")?;
        conn.execute_batch(&sql.replace('$', sets[5].suffix()))?;
        conn.close().map_err(|(_, error)| error)?;
        let expected_of = Expected { schema: Schema::builtin(), version: [3, 0, 0], sets: sets.len() };
        let problems = check_against(&path, expected_of)?.problems;
        assert!(problems.iter().any(|p| p.to_string().contains(expected)), "{sql}: {problems:?}");
        assert_eq!(check_integrity(&path)?, []);
    }
    Ok(())
}
