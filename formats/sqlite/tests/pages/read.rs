//! The reader returns the same rows as SQLite.

use crate::support::*;
use proptest::prelude::*;
use rpd_shard::model::{Cells, OwnedValue, Value};
use rpd_sqlite::read::{PageDatabase, TableRows, Wanted};
use rusqlite::Connection;
use std::path::Path;

pub(crate) fn root_of(database: &PageDatabase, table: &str) -> u32 {
    database.schema().unwrap().iter().find(|row| row.name == table).unwrap().root
}

/// Reads all rows of a table; column 0 is its key.
fn rows(database: &PageDatabase, table: &str, columns: usize, split: usize) -> Vec<TableRows> {
    let leaves = database.leaves(root_of(database, table));
    assert!(leaves.damage.is_empty(), "{:?}", leaves.damage);
    let mut wanted = vec![Wanted::RowidAlias];
    wanted.resize(columns + 1, Wanted::Value { default: Value::Null });
    leaves.pages.chunks(split).map(|pages| database.rows(pages, &wanted).unwrap()).collect()
}

/// Compares with the rows that SQLite reads. SQLite returns integers in columns of REAL affinity as floating-point
/// numbers.
fn compare(batches: &[TableRows], seen: &[Seen]) -> Result<(), TestCaseError> {
    let all = batches.iter().flat_map(|batch| (0..batch.len).map(move |row| (batch, row)));
    let mut count = 0;
    for ((batch, row), (rowid, values)) in all.zip(seen) {
        count += 1;
        prop_assert_eq!(batch.keys.get(row), *rowid);
        prop_assert_eq!(batch.columns[0].int(row), Some(*rowid));
        prop_assert_eq!(batch.columns.len(), values.len() + 1);
        for (cells, (_, value)) in batch.columns[1..].iter().zip(values) {
            match (cells.get(row), value) {
                (Value::Int(ours), OwnedValue::Real(theirs)) => prop_assert_eq!(ours as f64, *theirs),
                (ours, theirs) => prop_assert_eq!(ours.to_owned(), theirs.clone()),
            }
        }
    }
    prop_assert_eq!(count, seen.len());
    prop_assert_eq!(batches.iter().map(|batch| batch.len).sum::<usize>(), seen.len());
    Ok(())
}

/// Lets SQLite create a database with pages of this size.
fn create_with(path: &Path, page_size: u32, sql: &str) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch(&format!("PRAGMA page_size = {page_size}; PRAGMA synchronous = OFF;")).unwrap();
    db.execute_batch(sql).unwrap();
    db
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_sqlite_reads_it(
        pieces in table(0..60),
        size in 9u32..17,
        split in 1usize..20,
        added in proptest::option::of(0usize..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs.db");
        let db = create_with(&path, 1 << size, &pieces[0].ddl("t0"));
        pieces.iter().for_each(|piece| piece.insert(&db, "t0"));
        let mut columns = pieces[0].types.len();
        if let Some(rows) = added {
            // Rows from before have one column less.
            db.execute_batch(&format!("ALTER TABLE t0 ADD COLUMN c{columns} TEXT;")).unwrap();
            columns += 1;
            for row in 0..rows {
                let sql = format!("UPDATE t0 SET c{} = 'added' WHERE id = ?", columns - 1);
                let key = (row < pieces[0].rows).then(|| pieces[0].keys.get(row));
                db.execute(&sql, [key]).unwrap();
            }
        }
        let seen = seen(&db, "t0", columns);
        drop(db);
        let database = PageDatabase::open(&path).unwrap();
        prop_assert_eq!(database.truncated_pages(), 0);
        compare(&rows(&database, "t0", columns, split), &seen)?;
    }
}

#[test]
fn uniform_columns_have_a_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    create(
        &path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, i INT, n INT, r REAL, s TEXT, m);
         WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 1000)
         INSERT INTO t SELECT i, i * i, iif(i % 3, NULL, i), i / 2.0, 'text ' || (i % 5), iif(i = 900, 'a', i) FROM k;
         ALTER TABLE t ADD COLUMN d INT DEFAULT 7;",
    );
    let database = PageDatabase::open(&path).unwrap();
    let default = Value::Null;
    let wanted = [
        Wanted::Skip,
        Wanted::Value { default },
        Wanted::Value { default },
        Wanted::Real { default },
        Wanted::Value { default },
        Wanted::Value { default },
        Wanted::Value { default: Value::Int(7) },
    ];
    let rows = database.rows(&database.leaves(root_of(&database, "t")).pages, &wanted).unwrap();
    assert_eq!(rows.len, 1000);
    assert_eq!(rows.keys, rpd_shard::model::Keys::Dense(1));
    assert_eq!(rows.columns[0], Cells::Absent);
    assert_eq!(rows.columns[1], Cells::ints((1..=1000).map(|i| i * i).collect()));
    assert!(matches!(rows.columns[2], Cells::Int { .. }));
    assert_eq!(rows.columns[2].filled(1000), 333);
    assert!(matches!(&rows.columns[3], Cells::Real { values, .. } if values[1] == 1.0 && values[2] == 1.5));
    assert!(matches!(&rows.columns[4], Cells::Text(text) if text.ends.len() == 5));
    assert!(matches!(rows.columns[5], Cells::Any(_)));
    assert_eq!(rows.columns[6], Cells::ints(vec![7; 1000]));
}
