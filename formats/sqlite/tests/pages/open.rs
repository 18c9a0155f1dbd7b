//! Unreadable databases have distinct errors, and opening creates no files.

use crate::read::root_of;
use crate::support::*;
use rpd_shard::model::Value;
use rpd_sqlite::read::{OpenError, PageDatabase, PageProblem, Wanted};
use rusqlite::Connection;
use std::path::Path;

fn small(path: &Path, pragma: &str) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(pragma).unwrap();
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c0 TEXT); INSERT INTO t VALUES (1, 'one'), (2, 'two');",
    )
    .unwrap();
}

fn count(database: &PageDatabase) -> usize {
    let leaves = database.leaves(root_of(database, "t"));
    database.rows(&leaves.pages, &[Wanted::RowidAlias, Wanted::Value { default: Value::Null }]).unwrap().len
}

#[test]
fn each_bad_input_has_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let open = |path: &Path| PageDatabase::open(path).map(drop);
    assert!(matches!(open(&folder.path().join("none")), Err(OpenError::Io { .. })));
    assert!(matches!(open(folder.path()), Err(OpenError::NoFile { .. })));
    assert!(matches!(open(&file("empty", b"")), Err(OpenError::Empty { .. })));
    assert!(matches!(open(&file("short", b"SQLite format 3\0")), Err(OpenError::NotADatabase { .. })));
    assert!(matches!(open(&file("other", &[7; 5000])), Err(OpenError::NotADatabase { .. })));
    let utf16 = folder.path().join("utf16");
    small(&utf16, "PRAGMA encoding = 'UTF-16be'");
    assert!(matches!(open(&utf16), Err(OpenError::Unsupported { .. })));
    let path = folder.path().join("good");
    small(&path, "");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[16..18].copy_from_slice(&[3, 3]);
    assert!(matches!(open(&file("sizes", &bytes)), Err(OpenError::Header { .. })));
    bytes[16..18].copy_from_slice(&[2, 0]);
    bytes[20] = 255;
    assert!(matches!(open(&file("reserved", &bytes)), Err(OpenError::Header { .. })));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[19] = 3;
    assert!(matches!(open(&file("newer", &bytes)), Err(OpenError::Unsupported { .. })));
}

#[test]
fn journals_and_logs_are_seen_also_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    small(&path, "");
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let journal = folder.path().join("a.db-journal");
    let both = || [PageDatabase::open(&path).map(drop), PageDatabase::open(&link).map(drop)];
    for (header, hot) in [(&b""[..], false), (&[0; 100], false), (b"\xd9\xd5\x05\xf9 torn", true)] {
        std::fs::write(&journal, header).unwrap();
        let refused = both().iter().all(|opened| matches!(opened, Err(OpenError::HotJournal { .. })));
        assert_eq!((refused, both()[0].is_err()), (hot, hot));
    }
    std::fs::remove_file(&journal).unwrap();
    let wal = folder.path().join("a.db-wal");
    std::fs::write(&wal, "").unwrap();
    assert!(both().iter().all(Result::is_ok));
    std::fs::write(&wal, "frames").unwrap();
    assert!(both().iter().all(|opened| matches!(opened, Err(OpenError::Wal { .. }))));
}

#[test]
fn a_journal_that_cannot_be_read_is_not_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t(a)").unwrap();
    for name in ["a.db-wal", "a.db-journal"] {
        // No user, not even root, can read a link to itself.
        std::os::unix::fs::symlink(name, folder.path().join(name)).unwrap();
        let error = PageDatabase::open(&path).unwrap_err();
        assert!(matches!(&error, OpenError::Journal { journal, .. } if journal.ends_with(name)), "{error}");
        assert!(
            error.to_string().contains("cannot be read (") && error.to_string().contains(name),
            "{error}"
        );
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    PageDatabase::open(&path).unwrap();
}

#[test]
fn a_database_in_wal_mode_is_read_when_its_log_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, c0); INSERT INTO t VALUES (1, 2);").unwrap();
    assert!(matches!(PageDatabase::open(&path), Err(OpenError::Wal { .. })));
    drop(db);
    assert_eq!(count(&PageDatabase::open(&path).unwrap()), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_released_file_must_come_back_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    small(&path, "");
    let database = PageDatabase::open(&path).unwrap();
    database.release();
    assert_eq!(count(&database), 2);
    database.release();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE t SET c0 = 'TWO'").unwrap();
    drop(db);
    assert!(matches!(database.schema().unwrap_err().problem, PageProblem::Changed));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(database.schema().unwrap_err().problem, PageProblem::Io(_)));
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(database.schema().unwrap_err().problem, PageProblem::Changed));
}

#[test]
fn a_file_that_shrinks_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    small(&path, "");
    let database = PageDatabase::open(&path).unwrap();
    let root = root_of(&database, "t");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(matches!(database.leaves(root).damage[0].problem, PageProblem::Changed));
    assert!(matches!(database.rows(&[root], &[Wanted::Skip]).unwrap_err().problem, PageProblem::Changed));
}

#[test]
fn reserved_bytes_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let db = Connection::open(&path).unwrap();
    // Page size 1024, 40 reserved bytes: set in the header of an empty database, before the first table.
    db.execute_batch("PRAGMA page_size = 1024; PRAGMA user_version = 1;").unwrap();
    drop(db);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] = 40;
    bytes[105..107].copy_from_slice(&984u16.to_be_bytes());
    std::fs::write(&path, bytes).unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c0 TEXT);
         WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 2000)
         INSERT INTO t SELECT i, printf('%.*c', i * 7 % 3000, 'x') FROM k;",
    )
    .unwrap();
    assert_eq!(integrity(&db), "ok");
    let expected = seen(&db, "t", 1);
    drop(db);
    assert_eq!(std::fs::read(&path).unwrap()[20], 40);
    let database = PageDatabase::open(&path).unwrap();
    let leaves = database.leaves(root_of(&database, "t"));
    let rows = database.rows(&leaves.pages, &[Wanted::Skip, Wanted::Value { default: Value::Null }]).unwrap();
    assert_eq!(rows.len, 2000);
    for (row, (rowid, values)) in expected.iter().enumerate() {
        assert_eq!((rows.keys.get(row), rows.columns[1].get(row)), (*rowid, values[0].1.as_value()));
    }
}
