//! What `verify::check` finds.

use crate::real::{Outcome, real_databases};
use crate::writer::write_small_job;
use rpd_rocpd::verify::{Problem, check, top};
use rusqlite::Connection;

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

/// The problems of a good database after some SQL.
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
        ("CREATE TABLE notes (x)", "table notes is not in the schema"),
        ("CREATE TABLE rocpd_notes$ (id INTEGER PRIMARY KEY)", "table rocpd_notes is not in the schema"),
        ("CREATE INDEX fast ON rocpd_event$ (stack_id)", "index fast is not in the schema"),
        (
            "ALTER TABLE rocpd_event$ ADD COLUMN x INTEGER",
            "table rocpd_event is declared with [\"column x INTEGER\"] instead of []",
        ),
        ("ALTER TABLE rocpd_event$ ADD COLUMN x AS (id + 1)", "column x  hidden"),
        (
            "UPDATE sqlite_sequence SET seq = 3 WHERE name GLOB 'rocpd_event*'",
            "sqlite_sequence is behind the keys of rocpd_event",
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
