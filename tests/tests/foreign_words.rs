//! What files of profilers say is in the database and in traces as they say it, and nothing that they do not say.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, rpd_merge};
use serde_json::{Value as Json, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

/// A trace of PyTorch with these members before its events, and members of Kineto after them.
fn kineto(before: &str, events: &[String]) -> String {
    format!(
        r#"{{{before}"traceEvents": [{}], "schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000}}"#,
        events.join(",\n")
    )
}

fn write_packed(path: &Path, text: &str) {
    let mut encoder = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap();
}

/// The slices of a trace of Chrome's format, drawn of a database.
fn drawn(database: &Path, trace: &Path) -> Vec<Json> {
    let _ = rpd_merge().args(["--format", "chrome-json", "-o"]).arg(trace).arg(database).run().success();
    let mut text = String::new();
    GzDecoder::new(File::open(trace).unwrap()).read_to_string(&mut text).unwrap();
    let tree: Json = serde_json::from_str(&text).unwrap();
    tree["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").cloned().collect()
}

#[test]
fn copies_keep_their_names_and_kernels_without_sizes_show_none() {
    let folder = tempfile::tempdir().unwrap();
    let on_stream = |category: &str, name: &str, ts: i64, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":5,"args":{{"device":0,"stream":7{args}}}}}"#
        )
    };
    let events = [
        on_stream("kernel", "sized", 10, r#","grid":[8,4,1],"block":[256,1,1]"#),
        on_stream("kernel", "bare", 20, ""),
        on_stream("gpu_memset", "Memset (Device)", 30, r#","bytes":64"#),
        on_stream("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, r#","bytes":4096"#),
    ];
    let input = folder.path().join("rank0.pt.trace.json");
    fs::write(&input, kineto(r#""metadata": {"a": [{}]}, "#, &events)).unwrap();
    let output = folder.path().join("out.db");
    let _ = rpd_merge().args(["--strict", "--verify", "-o"]).arg(&output).arg(&input).run().success();
    let database = Database::open(&output);
    database.assert_sound();
    let copies = "SELECT c.name, a.value, c.size FROM memory_copies c JOIN rocpd_memory_copy m ON m.id = c.id
        JOIN rocpd_arg a ON a.event_id = m.event_id WHERE a.name = 'name'";
    let copy = ["'MEMORY_COPY_HOST_TO_DEVICE'", "'Memcpy HtoD (Pinned -> Device)'", "4096"];
    assert_eq!(database.rows(copies), [copy]);
    let kernels = "SELECT k.name, d.grid_size_x, d.workgroup_size_x, json_extract(d.extdata, '$.rpd.no_grid'),
        json_extract(d.extdata, '$.rpd.no_workgroup') FROM kernels k JOIN rocpd_kernel_dispatch d ON d.id = k.id ORDER BY d.start";
    assert_eq!(
        database.rows(kernels),
        [
            ["'sized'", "8", "256", "NULL", "NULL"],
            ["'bare'", "0", "0", "1", "1"],
            ["'Memset (Device)'", "0", "0", "1", "1"],
        ]
    );
    let slices = drawn(&output, &folder.path().join("trace.json.gz"));
    let args = |name: &str| slices.iter().find(|slice| slice["name"] == name).unwrap()["args"].clone();
    assert_eq!((&args("sized")["grid"], &args("sized")["workgroup"]), (&json!("[8,4,1]"), &json!("256,1,1")));
    for name in ["bare", "Memset (Device)"] {
        assert!(args(name).get("grid").is_none() && args(name).get("workgroup").is_none(), "{}", args(name));
    }
    assert_eq!(args("MEMORY_COPY_HOST_TO_DEVICE")["name"], "Memcpy HtoD (Pinned -> Device)");
}

/// What a rank on a host of its own did: calls of RCCL on process groups without numbers, with kernels that do not fit
/// those of other ranks.
fn rank_with_groups(rank: i64) -> String {
    let calls = (0..60i64).flat_map(|call| {
        let ts = 1_000_000 + call * 20_000 + rank * (call * 37 % 11) * 400;
        let pid = 100 + rank;
        [
            format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":{pid},"tid":{pid},"ts":{ts},"dur":9,"args":{{"External id":{},"Collective name":"allreduce","dtype":"Float","In msg nelems":1024,"Group size":2,"Process Group Name":"0","Process Group Ranks":"[0, 1]"}}}}"#,
                call + 1
            ),
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_Generic(x)","pid":0,"tid":9,"ts":{},"dur":400,"args":{{"External id":{},"device":0,"stream":9,"correlation":{}}}}}"#,
                ts + 50,
                call + 1,
                call + 1
            ),
        ]
    });
    let top = format!(r#""distributedInfo": {{"rank": {rank}, "world_size": 2}}, "host_name": "n{rank}", "#);
    kineto(&top, &calls.collect::<Vec<_>>())
}

#[test]
fn files_with_process_groups_are_not_said_to_name_no_communicators() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        write_packed(&folder.path().join(format!("rank{rank}.pt.trace.json.gz")), &rank_with_groups(rank));
    }
    let output = folder.path().join("out.db");
    let merge = rpd_merge().arg("-o").arg(&output).arg(folder.path()).run().success();
    let line =
        "warning    profilers' files do not number these calls, and the times of these calls do not show";
    assert!(merge.stderr.contains(line), "{merge}");
    assert!(merge.stderr.contains("not used   60 calls of n1 (rank 1) and n0: "), "{merge}");
    assert!(!merge.stderr.contains("name no communicators"), "{merge}");
}

#[test]
fn packed_json_of_rocprofv3_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    let record = |id: u64| {
        json!({"size": 64, "kind": 1, "operation": 1, "thread_id": 7, "start_timestamp": 100 * id, "end_timestamp": 100 * id + 9,
               "correlation_id": {"internal": id, "external": 0}, "stream_id": {"handle": 5_000_000_001u64},
               "dispatch_info": {"agent_id": {"handle": 9}, "queue_id": {"handle": 77 + id}, "kernel_id": 3, "dispatch_id": id,
                                 "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 128, "y": 1, "z": 1}}})
    };
    let process = json!({
        "metadata": {"pid": 4000, "init_time": 1, "fini_time": 9000, "command": ["a"]},
        "agents": [{"id": {"handle": 9}, "type": 2, "node_id": 1, "logical_node_id": 1, "logical_node_type_id": 0, "name": "gfx942"}],
        "kernel_symbols": [{"kernel_id": 3, "code_object_id": 1, "kernel_name": "k", "formatted_kernel_name": "k"}],
        "code_objects": [{"size": 8, "code_object_id": 1, "agent_id": {"handle": 9}, "uri": "file:///x"}],
        "strings": {"buffer_records": [{"kind": "NONE"}, {"kind": "KERNEL_DISPATCH", "operations": ["NONE", "COMPLETE"]}]},
        "buffer_records": {"kernel_dispatch": [record(1), record(2)]},
    });
    let text = json!({ "rocprofiler-sdk-tool": [process] }).to_string();
    write_packed(&folder.path().join("1_results.json.gz"), &text);
    let output = folder.path().join("out.db");
    let _ = rpd_merge().args(["--strict", "-o"]).arg(&output).arg(folder.path()).run().success();
    let handles = "SELECT json_extract(q.extdata, '$.rpd.id'), json_extract(s.extdata, '$.rpd.id') FROM rocpd_kernel_dispatch d
        JOIN rocpd_info_queue q ON q.id = d.queue_id JOIN rocpd_info_stream s ON s.id = d.stream_id ORDER BY d.start";
    assert_eq!(Database::open(&output).rows(handles), [["78", "5000000001"], ["79", "5000000001"]]);
}

#[test]
fn real_traces_that_begin_with_an_unknown_member_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    for path in fixtures::kineto_real(&folder.path().join("in")) {
        let mut tree: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let events: Vec<Json> = serde_json::from_value(tree["traceEvents"].take()).unwrap();
        let output = folder.path().join("out.db");
        let _ = rpd_merge().args(["--strict", "--force", "-o"]).arg(&output).arg(&path).run().success();
        let database = Database::open(&output);
        database.assert_sound();
        let count = |phase: &str, categories: &[&str], is_in: bool| {
            let category = |event: &Json| event["cat"].as_str().unwrap_or_default().to_owned();
            let counted = events.iter().filter(|event| event["ph"] == phase);
            counted.filter(|event| categories.contains(&&*category(event)) == is_in).count() as i64
        };
        let on_gpu = ["kernel", "gpu_memset", "gpu_memcpy"];
        let tables = ["rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region", "rocpd_sample"];
        let wanted = [
            count("X", &on_gpu[..2], true),
            count("X", &on_gpu[2..], true),
            count("X", &on_gpu, false),
            count("i", &[], false),
        ];
        assert_eq!(tables.map(|table| database.count(table)), wanted, "{}", path.display());
    }
}
