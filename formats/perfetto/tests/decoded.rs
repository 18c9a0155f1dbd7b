//! Reads the written packets with an independent protobuf implementation and separate message definitions.
#![allow(missing_docs, clippy::unwrap_used)]

mod messages;

use messages::{DebugAnnotation, Trace, TracePacket, TrackEvent};
use proptest::prelude::*;
use prost::Message;
use rpd_perfetto::{
    Annotation, ChildOrder, CounterValue, Event, Flow, Sequence, StackId, StringId, Thread, Timestamp, Track,
    TrackId, TrackKind, Unit, Value, file_head,
};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// A step of a generated file.
#[derive(Clone, Debug)]
enum Step {
    Begin(Happening),
    Instant(Happening),
    End {
        at: i64,
        track: u64,
    },
    Counter {
        at: i64,
        track: u64,
        value: Number,
    },
    Sample {
        at: i64,
        pid: i32,
        tid: i32,
        stack: u32,
    },
    /// Starts another file, of the process with this number.
    Restart(u32),
    /// Takes the packets so far; the file continues.
    Take,
}

#[derive(Clone, Debug)]
struct Happening {
    at: i64,
    track: u64,
    name: u32,
    category: Option<u32>,
    annotations: Vec<(u32, Given)>,
    flows: Vec<(bool, u64)>,
}

#[derive(Clone, Debug)]
enum Number {
    Int(i64),
    Double(f64),
}

#[derive(Clone, Debug, PartialEq)]
enum Given {
    Bool(bool),
    Uint(u64),
    Int(i64),
    Double(f64),
    Interned(u32),
    Text(String),
}

/// An item that was read, with interned data resolved.
#[derive(Clone, Debug, PartialEq)]
enum Read {
    Event {
        kind: i32,
        at: u64,
        track: u64,
        name: Option<String>,
        categories: Vec<String>,
        annotations: Vec<(String, Given)>,
        flows: Vec<u64>,
        terminating: Vec<u64>,
        counter: Option<(i64, f64)>,
    },
    Sample {
        at: u64,
        pid: u32,
        tid: u32,
        frames: Vec<(String, String, u64)>,
    },
}

fn time(ns: i64) -> Timestamp {
    Timestamp::new(ns).unwrap()
}

fn text(table: &str, id: u32) -> String {
    // Some texts make a packet longer than 127 bytes, and some longer than 16,383 bytes.
    let length = [0, 1, 9, 80, 130, 20_000][id as usize % 6];
    format!("{table} {id} {}", "\u{e9}".repeat(length))
}

fn ids() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..12, 1 => any::<u32>()]
}

fn numbers() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
}

fn times() -> impl Strategy<Value = i64> {
    numbers().prop_map(|number| (number >> 1) as i64)
}

fn givens() -> impl Strategy<Value = Given> {
    prop_oneof![
        any::<bool>().prop_map(Given::Bool),
        numbers().prop_map(Given::Uint),
        (numbers(), any::<bool>()).prop_map(|(number, negative)| {
            Given::Int(if negative { (number as i64).wrapping_neg() } else { number as i64 })
        }),
        prop::num::f64::ANY
            .prop_filter("NaN is not equal to itself", |value| !value.is_nan())
            .prop_map(Given::Double),
        ids().prop_map(Given::Interned),
        "[^\0]{0,200}".prop_map(Given::Text),
    ]
}

fn happenings() -> impl Strategy<Value = Happening> {
    let annotations = prop::collection::vec((ids(), givens()), 0..5);
    let flows = prop::collection::vec((any::<bool>(), any::<u64>()), 0..3);
    (times(), numbers(), ids(), prop::option::of(ids()), annotations, flows).prop_map(
        |(at, track, name, category, annotations, flows)| Happening {
            at,
            track,
            name,
            category,
            annotations,
            flows,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => happenings().prop_map(Step::Begin),
        1 => happenings().prop_map(Step::Instant),
        4 => (times(), numbers()).prop_map(|(at, track)| Step::End { at, track }),
        2 => (times(), numbers(), any::<i64>(), any::<i32>(), any::<bool>()).prop_map(|(at, track, int, double, whole)| {
            let value = if whole { Number::Int(int) } else { Number::Double(f64::from(double) / 16.0) };
            Step::Counter { at, track, value }
        }),
        1 => (times(), 1..i32::MAX, 1..i32::MAX, 0u32..6).prop_map(|(at, pid, tid, stack)| Step::Sample { at, pid, tid, stack }),
        1 => (1..=u32::MAX).prop_map(Step::Restart),
        1 => Just(Step::Take),
    ]
}

/// Performs the steps; returns each file and the items that must be read from it.
fn write(steps: &[Step]) -> Vec<(u32, Vec<u8>, Vec<Read>)> {
    let mut files = vec![(1, Vec::new(), Vec::new())];
    let mut sequence = Sequence::new(NonZeroU32::MIN);
    for step in steps {
        let (_, bytes, wanted) = files.last_mut().unwrap();
        match step {
            Step::Begin(happening) => wanted.push(happen(happening, 1, &mut sequence)),
            Step::Instant(happening) => wanted.push(happen(happening, 3, &mut sequence)),
            &Step::End { at, track } => {
                sequence.end(time(at), TrackId(track));
                wanted.push(bare(2, at, track, None));
            }
            Step::Counter { at, track, value } => {
                let (value, read) = match *value {
                    Number::Int(value) => (CounterValue::Int(value), (value, 0.0)),
                    Number::Double(value) => (CounterValue::Double(value), (0, value)),
                };
                sequence.counter(time(*at), TrackId(*track), value);
                wanted.push(bare(4, *at, *track, Some(read)));
            }
            &Step::Sample { at, pid, tid, stack } => {
                let id = StackId(stack);
                let known = sequence.call_stack(id).unwrap_or_else(|| {
                    let frames: Vec<_> = (0..stack)
                        .map(|depth| {
                            let library =
                                sequence.mapping(StringId(depth % 2), || text("library", depth % 2));
                            sequence.add_frame(&text("function", depth), library, u64::MAX - u64::from(depth))
                        })
                        .collect();
                    sequence.add_call_stack(id, &frames)
                });
                sequence.sample(time(at), Thread { pid, tid }, known);
                let frame = |depth| {
                    (text("function", depth), text("library", depth % 2), u64::MAX - u64::from(depth))
                };
                wanted.push(Read::Sample {
                    at: at as u64,
                    pid: pid as u32,
                    tid: tid as u32,
                    frames: (0..stack).map(frame).collect(),
                });
            }
            Step::Restart(id) => {
                bytes.extend(sequence.packets());
                sequence.restart(NonZeroU32::new(*id).unwrap());
                files.push((*id, Vec::new(), Vec::new()));
            }
            Step::Take => bytes.extend(sequence.take(vec![1, 2, 3])),
        }
    }
    files.last_mut().unwrap().1.extend(sequence.packets());
    files
}

fn bare(kind: i32, at: i64, track: u64, counter: Option<(i64, f64)>) -> Read {
    Read::Event {
        kind,
        at: at as u64,
        track,
        name: None,
        categories: vec![],
        annotations: vec![],
        flows: vec![],
        terminating: vec![],
        counter,
    }
}

fn happen(happening: &Happening, kind: i32, sequence: &mut Sequence) -> Read {
    let name = sequence.event_name(StringId(happening.name), || text("name", happening.name));
    let category = happening.category.map(|id| sequence.category(StringId(id), || text("category", id)));
    let mut annotations = Vec::new();
    for (id, value) in &happening.annotations {
        let value = match value {
            Given::Bool(value) => Value::Bool(*value),
            Given::Uint(value) => Value::Uint(*value),
            Given::Int(value) => Value::Int(*value),
            Given::Double(value) => Value::Double(*value),
            Given::Interned(id) => {
                Value::Interned(sequence.annotation_text(StringId(*id), || text("value", *id)))
            }
            Given::Text(value) => Value::Text(value),
        };
        let name = sequence.annotation_name(StringId(*id), || text("key", *id));
        annotations.push(Annotation { name, value });
    }
    let flows: Vec<Flow> =
        happening.flows.iter().map(|&(from, id)| if from { Flow::From(id) } else { Flow::To(id) }).collect();
    let event = Event {
        at: time(happening.at),
        track: TrackId(happening.track),
        name,
        category,
        annotations: &annotations,
        flows: &flows,
    };
    if kind == 1 {
        sequence.begin(&event)
    } else {
        sequence.instant(&event)
    }
    let ids = |from| happening.flows.iter().filter(|flow| flow.0 == from).map(|flow| flow.1).collect();
    Read::Event {
        kind,
        at: happening.at as u64,
        track: happening.track,
        name: Some(text("name", happening.name)),
        categories: happening.category.map(|id| text("category", id)).into_iter().collect(),
        annotations: happening
            .annotations
            .iter()
            .map(|(id, value)| {
                let value = match value {
                    Given::Interned(id) => Given::Text(text("value", *id)),
                    other => other.clone(),
                };
                (text("key", *id), value)
            })
            .collect(),
        flows: ids(true),
        terminating: ids(false),
        counter: None,
    }
}

/// Tables of interned data. Ids are in order, from 1.
#[derive(Default)]
struct Tables {
    tables: BTreeMap<&'static str, Vec<String>>,
    frames: Vec<(String, String, u64)>,
    stacks: Vec<Vec<u64>>,
}

impl Tables {
    fn add(&mut self, table: &'static str, iid: Option<u64>, text: Vec<u8>) {
        let known = self.tables.entry(table).or_default();
        known.push(String::from_utf8(text).unwrap());
        assert_eq!(iid, Some(known.len() as u64), "{table}");
    }

    fn get(&self, table: &str, iid: u64) -> String {
        self.tables[table][iid as usize - 1].clone()
    }

    fn take(&mut self, packet: TracePacket) {
        let Some(data) = packet.interned_data else { return };
        for (table, entries) in [
            ("category", data.event_categories),
            ("name", data.event_names),
            ("key", data.debug_annotation_names),
            ("value", data.debug_annotation_string_values),
            ("function", data.function_names),
            ("path", data.mapping_paths),
        ] {
            entries.into_iter().for_each(|entry| self.add(table, entry.iid, entry.text.unwrap()));
        }
        for mapping in data.mappings {
            let [path] = mapping.path_string_ids[..] else { panic!("a path has one part here") };
            let path = self.get("path", path);
            self.add("mapping", mapping.iid, path.into());
        }
        for frame in data.frames {
            let function = self.get("function", frame.function_name_id.unwrap());
            self.frames.push((
                function,
                self.get("mapping", frame.mapping_id.unwrap()),
                frame.rel_pc.unwrap(),
            ));
            assert_eq!(frame.iid, Some(self.frames.len() as u64));
        }
        for stack in data.callstacks {
            self.stacks.push(stack.frame_ids);
            assert_eq!(stack.iid, Some(self.stacks.len() as u64));
        }
    }
}

/// Reads a file of one sequence.
fn read(bytes: &[u8], id: u32) -> Vec<Read> {
    let trace = Trace::decode(bytes).unwrap();
    // All bytes are in known fields, and every number has its shortest encoding.
    assert_eq!(trace.encoded_len(), bytes.len());
    let mut tables = Tables::default();
    let mut read = Vec::new();
    for (number, packet) in trace.packet.into_iter().enumerate() {
        assert_eq!(packet.trusted_packet_sequence_id, Some(id));
        assert_eq!(packet.sequence_flags, Some(if number == 0 { 3 } else { 2 }));
        if number == 0 {
            assert_eq!(packet.trace_packet_defaults.unwrap().timestamp_clock_id, Some(6));
            continue;
        }
        if let Some(event) = packet.track_event {
            read.push(event_of(event, packet.timestamp.unwrap(), &tables));
        } else if let Some(sample) = packet.perf_sample {
            let stack = &tables.stacks[sample.callstack_iid.unwrap() as usize - 1];
            read.push(Read::Sample {
                at: packet.timestamp.unwrap(),
                pid: sample.pid.unwrap(),
                tid: sample.tid.unwrap(),
                frames: stack.iter().map(|&frame| tables.frames[frame as usize - 1].clone()).collect(),
            });
        } else {
            tables.take(packet);
        }
    }
    read
}

fn event_of(event: TrackEvent, at: u64, tables: &Tables) -> Read {
    let value = |annotation: &DebugAnnotation| {
        let mut values = Vec::new();
        values.extend(annotation.bool_value.map(Given::Bool));
        values.extend(annotation.uint_value.map(Given::Uint));
        values.extend(annotation.int_value.map(Given::Int));
        values.extend(annotation.double_value.map(Given::Double));
        values.extend(annotation.string_value.clone().map(Given::Text));
        values.extend(annotation.string_value_iid.map(|iid| Given::Text(tables.get("value", iid))));
        let [value] = &values[..] else { panic!("one value: {values:?}") };
        value.clone()
    };
    let annotations = event.debug_annotations.iter();
    let counter = match (event.counter_value, event.double_counter_value) {
        (None, None) => None,
        (int, double) => Some((int.unwrap_or(0), double.unwrap_or(0.0))),
    };
    Read::Event {
        kind: event.kind.unwrap(),
        at,
        track: event.track_uuid.unwrap(),
        name: event.name_iid.map(|iid| tables.get("name", iid)),
        categories: event.category_iids.iter().map(|&iid| tables.get("category", iid)).collect(),
        annotations: annotations.map(|one| (tables.get("key", one.name_iid.unwrap()), value(one))).collect(),
        flows: event.flow_ids,
        terminating: event.terminating_flow_ids,
        counter,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn events_are_decoded_as_they_were_written(steps in prop::collection::vec(steps(), 0..60)) {
        for (id, bytes, wanted) in write(&steps) {
            prop_assert_eq!(read(&bytes, id), wanted);
        }
    }
}

#[test]
fn a_file_starts_with_its_clocks() {
    let trace = Trace::decode(&file_head(time(7_000), Some(1_700_000_000_000_007_000))[..]).unwrap();
    let clocks = trace.packet[0].clock_snapshot.as_ref().unwrap();
    let clocks: Vec<_> = clocks.clocks.iter().map(|clock| (clock.clock_id, clock.timestamp)).collect();
    assert_eq!(clocks, [(Some(6), Some(7_000)), (Some(1), Some(1_700_000_000_000_007_000))]);
    let order = trace.packet[1].track_descriptor.as_ref().unwrap();
    assert_eq!((order.uuid, order.process_ordering, order.thread_ordering), (Some(0), Some(1), Some(1)));
}

#[test]
fn tracks_are_decoded_as_they_were_written() {
    let mut sequence = Sequence::new(NonZeroU32::MIN);
    let tracks = [
        Track {
            kind: TrackKind::Process { pid: i32::MAX },
            children: ChildOrder::Rank,
            rank: Some(-3),
            description: Some("pid 77"),
            ..Track::new(TrackId(u64::MAX), "rank 0")
        },
        Track {
            kind: TrackKind::Thread(Thread { pid: 1, tid: -2 }),
            parent: Some(TrackId(u64::MAX)),
            ..Track::new(TrackId(2), "main")
        },
        Track { children: ChildOrder::Name, ..Track::new(TrackId(3), "") },
        Track { children: ChildOrder::Time, ..Track::new(TrackId(4), "a\0b") },
        Track { kind: TrackKind::Counter(Unit::None), ..Track::new(TrackId(5), "c") },
        Track { kind: TrackKind::Counter(Unit::Nanoseconds), ..Track::new(TrackId(6), "c") },
        Track { kind: TrackKind::Counter(Unit::Count), ..Track::new(TrackId(7), "c") },
        Track { kind: TrackKind::Counter(Unit::Bytes), ..Track::new(TrackId(8), "c") },
        Track { kind: TrackKind::Counter(Unit::Named("MHz")), ..Track::new(TrackId(9), "c") },
    ];
    tracks.iter().for_each(|track| sequence.track(track));
    assert_eq!(sequence.mended().nul, 1);
    let trace = Trace::decode(sequence.packets()).unwrap();
    assert_eq!(trace.encoded_len(), sequence.packets().len());
    let read: Vec<_> = trace.packet.into_iter().filter_map(|packet| packet.track_descriptor).collect();
    let wanted = tracks.map(|track| messages::TrackDescriptor {
        uuid: Some(track.id.0),
        name: Some(track.name.replace('\0', "\u{2400}")).filter(|name| !name.is_empty()),
        parent_uuid: track.parent.map(|parent| parent.0),
        process: match track.kind {
            TrackKind::Process { pid } => Some(messages::ProcessDescriptor {
                pid: Some(pid),
                process_name: Some(track.name.into()),
                process_labels: track.description.map(str::to_owned).into_iter().collect(),
            }),
            _ => None,
        },
        thread: match track.kind {
            TrackKind::Thread(Thread { pid, tid }) => Some(messages::ThreadDescriptor {
                pid: Some(pid),
                tid: Some(tid),
                thread_name: Some(track.name.into()),
            }),
            _ => None,
        },
        counter: match track.kind {
            TrackKind::Counter(unit) => Some(messages::CounterDescriptor {
                unit: match unit {
                    Unit::None | Unit::Named(_) => None,
                    Unit::Nanoseconds => Some(1),
                    Unit::Count => Some(2),
                    Unit::Bytes => Some(3),
                },
                unit_name: match unit {
                    Unit::Named(name) => Some(name.into()),
                    _ => None,
                },
            }),
            _ => None,
        },
        child_ordering: match track.children {
            ChildOrder::Unspecified => None,
            ChildOrder::Name => Some(1),
            ChildOrder::Time => Some(2),
            ChildOrder::Rank => Some(3),
        },
        sibling_order_rank: track.rank,
        description: track.description.map(str::to_owned),
        process_ordering: None,
        thread_ordering: None,
    });
    assert_eq!(read, wanted);
}
