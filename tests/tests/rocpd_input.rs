//! Synthetic databases as input: by their pages and by SQLite they are the same rows of the same processes.
#![allow(missing_docs, clippy::unwrap_used)]

use rpd_rocpd::read::{Database, Wanted};
use rpd_shard::model::{Cells, OwnedValue, Value};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};

/// A table: key and values of each row. A column that is absent is NULL in all of them.
fn rows(database: &Database, table: usize, wanted: Wanted) -> Vec<(i64, Vec<OwnedValue>)> {
    let mut rows = Vec::new();
    for piece in &database.spaces()[0].tables[table].pieces {
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
        let (fast, slow) = (Database::open(file).unwrap(), Database::open_with_sqlite(file).unwrap());
        assert!(fast.is_fast() && !slow.is_fast());
        let (space, other) = (&fast.spaces()[0], &slow.spaces()[0]);
        assert_eq!((&space.warnings, fast.damage()), (&vec![], &[][..]));
        assert_eq!((&space.guid, &space.tags), (&other.guid, &other.tags));
        assert_eq!((&space.nodes, &space.processes), (&other.nodes, &other.processes));
        assert_eq!(space.processes[0].rank, Some(process.rank));
        let mut all = 0;
        for (table, described) in space.tables.iter().enumerate() {
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
