//! Writes items of a unit as Perfetto packets.

use super::described_tracks::DescribedTracks;
use super::item::{
    ArgValue, DrawnTrack, EARLIER_CALLS_LANE, FlowEnd, StackFrame, StackNumber, TextId, TrackKind,
};
use super::write_items::{EncodedUnit, ItemDetails, SlicePart, SliceWriter};
use rpd_perfetto::{
    Annotation, AnnotationName, ChildOrder, CounterValue, Event, Flow, Sequence, StackId, StringId,
    Timestamp, TrackId, Unit, Value, Window,
};
use rpd_perfetto::{Frame as FrameId, Track as Packet, TrackKind as PacketKind};
use std::collections::HashMap;
use std::num::NonZeroU32;

/// The tracks of ranks and threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TrackForm {
    /// Processes and threads, which readers sort themselves.
    Processes,
    /// Plain tracks below one root, in order.
    Plain,
}

/// The track above all ranks in the form [`TrackForm::Plain`].
const ROOT: TrackId = TrackId(u64::MAX);
/// Its name.
const ROOT_NAME: &str = "ranks";

/// Writes one unit, as a separate sequence in each file.
pub(super) struct PerfettoWriter<'a> {
    form: TrackForm,
    sequence: Sequence,
    id: NonZeroU32,
    unit: EncodedUnit<'a>,
    described: DescribedTracks<'a>,
    /// Frames in this file.
    frames: HashMap<StackFrame, FrameId>,
    annotations: Vec<Annotation<'static>>,
    flows: Vec<Flow>,
    mended: u64,
}

/// Text that is not in the dictionary. Its number follows those of the dictionary by `place`.
struct BuiltinText {
    place: u32,
    text: &'static str,
}

const ORIGINAL_TIME: BuiltinText = BuiltinText { place: 0, text: "orig_ts" };
const ORIGINAL_DURATION: BuiltinText = BuiltinText { place: 1, text: "orig_dur" };
const CLIPPED: BuiltinText = BuiltinText { place: 2, text: "clipped" };
const NO_NAME: BuiltinText = BuiltinText { place: 3, text: "?" };
const STACK: BuiltinText = BuiltinText { place: 4, text: "stack" };

impl<'a> PerfettoWriter<'a> {
    pub(super) fn new(unit: EncodedUnit<'a>, form: TrackForm) -> PerfettoWriter<'a> {
        let id = u32::try_from(unit.place + 1).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        PerfettoWriter {
            form,
            sequence: Sequence::new(id),
            id,
            unit,
            described: DescribedTracks::new(unit.layout),
            frames: HashMap::new(),
            annotations: Vec::new(),
            flows: Vec::new(),
            mended: 0,
        }
    }

    /// Describes a lane, unless this file already does.
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
        let is_thread = matches!(found.kind, TrackKind::Thread { .. });
        let is_unnamed = lane == 0 && self.has_number_as_name(track, found);
        let name = if is_unnamed { "" } else { found.lane_name(lane) };
        let parent = match found.parent {
            // Parents precede their children.
            Some(parent) if parent < track => {
                self.describe(parent, 0);
                self.unit.numbers.track(parent, 0)
            }
            _ => {
                self.describe_process(found.process);
                self.unit.numbers.process_track(found.process)
            }
        };
        let id = self.unit.numbers.track(track, lane);
        let mut packet = Packet {
            parent: Some(parent),
            rank: Some(found.order),
            description: found.description.as_deref(),
            ..Packet::new(id, name)
        };
        if lane == EARLIER_CALLS_LANE || is_thread && lane > 0 {
            // Slices that do not nest in their thread are drawn below it.
            self.describe(track, 0);
            packet.parent = Some(self.unit.numbers.track(track, 0));
        } else {
            packet.kind = self.kind(track, found);
            if found.kind == TrackKind::Group {
                packet.children = ChildOrder::Rank;
            }
            if is_thread && self.form == TrackForm::Processes {
                // The process determines the position of the thread.
                packet.parent = None;
            }
        }
        self.sequence.track(&packet);
    }

    /// Returns whether a thread has no name but its number, which readers show themselves.
    fn has_number_as_name(&self, place: u32, track: &DrawnTrack) -> bool {
        let shown = self.unit.numbers.thread(place).map(|thread| thread.tid.into());
        self.form == TrackForm::Processes && shown.is_some_and(|tid| track.has_number_as_name(tid))
    }

    fn kind(&self, place: u32, track: &'a DrawnTrack) -> PacketKind<'a> {
        match &track.kind {
            TrackKind::Thread { .. } if self.form == TrackForm::Plain => PacketKind::Slices,
            TrackKind::Thread { .. } => {
                self.unit.numbers.thread(place).map_or(PacketKind::Slices, PacketKind::Thread)
            }
            TrackKind::Group | TrackKind::Slices(_) => PacketKind::Slices,
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
        let Some((found, description)) = self.described.add_process(process) else { return };
        let (kind, parent) = match self.form {
            TrackForm::Processes => (PacketKind::Process { pid: self.unit.numbers.pid(process) }, None),
            TrackForm::Plain => {
                self.sequence.track(&Packet { children: ChildOrder::Rank, ..Packet::new(ROOT, ROOT_NAME) });
                (PacketKind::Slices, Some(ROOT))
            }
        };
        self.sequence.track(&Packet {
            kind,
            parent,
            children: ChildOrder::Rank,
            rank: Some(self.unit.numbers.process_rank(process)),
            description: Some(&description),
            ..Packet::new(self.unit.numbers.process_track(process), &found.name)
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
        let texts = &self.unit.dictionary.texts;
        let text = |id: TextId| move || texts.get(id);
        let name = self.sequence.event_name(StringId(what.name.0), text(what.name));
        let category = (what.category.0 != 0)
            .then(|| self.sequence.category(StringId(what.category.0), text(what.category)));
        let track = self.unit.numbers.track(track, lane);
        let mut event = Event { category, ..Event::new(at, track, name) };
        let cut = part.and_then(|part| Some((part.span, part.cut.word()?)));
        if what.flows.is_empty() && what.args.0.is_empty() && cut.is_none() {
            return self.write(&event, part.is_some());
        }
        let mut annotations = lend(std::mem::take(&mut self.annotations));
        for arg in what.args.args() {
            let name = match arg.name {
                TextId(0) => self.builtin_name(&NO_NAME),
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
        if let Some((whole, missing_ends)) = cut {
            let values = [
                (ORIGINAL_TIME, Value::Uint(whole.start().ns())),
                (ORIGINAL_DURATION, Value::Uint(whole.duration())),
                (CLIPPED, Value::Text(missing_ends)),
            ];
            for (name, value) in values {
                annotations.push(Annotation { name: self.builtin_name(&name), value });
            }
        }
        let mut flows = std::mem::take(&mut self.flows);
        flows.extend(what.flows.iter().map(|flow| match flow {
            // A continuing flow is written as one that begins again.
            FlowEnd::From(id) | FlowEnd::Through(id) => Flow::From(*id),
            FlowEnd::To(id) => Flow::To(*id),
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

    fn builtin_name(&mut self, name: &BuiltinText) -> AnnotationName {
        let id = StringId(self.unit.dictionary.texts.len() as u32 + name.place);
        self.sequence.annotation_name(id, || name.text)
    }

    fn stack(&mut self, number: StackNumber) -> rpd_perfetto::CallStack {
        let id = StackId(number.0);
        if let Some(known) = self.sequence.call_stack(id) {
            return known;
        }
        let texts = &self.unit.dictionary.texts;
        let frames =
            self.unit.dictionary.stacks.get(number.0 as usize).map_or(&[][..], |stack| &stack.frames);
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

    /// Writes a call stack as an instant, with the innermost function as its name.
    fn sample_as_instant(&mut self, track: u32, at: Timestamp, number: StackNumber) {
        let texts = &self.unit.dictionary.texts;
        let frames =
            self.unit.dictionary.stacks.get(number.0 as usize).map_or(&[][..], |stack| &stack.frames);
        let functions: Vec<&str> = frames.iter().map(|frame| texts.get(frame.function)).collect();
        let stack = functions.join(";");
        let name = frames.last().map_or(TextId(0), |frame| frame.function);
        let name = self.sequence.event_name(StringId(name.0), || texts.get(name));
        let annotations = [Annotation { name: self.builtin_name(&STACK), value: Value::Text(&stack) }];
        let event =
            Event { annotations: &annotations, ..Event::new(at, self.unit.numbers.track(track, 0), name) };
        self.write(&event, false);
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
        self.described.begin_file();
        self.frames.clear();
        self.sequence.restart(self.id);
    }

    #[inline]
    fn begin(&mut self, track: u32, lane: u32, part: &SlicePart<'_>) {
        self.event(track, lane, part.at, &part.what, Some(part));
    }

    #[inline]
    fn end(&mut self, track: u32, lane: u32, at: Timestamp) {
        self.sequence.end(at, self.unit.numbers.track(track, lane));
    }

    fn instant(&mut self, track: u32, at: Timestamp, what: &ItemDetails<'_>) {
        self.event(track, 0, at, what, None);
    }

    fn counter(&mut self, track: u32, at: Timestamp, value: CounterValue) {
        self.describe(track, 0);
        self.sequence.counter(at, self.unit.numbers.track(track, 0), value);
    }

    fn sample(&mut self, track: u32, at: Timestamp, stack: StackNumber) {
        self.describe(track, 0);
        if self.form == TrackForm::Plain {
            return self.sample_as_instant(track, at, stack);
        }
        let Some(thread) = self.unit.numbers.thread(track) else { return };
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
