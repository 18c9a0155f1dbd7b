//! Compares the generated views with AMD's, on AMD's own files.

use crate::real::{Outcome, real_databases, rows, texts};
use rpd_rocpd::{Guid, schema};
use rusqlite::Connection;
use std::collections::BTreeMap;

type Views = BTreeMap<String, (Vec<String>, Vec<String>)>;

fn data_views(conn: &Connection) -> Outcome<Vec<String>> {
    texts(
        conn,
        "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT GLOB 'rocpd_*' ORDER BY name",
    )
}

fn read_views(conn: &Connection) -> Outcome<Views> {
    let mut views = Views::new();
    for name in data_views(conn)? {
        let (columns, mut lines) = rows(conn, &format!("SELECT * FROM {name}"))?;
        lines.sort();
        views.insert(name, (columns, lines));
    }
    Ok(views)
}

/// Returns the statements that create the generated data views.
fn our_data_views() -> String {
    let sql = schema::create_all(&Guid::from_bits(0));
    sql[sql.find("CREATE VIEW code_objects").unwrap_or(0)..].to_owned()
}

fn compare(conn: &Connection, what: &str) -> Outcome<BTreeMap<String, usize>> {
    let theirs = read_views(conn)?;
    conn.execute_batch("SAVEPOINT views")?;
    for name in theirs.keys() {
        conn.execute_batch(&format!("DROP VIEW {name}"))?;
    }
    conn.execute_batch(&our_data_views())?;
    let ours = read_views(conn)?;
    conn.execute_batch("ROLLBACK TO views; RELEASE views")?;
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{what}");
    for (name, (columns, lines)) in &theirs {
        let (our_columns, our_lines) = &ours[name];
        let further = if name == "busy" { &["agent_abs_index", "nid", "pid"][..] } else { &[] };
        let expected: Vec<&str> = columns.iter().map(String::as_str).chain(further.iter().copied()).collect();
        assert_eq!(*our_columns, expected, "{what}: columns of {name}");
        assert_eq!(our_lines.len(), lines.len(), "{what}: rows of {name}");
        for (ours, theirs) in our_lines.iter().zip(lines) {
            match further.is_empty() {
                true => assert_eq!(ours, theirs, "{what}: {name}"),
                false => assert!(ours.starts_with(&format!("{theirs} | ")), "{what}: {ours} of {name}"),
            }
        }
    }
    Ok(theirs.into_iter().map(|(name, (_, lines))| (name, lines.len())).collect())
}

/// Changes after which every optional join has missing rows and every view has some rows.
const DAMAGE: [&str; 14] = [
    "UPDATE rocpd_event SET category_id = NULL WHERE id % 11 = 0",
    "UPDATE rocpd_region SET event_id = NULL WHERE id % 7 = 0",
    "UPDATE rocpd_region SET name_id = 99999 WHERE id % 13 = 0",
    "UPDATE rocpd_region SET tid = 99999 WHERE id % 17 = 0",
    "UPDATE rocpd_kernel_dispatch SET queue_id = 99999, stream_id = 99999 WHERE id % 5 = 0",
    "UPDATE rocpd_kernel_dispatch SET stream_id = 99999 WHERE id % 3 = 0",
    "UPDATE rocpd_kernel_dispatch SET region_name_id = NULL WHERE id % 7 = 0",
    "UPDATE rocpd_kernel_dispatch SET kernel_id = 99999 WHERE id % 19 = 0",
    "UPDATE rocpd_memory_copy SET src_agent_id = NULL, region_name_id = NULL, queue_id = NULL WHERE id % 4 = 0",
    "UPDATE rocpd_memory_allocate SET agent_id = NULL, level = 'SCRATCH', extdata = '{\"flags\": 3}' WHERE id % 3 = 0",
    "UPDATE rocpd_memory_allocate SET queue_id = 0, stream_id = 0, level = 'SCRATCH' WHERE id % 5 = 0",
    "UPDATE rocpd_arg SET name = 'stream', extdata = '{\"stream_id\": ' || (id % 6) || '}' WHERE id % 3 = 0",
    "UPDATE rocpd_track SET name_id = NULL WHERE id % 2 = 0",
    "UPDATE rocpd_info_code_object SET agent_id = NULL WHERE id % 2 = 0",
];

#[test]
fn every_view_has_the_columns_and_rows_of_amds() -> Outcome {
    let dir = tempfile::tempdir()?;
    for path in real_databases(dir.path())? {
        let conn = Connection::open(&path)?;
        compare(&conn, "as it is")?;

        conn.execute_batch("PRAGMA foreign_keys = OFF")?;
        let suffix = texts(&conn, "SELECT value FROM rocpd_metadata WHERE tag = 'uuid'")?.concat();
        for sql in DAMAGE {
            let (table, rest) = sql.trim_start_matches("UPDATE ").split_once(' ').ok_or("no table")?;
            assert!(conn.execute(&format!("UPDATE {table}{suffix} {rest}"), [])? > 0, "{sql}");
        }
        let counts = compare(&conn, "with rows missing")?;
        assert!(counts.values().all(|rows| *rows > 0), "a view has nothing to compare: {counts:?}");
    }
    Ok(())
}

#[test]
fn the_summary_views_are_ordered_by_time() -> Outcome {
    let dir = tempfile::tempdir()?;
    for path in real_databases(dir.path())? {
        let conn = Connection::open(&path)?;
        let by_time = |view: &str| rows(&conn, &format!("SELECT total_duration FROM {view}"));
        let theirs = (by_time("top")?, by_time("top_kernels")?);
        conn.execute_batch("DROP VIEW top; DROP VIEW top_kernels")?;
        for view in ["top_kernels", "top"] {
            let sql = our_data_views();
            let start = sql.find(&format!("CREATE VIEW {view} AS")).ok_or("no view")?;
            let length = sql[start..].find(';').ok_or("no end")?;
            conn.execute_batch(&sql[start..start + length])?;
        }
        assert_eq!((by_time("top")?, by_time("top_kernels")?), theirs);
    }
    Ok(())
}
