//! Legacy `.rpd` files and the JSON of rocprofv3: a merge shows what their own views and records show.
//! The files are real ones; where they are not, nothing is compared and a note says so.
#![allow(missing_docs, clippy::unwrap_used)]

use rpd_tests::content::{Content, differences};
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, RunFolder, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Merges one input and opens the output. What a format has and RocPD has not is a warning, so that a
/// merge is not strict.
fn merged(input: &Path, folder: &Path) -> Database {
    let output = folder.join("out.db");
    let _ = rpd_merge().args(["--force", "-o"]).arg(&output).arg(input).run().success();
    let database = Database::open(&output);
    database.assert_sound();
    database
}

/// The rows of queries, sorted, by a name for each query.
fn answers(database: &Database, queries: &[(&str, &str)]) -> Content {
    let sorted = |sql: &str| {
        let mut rows: Vec<String> = database.rows(sql).iter().map(|row| row.join(" | ")).collect();
        rows.sort();
        rows
    };
    queries.iter().map(|(name, sql)| ((*name).to_owned(), sorted(sql))).collect()
}

/// What a `.rpd` is asked, by its own views, and what a merge is asked for the same.
const QUESTIONS: [(&str, &str, &str); 9] = [
    (
        "calls",
        "SELECT apiName, start, \"end\", pid, tid FROM api",
        "SELECT name, start, \"end\", pid, tid FROM regions",
    ),
    (
        "calls by name",
        "SELECT apiName, count(*), sum(\"end\" - start) FROM api GROUP BY apiName",
        "SELECT name, count(*), sum(duration) FROM regions GROUP BY name",
    ),
    (
        "texts of ranges",
        "SELECT args, start, \"end\" FROM api WHERE apiName = 'UserMarker'",
        "SELECT json_extract(extdata, '$.message'), start, \"end\" FROM regions WHERE name = 'UserMarker'",
    ),
    (
        "kernels",
        "SELECT iif(description = '', opType, description), start, \"end\" FROM op WHERE opType NOT LIKE 'Copy%'",
        "SELECT name, start, \"end\" FROM kernels",
    ),
    (
        "kernels in the view top, cut to microseconds there",
        "SELECT Name, TotalCalls, TotalDuration FROM top WHERE Name NOT LIKE 'Copy%'",
        "SELECT name, total_calls, CAST(round(total_duration * 1000) AS INTEGER) / 1000 FROM top_kernels",
    ),
    (
        "copies",
        "SELECT start, \"end\" FROM op WHERE opType LIKE 'Copy%'",
        "SELECT start, \"end\" FROM memory_copies",
    ),
    (
        "copies and their calls, in the view copyop",
        "SELECT apiName, start, \"end\", duration, size FROM copyop WHERE id IN
           (SELECT id FROM op WHERE opType LIKE 'Copy%')",
        "SELECT r.name, c.start, c.\"end\", c.duration, c.size FROM memory_copies c
           JOIN regions r ON r.guid = c.guid AND r.stack_id = c.stack_id
          WHERE r.name LIKE 'hipMemcpy%'",
    ),
    (
        "operations and their calls",
        "SELECT a.apiName, a.start, a.tid, o.start, o.\"end\" FROM rocpd_api_ops j
           JOIN api a ON a.id = j.api_id JOIN op o ON o.id = j.op_id",
        "WITH done AS MATERIALIZED (
             SELECT guid, stack_id, start, \"end\" FROM kernels
              UNION ALL SELECT guid, stack_id, start, \"end\" FROM memory_copies),
              call AS MATERIALIZED (SELECT guid, stack_id, name, start, tid FROM regions)
         SELECT call.name, call.start, call.tid, done.start, done.\"end\"
           FROM done JOIN call ON call.guid = done.guid AND call.stack_id = done.stack_id",
    ),
    (
        "monitors",
        "SELECT start, CAST(value AS REAL) FROM rocpd_monitor",
        "SELECT s.timestamp, CAST(v.value AS REAL) FROM rocpd_pmc_event v
           JOIN rocpd_sample s ON s.event_id = v.event_id",
    ),
];

#[test]
fn a_merge_of_an_rpd_shows_what_its_own_views_show() {
    let folder = tempfile::tempdir().unwrap();
    for input in fixtures::rpd_files(&folder.path().join("real")) {
        let own = Database::open(&input);
        let merge = merged(&input, folder.path());
        let of_file = QUESTIONS.map(|(name, own, _)| (name, own));
        let of_merge = QUESTIONS.map(|(name, _, merge)| (name, merge));
        let expected = answers(&own, &of_file);
        for (name, rows) in &expected {
            let none = *name == "texts of ranges" && own.count("api") < 1_000;
            assert!(none || rows.len() >= 15, "{name}: {} rows in {}", rows.len(), input.display());
        }
        assert_eq!(differences(&expected, &answers(&merge, &of_merge)), "", "{}", input.display());
    }
}

#[test]
fn tables_of_extensions_come_along_with_their_strings() {
    let folder = tempfile::tempdir().unwrap();
    let files = fixtures::rpd_files(&folder.path().join("real"));
    let Some(input) = files.iter().find(|path| path.ends_with("mytrace.rpd")) else { return };
    let own = Database::open(input);
    let merge = merged(input, folder.path());
    let tables = merge.names("table");
    let table = tables.iter().find(|name| name.contains("autogradapi")).expect("the table ext_autogradapi");
    let by_name = "SELECT autogradName, count(*), count(seq), sum(length(sizes)) FROM autograd GROUP BY 1";
    let in_merge = format!(
        "SELECT s.string, count(*), count(seq), sum(length(sizes)) FROM \"{table}\" x
           JOIN rocpd_string s ON s.id = x.autogradName_id GROUP BY 1"
    );
    let (expected, found) =
        (answers(&own, &[("autograd", by_name)]), answers(&merge, &[("autograd", &in_merge)]));
    assert!(expected["autograd"].len() >= 10);
    assert_eq!(differences(&expected, &found), "");
}

fn text(json: &Json) -> String {
    format!("'{}'", json.as_str().unwrap_or_default())
}

fn triple(json: &Json) -> String {
    format!("{} | {} | {}", json["x"], json["y"], json["z"])
}

#[test]
fn a_merge_of_the_json_of_rocprofv3_shows_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(input) = fixtures::rocprofv3_json(&folder.path().join("real")) else { return };
    let json: Json = serde_json::from_reader(BufReader::new(File::open(&input).unwrap())).unwrap();
    let tool = &json["rocprofiler-sdk-tool"][0];
    let list = |json: &Json| json.as_array().cloned().unwrap_or_default();

    let symbols = list(&tool["kernel_symbols"]);
    let names: BTreeMap<i64, String> = symbols
        .iter()
        .map(|symbol| (symbol["kernel_id"].as_i64().unwrap(), text(&symbol["kernel_name"])))
        .collect();
    let mut expected = Content::new();
    let mut by_name: BTreeMap<&String, (i64, i64)> = BTreeMap::new();
    for record in list(&tool["buffer_records"]["kernel_dispatch"]) {
        let info = &record["dispatch_info"];
        let name = &names[&info["kernel_id"].as_i64().unwrap()];
        let (start, end) =
            (record["start_timestamp"].as_i64().unwrap(), record["end_timestamp"].as_i64().unwrap());
        let (calls, ns) = by_name.entry(name).or_default();
        (*calls, *ns) = (*calls + 1, *ns + end - start);
        expected.entry("dispatches".into()).or_default().push(format!(
            "{name} | {start} | {end} | {} | {} | {} | {}",
            record["thread_id"],
            info["dispatch_id"],
            triple(&info["workgroup_size"]),
            triple(&info["grid_size"])
        ));
    }
    let line = |(name, (calls, ns)): (&String, &(i64, i64))| format!("{name} | {calls} | {ns}");
    expected
        .insert("dispatches by name".into(), by_name.iter().map(|(name, sums)| line((name, sums))).collect());
    let agents = list(&tool["agents"]);
    let agent = |agent: &Json| format!("{} | {}", text(&agent["name"]), agent["node_id"]);
    expected.insert("agents".into(), agents.iter().map(agent).collect());
    let records = tool["buffer_records"].as_object().unwrap();
    let count = |kinds: &[&str]| {
        let of = |kind: &&str| records.get(*kind).and_then(Json::as_array).map_or(0, Vec::len);
        vec![kinds.iter().map(of).sum::<usize>().to_string()]
    };
    expected.insert("calls".into(), count(&["hip_api", "hsa_api", "marker_api", "rccl_api"]));
    expected.insert("copies".into(), count(&["memory_copy"]));
    expected.insert("allocations".into(), count(&["memory_allocation", "scratch_memory"]));
    let node = &tool["metadata"]["node"];
    expected.insert(
        "process".into(),
        vec![format!(
            "{} | {} | {}",
            text(&node["hostname"]),
            text(&node["machine_id"]),
            tool["metadata"]["pid"]
        )],
    );
    expected.values_mut().for_each(|rows| rows.sort());
    assert_eq!(expected["dispatches"].len(), 1_500);

    let merge = merged(&input, folder.path());
    let questions = [
        (
            "dispatches",
            "SELECT s.kernel_name, k.start, k.\"end\", k.tid, k.dispatch_id, k.workgroup_x, k.workgroup_y, k.workgroup_z,
                    k.grid_x, k.grid_y, k.grid_z FROM kernels k JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id",
        ),
        (
            "dispatches by name",
            "SELECT s.kernel_name, count(*), sum(k.duration) FROM kernels k
               JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id GROUP BY 1",
        ),
        ("agents", "SELECT name, absolute_index FROM rocpd_info_agent"),
        ("calls", "SELECT (SELECT count(*) FROM rocpd_region) + (SELECT count(*) FROM rocpd_sample)"),
        ("copies", "SELECT count(*) FROM rocpd_memory_copy"),
        ("allocations", "SELECT count(*) FROM rocpd_memory_allocate"),
        ("process", "SELECT hostname, machine_id, pid FROM processes"),
    ];
    assert_eq!(differences(&expected, &answers(&merge, &questions)), "");
    let kept = merge.rows("SELECT kernel_name FROM rocpd_info_kernel_symbol").concat();
    let lost: Vec<_> = names.values().filter(|name| *name != "''" && !kept.contains(name)).collect();
    assert!(lost.is_empty(), "kernel symbols that are not in the merge: {lost:?}");
}

#[test]
fn all_kinds_of_inputs_go_into_one_database() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::new(&SyntheticRun { nodes: 1, ..SyntheticRun::default() });
    let databases = SyntheticRun { nodes: 1, seed: 5, ..SyntheticRun::default() };
    write_rocpd(&databases.plan(), &folder.path().join("in")).unwrap();
    let mut singles = vec![run.path.clone(), folder.path().join("in")];
    singles.extend(fixtures::rpd_files(&folder.path().join("real")));
    singles.extend(fixtures::rocprofv3_json(&folder.path().join("json")));
    singles.extend(fixtures::rocpd_databases(&folder.path().join("rocpd")));
    let totals = |database: &Database| -> BTreeMap<&str, i64> {
        [
            "region",
            "kernel_dispatch",
            "memory_copy",
            "memory_allocate",
            "sample",
            "pmc_event",
            "arg",
            "info_process",
        ]
        .into_iter()
        .map(|table| (table, database.count(&format!("rocpd_{table}"))))
        .collect()
    };
    let mut expected: BTreeMap<&str, i64> = BTreeMap::new();
    for input in &singles {
        for (table, rows) in totals(&merged(input, folder.path())) {
            *expected.entry(table).or_default() += rows;
        }
    }
    let output = folder.path().join("all.db");
    let _ = rpd_merge().arg("-o").arg(&output).args(&singles).run().success();
    let all = Database::open(&output);
    all.assert_sound();
    assert_eq!(totals(&all), expected);
}

/// What a `.rpd` has as calls: regions, where ranges are called by their message, and samples of threads that
/// are no values of counters. Tables and not views, which leave copies without a queue out.
const CALLS: &str = "WITH call AS (
    SELECT r.nid, coalesce(iif(c.string LIKE 'MARKER%', json_extract(e.extdata, '$.message'), NULL), s.string) AS name, r.\"end\" - r.start AS duration
      FROM rocpd_region r LEFT JOIN rocpd_event e ON e.id = r.event_id
      LEFT JOIN rocpd_string c ON c.id = e.category_id JOIN rocpd_string s ON s.id = r.name_id
     UNION ALL
    SELECT t.nid, coalesce(iif(c.string LIKE 'MARKER%', json_extract(e.extdata, '$.message'), NULL), s.string), 0
      FROM rocpd_sample p JOIN rocpd_track t ON t.id = p.track_id JOIN rocpd_string s ON s.id = t.name_id
      LEFT JOIN rocpd_event e ON e.id = p.event_id LEFT JOIN rocpd_string c ON c.id = e.category_id
     WHERE t.tid IS NOT NULL AND (e.id IS NULL OR e.id NOT IN (SELECT event_id FROM rocpd_pmc_event)))";

#[test]
fn a_merged_rpd_has_the_operations_and_nodes_of_its_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun::default();
    let mut kinds = vec![write_rocpd(&run.plan(), &folder.path().join("synthetic")).unwrap()];
    kinds.push(fixtures::rocpd_databases(&folder.path().join("real")));
    for inputs in kinds.iter().filter(|inputs| !inputs.is_empty()) {
        let (database, rpd) = (folder.path().join("out.db"), folder.path().join("out.rpd"));
        let merge = || rpd_merge().args(["--strict", "--force"]);
        let _ = merge().arg("-o").arg(&database).args(inputs).run().success();
        let _ = merge().args(["--format", "rpd", "-o"]).arg(&rpd).args(inputs).run().success();
        let (database, rpd) = (Database::open(&database), Database::open(&rpd));
        assert_eq!(rpd.rows("PRAGMA integrity_check"), [["'ok'"]]);
        let expected = answers(
            &database,
            &[
                ("kernels", "SELECT name, count(*), sum(duration) FROM kernels GROUP BY name"),
                ("calls", &format!("{CALLS} SELECT name, count(*), sum(duration) FROM call GROUP BY name")),
                ("copies", "SELECT count(*), sum(\"end\" - start) FROM rocpd_memory_copy"),
                (
                    "calls by node",
                    &format!(
                        "{CALLS} SELECT nid - (SELECT min(id) FROM rocpd_info_node), count(*) FROM call GROUP BY nid"
                    ),
                ),
                (
                    "operations by node",
                    "SELECT nid - (SELECT min(id) FROM rocpd_info_node), count(*) FROM
                       (SELECT nid FROM rocpd_kernel_dispatch UNION ALL SELECT nid FROM rocpd_memory_copy) GROUP BY nid",
                ),
            ],
        );
        let found = answers(
            &rpd,
            &[
                (
                    "kernels",
                    "SELECT description, count(*), sum(\"end\" - start) FROM op WHERE description != '' GROUP BY 1",
                ),
                (
                    "calls",
                    "SELECT iif(apiName = 'UserMarker', args, apiName), count(*), sum(\"end\" - start) FROM api GROUP BY 1",
                ),
                ("copies", "SELECT count(*), sum(\"end\" - start) FROM op WHERE description = ''"),
                ("calls by node", "SELECT node, count(*) FROM napi GROUP BY node"),
                ("operations by node", "SELECT node, count(*) FROM nop GROUP BY node"),
            ],
        );
        assert_eq!(differences(&expected, &found), "");
    }
}

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
    let rows = answers(&Database::open(&first), &RPD_ROWS);
    assert!(!rows["calls"].is_empty() && !rows["operations"].is_empty());
    for (to, from) in [("again.rpd", &first), ("back.rpd", &database)] {
        let again = merge("rpd", to, std::slice::from_ref(from));
        assert_eq!(differences(&rows, &answers(&Database::open(&again), &RPD_ROWS)), "", "{to}");
    }
    if !as_is.is_empty() {
        let same: Vec<_> = RPD_ROWS.into_iter().filter(|(name, _)| as_is.contains(name)).collect();
        let given = answers(&Database::open(&inputs[0]), &same);
        assert_eq!(differences(&given, &answers(&Database::open(&first), &same)), "");
        let at_once = merge("rocpd", "at-once.db", inputs);
        let [at_once, database] =
            [&at_once, &database].map(|path| answers(&Database::open(path), &ROCPD_ROWS));
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
        let clocks: Vec<String> =
            outcome.stderr.lines().filter(|line| line.starts_with("clock")).map(str::to_owned).collect();
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
    assert_eq!(clocks.len(), nodes.len(), "{clocks:?}");
    let different: std::collections::BTreeSet<_> =
        clocks.iter().map(|line| line.split(": ").next()).collect();
    assert_eq!(different.len(), clocks.len(), "{clocks:?}");
    let (_, again, domains_again, clocks_again) = merge("again.db", &[once]);
    assert_eq!((again, domains_again, clocks_again), (nodes, domains, clocks));
}
