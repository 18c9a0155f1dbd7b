//! A `.rpd` that is merged has the same rows once it is a `.rpd` again, at once or by way of a database; and the nodes
//! that it does not name stay the same.

use crate::clock_tables::three_nodes;
use rpd_tests::content::differences;
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use std::path::{Path, PathBuf};

/// The rows of a `.rpd` with texts for the ids of strings, and the times of calls and operations for theirs. Values
/// of counters have no other name than their operation.
const RPD_ROWS: [(&str, &str); 10] = [
    ("metadata", "SELECT tag, value FROM rocpd_metadata"),
    ("strings", "SELECT string FROM rocpd_string"),
    ("texts", "SELECT string FROM rocpd_ustring"),
    ("calls", "SELECT pid, tid, start, \"end\", apiName, category, domain, args FROM api"),
    ("operations", "SELECT gpuId, queueId, sequenceId, start, \"end\", description, opType FROM op"),
    (
        "launches",
        "SELECT a.pid, a.start, k.stream, k.gridX, k.gridY, k.gridZ, k.workgroupX, k.workgroupY, k.workgroupZ,
                k.groupSegmentSize, k.privateSegmentSize, s.string
           FROM rocpd_kernelapi k JOIN rocpd_api a ON a.id = k.api_ptr_id JOIN rocpd_string s ON s.id = k.kernelName_id",
    ),
    (
        "requests",
        "SELECT a.pid, a.start, stream, size, width, height, kind, dst, src, dstDevice, srcDevice, sync, pinned
           FROM rocpd_copyapi c JOIN rocpd_api a ON a.id = c.api_ptr_id",
    ),
    (
        "pairs",
        "SELECT a.pid, a.start, o.gpuId, o.start, o.\"end\" FROM rocpd_api_ops p
           JOIN rocpd_api a ON a.id = p.api_id JOIN rocpd_op o ON o.id = p.op_id",
    ),
    ("monitor", "SELECT deviceType, deviceId, monitorType, start, \"end\", value FROM rocpd_monitor"),
    (
        "counters",
        "SELECT o.gpuId, o.start, c.value, s.string FROM rocpd_counter c JOIN rocpd_op o ON o.id = c.op_id
           JOIN rocpd_string s ON s.id = c.name_id
          UNION ALL
         SELECT a.pid, a.start, f.depth, s.string FROM rocpd_stackframe f JOIN rocpd_api a ON a.id = f.api_ptr_id
           JOIN rocpd_string s ON s.id = f.name_id",
    ),
];

/// Counts of the rows of a database that a `.rpd` has a place for.
const ROCPD_ROWS: [(&str, &str); 4] = [
    ("regions", "SELECT count(*) FROM rocpd_region"),
    ("args", "SELECT name, count(*) FROM rocpd_arg GROUP BY name"),
    ("dispatches", "SELECT count(*), sum(grid_size_x) FROM rocpd_kernel_dispatch"),
    ("copies", "SELECT count(*), sum(size) FROM rocpd_memory_copy"),
];

/// Merges inputs to a `.rpd`, that to a database, and the database to a `.rpd`: it has the rows of the first one.
/// So has one that is made of the first one at once. `as_is` says that the first one has what its input has.
fn comes_back(inputs: &[PathBuf], folder: &Path, as_is: &[&str]) {
    let merge = |format: &str, to: &str, inputs: &[PathBuf]| {
        let path = folder.join(to);
        let _ =
            rpd_merge().args(["--force", "--format", format, "-o"]).arg(&path).args(inputs).run().success();
        path
    };
    let first = merge("rpd", "first.rpd", inputs);
    let database = merge("rocpd", "first.db", std::slice::from_ref(&first));
    let rows = Database::open(&first).answers(&RPD_ROWS);
    assert!(!rows["calls"].is_empty() && !rows["operations"].is_empty());
    for (to, from) in [("again.rpd", &first), ("back.rpd", &database)] {
        let again = merge("rpd", to, std::slice::from_ref(from));
        assert_eq!(differences(&rows, &Database::open(&again).answers(&RPD_ROWS)), "", "{to}");
    }
    if !as_is.is_empty() {
        let same: Vec<_> = RPD_ROWS.into_iter().filter(|(name, _)| as_is.contains(name)).collect();
        let given = Database::open(&inputs[0]).answers(&same);
        assert_eq!(differences(&given, &Database::open(&first).answers(&same)), "");
        let at_once = merge("rocpd", "at-once.db", inputs);
        let [at_once, database] = [&at_once, &database].map(|path| Database::open(path).answers(&ROCPD_ROWS));
        assert_eq!(differences(&at_once, &database), "");
    }
}

#[test]
fn a_real_rpd_that_is_merged_twice_has_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files = fixtures::rpd_files(&folder.path().join("given"));
    for file in &files {
        let as_is = ["operations", "launches", "requests", "pairs", "monitor"];
        comes_back(std::slice::from_ref(file), folder.path(), &as_is);
    }
    if !files.is_empty() {
        comes_back(&files, folder.path(), &[]);
    }
}

#[test]
fn a_rpd_of_several_nodes_that_is_merged_twice_has_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    comes_back(
        &write_rocpd(&SyntheticRun::default().plan(), &folder.path().join("synthetic")).unwrap(),
        folder.path(),
        &[],
    );
    let real = fixtures::rocpd_databases(&folder.path().join("real"));
    if !real.is_empty() {
        comes_back(&real, folder.path(), &[]);
    }
}

/// A `.rpd` with what is rare: launches and requests without operations, a launch of a graph, domains and categories
/// of all spellings and none, odd devices and queues, operations that no call asked for.
const RARE: &str = "
    CREATE TABLE rocpd_metadata (id INTEGER PRIMARY KEY, tag, value);
    CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string);
    CREATE TABLE rocpd_ustring (id INTEGER PRIMARY KEY, string);
    CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid, tid, start, \"end\", apiName_id, category_id, domain_id, args_id);
    CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId, queueId, sequenceId, start, \"end\", description_id, opType_id);
    CREATE TABLE rocpd_api_ops (id INTEGER PRIMARY KEY, api_id, op_id);
    CREATE TABLE rocpd_kernelapi (api_ptr_id INTEGER PRIMARY KEY, stream, gridX, gridY, gridZ, workgroupX, workgroupY,
        workgroupZ, groupSegmentSize, privateSegmentSize, kernelName_id);
    CREATE TABLE rocpd_copyapi (api_ptr_id INTEGER PRIMARY KEY, stream, size, width, height, kind, dst, src, dstDevice,
        srcDevice, sync, pinned);
    CREATE TABLE rocpd_monitor (id INTEGER PRIMARY KEY, deviceType, deviceId, monitorType, start, \"end\", value);
    CREATE TABLE rocpd_counter (id INTEGER PRIMARY KEY, value, op_id, name_id);
    CREATE TABLE rocpd_stackframe (id INTEGER PRIMARY KEY, api_ptr_id, depth, name_id);
    INSERT INTO rocpd_metadata (tag, value) VALUES ('schema_version', '3'), ('pid_stride', '10000000'), ('gpu_stride', '1000');
    INSERT INTO rocpd_string VALUES (1, ''), (2, 'hipMemcpyAsync'), (3, 'hip'), (4, 'HIP_COMPILER_API'), (5, 'UserMarker'),
        (6, 'roctx'), (7, 'rocfft'), (8, 'plan'), (9, 'KernelExecution'), (10, 'CopyHostToHost'), (11, 'CopyHostToDevice2D'),
        (12, 'gemm'), (13, 'Barrier'), (14, 'label'), (15, 'GRBM_COUNT'), (16, 'main'), (17, 'gemm.kd');
    INSERT INTO rocpd_ustring VALUES (1, ''), (2, 'forward'), (3, 'a=1 | stream=7');
    INSERT INTO rocpd_api VALUES (1, 70, 71, 10, 20, 2, 1, 1, 3), (2, 70, 71, 20, 30, 2, 4, 3, 3), (3, 70, 72, 30, 40, 5, 6, 6, 2),
        (4, 70, 72, 40, 50, 8, 8, 7, 1), (5, 70, 71, 50, 60, 2, 1, 3, 1), (6, 70, 71, 60, 70, 2, 3, 3, 1), (7, 99, 99, 5, 6, 2, 1, 3, 1);
    INSERT INTO rocpd_op VALUES (1, 1, 3, 0, 100, 110, 12, 9), (2, 1, 3, 9, 110, 120, 12, 9), (3, 5, 2, 4, 120, 130, 14, 10),
        (4, 0, 0, 0, 130, 140, 1, 11), (5, 2, 7, 0, 140, 150, 1, 13), (6, 2, 900, 1, 150, 160, 14, 13);
    INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, 1), (1, 2), (2, 3), (7, 4);
    INSERT INTO rocpd_kernelapi VALUES (1, '0x10', 64, 2, 1, 32, 1, 1, 16, 8, 17), (5, '', 1, 1, 1, 0, 1, 1, 0, 0, 17),
        (2, '0x0', 9, 9, 9, 3, 3, 3, 0, 0, 12);
    INSERT INTO rocpd_copyapi VALUES (2, '0x10', 4096, 0, 0, 1, '0xff', '0xee', 2, 0, 1, 1), (6, '', '', '', '', '', '', '', '', '', '', ''),
        (7, 's', 0, 16, 4, 4, '', '0x1', 7, 6, 0, 1);
    INSERT INTO rocpd_monitor VALUES (1, 'nic', 3, 'tx.bytes', 0, 10, '12.5'), (2, 'GPU', 1, 'sclk', 5, 6, 'n/a'), (3, 'gpu', 1, 'sclk', 6, 9, '7');
    INSERT INTO rocpd_counter VALUES (1, 5.5, 1, 15), (2, 6.0, 4, 15);
    INSERT INTO rocpd_stackframe VALUES (1, 3, 0, 16), (2, 3, 1, 14);";

#[test]
fn a_rpd_with_rare_rows_that_is_merged_twice_has_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let as_is = ["calls", "operations", "launches", "requests", "pairs", "monitor", "counters"];
    comes_back(&[rare(folder.path())], folder.path(), &as_is);
}

fn rare(folder: &Path) -> PathBuf {
    let path = folder.join("rare.rpd");
    rusqlite::Connection::open(&path).unwrap().execute_batch(RARE).unwrap();
    let views = "CREATE VIEW api AS SELECT a.id, pid, tid, start, \"end\", n.string AS apiName, c.string AS category, d.string AS domain,
            u.string AS args FROM rocpd_api a JOIN rocpd_string n ON n.id = apiName_id JOIN rocpd_string c ON c.id = category_id
            JOIN rocpd_string d ON d.id = domain_id JOIN rocpd_ustring u ON u.id = args_id;
        CREATE VIEW op AS SELECT o.id, gpuId, queueId, sequenceId, start, \"end\", d.string AS description, t.string AS opType
            FROM rocpd_op o JOIN rocpd_string d ON d.id = description_id JOIN rocpd_string t ON t.id = opType_id;";
    rusqlite::Connection::open(&path).unwrap().execute_batch(views).unwrap();
    path
}

#[test]
fn nodes_of_a_rpd_keep_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = rare(folder.path());
    // Node 0 begins last, and of node 2 there are only an operation that no call asked for and a clock rate.
    let nodes = "INSERT INTO rocpd_metadata (tag, value) VALUES ('rpd.clock', 'CLOCK_BOOTTIME');
        INSERT INTO rocpd_api SELECT id + 10, pid + 10000000, tid + 10000000, start - 5, \"end\", apiName_id, category_id, domain_id, args_id
            FROM rocpd_api WHERE id IN (1, 2);
        INSERT INTO rocpd_op VALUES (20, 2001, 2004, 0, 200, 210, 12, 9), (21, 1001, 1004, 0, 210, 220, 12, 9);
        INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (11, 21);
        INSERT INTO rocpd_monitor VALUES (4, 'gpu', 2001, 'sclk', 1, 2, '7');";
    rusqlite::Connection::open(&path).unwrap().execute_batch(nodes).unwrap();
    comes_back(&[path], folder.path(), &["operations", "monitor", "pairs"]);
}

#[test]
fn unknown_nodes_stay_the_same_when_merged_again_and_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (rare(folder.path()), folder.path().join("second.rpd"));
    std::fs::copy(&first, &second).unwrap();
    let later = "UPDATE rocpd_api SET start = start + 1 WHERE id = 7";
    rusqlite::Connection::open(&second).unwrap().execute_batch(later).unwrap();
    let mut inputs = vec![first, second];
    inputs.extend(fixtures::rocprofv3_json(&folder.path().join("json")));
    let merge = |name: &str, inputs: &[PathBuf]| {
        let path = folder.path().join(name);
        let outcome = rpd_merge().arg("-o").arg(&path).args(inputs).run().success();
        // The names of the clocks: the next step, after them, differs.
        let named = outcome.stderr.lines().filter(|line| line.starts_with("clock"));
        let clocks: Vec<String> =
            named.map(|line| line.split(": ").next().unwrap_or_default().to_owned()).collect();
        let database = Database::open(&path);
        let domains = database.metadata()["rpd.clock.domains"].clone();
        (path, database.rows("SELECT * FROM rocpd_info_node ORDER BY id"), domains, clocks)
    };
    let (once, nodes, domains, clocks) = merge("once.db", &inputs);
    let summary = |path: &Path, inputs: &[PathBuf]| {
        rpd_merge().args(["--force", "-o"]).arg(path).args(inputs).run().success().stderr
    };
    for (inputs, counted) in
        [(&inputs[..2], ", 2 files of other formats in "), (std::slice::from_ref(&once), ", 1 database in ")]
    {
        let told = summary(&folder.path().join("told.db"), inputs);
        assert!(told.contains(counted) && !told.contains("shard"), "{told}");
    }
    assert_eq!(nodes.len(), inputs.len());
    let told: serde_json::Value = serde_json::from_str(&domains[0]).unwrap();
    let different: std::collections::BTreeSet<String> =
        told.as_array().unwrap().iter().map(|row| row["hosts"][0].to_string()).collect();
    assert_eq!(different.len(), nodes.len(), "{told}");
    let is_told = |host: &String| clocks.iter().any(|line| line.contains(host.trim_matches('"')));
    assert!(different.iter().all(is_told), "{clocks:?}");
    let (_, again, domains_again, clocks_again) = merge("again.db", &[once]);
    assert_eq!((again, domains_again, clocks_again), (nodes, domains, clocks));
}

#[test]
fn nodes_that_were_aligned_have_one_time_when_they_are_read_again_and_others_have_not() {
    let run = three_nodes();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run.plan(), &folder.path().join("in")).unwrap();
    for (align, clocks, unknown) in [("auto", 1, 0), ("none", 2, 1)] {
        let merge = |format: &str, to: &str, how: &str, inputs: &[PathBuf]| {
            let path = folder.path().join(to);
            let merging = rpd_merge().args(["--force", "--format", format, "--align", how, "-o"]).arg(&path);
            (path, merging.args(inputs).run().success().stderr)
        };
        let (first, _) = merge("rpd", "first.rpd", align, &inputs);
        // Of a few collectives only: enough to be aligned by, were they not in one time.
        let (_, told) = merge("rocpd", "again.db", "probes", &[first]);
        let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("clock ")).collect();
        assert_eq!(lines.len(), clocks, "{told}");
        let is_unknown = |line: &&&str| line.contains("not comparable with others");
        assert_eq!(lines.iter().filter(is_unknown).count(), unknown, "{told}");
    }
}

#[test]
fn the_clock_of_a_rpd_stays_the_one_that_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.rpd");
    let _ = rpd_merge().args(["--format", "rpd", "-o"]).arg(&path).arg(rare(folder.path())).run().success();
    assert_eq!(Database::open(&path).metadata()["rpd.clock"], ["CLOCK_MONOTONIC"]);
}
