//! Bulk runs are what they say, so that what is measured on them means something.

use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::{TableId, native, rocpd};
use rpd_tests::synthetic::{BulkRun, write_bulk_rocpd, write_bulk_shards};
use rusqlite::Connection;
use std::collections::BTreeSet;

fn small() -> BulkRun {
    BulkRun { ranks: 3, ranks_per_node: 2, events_per_rank: 1_000, operations: 100, ..BulkRun::default() }
}

fn count(database: &Connection, sql: &str) -> i64 {
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn databases_are_sound_and_kernels_join_their_calls() {
    let dir = tempfile::tempdir().unwrap();
    let files = write_bulk_rocpd(dir.path(), &small()).unwrap();
    assert_eq!(files.len(), 3);
    for (rank, file) in files.iter().enumerate() {
        let database = Connection::open(file).unwrap();
        let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        assert_eq!(count(&database, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
        let rows = [
            ("rocpd_event", 1_000),
            ("kernels", 400),
            ("regions", 460),
            ("samples", 20),
            ("memory_copies", 80),
            ("memory_allocations", 40),
        ];
        for (view, wanted) in rows {
            assert_eq!(count(&database, &format!("SELECT count(*) FROM {view}")), wanted, "{view}");
        }
        assert_eq!(count(&database, "SELECT count(*) % 2 FROM region_args"), 0);
        let joined = "SELECT count(*) FROM kernels K JOIN regions R ON R.guid = K.guid
            AND R.stack_id = K.stack_id WHERE R.name = 'hipLaunchKernel' AND R.end <= K.start";
        assert_eq!(count(&database, joined), 400);
        let recorded = "SELECT environment ->> 'OMPI_COMM_WORLD_RANK' FROM rocpd_info_process";
        let recorded: String = database.query_row(recorded, [], |row| row.get(0)).unwrap();
        assert_eq!(recorded, rank.to_string());
        let lengths = "SELECT min(length(display_name)) >= 190 AND max(length(display_name)) <= 2100
            FROM rocpd_info_kernel_symbol";
        assert_eq!(count(&database, lengths), 1);
    }
}

#[test]
fn shards_hold_the_same_events() {
    let dir = tempfile::tempdir().unwrap();
    let bulk = small();
    let files = write_bulk_shards(dir.path(), &bulk).unwrap();
    assert_eq!(files.len(), 3);
    for file in files {
        let shard = Shard::open(&file).unwrap();
        assert!(shard.complete() && shard.damage().is_empty());
        let rows = |table: TableId| -> u32 {
            let of_table = shard.blocks().iter().filter(|b| b.header.kind == BlockKind::Rows(table));
            of_table.map(|block| shard.rows(block).map(|_| block.header.rows).unwrap()).sum()
        };
        let found = [
            rocpd::EVENT,
            rocpd::KERNEL_DISPATCH,
            rocpd::REGION,
            rocpd::MEMORY_COPY,
            rocpd::MEMORY_ALLOCATE,
            native::RANGE,
            native::MPI_CALL,
        ];
        assert_eq!(found.map(rows), [920, 400, 400, 80, 40, 60, 20]);
    }
}

#[test]
fn the_same_run_is_the_same_files() {
    let bulk = small();
    let bytes = |write: fn(&std::path::Path, &BulkRun) -> std::io::Result<Vec<std::path::PathBuf>>| {
        let dir = tempfile::tempdir().unwrap();
        let files = write(dir.path(), &bulk).unwrap();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>()
    };
    assert!(bytes(write_bulk_rocpd) == bytes(write_bulk_rocpd));
    assert!(bytes(write_bulk_shards) == bytes(write_bulk_shards));
}

#[test]
fn strings_payloads_and_inputs_are_as_many_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let bulk = BulkRun { distinct_strings: 3_001, payload_bytes: 5_000, ..small() };
    let mut phases = BTreeSet::new();
    let mut large = 0;
    for file in write_bulk_rocpd(dir.path(), &bulk).unwrap() {
        let database = Connection::open(file).unwrap();
        let sql = "SELECT string FROM rocpd_string WHERE string LIKE 'phase %'";
        let mut statement = database.prepare(sql).unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        phases.extend(names.map(Result::unwrap));
        let sql = "SELECT count(*) FROM rocpd_event WHERE length(call_stack) BETWEEN 5000 AND 10100";
        large += count(&database, sql);
        assert_eq!(count(&database, "SELECT length(environment) > 5000 FROM rocpd_info_process"), 1);
    }
    assert_eq!(phases.len(), 3_001);
    assert!((10..=60).contains(&large), "{large}");

    let tiny = write_bulk_rocpd(&dir.path().join("tiny"), &BulkRun::tiny(20)).unwrap();
    assert_eq!(tiny.iter().filter(|file| file.is_file()).count(), 20);
}
