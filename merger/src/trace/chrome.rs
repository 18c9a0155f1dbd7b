//! Items of a unit as Chrome's trace events, which have processes and threads and nothing below them: each lane of each
//! track is a thread.

use super::encode::{Paint, Part, What};
use super::item::{Arg, ArgValue, Dictionary, FlowEnd, StackNumber, TextId, Track, TrackKind, UnitLayout};
use super::json::Json;
use super::tracks::Numbers;
use rpd_perfetto::{CounterValue, Timestamp, Window};
use std::collections::{HashMap, HashSet};

/// What a file starts with. Each event ends with a comma.
pub(super) const HEAD: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
/// What a file ends with: an event that says nothing, and has no comma.
pub(super) const TAIL: &[u8] = b"{\"ph\":\"M\",\"name\":\"trace_end\",\"pid\":0,\"args\":{}}\n]}\n";

/// Writes one unit.
pub(super) struct Chrome<'a> {
    json: Json,
    layout: &'a UnitLayout,
    dictionary: &'a Dictionary,
    numbers: &'a Numbers,
    /// How each track is called in its process, and its place there.
    tracks: Vec<Called>,
    /// Number of the file, from 1.
    file: u32,
    /// The last file that names each process,
    processes: Vec<u32>,
    /// and each lane of each track.
    lanes: Vec<Vec<u32>>,
}

/// A track, without the tree.
struct Called {
    /// With the names of what it is drawn below.
    name: String,
    place: u64,
}

impl<'a> Chrome<'a> {
    pub(super) fn new(
        layout: &'a UnitLayout,
        dictionary: &'a Dictionary,
        numbers: &'a Numbers,
    ) -> Chrome<'a> {
        Chrome {
            json: Json::default(),
            layout,
            dictionary,
            numbers,
            tracks: flatten(&layout.tracks),
            file: 0,
            processes: vec![0; layout.processes.len()],
            lanes: vec![Vec::new(); layout.tracks.len()],
        }
    }

    /// Names a lane, where this file does not yet.
    #[inline]
    fn describe(&mut self, track: u32, lane: u32) {
        let known = self.lanes.get(track as usize).and_then(|lanes| lanes.get(lane as usize));
        if known != Some(&self.file) {
            self.describe_anew(track, lane);
        }
    }

    #[cold]
    fn describe_anew(&mut self, track: u32, lane: u32) {
        let place = track as usize;
        let (Some(found), Some(lanes)) = (self.layout.tracks.get(place), self.lanes.get_mut(place)) else {
            return;
        };
        lanes.resize(lanes.len().max(lane as usize + 1), 0);
        if let Some(file) = lanes.get_mut(lane as usize) {
            *file = self.file;
        }
        self.describe_process(found.process);
        // Counters have no thread: they are known by their names.
        let Some(called) =
            self.tracks.get(place).filter(|_| !matches!(found.kind, TrackKind::Counter { .. }))
        else {
            return;
        };
        let json = &mut self.json;
        let thread = (self.numbers.pid(found.process), self.numbers.track(track, lane).0);
        begin_metadata(json, "thread_name", thread);
        json.raw("\"name\":\"");
        json.part(&called.name);
        if lane > 0 {
            json.raw(&format!(" (lane {})", u64::from(lane) + 1));
        }
        json.raw("\"}},\n");
        begin_metadata(json, "thread_sort_index", thread);
        json.raw("\"sort_index\":");
        json.digits(called.place);
        json.raw("}},\n");
    }

    fn describe_process(&mut self, process: u32) {
        let place = process as usize;
        let (Some(file), Some(found)) = (self.processes.get_mut(place), self.layout.processes.get(place))
        else {
            return;
        };
        if std::mem::replace(file, self.file) == self.file {
            return;
        }
        let json = &mut self.json;
        let pid = (self.numbers.pid(process), 0);
        begin_metadata(json, "process_name", pid);
        json.raw("\"name\":");
        json.text(&found.name);
        json.raw("}},\n");
        begin_metadata(json, "process_labels", pid);
        json.raw("\"labels\":");
        json.text(&match found.id {
            // Rows that no process has.
            0 => format!("on {}", found.host),
            _ => format!("process {} on {}", found.pid, found.host),
        });
        json.raw("}},\n");
        begin_metadata(json, "process_sort_index", pid);
        json.raw("\"sort_index\":");
        json.int(self.numbers.process_rank(process).into());
        json.raw("}},\n");
    }

    /// An event up to its time: `{"ph":"X","pid":1,"tid":2,"ts":3.000`.
    fn begin_event(&mut self, phase: &str, track: u32, lane: u32, at: Timestamp) {
        self.describe(track, lane);
        let process = self.layout.tracks.get(track as usize).map_or(0, |track| track.process);
        let json = &mut self.json;
        json.raw("{\"ph\":\"");
        json.raw(phase);
        json.raw("\",\"pid\":");
        json.int(self.numbers.pid(process).into());
        json.raw(",\"tid\":");
        json.digits(self.numbers.track(track, lane).0);
        json.raw(",\"ts\":");
        json.micros(at.ns());
    }

    fn name(&mut self, name: TextId, category: TextId) {
        let texts = &self.dictionary.texts;
        self.json.raw(",\"name\":");
        self.json.text(texts.get(name));
        if category != TextId(0) {
            self.json.raw(",\"cat\":");
            self.json.text(texts.get(category));
        }
    }

    /// The facts of an event, and its end.
    fn args<'b>(&mut self, args: impl Iterator<Item = Arg<'b>>, cut: Option<&Part<'_>>) {
        let texts = &self.dictionary.texts;
        let json = &mut self.json;
        let mut names: Vec<TextId> = Vec::new();
        for arg in args {
            json.raw(if names.is_empty() { ",\"args\":{\"" } else { ",\"" });
            json.part(texts.get(arg.name));
            // A reader keeps the last of equal names.
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

    /// Ends of arrows are events of their own, behind that of the slice that they are tied to.
    fn flows(&mut self, flows: impl Iterator<Item = FlowEnd>, track: u32, lane: u32, at: Timestamp) {
        for flow in flows {
            let (phases, id): (&[&str], u64) = match flow {
                FlowEnd::From(id) => (&["s"], id),
                FlowEnd::To(id) => (&["f"], id),
                // The arrow of the one before ends here, and one to the next begins.
                FlowEnd::Through(id) => (&["f", "s"], id),
            };
            for phase in phases {
                self.begin_event(phase, track, lane, at);
                self.json.raw(if *phase == "f" { ",\"bp\":\"e\",\"id\":\"" } else { ",\"id\":\"" });
                // As text, since numbers have 53 bits.
                self.json.digits(id);
                self.json.raw("\",\"name\":\"flow\",\"cat\":\"flow\"},\n");
            }
        }
    }
}

/// `{"ph":"M","name":"process_name","pid":1,"args":{`
fn begin_metadata(json: &mut Json, name: &str, (pid, tid): (i32, u64)) {
    json.raw("{\"ph\":\"M\",\"name\":\"");
    json.raw(name);
    json.raw("\",\"pid\":");
    json.int(pid.into());
    if tid > 0 {
        json.raw(",\"tid\":");
        json.digits(tid);
    }
    json.raw(",\"args\":{");
}

/// The tracks of a tree one below the other, depth first.
fn flatten(tracks: &[Track]) -> Vec<Called> {
    let mut called: Vec<Called> = Vec::with_capacity(tracks.len());
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
        let plain = match parent.and_then(|parent| called.get(parent)) {
            Some(parent) => format!("{} {}", parent.name, track.name),
            None => track.name.clone(),
        };
        // Counters with one name would be one.
        let mut name = plain.clone();
        while !names.insert((track.process, name.clone())) {
            let time = times.entry((track.process, plain.clone())).or_insert(1);
            *time += 1;
            name = format!("{plain} #{time}");
        }
        called.push(Called { name, place: 0 });
    }
    let in_order = |places: &mut Vec<usize>| {
        // They are taken from the end.
        places.sort_by_key(|place| std::cmp::Reverse((tracks.get(*place).map(|track| track.order), *place)));
    };
    in_order(&mut roots);
    children.iter_mut().for_each(in_order);
    let mut next = 0;
    while let Some(place) = roots.pop() {
        called[place].place = next;
        next += 1;
        roots.append(&mut children[place]);
    }
    called
}

impl Paint for Chrome<'_> {
    fn begin_file(&mut self, _: Window) {
        self.file += 1;
    }

    fn begin(&mut self, track: u32, lane: u32, part: &Part<'_>) {
        self.begin_event("X", track, lane, part.at);
        self.json.raw(",\"dur\":");
        self.json.micros(part.until.ns().saturating_sub(part.at.ns()));
        self.name(part.what.name, part.what.category);
        self.args(part.what.args.args(), Some(part));
        self.flows(part.what.flows.flows(), track, lane, part.at);
    }

    fn end(&mut self, _: u32, _: u32, _: Timestamp) {
        // Its beginning says how long it is.
    }

    fn instant(&mut self, track: u32, at: Timestamp, what: &What<'_>) {
        self.begin_event("i", track, 0, at);
        self.json.raw(",\"s\":\"t\"");
        self.name(what.name, what.category);
        self.args(what.args.args(), None);
        self.flows(what.flows.flows(), track, 0, at);
    }

    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue) {
        self.begin_event("C", track, 0, at);
        let unit = match self.layout.tracks.get(track as usize).map(|track| &track.kind) {
            Some(TrackKind::Counter { unit }) if !unit.is_empty() => unit,
            _ => "value",
        };
        let json = &mut self.json;
        json.raw(",\"name\":");
        json.text(self.tracks.get(track as usize).map_or("", |called| &called.name));
        json.raw(",\"args\":{");
        json.text(unit);
        json.raw(":");
        match value {
            // A curve may be rounded, but has no texts.
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
        let texts = &self.dictionary.texts;
        let frames = self.dictionary.stacks.get(stack.0 as usize).map_or(&[][..], |stack| &stack.frames);
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
