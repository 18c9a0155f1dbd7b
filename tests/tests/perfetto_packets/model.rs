//! A run that is known span by span, what the packets of its files must be read as, and these files.

use rpd_perfetto::{
    Annotation, ChildOrder, CounterValue, Edge, Event, Flow, Overlaps, Sequence, Span, StringId, Thread,
    Timeline, Timestamp, Track, TrackId, TrackKind, Unit, Value, Window, file_head,
};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

const WALL_CLOCK: u64 = 1_700_000_000_000_000_000;
const NAMES: u32 = 40;

pub(crate) fn time(ns: u64) -> Timestamp {
    Timestamp::new(ns as i64).unwrap()
}

/// A thread, or a queue of a GPU.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) overlaps: Overlaps,
    pub(crate) spans: Vec<Item>,
}

#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) span: Span,
    pub(crate) name: u32,
    pub(crate) flow: Option<Flow>,
}

/// Two threads, two queues and a counter.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) groups: Vec<Group>,
    pub(crate) counter: Vec<(Timestamp, f64)>,
}

pub(crate) struct Run {
    pub(crate) processes: Vec<Process>,
}

/// A slice as it is read: process, thread or queue, start, duration, name, what was cut and how long the whole is.
pub(crate) type Slice = (String, String, i64, i64, String, Option<String>, Option<i64>);

impl Run {
    /// Spans that often begin and end at the same time, overlap in all ways, or have no duration.
    pub(crate) fn random(seed: u64, spans: usize) -> Run {
        let mut random = Random(seed);
        let mut flow = 0;
        let processes = (0..3)
            .map(|rank| {
                let mut process = Process {
                    name: format!("rank {rank} (node7)"),
                    groups: Vec::new(),
                    counter: (0..20).map(|i| (time(i * 50), random.below(1000) as f64 / 8.0)).collect(),
                };
                for (name, overlaps) in [
                    ("main", Overlaps::Nest),
                    ("loader", Overlaps::Nest),
                    ("queue 0", Overlaps::Separate),
                    ("queue 1", Overlaps::Separate),
                ] {
                    let mut spans: Vec<Item> = (0..spans).map(|_| random.item()).collect();
                    spans.sort_by_key(|item| item.span.order());
                    process.groups.push(Group { name: name.into(), overlaps, spans });
                }
                // Call i of a thread launches kernel i of a queue, if it began before it.
                let (threads, queues) = process.groups.split_at_mut(2);
                for (thread, queue) in threads.iter_mut().zip(queues) {
                    for (call, kernel) in thread.spans.iter_mut().zip(&mut queue.spans) {
                        if call.span.start() < kernel.span.start() {
                            flow += 1;
                            // Ids may have any bits.
                            let id = if flow % 2 == 0 { flow } else { u64::MAX - flow };
                            (call.flow, kernel.flow) = (Some(Flow::From(id)), Some(Flow::To(id)));
                        }
                    }
                }
                process
            })
            .collect();
        Run { processes }
    }

    fn items(&self) -> impl Iterator<Item = (&Process, &Group, &Item)> {
        self.processes.iter().flat_map(|process| {
            process
                .groups
                .iter()
                .flat_map(move |group| group.spans.iter().map(move |item| (process, group, item)))
        })
    }

    /// The slices that a file with a window must have, sorted.
    pub(crate) fn slices(&self, window: Window) -> Vec<Slice> {
        let (from, to) = (window.start().ns(), window.end().ns());
        let mut slices = Vec::new();
        for (process, group, item) in self.items() {
            let (start, end) = (item.span.start().ns(), item.span.end().ns());
            // Not with the crate's own function, which is what is tested.
            let touches = if start == end { from <= start && start < to } else { start < to && from < end };
            if !touches {
                continue;
            }
            let (at, until) = (start.max(from), end.min(to));
            let cut = match (start < from, to < end) {
                (false, false) => None,
                (true, false) => Some("begin"),
                (false, true) => Some("end"),
                (true, true) => Some("both"),
            };
            slices.push((
                process.name.clone(),
                group.name.clone(),
                at as i64,
                (until - at) as i64,
                name(item.name),
                cut.map(str::to_owned),
                cut.map(|_| (end - start) as i64),
            ));
        }
        slices.sort();
        slices
    }

    /// The flows between slices that begin in a window: process, start of the call, start of the kernel.
    pub(crate) fn flows(&self, window: Window) -> Vec<(String, i64, i64)> {
        let mut calls = BTreeMap::new();
        let mut kernels = BTreeMap::new();
        for (process, _, item) in self.items().filter(|(_, _, item)| window.contains(item.span.start())) {
            let start = item.span.start().ns() as i64;
            match item.flow {
                Some(Flow::From(id)) => calls.insert(id, start),
                Some(Flow::To(id)) => {
                    kernels.insert(id, (process.name.clone(), start)).map(|(_, start)| start)
                }
                None => None,
            };
        }
        let mut flows: Vec<_> = kernels
            .into_iter()
            .filter_map(|(id, (process, kernel))| Some((process, *calls.get(&id)?, kernel)))
            .collect();
        flows.sort();
        flows
    }

    /// One file for each window.
    pub(crate) fn files(&self, windows: &[Window]) -> Vec<Vec<u8>> {
        let mut timelines: Vec<Vec<Timeline<Item>>> = Vec::new();
        for process in &self.processes {
            timelines
                .push(process.groups.iter().map(|group| Timeline::new(group.overlaps, windows[0])).collect());
        }
        let mut sequence = Sequence::new(NonZeroU32::MIN);
        let mut files = Vec::new();
        for (part, &window) in windows.iter().enumerate() {
            let mut file = file_head(window.start(), Some(WALL_CLOCK + window.start().ns()));
            for (rank, process) in self.processes.iter().enumerate() {
                sequence.restart(NonZeroU32::new(rank as u32 + 1).unwrap());
                let ids = Ids { rank: rank as u64 };
                ids.describe(process, &mut sequence);
                for (number, group) in process.groups.iter().enumerate() {
                    let timeline = &mut timelines[rank][number];
                    let mut lanes = BTreeSet::new();
                    let mut write = |edge: Edge<'_, Item>| {
                        ids.write(edge, number as u64, group, &mut lanes, &mut sequence)
                    };
                    if part > 0 {
                        timeline.open(window, &mut write);
                    }
                    for item in group.spans.iter().filter(|item| window.contains(item.span.start())) {
                        assert!(timeline.push(item.span, *item, &mut write).unwrap());
                    }
                    timeline.close(&mut write);
                }
                for &(at, value) in process.counter.iter().filter(|(at, _)| window.contains(*at)) {
                    sequence.counter(at, ids.counter(), CounterValue::Double(value));
                }
                file.extend_from_slice(sequence.packets());
            }
            files.push(file);
        }
        files
    }
}

/// Numbers of the tracks of a process.
struct Ids {
    rank: u64,
}

impl Ids {
    fn process(&self) -> TrackId {
        TrackId(1 + 1000 * self.rank)
    }

    fn gpu(&self) -> TrackId {
        TrackId(2 + 1000 * self.rank)
    }

    fn counter(&self) -> TrackId {
        TrackId(3 + 1000 * self.rank)
    }

    fn lane(&self, group: u64, lane: usize) -> TrackId {
        TrackId(10 + 1000 * self.rank + 100 * group + lane as u64)
    }

    fn pid(&self) -> i32 {
        self.rank as i32 + 1
    }

    fn describe(&self, process: &Process, sequence: &mut Sequence) {
        sequence.track(&Track {
            kind: TrackKind::Process { pid: self.pid() },
            children: ChildOrder::Rank,
            rank: Some(self.rank as i32),
            description: Some("process 4711"),
            ..Track::new(self.process(), &process.name)
        });
        for (number, group) in process.groups.iter().enumerate().take(2) {
            let tid = 100 * self.pid() + number as i32;
            sequence.track(&Track {
                kind: TrackKind::Thread(Thread { pid: self.pid(), tid }),
                parent: Some(self.process()),
                ..Track::new(self.lane(number as u64, 0), &group.name)
            });
        }
        sequence.track(&Track {
            parent: Some(self.process()),
            children: ChildOrder::Rank,
            ..Track::new(self.gpu(), "GPU 0")
        });
        sequence.track(&Track {
            kind: TrackKind::Counter(Unit::Bytes),
            parent: Some(self.gpu()),
            rank: Some(100),
            ..Track::new(self.counter(), "memory")
        });
    }

    fn write(
        &self,
        edge: Edge<'_, Item>,
        number: u64,
        group: &Group,
        lanes: &mut BTreeSet<usize>,
        sequence: &mut Sequence,
    ) {
        let (at, lane, span, cut, item) = match edge {
            Edge::Begin { at, lane, span, cut, item } => (at, lane, span, cut, item),
            Edge::End { at, lane } => return sequence.end(at, self.lane(number, lane)),
        };
        let track = self.lane(number, lane);
        let is_thread = number < 2;
        if lanes.insert(lane) && !(is_thread && lane == 0) {
            let parent = if is_thread { self.lane(number, 0) } else { self.gpu() };
            sequence.track(&Track {
                parent: Some(parent),
                rank: Some(number as i32),
                ..Track::new(track, &group.name)
            });
        }
        let event_name = sequence.event_name(StringId(item.name), || name(item.name));
        let category = sequence.category(StringId(0), || "calls");
        let mut annotations = Vec::new();
        if let Some(word) = cut.word() {
            let mut add = |number, name: &str, value| {
                annotations
                    .push(Annotation { name: sequence.annotation_name(StringId(number), || name), value });
            };
            add(0, "orig_ts", Value::Int(span.start().ns() as i64));
            add(1, "orig_dur", Value::Int(span.duration() as i64));
            add(2, "clipped", Value::Text(word));
        }
        // Only where the span itself begins.
        let flows: Vec<Flow> = item.flow.into_iter().filter(|_| at == span.start()).collect();
        sequence.begin(&Event {
            at,
            track,
            name: event_name,
            category: Some(category),
            annotations: &annotations,
            flows: &flows,
        });
    }
}

pub(crate) fn name(number: u32) -> String {
    format!("kernel<{number}>(float*, \u{3bb})")
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }

    fn item(&mut self) -> Item {
        let start = self.below(1000);
        let length = match self.below(8) {
            0 => 0,
            1 => self.below(1000),
            _ => self.below(40),
        };
        let span = Span::new(time(start), time(start + length)).unwrap();
        Item { span, name: self.below(NAMES.into()) as u32, flow: None }
    }
}
