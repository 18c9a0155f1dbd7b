//! Tests the translation of PyTorch profiler traces: against a tree of the same file, and with malformed files.
#![allow(missing_docs, clippy::unwrap_used)]

mod broken;
mod generated;
mod order;
mod real;
mod said;
mod shard;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use rpd_kineto::{is_kineto, translate};
use rpd_shard::file::Owner;
use rpd_shard::model::{OwnedValue, rocpd};
use rpd_shard::record::Clock;
use rpd_translator::{TranslateError, Translation};
use shard::{Contents, int, json, run, text};
use std::io::Write;
use std::path::Path;

pub(crate) fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn translated_file(path: &Path) -> Result<(Contents, Translation), TranslateError> {
    let mut bytes = Vec::new();
    let translation = translate(path, &mut bytes, &Owner::unknown(run()))?;
    Ok((Contents::of(&bytes), translation))
}

pub(crate) fn try_translated(bytes: &[u8]) -> Result<(Contents, Translation), TranslateError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank0.pt.trace.json");
    std::fs::write(&path, bytes).unwrap();
    translated_file(&path)
}

pub(crate) fn translated(text: &str) -> (Contents, Translation) {
    try_translated(text.as_bytes()).unwrap()
}

/// Builds a file of these events, preceded by `top`.
pub(crate) fn of_events(top: &str, events: &[&str]) -> String {
    format!("{{\"schemaVersion\": 1, {top}\"traceEvents\": [{}]}}", events.join(",\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn spans_are_those_of_a_tree(made in generated::file()) {
        let (contents, translation) = translated(&made.text);
        prop_assert_eq!(contents.spans(), generated::spans(&made));
        prop_assert_eq!((&contents.losses[..], translation.total_lost()), (&[][..], 0));
        let rows: u64 = [rocpd::REGION, rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY, rocpd::SAMPLE]
            .iter().map(|table| translation.rows.get(table).copied().unwrap_or(0)).sum();
        prop_assert_eq!(rows, translation.rows.get(&rocpd::EVENT).copied().unwrap_or(0));
        // A compressed file, in one member or in two, yields the same.
        let bytes = made.text.as_bytes();
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        for packed in [packed(bytes), [packed(head), packed(tail)].concat()] {
            let (again, _) = try_translated(&packed).unwrap();
            prop_assert_eq!(again.spans(), contents.spans());
            prop_assert_eq!(again.process, contents.process.clone());
        }
    }
}

const OPERATOR: &str = r#"{"ph":"X","cat":"cpu_op","name":"aten::add","pid":70,"tid":71,"ts":10.250,"dur":2.5,"args":{"External id":5}}"#;

#[test]
fn a_kernel_is_a_dispatch_joined_to_its_call() {
    let text = of_events(
        r#""baseTimeNanoseconds": 1763800000000000000, "deviceProperties": [{"id": 2, "name": "AMD Instinct MI300X", "numSms": 304}], "#,
        &[
            r#"{"ph":"M","name":"process_labels","pid":70,"tid":0,"ts":0,"args":{"labels":"CPU"}}"#,
            OPERATOR,
            r#"{"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":70,"tid":71,"ts":11,"dur":1,"args":{"correlation":99,"External id":5}}"#,
            r#"{"ph":"s","id":99,"pid":70,"tid":71,"ts":11,"cat":"ac2g","name":"ac2g"}"#,
            r#"{"ph":"X","cat":"kernel","name":"void gemm<\"a\">","pid":2,"tid":7,"ts":20,"dur":3.001,"args":{"correlation":99,"External id":5,"device":2,"stream":7,"grid":[8,4,1],"block":[256,1,1],"shared memory":1024}}"#,
            r#"{"ph":"f","id":99,"pid":2,"tid":7,"ts":20,"cat":"ac2g","name":"ac2g","bp":"e"}"#,
            r#"{"ph":"X","cat":"gpu_memcpy","name":"Memcpy DtoH (Device -> Pinned)","pid":2,"tid":8,"ts":30,"dur":1,"args":{"correlation":100,"device":2,"stream":8,"bytes":4096}}"#,
            r#"{"ph":"X","cat":"gpu_memset","name":"Memset (Device)","pid":2,"tid":7,"ts":40,"dur":1,"args":{"device":2,"stream":7,"bytes":64}}"#,
            r#"{"ph":"X","cat":"gpu_user_annotation","name":"step","pid":2,"tid":7,"ts":20,"dur":5}"#,
        ],
    );
    let (contents, translation) = translated(&text);
    assert_eq!((&translation.warnings[..], translation.ignored.len()), (&[][..], 0));
    assert_eq!(contents.process.pid, 70);
    let [kernel, memset] = contents.rows(rocpd::KERNEL_DISPATCH) else { panic!("two dispatches") };
    let sizes = ["grid_size_x", "grid_size_y", "workgroup_size_x", "group_segment_size"];
    assert_eq!(sizes.map(|column| int(kernel, column)), [8, 4, 256, 1024]);
    let symbol = contents.referred(kernel, "kernel_id", rocpd::INFO_KERNEL_SYMBOL);
    assert_eq!(text_of(symbol, "kernel_name"), "void gemm<\"a\">");
    let agent = contents.referred(kernel, "agent_id", rocpd::INFO_AGENT);
    assert_eq!(
        (text_of(agent, "name"), text_of(agent, "product_name")),
        ("GPU 2".into(), "AMD Instinct MI300X".into())
    );
    assert_eq!(text_of(contents.referred(memset, "queue_id", rocpd::INFO_QUEUE), "name"), "Queue 7");
    let event = |row| contents.referred(row, "event_id", rocpd::EVENT);
    assert_eq!((int(event(kernel), "stack_id"), int(event(kernel), "correlation_id")), (99, 5));
    let launch =
        contents.rows(rocpd::REGION).iter().find(|row| contents.name(row, "name_id") == "hipLaunchKernel");
    assert_eq!(int(event(launch.unwrap()), "stack_id"), 99);
    let copy = &contents.rows(rocpd::MEMORY_COPY)[0];
    assert_eq!(
        (int(copy, "size"), contents.name(copy, "name_id")),
        (4096, "MEMORY_COPY_DEVICE_TO_HOST".into())
    );
    let ends = ["src_agent_id", "dst_agent_id"]
        .map(|c| text_of(contents.referred(copy, c, rocpd::INFO_AGENT), "type"));
    assert_eq!(ends, ["GPU", "CPU"]);
    let names: Vec<_> = contents.rows(rocpd::INFO_THREAD).iter().map(|row| row["name"].clone()).collect();
    assert!(names.contains(&OwnedValue::Text(b"annotations of GPU 2 stream 7"[..].into())), "{names:?}");
}

fn text_of(row: &shard::Row, column: &str) -> String {
    text(row, column)
}

#[test]
fn old_files_have_times_of_day_to_the_last_digit() {
    let event =
        r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1690000000123456.789,"dur":0.001}"#;
    let (contents, translation) = translated(&of_events("", &[event]));
    assert_eq!(translation.warnings, [""; 0]);
    let span = &contents.spans()[0];
    assert_eq!((span.start, span.end), (1_690_000_000_123_456_789, 1_690_000_000_123_456_790));
    assert_eq!(contents.process.clock, Clock::Realtime);
    // Small times are not times of day, and their origin is unknown.
    let (_, translation) = translated(&of_events("", &[OPERATOR]));
    assert!(translation.warnings[0].contains("baseTimeNanoseconds"), "{:?}", translation.warnings);
}

#[test]
fn a_base_that_is_no_time_is_told_as_what_it_is() {
    for bad in ["99999999999999999999", "-1e40", "1.5", "null", "[1]", "\"soon\""] {
        let top = format!("\"baseTimeNanoseconds\": {bad}, ");
        let behind = format!("{{\"traceEvents\": [{OPERATOR}], \"baseTimeNanoseconds\": {bad}}}");
        for text in [of_events(&top, &[OPERATOR]), behind] {
            let (contents, translation) = translated(&text);
            assert_eq!(contents.spans()[0].start, 10_250, "{bad}");
            let [value, axis] = &translation.warnings[..] else { panic!("{:?}", translation.warnings) };
            assert!(value.contains(&format!("\"{}\"", bad.trim_matches('"'))), "{value}");
            assert!(
                axis.contains("no usable baseTimeNanoseconds") && axis.contains("DO NOT LINE UP"),
                "{axis}"
            );
        }
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_trace() {
    let text = of_events("\"baseTimeNanoseconds\": 1763800000000001000, ", &[OPERATOR]);
    let plain = translated(&text).0.spans();
    let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    for bytes in [marked.clone(), packed(&marked)] {
        std::fs::write(&path, bytes).unwrap();
        assert!(is_kineto(&path));
        let (contents, translation) = translated_file(&path).unwrap();
        assert_eq!((contents.spans(), translation.warnings.len()), (plain.clone(), 0));
    }
}

#[test]
fn times_that_no_wall_clock_showed_are_told_with_their_year() {
    // In microseconds; before 1970; added to times that are complete already.
    let absolute = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1763800000000000.5,"dur":1}"#;
    for (base, event, year) in [
        ("1763800000000000", OPERATOR, "1970"),
        ("-1763800000000000000", OPERATOR, "1914"),
        ("1763800000000000000", absolute, "2081"),
    ] {
        let (_, translation) =
            translated(&of_events(&format!("\"baseTimeNanoseconds\": {base}, "), &[event]));
        let [line] = &translation.warnings[..] else { panic!("{:?}", translation.warnings) };
        assert!(line.contains(&format!("in the year {year},")) && line.contains("DO NOT LINE UP"), "{line}");
    }
}

#[test]
fn a_second_base_is_told() {
    let first = "\"baseTimeNanoseconds\": 1763800000000000000";
    for second in ["1763800000000000000", "1763800000000000001"] {
        let second = format!("\"baseTimeNanoseconds\": {second}");
        for text in [
            format!("{{{first}, {second}, \"traceEvents\": [{OPERATOR}]}}"),
            format!("{{{first}, \"traceEvents\": [{OPERATOR}], {second}}}"),
            format!("{{\"traceEvents\": [{OPERATOR}], {first}, {second}}}"),
        ] {
            let (contents, translation) = translated(&text);
            assert_eq!(contents.spans()[0].start, 1_763_800_000_000_010_250);
            let told = translation.warnings.iter().filter(|line| line.contains("twice")).count();
            assert_eq!(told, usize::from(second.ends_with('1')), "{:?}", translation.warnings);
        }
    }
}

#[test]
fn the_base_may_stand_behind_the_events() {
    let text = format!("{{\"traceEvents\": [{OPERATOR}], \"baseTimeNanoseconds\": 1763800000001000000}}");
    let (contents, translation) = translated(&text);
    assert_eq!((contents.spans()[0].start, translation.warnings.len()), (1_763_800_000_001_010_250, 0));
}

#[test]
fn who_the_rank_is_and_what_threads_are_called() {
    let top = r#""distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"rank": 9}]}, "host_name": "n7", "#;
    let (contents, _) = translated(&of_events(
        top,
        &[
            r#"{"ph":"M","name":"process_name","pid":70,"tid":0,"args":{"name":"python train.py"}}"#,
            r#"{"ph":"M","name":"thread_name","pid":70,"tid":71,"args":{"name":"thread 71 (pt_main)"}}"#,
            OPERATOR,
            r#"{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":1,"dur":2}"#,
        ],
    ));
    let process = &contents.process;
    assert_eq!((process.rank, process.size, process.pid), (Some(3), Some(8), 70));
    assert_eq!((process.node.hostname.as_str(), process.command.as_str()), ("n7", "python train.py"));
    let threads = contents.rows(rocpd::INFO_THREAD);
    assert_eq!((int(&threads[0], "tid"), text(&threads[0], "name")), (71, "thread 71 (pt_main)".into()));
    // Linux assigns no such thread ids.
    assert!(int(&threads[1], "tid") > 1 << 22);
    assert_eq!(text(&threads[1], "name"), "Spans PyTorch Profiler");
}

#[test]
fn memory_and_counters_are_values_and_moments_are_samples() {
    let (contents, _) = translated(&of_events(
        "",
        &[
            r#"{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":70,"tid":71,"ts":5,"args":{"Total Reserved":2097152,"Total Allocated":512,"Bytes":-512,"Addr":1,"Device Id":0,"Device Type":1}}"#,
            r#"{"ph":"C","name":"queue","pid":70,"tid":71,"ts":6,"args":{"depth":3,"text":"no"}}"#,
            r#"{"ph":"i","s":"g","name":"Record Window \"End\"","pid":"","tid":"","ts":7}"#,
        ],
    ));
    let value = |row: &shard::Row| {
        let counter = contents.referred(row, "pmc_id", rocpd::INFO_PMC);
        (text(counter, "name"), text(counter, "target_arch"), row["value"].clone())
    };
    let values: Vec<_> = contents.rows(rocpd::PMC_EVENT).iter().map(value).collect();
    let expected = [
        ("memory.Total Allocated", "GPU", 512.0),
        ("memory.Total Reserved", "GPU", 2_097_152.0),
        ("queue.depth", "CPU", 3.0),
    ];
    assert_eq!(
        values,
        expected.map(|(name, arch, value)| (name.into(), arch.into(), OwnedValue::Real(value)))
    );
    let samples = contents.rows(rocpd::SAMPLE);
    let first = contents.referred(&samples[0], "event_id", rocpd::EVENT);
    assert_eq!(
        (json(first)["message"].as_str(), json(first)["args"]["Bytes"].as_i64()),
        (Some("[memory]"), Some(-512))
    );
    let track = contents.referred(&samples[0], "track_id", rocpd::TRACK);
    assert_eq!(int(contents.referred(track, "tid", rocpd::INFO_THREAD), "tid"), 71);
    let last = contents.referred(&samples[2], "event_id", rocpd::EVENT);
    assert_eq!(json(last)["message"], "Record Window \"End\"");
}

#[test]
fn arrows_to_the_backward_pass_are_args_and_strays_are_counted() {
    let backward = r#"{"ph":"X","cat":"cpu_op","name":"AddBackward0","pid":70,"tid":72,"ts":90,"dur":1}"#;
    let (contents, translation) = translated(&of_events(
        "",
        &[
            OPERATOR,
            r#"{"ph":"s","id":8,"pid":70,"tid":71,"ts":10.250,"cat":"fwdbwd","name":"fwdbwd"}"#,
            backward,
            r#"{"ph":"f","id":8,"pid":70,"tid":72,"ts":90,"cat":"fwdbwd","name":"fwdbwd","bp":"e"}"#,
            r#"{"ph":"f","id":9,"pid":70,"tid":72,"ts":91,"cat":"fwdbwd","name":"fwdbwd","bp":"e"}"#,
        ],
    ));
    let arg =
        |row: &shard::Row| (int(row, "event_id"), text(row, "type"), text(row, "name"), text(row, "value"));
    let args: Vec<_> = contents.rows(rocpd::ARG).iter().map(arg).collect();
    let expected = [(1, "flow start", "fwdbwd", "8"), (2, "flow end", "fwdbwd", "8")];
    assert_eq!(args, expected.map(|(event, kind, name, id)| (event, kind.into(), name.into(), id.into())));
    assert_eq!(translation.ignored.values().sum::<u64>(), 1);
}

#[test]
fn collectives_say_what_they_are_in_args() {
    let (contents, _) = translated(&of_events(
        "",
        &[
            r#"{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":70,"tid":71,"ts":1,"dur":1,"args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":26,"Out msg nelems":26,"Group size":2,"Process Group Name":"0","Process Group Ranks":"[0, 1]","Seq":4}}"#,
            r#"{"ph":"X","cat":"user_annotation","name":"gloo:all_reduce","pid":70,"tid":72,"ts":2,"dur":1,"args":{"Input type": ["float"], "Input Dims": [[3, 4]]}}"#,
            r#"{"ph":"X","cat":"user_annotation","name":"gloo:barrier","pid":70,"tid":72,"ts":4,"dur":1,"args":{}}"#,
        ],
    ));
    let arg = |row: &shard::Row| (int(row, "event_id"), text(row, "name"), text(row, "value"));
    let args: Vec<_> = contents.rows(rocpd::ARG).iter().map(arg).collect();
    let expected = [
        (1, "collective", "allreduce"),
        (1, "comm", "0"),
        (1, "ranks", "[0, 1]"),
        (1, "size", "2"),
        (1, "seq", "4"),
        (1, "count", "26"),
        (1, "datatype", "Float"),
        (2, "count", "12"),
        (2, "datatype", "float"),
    ];
    assert_eq!(args, expected.map(|(event, name, value)| (event, name.into(), value.into())));
}

#[test]
fn a_legacy_file_is_placed_by_its_sidecar() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let events = r#"[{"name": "aten::add", "ph": "X", "ts": 12.5, "dur": 3, "tid": 1, "pid": "CPU functions", "args": {}}]"#;
    std::fs::write(&path, events).unwrap();
    assert!(is_kineto(&path));
    let (contents, translation) = translated_file(&path).unwrap();
    assert_eq!((contents.spans()[0].start, contents.spans()[0].category.as_str()), (12_500, "CPU functions"));
    assert!(translation.warnings[0].contains("DO NOT LINE UP"), "{:?}", translation.warnings);

    let sidecar = dir.path().join("trace.json.rpd.json");
    let told = r#"{"start_boottime_ns": 5000000000, "start_realtime_ns": 1, "rank": 2, "pid": 77, "torch": "1.13.0"}"#;
    std::fs::write(&sidecar, told).unwrap();
    let (contents, translation) = translated_file(&path).unwrap();
    assert_eq!((contents.spans()[0].start, translation.warnings.len()), (5_000_012_500, 0));
    let process = &contents.process;
    assert_eq!((process.clock, process.rank, process.pid), (Clock::Boottime, Some(2), 77));
    assert_eq!(int(&contents.rows(rocpd::INFO_THREAD)[0], "tid"), 1);

    std::fs::write(&sidecar, "{\"rank\": \"x\"}").unwrap();
    let (_, translation) = translated_file(&path).unwrap();
    assert!(translation.warnings[0].contains("is not used"), "{:?}", translation.warnings);
}

#[test]
fn a_trace_is_known_by_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some.file");
    let is = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        is_kineto(&path)
    };
    let whole = of_events("", &[OPERATOR]);
    let bare = format!("{{\"traceEvents\": [{OPERATOR}]}}");
    assert!(is(whole.as_bytes()) && is(&packed(whole.as_bytes())) && is(bare.as_bytes()));
    // The head of a compressed file is enough.
    let packed = packed(whole.as_bytes());
    assert!(is(&packed[..packed.len() - 8]));
    for other in [
        "",
        "[]",
        "{}",
        "{\"rocprofiler-sdk-tool\": []}",
        "{\"traceEvents\": [{\"ph\":\"X\",\"name\":\"a\"}]}",
        // The drawing of such a file by rpd-merge.
        &format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{OPERATOR}]}}"),
        "[{\"ph\":\"X\"}]",
        "SQLite format 3",
    ] {
        assert!(!is(other.as_bytes()), "{other}");
    }
}
