//! Packets of Perfetto mean to its own trace processor what they are meant to mean.
#![allow(clippy::unwrap_used)]

mod model;

use model::{Run, Slice, time};
use rpd_perfetto::{
    Annotation, Checksum, Event, Flow, GZIP_HEAD, MAX_TEXT, Sequence, StackId, StringId, Thread, Timestamp,
    Track, TrackId, TrackKind, Value, Window, file_head, gzip_piece, gzip_tail, packed,
};
use rpd_tests::harness::{Row, TraceProcessor};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Process, thread or queue, start, duration, name, and two annotations of every slice.
const SLICES: &str = "SELECT p.name, coalesce(t.name, th.name), s.ts, s.dur, s.name,
      extract_arg(s.arg_set_id, 'debug.clipped'), extract_arg(s.arg_set_id, 'debug.orig_dur')
    FROM slice s JOIN track t ON s.track_id = t.id
    LEFT JOIN thread_track tt ON tt.id = t.id LEFT JOIN thread th USING (utid)
    LEFT JOIN process_track pt ON pt.id = t.id
    LEFT JOIN process p ON p.upid = coalesce(pt.upid, th.upid)";

const FLOWS: &str = "SELECT p.name, o.ts, i.ts
    FROM flow JOIN slice o ON flow.slice_out = o.id JOIN slice i ON flow.slice_in = i.id
    JOIN process_track pt ON pt.id = i.track_id JOIN process p USING (upid)";

const COUNTERS: &str = "SELECT p.name, c.ts, c.value FROM counter c JOIN counter_track t ON c.track_id = t.id
    JOIN process_counter_track pt ON pt.id = t.id JOIN process p USING (upid)
    WHERE t.name = 'memory' AND t.unit = 'bytes' ORDER BY p.name, c.ts";

/// A folder for traces.
struct Traces {
    folder: TempDir,
}

impl Traces {
    fn new() -> Traces {
        Traces { folder: tempfile::tempdir().unwrap() }
    }

    fn save(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn typed<T: DeserializeOwned>(rows: Vec<Row>) -> Vec<T> {
    rows.into_iter().map(|row| serde_json::from_value(row.into()).unwrap()).collect()
}

/// A gzip file of two pieces, as two threads would write it.
fn gzipped(file: &[u8], level: u32) -> Vec<u8> {
    let mut out = GZIP_HEAD.to_vec();
    let (first, second) = file.split_at(file.len() / 3);
    let sums = [first, second].map(|piece| gzip_piece(piece, level, &mut out).unwrap());
    out.extend(gzip_tail(sums.into_iter().fold(Checksum::default(), Checksum::then)));
    out
}

/// Compares all that is in a trace with the parts of a run that are in some windows.
fn compare(tp: &TraceProcessor, run: &Run, windows: &[Window], trace: &Path) {
    let what = format!("{} of {}", trace.display(), tp.version());
    let [slices, flows, counters, complaints] =
        tp.queries(trace, [SLICES, FLOWS, COUNTERS, TraceProcessor::COMPLAINTS]);
    assert_eq!(complaints, Vec::<Row>::new(), "{what}");

    let mut slices: Vec<Slice> = typed(slices);
    slices.sort();
    let mut wanted: Vec<Slice> = windows.iter().flat_map(|&window| run.slices(window)).collect();
    wanted.sort();
    assert_eq!(slices.len(), wanted.len(), "{what}");
    for (slice, wanted) in slices.iter().zip(&wanted) {
        assert_eq!(slice, wanted, "{what}");
    }

    let whole = Window::new(windows[0].start(), windows.last().unwrap().end()).unwrap();
    let mut flows: Vec<(String, i64, i64)> = typed(flows);
    flows.sort();
    assert_eq!(flows, run.flows(whole), "{what}");

    let mut values: Vec<(String, i64, f64)> = Vec::new();
    for process in &run.processes {
        let inside = process.counter.iter().filter(|(at, _)| whole.contains(*at));
        values.extend(inside.map(|&(at, value)| (process.name.clone(), at.ns() as i64, value)));
    }
    assert_eq!(typed::<(String, i64, f64)>(counters), values, "{what}");
}

#[test]
fn a_run_is_read_as_it_was_written() {
    let traces = Traces::new();
    let run = Run::random(1, 300);
    let file = &run.files(&[Window::ALL])[0];
    let plain = traces.save("whole.pftrace", file);
    let zipped = traces.save("whole.pftrace.gz", &gzipped(file, 6));
    for tp in TraceProcessor::all("a run in Perfetto") {
        assert!(!run.flows(Window::ALL).is_empty());
        compare(&tp, &run, &[Window::ALL], &plain);
        compare(&tp, &run, &[Window::ALL], &zipped);
    }
}

/// Windows that have events at their borders; after the last there are none.
fn windows() -> Vec<Window> {
    let borders = [0, 300, 301, 700, 2500];
    borders.windows(2).map(|pair| Window::new(time(pair[0]), time(pair[1])).unwrap()).collect()
}

#[test]
fn each_of_some_neighbours_in_time_is_read_alone() {
    let traces = Traces::new();
    let run = Run::random(2, 200);
    let files = run.files(&windows());
    for tp in TraceProcessor::all("neighbours in Perfetto") {
        for (file, window) in files.iter().zip(windows()) {
            compare(&tp, &run, &[window], &traces.save("part.pftrace.gz", &gzipped(file, 1)));
        }
    }
}

#[test]
fn neighbours_in_time_are_read_together() {
    let traces = Traces::new();
    let run = Run::random(2, 200);
    let windows = windows();
    let files = run.files(&windows);
    let plain = traces.save("all.pftrace", &files.concat());
    // Members need not be alike.
    let members: Vec<Vec<u8>> =
        files.iter().zip([0, 1, 6, 9]).map(|(file, level)| gzipped(file, level)).collect();
    let zipped = traces.save("all.pftrace.gz", &members.concat());
    let mut packets = Vec::new();
    files.iter().for_each(|file| packed(file, 6, &mut packets).unwrap());
    assert!(packets.len() < files.concat().len() / 2);
    let packed = traces.save("packed.pftrace", &packets);
    let whole = traces.save("whole.pftrace", &run.files(&[Window::ALL])[0]);
    for tp in TraceProcessor::all("neighbours in Perfetto") {
        compare(&tp, &run, &windows, &plain);
        compare(&tp, &run, &windows, &packed);
        if tp.version().starts_with("v47") {
            // It reads one member and says nothing: there, files are unpacked before they are concatenated.
            compare(&tp, &run, &windows[..1], &zipped);
        } else {
            compare(&tp, &run, &windows, &zipped);
        }
        // The parts add up to the whole, and are on the tracks of the whole.
        let sum = "SELECT sum(dur), count(DISTINCT track_id) FROM slice";
        assert_eq!(tp.query(&packed, sum), tp.query(&whole, sum));
    }
}

/// A file with one process and one track, and what `write` adds.
fn single(write: impl FnOnce(&mut Sequence, TrackId)) -> Vec<u8> {
    let mut file = file_head(Timestamp::default(), Some(1_700_000_000_000_000_000));
    let mut sequence = Sequence::new(NonZeroU32::MAX);
    let track = TrackId(u64::MAX);
    sequence.track(&Track { kind: TrackKind::Process { pid: i32::MAX }, ..Track::new(track, "process") });
    write(&mut sequence, track);
    file.extend_from_slice(sequence.packets());
    file
}

#[test]
fn values_at_their_limits_are_read_as_they_were_written() {
    let values = [
        ("smallest", Value::Int(i64::MIN), json!(i64::MIN)),
        ("largest", Value::Int(i64::MAX), json!(i64::MAX)),
        ("zero", Value::Int(0), json!(0)),
        ("unsigned", Value::Uint(u64::MAX), json!(-1)),
        ("double", Value::Double(-0.1), json!(-0.1)),
        ("infinite", Value::Double(f64::INFINITY), json!("Infinity")),
        ("yes", Value::Bool(true), json!(1)),
        ("no", Value::Bool(false), json!(0)),
        ("empty", Value::Text(""), json!("")),
        ("text", Value::Text("\u{1f980}\n\"\\\u{1}"), json!("\u{1f980}\n\"\\\u{1}")),
        ("NUL", Value::Text("a\0b"), json!("a\u{2400}b")),
    ];
    let file = single(|sequence, track| {
        let name = sequence.event_name(StringId(u32::MAX), || "all of time");
        let mut annotations = Vec::new();
        for (id, (key, value, _)) in (0..).zip(&values) {
            let name = sequence.annotation_name(StringId(id), || key);
            annotations.push(Annotation { name, value: *value });
        }
        let shared = sequence.annotation_text(StringId(7), || "shared");
        let name_of_shared = sequence.annotation_name(StringId(99), || "interned");
        annotations.push(Annotation { name: name_of_shared, value: Value::Interned(shared) });
        let event = Event::new(Timestamp::default(), track, name);
        sequence.begin(&Event { annotations: &annotations, ..event });
        sequence.end(Timestamp::MAX, track);
    });
    let traces = Traces::new();
    let trace = traces.save("values.pftrace", &file);
    for tp in TraceProcessor::all("values in Perfetto") {
        let [slices, args, complaints] = tp.queries(
            &trace,
            [
                "SELECT ts, dur, name FROM slice",
                "SELECT key, coalesce(int_value, real_value, string_value) FROM args WHERE key LIKE 'debug.%'",
                TraceProcessor::COMPLAINTS,
            ],
        );
        assert_eq!(slices, [[json!(0), json!(i64::MAX), json!("all of time")]], "{}", tp.version());
        let mut wanted: Vec<Row> =
            values.iter().map(|(key, _, read)| vec![json!(format!("debug.{key}")), read.clone()]).collect();
        wanted.push(vec![json!("debug.interned"), json!("shared")]);
        assert_eq!(args, wanted, "{}", tp.version());
        assert_eq!(complaints, Vec::<Row>::new(), "{}", tp.version());
    }
}

#[test]
fn long_names_are_read_up_to_their_bound() {
    let longest = "x".repeat(MAX_TEXT);
    let longer = "y".repeat(MAX_TEXT + 1);
    let file = single(|sequence, track| {
        for (id, text) in (0..).zip([&longest, &longer]) {
            let name = sequence.event_name(StringId(id), || text);
            let text_name = sequence.annotation_name(StringId(0), || "text");
            let annotations = [Annotation { name: text_name, value: Value::Text(text) }];
            sequence.begin(&Event { annotations: &annotations, ..Event::new(time(id.into()), track, name) });
            sequence.end(time(id.into()), track);
        }
        assert_eq!(sequence.mended().cut, 2);
    });
    let traces = Traces::new();
    let trace = traces.save("long.pftrace", &file);
    for tp in TraceProcessor::all("long names in Perfetto") {
        let sql = "SELECT name, extract_arg(arg_set_id, 'debug.text') FROM slice ORDER BY ts";
        let [rows, complaints] = tp.queries(&trace, [sql, TraceProcessor::COMPLAINTS]);
        let rows: Vec<(String, String)> = typed(rows);
        let cut = format!("{}\u{2026}", "y".repeat(MAX_TEXT - 3));
        assert!(rows == [(longest.clone(), longest.clone()), (cut.clone(), cut)], "{}", tp.version());
        assert_eq!(complaints, Vec::<Row>::new(), "{}", tp.version());
    }
}

#[test]
fn samples_have_their_call_stacks() {
    let thread = Thread { pid: i32::MAX, tid: 1234 };
    let file = single(|sequence, track| {
        let kind = TrackKind::Thread(thread);
        sequence.track(&Track { kind, parent: Some(track), ..Track::new(TrackId(2), "main") });
        for at in [100, 200, 300] {
            let id = StackId(at % 200);
            let stack = sequence.call_stack(id).unwrap_or_else(|| {
                let library = sequence.mapping(StringId(5), || "lib/libtorch.so");
                let unknown = sequence.mapping(StringId(6), || "");
                let outer = sequence.add_frame("main", unknown, 0);
                let inner = sequence.add_frame(&format!("work_{}", id.0), library, 0x1000);
                sequence.add_call_stack(id, &[outer, inner])
            });
            sequence.sample(time(at.into()), thread, stack);
        }
    });
    let traces = Traces::new();
    let trace = traces.save("samples.pftrace", &file);
    for tp in TraceProcessor::all("samples in Perfetto") {
        let sql = "SELECT s.ts, th.tid, f.name, outer_f.name, m.name
            FROM perf_sample s JOIN thread th USING (utid)
            JOIN stack_profile_callsite c ON s.callsite_id = c.id JOIN stack_profile_frame f ON c.frame_id = f.id
            JOIN stack_profile_callsite o ON c.parent_id = o.id JOIN stack_profile_frame outer_f ON o.frame_id = outer_f.id
            JOIN stack_profile_mapping m ON f.mapping = m.id ORDER BY s.ts";
        let [samples, complaints] = tp.queries(&trace, [sql, TraceProcessor::COMPLAINTS]);
        let row = |at: i64, name: &str| {
            vec![json!(at), json!(1234), json!(name), json!("main"), json!("/lib/libtorch.so")]
        };
        assert_eq!(
            samples,
            [row(100, "work_100"), row(200, "work_0"), row(300, "work_100")],
            "{}",
            tp.version()
        );
        assert_eq!(complaints, Vec::<Row>::new(), "{}", tp.version());
    }
}

#[test]
fn thousands_of_tracks_and_flows_with_any_id() {
    const TRACKS: u64 = 5000;
    let file = single(|sequence, parent| {
        for number in 1..=TRACKS {
            let track = TrackId(number);
            sequence.track(&Track { parent: Some(parent), ..Track::new(track, &format!("track {number}")) });
            let name = sequence.event_name(StringId(0), || "event");
            let from = Flow::From(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let to = Flow::To((number - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            sequence.begin(&Event { flows: &[to, from], ..Event::new(time(number), track, name) });
            sequence.end(time(number + 1), track);
        }
    });
    let traces = Traces::new();
    let trace = traces.save("tracks.pftrace", &file);
    for tp in TraceProcessor::all("many tracks in Perfetto") {
        let sql = "SELECT count(*), count(DISTINCT track_id), sum(dur), min(ts), max(ts + dur) FROM slice";
        let [slices, flows] =
            tp.queries(&trace, [sql, "SELECT count(*), sum(slice_out < slice_in) FROM flow"]);
        assert_eq!(slices, [[TRACKS, TRACKS, TRACKS, 1, TRACKS + 1].map(|n| json!(n))], "{}", tp.version());
        // The first event has nothing before it.
        assert_eq!(flows, [[TRACKS - 1, TRACKS - 1].map(|n| json!(n))], "{}", tp.version());
    }
}

#[test]
fn what_is_wrong_with_a_trace_is_seen() {
    let traces = Traces::new();
    let run = Run::random(3, 20);
    let file = run.files(&[Window::ALL]).remove(0);
    // Without its first packet, nothing that a process interned may be used.
    let mut sequence = Sequence::new(NonZeroU32::MIN);
    let first = sequence.take(Vec::new());
    let start = file.windows(first.len()).position(|bytes| bytes == first).unwrap();
    let headless = traces.save("headless.pftrace", &[&file[..start], &file[start + first.len()..]].concat());
    // A call stack of a file that is gone.
    let thread = Thread { pid: i32::MAX, tid: 1 };
    let stale = sequence.add_call_stack(StackId(0), &[]);
    let dangling =
        traces.save("dangling.pftrace", &single(|sequence, _| sequence.sample(time(1), thread, stale)));
    // An end that is missing.
    let open = traces.save(
        "open.pftrace",
        &single(|sequence, track| {
            let name = sequence.event_name(StringId(0), || "open");
            sequence.begin(&Event::new(time(1), track, name));
        }),
    );
    for tp in TraceProcessor::all("wrong traces in Perfetto") {
        let processes = "SELECT DISTINCT p.name FROM slice s JOIN process_track t ON s.track_id = t.id
            JOIN process p USING (upid)";
        let mut read = tp.query(&headless, processes);
        read.sort_by_key(|row| row[0].to_string());
        assert_eq!(read, [[json!("rank 1 (node7)")], [json!("rank 2 (node7)")]], "{}", tp.version());
        assert_ne!(tp.query(&dangling, TraceProcessor::COMPLAINTS), Vec::<Row>::new(), "{}", tp.version());
        assert_eq!(tp.query(&open, "SELECT dur FROM slice"), [[json!(-1)]], "{}", tp.version());
    }
}
