//! The figures of `rpd-report gpu`: those of an independent computation from the profiler's own files.

use rpd_tests::fixtures;
use rpd_tests::harness::{Job, binary, repository, rpd_merge, skip};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};

fn reported(input: &Path) -> Json {
    let job = Job::new(binary("rpd-report")).args(["gpu", "--quiet", "--format", "json"]).arg(input);
    serde_json::from_str(&job.run().success().stdout).unwrap()
}

/// The figures that a script computes from a trace.
fn computed(trace: &Path) -> Json {
    let script = repository().join("tests/kineto/gpu_figures.py");
    serde_json::from_str(&Job::new("python3").arg(script).arg(trace).run().success().stdout).unwrap()
}

/// A sequence of numbers that looks like chance.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |limit| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    }
}

/// A trace of a rank with these events.
fn write_trace(folder: &Path, rank: u32, events: &[String]) -> PathBuf {
    let head = format!(
        r#""schemaVersion": 1, "distributedInfo": {{"rank": {rank}}}, "baseTimeNanoseconds": 1759000000000000000"#
    );
    let trace = folder.join(format!("rank{rank}.pt.trace.json"));
    fs::write(&trace, format!(r#"{{{head}, "traceEvents": [{}]}}"#, events.join(",\n"))).unwrap();
    trace
}

/// An event with times in ns.
fn span(
    category: &str,
    name: &str,
    (gpu, stream): (u64, u64),
    (start, dur): (u64, u64),
    args: &str,
) -> String {
    let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {gpu}, "tid": {stream}, "ts": {}, "dur": {}, "args": {{{args}}}}}"#,
        us(start),
        us(dur)
    )
}

/// Compares a report with what the script computes from the same trace. Returns the number of GPUs.
fn assert_same(report: &Json, expected: &Json, what: &str) -> usize {
    let gpus = report["gpu"].as_array().unwrap();
    let wanted = expected["gpus"].as_object().unwrap();
    assert_eq!(gpus.len(), wanted.len(), "{what}: {report}");
    for gpu in gpus {
        let number = gpu["gpu"].as_str().unwrap().split_whitespace().nth(1).unwrap();
        for (key, value) in wanted[number].as_object().unwrap() {
            assert_eq!(&gpu[key], value, "{what}: {key} of GPU {number}");
        }
        let parts: i64 = ["compute_ns", "exposed_ns", "memory_ns", "idle_ns"]
            .map(|key| gpu[key].as_i64().unwrap())
            .iter()
            .sum();
        assert_eq!(gpu["length_ns"], parts, "{what}");
    }
    let classes = report["kernel_classes"].as_array().unwrap();
    let wanted = expected["classes"].as_object().unwrap();
    assert_eq!(classes.len(), wanted.len(), "{what}: {report}");
    for class in classes {
        let wanted = &wanted[class["class"].as_str().unwrap()];
        assert_eq!(
            (&class["kernels"], &class["total_ns"]),
            (&wanted["kernels"], &wanted["total_ns"]),
            "{what}"
        );
    }
    gpus.len()
}

/// Compares reports of a trace and of its merged database with the script.
fn assert_figures(trace: &Path, folder: &Path) -> usize {
    let expected = computed(trace);
    let database = folder.join("merged.db");
    let _ = rpd_merge().args(["--quiet", "--force", "-o"]).arg(&database).arg(trace).run().success();
    let what = trace.display().to_string();
    assert_same(&reported(&database), &expected, &what);
    assert_same(&reported(trace), &expected, &what)
}

#[test]
fn real_traces_have_the_figures_that_a_script_computes() {
    let folder = tempfile::tempdir().unwrap();
    let mut traces = fixtures::kineto_real(&folder.path().join("real"));
    traces.extend(fixtures::kineto_ddp(&folder.path().join("ddp")));
    if traces.is_empty() {
        return skip("figures of real traces", "the recorded traces are not here");
    }
    let gpus: usize = traces.iter().map(|trace| assert_figures(trace, folder.path())).sum();
    assert!(gpus >= 4, "{gpus} GPUs");
}

#[test]
fn overlapping_streams_and_late_launches_have_the_figures_that_a_script_computes() {
    let folder = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    let mut below = numbers(7);
    let names =
        ["ncclDevKernel_AllReduce", "Cijk_MT128", "vectorized_elementwise", "Memset (Device)", "mine"];
    for number in 1..400u64 {
        let (gpu, stream) = (below(2), below(3));
        let launch = number * 10_000 + below(5_000);
        let start = launch + below(30_000);
        let args = format!(r#""correlation": {number}, "device": {gpu}, "stream": {stream}"#);
        let (category, name) = match below(8) {
            0 => ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)"),
            _ => ("kernel", names[below(5) as usize]),
        };
        events.push(span(category, name, (gpu, stream), (start, below(12_000)), &args));
        if below(10) > 0 {
            let args = format!(r#""correlation": {number}"#);
            let times = (launch, 500 + below(4_000));
            events.push(span("cuda_runtime", "hipLaunchKernel", (77, 77), times, &args));
        }
    }
    let trace = write_trace(folder.path(), 3, &events);
    assert_eq!(assert_figures(&trace, folder.path()), 2);
    let notes = reported(&trace)["notes"].to_string();
    assert!(notes.contains("is idle for"), "{notes}");
}

#[test]
fn collectives_of_kernels_have_the_figures_that_a_script_computes() {
    let folder = tempfile::tempdir().unwrap();
    let mut below = numbers(11);
    let functions = ["allreduce", "_allgather_base", "_reduce_scatter_base", "broadcast"];
    let kinds: Vec<(usize, u64)> = (0..60).map(|_| (below(4) as usize, 1 << (10 + below(3)))).collect();
    let traces: Vec<PathBuf> = (0..3)
        .map(|rank| {
            let mut events = Vec::new();
            for (seq, (function, elements)) in (1u64..).zip(&kinds) {
                // A rank misses a collective, and passes another size once.
                if (rank, seq) == (1, 17) {
                    continue;
                }
                let elements = if (rank, seq) == (2, 30) { 7 } else { *elements };
                let function = functions[*function];
                let args = format!(
                    r#""device": 0, "stream": 5, "Collective name": "{function}", "Process Group Name": "dp", "Group size": 3, "Seq": {seq}, "In msg nelems": {elements}, "dtype": "BFloat16""#
                );
                let times = (seq * 1_000_000 + below(300_000), 20_000 + below(90_000));
                events.push(span("kernel", "ncclDevKernel_Generic", (0, 5), times, &args));
            }
            write_trace(folder.path(), rank, &events)
        })
        .collect();
    let script = repository().join("tests/kineto/gpu_figures.py");
    let expected = Job::new("python3").arg(script).args(&traces).run().success().stdout;
    let expected: Vec<Json> = serde_json::from_str(&expected).unwrap();
    let database = folder.path().join("merged.db");
    let _ = rpd_merge().args(["--quiet", "-o"]).arg(&database).args(&traces).run().success();
    let of_traces =
        Job::new(binary("rpd-report")).args(["gpu", "--quiet", "--format", "json"]).args(&traces).run();
    let of_traces: Json = serde_json::from_str(&of_traces.success().stdout).unwrap();
    for report in [of_traces, reported(&database)] {
        let found = report["gpu_collectives"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{report}");
        for line in found {
            let is_same = |wanted: &&Json| ["function", "bytes"].iter().all(|key| wanted[key] == line[key]);
            let wanted = expected.iter().find(is_same).unwrap_or_else(|| panic!("{line}"));
            for (key, value) in line.as_object().unwrap() {
                match (key.ends_with("per_s"), value.as_f64(), wanted[key].as_f64()) {
                    (true, Some(found), Some(wanted)) => {
                        assert!((found - wanted).abs() <= wanted * 0.01, "{key}: {line}");
                    }
                    _ => assert_eq!(value, &wanted[key], "{key}: {line}"),
                }
            }
        }
        let matched: i64 = found.iter().map(|line| line["matched"].as_i64().unwrap()).sum();
        assert_eq!(matched, 58, "{report}");
    }
}
