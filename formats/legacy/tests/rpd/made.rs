//! Tests files of schema 3 that are created by SQL.

use crate::support::{lines, number, options, shard, tables};
use rpd_legacy::{RpdOptions, read_processes};
use rpd_shard::record::{Clock, LossCause};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// The tables of schema 3.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE rocpd_metadata (id INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, value TEXT NOT NULL);
    CREATE TABLE rocpd_string (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, string TEXT NOT NULL);
    CREATE TABLE rocpd_ustring (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, string TEXT NOT NULL);
    CREATE TABLE rocpd_api (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, pid INTEGER, tid INTEGER, start INTEGER,
        \"end\" INTEGER, apiName_id INTEGER, category_id INTEGER, domain_id INTEGER, args_id INTEGER);
    CREATE TABLE rocpd_op (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, gpuId INTEGER, queueId INTEGER,
        sequenceId INTEGER, start INTEGER, \"end\" INTEGER, description_id INTEGER, opType_id INTEGER);
    CREATE TABLE rocpd_api_ops (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, api_id INTEGER, op_id INTEGER);
    CREATE TABLE rocpd_kernelapi (api_ptr_id INTEGER NOT NULL PRIMARY KEY, stream TEXT, gridX INTEGER, gridY INTEGER,
        gridZ INTEGER, workgroupX INTEGER, workgroupY INTEGER, workgroupZ INTEGER, groupSegmentSize INTEGER,
        privateSegmentSize INTEGER, kernelName_id INTEGER);
    CREATE TABLE rocpd_copyapi (api_ptr_id INTEGER NOT NULL PRIMARY KEY, stream TEXT, size INTEGER, width INTEGER,
        height INTEGER, kind INTEGER, dst TEXT, src TEXT, dstDevice INTEGER, srcDevice INTEGER, sync INTEGER,
        pinned INTEGER);
    CREATE TABLE rocpd_monitor (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, deviceType TEXT, deviceId INTEGER,
        monitorType TEXT, start INTEGER, \"end\" INTEGER, value TEXT);
    CREATE TABLE rocpd_counter (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, value REAL, op_id INTEGER,
        name_id INTEGER);
    CREATE TABLE rocpd_stackframe (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, api_ptr_id INTEGER, depth INTEGER,
        name_id INTEGER);
    INSERT INTO rocpd_metadata (tag, value) VALUES ('schema_version', '3');
    INSERT INTO rocpd_string VALUES (1, ''), (2, 'hipLaunchKernel'), (3, 'hip'), (4, 'roctx'), (5, 'UserMarker'),
        (6, 'KernelExecution'), (7, 'axpy'), (8, 'CopyHostToDevice'), (9, 'hipMemcpy'), (10, 'Barrier'), (11, 'main'),
        (12, 'step'), (13, 'GRBM_COUNT'), (14, 'sync');";

/// Creates a file with these rows.
pub(crate) fn make(dir: &Path, rows: &str) -> PathBuf {
    let path = dir.join("made.rpd");
    Connection::open(&path).unwrap().execute_batch(&format!("{SCHEMA} {rows}")).unwrap();
    path
}

#[test]
fn processes_of_one_file_keep_their_rows_apart() {
    let dir = tempfile::tempdir().unwrap();
    // Session 1 is process 70, session 2 is process 60. Strings occur twice. The last two operations have no call.
    let (one, two) = (1_i64 << 32, 2_i64 << 32);
    let path = make(
        dir.path(),
        &format!(
            "INSERT INTO rocpd_string VALUES ({two} + 2, 'hipLaunchKernel'), ({two} + 7, 'axpy');
             INSERT INTO rocpd_api VALUES ({one} + 1, 70, 70, 100, 200, 2, 1, 3, NULL), ({one} + 2, 70, 71, 300, 400, 9, 1, 3, NULL),
                 ({two} + 1, 60, 60, 150, 250, {two} + 2, 1, 3, NULL);
             INSERT INTO rocpd_op VALUES ({one} + 1, 0, 0, 0, 1000, 1100, 7, 6), ({one} + 2, 0, 1, 0, 1200, 1400, 1, 8),
                 ({two} + 1, 0, 0, 0, 1000, 1500, {two} + 7, 6), ({two} + 2, 1, 0, 0, 2000, 2001, 7, 6),
                 (9 << 32, 0, 0, 0, 3000, 3003, 1, 10);
             INSERT INTO rocpd_api_ops (api_id, op_id) VALUES ({two} + 1, {two} + 1), ({one} + 1, {one} + 1),
                 ({one} + 2, {one} + 2);
             INSERT INTO rocpd_kernelapi VALUES ({one} + 1, '0x0', 4, 5, 6, 64, 2, 1, 512, 32, 7),
                 ({two} + 1, '0xab', 8, 1, 1, 32, 1, 1, 0, 0, {two} + 7);
             INSERT INTO rocpd_copyapi VALUES ({one} + 2, '0x0', '', 16, 4, 1, '0x7f00', '0x8f00', 0, 0, 1, 0);"
        ),
    );
    let (made, account) = shard(&path, &options());
    let made = tables(&made);
    assert_eq!(
        lines(&made, "SELECT source, pid, first, last FROM process ORDER BY 1"),
        ["1 | 70 | 100 | 3003", "2 | 60 | 150 | 2001"]
    );
    assert_eq!(
        lines(
            &made,
            "SELECT d.source, r.start, t.tid, k.display_name, s.name, grid_size_y, d.group_segment_size, d.dispatch_id
               FROM rocpd_kernel_dispatch d
               JOIN rocpd_event e ON e.source = d.source AND e.id = d.event_id
               LEFT JOIN rocpd_region r ON r.source = d.source AND r.id = e.stack_id
               JOIN rocpd_info_thread t ON t.source = d.source AND t.id = d.tid
               JOIN rocpd_info_stream s ON s.source = d.source AND s.id = d.stream_id
               JOIN rocpd_info_kernel_symbol k ON k.source = d.source AND k.id = d.kernel_id ORDER BY d.dispatch_id"
        ),
        [
            format!("1 | 100 | 70 | axpy | Default Stream | 5 | 512 | {}", one + 1),
            format!("2 | 150 | 60 | axpy | Stream 0xab | 1 | 0 | {}", two + 1),
            format!("2 | NULL | 0 | axpy | (unknown) | 0 | NULL | {}", two + 2),
            format!("1 | NULL | 0 | Barrier | (unknown) | 0 | NULL | {}", 9_i64 << 32),
        ]
    );
    // The size of a two-dimensional copy is its area.
    let copies = "SELECT source, size, dst_address, src_address, start, end FROM rocpd_memory_copy";
    assert_eq!(lines(&made, copies), ["1 | 64 | 32512 | 36608 | 1200 | 1400"]);
    assert_eq!(number(&made, "SELECT count(*) FROM rocpd_info_agent WHERE type = 'GPU'"), 3);
    assert!(account.misses.is_empty() && account.translation.lost.is_empty(), "{account:?}");
    let seen: Vec<_> =
        read_processes(&path).unwrap().iter().map(|p| (p.source, p.pid, p.first_seen)).collect();
    assert_eq!(seen, [(1, 70, 100), (2, 60, 150)]);
}

#[test]
fn links_that_are_left_out_are_lost_as_links() {
    let dir = tempfile::tempdir().unwrap();
    let rows =
        "INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, NULL), (2, 5, 5, 30, 40, 2, 1, 3, NULL);
         INSERT INTO rocpd_op VALUES (1, 0, 0, 0, 100, 110, 7, 6);
         INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, 1), (2, 1);";
    let lost = |path: &Path| {
        let (made, account) = shard(path, &options());
        let losses = made.ledger.as_ref().unwrap().losses.clone();
        let losses: Vec<_> = losses.iter().map(|loss| (loss.table, loss.cause, loss.rows)).collect();
        (losses, account)
    };
    let path = make(dir.path(), rows);
    let (losses, account) = lost(&path);
    assert_eq!(losses, [(None, LossCause::UnknownTable, Some(1))]);
    assert_eq!(account.translation.lost.get("rocpd_api_ops"), Some(&1));
    assert!(account.misses.is_empty(), "{:?}", account.misses);
    let told = "rows of rocpd_api_ops that are left out: 1; RocPD links an operation to one call, and these lead to a further one";
    assert_eq!(account.translation.warnings, [told]);

    Connection::open(&path).unwrap().execute_batch("DROP TABLE rocpd_api_ops").unwrap();
    let (losses, account) = lost(&path);
    assert_eq!(losses, [(None, LossCause::UnknownTable, None)]);
    assert!(
        account.translation.warnings[0].starts_with("there is no table rocpd_api_ops"),
        "{:?}",
        account.translation.warnings
    );
}

#[test]
fn a_schema_version_that_is_not_known_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for (statement, expected) in [
        ("", None),
        ("UPDATE rocpd_metadata SET value = '2'", None),
        ("UPDATE rocpd_metadata SET value = '9'", Some("a .rpd has schema version \"9\"")),
        ("DELETE FROM rocpd_metadata", Some("a .rpd does not state its schema version")),
    ] {
        let path = make(dir.path(), statement);
        let (_, account) = shard(&path, &options());
        assert_eq!(account.unknown_version().as_deref(), expected, "{statement}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_refers_to_nothing_is_kept_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, 77), (2, 5, 5, 30, 40, 99, 1, 3, 1), (3, NULL, NULL, 50, NULL, 2, 1, 3, NULL),
             (4, 5, 5, NULL, 60, 2, 1, 3, NULL);
         INSERT INTO rocpd_ustring VALUES (1, 'ptr=1');
         INSERT INTO rocpd_op VALUES (1, 0, 0, 0, 100, 110, 99, 6), (2, NULL, NULL, 0, 120, NULL, 7, 99), (3, 0, 0, 0, NULL, 9, 7, 6);
         INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, 1), (2, 1), (88, 2), (1, 55);
         INSERT INTO rocpd_kernelapi (api_ptr_id, kernelName_id) VALUES (1, 7), (66, 7);
         INSERT INTO rocpd_stackframe (api_ptr_id, depth, name_id) VALUES (1, 1, 11), (1, 0, 12), (44, 0, 11);
         INSERT INTO rocpd_counter (value, op_id, name_id) VALUES (5.5, 1, 13), (6.5, 77, 13), (7.5, 1, 99);
         INSERT INTO rocpd_monitor (deviceType, deviceId, monitorType, start, end, value) VALUES
             ('gpu', 0, 'temp', 10, 20, '41'), ('gpu', 0, 'temp', 20, NULL, 'hot'), ('cpu', 0, 'load', NULL, 9, '1');",
    );
    let (made, account) = shard(&path, &options());
    let losses: u64 = made.ledger.as_ref().unwrap().losses.iter().filter_map(|loss| loss.rows).sum();
    let made = tables(&made);
    let misses: Vec<_> =
        account.misses.iter().map(|((table, column), n)| format!("{table}.{column} {n}")).collect();
    assert_eq!(
        misses,
        [
            "rocpd_api.apiName_id 1",
            "rocpd_api.args_id 1",
            "rocpd_api.end 1",
            "rocpd_api.pid 1",
            "rocpd_api.start 1",
            "rocpd_api.tid 1",
            "rocpd_api_ops.api_id 1",
            "rocpd_api_ops.op_id 1",
            "rocpd_counter.name_id 1",
            "rocpd_counter.op_id 1",
            "rocpd_kernelapi.api_ptr_id 1",
            "rocpd_monitor.end 1",
            "rocpd_monitor.start 1",
            "rocpd_monitor.value 1",
            "rocpd_op.description_id 1",
            "rocpd_op.end 1",
            "rocpd_op.opType_id 1",
            "rocpd_op.start 1",
            "rocpd_stackframe.api_ptr_id 1",
        ]
    );
    let lost: Vec<_> =
        account.translation.lost.iter().map(|(table, rows)| format!("{table} {rows}")).collect();
    let wanted = [
        "rocpd_api 1",
        "rocpd_api_ops 2",
        "rocpd_kernelapi 1",
        "rocpd_monitor 1",
        "rocpd_op 1",
        "rocpd_stackframe 1",
    ];
    assert_eq!(lost, wanted);
    assert_eq!(
        losses,
        account.translation.lost.values().sum::<u64>(),
        "the ledger of the shard tells the same"
    );
    // The number of rows read equals the number of rows written and lost.
    for (table, out) in [
        ("rocpd_api", "rocpd_region"),
        ("rocpd_op", "rocpd_kernel_dispatch"),
        ("rocpd_monitor", "rocpd_sample"),
        (
            "rocpd_counter",
            "rocpd_pmc_event WHERE pmc_id IN (SELECT id FROM rocpd_info_pmc WHERE component = '')",
        ),
    ] {
        let kept = number(&made, &format!("SELECT count(*) FROM {out}")) as u64;
        assert_eq!(
            account.rows_read[table],
            kept + account.translation.lost.get(table).copied().unwrap_or(0),
            "{table}"
        );
    }
    assert_eq!(
        lines(
            &made,
            "SELECT s.string, r.start, r.end FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id ORDER BY r.id"
        ),
        ["hipLaunchKernel | 10 | 20", "(unknown) | 30 | 40", "hipLaunchKernel | 50 | 50"]
    );
    let stack = r#"{"frames":[{"depth":0,"name":"step"},{"depth":1,"name":"main"}]}"#;
    assert_eq!(lines(&made, "SELECT call_stack FROM rocpd_event WHERE call_stack <> '{}'"), [stack]);
    assert_eq!(
        lines(
            &made,
            "SELECT p.name, v.value, v.event_id FROM rocpd_pmc_event v JOIN rocpd_info_pmc p ON p.id = v.pmc_id WHERE p.component = '' ORDER BY v.id"
        ),
        ["GRBM_COUNT | 5.5 | 4", "GRBM_COUNT | 6.5 | NULL", "(unknown) | 7.5 | 4"]
    );
    let text = "SELECT extdata FROM rocpd_pmc_event WHERE value IS NULL OR value = '0.0'";
    assert_eq!(lines(&made, text), [r#"{"rpd":{"value":"hot"}}"#]);
}

#[test]
fn domains_become_categories_and_texts_of_ranges_messages() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_string VALUES (20, 'rocfft'), (21, 'plan');
         INSERT INTO rocpd_ustring VALUES (1, 'forward \"x\"'), (2, 'n=4');
         INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 90, 5, 5, 4, 1), (2, 5, 5, 20, 30, 2, 1, 3, 2), (3, 5, 5, 40, 50, 14, 21, 20, NULL);",
    );
    let (made, account) = shard(&path, &options());
    let made = tables(&made);
    assert_eq!(
        lines(
            &made,
            "SELECT c.string, n.string, e.extdata, a.value FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id
               JOIN rocpd_string c ON c.id = e.category_id JOIN rocpd_string n ON n.id = r.name_id
               LEFT JOIN rocpd_arg a ON a.event_id = e.id ORDER BY r.id"
        ),
        [
            r#"MARKER_CORE_RANGE_API | UserMarker | {"message":"forward \"x\"","rpd":{"category":"UserMarker","domain":"roctx"}} | NULL"#,
            r#"HIP_RUNTIME_API_EXT | hipLaunchKernel | {"rpd":{"domain":"hip"}} | n=4"#,
            r#"rocfft | sync | {"rpd":{"category":"plan","domain":"rocfft"}} | NULL"#,
        ]
    );
    assert!(account.misses.is_empty(), "{account:?}");
}

#[test]
fn extension_tables_are_carried_with_their_references() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_api VALUES (1, 5, 5, 10, 20, 2, 1, 3, NULL), (2, 6, 6, 30, 40, 2, 1, 3, NULL), (3, 6, 6, 50, 60, 2, 1, 3, NULL);
         INSERT INTO rocpd_op VALUES (8, 0, 0, 0, 100, 110, 7, 6), (9, 0, 0, 0, 100, 110, 7, 6);
         INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (3, 9);
         INSERT INTO rocpd_ustring VALUES (3, 'long text');
         CREATE TABLE ext_layer (id INTEGER PRIMARY KEY, api_ptr_id INTEGER, op INTEGER REFERENCES rocpd_op (id),
             name_id INTEGER, note INTEGER, guid TEXT, anything);
         INSERT INTO ext_layer VALUES (40, 3, 9, 12, 3, 'g', x'00ff'), (41, 1, NULL, 99, 9, NULL, 2.5), (42, 77, 9, 11, NULL, '', 'x');
         CREATE TABLE ext_empty (id INTEGER PRIMARY KEY);
         CREATE VIRTUAL TABLE ext_search USING fts5 (words);
         INSERT INTO rocpd_metadata (tag, value) VALUES ('references::rocpd_string.id', '(\"ext_layer\", \"name_id\")'),
             ('references::rocpd_ustring.id', '(\"ext_layer\", \"note\")');",
    );
    let (made, account) = shard(&path, &options());
    assert_eq!(account.carried[0], ("ext_layer".to_owned(), "rpd_ext_layer".to_owned()));
    assert!(
        !account.carried.iter().any(|(from, _)| from == "ext_empty" || from == "ext_search"),
        "{:?}",
        account.carried
    );
    let layer = made.schema().by_name("rpd_ext_layer").unwrap();
    let columns: Vec<_> = layer.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(columns, ["rpd_id", "api_ptr_id", "op", "name_id", "note", "rpd_guid", "anything"]);
    let made = tables(&made);
    assert_eq!(
        lines(
            &made,
            "SELECT l.source, l.rpd_id, r.start, l.op, s.string, l.note, l.rpd_guid, typeof(l.anything) FROM rpd_ext_layer l
               LEFT JOIN rocpd_region r ON r.source = l.source AND r.id = l.api_ptr_id
               LEFT JOIN rocpd_string s ON s.id = l.name_id ORDER BY 2"
        ),
        ["2 | 40 | 50 | 3 | step | long text | g | blob", "1 | 41 | 10 | NULL | NULL | NULL | NULL | real", "2 | 42 | NULL | 3 | main | NULL |  | text"]
    );
    // The event of the operation is that of the process's only dispatch.
    assert_eq!(number(&made, "SELECT event_id FROM rocpd_kernel_dispatch WHERE source = 2"), 3);
    for column in ["name_id", "note", "api_ptr_id"] {
        assert_eq!(account.misses[&("ext_layer".to_owned(), column.to_owned())], 1, "{column}");
    }
}

/// Creates ranges of one thread, each containing calls that are shifted by `shift` ns.
fn mixed(dir: &Path, shift: i64) -> PathBuf {
    make(
        dir,
        &format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99)
             INSERT INTO rocpd_api SELECT 2 * i + 1, 5, 5, i * 1000, i * 1000 + 900, 5, 1, 4, NULL FROM n
              UNION ALL SELECT 2 * i + 2, 5, 5, i * 1000 + 100 + {shift}, i * 1000 + 800 + {shift}, 2, 1, 3, NULL FROM n;"
        ),
    )
}

#[test]
fn ranges_on_another_clock_are_seen_and_can_be_shifted() {
    const HOUR: i64 = 3_600_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    for shift in [300, HOUR] {
        let path = mixed(dir.path(), shift);
        let (_, account) = shard(&path, &options());
        assert_eq!(account.clock, Clock::Boottime);
        assert!(
            account.translation.warnings[0].contains("DO NOT LINE UP"),
            "{:?}",
            account.translation.warnings
        );
        let known = RpdOptions { marker_offset: Some(shift), ..options() };
        let (made, account) = shard(&path, &known);
        assert!(account.translation.warnings[0].contains("are added"), "{:?}", account.translation.warnings);
        let inside = "SELECT count(*) FROM rocpd_region a JOIN rocpd_region b ON b.id = a.id + 1
                       WHERE a.id % 2 = 1 AND b.start > a.start AND b.end < a.end";
        assert_eq!(number(&tables(&made), inside), 100);
        let forced = RpdOptions { clock: Some(Clock::Realtime), ..options() };
        let (made, account) = shard(&path, &forced);
        assert_eq!((account.clock, made.processes[&1].clock), (Clock::Realtime, Clock::Realtime));
        std::fs::remove_file(path).unwrap();
    }
    let (_, account) = shard(&mixed(dir.path(), 0), &options());
    assert_eq!((account.clock, account.translation.warnings.len()), (Clock::Monotonic, 0));
}

#[test]
fn a_merged_file_has_its_nodes_apart_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_metadata (tag, value) VALUES ('gpu_stride', '1000'), ('pid_stride', '10000000'), ('rpd.clock', 'CLOCK_BOOTTIME');
         INSERT INTO rocpd_api VALUES (1, 70, 70, 10, 20, 2, 1, 3, NULL), (2, 30000070, 30000071, 10, 20, 2, 1, 3, NULL),
             (3, 9990000070, 9990000070, 10, 20, 2, 1, 3, NULL);
         INSERT INTO rocpd_op VALUES (1, 3002, 3001, 0, 100, 110, 7, 6);
         INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (2, 1);",
    );
    let (made, account) = shard(&path, &options());
    let made = tables(&made);
    let shown = "substr(node, instr(node, ' ') + 1)";
    assert_eq!(
        lines(&made, &format!("SELECT pid, {shown} FROM process ORDER BY source")),
        ["70 | (pid 70)", "70 | (node 3, pid 70)", "70 | (node 999, pid 70)"]
    );
    assert_eq!(number(&made, "SELECT count(DISTINCT node) FROM process WHERE node LIKE 'unknown-%'"), 3);
    assert_eq!(
        lines(&made, "SELECT source, tid FROM rocpd_info_thread ORDER BY 1"),
        ["1 | 70", "2 | 71", "3 | 70"]
    );
    assert_eq!(lines(&made, "SELECT type_index FROM rocpd_info_agent WHERE type = 'GPU'"), ["2"]);
    assert_eq!(lines(&made, "SELECT name FROM rocpd_info_queue"), ["Queue 1"]);
    assert_eq!(account.clock, Clock::Boottime);
}

#[test]
fn nodes_of_a_file_with_one_time_have_one_clock() {
    let nodes = "INSERT INTO rocpd_metadata (tag, value) VALUES ('gpu_stride', '1000'), ('pid_stride', '10000000');
         INSERT INTO rocpd_api VALUES (1, 70, 70, 10, 20, 2, 1, 3, NULL), (2, 10000070, 10000071, 10, 20, 2, 1, 3, NULL);";
    for (said, clocks) in [
        ("", 2),
        ("INSERT INTO rocpd_metadata (tag, value) VALUES ('rpd.clock.one_time', 'no')", 2),
        ("INSERT INTO rocpd_metadata (tag, value) VALUES ('rpd.clock.one_time', 'all nodes')", 1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (made, _) = shard(&make(dir.path(), &format!("{nodes}{said}")), &options());
        let processes = || made.processes.values();
        let domains: std::collections::BTreeSet<_> =
            processes().map(|process| process.domain.clone()).collect();
        let machines: std::collections::BTreeSet<_> =
            processes().map(|process| process.node.machine_id.clone()).collect();
        assert_eq!((domains.len(), machines.len()), (clocks, 2), "{said}");
        assert!(processes().all(|process| process.node.boot_id == process.domain.boot_id));
    }
}

#[test]
fn many_rows_of_many_processes_are_all_there() {
    let dir = tempfile::tempdir().unwrap();
    // More rows than may be pending, from alternating processes.
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_ustring VALUES (1, 'n=1');
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
         INSERT INTO rocpd_api SELECT i, i % 7, i % 7, i * 10, i * 10 + i % 9, 2, 1, 3, 1 FROM n;
         INSERT INTO rocpd_op SELECT 1000000 - id, 0, 0, 0, start, end, 7, 6 FROM rocpd_api;
         INSERT INTO rocpd_api_ops (api_id, op_id) SELECT 1000000 - id, id FROM rocpd_op;
         CREATE TABLE ext_ref (a INTEGER REFERENCES rocpd_api (id), o INTEGER REFERENCES rocpd_op (id));
         INSERT INTO ext_ref SELECT api_id, op_id FROM rocpd_api_ops;",
    );
    let (made, account) = shard(&path, &options());
    let made = tables(&made);
    assert!(account.misses.is_empty() && account.translation.lost.is_empty(), "{account:?}");
    assert_eq!(
        lines(&made, "SELECT count(*), sum(end - start), count(DISTINCT source) FROM rocpd_region"),
        lines(&Connection::open(&path).unwrap(), "SELECT count(*), sum(end - start), 7 FROM rocpd_api")
    );
    // CROSS JOIN makes SQLite use the order of the tables, for which there are indexes.
    // Each operation has the times of its call, and therefore must have its stack id. The same holds for each
    // reference.
    let pairs = "SELECT count(*) FROM rocpd_kernel_dispatch d
        CROSS JOIN rocpd_event e ON e.source = d.source AND e.id = d.event_id
        CROSS JOIN rocpd_region r ON r.source = d.source AND r.id = e.stack_id WHERE r.start = d.start AND r.end = d.end";
    assert_eq!(number(&made, pairs), 120_000);
    made.execute_batch("CREATE INDEX de ON rocpd_kernel_dispatch (source, event_id)").unwrap();
    let references = "SELECT count(*) FROM rpd_ext_ref x
        CROSS JOIN rocpd_region r ON r.source = x.source AND r.id = x.a
        CROSS JOIN rocpd_kernel_dispatch d ON d.source = x.source AND d.event_id = x.o WHERE r.start = d.start";
    assert_eq!(number(&made, references), 120_000);
}

#[test]
fn a_dispatch_whose_sizes_are_not_said_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(
        dir.path(),
        "INSERT INTO rocpd_api VALUES (1, 70, 70, 100, 200, 2, 1, 3, NULL), (2, 70, 70, 300, 400, 2, 1, 3, NULL);
         INSERT INTO rocpd_op VALUES (1, 0, 0, 0, 1000, 1100, 7, 6), (2, 0, 0, 0, 1200, 1400, 7, 6),
             (3, 0, 0, 5, 2000, 2001, 7, 6);
         INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, 1), (2, 2);
         INSERT INTO rocpd_kernelapi (api_ptr_id, stream, gridX, gridY, gridZ, workgroupX) VALUES
             (1, '', 4, 5, 6, 64), (2, '', 4, 5, 6, NULL);",
    );
    let made = tables(&shard(&path, &options()).0);
    assert_eq!(
        lines(
            &made,
            "SELECT grid_size_x, workgroup_size_x, extdata FROM rocpd_kernel_dispatch ORDER BY dispatch_id"
        ),
        [
            "4 | 64 | {}",
            r#"4 | 0 | {"rpd":{"no_workgroup":true}}"#,
            r#"0 | 0 | {"rpd":{"no_grid":true,"no_workgroup":true,"sequence":5}}"#,
        ]
    );
}
