//! Tests of files that are in use, have another format, or must stay unchanged.

use super::{empty, lines, make, rows_of, some_rows};
use crate::real::Outcome;
use crate::writer::GUID;
use rpd_rocpd::read::{Database, FileKind, ReadError, Wanted, sniff};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

fn error(path: &Path) -> ReadError {
    Database::open(path).map(|_| ()).expect_err("it cannot be read")
}

/// Returns path, length and modification time of each file of a folder.
fn files(dir: &Path) -> Outcome<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let meta = entry.as_ref().map_err(|e| e.to_string())?.metadata()?;
        files.insert(entry?.path(), (meta.len(), meta.modified()?));
    }
    Ok(files)
}

#[test]
fn a_database_in_the_middle_of_a_transaction_is_refused() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &empty(&GUID, "3.0.0"))?;
    // A real journal: SQLite writes pages to the file before the transaction ends.
    let writer = Connection::open(&path)?;
    writer.execute_batch(
        "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN;",
    )?;
    for chunk in 0..50 {
        let text = "x".repeat(3000);
        let sql = format!("INSERT INTO \"rocpd_string{}\" (string) VALUES ('{chunk}{text}')", GUID.suffix());
        writer.execute_batch(&sql)?;
    }
    let killed = dir.path().join("killed.db");
    fs::copy(&path, &killed)?;
    let journal = dir.path().join("killed.db-journal");
    fs::copy(dir.path().join("a.db-journal"), &journal)?;
    drop(writer);

    let before = files(dir.path())?;
    assert!(matches!(error(&killed), ReadError::HotJournal { journal: found, .. } if found == journal));
    assert!(error(&killed).to_string().contains("sqlite3"));
    assert_eq!(sniff(&killed), FileKind::RocPd);
    // The reader also detects the journal through a link, since the journal is beside the target.
    let link = dir.path().join("link.db");
    symlink(&killed, &link)?;
    assert!(matches!(error(&link), ReadError::HotJournal { .. }));
    fs::remove_file(&link)?;
    assert_eq!(files(dir.path())?, before, "nothing was rolled back");

    // The advice in the message works.
    Connection::open(&killed)?.execute_batch("SELECT count(*) FROM sqlite_master")?;
    let database = Database::open(&killed)?;
    let strings = database.table_sets()[0].position(rpd_shard::model::rocpd::STRING).ok_or("no strings")?;
    assert!(lines(&database, 0, strings)?.is_empty(), "the rows were not committed");
    Ok(())
}

#[test]
fn a_journal_that_is_done_with_does_not_matter() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &empty(&GUID, "3.0.0"))?;
    for journal in [&b""[..], &[0; 512]] {
        fs::write(dir.path().join("a.db-journal"), journal)?;
        fs::write(dir.path().join("a.db-wal"), b"")?;
        Database::open(&path)?;
    }
    Ok(())
}

#[test]
fn a_write_ahead_log_must_be_in_the_file_first() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &empty(&GUID, "3.0.0"))?;
    let writer = Connection::open(&path)?;
    writer.execute_batch(&format!("PRAGMA journal_mode = WAL; BEGIN; {} COMMIT;", some_rows(&GUID)))?;
    assert!(matches!(error(&path), ReadError::Wal { .. }));
    assert!(error(&path).to_string().contains("wal_checkpoint"));
    drop(writer);
    // The header still states that the database uses a write-ahead log.
    let before = files(dir.path())?;
    assert_eq!(rows_of(&Database::open(&path)?, 0, "rocpd_event", Wanted::All)?.len, 3);
    assert_eq!(files(dir.path())?, before);
    Ok(())
}

#[test]
fn any_path_can_be_read_and_nothing_is_made_beside_it() -> Outcome {
    for name in ["plain.db", "a b%20?mode=rwc&x#y.db", "ü\u{1}'\".db", "file:x.db", "-a.db"] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join(name);
        make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400))?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500))?;
        let before = files(dir.path())?;
        let database = Database::open(&path)?;
        for table in &database.table_sets()[0].tables {
            if !table.pieces.is_empty() {
                rows_of(&database, 0, &table.table.name, Wanted::All)?;
            }
        }
        assert_eq!(sniff(&path), FileKind::RocPd);
        assert_eq!(files(dir.path())?, before, "{name}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[test]
fn other_files_are_told_apart() -> Outcome {
    let dir = tempfile::tempdir()?;
    let place = |name: &str| dir.path().join(name);
    assert!(matches!(error(&place("missing")), ReadError::Io { .. }));
    assert_eq!(sniff(&place("missing")), FileKind::Unreadable);
    assert!(matches!(error(dir.path()), ReadError::NotADatabase(_) | ReadError::Io { .. }));

    fs::write(place("empty"), b"")?;
    assert!(matches!(error(&place("empty")), ReadError::Empty(_)));
    assert_eq!(sniff(&place("empty")), FileKind::Empty);

    for (name, bytes) in
        [("text", b"{\"traceEvents\": []}".repeat(100)), ("short", b"SQLite format 3\0".to_vec())]
    {
        fs::write(place(name), bytes)?;
        assert!(matches!(error(&place(name)), ReadError::NotADatabase(_)), "{name}");
        assert_eq!(sniff(&place(name)), FileKind::NotADatabase);
    }
    let mut noise = b"SQLite format 3\0".to_vec();
    noise.extend((0..5000).map(|i| (i * 7 % 251) as u8));
    fs::write(place("noise"), noise)?;
    assert!(matches!(error(&place("noise")), ReadError::Header { .. }));
    assert_eq!(sniff(&place("noise")), FileKind::DamagedDatabase);

    make(&place("other"), "CREATE TABLE t (a); CREATE VIEW rocpd_metadata_x AS SELECT * FROM t")?;
    assert!(matches!(error(&place("other")), ReadError::NotRocPd(_)));
    assert_eq!(sniff(&place("other")), FileKind::OtherDatabase);

    make(
        &place("legacy"),
        "CREATE TABLE rocpd_api (id integer PRIMARY KEY); CREATE TABLE rocpd_metadata (tag, value)",
    )?;
    assert!(matches!(error(&place("legacy")), ReadError::LegacyRpd(_)));
    assert_eq!(sniff(&place("legacy")), FileKind::LegacyRpd);
    Ok(())
}
