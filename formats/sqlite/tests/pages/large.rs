//! Tests files beyond 1 GiB and trees of several levels.

use crate::support::*;
use rpd_shard::model::{Cells, Keys, Value};
use rpd_sqlite::read::{PageDatabase, Wanted};
use rpd_sqlite::write::{Affinity, Field, LeafWriter, LogicalPage, PlacedRun, SealError, Sealer};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Page of the lock byte.
const LOCK_PAGE: u32 = 262_145;
const PAGE: u64 = 4096;

/// Extends a database to `pages` pages and adds all new pages to the freelist. The file stays sparse.
fn lengthen(path: &Path, from: u32, pages: u32) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(u64::from(pages) * PAGE).unwrap();
    let free: Vec<u32> = (from + 1..=pages).collect();
    let mut trunk = 0u32;
    for chunk in free.chunks(1000) {
        let numbers = [trunk, chunk.len() as u32 - 1].into_iter().chain(chunk[1..].iter().copied());
        let bytes: Vec<u8> = numbers.flat_map(u32::to_be_bytes).collect();
        file.write_all_at(&bytes, u64::from(chunk[0] - 1) * PAGE).unwrap();
        trunk = chunk[0];
    }
    let header = [pages, trunk, free.len() as u32];
    let bytes: Vec<u8> = header.into_iter().flat_map(u32::to_be_bytes).collect();
    file.write_all_at(&bytes, 28).unwrap();
}

#[test]
fn the_lock_page_stays_unused_in_a_tree_of_three_levels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.db");
    let db = create(
        &path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c0 TEXT, c1); CREATE TABLE u (id INTEGER PRIMARY KEY, c0);",
    );
    let (root, other, pages) = (root(&db, "t"), root(&db, "u"), page_count(&db));
    drop(db);
    let base = LOCK_PAGE - 10;
    lengthen(&path, pages, base);
    // One row per leaf, keys of 9 bytes in interior pages; every 100th row has two overflow pages.
    let rows = 75_000;
    let long = vec![b'x'; 10_000];
    let file = File::options().write(true).open(&path).unwrap();
    let mut end = LogicalPage::after(base);
    let mut runs = Vec::new();
    for first in (0..rows).step_by(25_000) {
        let mut writer = LeafWriter::default();
        for row in (first..first + 25_000).step_by(100) {
            let key = i64::MIN + row;
            let numbers = Cells::ints((row..row + 100).collect());
            let field =
                |value| [Field::Key, Field::Same { value: Value::Text(value), affinity: Affinity::Text }];
            let numbers = Field::Cells { cells: &numbers, null: Value::Null, affinity: Affinity::Blob };
            let short = [&field(&long[..3000])[..], &[numbers]].concat();
            writer.append(&Keys::Dense(key), &short, 99).unwrap();
            let long =
                [&field(&long)[..], &[Field::Same { value: Value::Null, affinity: Affinity::Blob }]].concat();
            writer.append(&Keys::Dense(key + 99), &long, 1).unwrap();
        }
        let run = writer.finish().place(end).unwrap();
        run.write_to(&file).unwrap();
        end = run.end();
        runs.push(run);
    }
    let mut sealer = Sealer::open(&path, end).unwrap();
    sealer.table(root, runs.iter().flat_map(PlacedRun::leaves)).unwrap();
    sealer.table(other, []).unwrap();
    assert!(matches!(sealer.table(root, runs[0].leaves()), Err(SealError::Root { .. })));
    sealer.finish().unwrap();

    let mut lock_page = [1; PAGE as usize];
    File::open(&path).unwrap().read_exact_at(&mut lock_page, u64::from(LOCK_PAGE - 1) * PAGE).unwrap();
    assert_eq!(lock_page, [0; PAGE as usize]);
    let database = PageDatabase::open(&path).unwrap();
    let leaves = database.leaves(root);
    assert!(leaves.damage.is_empty());
    assert!(leaves.pages.windows(2).all(|pair| pair[0] < pair[1]) && !leaves.pages.contains(&LOCK_PAGE));
    let wanted = [Wanted::Skip, Wanted::Skip, Wanted::Value { default: Value::Null }];
    let read = database.rows(&leaves.pages, &wanted).unwrap();
    assert_eq!((read.len, read.columns[2].filled(read.len)), (75_000, 74_250));

    let db = create(&path, "");
    assert_eq!(integrity(&db), "ok");
    let sums = "SELECT count(*) || ' ' || sum(length(c0)) || ' ' || sum(c1) FROM t";
    let sums: String = db.query_row(sums, [], |row| row.get(0)).unwrap();
    let numbers: i64 = (0..rows).filter(|row| row % 100 != 99).sum();
    assert_eq!(sums, format!("75000 {} {numbers}", 74_250 * 3000 + 750 * 10_000));
    db.execute_batch("INSERT INTO u VALUES (1, 2); DELETE FROM t WHERE id % 2;").unwrap();
    assert_eq!(integrity(&db), "ok");
}

#[test]
fn every_number_of_children_makes_a_tree() {
    let folder = tempfile::tempdir().unwrap();
    // A page can hold 340 children with keys of 2 bytes and one child without a cell. The trees have 1 to 3
    // such pages.
    for leaves in [0, 1, 2, 300, 339, 340, 341, 342, 343, 680, 681, 682, 683, 1023] {
        let path = folder.path().join(format!("{leaves}.db"));
        let db = create(&path, "CREATE TABLE t (id INTEGER PRIMARY KEY, c0);");
        let (root, pages) = (root(&db, "t"), page_count(&db));
        drop(db);
        let text = Value::Text(&[b'x'; 3000]);
        let table = [Field::Key, Field::Same { value: text, affinity: Affinity::Blob }];
        let mut writer = LeafWriter::default();
        writer.append(&Keys::Dense(1000), &table, leaves).unwrap();
        let run = writer.finish();
        assert_eq!((run.leaves(), run.pages()), (leaves as u64, leaves as u64));
        let run = run.place(LogicalPage::after(pages)).unwrap();
        run.write_to(&File::options().write(true).open(&path).unwrap()).unwrap();
        let mut sealer = Sealer::open(&path, run.end()).unwrap();
        sealer.table(root, run.leaves()).unwrap();
        sealer.finish().unwrap();
        let db = create(&path, "");
        assert_eq!(integrity(&db), "ok", "{leaves}");
        let count: u32 = db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        let free: u32 = db.query_row("PRAGMA freelist_count", [], |row| row.get(0)).unwrap();
        assert_eq!((count, free), (leaves as u32, u32::from(leaves == 1)));
        drop(db);
        // No interior page has a single child.
        let bytes = std::fs::read(&path).unwrap();
        for page in bytes.chunks(PAGE as usize).skip(1).filter(|page| page[0] == 5) {
            assert_ne!(page[3..5], [0, 0], "{leaves}");
        }
    }
}

#[test]
fn many_tables_of_one_leaf_leave_a_freelist_of_several_trunks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let tables: u32 = 1100;
    let ddl: Vec<String> =
        (0..tables).map(|i| format!("CREATE TABLE t{i} (id INTEGER PRIMARY KEY, c0);")).collect();
    let db = create(&path, &format!("BEGIN; {} COMMIT;", ddl.concat()));
    let roots: Vec<u32> = (0..tables).map(|i| root(&db, &format!("t{i}"))).collect();
    let pages = page_count(&db);
    drop(db);
    let table = TestTable {
        types: vec!["INT"],
        keys: Keys::Sparse(vec![3, 9]),
        columns: vec![Cells::ints(vec![1, 2])],
        rows: 2,
    };
    let filled: Vec<_> = roots.iter().map(|root| (*root, std::slice::from_ref(&table))).collect();
    fill(&path, pages, &filled);
    let db = create(&path, "");
    assert_eq!(integrity(&db), "ok");
    assert_eq!(db.query_row("PRAGMA freelist_count", [], |row| row.get::<_, u32>(0)).unwrap(), tables);
    // SQLite allocates its pages from the freelist.
    db.execute_batch("CREATE TABLE big (c0); INSERT INTO big VALUES (zeroblob(4000000));").unwrap();
    assert_eq!(db.query_row("PRAGMA freelist_count", [], |row| row.get::<_, u32>(0)).unwrap(), tables - 978);
    assert_eq!(integrity(&db), "ok");
}

#[test]
fn wrong_orders_and_lengths_are_errors() {
    let ints = Cells::ints(vec![1, 2]);
    let fields = [Field::Key, Field::Cells { cells: &ints, null: Value::Null, affinity: Affinity::Integer }];
    let fails = |keys| LeafWriter::default().append(&keys, &fields, 2).unwrap_err().to_string();
    assert!(fails(Keys::Sparse(vec![7, 7])).contains("row 7"));
    assert!(fails(Keys::Dense(i64::MAX)).contains("order"));
    let mut writer = LeafWriter::default();
    writer.append(&Keys::Dense(5), &fields, 2).unwrap();
    assert!(writer.append(&Keys::Dense(6), &fields, 2).is_err());
    // Two texts of 500 MB share their memory.
    let half = Value::Blob(&vec![0; 500_000_000]);
    let half = Field::Same { value: half, affinity: Affinity::Blob };
    let error = LeafWriter::default().append(&Keys::Dense(1), &[Field::Key, half, half], 1).unwrap_err();
    assert_eq!(error.to_string(), "row 1 takes 1000000012 bytes, and SQLite stores at most 1000000000");
}

#[test]
fn unfit_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, pragma: &str| {
        let path = folder.path().join(name);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(pragma).unwrap();
        db.execute_batch("CREATE TABLE t (a); CREATE INDEX i ON t (a); INSERT INTO t VALUES (1);").unwrap();
        drop(db);
        Sealer::open(&path, LogicalPage::after(3))
    };
    assert!(matches!(refused("1", "PRAGMA page_size = 8192"), Err(SealError::Unfit { .. })));
    assert!(matches!(refused("2", "PRAGMA auto_vacuum = FULL"), Err(SealError::Unfit { .. })));
    assert!(matches!(refused("3", "PRAGMA encoding = 'UTF-16le'"), Err(SealError::Unfit { .. })));
    assert!(matches!(refused("4", "PRAGMA journal_mode = WAL"), Err(SealError::Unfit { .. })));
    let mut sealer = refused("5", "").unwrap();
    for root in [0, 1, 2, 3, 4] {
        assert!(matches!(sealer.table(root, []), Err(SealError::Root { .. })), "{root}");
    }
    assert!(Sealer::open(&folder.path().join("5"), LogicalPage::after(2)).is_err());
}
