//! Tests the views of `.rpd` files that this crate wrote.

use crate::made::make;
use crate::support::{lines, number, options, real, same, shard};
use rpd_legacy::{RpdWriteError, WrittenCount, WrittenRpd, write};
use rpd_rocpd::{Guid, Writer};
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::{Local, Rows, RowsBuilder, Schema, TableId, Value, rocpd};
use rusqlite::Connection;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const GUID: Guid = Guid::from_bits(0x5eed);

fn append(writer: &mut Writer, rows: Rows<Local>) {
    let (keys, columns) = (rows.keys.clone(), rows.columns.clone());
    writer.append(&rows.into_merged(keys, columns)).unwrap();
}

fn append_one(writer: &mut Writer, table: TableId, row: &[Value<'_>]) {
    let mut rows = RowsBuilder::new(Schema::builtin().get(table).unwrap());
    rows.push(row);
    append(writer, rows.finish(1));
}

/// Writes the database of a shard that has one process. Its local ids become those of the database.
fn merged(shard: &Shard, path: &Path) {
    assert_eq!(shard.processes.len(), 1);
    let process = &shard.processes[&1];
    let mut writer = Writer::create(path, &GUID).unwrap();
    append_one(&mut writer, rocpd::INFO_NODE, &[Value::Int(7), Value::from("machine")]);
    append_one(
        &mut writer,
        rocpd::INFO_PROCESS,
        &[Value::Int(1), Value::Int(0), Value::Int(process.pid.into())],
    );
    for block in shard.blocks().iter().filter(|block| matches!(block.header.kind, BlockKind::Rows(_))) {
        let rows = shard.rows(block).unwrap();
        if rows.id() < rpd_shard::model::native::RANGE {
            append(&mut writer, rows);
        }
    }
    writer.commit().unwrap();
}

fn counts(written: &WrittenRpd) -> Vec<(&str, u64, u64)> {
    written.rows.iter().map(|(what, WrittenCount { read, written })| (*what, *read, *written)).collect()
}

fn check(path: &Path) -> Connection {
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let conn = Connection::open(path).unwrap();
    assert_eq!(lines(&conn, "PRAGMA integrity_check"), ["ok"]);
    assert!(lines(&conn, "PRAGMA foreign_key_check").is_empty());
    conn
}

/// Converts a real file to a shard, to RocPD, and to `.rpd` again.
fn round_trip(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = real(name, dir.path()) else { return };
    let (database, again) = (dir.path().join("job.db"), dir.path().join("again.rpd"));
    merged(&shard(&path, &options()).0, &database);
    let written = write(&database, &again).unwrap();
    let (file, again) = (Connection::open(&path).unwrap(), check(&again));
    let [calls, operations, values] = ["rocpd_api", "rocpd_op", "rocpd_monitor"]
        .map(|table| number(&file, &format!("SELECT count(*) FROM {table}")) as u64);
    assert_eq!(
        counts(&written),
        [("calls", calls, calls), ("operations", operations, operations), ("values", values, values)]
    );
    for left in ["sizes of launches", "sizes of copies", "memory allocations"] {
        assert_eq!(written.left_out.get(left), None, "{written:?}");
    }
    for query in [
        "SELECT Name, TotalCalls, TotalDuration, Ave, Percentage FROM top ORDER BY 1",
        "SELECT Name, TotalCalls, TotalDuration, Ave, Percentage FROM ktop ORDER BY 1",
        "SELECT * FROM busy",
        "SELECT pid, tid, start, end, apiName FROM api ORDER BY id",
        "SELECT args FROM api WHERE apiName = 'UserMarker' OR apiName = 'hipMalloc' ORDER BY id",
        "SELECT gpuId, queueId, start, end, description, opType FROM op ORDER BY start, end, description",
        "SELECT gpuId, queueId, start, end, duration, stream, gridX, gridY, gridZ, workgroupX, workgroupY, workgroupZ,
                groupSegmentSize, privateSegmentSize, kernelName FROM kernel ORDER BY start, end",
        "SELECT gpuId, start, end, size, dst, src, stream, apiName FROM copyop
          WHERE id IN (SELECT id FROM op WHERE opType LIKE 'Copy%') ORDER BY start, end, dst",
        "SELECT deviceType, deviceId, monitorType, start, end, value FROM rocpd_monitor ORDER BY id",
        "SELECT A.start, O.start FROM rocpd_api_ops P JOIN rocpd_api A ON A.id = api_id JOIN rocpd_op O ON O.id = op_id ORDER BY 1, 2",
    ] {
        same(query, (&file, query), (&again, query));
    }
    // The written file can be read again.
    drop(again);
    let (_, account) = shard(&dir.path().join("again.rpd"), &options());
    assert!(account.misses.is_empty() && account.translation.lost.is_empty(), "{account:?}");
}

#[test]
fn the_clock_is_that_of_the_merge_and_one_time_is_said_where_there_is_one() {
    let aligned = r#"[{"method":"reference"},{"method":"probes","former_merge":null}]"#;
    for (clock, domains, wanted) in [
        (None, None, ["CLOCK_BOOTTIME"].as_slice()),
        (Some("CLOCK_MONOTONIC of the reference node"), Some(aligned), &["CLOCK_MONOTONIC", "all nodes"]),
        (Some("CLOCK_REALTIME"), Some(r#"[{"method":"reference"},{"method":"none"}]"#), &["CLOCK_REALTIME"]),
        (Some("nonsense"), Some(r#"[{"method":"reference","former_merge":"x"}]"#), &["CLOCK_BOOTTIME"]),
        (Some(""), Some("[{}]"), &["CLOCK_BOOTTIME"]),
        (None, Some("[1"), &["CLOCK_BOOTTIME"]),
        (None, Some("[\"a\"]"), &["CLOCK_BOOTTIME"]),
        (None, Some("[]"), &["CLOCK_BOOTTIME"]),
        (None, Some("7"), &["CLOCK_BOOTTIME"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = make(dir.path(), "INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, NULL);");
        let (database, out) = (dir.path().join("job.db"), dir.path().join("out.rpd"));
        merged(&shard(&path, &options()).0, &database);
        let conn = Connection::open(&database).unwrap();
        let table = lines(
            &conn,
            "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_metadata_%' AND type = 'table'",
        )
        .remove(0);
        for (tag, value) in [("rpd.clock", clock), ("rpd.clock.domains", domains)] {
            let sql = format!("INSERT INTO \"{table}\" (tag, value) SELECT ?1, ?2 WHERE ?2 IS NOT NULL");
            conn.execute(&sql, (tag, value)).unwrap();
        }
        conn.close().unwrap();
        write(&database, &out).unwrap();
        let told =
            lines(&check(&out), "SELECT value FROM rocpd_metadata WHERE tag LIKE 'rpd.%' ORDER BY tag");
        assert_eq!(told, wanted, "{clock:?} {domains:?}");
    }
}

#[test]
fn a_matrix_multiplication_comes_back_as_it_was() {
    round_trip("matmul_result.rpd");
}

#[test]
fn a_training_run_comes_back_as_it_was() {
    round_trip("mytrace.rpd");
}

#[test]
fn counters_stacks_and_other_operations_come_back_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, NULL);
         INSERT INTO rocpd_op VALUES (1, 0, 0, 0, 100, 110, 7, 6), (2, 0, 0, 0, 120, 130, 1, 10);
         INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, 1);
         INSERT INTO rocpd_stackframe (api_ptr_id, depth, name_id) VALUES (1, 1, 11), (1, 0, 12);
         INSERT INTO rocpd_counter (value, op_id, name_id) VALUES (5.5, 1, 13), (7, 2, 13);",
    );
    let (database, again) = (dir.path().join("job.db"), dir.path().join("again.rpd"));
    merged(&shard(&path, &options()).0, &database);
    write(&database, &again).unwrap();
    let (file, again) = (Connection::open(&path).unwrap(), check(&again));
    for query in [
        "SELECT start, description.string, type.string FROM rocpd_op JOIN rocpd_string description ON description.id = description_id
           JOIN rocpd_string type ON type.id = opType_id ORDER BY 1",
        "SELECT depth, string FROM rocpd_stackframe JOIN rocpd_string s ON s.id = name_id ORDER BY 1",
        "SELECT c.value, string, o.start FROM rocpd_counter c JOIN rocpd_string s ON s.id = name_id JOIN rocpd_op o ON o.id = op_id ORDER BY 1",
    ] {
        same(query, (&file, query), (&again, query));
    }
    assert_eq!(
        lines(&again, "SELECT apiName, depth, name FROM stackframe ORDER BY depth"),
        ["hipLaunchKernel | 0 | step", "hipLaunchKernel | 1 | main"]
    );
}

/// Writes a run of rocprofv3 on three nodes with two processes each. All have the same pid, as in containers.
fn three_nodes(path: &Path, change: &str) {
    Writer::create(path, &GUID).unwrap().commit().unwrap();
    let conn = Connection::open(path).unwrap();
    let mut sql = "INSERT INTO rocpd_string (id, string) VALUES (1, 'HIP_RUNTIME_API_EXT'), (2, 'KERNEL_DISPATCH'), (3, 'MEMORY_COPY'),
        (4, 'MARKER_CORE_RANGE_API'), (5, 'hipLaunchKernel'), (6, 'roctxThreadRangeA'), (7, 'MEMORY_COPY_HOST_TO_DEVICE'),
        (8, ''), (9, 'hipGraphLaunch'), (10, 'SYSTEM_METRICS'), (11, 'system'), (12, 'MARKER_CORE_API'), (13, 'roctxMark');"
        .to_owned();
    for node in 0..3 {
        sql += &format!(
            "INSERT INTO rocpd_info_node (id, hash, machine_id) VALUES ({0}, {0}, 'm{0}');",
            10 + node
        );
        for rank in 0..2 {
            // Ids of processes are 1 to 6; ids of their rows start at 100 * p.
            let p = 2 * node + rank + 1;
            let (e, nid) = (100 * p, 10 + node);
            sql += &format!(
                "INSERT INTO rocpd_info_process (id, nid, ppid, pid) VALUES ({p}, {nid}, 1, 77);
                 INSERT INTO rocpd_info_thread (id, nid, ppid, pid, tid) VALUES ({p}, {nid}, 1, {p}, 78);
                 INSERT INTO rocpd_info_agent (id, nid, pid, type, absolute_index, logical_index, type_index) VALUES
                     ({e}, {nid}, {p}, 'CPU', 0, 0, 0), ({e} + 1, {nid}, {p}, 'GPU', 2, 2, {rank});
                 INSERT INTO rocpd_info_queue (id, nid, pid, name) VALUES ({e}, {nid}, {p}, 'Queue 0'), ({e} + 1, {nid}, {p}, 'Queue 1');
                 INSERT INTO rocpd_info_stream (id, nid, pid, name) VALUES ({e}, {nid}, {p}, 'Default Stream');
                 INSERT INTO rocpd_info_code_object (id, nid, pid) VALUES ({p}, {nid}, {p});
                 INSERT INTO rocpd_info_kernel_symbol (id, nid, pid, code_object_id, kernel_name, display_name) VALUES
                     ({p}, {nid}, {p}, {p}, 'axpy.kd', 'axpy(float*)');
                 INSERT INTO rocpd_event (id, category_id, stack_id, extdata) VALUES ({e}, 1, {e}, '{{}}'), ({e} + 1, 2, {e}, '{{}}'),
                     ({e} + 2, 3, {e} + 2, '{{}}'), ({e} + 3, 4, {e} + 2, '{{\"message\": \"step\"}}'), ({e} + 4, 1, {e} + 3, '{{}}'),
                     ({e} + 5, 2, {e} + 3, '{{}}'), ({e} + 6, 2, {e} + 3, '{{}}'), ({e} + 7, 10, 0, '{{}}'), ({e} + 8, 10, 0, '{{}}'),
                     ({e} + 9, 12, 0, '{{\"message\": \"here\"}}');
                 INSERT INTO rocpd_arg (event_id, position, type, name, value) VALUES ({e}, 1, 'dim3', 'grid', '4'), ({e}, 0, 'void*', 'f', '0x1');
                 INSERT INTO rocpd_region (id, nid, pid, tid, start, end, name_id, event_id) VALUES
                     ({e}, {nid}, {p}, {p}, 10, 20, 5, {e}), ({e} + 1, {nid}, {p}, {p}, 5, 90, 6, {e} + 3),
                     ({e} + 2, {nid}, {p}, {p}, 30, 40, 9, {e} + 4);
                 INSERT INTO rocpd_kernel_dispatch (id, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, start, end,
                     private_segment_size, group_segment_size, workgroup_size_x, workgroup_size_y, workgroup_size_z,
                     grid_size_x, grid_size_y, grid_size_z, region_name_id, event_id) VALUES
                     ({e}, {nid}, {p}, {p}, {e} + 1, {p}, 1, {e} + 1, {e}, 100, 150, 0, 64, 256, 1, 1, 1024, 1, 1, 8, {e} + 1),
                     ({e} + 1, {nid}, {p}, {p}, {e} + 1, {p}, 2, {e}, {e}, 200, 210, 0, 0, 64, 1, 1, 64, 1, 1, 8, {e} + 5),
                     ({e} + 2, {nid}, {p}, {p}, {e} + 1, {p}, 3, {e}, {e}, 220, 230, 0, 0, 64, 1, 1, 64, 1, 1, 8, {e} + 6);
                 INSERT INTO rocpd_memory_copy (id, nid, pid, tid, start, end, name_id, dst_agent_id, dst_address, src_agent_id,
                     src_address, size, queue_id, stream_id, region_name_id, event_id) VALUES
                     ({p}, {nid}, {p}, {p}, 300, 310, 7, {e} + 1, 4096, {e}, 8192, 512, NULL, {e}, 8, {e} + 2);
                 INSERT INTO rocpd_memory_allocate (id, nid, pid, tid, start, end, size) VALUES ({p}, {nid}, {p}, {p}, 1, 2, 3);
                 INSERT INTO rocpd_info_pmc (id, nid, pid, agent_id, name, symbol) VALUES ({p}, {nid}, {p}, {e} + 1, 'gpu.power', 'gpu.power'),
                     ({e} + 1, {nid}, {p}, {e} + 1, 'SQ_WAVES', 'SQ_WAVES');
                 INSERT INTO rocpd_track (id, nid, pid, tid, name_id) VALUES ({e}, {nid}, {p}, NULL, 11), ({e} + 1, {nid}, {p}, {p}, 13);
                 INSERT INTO rocpd_sample (id, track_id, timestamp, event_id) VALUES (10000 + {e}, {e}, 50, {e} + 7), (10001 + {e}, {e}, 60, {e} + 8),
                     (10002 + {e}, {e} + 1, 55, {e} + 9), (10003 + {e}, {e}, 70, NULL);
                 INSERT INTO rocpd_pmc_event (event_id, pmc_id, value) VALUES ({e} + 7, {p}, 90.5), ({e} + 8, {p}, 91), ({e} + 1, {e} + 1, 12),
                     (NULL, {e} + 1, 13);"
            );
        }
    }
    sql = sql.replace("INTO rocpd_", "INTO rocpd_\u{1}") + change;
    // Inserts into the tables, not into the views of the same name.
    let suffix = GUID.suffix();
    let mut plain = String::new();
    for (i, part) in sql.split('\u{1}').enumerate() {
        if i == 0 {
            plain += part;
            continue;
        }
        let end = part.find(' ').unwrap();
        plain += &format!("{}{suffix}{}", &part[..end], &part[end..]);
    }
    conn.execute_batch(&format!("PRAGMA synchronous = OFF; BEGIN; {plain}; COMMIT;")).unwrap();
    assert!(lines(&conn, "PRAGMA foreign_key_check").is_empty());
}

#[test]
fn nodes_are_told_apart_by_napi_and_nop() {
    let dir = tempfile::tempdir().unwrap();
    let (database, out): (PathBuf, PathBuf) = (dir.path().join("job.db"), dir.path().join("job.rpd"));
    three_nodes(&database, "");
    let written = write(&database, &out).unwrap();
    assert_eq!(written.nodes, 3);
    assert_eq!(counts(&written), [("calls", 30, 24), ("operations", 24, 24), ("values", 24, 18)]);
    let left: Vec<_> = written.left_out.iter().map(|(what, rows)| (what.as_str(), *rows)).collect();
    assert_eq!(
        left,
        [
            ("counter values of no operation and no moment", 6),
            ("memory allocations", 6),
            ("samples without a thread", 6),
            ("sizes of launches", 12),
        ]
    );
    let out = check(&out);
    assert_eq!(
        lines(
            &out,
            "SELECT node, pid, tid, count(*), group_concat(DISTINCT apiName) FROM (SELECT * FROM napi ORDER BY id) GROUP BY node"
        ),
        (0..3)
            .map(|n| format!(
                "{n} | {} | {} | 8 | hipLaunchKernel,UserMarker,hipGraphLaunch",
                77 + n * 10_000_000,
                78 + n * 10_000_000
            ))
            .collect::<Vec<_>>()
    );
    let expected: Vec<_> = (0..3)
        .flat_map(|n| {
            let gpu = n * 1000;
            // The copies have no queue.
            [
                format!("{n} | {gpu} | {gpu} | 3"),
                format!("{n} | {gpu} | {} | 1", gpu + 1),
                format!("{n} | {} | {gpu} | 1", gpu + 1),
                format!("{n} | {} | {} | 2", gpu + 1, gpu + 2),
                format!("{n} | {} | {} | 1", gpu + 1, gpu + 3),
            ]
        })
        .collect();
    assert_eq!(
        lines(&out, "SELECT node, gpuId, queueId, count(*) FROM nop GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"),
        expected
    );
    assert_eq!(
        lines(
            &out,
            "SELECT apiName, category, domain, args, end - start FROM api WHERE id <= 102 OR id = 10102 ORDER BY id"
        ),
        [
            "hipLaunchKernel | HIP_RUNTIME_API_EXT | hip | f=0x1 | grid=4 | 10",
            "UserMarker | MARKER_CORE_RANGE_API | roctx | step | 85",
            "hipGraphLaunch | HIP_RUNTIME_API_EXT | hip |  | 10",
            "UserMarker | MARKER_CORE_API | roctx | here | 0",
        ]
    );
    assert_eq!(
        lines(
            &out,
            "SELECT gpuId, start, gridX, workgroupX, groupSegmentSize, kernelName FROM kernel ORDER BY id LIMIT 1"
        ),
        ["0 | 100 | 1024 | 256 | 64 | axpy.kd"]
    );
    assert_eq!(
        lines(&out, "SELECT Name, TotalCalls FROM top"),
        ["axpy(float*) | 18", "CopyHostToDevice | 6"]
    );
    assert_eq!(
        lines(&out, "SELECT api_id, count(*) FROM rocpd_api_ops GROUP BY 1 LIMIT 3"),
        ["100 | 1", "101 | 1", "102 | 2"]
    );
    assert_eq!(
        lines(
            &out,
            "SELECT DISTINCT deviceType, deviceId, monitorType, start, end, value FROM rocpd_monitor WHERE deviceId < 1000 ORDER BY 2, 4"
        ),
        [
            "gpu | 0 | gpu.power | 50 | 60 | 90.5",
            "gpu | 0 | gpu.power | 60 | 60 | 91",
            "gpu | 1 | gpu.power | 50 | 60 | 90.5",
            "gpu | 1 | gpu.power | 60 | 60 | 91"
        ]
    );
    assert_eq!(
        number(
            &out,
            "SELECT count(*) FROM rocpd_counter c JOIN op ON op.id = c.op_id WHERE c.value = 12 AND op.start = 100"
        ),
        6
    );
    assert_eq!(
        lines(&out, "SELECT tag, value FROM rocpd_metadata ORDER BY id LIMIT 3"),
        ["schema_version | 3", "pid_stride | 10000000", "gpu_stride | 1000"]
    );
}

#[test]
fn a_copy_has_the_size_and_ends_of_its_request() {
    let dir = tempfile::tempdir().unwrap();
    let (database, out) = (dir.path().join("job.db"), dir.path().join("job.rpd"));
    three_nodes(&database, "");
    write(&database, &out).unwrap();
    let copies = "SELECT DISTINCT size, kind, dst, src FROM copyop";
    assert_eq!(lines(&check(&out), copies), ["512 | 1 | 0x1000 | 0x2000"]);
}

#[test]
fn what_cannot_be_written_is_said_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (database, out) = (dir.path().join("job.db"), dir.path().join("job.rpd"));
    let table = |name: &str| format!("rocpd_{name}{}", GUID.suffix());
    let cases = [
        (format!("UPDATE {} SET pid = 10000000 WHERE id = 4", table("info_process")), "process id 10000000"),
        (format!("UPDATE {} SET tid = -1 WHERE id = 4", table("info_thread")), "thread id -1"),
        (format!("UPDATE {} SET type_index = 1000 WHERE id = 101", table("info_agent")), "GPU number 1000"),
        (
            format!("UPDATE {} SET value = '4.1.0' WHERE tag = 'schema_version'", table("metadata")),
            "schema version is [\"4.1.0\"]",
        ),
        (format!("PRAGMA defer_foreign_keys = ON; DROP TABLE {}", table("region")), "no table rocpd_region"),
        ("CREATE TABLE rocpd_metadata_other (tag, value)".to_owned(), "several sets of tables"),
    ];
    for (change, wanted) in cases {
        three_nodes(&database, &change);
        let error = write(&database, &out).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(!out.exists());
        std::fs::remove_file(&database).unwrap();
    }
    three_nodes(&database, "");
    std::fs::write(&out, "mine").unwrap();
    assert!(matches!(write(&database, &out), Err(RpdWriteError::Exists { .. })));
    assert_eq!(std::fs::read(&out).unwrap(), b"mine");
    assert!(matches!(
        write(&dir.path().join("gone.db"), &dir.path().join("x.rpd")),
        Err(RpdWriteError::Source(_))
    ));
}

#[test]
fn queues_of_a_full_node_are_numbered_in_their_process() {
    let dir = tempfile::tempdir().unwrap();
    let (database, out) = (dir.path().join("job.db"), dir.path().join("job.rpd"));
    let many = format!(
        "WITH RECURSIVE n(i) AS (SELECT 5000 UNION ALL SELECT i + 1 FROM n WHERE i < 5996)
         INSERT INTO rocpd_info_queue{0} (id, nid, pid) SELECT i, 10, 1 FROM n;",
        GUID.suffix()
    );
    three_nodes(&database, &many);
    write(&database, &out).unwrap();
    assert_eq!(
        lines(&check(&out), "SELECT DISTINCT queueId FROM rocpd_op ORDER BY 1"),
        ["0", "1", "1000", "1001", "2000", "2001"]
    );
    std::fs::remove_file(&database).unwrap();
    std::fs::remove_file(&out).unwrap();
    three_nodes(&database, &many.replace("5996", "6996"));
    assert!(matches!(write(&database, &out), Err(RpdWriteError::IdTooLarge { what: "queue number", .. })));
}

#[test]
fn args_that_are_no_utf_8_become_text() {
    let dir = tempfile::tempdir().unwrap();
    let (database, out) = (dir.path().join("job.db"), dir.path().join("job.rpd"));
    let blob = |value: &str, event: u32| {
        format!("; UPDATE rocpd_\u{1}arg SET value = {value} WHERE event_id = {event} AND position = 1")
    };
    three_nodes(
        &database,
        &(blob("x'fffe41'", 100) + &blob("CAST(x'ff42' AS TEXT)", 200) + &blob("x'6f6b'", 300)),
    );
    write(&database, &out).unwrap();
    let texts =
        lines(&check(&out), "SELECT string FROM rocpd_ustring WHERE string LIKE 'f=%' ORDER BY id LIMIT 4");
    assert_eq!(
        texts,
        ["f=0x1 | grid=\u{fffd}\u{fffd}A", "f=0x1 | grid=\u{fffd}B", "f=0x1 | grid=ok", "f=0x1 | grid=4"]
    );
}
