//! Reads traces of other writers and of this crate as shards, with and without damage.
#![allow(missing_docs, clippy::unwrap_used)]

mod own;
mod sdk;
mod shard;

use rpd_perfetto::packed;
use rpd_perfetto::read::{is_ours, is_perfetto, read_processes, translate};
use rpd_shard::model::rocpd;
use rpd_shard::record::{Clock, LossCause};
use rpd_translator::{FilePosition, TranslateError, Translation};
use sdk::{BEGIN, BOOTTIME, COUNTER, END, INSTANT, NEEDS, Trace, message};
use serde_json::{Value as Json, json};
use shard::{Contents, owner};
use std::io::Write;

fn try_translated(bytes: &[u8]) -> Result<(Contents, Translation), TranslateError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut shard = Vec::new();
    let translation = translate(file.path(), &mut shard, &owner())?;
    Ok((Contents::of(&shard), translation))
}

fn translated(bytes: &[u8]) -> (Contents, Translation) {
    try_translated(bytes).unwrap()
}

fn looks_like_a_trace(bytes: &[u8]) -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    is_perfetto(file.path())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn no_complaints(translation: &Translation) {
    assert_eq!(
        (&translation.warnings[..], &translation.ignored, &translation.lost),
        (&[][..], &Default::default(), &Default::default())
    );
}

/// Builds a process with two threads, a queue of a GPU and a counter, as rocprof-sys writes them.
fn rocprof_sys() -> Trace {
    let mut trace = Trace::default();
    trace.start(1, 11, 5_000_000).start(2, 12, 5_000_000);
    trace.process(10, 4711, "train").thread(11, 10, (4711, 4711), "main").thread(
        12,
        10,
        (4711, 4712),
        "worker",
    );
    trace.track(20, 10, "GPU Kernel Dispatch [0] Queue 1", None);
    trace.track(30, 10, "GPU [0] Power (S)", Some((8, message().text(6, "W").uint(4, 2))));
    trace.intern(1, 1, 1, "host").intern(1, 2, 1, "main").intern(1, 2, 2, "step").intern(1, 3, 1, "begin_ns");
    let annotation = message().uint(1, 1).uint(3, 5_001_000);
    trace.event(1, 1, message().uint(9, BEGIN).uint(3, 1).uint(10, 1).with(4, annotation));
    trace.event(1, 2, message().uint(9, BEGIN).uint(3, 1).uint(10, 2));
    trace.event(2, 9, message().uint(9, INSTANT).text(22, "rocm_hip_api").text(23, "tick"));
    // Overlapping kernels: each beginning is followed by its end, with explicit times.
    for (start, end) in [(5_010_000, 5_020_000), (5_015_000, 5_025_000)] {
        let kernel = message().uint(9, BEGIN).uint(11, 20).text(22, "rocm_kernel_dispatch").text(23, "gemm");
        trace.event_at(2, start, kernel.with(4, message().text(10, "queue").uint(4, 1)));
        let result = message().text(10, "result").text(6, "ok");
        trace.event_at(2, end, message().uint(9, END).uint(11, 20).with(4, result));
    }
    trace.event_at(2, 5_016_000, message().uint(9, COUNTER).uint(11, 30).fixed64(44, 150.5f64.to_bits()));
    trace.event(1, 30, message().uint(9, END));
    trace.event(1, 10, message().uint(9, END));
    trace
}

#[test]
fn a_trace_of_rocprof_sys_has_its_tracks_slices_and_counters() {
    let trace = rocprof_sys();
    assert!(looks_like_a_trace(&trace.0));
    let (shard, translation) = translated(&trace.0);
    no_complaints(&translation);
    let process = &shard.processes[0];
    assert_eq!((shard.processes.len(), process.pid, process.command.as_str()), (1, 4711, "train"));
    assert_eq!(
        (process.clock, process.first_seen, process.last_seen),
        (Clock::Boottime, 5_001_000, Some(5_043_000))
    );
    let kernel = |start: i64, end: i64| {
        let args = json!([[0, "int", "queue", "1"], [1, "string", "result", "ok"]]);
        json!(["GPU Kernel Dispatch [0] Queue 1", "gemm", "rocm_kernel_dispatch", start, end, args])
    };
    let main = json!([[0, "uint", "begin_ns", "5001000"]]);
    assert_eq!(
        shard.slices(1),
        [
            kernel(5_010_000, 5_020_000),
            kernel(5_015_000, 5_025_000),
            json!(["main", "main", "host", 5_001_000, 5_043_000, main]),
            json!(["main", "step", "host", 5_003_000, 5_033_000, []]),
        ]
    );
    assert_eq!(shard.moments(1), [json!([4712, "tick", "rocm_hip_api", 5_009_000, []])]);
    assert_eq!(shard.values(1), [json!(["GPU [0] Power (S)", "W", 5_016_000, 301.0])]);
    let threads: Vec<_> = shard.rows(1, rocpd::INFO_THREAD).iter().map(|row| row["tid"].clone()).collect();
    assert_eq!(threads, [json!(4711), json!(4712), json!(-1)], "a track that is no thread has no id of one");
}

#[test]
fn packed_traces_are_the_same_traces() {
    let trace = rocprof_sys().0;
    let (plain, _) = translated(&trace);
    let mut in_packets = Vec::new();
    packed(&trace, 6, &mut in_packets).unwrap();
    assert_ne!(in_packets, trace);
    // Two gzip members, like two concatenated traces.
    let (head, tail) = trace.split_at(trace.len() / 2);
    let joined = [gzip(head), gzip(tail)].concat();
    for other in [gzip(&trace), in_packets, joined] {
        assert!(looks_like_a_trace(&other));
        let (shard, translation) = translated(&other);
        no_complaints(&translation);
        let all = |shard: &Contents| (shard.slices(1), shard.moments(1), shard.values(1));
        assert_eq!(all(&shard), all(&plain));
    }
}

#[test]
fn what_is_behind_a_gap_cannot_be_understood_until_a_sequence_starts_anew() {
    let begin = |name: u64| message().uint(9, BEGIN).uint(10, name);
    let mut trace = Trace::default();
    trace.process(10, 7, "p").thread(11, 10, (7, 7), "t").start(1, 11, 1_000_000);
    trace.intern(1, 2, 1, "before").event(1, 1, begin(1)).event(1, 1, message().uint(9, END));
    trace.packet(message().uint(10, 1).uint(13, NEEDS).uint(42, 1).uint(8, 5).with(11, begin(1)));
    trace.event(1, 1, message().uint(9, END));
    // Ids have another meaning from here on.
    trace.start(1, 11, 2_000_000).intern(1, 2, 1, "behind").event(1, 1, begin(1)).event(
        1,
        1,
        message().uint(9, END),
    );
    // A sequence without a first packet.
    trace.event(9, 1, begin(1));
    let (shard, translation) = translated(&trace.0);
    let slice = |name, at: i64| json!(["t", name, null, at, at + 1000, []]);
    assert_eq!(shard.slices(1), [slice("before", 1_001_000), slice("behind", 2_001_000)]);
    assert_eq!(translation.lost, [("events after a gap".to_owned(), 3)].into());
    assert_eq!(shard.lost(), 3);
    assert!(
        translation.warnings.iter().any(|line| line.contains("1 times a writer dropped packets")),
        "{:?}",
        translation.warnings
    );
}

#[test]
fn open_slices_are_kept_and_ends_without_a_beginning_are_counted() {
    let mut trace = Trace::default();
    trace.process(10, 7, "p").thread(11, 10, (7, 7), "t").start(1, 11, 1_000_000).start(2, 12, 1_000_000);
    trace.thread(12, 10, (7, 8), "u").track(20, 10, "async", None);
    trace.event(1, 1, message().uint(9, END));
    trace.event(1, 1, message().uint(9, BEGIN).text(23, "open"));
    // One thread begins the slice; another one, with earlier packets, ends it.
    trace.event_at(2, 1_009_000, message().uint(9, END).uint(11, 20));
    trace.event_at(1, 1_004_000, message().uint(9, BEGIN).uint(11, 20).text(23, "handed over"));
    let (shard, translation) = translated(&trace.0);
    assert_eq!(
        shard.slices(1),
        [
            json!(["async", "handed over", null, 1_004_000, 1_009_000, []]),
            json!(["t", "open", null, 1_002_000, 1_009_000, []])
        ]
    );
    let open = shard.rows(1, rocpd::REGION).iter().find(|row| row["name_id"] == "open").unwrap();
    assert_eq!(open["extdata"], r#"{"rpd":{"open":true}}"#);
    assert_eq!(translation.lost, [("ends without a beginning".to_owned(), 1)].into());
    let loss = &shard.losses[..];
    assert_eq!(
        (loss.len(), loss[0].table, loss[0].cause, loss[0].rows),
        (1, Some(rocpd::REGION), LossCause::BadRecord, Some(1))
    );
}

#[test]
fn counters_beside_events_and_counters_of_differences_are_values() {
    let counter = |incremental: u64| Some((8, message().uint(3, 3).uint(5, incremental)));
    let mut trace = Trace::default();
    trace.process(10, 7, "p").thread(11, 10, (7, 7), "t");
    trace.track(30, 10, "bytes", counter(0)).track(31, 11, "sum", counter(1)).start(1, 11, 1_000_000);
    let packed_values = message().uint(9, BEGIN).text(23, "s").text(31, [30]).text(12, [5, 6]);
    trace.event(1, 1, packed_values);
    trace.event(1, 1, message().uint(9, END).uint(45, 30).fixed64(46, 2.5f64.to_bits()));
    for _ in 0..2 {
        trace.event(1, 1, message().uint(9, COUNTER).uint(11, 31).uint(30, 4));
    }
    let (shard, translation) = translated(&trace.0);
    assert_eq!(
        shard.values(1),
        [
            json!(["bytes", "bytes", 1_001_000, 5.0]),
            json!(["bytes", "bytes", 1_002_000, 2.5]),
            json!(["t / sum", "bytes", 1_003_000, 4.0]),
            json!(["t / sum", "bytes", 1_004_000, 8.0])
        ]
    );
    // One value had no counter.
    assert_eq!((translation.lost["values without a counter"], shard.lost()), (1, 1));
}

#[test]
fn several_processes_are_several_sources_and_tracks_without_one_are_told_apart() {
    let mut trace = Trace::default();
    let at = |trace: &mut Trace, at, track| {
        let event = message().uint(11, track);
        trace.event_at(1, at, event.clone().uint(9, BEGIN).text(23, "s"));
        trace.event_at(1, at + 5, event.uint(9, END));
    };
    trace.start(1, 0, 1_000).process(1, 70, "a").process(2, 71, "b");
    // The parent of a track is described after it.
    trace.track(21, 20, "queue", None).track(20, 2, "GPU 0", None).track(22, 20, "queue", None);
    for (time, track) in [(2_000, 1), (3_000, 21), (3_001, 22), (4_000, 99)] {
        at(&mut trace, time, track);
    }
    let (shard, translation) = translated(&trace.0);
    no_complaints(&translation);
    let pids: Vec<i32> = shard.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [70, 71, 0]);
    assert!(shard.processes.iter().all(|process| process.node == shard.processes[0].node));
    assert_eq!(shard.slices(1)[0][0], "a");
    let of_second: Vec<Json> = shard.slices(2).iter().map(|slice| slice[0].clone()).collect();
    assert_eq!(of_second, ["GPU 0 / queue", "GPU 0 / queue"]);
    assert_eq!((shard.rows(2, rocpd::INFO_THREAD).len(), shard.slices(3).len()), (1, 1));
}

#[test]
fn readings_of_all_clocks_are_kept_and_other_clocks_become_boottime() {
    let clock = |id, time| message().uint(1, id).uint(2, time);
    let snapshot = [(6, 10_000), (3, 7_000), (5, 6_900), (1, 1_700_000_000_000_000_000)]
        .into_iter()
        .fold(message(), |snapshot, (id, time)| snapshot.with(1, clock(id, time)));
    let mut trace = Trace::default();
    trace.thread(11, 0, (7, 7), "t");
    let instant = |clock| {
        let event = message().uint(9, INSTANT).uint(11, 11).text(23, "x");
        message().uint(8, 7_500).uint(58, clock).with(11, event)
    };
    trace
        .packet(instant(3))
        .packet(instant(77))
        .packet(message().with(6, snapshot))
        .packet(instant(BOOTTIME));
    let (shard, translation) = translated(&trace.0);
    let times: Vec<Json> = shard.moments(1).iter().map(|moment| moment[3].clone()).collect();
    assert_eq!(times, [json!(10_500), json!(7_500)]);
    assert_eq!((shard.clock_sets, shard.processes[0].clock), (1, Clock::Boottime));
    assert_eq!(translation.lost, [("events on a clock of their own".to_owned(), 1)].into());
}

#[test]
fn what_has_no_place_is_counted_by_its_number() {
    let mut trace = rocprof_sys();
    trace.packet(message().uint(10, 1).with(1234, message().uint(1, 1)));
    trace.packet(message().with(1, message()));
    trace.event(1, 1, message().uint(9, INSTANT).text(23, "i").with(6, message()));
    let (_, translation) = translated(&trace.0);
    let wanted = ["TrackEvent, field 6", "ftrace events", "packets with field 1234"];
    assert_eq!(translation.ignored, wanted.map(|what| (what.to_owned(), 1)).into());
}

#[test]
fn call_stacks_are_read_innermost_first() {
    let frame = |name: &str| message().text(1, name).text(2, "a.cc").uint(3, 5);
    let mut trace = Trace::default();
    trace.thread(11, 0, (7, 7), "t").start(1, 11, 1_000_000);
    let stack = message().with(1, frame("main")).with(1, frame("f"));
    trace.event(1, 1, message().uint(9, BEGIN).text(23, "inline").with(55, stack));
    let tables = message()
        .with(5, message().uint(1, 1).text(2, "g"))
        .with(17, message().uint(1, 2).text(2, "lib.so"))
        .with(19, message().uint(1, 3).uint(7, 2))
        .with(6, message().uint(1, 4).uint(2, 1).uint(3, 3).uint(4, 0x10))
        .with(7, message().uint(1, 5).uint(2, 4));
    trace.packet(message().uint(10, 1).uint(13, NEEDS).with(12, tables));
    trace.event(1, 1, message().uint(9, BEGIN).text(23, "interned").uint(56, 5));
    let (shard, _) = translated(&trace.0);
    let frame = |depth, name| json!({ "depth": depth, "name": name, "file": "a.cc", "line": 5 });
    assert_eq!(shard.stack_of(1, "inline"), json!({ "frames": [frame(0, "f"), frame(1, "main")] }));
    let interned = json!({ "depth": 0, "name": "g", "library": "lib.so", "offset": 16 });
    assert_eq!(shard.stack_of(1, "interned"), json!({ "frames": [interned] }));
}

/// Every truncation yields the complete packets before it, every flipped byte yields a result, and neither panics.
#[test]
fn damage_costs_what_it_hits() {
    let trace = rocprof_sys().0;
    let (whole, _) = translated(&trace);
    let rows = |shard: &Contents| shard.slices(1).len() + shard.moments(1).len() + shard.values(1).len();
    let mut last = 0;
    for cut in 0..trace.len() {
        match try_translated(&trace[..cut]) {
            Ok((shard, translation)) => {
                // An open slice counts from its beginning on.
                assert!(rows(&shard) >= last, "{cut}");
                last = rows(&shard);
                let unknown =
                    shard.losses.iter().any(|loss| loss.cause == LossCause::Truncated && loss.rows.is_none());
                let at = translation.warnings.iter().any(|line| line.contains("it is damaged at byte"));
                assert_eq!((unknown, at), (at, unknown), "{cut}: {:?}", translation.warnings);
            }
            Err(error) => {
                assert!(
                    matches!(error, TranslateError::NoContent { position: FilePosition::Byte(0), .. }),
                    "{cut}: {error}"
                )
            }
        }
    }
    assert_eq!(last, rows(&whole));
    for at in 0..trace.len() {
        let mut flipped = trace.clone();
        flipped[at] ^= [0xff, 0x01, 0x80, 0x10][at % 4];
        let _ = try_translated(&flipped);
    }
    let packed = gzip(&trace);
    for cut in [packed.len() / 2, packed.len() - 1] {
        let outcome = try_translated(&packed[..cut]);
        let translation = outcome
            .map(|(_, translation)| translation.warnings.concat())
            .unwrap_or_else(|error| error.to_string());
        assert!(translation.contains("unpacked"), "{translation}");
    }
}

#[test]
fn hostile_lengths_are_no_allocations() {
    // A packet of 2^62 bytes; then one that is too long to be examined, followed by a valid one.
    let mut trace = rocprof_sys().0;
    let good = trace.len();
    trace.extend([0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
    let (_, translation) = translated(&trace);
    assert!(translation.warnings[0].contains(&format!("byte {good}")), "{:?}", translation.warnings);
    let mut trace = rocprof_sys();
    trace.packet(message().text(1000, vec![0; 17 << 20]));
    trace.event_at(2, 6_000_000, message().uint(9, INSTANT).text(23, "behind"));
    let (shard, translation) = translated(&trace.0);
    assert_eq!((shard.moments(1).len(), translation.lost["packets that are too long"]), (2, 1));
}

#[test]
fn text_and_empty_files_are_no_traces() {
    let mut json = gzip(br#"{"traceEvents": []}"#);
    for bytes in [&b""[..], b"\n", b"\n\n{}", b"timestamp,value\n1,2\n", b"{\"traceEvents\": []}", &json] {
        assert!(!looks_like_a_trace(bytes), "{bytes:?}");
    }
    json.truncate(12);
    assert!(!looks_like_a_trace(&json));
    assert!(!is_perfetto(std::path::Path::new("/missing")));
}

#[test]
fn our_own_traces_are_known() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let own = own::written(&[]);
    for (bytes, ours) in
        [(&own, true), (&gzip(&own), true), (&rocprof_sys().0, false), (&gzip(&rocprof_sys().0), false)]
    {
        std::fs::write(file.path(), bytes).unwrap();
        assert_eq!((is_perfetto(file.path()), is_ours(file.path())), (true, ours));
    }
    let pids: Vec<i32> = read_processes(file.path()).unwrap().iter().map(|process| process.pid).collect();
    assert_eq!(pids, [4711]);
}
