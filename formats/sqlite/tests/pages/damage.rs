//! Damaged files yield rows or an error of a page, never a panic, and never use disproportionate memory.

use crate::support::*;
use proptest::prelude::*;
use rpd_shard::model::Value;
use rpd_sqlite::read::{PageDatabase, PageProblem, TableRows, Wanted};
use rusqlite::Connection;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const COLUMNS: usize = 4;
const WANTED: [Wanted<'_>; COLUMNS + 1] = [Wanted::Value { default: Value::Null }; COLUMNS + 1];

/// Creates a table with interior pages, overflow pages, and values of every serial type.
fn small(path: &Path) -> u32 {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA page_size = 512;
         CREATE TABLE t (id INTEGER PRIMARY KEY, c0 INT, c1 REAL, c2 TEXT, c3);
         WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 120)
         INSERT INTO t SELECT i * 3, i * i * i * 4001, i / 4.0, '{}',
             CASE i % 40 WHEN 7 THEN printf('%.*c', 900, 'x') WHEN 9 THEN x'0102' WHEN 11 THEN 5 END FROM k;",
    )
    .unwrap();
    root(&db, "t")
}

/// Reads everything and returns for each leaf its rows or its error.
fn read_all(database: &PageDatabase, root: u32) -> Vec<(u32, Result<TableRows, PageProblem>)> {
    let _ = database.schema();
    let leaves = database.leaves(root);
    let leaf = |page: &u32| (*page, database.rows(&[*page], &WANTED).map_err(|error| error.problem));
    let _ = database.rows(&leaves.pages, &WANTED);
    leaves.pages.iter().map(leaf).collect()
}

fn same(a: &TableRows, b: &TableRows) -> bool {
    a.len == b.len
        && a.keys == b.keys
        && (0..a.len).all(|row| a.columns.iter().zip(&b.columns).all(|(a, b)| a.get(row) == b.get(row)))
}

#[test]
fn every_flipped_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let root = small(&path);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 7_000 && bytes.len() < 20_000, "{}", bytes.len());
    let file = File::options().write(true).open(&path).unwrap();
    let (mut damaged, mut refused) = (0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        for flipped in [byte ^ 1, byte ^ 0x80, !byte] {
            file.write_all_at(&[flipped], at as u64).unwrap();
            match PageDatabase::open(&path) {
                Ok(database) => {
                    damaged += read_all(&database, root).iter().filter(|(_, rows)| rows.is_err()).count();
                }
                Err(_) => refused += 1,
            }
        }
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
    assert!(damaged > 1000 && refused > 30, "{damaged} {refused}");
}

#[test]
fn every_truncation_leaves_the_rows_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let root = small(&path);
    let whole = read_all(&PageDatabase::open(&path).unwrap(), root);
    let file = File::options().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    let mut found = 0;
    for length in (1..length).rev() {
        file.set_len(length).unwrap();
        let Ok(database) = PageDatabase::open(&path) else {
            assert!(length < 100);
            continue;
        };
        assert_eq!(u64::from(database.page_count()), length / 512);
        assert!(database.truncated_pages() > 0);
        for (page, rows) in read_all(&database, root) {
            let (_, before) = whole.iter().find(|(before, _)| *before == page).unwrap();
            match rows {
                Ok(rows) => assert!(same(&rows, before.as_ref().unwrap())),
                Err(problem) => {
                    assert!(matches!(problem, PageProblem::Missing | PageProblem::Overflow { .. }))
                }
            }
            found += 1;
        }
    }
    assert!(found > 1000);
}

/// Creates a file of the given pages of 512 bytes after an empty schema.
fn with_pages(path: &Path, pages: &[Vec<u8>]) -> PageDatabase {
    let mut bytes = b"SQLite format 3\0\x02\0\x01\x01\0\x40\x20\x20".to_vec();
    bytes.resize(512, 0);
    bytes[100] = 13;
    for page in pages {
        let mut page = page.clone();
        page.resize(512, 0);
        bytes.extend(page);
    }
    std::fs::write(path, bytes).unwrap();
    PageDatabase::open(path).unwrap()
}

/// Builds a page with these cells at these offsets.
fn leaf(cells: &[(usize, &[u8])]) -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 13;
    page[4] = cells.len() as u8;
    for (i, (at, cell)) in cells.iter().enumerate() {
        page[8 + 2 * i..10 + 2 * i].copy_from_slice(&(*at as u16).to_be_bytes());
        page[*at..*at + cell.len()].copy_from_slice(cell);
    }
    page
}

fn interior(children: &[u32]) -> Vec<u8> {
    let mut page = vec![0; 512];
    let (right, celled) = children.split_last().unwrap();
    page[0] = 5;
    page[4] = celled.len() as u8;
    page[8..12].copy_from_slice(&right.to_be_bytes());
    for (i, child) in celled.iter().enumerate() {
        let at = 500 - 5 * i;
        page[12 + 2 * i..14 + 2 * i].copy_from_slice(&(at as u16).to_be_bytes());
        page[at..at + 4].copy_from_slice(&child.to_be_bytes());
    }
    page
}

#[test]
fn trees_that_are_none_keep_their_good_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let good = leaf(&[(400, &[3, 1, 2, 1, 9])]);
    // Page 2 refers to itself, twice to 3, to 4, to page 0 and to a page that does not exist.
    let database = with_pages(&path, &[interior(&[2, 3, 3, 0, 99, 4]), good.clone(), good.clone()]);
    let leaves = database.leaves(2);
    assert_eq!(leaves.pages, [3, 4]);
    let problems: Vec<String> =
        leaves.damage.iter().map(|error| format!("{} {:?}", error.page, error.problem)).collect();
    assert_eq!(problems, ["2 Twice", "3 Twice", "0 Missing", "99 Missing"]);
    // Nested interior pages, deeper than any valid tree.
    let mut chain: Vec<Vec<u8>> = (3..60).map(|next| interior(&[next])).collect();
    chain.push(good.clone());
    let leaves = with_pages(&path, &chain).leaves(2);
    assert!(leaves.pages.is_empty());
    assert!(matches!(leaves.damage[..], [ref error] if matches!(error.problem, PageProblem::Depth)));
    // A page of an index between interior pages.
    let pages =
        [interior(&[3, 4, 5]), interior(&[6]), vec![10; 512], interior(&[7]), good.clone(), good.clone()];
    let leaves = with_pages(&path, &pages).leaves(2);
    assert_eq!(leaves.pages, [6, 7]);
    assert!(
        matches!(leaves.damage[..], [ref error] if error.page == 4 && matches!(error.problem, PageProblem::Type(10)))
    );
    for root in [0, 1, 4, 100] {
        with_pages(&path, &pages).leaves(root);
    }
}

#[test]
fn cells_and_chains_that_contradict_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let problem = |page: Vec<u8>, rest: &[Vec<u8>]| {
        let database = with_pages(&path, &[&[page], rest].concat());
        database.rows(&[2], &WANTED[..1]).unwrap_err().problem
    };
    // In order: the cell ends beyond the page, the cell overlaps the pointers, the header is longer than the
    // record, the value is longer than the record.
    assert!(matches!(problem(leaf(&[(500, &[100, 1, 2, 1])]), &[]), PageProblem::Cells));
    assert!(matches!(problem(leaf(&[(8, &[0, 8])]), &[]), PageProblem::Cells));
    assert!(matches!(problem(leaf(&[(400, &[3, 1, 4, 1, 9])]), &[]), PageProblem::Record { rowid: 1 }));
    assert!(matches!(problem(leaf(&[(400, &[3, 1, 2, 2, 9])]), &[]), PageProblem::Record { rowid: 1 }));
    assert!(matches!(problem(leaf(&[(400, &[3, 1, 2, 10, 9])]), &[]), PageProblem::Record { rowid: 1 }));
    // Two overlapping cells; descending rowids.
    let outer = [200, 1, 2, 13].iter().chain(&[2; 60]).copied().collect::<Vec<u8>>();
    let overlapping: Vec<(usize, &[u8])> = (0..12).map(|i| (100 + i, &outer[..])).collect();
    assert!(matches!(problem(leaf(&overlapping), &[]), PageProblem::Cells | PageProblem::Order));
    let (first, second) = ([3, 9, 2, 1, 9], [3, 8, 2, 1, 9]);
    assert!(matches!(problem(leaf(&[(400, &first), (420, &second)]), &[]), PageProblem::Order));
    // A chain to a page that does not exist.
    for first in [0, 9, u32::MAX] {
        let cell = long_cell(1, first);
        let found = problem(leaf(&[(400, &cell)]), &[vec![0; 512]]);
        assert!(
            matches!(found, PageProblem::Overflow { rowid: 1, overflow } if overflow == first),
            "{found:?}"
        );
    }
}

/// Builds a text of 997 bytes: 36 in this cell, the others in two overflow pages.
fn long_cell(rowid: u8, link: u32) -> Vec<u8> {
    let mut cell = vec![0x87, 0x68, rowid, 3, 0x8f, 0x57];
    cell.resize(3 + 39, b'x');
    cell.extend(link.to_be_bytes());
    cell
}

#[test]
fn rows_cannot_share_overflow_pages_to_grow_beyond_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let overflow = |next: u32| [&next.to_be_bytes()[..], &[b'y'; 508]].concat();
    let rows = |count: u8| {
        let cells: Vec<Vec<u8>> = (0..count).map(|row| long_cell(row, 3)).collect();
        let cells: Vec<(usize, &[u8])> =
            cells.iter().enumerate().map(|(i, c)| (60 + 50 * i, &c[..])).collect();
        let database = with_pages(&path, &[leaf(&cells), overflow(4), overflow(0)]);
        database.rows(&[2], &WANTED[..1])
    };
    let expected = [&[b'x'; 36][..], &[b'y'; 961]].concat();
    assert_eq!(rows(1).unwrap().columns[0].get(0), Value::Text(&expected));
    // The file has 2048 bytes.
    assert_eq!(rows(2).unwrap().len, 2);
    assert!(matches!(rows(3).unwrap_err().problem, PageProblem::TooLong));
}

#[test]
fn long_rows_of_a_page_are_read_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let overflow = |next: u32, byte| [&next.to_be_bytes()[..], &[byte; 508]].concat();
    let cells = [long_cell(0, 3), long_cell(1, 5)];
    let cells: Vec<(usize, &[u8])> = cells.iter().enumerate().map(|(i, c)| (60 + 50 * i, &c[..])).collect();
    let pages = [leaf(&cells), overflow(4, b'y'), overflow(0, b'y'), overflow(6, b'z'), overflow(0, b'z')];
    let database = with_pages(&path, &pages);
    let whole = database.rows(&[2], &WANTED[..1]).unwrap();
    let lengths = database.payloads(2).unwrap();
    assert_eq!((lengths.len(), lengths[0]), (2, lengths[1]));
    assert!(matches!(
        database.rows_bounded(&[2], &WANTED[..1], lengths[0]).unwrap_err().problem,
        PageProblem::TooLong
    ));
    for row in 0..2 {
        let one = database.rows_of_cells(2, row..row + 1, &WANTED[..1]).unwrap();
        assert_eq!((one.len, one.keys.get(0)), (1, whole.keys.get(row)));
        assert_eq!(one.columns[0].get(0), whole.columns[0].get(row));
    }
    assert_eq!(database.rows_of_cells(2, 2..9, &WANTED[..1]).unwrap().len, 0);
    assert!(database.payloads(3).is_err(), "it is no leaf");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Decodes pages of random bytes that begin like valid pages.
    #[test]
    fn random_pages(
        pages in proptest::collection::vec((
            prop_oneof![Just(13u8), Just(5u8), any::<u8>()],
            0u8..40,
            proptest::collection::vec(prop_oneof![3 => 0u8..20, 1 => any::<u8>()], 504),
            proptest::collection::vec(100u16..512, 40),
        ), 1..6),
        columns in 0usize..6,
    ) {
        let pages: Vec<Vec<u8>> = pages
            .into_iter()
            .map(|(kind, cells, random, offsets)| {
                let mut page = vec![kind, 0, 0, 0, cells, 0, 0, 0];
                page.extend(random);
                let first = if kind == 5 { 12 } else { 8 };
                for (i, offset) in offsets.iter().take(usize::from(cells)).enumerate() {
                    page[first + 2 * i..first + 2 * i + 2].copy_from_slice(&offset.to_be_bytes());
                }
                page
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let database = with_pages(&folder.path().join("a.db"), &pages);
        let wanted = vec![Wanted::Value { default: Value::Text(b"default") }; columns];
        for page in 0..database.page_count() + 2 {
            let leaves = database.leaves(page);
            let _ = database.rows(&leaves.pages, &wanted);
            if let Ok(rows) = database.rows(&[page], &wanted) {
                prop_assert!(rows.len <= 250);
                prop_assert!((1..rows.len).all(|row| rows.keys.get(row - 1) < rows.keys.get(row)));
            }
        }
    }
}
