//! Tests damaged files and files that were built to do harm.

use crate::made::{SCHEMA, make};
use crate::support::{lines, number, options, shard, tables};
use rpd_legacy::{NotQuiet, RpdReadError, read_processes, translate};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

fn failure(path: &Path) -> RpdReadError {
    let (translated, processes) =
        (translate(path, &mut Vec::new(), &options()).err(), read_processes(path).err());
    let (translated, processes) =
        (translated.expect("it was translated"), processes.expect("its processes were read"));
    assert_eq!(translated.to_string(), processes.to_string());
    translated
}

fn written(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_is_no_rpd_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let gone = failure(&dir.path().join("gone.rpd"));
    assert!(matches!(gone, RpdReadError::Open(NotQuiet::Io { .. })), "{gone:?}");
    for bytes in [b"".as_slice(), b"{}", &[7; 5000]] {
        let error = failure(&written(dir.path(), "other.rpd", bytes));
        assert!(matches!(error, RpdReadError::Open(NotQuiet::NotADatabase { .. })), "{error:?}");
    }
    let rocpd = dir.path().join("rocpd.db");
    Connection::open(&rocpd)
        .unwrap()
        .execute_batch("CREATE TABLE rocpd_info_node_x (id); CREATE VIEW rocpd_api AS SELECT 1 AS id;")
        .unwrap();
    let error = failure(&rocpd);
    assert!(error.to_string().contains("no table rocpd_api, but those of RocPD"), "{error}");
}

#[test]
fn a_file_that_is_being_written_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), "");
    let journal = dir.path().join("made.rpd-journal");
    std::fs::write(&journal, b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7 and more").unwrap();
    let error = failure(&path);
    assert!(matches!(error, RpdReadError::Open(NotQuiet::HotJournal { .. })), "{error:?}");
    // The same through a link: SQLite's journal is beside the target of the link.
    let link = dir.path().join("link.rpd");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(failure(&link), RpdReadError::Open(NotQuiet::HotJournal { .. })));
    // A journal of a finished transaction is zeroed.
    std::fs::write(&journal, [0; 512]).unwrap();
    assert!(read_processes(&path).is_ok());
    std::fs::remove_file(&journal).unwrap();
    let wal = dir.path().join("made.rpd-wal");
    std::fs::write(&wal, b"").unwrap();
    assert!(read_processes(&path).is_ok());
    std::fs::write(&wal, b"something").unwrap();
    let error = failure(&path);
    assert!(matches!(error, RpdReadError::Open(NotQuiet::Wal { .. })), "{error:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_journal_that_cannot_be_read_is_not_taken_for_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), "");
    for name in ["made.rpd-wal", "made.rpd-journal"] {
        // No user, not even root, can read a link to itself.
        std::os::unix::fs::symlink(name, dir.path().join(name)).unwrap();
        let error = failure(&path);
        assert!(matches!(error, RpdReadError::Open(NotQuiet::Journal { .. })), "{error:?}");
        assert!(
            error.to_string().contains(name) && error.to_string().contains("cannot be read ("),
            "{error}"
        );
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert!(read_processes(&path).is_ok());
}

#[test]
fn a_file_in_wal_mode_is_read_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, NULL); PRAGMA journal_mode = WAL;",
    );
    let (made, _) = shard(&path, &options());
    assert_eq!(number(&tables(&made), "SELECT count(*) FROM rocpd_region"), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something was left beside the file");
}

#[test]
fn a_file_that_was_cut_or_flipped_is_an_error_or_a_shard() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
        INSERT INTO rocpd_api SELECT i, 5, 5, i * 10, i * 10 + 5, 2, 1, 3, NULL FROM n;";
    let whole = std::fs::read(make(dir.path(), rows)).unwrap();
    let (mut failed, mut read) = (0, 0);
    for i in 0..200 {
        let mut bytes = whole.clone();
        let at = i * whole.len() / 200;
        match i % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x55,
        }
        let path = written(dir.path(), "damaged.rpd", &bytes);
        match translate(&path, &mut Vec::new(), &options()) {
            Ok(_) => read += 1,
            Err(error) => {
                assert!(error.to_string().contains("damaged.rpd"), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 50 && read > 20, "{failed} failed, {read} read");
}

#[test]
fn views_and_functions_of_the_file_are_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    // Views that refer to each other, and views that take extremely long.
    let mut bomb = "CREATE VIEW v0 AS SELECT 1 AS a;".to_owned();
    (1..40).for_each(|i| {
        bomb += &format!("CREATE VIEW v{i} AS SELECT a FROM v{0} UNION ALL SELECT a FROM v{0};", i - 1)
    });
    let path = make(
        dir.path(),
        &format!(
            "{bomb} CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM a;
             CREATE VIEW api AS SELECT * FROM v39;
             CREATE TABLE ext_long (x INTEGER); INSERT INTO ext_long (x) VALUES (1);
             ALTER TABLE ext_long ADD COLUMN y AS (length(hex(zeroblob(900000000 * x))));
             INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, NULL);"
        ),
    );
    let (made, _) = shard(&path, &options());
    let made = tables(&made);
    assert_eq!(number(&made, "SELECT count(*) FROM rocpd_region"), 1);
    assert_eq!(lines(&made, "SELECT source, id, x FROM rpd_ext_long"), ["1 | 1 | 1"]);
}

#[test]
fn tables_without_their_keys_are_refused_before_they_cost_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.rpd");
    let schema = SCHEMA.replace(
        "rocpd_kernelapi (api_ptr_id INTEGER NOT NULL PRIMARY KEY",
        "rocpd_kernelapi (api_ptr_id INTEGER",
    );
    Connection::open(&path).unwrap().execute_batch(&schema).unwrap();
    let error = failure(&path);
    assert!(matches!(error, RpdReadError::NoKey { .. }), "{error:?}");
    std::fs::remove_file(&path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch(&SCHEMA.replace("start INTEGER", "began INTEGER"))
        .unwrap();
    let error = failure(&path);
    assert!(error.to_string().contains("table rocpd_api has no column start"), "{error}");
}

#[test]
fn values_of_any_type_are_kept_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    // Each column of each table gets each of these values.
    let values = [
        "NULL",
        "'text'",
        "x'ff00fe'",
        "1.5",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "1e300",
        "'0x'",
    ];
    let path = dir.path().join("types.rpd");
    let conn = Connection::open(&path).unwrap();
    let untyped =
        SCHEMA.replace("INTEGER,", ",").replace("INTEGER)", ")").replace("TEXT,", ",").replace("REAL,", ",");
    conn.execute_batch(&untyped).unwrap();
    let shapes = [
        ("rocpd_api", 8),
        ("rocpd_op", 7),
        ("rocpd_monitor", 6),
        ("rocpd_counter", 3),
        ("rocpd_stackframe", 3),
        ("rocpd_api_ops", 2),
    ];
    for (table, width) in shapes {
        for (i, value) in values.iter().enumerate() {
            for column in 0..width {
                let row: Vec<_> = (0..width)
                    .map(|c| if c == column { value } else { &"7" })
                    .collect::<Vec<_>>()
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                conn.execute_batch(&format!(
                    "INSERT INTO {table} SELECT {}, {}",
                    i * width + column + 1,
                    row.join(", ")
                ))
                .unwrap();
            }
        }
    }
    conn.execute_batch(
        "UPDATE rocpd_string SET string = x'fffe' WHERE id = 7; UPDATE rocpd_metadata SET tag = x'ff'",
    )
    .unwrap();
    drop(conn);
    let (made, account) = shard(&path, &options());
    let made = tables(&made);
    let count = |table: &str| number(&made, &format!("SELECT count(*) FROM {table}")) as u64;
    for (table, out) in [
        ("rocpd_api", count("rocpd_region")),
        ("rocpd_op", count("rocpd_kernel_dispatch") + count("rocpd_memory_copy")),
        ("rocpd_monitor", count("rocpd_sample")),
    ] {
        let lost = account.translation.lost.get(table).copied().unwrap_or(0);
        assert_eq!(account.rows_read[table], out + lost, "{table}");
        assert!(lost > 0 && lost * 4 < out, "{table}: {lost} of {out}");
    }
    assert_eq!(count("rocpd_pmc_event"), account.rows_read["rocpd_counter"] + count("rocpd_sample"));
}

#[test]
fn long_texts_are_cut_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_string VALUES (50, replace(hex(zeroblob(500000)), '00', 'ab')), (51, replace(hex(zeroblob(600000)), '00', 'ä'));
         INSERT INTO rocpd_ustring VALUES (1, replace(hex(zeroblob(2000000)), '0', char(1)));
         INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 50, 1, 3, NULL), (2, 5, 5, 30, 40, 5, 1, 4, 1), (3, 5, 5, 30, 40, 51, 1, 3, NULL);",
    );
    let (made, account) = shard(&path, &options());
    let made = tables(&made);
    let lengths = "SELECT length(s.string), length(CAST(s.string AS BLOB)) FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id ORDER BY r.id";
    assert_eq!(lines(&made, lengths), ["1000000 | 1000000", "10 | 10", "524288 | 1048576"]);
    assert_eq!(
        number(&made, "SELECT max(length(json_extract(extdata, '$.message'))) FROM rocpd_event"),
        1 << 20
    );
    assert_eq!(account.translation.cut_texts, 2);
    // A value that no row of a shard can hold is an error that names the table.
    let path = made_again(
        dir.path(),
        "INSERT INTO rocpd_string VALUES (60, hex(zeroblob(9000000))); INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 60, 1, 3, NULL);",
    );
    assert!(failure(&path).to_string().contains("failed to read table"), "{}", failure(&path));
}

fn made_again(dir: &Path, rows: &str) -> PathBuf {
    std::fs::remove_file(dir.join("made.rpd")).unwrap();
    make(dir, rows)
}

#[test]
fn more_processes_than_a_job_can_have_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
         INSERT INTO rocpd_api SELECT i, i, i, i, i, 2, 1, 3, NULL FROM n;",
    );
    assert!(failure(&path).to_string().contains("more than 4096 processes"));
}

#[test]
fn a_file_without_rows_is_a_shard_without_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (_, account) = shard(&make(dir.path(), ""), &options());
    assert_eq!((account.processes, account.rows_read.len()), (0, 0));
    // Operations without any call belong to an unknown process.
    let path = made_again(dir.path(), "INSERT INTO rocpd_op VALUES (1, 0, 0, 0, 5, 9, 7, 6);");
    let (made, _) = shard(&path, &options());
    let made = tables(&made);
    assert_eq!(lines(&made, "SELECT pid, first, last FROM process"), ["0 | 5 | 9"]);
    assert_eq!(number(&made, "SELECT count(*) FROM rocpd_kernel_dispatch"), 1);
}
