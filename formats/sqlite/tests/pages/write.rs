//! The writer produces the same rows as SQLite.

use crate::read::root_of;
use crate::support::*;
use proptest::prelude::*;
use rpd_shard::model::{Cells, Keys, OwnedValue, Value};
use rpd_sqlite::read::{PageDatabase, Wanted};
use rpd_sqlite::write::{Affinity, Field, LeafWriter, LogicalPage, PAGE_SIZE, PageMemory, PlacedRun};
use std::sync::Arc;

/// Writes the same rows to a database with this crate and to another with SQLite inserts, and compares them.
fn both(tables: &[Vec<TestTable>]) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..tables.len()).map(|i| format!("t{i}")).collect();
    let ddl: Vec<String> = names.iter().zip(tables).map(|(name, pieces)| pieces[0].ddl(name) + ";").collect();
    let theirs = create(&folder.path().join("theirs.db"), &ddl.concat());
    let path = folder.path().join("ours.db");
    let ours = create(&path, &ddl.concat());
    let roots: Vec<u32> = names.iter().map(|name| root(&ours, name)).collect();
    let pages = page_count(&ours);
    drop(ours);
    let filled: Vec<_> = roots.iter().copied().zip(tables.iter().map(Vec::as_slice)).collect();
    fill(&path, pages, &filled);
    let ours = create(&path, "");
    prop_assert_eq!(integrity(&ours), "ok");
    for (name, pieces) in names.iter().zip(tables) {
        theirs.execute_batch("BEGIN").unwrap();
        pieces.iter().for_each(|piece| piece.insert(&theirs, name));
        theirs.execute_batch("COMMIT").unwrap();
        let columns = pieces[0].types.len();
        let (ours, theirs) = (seen(&ours, name, columns), seen(&theirs, name, columns));
        prop_assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            prop_assert_eq!(ours.0, theirs.0);
            for (ours, theirs) in ours.1.iter().zip(&theirs.1) {
                prop_assert!(ours == theirs || same_number(ours, theirs), "{ours:?} for {theirs:?}");
            }
        }
    }
    // The records have the same serial types; SQLite does not report them for columns of REAL affinity.
    for (name, pieces) in names.iter().zip(tables) {
        let columns = pieces[0].types.len();
        let [ours, theirs] = ["ours.db", "theirs.db"].map(|file| {
            let database = PageDatabase::open(&folder.path().join(file)).unwrap();
            let leaves = database.leaves(root_of(&database, name)).pages;
            database.rows(&leaves, &vec![Wanted::Value { default: Value::Null }; columns + 1]).unwrap()
        });
        prop_assert_eq!(&ours.keys, &theirs.keys);
        for (declared, (ours, theirs)) in
            pieces[0].types.iter().zip(ours.columns[1..].iter().zip(&theirs.columns[1..]))
        {
            if *declared == "REAL" {
                let rows: usize = pieces.iter().map(|piece| piece.rows).sum();
                (0..rows).try_for_each(|row| {
                    prop_assert_eq!(ours.get(row), theirs.get(row));
                    Ok(())
                })?;
            }
        }
    }
    // The file can be changed like any other database.
    ours.execute_batch(
        "CREATE TABLE later (text TEXT UNIQUE);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
         INSERT INTO later SELECT 'text number ' || i FROM n;
         INSERT INTO t0 (id) SELECT max(id) + 1 FROM t0 HAVING count(*) > 0;
         DELETE FROM t0 WHERE id IN (SELECT id FROM t0 LIMIT 20);",
    )
    .unwrap();
    prop_assert_eq!(integrity(&ours), "ok");
    Ok(())
}

/// Returns whether both are texts of one floating-point number. SQLite computes the 17th digit from 64 bits of the
/// power of ten, and sometimes the digit is one less.
fn same_number(ours: &(String, OwnedValue), theirs: &(String, OwnedValue)) -> bool {
    let (OwnedValue::Text(ours), OwnedValue::Text(theirs)) = (&ours.1, &theirs.1) else { return false };
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<f64>().ok();
    let close = |a: f64, b: f64| (a - b).abs() <= a.abs() * 2e-16;
    ours.len().abs_diff(theirs.len()) <= 18
        && number(ours).zip(number(theirs)).is_some_and(|(a, b)| close(a, b))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_sqlite_stores_it(tables in proptest::collection::vec(table(0..60), 1..4)) {
        both(&tables)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    /// Stores the same values in a column of each affinity.
    #[test]
    fn affinities(values in proptest::collection::vec(value(), 300)) {
        let types = vec!["INTEGER", "TEXT", "JSONB", "REAL", "BLOB"];
        let columns = vec![Cells::Any(values); types.len()];
        both(&[vec![TestTable { types, keys: Keys::Dense(1), columns, rows: 300 }]])?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pages do not depend on how rows are split over calls.
    #[test]
    fn rows_one_by_one_make_the_same_pages(pieces in table(0..60)) {
        let table = &pieces[0];
        let mut whole = LeafWriter::default();
        whole.append(&table.keys, &table.fields(), table.rows).unwrap();
        let mut single = LeafWriter::default();
        for row in 0..table.rows {
            let columns: Vec<Cells> =
                table.columns.iter().map(|cells| Cells::Any(vec![cells.get(row).to_owned()])).collect();
            let one = TestTable { types: table.types.clone(), keys: Keys::Dense(table.keys.get(row)), columns, rows: 1 };
            single.append(&one.keys, &one.fields(), 1).unwrap();
        }
        let (whole, single) = (whole.finish(), single.finish());
        prop_assert_eq!(whole.pages(), single.pages());
        prop_assert!(written(&whole.place(LogicalPage::after(1)).unwrap())
            == written(&single.place(LogicalPage::after(1)).unwrap()));
    }
}

/// Returns offsets and pages, and the last rowid of each leaf.
fn written(run: &PlacedRun) -> (Vec<(u64, Vec<u8>)>, Vec<i64>) {
    let pages = run.pieces().flat_map(|(offset, bytes)| {
        let page = move |(i, page): (usize, &[u8])| (offset + (i * PAGE_SIZE) as u64, page.to_vec());
        bytes.chunks(PAGE_SIZE).enumerate().map(page)
    });
    (pages.collect(), run.leaves().map(|(_, rowid)| rowid).collect())
}

#[test]
fn nothing_is_left_of_what_the_memory_held_before() {
    let memory = Arc::new(PageMemory::new(16 << 20));
    let run = |memory: &Arc<PageMemory>, text: &str, rows: usize| {
        let mut writer = LeafWriter::new(memory.clone());
        let text = Field::Same { value: Value::Text(text.as_bytes()), affinity: Affinity::Text };
        writer.append(&Keys::Dense(1), &[Field::Key, text], rows).unwrap();
        writer.finish().place(LogicalPage::after(1)).unwrap()
    };
    for _ in 0..2 {
        run(&memory, &"x".repeat(700), 2_000).recycle(&memory);
    }
    for (text, rows) in
        [("", 40_000), ("a few words", 9_999), (&*"y".repeat(3_000), 300), (&*"z".repeat(9_000), 90)]
    {
        let used = run(&memory, text, rows);
        assert!(used.pages() > 40, "{}", used.pages());
        assert!(used.pieces().all(|(_, bytes)| bytes.as_ptr().align_offset(PAGE_SIZE) == 0));
        assert!(written(&used) == written(&run(&Arc::default(), text, rows)), "{rows} rows");
        used.recycle(&memory);
    }
}

#[test]
fn a_file_that_was_written_more_often_is_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let [once, often] = ["once", "often"].map(|name| folder.path().join(name));
    for path in [&once, &often] {
        let conn = rusqlite::Connection::open(path).unwrap();
        conn.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2);").unwrap();
    }
    for value in [5, 2] {
        let conn = rusqlite::Connection::open(&often).unwrap();
        conn.execute("UPDATE t SET x = ? WHERE rowid = 2", [value]).unwrap();
    }
    assert!(std::fs::read(&once).unwrap() != std::fs::read(&often).unwrap());
    for path in [&once, &often] {
        rpd_sqlite::write::reset_change_counter(path).unwrap();
        let conn = rusqlite::Connection::open(path).unwrap();
        let sum = conn.query_row("SELECT sum(x) FROM t", [], |row| row.get::<_, i64>(0)).unwrap();
        let pages = conn.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((sum, pages), (3, 2));
    }
    assert!(std::fs::read(&once).unwrap() == std::fs::read(&often).unwrap());
    assert!(rpd_sqlite::write::reset_change_counter(&folder.path().join("missing")).is_err());
}
