//! Tests of malicious schemas.

use super::{empty, make, rows_of, some_rows};
use crate::real::Outcome;
use crate::writer::GUID;
use rpd_rocpd::read::{Database, FileKind, ReadError, Wanted, sniff};
use rpd_shard::model::{Value, rocpd};
use rusqlite::Connection;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time to open a database, or to read it.
const LIMIT: Duration = Duration::from_secs(20);

fn open(path: &Path) -> Result<Database, ReadError> {
    let begin = Instant::now();
    let database = Database::open(path);
    sniff(path);
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    database
}

fn of(sql: &str) -> Outcome<(tempfile::TempDir, Result<Database, ReadError>)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID) + &sql.replace('$', &GUID.suffix())))?;
    let database = open(&path);
    Ok((dir, database))
}

#[test]
fn many_tables_are_refused() -> Outcome {
    // Creating the tables with CREATE TABLE would take minutes.
    let sql = "PRAGMA writable_schema = ON;
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
        INSERT INTO sqlite_master SELECT 'table', 'rocpd_t' || i || '$', 'rocpd_t' || i || '$', 3,
            'CREATE TABLE rocpd_t' || i || '$(id INTEGER PRIMARY KEY)' FROM n;";
    let (_dir, database) = of(sql)?;
    let error = database.map(|_| ()).expect_err("there are too many tables");
    assert!(matches!(error, ReadError::TooMany { what: "tables", .. }), "{error:?}");
    Ok(())
}

#[test]
fn some_hundred_unknown_tables_are_read_and_the_rest_left_out() -> Outcome {
    let mut sql = String::new();
    for n in 0..1000 {
        write!(sql, "CREATE TABLE rocpd_t{n}$(id INTEGER PRIMARY KEY); INSERT INTO rocpd_t{n}$ VALUES (1);")?;
    }
    let (_dir, database) = of(&sql)?;
    let database = database?;
    let set = &database.table_sets()[0];
    let known = rpd_rocpd::schema::tables().count();
    assert_eq!((set.tables.len() - known, set.left_out.len()), (256, 744));
    assert!(set.left_out.iter().all(|table| table.rows == Some(1)));
    assert_eq!(rows_of(&database, 0, "rocpd_t0", Wanted::All)?.len, 1);
    Ok(())
}

#[test]
fn a_table_with_too_many_columns_is_left_out() -> Outcome {
    let columns: Vec<_> = (0..1990).map(|n| format!("c{n} INTEGER")).collect();
    let columns = columns.join(", ");
    let (_dir, database) = of(&format!(
        "CREATE TABLE rocpd_wide$(id INTEGER PRIMARY KEY, {columns}); INSERT INTO rocpd_wide$ (id) VALUES (4);
         DROP TABLE \"rocpd_arg$\"; CREATE TABLE \"rocpd_arg$\"(id INTEGER PRIMARY KEY, {columns});
         CREATE TABLE rocpd_long$(id INTEGER PRIMARY KEY, a TEXT DEFAULT '{}'); INSERT INTO rocpd_long$ (id) VALUES (4);",
        "x".repeat(70_000)
    ))?;
    let database = database?;
    let left_out: Vec<_> =
        database.table_sets()[0].left_out.iter().map(|t| (t.table.as_str(), t.rows, t.why)).collect();
    let why = "it has too many columns";
    let long = "its declaration is too long";
    assert_eq!(
        left_out,
        [("rocpd_wide", Some(1), why), ("rocpd_arg", Some(0), why), ("rocpd_long", Some(1), long)]
    );
    Ok(())
}

/// The schema has endless views with names of tables, triggers, generated columns, and functions as defaults.
#[test]
fn no_code_of_a_schema_is_run() -> Outcome {
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS id FROM n";
    let (_dir, database) = of(&format!(
        r#"DROP TABLE "rocpd_sample$"; CREATE VIEW "rocpd_sample$" AS {endless};
        CREATE VIEW "rocpd_metadata_other" AS {endless};
        CREATE TRIGGER tr AFTER INSERT ON "rocpd_event$" BEGIN SELECT load_extension('x'); END;
        CREATE TABLE "rocpd_computed$" (id INTEGER PRIMARY KEY, a INTEGER,
            v AS (hex(zeroblob(100000000))) VIRTUAL, s TEXT AS (a || 'x') STORED, z INTEGER);
        INSERT INTO "rocpd_computed$" (a, z) VALUES (1, 2);
        CREATE VIRTUAL TABLE "rocpd_fts$" USING fts5(id);
        "#
    ))?;
    let database = database?;
    let set = &database.table_sets()[0];
    assert_eq!(database.table_sets().len(), 1);
    assert_eq!(set.position(rocpd::SAMPLE), None);
    assert!(set.tables.iter().all(|table| table.table.name != "rocpd_fts"));
    let rows = rows_of(&database, 0, "rocpd_computed", Wanted::All)?;
    let names: Vec<_> = rows.table.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a", "z"]);
    assert_eq!((rows.column("a").get(0), rows.column("z").get(0)), (Value::Int(1), Value::Int(2)));
    let warnings = set.warnings.iter().filter(|text| text.contains("is computed and is left out"));
    assert_eq!(warnings.count(), 2);
    Ok(())
}

/// The schema has entries that SQLite never creates.
#[test]
fn a_schema_that_was_tampered_with_is_read_as_far_as_it_makes_sense() -> Outcome {
    let x = GUID.suffix();
    let view = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n";
    for change in [
        format!(
            "UPDATE sqlite_master SET sql = 'CREATE VIEW \"rocpd_arg{x}\" AS {view}' WHERE name = 'rocpd_arg{x}'"
        ),
        format!(
            "UPDATE sqlite_master SET type = 'table', rootpage = 3, name = 'rocpd_arg{x}' WHERE name = 'rocpd_sample'"
        ),
        format!("UPDATE sqlite_master SET rootpage = 1 WHERE name = 'rocpd_arg{x}'"),
        format!("UPDATE sqlite_master SET rootpage = 99999999 WHERE name = 'rocpd_arg{x}'"),
        format!("UPDATE sqlite_master SET rootpage = -5 WHERE name = 'rocpd_arg{x}'"),
        format!("UPDATE sqlite_master SET sql = 'CREATE TABLE nonsense' WHERE name = 'rocpd_arg{x}'"),
        format!(
            "UPDATE sqlite_master SET sql = 'CREATE TABLE other(id INTEGER PRIMARY KEY)' WHERE name = 'rocpd_arg{x}'"
        ),
        format!("UPDATE sqlite_master SET sql = x'00', rootpage = 'x', name = 7 WHERE name = 'rocpd_arg{x}'"),
        format!(
            "INSERT INTO sqlite_master SELECT type, 'rocpd_twin{x}', 'rocpd_twin{x}', rootpage, replace(sql, 'rocpd_region', 'rocpd_twin') FROM sqlite_master WHERE name = 'rocpd_region{x}'"
        ),
        "UPDATE sqlite_master SET sql = NULL".to_owned(),
        "UPDATE sqlite_master SET name = sql".to_owned(),
        "DELETE FROM sqlite_master".to_owned(),
    ] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("a.db");
        make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
        let conn = Connection::open(&path)?;
        conn.execute_batch(&format!("PRAGMA writable_schema = ON; {change};"))?;
        drop(conn);
        let begin = Instant::now();
        match open(&path) {
            // Rows are read or rejected in finite time.
            Ok(database) => {
                for (t, table) in database.table_sets()[0].tables.iter().enumerate() {
                    for piece in &table.pieces {
                        let _ = database.rows(0, t, piece, Wanted::All);
                    }
                }
                assert_eq!(rows_of(&database, 0, "rocpd_region", Wanted::All)?.len, 2, "{change}");
                assert!(
                    !database.damage().is_empty()
                        || !database.table_sets()[0].left_out.is_empty()
                        || database.table_sets()[0].position(rocpd::ARG).is_none(),
                    "{change}"
                );
            }
            Err(error) => assert!(
                matches!(error, ReadError::Schema { .. } | ReadError::NotRocPd(_)),
                "{change}: {error:?}"
            ),
        }
        assert!(begin.elapsed() < LIMIT);
        assert_ne!(sniff(&path), FileKind::LegacyRpd);
    }
    Ok(())
}
