//! Tests of the checks of AMD's strict validators, with one database per check that violates only this check.

use crate::real::Outcome;
use crate::writer::write_small_job;
use rpd_rocpd::amd::schema_of;
use rpd_rocpd::schema::NEWEST;
use rpd_rocpd::verify::{CheckReport, Expected, Problem, check, check_against};
use rpd_rocpd::{Guid, Writer};
use rusqlite::Connection;
use std::fs;
use std::path::Path;

/// Suffix of the table names in the databases.
const SUFFIX: &str = "_00000000_0000_0000_0000_000000005eed";

/// Executes SQL in a database; `$` is replaced by the suffix of its table names.
fn change(path: &Path, sql: &str) -> Outcome {
    let conn = Connection::open(path)?;
    conn.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")?;
    conn.execute_batch(&sql.replace('$', SUFFIX)).map_err(|error| format!("{sql}: {error}"))?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Checks a valid database of the written version after executing some SQL.
fn after(sql: &str) -> Outcome<CheckReport> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    write_small_job(&path)?;
    change(&path, sql)?;
    Ok(check(&path)?)
}

/// Returns SQL that changes a declaration in place and leaves the rows unchanged.
fn declared(table: &str, from: &str, to: &str) -> String {
    let [from, to] = [from, to].map(|text| text.replace('\'', "''"));
    format!(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_master SET sql = replace(sql, '{from}', '{to}') WHERE name = '{table}$';"
    )
}

/// Creates an empty database with everything that AMD's schema of a version has.
fn of_version(path: &Path, version: [u32; 3]) -> Outcome {
    let guid = Guid::from_bits(0x5eed);
    let schema = schema_of(version).ok_or("a version that is not known")?;
    Writer::create_of(path, &[(&guid).into()], version, &schema)?.commit()?;
    Ok(())
}

#[test]
fn a_database_that_breaks_one_of_amds_checks_is_refused() -> Outcome {
    for (sql, expected) in [
        // Tables.
        ("DROP TABLE rocpd_memory_copy$".to_owned(), "table rocpd_memory_copy is missing"),
        (
            "PRAGMA legacy_alter_table = ON; ALTER TABLE rocpd_arg$ RENAME TO a; CREATE VIEW rocpd_arg$ AS SELECT * FROM a"
                .to_owned(),
            "table rocpd_arg is missing",
        ),
        (
            "CREATE TABLE rocpd_notes$ (id INTEGER PRIMARY KEY)".to_owned(),
            "table rocpd_notes is not in the schema",
        ),
        ("CREATE TABLE rocpd_notes (id)".to_owned(), "table rocpd_notes is not in the schema"),
        (declared("rocpd_metadata", "NOT NULL\n)", "NOT NULL\n) STRICT"), "[\"is table STRICT\"] instead of []"),
        // Columns: one added, one removed, another type, another order.
        ("ALTER TABLE rocpd_event$ ADD COLUMN x INTEGER".to_owned(), "[\"column x INTEGER\"] instead of []"),
        ("ALTER TABLE rocpd_event$ ADD COLUMN x AS (id + 1)".to_owned(), "column x  hidden"),
        (
            "ALTER TABLE rocpd_region$ DROP COLUMN extdata".to_owned(),
            "table rocpd_region is declared with [] instead of [\"column extdata JSONB NOT NULL",
        ),
        (declared("rocpd_region", "\"end\" BIGINT", "\"end\" INTEGER"), "column end INTEGER NOT NULL"),
        (
            declared("rocpd_region", "\"start\" BIGINT NOT NULL,\n    \"end\" BIGINT", "\"end\" BIGINT NOT NULL,\n    \"start\" BIGINT"),
            "table rocpd_region is declared with [] instead of []",
        ),
        (declared("rocpd_region", "\"end\" BIGINT NOT NULL", "\"end\" BIGINT"), "[\"column end BIGINT\"] instead of"),
        (declared("rocpd_event", "AUTOINCREMENT", ""), "instead of [\"AUTOINCREMENT\"]"),
        // Defaults.
        (declared("rocpd_arg", " DEFAULT \"{}\"", ""), "[\"column extdata JSONB NOT NULL\"] instead of"),
        (declared("rocpd_pmc_event", "DEFAULT 0.0", "DEFAULT 1.0"), "column value REAL DEFAULT 1.0"),
        // CHECKs.
        (declared("rocpd_info_agent", "CHECK (\"type\" IN ('CPU', 'GPU'))", ""), "instead of [\"CHECK"),
        (declared("rocpd_info_agent", "'GPU')", "'GPU', 'NIC')"), "'NIC'"),
        // Foreign keys.
        (
            declared("rocpd_sample", ",\n    FOREIGN KEY (\"event_id\") REFERENCES \"rocpd_event$\" (\"id\") ON UPDATE CASCADE", ""),
            "table rocpd_sample is declared with [] instead of [\"foreign key event_id",
        ),
        (declared("rocpd_sample", " ON UPDATE CASCADE", ""), "update NO ACTION"),
        (
            "UPDATE rocpd_region$ SET tid = 99".to_owned(),
            "2 references from rocpd_region to rocpd_info_thread lead nowhere",
        ),
        // Indexes.
        ("CREATE INDEX fast ON rocpd_event$ (stack_id)".to_owned(), "index fast is not in the schema"),
        ("CREATE UNIQUE INDEX rocpd_fast ON rocpd_event$ (id)".to_owned(), "index rocpd_fast is not in the schema"),
        (
            "CREATE TRIGGER t AFTER INSERT ON rocpd_event$ BEGIN SELECT 1; END".to_owned(),
            "trigger t is not in the schema",
        ),
        // Metadata.
        ("DROP TABLE rocpd_metadata$".to_owned(), ""),
        ("DELETE FROM rocpd_metadata$ WHERE tag = 'uuid'".to_owned(), "metadata tag uuid: found []"),
        (
            "INSERT INTO rocpd_metadata$ (tag, value) SELECT tag, value FROM rocpd_metadata$ WHERE tag = 'guid'".to_owned(),
            "metadata tag guid: found [",
        ),
        ("UPDATE rocpd_metadata$ SET value = '_x' WHERE tag = 'uuid'".to_owned(), "metadata tag uuid: found"),
        (
            "UPDATE rocpd_metadata$ SET value = '3.0.6' WHERE tag = 'schema_version'".to_owned(),
            "metadata tag schema_version: found",
        ),
        (
            "UPDATE rocpd_metadata$ SET value = '1' WHERE tag = 'schema_version_patch'".to_owned(),
            "metadata tag schema_version: found [\"3.0.0\", \"3.0.1\"]",
        ),
        // Content.
        ("UPDATE rocpd_info_agent$ SET type = 'TPU'".to_owned(), "integrity check: CHECK constraint failed"),
    ] {
        let found = match after(&sql) {
            Ok(report) => report.problems.iter().map(Problem::to_string).collect::<Vec<_>>(),
            // The file is not a RocPD database any more.
            Err(error) => vec![error.to_string()],
        };
        assert!(found.iter().any(|problem| problem.contains(expected)), "{sql}: {found:?}");
    }
    assert_eq!(after("SELECT 1")?.problems, []);
    Ok(())
}

#[test]
fn a_journal_with_content_beside_it_is_refused() -> Outcome {
    for end in ["-journal", "-wal"] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("job.db");
        write_small_job(&path)?;
        let journal = dir.path().join(format!("job.db{end}"));
        fs::write(&journal, "")?;
        assert_eq!(check(&path)?.problems, []);
        fs::write(&journal, "pages")?;
        assert_eq!(check(&path)?.problems, [Problem::Unfinished(journal)]);
    }
    Ok(())
}

#[test]
fn tables_and_indexes_under_other_names_are_listed_and_allowed() -> Outcome {
    let report = after(
        "CREATE TABLE rpd_ext_layer$ (id INTEGER PRIMARY KEY, guid TEXT, op TEXT);
         CREATE TABLE notes (text TEXT);
         CREATE INDEX by_text ON notes (text);",
    )?;
    assert_eq!(report.problems, []);
    assert_eq!(
        report.extras,
        ["index by_text".to_owned(), "table notes".to_owned(), format!("table rpd_ext_layer{SUFFIX}")]
    );
    assert_eq!(report.rows["rpd_ext_layer"], 0);
    Ok(())
}

#[test]
fn every_version_is_compared_with_its_own_tables() -> Outcome {
    let dir = tempfile::tempdir()?;
    for patch in 0..=NEWEST[2] {
        let path = dir.path().join(format!("{patch}.db"));
        of_version(&path, [3, 0, patch])?;
        if patch >= 4 {
            // The columns of this table are not published.
            let missing = check(&path)?.problems;
            assert_eq!(missing, [Problem::MissingTable("rocpd_hip_event".to_owned())]);
            change(
                &path,
                "CREATE TABLE rocpd_hip_event$ (id INTEGER PRIMARY KEY AUTOINCREMENT, what INTEGER)",
            )?;
        }
        if patch == 5 {
            change(&path, "ALTER TABLE rocpd_pmc_event$ ADD COLUMN wgp INTEGER")?;
        }
        let report = check(&path)?;
        assert_eq!((report.problems, report.refused_by_amd), (vec![], vec![]), "3.0.{patch}");
        change(&path, "ALTER TABLE rocpd_kernel_dispatch$ ADD COLUMN x INTEGER")?;
        assert_eq!(check(&path)?.problems.len(), 1, "3.0.{patch}");
    }
    for (patch, sql, expected) in [
        (1, declared("rocpd_info_agent", ", 'NIC'", ""), "'NIC'"),
        (2, "DROP TABLE rocpd_graph_launch$".to_owned(), "table rocpd_graph_launch is missing"),
        (
            2,
            declared("rocpd_memory_copy", "\"graph_node_id\" INTEGER DEFAULT 0", "\"graph_node_id\" INTEGER"),
            "graph_node_id",
        ),
        (3, declared("rocpd_info_pmc", "\"spm_support\" INTEGER", "\"spm_support\" TEXT"), "spm_support"),
        (3, declared("rocpd_pmc_event", "\"xcc\" INTEGER,", ""), "xcc"),
    ] {
        let path = dir.path().join("broken.db");
        of_version(&path, [3, 0, patch])?;
        change(&path, &sql)?;
        let problems = check(&path)?.problems;
        assert!(problems.iter().any(|problem| problem.to_string().contains(expected)), "{sql}: {problems:?}");
        fs::remove_file(&path)?;
    }
    Ok(())
}

#[test]
fn what_inputs_brought_along_is_as_planned_and_not_amds() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("job.db");
    let schema = schema_of([3, 0, 2]).ok_or("not known")?;
    // The database has the tables of 3.0.2, but its metadata names 3.0.1.
    Writer::create_of(&path, &[(&Guid::from_bits(0x5eed)).into()], [3, 0, 1], &schema)?.commit()?;
    let report = check_against(&path, Expected { schema: &schema, version: [3, 0, 1], sets: 1 })?;
    assert_eq!(report.problems, []);
    let refused: Vec<_> = report.refused_by_amd.iter().map(Problem::to_string).collect();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused.iter().any(|why| why == "table rocpd_graph_launch is not in the schema"), "{refused:?}");
    assert_eq!(check(&path)?.problems, report.refused_by_amd);
    Ok(())
}
