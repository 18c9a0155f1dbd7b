//! Writes items of a unit as Chrome trace events. These have only processes and threads, so each lane of each
//! track is a thread.

mod json;

use crate::described_tracks::DescribedTracks;
use crate::item::{
    ArgValue, DrawnTrack, EARLIER_CALLS, EARLIER_CALLS_LANE, FlowEnd, ItemArg, StackNumber, TextId, TrackKind,
};
use crate::write_items::{EncodedUnit, ItemDetails, SlicePart, SliceWriter};
use json::JsonText;
use rpd_perfetto::{CounterValue, Timestamp, Window};
use std::collections::{HashMap, HashSet};

/// Head of a file. Each event ends with a comma.
pub(super) const HEAD: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
/// End of a file: an event without content, and without a comma.
pub(super) const TAIL: &[u8] = b"{\"ph\":\"M\",\"name\":\"trace_end\",\"pid\":0,\"args\":{}}\n]}\n";

/// Writes one unit.
pub(super) struct ChromeWriter<'a> {
    json: JsonText,
    unit: EncodedUnit<'a>,
    /// Name and position of each track in its process.
    tracks: Vec<FlatTrack>,
    described: DescribedTracks<'a>,
}

/// A track without the tree.
struct FlatTrack {
    /// Name, unique in its process.
    name: String,
    place: u64,
}

impl<'a> ChromeWriter<'a> {
    pub(super) fn new(unit: EncodedUnit<'a>) -> ChromeWriter<'a> {
        ChromeWriter {
            json: JsonText::default(),
            unit,
            tracks: flatten(&unit.layout.tracks),
            described: DescribedTracks::new(unit.layout),
        }
    }

    /// Names a lane, unless this file already does.
    #[inline]
    fn describe(&mut self, track: u32, lane: u32) {
        if !self.described.has_lane(track, lane) {
            self.describe_new(track, lane);
        }
    }

    #[cold]
    fn describe_new(&mut self, track: u32, lane: u32) {
        let Some(found) = self.unit.layout.tracks.get(track as usize) else { return };
        self.described.add_lane(track, lane);
        self.describe_process(found.process);
        // Counters have no thread: their names identify them.
        if matches!(found.kind, TrackKind::Counter { .. }) {
            return;
        }
        let (json, flat) = (&mut self.json, &self.tracks[track as usize]);
        let thread = (self.unit.numbers.pid(found.process), self.unit.numbers.track(track, lane).0);
        let lane = match lane {
            0 => String::new(),
            EARLIER_CALLS_LANE => format!(" ({EARLIER_CALLS})"),
            lane => format!(" (lane {})", u64::from(lane) + 1),
        };
        metadata(json, "thread_name", thread, "name", |json| json.text(&format!("{}{lane}", flat.name)));
        metadata(json, "thread_sort_index", thread, "sort_index", |json| json.digits(flat.place));
    }

    fn describe_process(&mut self, process: u32) {
        let Some((found, description)) = self.described.add_process(process) else { return };
        let (json, pid) = (&mut self.json, (self.unit.numbers.pid(process), 0));
        metadata(json, "process_name", pid, "name", |json| json.text(&found.name));
        metadata(json, "process_labels", pid, "labels", |json| json.text(&description));
        let rank = self.unit.numbers.process_rank(process);
        metadata(json, "process_sort_index", pid, "sort_index", |json| json.int(rank.into()));
    }

    /// Writes an event up to its time: `{"ph":"X","pid":1,"tid":2,"ts":3.000`.
    fn begin_event(&mut self, phase: &str, track: u32, lane: u32, at: Timestamp) {
        self.describe(track, lane);
        let process = self.unit.layout.tracks.get(track as usize).map_or(0, |track| track.process);
        let json = &mut self.json;
        json.raw("{\"ph\":\"");
        json.raw(phase);
        json.raw("\",\"pid\":");
        json.int(self.unit.numbers.pid(process).into());
        json.raw(",\"tid\":");
        json.digits(self.unit.numbers.track(track, lane).0);
        json.raw(",\"ts\":");
        json.micros(at.ns());
    }

    fn name(&mut self, name: TextId, category: TextId) {
        let texts = &self.unit.dictionary.texts;
        self.json.raw(",\"name\":");
        self.json.text(texts.get(name));
        if category != TextId(0) {
            self.json.raw(",\"cat\":");
            self.json.text(texts.get(category));
        }
    }

    /// Writes the args of an event, and its end.
    fn args<'b>(&mut self, args: impl Iterator<Item = ItemArg<'b>>, cut: Option<&SlicePart<'_>>) {
        let texts = &self.unit.dictionary.texts;
        let json = &mut self.json;
        let mut names: Vec<TextId> = Vec::new();
        for arg in args {
            json.raw(if names.is_empty() { ",\"args\":{\"" } else { ",\"" });
            json.part(texts.get(arg.name));
            // Readers keep only the last of several equal names.
            let same = names.iter().filter(|name| **name == arg.name).count();
            if same > 0 {
                json.raw(&format!(" ({})", same + 1));
            }
            names.push(arg.name);
            json.raw("\":");
            match arg.value {
                ArgValue::Int(value) => json.int(value),
                ArgValue::Uint(value) => json.uint(value),
                ArgValue::Double(value) => json.double(value),
                ArgValue::Bool(value) => json.raw(if value { "true" } else { "false" }),
                ArgValue::Text(text) => json.text(text),
                ArgValue::Known(id) => json.text(texts.get(id)),
            }
        }
        if let Some((part, word)) = cut.and_then(|part| Some((part, part.cut.word()?))) {
            json.raw(if names.is_empty() { ",\"args\":{" } else { "," });
            json.raw("\"orig_ts\":");
            json.uint(part.span.start().ns());
            json.raw(",\"orig_dur\":");
            json.uint(part.span.duration());
            json.raw(",\"clipped\":");
            json.text(word);
            json.raw("}");
        } else if !names.is_empty() {
            json.raw("}");
        }
        json.raw("},\n");
    }

    /// Writes the ends of flows as separate events after that of their slice.
    fn flows(&mut self, flows: &[FlowEnd], track: u32, lane: u32, at: Timestamp) {
        for flow in flows {
            let (phases, id): (&[&str], u64) = match *flow {
                FlowEnd::From(id) => (&["s"], id),
                FlowEnd::To(id) => (&["f"], id),
                // The flow from the previous item ends here, and the one to the next item begins.
                FlowEnd::Through(id) => (&["f", "s"], id),
            };
            for phase in phases {
                self.begin_event(phase, track, lane, at);
                self.json.raw(if *phase == "f" { ",\"bp\":\"e\",\"id\":\"" } else { ",\"id\":\"" });
                // The id is a text, since numbers have 53 bits. Perfetto reads a text as hexadecimal.
                self.json.raw("0x");
                self.json.hex(id);
                self.json.raw("\",\"name\":\"flow\",\"cat\":\"flow\"},\n");
            }
        }
    }
}

/// Writes `{"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 0"}},`.
fn metadata(
    json: &mut JsonText,
    name: &str,
    (pid, tid): (i32, u64),
    key: &str,
    value: impl FnOnce(&mut JsonText),
) {
    json.raw("{\"ph\":\"M\",\"name\":\"");
    json.raw(name);
    json.raw("\",\"pid\":");
    json.int(pid.into());
    if tid > 0 {
        json.raw(",\"tid\":");
        json.digits(tid);
    }
    json.raw(",\"args\":{");
    json.text(key);
    json.raw(":");
    value(json);
    json.raw("}},\n");
}

/// Flattens the tree of tracks, depth first.
fn flatten(tracks: &[DrawnTrack]) -> Vec<FlatTrack> {
    let mut flat: Vec<FlatTrack> = Vec::with_capacity(tracks.len());
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); tracks.len()];
    let mut roots: Vec<usize> = Vec::new();
    let mut names: HashSet<(u32, String)> = HashSet::new();
    let mut times: HashMap<(u32, String), u64> = HashMap::new();
    for (place, track) in tracks.iter().enumerate() {
        let parent = track.parent.map(|parent| parent as usize).filter(|parent| *parent < place);
        match parent {
            Some(parent) => children[parent].push(place),
            None => roots.push(place),
        }
        // Counters with the same name would be merged.
        let mut name = track.name.clone();
        while !names.insert((track.process, name.clone())) {
            let time = times.entry((track.process, track.name.clone())).or_insert(1);
            *time += 1;
            name = format!("{} #{time}", track.name);
        }
        flat.push(FlatTrack { name, place: 0 });
    }
    let in_order = |places: &mut Vec<usize>| {
        // Reversed, because they are popped from the end.
        places.sort_by_key(|place| std::cmp::Reverse((tracks.get(*place).map(|track| track.order), *place)));
    };
    in_order(&mut roots);
    children.iter_mut().for_each(in_order);
    let mut next = 0;
    while let Some(place) = roots.pop() {
        flat[place].place = next;
        next += 1;
        roots.append(&mut children[place]);
    }
    flat
}

impl SliceWriter for ChromeWriter<'_> {
    fn begin_file(&mut self, _: Window) {
        self.described.begin_file();
    }

    fn begin(&mut self, track: u32, lane: u32, part: &SlicePart<'_>) {
        self.begin_event("X", track, lane, part.at);
        self.json.raw(",\"dur\":");
        self.json.micros(part.until.ns().saturating_sub(part.at.ns()));
        self.name(part.what.name, part.what.category);
        self.args(part.what.args.args(), Some(part));
        self.flows(part.what.flows, track, lane, part.at);
    }

    fn end(&mut self, _: u32, _: u32, _: Timestamp) {
        // The beginning states the duration.
    }

    fn instant(&mut self, track: u32, at: Timestamp, what: &ItemDetails<'_>) {
        self.begin_event("i", track, 0, at);
        self.json.raw(",\"s\":\"t\"");
        self.name(what.name, what.category);
        self.args(what.args.args(), None);
        self.flows(what.flows, track, 0, at);
    }

    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue) {
        self.begin_event("C", track, 0, at);
        let unit = match self.unit.layout.tracks.get(track as usize).map(|track| &track.kind) {
            Some(TrackKind::Counter { unit }) if !unit.is_empty() => unit,
            _ => "value",
        };
        let json = &mut self.json;
        json.raw(",\"name\":");
        json.text(self.tracks.get(track as usize).map_or("", |track| &track.name));
        json.raw(",\"args\":{");
        json.text(unit);
        json.raw(":");
        match value {
            // A counter value may be rounded, but cannot be a text.
            CounterValue::Int(value) => {
                json.raw(if value < 0 { "-" } else { "" });
                json.digits(value.unsigned_abs());
            }
            CounterValue::Double(value) => json.double(value),
        }
        json.raw("}},\n");
    }

    fn sample(&mut self, track: u32, at: Timestamp, stack: StackNumber) {
        self.begin_event("i", track, 0, at);
        let texts = &self.unit.dictionary.texts;
        let frames = self.unit.dictionary.stacks.get(stack.0 as usize).map_or(&[][..], |stack| &stack.frames);
        let json = &mut self.json;
        json.raw(",\"s\":\"t\",\"name\":");
        json.text(frames.last().map_or("", |frame| texts.get(frame.function)));
        json.raw(",\"cat\":\"sample\",\"args\":{\"stack\":\"");
        for (depth, frame) in frames.iter().enumerate() {
            json.raw(if depth > 0 { ";" } else { "" });
            json.part(texts.get(frame.function));
        }
        json.raw("\"}},\n");
    }

    fn bytes(&self) -> usize {
        self.json.out.len()
    }

    fn take(&mut self, mut empty: Vec<u8>) -> Vec<u8> {
        empty.clear();
        std::mem::replace(&mut self.json.out, empty)
    }

    fn mended(&self) -> u64 {
        self.json.mended
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::item::{CallStack, EventCounts, ItemKind, StackFrame, StackNumber, TraceItem};
    use super::super::sort_items::ItemSorter;
    use super::super::time_slices::TimeSlices;
    use super::super::track_numbers;
    use super::super::write_items::SlicePieces;
    use super::*;
    use crate::format::draw;
    use crate::item::{FIRST_UNIT_FLOW, UnitDictionary, UnitLayout};
    use crate::options::TraceFormat;
    use rpd_comm::Solo;
    use rpd_console::Failure;
    use rpd_perfetto::Overlaps;
    use rpd_run::ProcessIdentity;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    const T0: i64 = 1000;

    /// The bytes of each time slice.
    #[derive(Default)]
    struct Files(BTreeMap<usize, Vec<u8>>);

    impl SlicePieces for &mut Files {
        fn piece(&mut self, window: usize, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
            self.0.entry(window).or_default().extend(bytes);
            Ok(Vec::new())
        }

        fn done(&mut self, _: usize, _: &EventCounts) -> Result<(), Failure> {
            Ok(())
        }
    }

    fn track(parent: Option<u32>, name: &str, kind: TrackKind, order: i32) -> DrawnTrack {
        DrawnTrack { process: 0, parent, name: name.to_owned(), kind, order, description: None }
    }

    fn layout() -> UnitLayout {
        let process = ProcessIdentity {
            name: "rank 3 (node07)".to_owned(),
            order: (3, 0, 1),
            pid: 4711,
            host: "node07".to_owned(),
            rank: Some(3),
            id: 1,
        };
        let counter = || TrackKind::Counter { unit: "W".to_owned() };
        let tracks = vec![
            track(None, "main", TrackKind::Thread { tid: 4711 }, 1),
            track(None, "GPU 0", TrackKind::Group, 5),
            track(Some(1), "GPU 0 stream 1", TrackKind::Slices(Overlaps::Separate), 6),
            track(Some(1), "GPU 0 power", counter(), 8),
            track(Some(1), "GPU 0 power", counter(), 7),
        ];
        UnitLayout {
            processes: vec![process],
            tracks,
            first: Some(T0),
            last: Some(T0 + 9000),
            ..UnitLayout::default()
        }
    }

    /// Returns the events of each file.
    fn written(
        dictionary: &UnitDictionary,
        items: &[TraceItem<'_>],
        windows: &TimeSlices,
    ) -> Vec<Vec<Value>> {
        let layout = layout();
        let numbers = track_numbers::number(&Solo, &[&layout]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = ItemSorter::new(folder.path(), 1 << 20, 5);
        items.iter().for_each(|item| sorter.push(item).unwrap());
        let unit = EncodedUnit { place: 0, layout: &layout, dictionary, numbers: &numbers[0] };
        let mut files = Files::default();
        draw(TraceFormat::ChromeJson, unit, (windows, T0), sorter, &mut files).unwrap();
        let read = |events: &Vec<u8>| {
            let file: Value = serde_json::from_slice(&[HEAD, events, TAIL].concat()).unwrap();
            file["traceEvents"].as_array().unwrap().clone()
        };
        files.0.values().map(read).collect()
    }

    fn of_phase<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == phase).collect()
    }

    #[test]
    fn items_are_written_as_chrome_has_them() {
        let mut dictionary = UnitDictionary::default();
        let mut text = |text| dictionary.texts.add(text);
        let (launch, kernel, api, x, frame) =
            (text("launch \"it\""), text("kernel"), text("HIP"), text("x"), text("inner"));
        dictionary.stacks = vec![CallStack {
            frames: [launch, frame]
                .map(|function| StackFrame { function, file: TextId(0), offset: 0 })
                .to_vec(),
        }];
        let plain = TraceItem {
            start: T0,
            end: T0,
            track: 0,
            kind: ItemKind::Slice,
            name: launch,
            category: api,
            flows: &[],
            args: &[],
        };
        let at = |start, end| TraceItem { start: T0 + start, end: T0 + end, ..plain };
        let args = [
            ItemArg { name: x, value: ArgValue::Int(-7) },
            ItemArg { name: x, value: ArgValue::Known(kernel) },
            ItemArg { name: api, value: ArgValue::Uint(u64::MAX) },
        ];
        let on_gpu = |start, end| TraceItem { track: 2, name: kernel, category: TextId(0), ..at(start, end) };
        let value = |start, track, value| TraceItem {
            track,
            kind: ItemKind::Counter(value),
            name: TextId(0),
            category: TextId(0),
            ..at(start, start)
        };
        let items = [
            TraceItem { flows: &[FlowEnd::From(u64::MAX)], args: &args, ..at(1, 2500) },
            TraceItem { flows: &[FlowEnd::To(u64::MAX)], ..on_gpu(2000, 5000) },
            on_gpu(3000, 4000),
            TraceItem { flows: &[FlowEnd::Through(5)], ..at(3000, 3000) },
            TraceItem { kind: ItemKind::Instant, ..at(3500, 3500) },
            TraceItem { kind: ItemKind::Sample(StackNumber(0)), name: TextId(0), ..at(3600, 3600) },
            value(100, 3, CounterValue::Double(1.5)),
            value(100, 4, CounterValue::Int(-2)),
        ];
        let [events] = &written(&dictionary, &items, &TimeSlices::one(T0, T0 + 9001))[..] else { panic!() };

        let slices = of_phase(events, "X");
        let first = slices.iter().find(|slice| slice["ts"] == 0.001).unwrap();
        assert_eq!(
            (&first["name"], &first["cat"], &first["dur"]),
            (&json!("launch \"it\""), &json!("HIP"), &json!(2.499))
        );
        assert_eq!(first["args"], json!({"x": -7, "x (2)": "kernel", "HIP": "18446744073709551615"}));
        let kernels: Vec<_> = slices.iter().filter(|slice| slice["name"] == "kernel").collect();
        assert_ne!(kernels[0]["tid"], kernels[1]["tid"], "they overlap");

        let names = |what: &str| -> BTreeMap<String, Value> {
            let named = events.iter().filter(|event| event["name"] == what);
            named.map(|event| (event["tid"].to_string(), event["args"].clone())).collect()
        };
        let threads: Vec<Value> = names("thread_name").into_values().collect();
        for name in ["main", "GPU 0 stream 1", "GPU 0 stream 1 (lane 2)"] {
            assert!(threads.contains(&json!({"name": name})), "{name}: {threads:?}");
        }
        assert_eq!(threads.len(), 3);
        let order: Vec<Value> = names("thread_sort_index").into_values().collect();
        assert_eq!(order.iter().filter(|order| **order == json!({"sort_index": 2})).count(), 2, "{order:?}");
        let processes: Vec<Value> = names("process_labels").into_values().collect();
        assert_eq!(processes, [json!({"labels": "process 4711 on node07"})]);

        let flow = |phase: &str| -> Vec<(String, f64, Value)> {
            let ends = of_phase(events, phase).into_iter();
            ends.map(|end| {
                (end["id"].as_str().unwrap().to_owned(), end["ts"].as_f64().unwrap(), end["tid"].clone())
            })
            .collect()
        };
        let (from, to) = (flow("s"), flow("f"));
        assert_eq!(from[0], (format!("{:#x}", u64::MAX), 0.001, first["tid"].clone()));
        assert!(to.contains(&(format!("{:#x}", u64::MAX), 2.0, kernels[0]["tid"].clone())), "{to:?}");
        assert!(from.contains(&("0x5".to_owned(), 3.0, first["tid"].clone())), "{from:?}");
        assert!(to.contains(&("0x5".to_owned(), 3.0, first["tid"].clone())), "{to:?}");

        let instants = of_phase(events, "i");
        assert_eq!((instants[0]["ts"].as_f64(), &instants[0]["s"]), (Some(3.5), &json!("t")));
        assert_eq!(instants[1]["name"], "inner");
        assert_eq!(instants[1]["args"], json!({"stack": "launch \"it\";inner"}));
        let values: BTreeMap<String, Value> = of_phase(events, "C")
            .into_iter()
            .map(|value| (value["name"].as_str().unwrap().to_owned(), value["args"].clone()))
            .collect();
        assert_eq!(values["GPU 0 power"], json!({"W": 1.5}));
        assert_eq!(values["GPU 0 power #2"], json!({"W": -2}));
    }

    #[test]
    fn each_file_is_whole() {
        let mut dictionary = UnitDictionary::default();
        let name = dictionary.texts.add("long");
        let flows = [FlowEnd::From(FIRST_UNIT_FLOW)];
        let items = [TraceItem {
            start: T0,
            end: T0 + 9000,
            track: 0,
            kind: ItemKind::Slice,
            name,
            category: TextId(0),
            flows: &flows,
            args: &[],
        }];
        let files = written(&dictionary, &items, &TimeSlices::equal(T0, T0 + 9000, 3));
        let parts: Vec<Value> = files.iter().map(|events| of_phase(events, "X")[0].clone()).collect();
        let times: Vec<_> = parts.iter().map(|part| (part["ts"].clone(), part["dur"].clone())).collect();
        assert_eq!(times, [0.0, 3.0, 6.0].map(|ts| (json!(ts), json!(3.0))));
        for (part, word) in parts.iter().zip(["end", "both", "begin"]) {
            assert_eq!(part["args"], json!({"orig_ts": 0, "orig_dur": 9000, "clipped": word}));
        }
        // The flow did not end, so it may end in any of the files.
        assert_eq!(files.iter().map(|events| of_phase(events, "s").len()).collect::<Vec<_>>(), [1, 1, 1]);
        for events in &files {
            let named = events.iter().filter(|event| event["name"] == "process_name");
            assert_eq!(named.map(|event| &event["args"]["name"]).collect::<Vec<_>>(), ["rank 3 (node07)"]);
        }
    }
}
