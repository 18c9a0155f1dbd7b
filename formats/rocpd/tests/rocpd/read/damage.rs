//! Tests of truncated files and files with corrupted bytes.

use super::{empty, lines_of, make, some_rows};
use crate::real::{Outcome, real_databases};
use crate::writer::GUID;
use rpd_rocpd::read::{Database, ReadError, Wanted, sniff};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Content = BTreeMap<String, BTreeSet<String>>;

/// Returns all readable rows by table, and whether a loss was detected.
fn content(path: &Path) -> Result<(Content, bool), ReadError> {
    let database = Database::open(path)?;
    let mut content = Content::new();
    let mut lost = !database.damage().is_empty();
    for (s, set) in database.table_sets().iter().enumerate() {
        lost |= !set.left_out.is_empty();
        for (t, table) in set.tables.iter().enumerate() {
            let rows = content.entry(table.table.name.clone()).or_default();
            for piece in &table.pieces {
                match database.rows(s, t, piece, Wanted::All) {
                    Ok(read) => rows.extend(lines_of(&read)),
                    Err(_) => {
                        lost = true;
                        for part in piece.split() {
                            rows.extend(database.rows(s, t, &part, Wanted::All).iter().flat_map(lines_of));
                        }
                    }
                }
            }
        }
    }
    Ok((content, lost))
}

/// Checks that the rows of a damaged file are a subset of the rows of the intact file, or that damage is reported.
fn check(path: &Path, whole: &Content, what: &str) -> usize {
    sniff(path);
    match content(path) {
        Ok((found, lost)) => {
            for (table, rows) in &found {
                assert!(rows.is_subset(&whole[table]), "{what}: {table} has rows that were not there");
            }
            let rows: usize = found.values().map(BTreeSet::len).sum();
            let all: usize = whole.values().map(BTreeSet::len).sum();
            assert!(lost || rows == all, "{what}: {rows} of {all} rows and no word about it");
            rows
        }
        Err(error) => {
            assert!(
                matches!(
                    error,
                    ReadError::Schema { .. }
                        | ReadError::Page { .. }
                        | ReadError::Cut { .. }
                        | ReadError::NotRocPd(_)
                        | ReadError::NotADatabase(_)
                        | ReadError::Empty(_)
                ),
                "{what}: {error:?}"
            );
            0
        }
    }
}

#[test]
fn a_cut_file_gives_what_can_be_reached() -> Outcome {
    let dir = tempfile::tempdir()?;
    let mut files = real_databases(dir.path())?;
    files.truncate(1);
    let small = dir.path().join("small.db");
    make(&small, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
    files.push(small);
    for path in files {
        let (whole, lost) = content(&path)?;
        assert!(!lost);
        let bytes = std::fs::read(&path)?;
        let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
        let cut = dir.path().join("cut.db");
        let mut most = 0;
        for pages in 0..bytes.len() / page {
            // Some lengths end in the middle of a page.
            for length in
                [pages * page, pages * page + page / 2].into_iter().take(1 + usize::from(pages % 16 == 3))
            {
                std::fs::write(&cut, &bytes[..length])?;
                most = most.max(check(&cut, &whole, &format!("cut at byte {length}")));
            }
        }
        let all: usize = whole.values().map(BTreeSet::len).sum();
        assert!(most > all / 2 || all < 100, "{most} of {all}");
    }
    Ok(())
}

/// Overflow pages cannot be distinguished from other pages: a text may be wrong, but missing rows are always
/// reported.
#[test]
fn rows_of_pages_of_zeros_are_missed() -> Outcome {
    let dir = tempfile::tempdir()?;
    let rows = |content: &Content| content.values().map(BTreeSet::len).sum::<usize>();
    for path in real_databases(dir.path())?.iter().take(1) {
        let (whole, _) = content(path)?;
        let bytes = std::fs::read(path)?;
        let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
        let bad = dir.path().join("bad.db");
        let mut with_loss = 0;
        for at in (page..bytes.len()).step_by(page) {
            let mut bytes = bytes.clone();
            bytes[at..at + page].fill(0);
            std::fs::write(&bad, &bytes)?;
            match content(&bad) {
                Ok((found, lost)) => {
                    assert!(lost || rows(&found) == rows(&whole), "page at {at}");
                    with_loss += usize::from(lost && rows(&found) > 0);
                }
                Err(error) => assert!(error.to_string().contains("sqlite_master"), "page at {at}: {error}"),
            }
        }
        assert!(with_loss > 50, "{with_loss}");
    }
    Ok(())
}
