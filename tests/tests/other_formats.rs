//! Legacy `.rpd` files and the JSON of rocprofv3: a merge shows what their own views and records show.
//! The files are real ones; where they are not, nothing is compared and a note says so.

use rpd_tests::content::{DatabaseContent, differences};
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, RunFolder, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Merges one input and opens the output. What a format has and RocPD has not is a warning, so that a
/// merge is not strict.
fn merged(input: &Path, folder: &Path) -> Database {
    let output = folder.join("out.db");
    let _ = rpd_merge().args(["--force", "-o"]).arg(&output).arg(input).run().success();
    let database = Database::open(&output);
    database.assert_sound();
    database
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
        let expected = own.answers(&of_file);
        for (name, rows) in &expected {
            let none = *name == "texts of ranges" && own.count("api") < 1_000;
            assert!(none || rows.len() >= 15, "{name}: {} rows in {}", rows.len(), input.display());
        }
        assert_eq!(differences(&expected, &merge.answers(&of_merge)), "", "{}", input.display());
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
        (own.answers(&[("autograd", by_name)]), merge.answers(&[("autograd", &in_merge)]));
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
    let mut expected = DatabaseContent::new();
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
    assert_eq!(differences(&expected, &merge.answers(&questions)), "");
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
        let expected = database.answers(
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
        let found = rpd.answers(
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
