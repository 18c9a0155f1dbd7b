//! Journals that programs leave beside a database: no merge is spoiled by them, and no program loses its own.

use rpd_tests::harness::{Database, RunFolder, assert_refused, leftovers, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn run() -> RunFolder {
    RunFolder::new(&SyntheticRun { nodes: 1, events_per_rank: 60, ..SyntheticRun::default() })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Merges to `output`, with all that a merge can check.
fn merge(run: &RunFolder, output: &Path, options: &[&str]) -> rpd_tests::harness::JobOutcome {
    rpd_merge().args(["--verify", "-o"]).arg(output).args(options).arg(&run.path).run()
}

/// A viewer that has the database open in WAL mode, with rows of its own in the log.
fn viewer(database: &Path) -> Connection {
    let viewer = Connection::open(database).unwrap();
    let mode: String = viewer.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    viewer
        .execute_batch(
            "CREATE TABLE notes(text);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO notes SELECT i || hex(zeroblob(200)) FROM n;",
        )
        .unwrap();
    viewer
}

/// The journals of a database, by their suffixes.
fn journals(database: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |suffix| Some((suffix, fs::read(beside(database, suffix)).ok()?));
    ["-wal", "-shm", "-journal"].into_iter().filter_map(read).collect()
}

/// The journals that a program leaves which is killed while it has the database open: in WAL mode, and in the
/// middle of a transaction.
fn crash(database: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let copy = beside(database, ".copy");
    fs::copy(database, &copy).unwrap();
    let open = viewer(&copy);
    let mut left = journals(&copy);
    drop(open);
    fs::copy(database, &copy).unwrap();
    let open = Connection::open(&copy).unwrap();
    open.execute_batch("PRAGMA cache_size = 5; BEGIN; CREATE TABLE notes(text)").unwrap();
    for _ in 0..100 {
        open.execute("INSERT INTO notes VALUES (hex(zeroblob(2000)))", []).unwrap();
    }
    left.extend(journals(&copy));
    drop(open);
    fs::remove_file(&copy).unwrap();
    assert_eq!(left.keys().copied().collect::<Vec<_>>(), ["-journal", "-shm", "-wal"]);
    assert!(left.values().all(|content| content.len() > 500), "as large as journals are");
    left
}

fn rows(database: &Path) -> Vec<(String, i64)> {
    let database = Connection::open(database).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let mut names = database.prepare(names).unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let count = |name: &String| {
        database.query_row(&format!("SELECT count(*) FROM \"{name}\""), [], |row| row.get(0)).unwrap()
    };
    names.iter().map(|name| (name.clone(), count(name))).collect()
}

#[test]
fn what_a_crashed_viewer_left_is_not_replayed_into_a_merge() {
    let run = run();
    for (name, format) in [("out.db", "rocpd"), ("out.rpd", "rpd")] {
        let output = run.beside(name);
        let _ = merge(&run, &output, &["--format", format]).success();
        let expected = rows(&output);
        let left = crash(&output);
        for suffix in ["-wal", "-journal"] {
            for is_removed in [false, true] {
                if suffix == "-wal" {
                    fs::write(beside(&output, "-shm"), &left["-shm"]).unwrap();
                }
                fs::write(beside(&output, suffix), &left[suffix]).unwrap();
                fs::write(beside(&output, ".partial-wal"), &left["-wal"]).unwrap();
                if is_removed {
                    fs::remove_file(&output).unwrap();
                }
                let _ = merge(&run, &output, &["--force", "--format", format]).success();
                assert!(journals(&output).is_empty(), "{name}{suffix}: {:?}", journals(&output).keys());
                assert!(!beside(&output, ".partial-wal").exists());
                assert_eq!(rows(&output), expected, "{name}{suffix}");
            }
        }
    }
}

#[test]
fn a_journal_in_use_is_an_error_that_names_its_user() {
    let run = run();
    let output = run.beside("out.db");
    let _ = merge(&run, &output, &[]).success();
    let own = format!("process {} ", std::process::id());
    let open = viewer(&output);
    let notes = || open.query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0)).unwrap();
    let words = [own.as_str(), "uses its journal", "out.db-wal", "close the database there", "-o"];
    assert_refused(&merge(&run, &output, &["--force"]), 5, &words);
    assert_eq!((notes(), leftovers(run.path.parent().unwrap()).len()), (2_000, 3));
    // The file is gone, and its journals are there all the same.
    fs::rename(&output, run.beside("aside.db")).unwrap();
    assert_refused(&merge(&run, &output, &[]), 5, &words);
    assert!(!output.exists());
    fs::rename(run.beside("aside.db"), &output).unwrap();
    drop(open);
    let _ = merge(&run, &output, &["--force"]).success();

    // A program in the middle of a transaction.
    let open = Connection::open(&output).unwrap();
    open.execute_batch("BEGIN IMMEDIATE; CREATE TABLE notes(text)").unwrap();
    assert!(beside(&output, "-journal").exists());
    assert_refused(&merge(&run, &output, &["--force"]), 5, &[&own, "out.db-journal"]);
    open.execute_batch("ROLLBACK").unwrap();
    drop(open);
    let _ = merge(&run, &output, &["--force"]).success();
    Database::open(&output).assert_sound();
}

#[test]
fn what_is_no_journal_stays_and_is_named() {
    let run = run();
    let output = run.beside("out.db");
    let mine = run.beside("mine");
    fs::write(&mine, "mine").unwrap();
    let refuses = |suffix: &str| {
        let name = beside(&output, suffix);
        assert_refused(&merge(&run, &output, &[]), 5, &[&name.to_string_lossy(), "is not a journal", "-o"]);
        assert!(!output.exists() && fs::symlink_metadata(name).is_ok());
    };
    for suffix in ["-wal", "-shm", "-journal", ".partial-journal"] {
        let name = beside(&output, suffix);
        symlink(&mine, &name).unwrap();
        refuses(suffix);
        fs::remove_file(&name).unwrap();
        fs::create_dir(&name).unwrap();
        refuses(suffix);
        fs::remove_dir(&name).unwrap();
        fs::write(&name, "a text of mine").unwrap();
        refuses(suffix);
        fs::remove_file(&name).unwrap();
        assert_eq!(fs::read(&mine).unwrap(), b"mine");
    }
    // SQLite leaves empty ones.
    fs::write(beside(&output, "-journal"), "").unwrap();
    let _ = merge(&run, &output, &[]).success();
    assert!(journals(&output).is_empty());
}

#[test]
fn an_output_that_reads_otherwise_under_its_name_is_removed() {
    let run = run();
    let output = run.beside("out.db");
    let _ = merge(&run, &output, &[]).success();
    let contents: BTreeMap<String, u64> =
        rows(&output).into_iter().map(|(table, rows)| (table, rows.unsigned_abs())).collect();
    let found = fs::metadata(&output).unwrap();
    let published = (found.dev(), found.ino());
    let verify = || rpd_merge::verify_published(&output, published, &contents);
    verify().unwrap();
    // The log of another database of that name: its pages are read instead of those of the file.
    let copy = run.beside("copy.db");
    fs::copy(&output, &copy).unwrap();
    let table = contents.keys().find(|table| table.starts_with("rocpd_region")).unwrap();
    let open = viewer(&copy);
    open.execute_batch(&format!("DELETE FROM \"{table}\"")).unwrap();
    for (suffix, content) in journals(&copy) {
        fs::write(beside(&output, suffix), content).unwrap();
    }
    drop(open);
    let failure = verify().unwrap_err();
    assert_eq!(failure.exit() as u8, 1);
    let text = failure.to_string();
    assert!(text.contains("out.db reads otherwise") && text.contains(table.as_str()), "{text}");
    assert!(!output.exists());
}

#[test]
fn another_file_that_replaced_a_verified_output_stays() {
    let run = run();
    let output = run.beside("out.db");
    let _ = merge(&run, &output, &[]).success();
    let contents: BTreeMap<String, u64> =
        rows(&output).into_iter().map(|(table, rows)| (table, rows.unsigned_abs())).collect();
    let found = fs::metadata(&output).unwrap();
    fs::rename(&output, run.beside("aside.db")).unwrap();
    Connection::open(&output).unwrap().execute_batch("CREATE TABLE mine(a)").unwrap();
    let published = (found.dev(), found.ino());
    let failure = rpd_merge::verify_published(&output, published, &contents).unwrap_err();
    assert!(failure.to_string().contains("is not there"), "{failure}");
    assert_eq!(rows(&output), [("mine".to_owned(), 0)]);
}
