//! Synthetic databases as input: by their pages and by SQLite they are the same rows of the same processes.

use rpd_rocpd::read::{Database as Input, Wanted};
use rpd_shard::model::{Cells, OwnedValue, Value};
use rpd_tests::databases::DatabaseJob;
use rpd_tests::harness::Database;
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use rusqlite::Connection;

/// A table: key and values of each row. A column that is absent is NULL in all of them.
fn rows(database: &Input, table: usize, wanted: Wanted) -> Vec<(i64, Vec<OwnedValue>)> {
    let mut rows = Vec::new();
    for piece in &database.table_sets()[0].tables[table].pieces {
        let read = database.rows(0, table, piece, wanted).unwrap();
        let values = |row| read.columns.iter().map(|cells: &Cells| cells.get(row).to_owned()).collect();
        rows.extend((0..read.len).map(|row| (read.keys.get(row), values(row))));
    }
    rows
}

#[test]
fn pages_and_sqlite_give_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun { events_per_rank: 3000, workers: true, ..SyntheticRun::default() }.plan();
    let files = write_rocpd(&run, folder.path()).unwrap();
    for (file, process) in files.iter().zip(run.processes()) {
        let (fast, slow) = (Input::open(file).unwrap(), Input::open_with_sqlite(file).unwrap());
        assert!(fast.is_fast() && !slow.is_fast());
        let (set, other) = (&fast.table_sets()[0], &slow.table_sets()[0]);
        assert_eq!((&set.warnings, fast.damage()), (&vec![], &[][..]));
        assert_eq!((&set.guid, &set.tags), (&other.guid, &other.tags));
        assert_eq!((&set.nodes, &set.processes), (&other.nodes, &other.processes));
        assert_eq!(set.processes[0].rank, Some(process.rank));
        let mut all = 0;
        for (table, described) in set.tables.iter().enumerate() {
            assert_eq!(described.table, other.tables[table].table);
            for wanted in [Wanted::All, Wanted::Links] {
                let found = rows(&fast, table, wanted);
                assert_eq!(found, rows(&slow, table, wanted), "{}", described.table.name);
                assert!(found.is_sorted_by_key(|(key, _)| *key));
                all += found.len();
            }
        }
        assert!(all > 1000, "{all}");
        let texts = rows(&fast, 0, Wanted::All);
        assert!(texts.iter().all(|(_, row)| matches!(row[0].as_value(), Value::Text(_))));
    }
}

#[test]
fn tables_with_odd_names_come_along_and_are_verified() {
    let names = ["a\nb", "a\"b", "a'b", "a`b[c", "a%b\\c d"];
    let job = DatabaseJob::small();
    let conn = Connection::open(&job.inputs[0]).unwrap();
    let uuid: String =
        conn.query_row("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'", [], |row| row.get(0)).unwrap();
    for name in names {
        let quoted = name.replace('"', "\"\"");
        let sql = format!(
            "CREATE TABLE \"rocpd_{quoted}{uuid}\" (id INTEGER PRIMARY KEY AUTOINCREMENT, guid TEXT, \"{quoted}\" TEXT UNIQUE,
                event_id INTEGER REFERENCES \"rocpd_event{uuid}\" (id));
             INSERT INTO \"rocpd_{quoted}{uuid}\" (id, \"{quoted}\", event_id)
                SELECT 70, 'text', min(id) FROM \"rocpd_event{uuid}\";"
        );
        conn.execute_batch(&sql).unwrap();
    }
    for layout in ["merged", "partitioned"] {
        let outcome = job.merge(&["--verify", "--strict", "--layout", layout]).success();
        assert!(outcome.stderr.contains("integrity_check and foreign_key_check: ok"), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("AMD's strict validators refuse: table rocpd_a"),
            "{}",
            outcome.stderr
        );
        let database = Database::open(&job.output());
        for name in names {
            let quoted = name.replace('"', "\"\"");
            let sql =
                format!("SELECT \"{quoted}\" FROM \"rocpd_{quoted}\" JOIN rocpd_event e ON e.id = event_id");
            assert_eq!(database.rows(&sql), [["'text'"]], "{name}");
        }
    }
}

#[test]
fn tables_that_a_user_added_are_named_with_their_rows() {
    let job = DatabaseJob::small();
    let conn = Connection::open(&job.inputs[1]).unwrap();
    conn.execute_batch(
        "CREATE TABLE notes (a); INSERT INTO notes VALUES (1), (2), (3); CREATE TABLE \"no\nrows\" (a);
         CREATE VIEW mine AS SELECT * FROM notes; CREATE INDEX by_a ON notes (a);",
    )
    .unwrap();
    drop(conn);
    let outcome = job.merge(&["--json"]).success();
    let told = "table notes is left out: it is none of RocPD's (3 rows)";
    assert_eq!(outcome.stderr.matches(told).count(), 1, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("no\\nrows"), "{}", outcome.stderr);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let rows: Vec<_> = report["losses"].as_array().unwrap().iter().map(|loss| &loss["rows"]).collect();
    assert_eq!(rows, [3], "{report}");
    assert_eq!(job.merge(&["--strict"]).code(), Some(3));
}
