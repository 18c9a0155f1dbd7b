//! Translates rocprofv3's JSON to shards, and compares them with a simple reader of the file. Also tests bad files.
#![allow(missing_docs, clippy::unwrap_used)]

mod made_up;
mod packed;
mod plain;
mod shard;

use made_up::{AGENTS, MadeUp, ordered};
use rpd_rocprofv3::{is_rocprofv3_json, read_processes, translate};
use rpd_shard::file::Owner;
use rpd_shard::model::{OwnedValue, rocpd};
use rpd_shard::record::{Clock, LossCause};
use rpd_translator::{FilePosition, TranslateError, Translation};
use serde_json::{Value as Json, json};
use shard::{Contents, int, run, text};
use std::path::PathBuf;

const PROCESS: &str = "rocprofiler-sdk-tool";

fn file(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn try_translated(text: &[u8]) -> Result<(Contents, Translation), TranslateError> {
    let (_dir, path) = file(text);
    let mut bytes = Vec::new();
    let translation = translate(&path, &mut bytes, &Owner::unknown(run()))?;
    let contents = Contents::of(&bytes);
    contents.check_references();
    Ok((contents, translation))
}

fn translated(text: &str) -> (Contents, Translation) {
    try_translated(text.as_bytes()).unwrap()
}

fn no_warnings(translation: &Translation) {
    assert_eq!((&translation.warnings[..], &translation.lost), (&[][..], &Default::default()));
}

/// The order of members in files of rocprofv3.
const AS_WRITTEN: [&str; 9] = [
    "agents",
    "counters",
    "strings",
    "code_objects",
    "kernel_symbols",
    "host_functions",
    "summary",
    "callback_records",
    "buffer_records",
];

#[test]
fn every_record_of_a_file_is_in_the_shard() {
    let json = MadeUp { processes: 2, ..MadeUp::default() }.json();
    let (shard, translation) = translated(&ordered(&json, &AS_WRITTEN));
    no_warnings(&translation);
    assert_eq!(shard.processes.len(), 2);
    for (source, process) in (1..).zip(json[PROCESS].as_array().unwrap()) {
        plain::compare(process, &shard, source);
    }
    // Unsupported members of both processes.
    let ignored: Vec<(&str, u64)> = translation.ignored.iter().map(|(name, n)| (&name[..], *n)).collect();
    let wanted = [
        ("buffer_records.hip_api[].retval", 134),
        ("buffer_records.pc_sample_host_trap", 4),
        ("code_objects[] (empty)", 2),
        ("host_functions", 2),
        ("kernel_symbols[] (empty)", 2),
        ("metadata.config", 2),
        ("strings.callback_records", 18),
        ("strings.counters", 2),
    ];
    assert_eq!(ignored, wanted);
}

#[test]
fn members_may_stand_in_any_order() {
    let json = MadeUp::default().json();
    let (wanted, _) = translated(&ordered(&json, &AS_WRITTEN));
    let orders: [&[&str]; 3] =
        [&[], &["strings", "kernel_symbols", "agents", "metadata"], &["kind", "thread_id", "handle", "x"]];
    for order in orders {
        let (shard, translation) = translated(&ordered(&json, order));
        no_warnings(&translation);
        plain::compare(&json[PROCESS][0], &shard, 1);
        let kernels = |shard: &Contents| shard.rows(1, rocpd::KERNEL_DISPATCH).len();
        assert_eq!(kernels(&shard), kernels(&wanted));
    }
    let (shard, _) = translated(&serde_json::to_string_pretty(&json).unwrap());
    plain::compare(&json[PROCESS][0], &shard, 1);
}

#[test]
fn a_process_and_its_devices_are_described() {
    let json = MadeUp::default().json();
    let (_dir, path) = file(json.to_string().as_bytes());
    assert!(is_rocprofv3_json(&path));
    let seen = read_processes(&path).unwrap();
    let (shard, _) = translated(&json.to_string());
    assert_eq!(seen, shard.processes);
    let process = &seen[0];
    assert_eq!((process.source, process.pid, process.rank), (1, 4000, None));
    assert_eq!((process.clock, process.first_seen), (Clock::Boottime, 1_000));
    assert_eq!(process.last_seen, Some(9_000_000_000_000));
    assert_eq!(process.node.hostname, "gpu000");
    assert_eq!(process.command, "python3 train.py");

    let agents = shard.rows(1, rocpd::INFO_AGENT);
    assert_eq!(agents.len(), 3);
    let types: Vec<String> = agents.iter().map(|row| text(row, "type")).collect();
    assert_eq!(types, ["CPU", "GPU", "GPU"]);
    for (row, agent) in agents.iter().zip(json[PROCESS][0]["agents"].as_array().unwrap()) {
        let columns = [
            ("absolute_index", "node_id"),
            ("uuid", "device_id"),
            ("name", "name"),
            ("type_index", "logical_node_type_id"),
        ];
        for (column, member) in columns {
            assert!(plain::same(&row[column], &agent[member]), "{column}");
        }
        assert_eq!(serde_json::from_str::<Json>(&text(row, "extdata")).unwrap(), *agent);
    }

    // Ids in extdata are those of the shard.
    let objects = shard.rows(1, rocpd::INFO_CODE_OBJECT);
    assert_eq!(objects.iter().map(|row| text(row, "storage_type")).collect::<Vec<_>>(), ["FILE", "MEMORY"]);
    assert_eq!(int(&objects[0], "load_delta"), -4096);
    for row in objects {
        let extdata: Json = serde_json::from_str(&text(row, "extdata")).unwrap();
        assert_eq!(extdata["code_object_id"], int(row, "id"));
    }
    let symbols = shard.rows(1, rocpd::INFO_KERNEL_SYMBOL);
    assert_eq!(symbols.len(), 8);
    for row in symbols {
        let extdata: Json = serde_json::from_str(&text(row, "extdata")).unwrap();
        assert_eq!(extdata["kernel_id"], int(row, "id"));
        assert_eq!(extdata["code_object_id"], int(row, "code_object_id"));
        assert_eq!(extdata["formatted_kernel_name"], text(row, "display_name"));
    }

    // Handle 0 is the default queue or stream; the others are numbered from 0.
    let names = |table| -> Vec<String> { shard.rows(1, table).iter().map(|row| text(row, "name")).collect() };
    assert_eq!(names(rocpd::INFO_QUEUE), ["Default Queue", "Queue 0", "Queue 1"]);
    assert_eq!(names(rocpd::INFO_STREAM), ["Default Stream", "Stream 0", "Stream 1"]);
    let tids: Vec<i64> = shard.rows(1, rocpd::INFO_THREAD).iter().map(|row| int(row, "tid")).collect();
    assert_eq!(tids.len(), 3);
    assert!((4000..4003).all(|tid| tids.contains(&tid)));
}

#[test]
fn records_keep_their_numbers() {
    let json = MadeUp::default().json();
    let (shard, _) = translated(&json.to_string());
    let records = &json[PROCESS][0]["buffer_records"];
    let dispatches = records["kernel_dispatch"].as_array().unwrap();
    for (row, record) in shard.rows(1, rocpd::KERNEL_DISPATCH).iter().zip(dispatches) {
        let info = &record["dispatch_info"];
        assert!(plain::same(&row["dispatch_id"], &info["dispatch_id"]));
        assert!(plain::same(&row["grid_size_x"], &info["grid_size"]["x"]));
        assert!(plain::same(&row["workgroup_size_z"], &info["workgroup_size"]["z"]));
        assert!(plain::same(&row["group_segment_size"], &info["group_segment_size"]));
        let agent = shard.referred(1, row, "agent_id", rocpd::INFO_AGENT);
        let extdata: Json = serde_json::from_str(&text(agent, "extdata")).unwrap();
        assert_eq!(extdata["id"], info["agent_id"]);
        let thread = shard.referred(1, row, "tid", rocpd::INFO_THREAD);
        assert!(plain::same(&thread["tid"], &record["thread_id"]));
        let event = shard.referred(1, row, "event_id", rocpd::EVENT);
        assert!(plain::same(&event["correlation_id"], &record["correlation_id"]["external"]));
        let renamed = record["correlation_id"]["external"] == 5;
        assert_eq!(shard.name(row, "region_name_id"), if renamed { "renamed" } else { "" });
    }
    for (row, record) in
        shard.rows(1, rocpd::MEMORY_COPY).iter().zip(records["memory_copy"].as_array().unwrap())
    {
        // An address above i64::MAX, as RocPD stores it.
        assert!(matches!(row["src_address"], OwnedValue::Real(_)));
        assert!(plain::same(&row["src_address"], &record["src_address"]["handle"]));
        assert_eq!(int(row, "dst_address"), 0x7f00_0000_1000);
    }
    let rows = shard.rows(1, rocpd::MEMORY_ALLOCATE);
    for row in rows {
        let allocated = text(row, "type") == "ALLOC";
        assert_eq!(row["agent_id"] == OwnedValue::Null, !allocated);
        let scratch = text(row, "level") == "SCRATCH";
        assert_eq!(row["extdata"] != OwnedValue::Null, scratch);
    }
    // The message of a marker.
    let messages = shard.rows(1, rocpd::EVENT).iter().filter(|row| row["extdata"] != OwnedValue::Null);
    let mut said = 0;
    for event in messages {
        assert_eq!(shard.name(event, "category_id"), "MARKER_CORE_RANGE_API");
        let wanted = json!({"message": format!("step {} of \"epoch\"", int(event, "stack_id") % 7)});
        assert_eq!(serde_json::from_str::<Json>(&text(event, "extdata")).unwrap(), wanted);
        said += 1;
    }
    assert_eq!(said, records["marker_api"].as_array().unwrap().len());
}

#[test]
fn counters_belong_to_their_dispatches() {
    let mut json = MadeUp { counters: true, ..MadeUp::default() }.json();
    let counted = json[PROCESS][0]["callback_records"]["counter_collection"].as_array().unwrap().len();
    for dispatches_recorded in [true, false] {
        if !dispatches_recorded {
            json[PROCESS][0]["buffer_records"]["kernel_dispatch"] = json!([]);
        }
        let (shard, translation) = translated(&json.to_string());
        no_warnings(&translation);
        let values = shard.rows(1, rocpd::PMC_EVENT);
        assert_eq!(values.len(), 2 * counted);
        // The counters of the first dispatch occur twice, but it has only one row.
        let dispatches = shard.rows(1, rocpd::KERNEL_DISPATCH);
        assert_eq!(dispatches.len(), if dispatches_recorded { 50 } else { counted - 1 });
        for value in values {
            let of_event = |row: &&shard::Row| int(row, "event_id") == int(value, "event_id");
            let dispatch = dispatches.iter().find(of_event).unwrap();
            let counter = shard.referred(1, value, "pmc_id", rocpd::INFO_PMC);
            let wanted = match &text(counter, "name")[..] {
                "SQ_WAVES" => (int(dispatch, "dispatch_id") - 1) as f64 + 0.1,
                _ => 3.0,
            };
            assert_eq!(value["value"], OwnedValue::Real(wanted));
        }
    }
}

#[test]
fn ids_above_i64_max_join_as_well() {
    let json = MadeUp { high: u64::MAX - 5_000, ..MadeUp::default() }.json();
    let (shard, translation) = translated(&json.to_string());
    no_warnings(&translation);
    plain::compare(&json[PROCESS][0], &shard, 1);
}

#[test]
fn a_file_cut_anywhere_yields_what_came_before() {
    let json = MadeUp { calls: 60, processes: 2, ..MadeUp::default() }.json();
    let text = ordered(&json, &AS_WRITTEN);
    let (whole, _) = translated(&text);
    let kinds = [rocpd::KERNEL_DISPATCH, rocpd::REGION, rocpd::MEMORY_COPY, rocpd::MEMORY_ALLOCATE];
    let mut before = 0;
    for cut in (0..text.len()).step_by(1000).chain([text.len() - 1]) {
        match try_translated(&text.as_bytes()[..cut]) {
            Err(TranslateError::NoContent { position: FilePosition::Byte(offset), .. }) => {
                assert!(offset <= cut as u64 && before == 0 && cut < 2_000);
            }
            Err(other) => panic!("{other}"),
            Ok((shard, translation)) => {
                assert_eq!(translation.warnings.len(), 1, "{:?}", translation.warnings);
                assert!(
                    translation.warnings[0].contains(&format!("byte {cut}")),
                    "{:?}",
                    translation.warnings
                );
                let loss = &shard.losses[0];
                assert_eq!((shard.losses.len(), loss.cause), (1, LossCause::Truncated));
                assert_eq!(loss.rows, None);
                let mut rows = 0;
                for (source, table) in [1, 2].into_iter().flat_map(|s| kinds.map(|table| (s, table))) {
                    let found = shard.rows(source, table);
                    let all = whole.rows(source, table);
                    let starts =
                        |rows: &[shard::Row]| rows.iter().map(|r| int(r, "start")).collect::<Vec<_>>();
                    assert_eq!(starts(found), starts(&all[..found.len()]));
                    rows += found.len();
                }
                assert!(rows >= before, "cut at {cut}");
                before = rows;
            }
        }
    }
    let all: usize = [1, 2].into_iter().flat_map(|s| kinds.map(|t| whole.rows(s, t).len())).sum();
    assert_eq!(before, all);
}

#[test]
fn a_record_that_makes_no_sense_is_counted_and_the_rest_goes_on() {
    let good = MadeUp::default().json();
    let record = good[PROCESS][0]["buffer_records"]["kernel_dispatch"][0].clone();
    let change = |member: &str, value: Json| {
        let mut record = record.clone();
        record[member] = value;
        record.to_string()
    };
    let mut deep = json!(1);
    for _ in 0..40 {
        deep = json!([deep]);
    }
    let text = record.to_string();
    let bad = [
        "5".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "\"kernel\"".to_owned(),
        "{\"kind\": }".to_owned(),
        change("thread_id", json!("one")),
        change("thread_id", json!(u64::MAX)),
        change("start_timestamp", json!(u64::MAX)),
        change("end_timestamp", json!(1.5)),
        change("end_timestamp", Json::Null),
        change("correlation_id", json!(-1)),
        change("dispatch_info", json!({"agent_id": {"handle": 900}})),
        change("dispatch_info", deep),
        change("kind", json!(-3)),
        text.replacen('{', "{\"kind\": 5, ", 1),
        text.replace("\"kernel_id\"", "\"kernel_id\": 1, \"kernel_id\""),
        change("comment", json!("x".repeat(2 << 20))),
    ];
    let mut json = good.clone();
    json[PROCESS][0]["buffer_records"]["kernel_dispatch"] = json!(["HERE"]);
    let all = good[PROCESS][0]["buffer_records"]["kernel_dispatch"].as_array().unwrap();
    let records: Vec<String> = all.iter().map(Json::to_string).collect();
    let (first, last) = records.split_at(20);
    let elements = [first, &bad, last].concat().join(",");
    let (shard, translation) = translated(&json.to_string().replace("\"HERE\"", &elements));
    plain::compare(&good[PROCESS][0], &shard, 1);
    let lost: Vec<(&str, u64)> = translation.lost.iter().map(|(name, n)| (&name[..], *n)).collect();
    assert_eq!(lost, [("buffer_records.kernel_dispatch", bad.len() as u64)]);
    let loss = &shard.losses[0];
    assert_eq!((loss.cause, loss.rows), (LossCause::BadRecord, Some(bad.len() as u64)));
    assert_eq!((loss.source, loss.table), (1, Some(rocpd::KERNEL_DISPATCH)));
    assert_eq!(translation.warnings.len(), 2, "{:?}", translation.warnings);
}

#[test]
fn what_is_used_and_not_described_gets_a_row() {
    let mut json = MadeUp { counters: true, ..MadeUp::default() }.json();
    for table in ["agents", "code_objects", "kernel_symbols", "counters", "strings"] {
        json[PROCESS][0].as_object_mut().unwrap().remove(table);
    }
    let (shard, translation) = translated(&json.to_string());
    assert_eq!(shard.rows(1, rocpd::KERNEL_DISPATCH).len(), 50);
    // Agents that records of kernels and copies name.
    assert_eq!(shard.rows(1, rocpd::INFO_AGENT).len(), 2);
    let kernel =
        shard.referred(1, &shard.rows(1, rocpd::KERNEL_DISPATCH)[0], "kernel_id", rocpd::INFO_KERNEL_SYMBOL);
    assert_eq!(text(kernel, "display_name"), "kernel 21");
    let region = &shard.rows(1, rocpd::REGION)[0];
    let event = shard.referred(1, region, "event_id", rocpd::EVENT);
    assert_eq!(shard.name(region, "name_id"), "operation 1");
    assert_eq!(shard.name(event, "category_id"), "HIP_API");
    assert!(translation.warnings.iter().any(|w| w.contains(&format!("agent {} is used", AGENTS[1]))));
}

#[test]
fn tables_of_the_wrong_type_or_repeated_are_counted() {
    let mut json = MadeUp::default().json();
    let process = json[PROCESS][0].as_object_mut().unwrap();
    process.insert("counters".into(), json!("none"));
    process.insert("summary".into(), json!({"domain": 1}));
    process["buffer_records"]["hsa_api"] = json!({"a": 1});
    process["agents"].as_array_mut().unwrap().extend([json!({"id": {"handle": 900}}), json!({"id": 7})]);
    let text = json.to_string();
    let again = "\"hip_api\":[1,2,3],\"hip_api\":";
    let (shard, translation) = translated(&text.replacen("\"hip_api\":", again, 1));
    assert_eq!(shard.rows(1, rocpd::INFO_AGENT).len(), 3);
    let count = |of: &std::collections::BTreeMap<String, u64>, name: &str| of.get(name).copied().unwrap_or(0);
    assert_eq!(count(&translation.lost, "agents"), 2);
    // The first of two arrays counts, which here is malformed.
    assert_eq!(count(&translation.lost, "buffer_records.hip_api"), 3 + 200);
    assert_eq!(count(&translation.ignored, "buffer_records.hip_api (again)"), 200);
    assert_eq!(count(&translation.ignored, "summary"), 1);
    let unknown: Vec<_> =
        shard.losses.iter().filter(|loss| loss.rows.is_none()).map(|loss| loss.table).collect();
    assert_eq!(unknown, [Some(rocpd::INFO_PMC), Some(rocpd::REGION)]);
    for name in ["counters", "buffer_records.hsa_api"] {
        let told: Vec<_> =
            translation.warnings.iter().filter(|w| w.starts_with(&format!("{name} at byte "))).collect();
        assert_eq!(told.len(), 1, "{:?}", translation.warnings);
    }
}

#[test]
fn a_file_without_its_records_says_so_once() {
    let good = MadeUp::default().json();
    let told = |change: &dyn Fn(&mut serde_json::Map<String, Json>)| {
        let mut json = good.clone();
        change(json[PROCESS][0].as_object_mut().unwrap());
        let (shard, translation) = translated(&json.to_string());
        let losses: Vec<_> = shard.losses.iter().map(|loss| (loss.table, loss.rows)).collect();
        assert_eq!(translation.warnings.len(), losses.len(), "{:?}", translation.warnings);
        (shard.rows(1, rocpd::KERNEL_DISPATCH).len(), losses, translation.warnings.join(""))
    };
    let (kernels, losses, line) = told(&|process| drop(process.remove("buffer_records")));
    assert_eq!((kernels, losses), (0, vec![(None, None)]));
    assert!(line.contains("process 1 has no buffer_records"), "{line}");
    let (_, losses, line) = told(&|process| process["buffer_records"] = json!([1]));
    assert_eq!(losses, [(None, None)]);
    assert!(line.contains("buffer_records at byte ") && line.contains("is not an object"), "{line}");
    let (kernels, losses, line) =
        told(&|process| process["buffer_records"]["kernel_dispatch"] = json!({"0": {}}));
    assert_eq!((kernels, losses), (0, vec![(Some(rocpd::KERNEL_DISPATCH), None)]));
    assert!(
        line.contains("buffer_records.kernel_dispatch at byte ") && line.contains("is not an array"),
        "{line}"
    );
    let (_, losses, _) = told(&|process| process["buffer_records"]["kernel_dispatch"] = Json::Null);
    assert_eq!(losses, []);
}

#[test]
fn what_is_no_such_file_is_refused_with_its_place() {
    let deep = format!("{{\"{PROCESS}\": [{{\"metadata\": {}", "[".repeat(5 << 20));
    let texts: [(&str, u64); 10] = [
        ("", 0),
        ("   ", 3),
        ("[1, 2]", 0),
        ("{\"traceEvents\": []}", 19),
        ("{\"rocprofiler-sdk-tool\": []}", 28),
        ("{\"rocprofiler-sdk-tool\": {}}", 28),
        ("{\"rocprofiler-sdk-tool\": [{\"agents\": []}]}", 42),
        ("{\"rocprofiler-sdk-tool\": [{\"metadata\": {\"pid\": \"x\"}}]}", 54),
        ("SQLite format 3\0", 0),
        (&deep, 39 + 64),
    ];
    for (text, at) in texts {
        match try_translated(text.as_bytes()) {
            Err(TranslateError::NoContent { position: FilePosition::Byte(offset), .. }) => {
                assert_eq!(offset, at, "{text:.60}")
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{text:.60}"),
        }
        let (_dir, path) = file(text.as_bytes());
        assert!(read_processes(&path).is_err());
        assert_eq!(is_rocprofv3_json(&path), text.contains(PROCESS));
    }
    let nowhere = std::path::Path::new("/nonexistent/results.json");
    assert!(matches!(read_processes(nowhere), Err(TranslateError::Io { .. })));
    assert!(!is_rocprofv3_json(nowhere));
}

/// Returns a file that rocprofv3 wrote, from the folder `RPD_SHARED` or `../shared` beside the repository. The file
/// may not be redistributed, so the repository does not contain it.
fn real_file(into: &std::path::Path) -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("RPD_SHARED").map_or(beside, PathBuf::from);
    let packed = shared.join("data/rocprofv3/cut_results.json.gz");
    if !packed.is_file() {
        eprintln!("skipped: no {} (set RPD_SHARED)", packed.display());
        return None;
    }
    let path = into.join("results.json");
    let unpacked = std::fs::File::create(&path).unwrap();
    let status = std::process::Command::new("gzip").arg("-dc").arg(packed).stdout(unpacked).status();
    assert!(status.unwrap().success());
    Some(path)
}

#[test]
fn a_real_file_is_in_its_shard() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = real_file(dir.path()) else { return };
    assert!(is_rocprofv3_json(&path));
    let json: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    let translation = translate(&path, &mut bytes, &Owner::unknown(run())).unwrap();
    let shard = Contents::of(&bytes);
    shard.check_references();
    no_warnings(&translation);
    assert_eq!(translation.rows[&rocpd::KERNEL_DISPATCH], 1_500);
    for (source, process) in (1..).zip(json[PROCESS].as_array().unwrap()) {
        plain::compare(process, &shard, source);
    }
}
