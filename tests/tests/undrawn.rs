//! What a trace lacks is counted by kind, its clock is that of the wall where one is known, and files without events are
//! named.

use flate2::read::GzDecoder;
use rpd_tests::harness::{JobOutcome, RunFolder, TraceProcessor, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// ns since 1970 of the first event of a trace with times from `BASE` on.
const BASE: i64 = 1_700_000_000_000_000_000;
const FIRST: i64 = BASE + 5_000;

/// A trace of the PyTorch profiler: two operators, the second one the backward of the first, and a kernel.
fn kineto(rank: u32, base: Option<i64>) -> String {
    let span = |cat: &str, name: &str, tid: u32, ts: f64, args: Json| json!({ "ph": "X", "cat": cat, "name": name, "pid": 10 + rank, "tid": tid, "ts": ts, "dur": 2.0, "args": args });
    let flow = |ph: &str, ts: f64| json!({ "ph": ph, "id": 7, "pid": 10 + rank, "tid": 10, "ts": ts, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e" });
    let mut trace = json!({
        "schemaVersion": 1,
        "distributedInfo": { "rank": rank, "world_size": 2 },
        "traceEvents": [
            span("cpu_op", "aten::mm", 10, 5.0, json!({ "External id": 1, "Input Dims": [[2, 3], [3, 4]] })),
            flow("s", 5.0),
            span("cpu_op", "MmBackward0", 10, 15.0, json!({ "External id": 2, "Sequence number": 4, "Fwd thread id": 1 })),
            flow("f", 15.0),
            span("kernel", "gemm", 7, 25.0, json!({ "device": 0, "stream": 7, "correlation": 9 })),
        ],
    });
    if let Some(base) = base {
        trace["baseTimeNanoseconds"] = base.into();
    }
    trace.to_string()
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A folder with these traces of ranks.
    fn of(traces: &[String]) -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.input()).unwrap();
        for (rank, trace) in traces.iter().enumerate() {
            fs::write(place.input().join(format!("rank{rank}.json")), trace).unwrap();
        }
        place
    }

    fn input(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    /// Draws them into a new folder: its index, and what the program said.
    fn drawn(&self, arguments: &[&str]) -> (PathBuf, Json, JobOutcome) {
        let folder = self.folder.path().join("drawn");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let job = rpd_merge().arg("--json").args(arguments).arg("-o").arg(&folder).arg(self.input());
        let outcome = job.run().success();
        let index = fs::read(folder.join("index.json")).unwrap();
        (folder, serde_json::from_slice(&index).unwrap(), outcome)
    }
}

/// Arguments of each slice in a trace of [`kineto`], and the ends of arrows between operators.
const ARGUMENTS: &str = "SELECT s.name, substr(a.key, 7), coalesce(a.string_value, a.int_value) FROM slice s
    JOIN args a USING (arg_set_id) WHERE a.key IN ('debug.External id', 'debug.Input Dims', 'debug.Sequence number',
    'debug.Fwd thread id', 'debug.correlation') ORDER BY s.ts, s.id, 2";
const ARROWS: &str = "SELECT f.name, t.name FROM flow JOIN slice f ON f.id = flow.slice_out
    JOIN slice t ON t.id = flow.slice_in WHERE t.category = 'cpu_op' ORDER BY f.ts, f.id";

#[test]
fn arguments_and_arrows_of_a_profiler_are_drawn_and_nothing_is_missing() {
    let place = Place::of(&[kineto(0, Some(BASE)), kineto(1, Some(BASE))]);
    let of_rank = [
        json!(["aten::mm", "External id", 1]),
        json!(["aten::mm", "Input Dims", "[[2,3],[3,4]]"]),
        json!(["MmBackward0", "External id", 2]),
        json!(["MmBackward0", "Fwd thread id", 1]),
        json!(["MmBackward0", "Sequence number", 4]),
        json!(["gemm", "correlation", 9]),
    ];
    let names = |row: &Json| row[0].as_str() == Some("gemm");
    for (arguments, has_args, has_arrows) in [
        (&["--format", "perfetto"][..], true, true),
        (&["--split-by-time", "1"], true, true),
        (&["--format", "perfetto", "--no-annotations"], false, true),
        (&["--format", "perfetto", "--exclude", "args"], false, true),
        (&["--format", "perfetto", "--exclude", "flows"], true, false),
        (&["--format", "perfetto", "--exclude", "kernels"], true, true),
    ] {
        let (folder, index, outcome) = place.drawn(arguments);
        let report: Json = serde_json::from_str(&outcome.stdout).unwrap();
        for not_drawn in [&index["not_drawn"], &report["trace"]["not_drawn"]] {
            let missing: BTreeMap<String, u64> = serde_json::from_value(not_drawn.clone()).unwrap();
            let missing: Vec<&String> = missing.keys().filter(|why| !why.contains("as chosen")).collect();
            assert!(missing.is_empty(), "{arguments:?}: {missing:?}");
        }
        let trace = folder.join(index["files"][0]["name"].as_str().unwrap());
        for processor in TraceProcessor::all("arguments and arrows of a profiler") {
            let [args, arrows] = processor.queries(&trace, [ARGUMENTS, ARROWS]);
            let mut args: Vec<Json> = args.into_iter().map(Json::from).collect();
            args.sort_by_key(|row| (names(row), row[0] == "MmBackward0", row.to_string()));
            let is_shown = |row: &&Json| has_args && !(names(row) && arguments.contains(&"kernels"));
            let wanted: Vec<&Json> = of_rank.iter().filter(is_shown).flat_map(|row| [row, row]).collect();
            assert_eq!(args.iter().collect::<Vec<_>>(), wanted, "{arguments:?} {}", processor.version());
            let arrow = vec![json!("aten::mm"), json!("MmBackward0")];
            assert_eq!(arrows, vec![arrow; if has_arrows { 2 } else { 0 }], "{arguments:?}");
        }
    }
}

/// A trace of the PyTorch profiler whose kernels run long after their calls.
fn lagging(calls: u32) -> String {
    let span = |cat: &str, name: &str, tid: u32, ts: u32, args: Json| json!({ "ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": 2, "args": args });
    let events = (0..calls).flat_map(|call| {
        let launch = json!({ "correlation": call + 1 });
        let kernel = json!({ "device": 0, "stream": 7, "correlation": call + 1 });
        [
            span("cuda_runtime", "hipLaunchKernel", 10, 10 + 3 * call, launch),
            span("kernel", "gemm", 7, 5_000 + 30 * call, kernel),
        ]
    });
    json!({ "schemaVersion": 1, "distributedInfo": { "rank": 0, "world_size": 1 }, "traceEvents": events.collect::<Vec<_>>() })
        .to_string()
}

/// A trace of the PyTorch profiler with collectives of two process groups, numbered in each, and a wait for the first one.
fn collectives(rank: u32) -> String {
    let call = |name: &str, seq: u32, group: &str, ts: f64| {
        json!({
            "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 10 + rank, "tid": 10,
            "ts": ts + f64::from(rank), "dur": 2.0,
            "args": { "Collective name": name, "Process Group Name": group, "Group size": 2, "Seq": seq },
        })
    };
    let calls = [
        call("allreduce", 1, "0", 5.0),
        call("wait", 1, "0", 10.0),
        call("allreduce", 2, "0", 15.0),
        call("broadcast", 1, "dp", 25.0),
    ];
    json!({
        "schemaVersion": 1,
        "baseTimeNanoseconds": BASE,
        "distributedInfo": { "rank": rank, "world_size": 2 },
        "traceEvents": calls,
    })
    .to_string()
}

#[test]
fn collectives_of_the_pytorch_profiler_are_connected_from_rank_to_rank() {
    let place = Place::of(&[collectives(0), collectives(1)]);
    let (folder, _, _) = place.drawn(&["--format", "perfetto"]);
    let arrows =
        "SELECT f.ts, t.ts, extract_arg(f.arg_set_id, 'debug.Seq'), extract_arg(t.arg_set_id, 'debug.Seq'),
        extract_arg(f.arg_set_id, 'debug.comm'), extract_arg(t.arg_set_id, 'debug.comm')
        FROM flow JOIN slice f ON f.id = flow.slice_out JOIN slice t ON t.id = flow.slice_in ORDER BY f.ts";
    for processor in TraceProcessor::all("arrows of collectives") {
        let found = processor.query(&folder.join("trace.pftrace.gz"), arrows);
        let wanted = [(0, 1, "0"), (10_000, 2, "0"), (20_000, 1, "dp")].map(|(at, seq, group)| {
            // Texts that are numbers are drawn as such.
            let group: Json = group.parse::<i64>().map_or(json!(group), Json::from);
            [json!(at), json!(at + 1_000), json!(seq), json!(seq), group.clone(), group]
        });
        assert_eq!(found, wanted, "{}", processor.version());
    }
}

#[test]
fn arrows_of_collectives_that_files_cut_are_counted() {
    let place = Place::of(&[collectives(0), collectives(1)]);
    // A file has 1.5 us, and rank 1 calls 1 us after rank 0.
    let (folder, index, _) = place.drawn(&["--split-by-time", "15"]);
    let files = index["files"].as_array().unwrap();
    let traces: Vec<PathBuf> = files.iter().map(|file| folder.join(file["name"].as_str().unwrap())).collect();
    let cut = |key: &str| index["not_drawn"][key].as_u64().unwrap_or(0);
    let cut = cut("arrow of collectives between calls in two files: not drawn")
        + cut("arrows of collectives between calls in two files: not drawn");
    for processor in TraceProcessor::all("cut arrows of collectives") {
        let kept: u64 = processor
            .each(&traces, ["SELECT count(*) FROM flow"])
            .into_iter()
            .map(|[flows]| flows[0][0].as_u64().unwrap())
            .sum();
        assert!(kept > 0 && cut > 0, "{kept} {cut}");
        assert_eq!(kept + cut, 3, "{}", processor.version());
    }
}

/// The note on a file.
const NOTE: &str = "SELECT s.name, s.ts, s.ts + s.dur, extract_arg(s.arg_set_id, 'debug.ranks'),
    extract_arg(s.arg_set_id, 'debug.run'), extract_arg(s.arg_set_id, 'debug.not drawn in any file, or drawn otherwise than merged'),
    extract_arg(s.arg_set_id, 'debug.left out by options')
    FROM slice s JOIN track t ON t.id = s.track_id WHERE t.name = 'this file' AND s.category = 'rpd_file'";

#[test]
fn each_file_begins_with_a_note_on_its_part_and_the_missing_rows() {
    let place = Place::of(&[kineto(0, Some(BASE)), kineto(1, Some(BASE))]);
    let (folder, index, _) = place.drawn(&["--split-by-time", "2", "--exclude", "kernels"]);
    let files = index["files"].as_array().unwrap();
    let missing = index["not_drawn"].as_object().unwrap();
    assert!(!missing.is_empty(), "{index}");
    let traces: Vec<PathBuf> = files.iter().map(|file| folder.join(file["name"].as_str().unwrap())).collect();
    for processor in TraceProcessor::all("notes on files") {
        let notes = processor.each(&traces, [NOTE, TraceProcessor::COMPLAINTS]);
        for (number, ([note, complaints], file)) in notes.into_iter().zip(files).enumerate() {
            assert_eq!(complaints, Vec::<Vec<Json>>::new(), "{}", processor.version());
            let [note] = &note[..] else { panic!("{note:?}") };
            let (from, to) = (file["from_ns"].as_i64().unwrap(), file["to_ns"].as_i64().unwrap());
            let name = format!(
                "file {} of 2: {:.6} s to {:.6} s of the run, ranks 0-1",
                number + 1,
                from as f64 / 1e9,
                to as f64 / 1e9
            );
            assert_eq!(note[..4], [json!(name), json!(from), json!(to), json!("0-1")]);
            // An empty run id, as of foreign traces, is left out.
            assert_eq!(note[4].as_str().unwrap_or(""), index["run_id"].as_str().unwrap());
            let words = note[5].as_str().unwrap();
            assert!(missing.keys().all(|why| words.contains(&**why)), "{words}");
            assert_eq!((&note[6], &index["left_out"]), (&json!("kernels"), &json!(["kernels"])));
        }
    }
}

#[test]
fn a_kernel_long_after_its_call_keeps_its_arrow_in_every_slice() {
    let calls = 200;
    let place = Place::of(&[lagging(calls)]);
    let (folder, index, _) = place.drawn(&["--split-by-time", "24"]);
    let files = index["files"].as_array().unwrap();
    let repeated: u64 = files.iter().map(|file| file["events"]["earlier_calls"].as_u64().unwrap()).sum();
    // The calls end in the second of 24 files, and the kernels begin in the 11th.
    assert_eq!((files.len(), repeated), (24, u64::from(calls)));
    let arrows = "SELECT f.name, t.name, extract_arg(f.arg_set_id, 'debug.orig_dur') FROM flow
        JOIN slice f ON f.id = flow.slice_out JOIN slice t ON t.id = flow.slice_in";
    let calls_before = "SELECT count(*) FROM slice s JOIN track t ON t.id = s.track_id
        WHERE t.name = 'calls before this file' AND s.dur = 0";
    let traces: Vec<PathBuf> = files.iter().map(|file| folder.join(file["name"].as_str().unwrap())).collect();
    for processor in TraceProcessor::all("arrows in slices") {
        let mut kept = 0;
        for [arrows, before, complaints] in
            processor.each(&traces, [arrows, calls_before, TraceProcessor::COMPLAINTS])
        {
            assert_eq!(complaints, Vec::<Vec<Json>>::new(), "{}", processor.version());
            assert_eq!(before[0][0].as_u64(), Some(arrows.len() as u64), "{}", processor.version());
            for arrow in &arrows {
                assert_eq!(arrow[..3], [json!("hipLaunchKernel"), json!("gemm"), json!(2_000)]);
            }
            kept += arrows.len();
        }
        assert_eq!(kept, calls as usize, "{}", processor.version());
    }
}

/// The members of a message of Protocol Buffers that are numbers or messages.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let number = |bytes: &mut &[u8]| {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let value = number(&mut bytes);
        let inner = if key & 7 == 2 { bytes.split_off(..value as usize).unwrap() } else { &[] };
        assert!(matches!(key & 7, 0 | 2), "an unexpected kind of member");
        found.push((key >> 3, value, inner));
    }
    found
}

/// The clocks of the snapshot that a trace begins with: their numbers and times.
fn snapshot(trace: &Path) -> Vec<(u64, i64)> {
    let mut head = vec![0; 2];
    let mut file = GzDecoder::new(File::open(trace).unwrap());
    file.read_exact(&mut head).unwrap();
    assert_eq!(head[0], 0x0a, "a packet");
    head = vec![0; head[1].into()];
    file.read_exact(&mut head).unwrap();
    let packet = fields(&head);
    let (_, _, snapshot) = packet.iter().find(|(field, ..)| *field == 6).expect("a snapshot of clocks");
    let clocks = fields(snapshot).into_iter().filter(|(field, ..)| *field == 1);
    let clock = |(_, _, clock): (u64, u64, &[u8])| {
        let of = |wanted: u64| fields(clock).into_iter().find(|(field, ..)| *field == wanted).unwrap().1;
        (of(1), of(2) as i64)
    };
    clocks.map(clock).collect()
}

const BOOTTIME: u64 = 6;
const REALTIME: u64 = 1;

#[test]
fn a_trace_of_wall_clock_times_says_when_it_began() {
    let place = Place::of(&[kineto(0, Some(BASE)), kineto(1, Some(BASE + 1_000))]);
    let (folder, index, _) = place.drawn(&["--format", "perfetto"]);
    let trace = folder.join("trace.pftrace.gz");
    assert_eq!(snapshot(&trace), [(BOOTTIME, 0), (REALTIME, FIRST)]);
    assert_eq!(index["wall_clock"], "2023-11-14T22:13:20.000005Z");
    if let Some(processor) = TraceProcessor::all("clocks of traces").last() {
        let clock = "SELECT clock_value FROM clock_snapshot WHERE clock_name = 'REALTIME'";
        let [rows] = processor.queries(&trace, [clock]);
        assert_eq!(Json::from(rows[0].clone()), json!([FIRST]));
    }
    // Each slice has the wall clock of its own start.
    let (folder, index, _) = place.drawn(&["--split-by-time", "3"]);
    for file in index["files"].as_array().unwrap() {
        let from = file["from_ns"].as_i64().unwrap();
        let name = file["name"].as_str().unwrap();
        assert_eq!(snapshot(&folder.join(name)), [(BOOTTIME, from), (REALTIME, FIRST + from)]);
    }
    // And may be asked for by it.
    let (_, index, _) = place.drawn(&["--format", "perfetto", "--window", "2023-11-14T22:13:20.000010Z.."]);
    assert_eq!(index["files"][0]["from_ns"], 5_000);
}

#[test]
fn a_trace_without_a_wall_clock_says_no_time_of_day() {
    let place = Place::of(&[kineto(0, None)]);
    let (folder, index, _) = place.drawn(&["--format", "perfetto"]);
    assert_eq!(snapshot(&folder.join("trace.pftrace.gz")), [(BOOTTIME, 0)]);
    assert_eq!(index["wall_clock"], Json::Null);

    let run = RunFolder::new(&SyntheticRun { nodes: 1, events_per_rank: 30, ..SyntheticRun::default() });
    let folder = run.beside("drawn");
    fs::create_dir(&folder).unwrap();
    let _ = rpd_merge().args(["--format", "perfetto", "-o"]).arg(&folder).arg(&run.path).run().success();
    let clocks = snapshot(&folder.join("trace.pftrace.gz"));
    assert!(matches!(clocks[..], [(BOOTTIME, 0), (REALTIME, time)] if time > BASE), "{clocks:?}");
}

#[test]
fn files_of_equal_time_without_events_are_named_with_an_option_that_makes_none() {
    let place = Place::of(&[kineto(0, Some(BASE)), kineto(1, Some(BASE + 1_000_000_000_000))]);
    let (_, index, outcome) = place.drawn(&["--split-by-time", "4"]);
    let empty = json!(["trace-00002-of-00004.pftrace.gz", "trace-00003-of-00004.pftrace.gz"]);
    let report: Json = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&index["empty_files"], &report["trace"]["empty_files"]), (&empty, &empty), "{outcome}");
    let warning = outcome.stderr.lines().find(|line| line.contains("--split-by-time 4")).expect("a warning");
    assert!(
        warning.contains("2 of 4 files have no event") && warning.contains("trace-00003-of"),
        "{warning}"
    );
    assert_eq!(report["trace"]["warnings"], json!([warning.strip_prefix("warning: ").unwrap()]));
    // What it proposes fits.
    let (_, rest) = warning.split_once("use ").unwrap();
    let option: Vec<&str> = rest.split_whitespace().take(2).collect();
    assert_eq!(option[0], "--split-by-events");
    let (_, index, outcome) = place.drawn(&option);
    assert!(index["files"].as_array().unwrap().len() > 1 && index.get("empty_files").is_none(), "{index}");
    assert!(!outcome.stderr.contains("warning"), "{outcome}");
    for file in index["files"].as_array().unwrap() {
        let events = file["events"].as_object().unwrap();
        assert!(events.values().filter_map(Json::as_u64).sum::<u64>() > 0, "{index}");
    }
}
