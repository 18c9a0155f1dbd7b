//! Tests that rows are read with the values that SQLite returns.

use super::{empty, lines, make, rows_of, show, some_rows};
use crate::real::{Outcome, real_databases};
use crate::writer::{GUID, write_small_job};
use rpd_rocpd::read::{Database, FileKind, Piece, Wanted, sniff};
use rpd_shard::model::{Cells, Kind, Schema, Value};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Returns the rows of a table in the form of [`lines`], read with plain SQL. Columns that are NULL in all rows are
/// absent when read from pages, so that both are `NULL` here.
fn expected(path: &Path, database: &Database, set: usize, table: usize) -> Outcome<Vec<String>> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let Some(set) = database.table_sets().get(set) else { return Err("no such set".into()) };
    let table = &set.tables[table].table;
    let names: Vec<_> = table.columns.iter().map(|c| format!("\"{}\"", c.name)).collect();
    let sql = format!("SELECT id, {} FROM \"{}{}\" ORDER BY id", names.join(", "), table.name, set.suffix);
    let mut query = conn.prepare(&sql)?;
    let lines = query.query_map([], |row| {
        let mut line = row.get::<_, i64>(0)?.to_string();
        for (i, column) in table.columns.iter().enumerate() {
            let value = match row.get_ref(i + 1)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(v) => Value::Int(v),
                ValueRef::Real(v) => Value::Real(v),
                ValueRef::Text(v) => Value::Text(v),
                ValueRef::Blob(v) => Value::Blob(v),
            };
            line += &format!(" {}={}", column.name, show(value));
        }
        Ok(line)
    })?;
    Ok(lines.collect::<Result<_, _>>()?)
}

/// Compares every table of every table set, read by pages and by SQLite, with plain SQL. Returns the number of rows.
fn check_all(path: &Path) -> Outcome<usize> {
    let (fast, slow) = (Database::open(path)?, Database::open_with_sqlite(path)?);
    assert!(fast.is_fast() && !slow.is_fast());
    let rows = check(path, &fast)?;
    assert_eq!(check(path, &slow)?, rows);
    assert_eq!(format!("{:?}", without_pieces(&fast)), format!("{:?}", without_pieces(&slow)));
    assert_eq!(sniff(path), FileKind::RocPd);
    Ok(rows)
}

/// Returns everything about the table sets except the pieces.
fn without_pieces(database: &Database) -> impl std::fmt::Debug {
    let facts = database.table_sets().iter().map(|s| {
        let tables: Vec<_> = s.tables.iter().map(|t| &t.table).collect();
        (
            (&s.suffix, &s.guid, s.version, &s.tags),
            (tables, s.schema.tables(), &s.nodes, &s.processes, &s.warnings),
        )
    });
    facts.collect::<Vec<_>>()
}

fn check(path: &Path, database: &Database) -> Outcome<usize> {
    let mut rows = 0;
    for (s, set) in database.table_sets().iter().enumerate() {
        assert_eq!((&set.warnings, &set.left_out), (&vec![], &vec![]));
        for t in 0..set.tables.len() {
            // In a complete schema, absent is equal to NULL because the column has no default.
            let read: Vec<_> =
                lines(database, s, t)?.iter().map(|l| l.replace("=default", "=NULL")).collect();
            let wanted = expected(path, database, s, t)?;
            assert_eq!(read, wanted, "{} of {}", set.tables[t].table.name, path.display());
            rows += read.len();
        }
    }
    assert_eq!(database.damage(), &[] as &[String]);
    Ok(rows)
}

#[test]
fn real_databases_are_read_as_sql_does() -> Outcome {
    let dir = tempfile::tempdir()?;
    for path in real_databases(dir.path())? {
        assert!(check_all(&path)? > 10_000);
        let database = Database::open(&path)?;
        let tables: Vec<_> = database.table_sets()[0].tables.iter().map(|t| &t.table).collect();
        assert_eq!(tables, Schema::builtin().rocpd_tables().collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
fn what_we_write_is_read_again() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("ours.db");
    write_small_job(&path)?;
    assert!(check_all(&path)? > 20);
    Ok(())
}

#[test]
fn numbers_in_real_columns_are_real_numbers() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
    check_all(&path)?;
    let rows = rows_of(&Database::open(&path)?, 0, "rocpd_pmc_event", Wanted::All)?;
    let values: Vec<_> = (0..3).map(|row| rows.column("value").get(row)).collect();
    assert_eq!(values, [Value::Real(18446744073709551615.0), Value::Real(3.0), Value::Null]);
    Ok(())
}

#[test]
fn only_ids_are_read_if_only_links_are_wanted() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
    let database = Database::open(&path)?;
    for (t, table) in database.table_sets()[0].tables.iter().enumerate() {
        for piece in &table.pieces {
            let all = database.rows(0, t, piece, Wanted::All)?;
            let links = database.rows(0, t, piece, Wanted::Links)?;
            assert_eq!(all.keys, links.keys);
            for (i, column) in table.table.columns.iter().enumerate() {
                let is_link = matches!(column.kind, Kind::Ref(_) | Kind::Str | Kind::Stack);
                let wanted = if is_link { &all.columns[i] } else { &Cells::Absent };
                assert_eq!(&links.columns[i], wanted, "{}.{}", table.table.name, column.name);
            }
        }
    }
    Ok(())
}

/// A table with several pieces: they ascend and cover all rows, and so do their parts. Many threads read them at
/// once.
#[test]
fn pieces_are_all_rows_in_any_number_of_threads() -> Outcome {
    const ROWS: usize = 100_000;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    let events = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO \"rocpd_event{}\" (id, category_id, stack_id, correlation_id, extdata)
         SELECT 3 * i - 100, 7, i, i % 7, printf('{{\"message\": \"%d\"}}', i % 100) FROM n;",
        GUID.suffix()
    );
    make(&path, &(empty(&GUID, "3.0.0") + &events))?;
    many_threads(&Database::open(&path)?, ROWS)?;
    many_threads(&Database::open_with_sqlite(&path)?, ROWS)
}

fn many_threads(database: &Database, events: usize) -> Outcome {
    let table = database.table_sets()[0].position(rpd_shard::model::rocpd::EVENT).ok_or("no events")?;
    let pieces = &database.table_sets()[0].tables[table].pieces;
    assert!(pieces.len() > 2, "{} pieces", pieces.len());
    let keys = |pieces: &[Piece]| -> Result<Vec<i64>, String> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = pieces
                .iter()
                .map(|piece| scope.spawn(move || database.rows(0, table, piece, Wanted::Links)))
                .collect();
            let mut keys = Vec::new();
            for thread in threads {
                let rows = thread.join().map_err(|_| "a panic")?.map_err(|e| e.to_string())?;
                keys.extend((0..rows.len).map(|i| rows.keys.get(i)));
            }
            Ok(keys)
        })
    };
    let wanted: Vec<i64> = (1..=events as i64).map(|i| 3 * i - 100).collect();
    assert_eq!(keys(pieces)?, wanted);
    let parts: Vec<Piece> = pieces[..2].iter().flat_map(Piece::split).collect();
    let of_two = keys(&pieces[..2])?;
    for some in parts.chunks(64) {
        database.release();
        assert!(of_two.starts_with(&keys(&parts[..some.len()])?));
    }
    let mut found = Vec::new();
    for some in parts.chunks(64) {
        found.extend(keys(some)?);
    }
    assert_eq!(found, of_two);
    Ok(())
}

#[test]
fn files_are_closed_when_they_are_released() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
    let open_files = || -> Outcome<usize> {
        let links = std::fs::read_dir("/proc/self/fd")?;
        Ok(links
            .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok())
            .filter(|to| *to == path)
            .count())
    };
    let database = Database::open(&path)?;
    rows_of(&database, 0, "rocpd_event", Wanted::All)?;
    assert!(open_files()? > 0);
    database.release();
    assert_eq!(open_files()?, 0);
    assert_eq!(rows_of(&database, 0, "rocpd_event", Wanted::All)?.len, 3);
    std::fs::OpenOptions::new().append(true).open(&path)?.set_len(4096)?;
    database.release();
    let error = rows_of(&database, 0, "rocpd_event", Wanted::All).map(|_| ()).expect_err("it was cut");
    assert!(error.to_string().contains("changed while it was read"), "{error}");
    std::fs::remove_file(&path)?;
    database.release();
    let error = rows_of(&database, 0, "rocpd_event", Wanted::All).map(|_| ()).expect_err("it is gone");
    assert!(error.to_string().contains("check that it exists"), "{error}");
    Ok(())
}

#[test]
fn what_pages_do_not_tell_is_read_by_sqlite() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("utf16.db");
    make(
        &path,
        &format!(
            "COMMIT; PRAGMA encoding = 'UTF-16le'; BEGIN; {}{}",
            empty(&GUID, "3.0.0"),
            some_rows(&GUID)
        ),
    )?;
    let database = Database::open(&path)?;
    assert!(!database.is_fast());
    check(&path, &database)?;
    assert_eq!(database.table_sets()[0].processes[0].rank, Some(3));
    assert_eq!(sniff(&path), FileKind::RocPd);
    Ok(())
}
