//! Writes items of a unit as Perfetto packets.

use super::item::{
    ArgValue, DrawnTrack, FlowEnd, StackFrame, StackNumber, TextId, TrackKind, UnitDictionary, UnitLayout,
};
use super::sort_items::ItemExtra;
use super::track_numbers::TrackNumbers;
use super::write_items::{ItemDetails, SlicePart, SliceWriter};
use rpd_perfetto::{
    Annotation, ChildOrder, CounterValue, Event, Flow, Overlaps, Sequence, StackId, StringId, Timestamp,
    Unit, Value, Window,
};
use rpd_perfetto::{Frame as FrameId, Track as Packet, TrackKind as PacketKind};
use std::collections::HashMap;
use std::num::NonZeroU32;

/// Writes one unit, as a separate sequence in each file.
pub(super) struct PerfettoWriter<'a> {
    sequence: Sequence,
    id: NonZeroU32,
    layout: &'a UnitLayout,
    dictionary: &'a UnitDictionary,
    numbers: &'a TrackNumbers,
    /// Number of the file, from 1.
    file: u32,
    /// The last file that describes the track of each process.
    processes: Vec<u32>,
    /// The last file that describes each lane of each track.
    lanes: Vec<Vec<u32>>,
    /// Frames in this file.
    frames: HashMap<StackFrame, FrameId>,
    annotations: Vec<Annotation<'static>>,
    flows: Vec<Flow>,
    mended: u64,
}

/// Texts that are not in the dictionary. Their numbers follow those of the dictionary.
enum Own {
    OriginalTime,
    OriginalDuration,
    Clipped,
    NoName,
}

impl<'a> PerfettoWriter<'a> {
    /// Creates a writer. `unit` is the index of the unit in the job.
    pub(super) fn new(
        unit: usize,
        layout: &'a UnitLayout,
        dictionary: &'a UnitDictionary,
        numbers: &'a TrackNumbers,
    ) -> PerfettoWriter<'a> {
        let id = u32::try_from(unit + 1).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        PerfettoWriter {
            sequence: Sequence::new(id),
            id,
            layout,
            dictionary,
            numbers,
            file: 0,
            processes: vec![0; layout.processes.len()],
            lanes: vec![Vec::new(); layout.tracks.len()],
            frames: HashMap::new(),
            annotations: Vec::new(),
            flows: Vec::new(),
            mended: 0,
        }
    }

    fn own(&self, own: Own) -> (StringId, &'static str) {
        let (place, text) = match own {
            Own::OriginalTime => (0, "orig_ts"),
            Own::OriginalDuration => (1, "orig_dur"),
            Own::Clipped => (2, "clipped"),
            Own::NoName => (3, "?"),
        };
        (StringId(self.dictionary.texts.len() as u32 + place), text)
    }

    /// Describes a lane, unless this file already does.
    #[inline]
    fn describe(&mut self, track: u32, lane: u32) {
        let known = self.lanes.get(track as usize).and_then(|lanes| lanes.get(lane as usize));
        if known != Some(&self.file) {
            self.describe_anew(track, lane);
        }
    }

    #[cold]
    fn describe_anew(&mut self, track: u32, lane: u32) {
        let layout = self.layout;
        let Some(found) = layout.tracks.get(track as usize) else { return };
        if let Some(lanes) = self.lanes.get_mut(track as usize) {
            lanes.resize(lanes.len().max(lane as usize + 1), 0);
            lanes[lane as usize] = self.file;
        }
        let is_thread = matches!(found.kind, TrackKind::Thread { .. });
        let parent = match found.parent {
            // Parents precede their children.
            Some(parent) if parent < track => {
                self.describe(parent, 0);
                self.numbers.track(parent, 0)
            }
            _ => {
                self.describe_process(found.process);
                self.numbers.process_track(found.process)
            }
        };
        let id = self.numbers.track(track, lane);
        let mut packet = Packet {
            parent: Some(parent),
            rank: Some(found.order),
            description: found.description.as_deref(),
            ..Packet::new(id, &found.name)
        };
        if is_thread && lane > 0 {
            // Slices that do not nest in their thread are drawn below it.
            self.describe(track, 0);
            packet.parent = Some(self.numbers.track(track, 0));
        } else {
            packet.kind = self.kind(track, found);
            if found.kind == TrackKind::Group {
                packet.children = ChildOrder::Rank;
            }
            if is_thread {
                // The process determines the position of the thread.
                packet.parent = None;
            }
        }
        self.sequence.track(&packet);
    }

    fn kind(&self, place: u32, track: &'a DrawnTrack) -> PacketKind<'a> {
        match &track.kind {
            TrackKind::Thread { .. } => match self.numbers.thread(place) {
                Some(thread) => PacketKind::Thread(thread),
                None => PacketKind::Slices,
            },
            TrackKind::Group | TrackKind::Slices(Overlaps::Nest | Overlaps::Separate) => PacketKind::Slices,
            TrackKind::Counter { unit } => PacketKind::Counter(match unit.as_str() {
                "" => Unit::None,
                "ns" => Unit::Nanoseconds,
                "bytes" => Unit::Bytes,
                "count" => Unit::Count,
                other => Unit::Named(other),
            }),
        }
    }

    fn describe_process(&mut self, process: u32) {
        let place = process as usize;
        let layout = self.layout;
        let (Some(file), Some(found)) = (self.processes.get_mut(place), layout.processes.get(place)) else {
            return;
        };
        if std::mem::replace(file, self.file) == self.file {
            return;
        }
        let description = match found.id {
            // Rows that no process claims.
            0 => format!("on {}", found.host),
            _ => format!("process {} on {}", found.pid, found.host),
        };
        self.sequence.track(&Packet {
            kind: PacketKind::Process { pid: self.numbers.pid(process) },
            children: ChildOrder::Rank,
            rank: Some(self.numbers.process_rank(process)),
            description: Some(&description),
            ..Packet::new(self.numbers.process_track(process), &found.name)
        });
    }

    /// Writes an event with its annotations and flows.
    #[inline]
    fn event(
        &mut self,
        track: u32,
        lane: u32,
        at: Timestamp,
        what: &ItemDetails<'_>,
        part: Option<&SlicePart<'_>>,
    ) {
        self.describe(track, lane);
        let texts = &self.dictionary.texts;
        let text = |id: TextId| move || texts.get(id);
        let name = self.sequence.event_name(StringId(what.name.0), text(what.name));
        let category = (what.category.0 != 0)
            .then(|| self.sequence.category(StringId(what.category.0), text(what.category)));
        let track = self.numbers.track(track, lane);
        let mut event = Event { category, ..Event::new(at, track, name) };
        let cut = part.filter(|part| part.cut.word().is_some());
        if what.flows == ItemExtra::default() && what.args == ItemExtra::default() && cut.is_none() {
            return self.write(&event, part.is_some());
        }
        let mut annotations = lend(std::mem::take(&mut self.annotations));
        for arg in what.args.args() {
            let name = match arg.name {
                TextId(0) => {
                    let (id, text) = self.own(Own::NoName);
                    self.sequence.annotation_name(id, || text)
                }
                id => self.sequence.annotation_name(StringId(id.0), text(id)),
            };
            let value = match arg.value {
                ArgValue::Int(value) => Value::Int(value),
                ArgValue::Uint(value) => Value::Uint(value),
                ArgValue::Double(value) => Value::Double(value),
                ArgValue::Bool(value) => Value::Bool(value),
                ArgValue::Text(text) => Value::Text(text),
                ArgValue::Known(id) => {
                    Value::Interned(self.sequence.annotation_text(StringId(id.0), text(id)))
                }
            };
            annotations.push(Annotation { name, value });
        }
        if let Some(part) = cut {
            self.tell_cut(part, &mut annotations);
        }
        let mut flows = std::mem::take(&mut self.flows);
        flows.extend(what.flows.flows().map(|flow| match flow {
            // A continuing flow is written as one that begins again.
            FlowEnd::From(id) | FlowEnd::Through(id) => Flow::From(id),
            FlowEnd::To(id) => Flow::To(id),
        }));
        event = Event { annotations: &annotations, flows: &flows, ..event };
        self.write(&event, part.is_some());
        flows.clear();
        self.flows = flows;
        self.annotations = lend(annotations);
    }

    fn write(&mut self, event: &Event<'_>, is_slice: bool) {
        if is_slice { self.sequence.begin(event) } else { self.sequence.instant(event) }
    }

    /// Adds annotations to an interrupted slice: its true beginning, its duration and the missing ends.
    fn tell_cut(&mut self, part: &SlicePart<'_>, annotations: &mut Vec<Annotation<'_>>) {
        let numbers = [
            (Own::OriginalTime, Value::Uint(part.span.start().ns())),
            (Own::OriginalDuration, Value::Uint(part.span.duration())),
        ];
        for (own, value) in numbers {
            let (id, text) = self.own(own);
            annotations.push(Annotation { name: self.sequence.annotation_name(id, || text), value });
        }
        if let Some(word) = part.cut.word() {
            let (id, text) = self.own(Own::Clipped);
            annotations.push(Annotation {
                name: self.sequence.annotation_name(id, || text),
                value: Value::Text(word),
            });
        }
    }

    fn stack(&mut self, number: StackNumber) -> rpd_perfetto::CallStack {
        let id = StackId(number.0);
        if let Some(known) = self.sequence.call_stack(id) {
            return known;
        }
        let texts = &self.dictionary.texts;
        let frames = self.dictionary.stacks.get(number.0 as usize).map_or(&[][..], |stack| &stack.frames);
        let mut ids = Vec::with_capacity(frames.len());
        for frame in frames {
            let id = match self.frames.get(frame) {
                Some(id) => *id,
                None => {
                    let mapping = self.sequence.mapping(StringId(frame.file.0), || texts.get(frame.file));
                    let id = self.sequence.add_frame(texts.get(frame.function), mapping, frame.offset);
                    self.frames.insert(*frame, id);
                    id
                }
            };
            ids.push(id);
        }
        self.sequence.add_call_stack(id, &ids)
    }

    fn count_mended(&mut self) {
        let mended = self.sequence.mended();
        self.mended += mended.cut + mended.nul;
    }
}

/// Reuses the memory of annotations for texts with another lifetime.
fn lend<'b>(mut annotations: Vec<Annotation<'_>>) -> Vec<Annotation<'b>> {
    annotations.clear();
    annotations.into_iter().map(|one| Annotation { name: one.name, value: Value::Bool(false) }).collect()
}

impl SliceWriter for PerfettoWriter<'_> {
    fn begin_file(&mut self, _: Window) {
        self.count_mended();
        self.file += 1;
        self.frames.clear();
        self.sequence.restart(self.id);
    }

    #[inline]
    fn begin(&mut self, track: u32, lane: u32, part: &SlicePart<'_>) {
        self.event(track, lane, part.at, &part.what, Some(part));
    }

    #[inline]
    fn end(&mut self, track: u32, lane: u32, at: Timestamp) {
        self.sequence.end(at, self.numbers.track(track, lane));
    }

    fn instant(&mut self, track: u32, at: Timestamp, what: &ItemDetails<'_>) {
        self.event(track, 0, at, what, None);
    }

    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue) {
        self.describe(track, 0);
        self.sequence.counter(at, self.numbers.track(track, 0), value);
    }

    fn sample(&mut self, track: u32, at: Timestamp, stack: StackNumber) {
        let Some(thread) = self.numbers.thread(track) else { return };
        self.describe(track, 0);
        let stack = self.stack(stack);
        self.sequence.sample(at, thread, stack);
    }

    fn bytes(&self) -> usize {
        self.sequence.packets().len()
    }

    fn take(&mut self, empty: Vec<u8>) -> Vec<u8> {
        self.sequence.take(empty)
    }

    fn mended(&self) -> u64 {
        let mended = self.sequence.mended();
        self.mended + mended.cut + mended.nul
    }
}
