use crate::sequence::{AnnotationName, AnnotationText, Category, EventName, Sequence};
use crate::text::{MendedText, text};
use crate::time::Timestamp;
use crate::track::TrackId;
use crate::wire::{self, Small, fixed64, length_tag, packet, varint_tag};

/// The beginning of a slice, or an instant.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Time of the event.
    pub at: Timestamp,
    /// Track of the event.
    pub track: TrackId,
    /// Name of the event.
    pub name: EventName,
    /// Category of the event.
    pub category: Option<Category>,
    /// Further attributes. If several have the same name, readers keep the last one.
    pub annotations: &'a [Annotation<'a>],
    /// Flows that begin or end here.
    pub flows: &'a [Flow],
}

impl Event<'_> {
    /// Creates an event that has only a name.
    #[inline]
    pub const fn new(at: Timestamp, track: TrackId, name: EventName) -> Event<'static> {
        Event { at, track, name, category: None, annotations: &[], flows: &[] }
    }
}

/// A flow from one slice to a later one. Its number is unique in all files of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The flow begins here, or continues to the next event with the same number.
    From(u64),
    /// The flow ends here.
    To(u64),
}

/// A name and a value.
#[derive(Clone, Copy, Debug)]
pub struct Annotation<'a> {
    /// The name.
    pub name: AnnotationName,
    /// The value.
    pub value: Value<'a>,
}

/// The value of an annotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An integer; a negative one takes ten bytes.
    Int(i64),
    /// An integer that may exceed `i64::MAX`. Readers show such a value as negative.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A Boolean.
    Bool(bool),
    /// A text that is used repeatedly.
    Interned(AnnotationText),
    /// A text that is used once.
    Text(&'a str),
}

/// The value of a counter. Readers store it as `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterValue {
    /// An integer.
    Int(i64),
    /// A floating-point number. Readers show NaN as no value.
    Double(f64),
}

const ANNOTATION: u32 = 4;
const CATEGORY: u8 = varint_tag(3);
const TYPE: u8 = varint_tag(9);
const NAME: u8 = varint_tag(10);
const TRACK: u8 = varint_tag(11);
const COUNTER_INT: u32 = 30;
const COUNTER_DOUBLE: u32 = 44;
const FLOW: u32 = 47;
const TERMINATING_FLOW: u32 = 48;

const SLICE_BEGIN: u8 = 1;
const SLICE_END: u8 = 2;
const INSTANT: u8 = 3;
const COUNTER: u8 = 4;

impl Sequence {
    /// Writes the beginning of a slice.
    #[inline]
    pub fn begin(&mut self, event: &Event<'_>) {
        self.event(SLICE_BEGIN, event);
    }

    /// Ends the slice of a track that began last and has no end yet.
    #[inline]
    pub fn end(&mut self, at: Timestamp, track: TrackId) {
        let (mut small, length) = self.event_head(at, SLICE_END, track);
        finish(&mut small, length);
        small.append_to(&mut self.out);
    }

    /// Writes an instant.
    #[inline]
    pub fn instant(&mut self, event: &Event<'_>) {
        self.event(INSTANT, event);
    }

    /// Writes the value that a counter has from this time on.
    #[inline]
    pub fn counter(&mut self, at: Timestamp, track: TrackId, value: CounterValue) {
        let (small, length) = self.event_head(at, COUNTER, track);
        let start = self.out.len();
        small.append_to(&mut self.out);
        match value {
            CounterValue::Int(value) => wire::int(&mut self.out, COUNTER_INT, value),
            CounterValue::Double(value) => fixed64(&mut self.out, COUNTER_DOUBLE, value.to_bits()),
        }
        wire::close(&mut self.out, start + length);
        wire::close(&mut self.out, start + 1);
    }

    #[inline(always)]
    fn event(&mut self, kind: u8, event: &Event<'_>) {
        let (mut small, length) = self.event_head(event.at, kind, event.track);
        small.byte(NAME);
        small.varint(event.name.0.into());
        if let Some(category) = event.category {
            small.byte(CATEGORY);
            small.varint(category.0.into());
        }
        if event.annotations.is_empty() && event.flows.is_empty() {
            finish(&mut small, length);
            small.append_to(&mut self.out);
            return;
        }
        let start = self.out.len();
        small.append_to(&mut self.out);
        for flow in event.flows {
            match *flow {
                Flow::From(id) => fixed64(&mut self.out, FLOW, id),
                Flow::To(id) => fixed64(&mut self.out, TERMINATING_FLOW, id),
            }
        }
        for annotation in event.annotations {
            annotate(&mut self.out, annotation, &mut self.mended);
        }
        wire::close(&mut self.out, start + length);
        wire::close(&mut self.out, start + 1);
    }

    /// Builds a packet up to the track of its event, and returns it with the offset of the event's length. With a
    /// name and a category the packet has at most 47 bytes, so that both lengths are one byte.
    #[inline(always)]
    fn event_head(&self, at: Timestamp, kind: u8, track: TrackId) -> (Small, usize) {
        let mut small = self.small_packet();
        small.byte(varint_tag(packet::TIMESTAMP));
        small.varint(at.ns());
        small.byte(length_tag(packet::TRACK_EVENT));
        let length = small.len();
        small.byte(0);
        small.byte(TYPE);
        small.byte(kind);
        small.byte(TRACK);
        small.varint(track.0);
        (small, length)
    }
}

/// Sets both lengths.
#[inline(always)]
fn finish(small: &mut Small, length: usize) {
    small.set(length, (small.len() - length - 1) as u8);
    small.set(1, (small.len() - 2) as u8);
}

#[inline]
fn annotate(out: &mut Vec<u8>, annotation: &Annotation<'_>, mended: &mut MendedText) {
    let mut small = Small::new();
    small.byte(length_tag(ANNOTATION));
    small.byte(0);
    small.byte(varint_tag(1));
    small.varint(annotation.name.0.into());
    match annotation.value {
        Value::Bool(value) => {
            small.byte(varint_tag(2));
            small.byte(value.into());
        }
        Value::Uint(value) => {
            small.byte(varint_tag(3));
            small.varint(value);
        }
        Value::Int(value) => {
            small.byte(varint_tag(4));
            small.varint(value as u64);
        }
        Value::Double(value) => {
            small.byte(wire::fixed64_tag(5));
            small.word(value.to_bits(), 8);
        }
        Value::Interned(value) => {
            // Field 17, a varint: two bytes.
            small.byte(0x88);
            small.byte(0x01);
            small.varint(value.0.into());
        }
        Value::Text(value) => {
            let start = out.len();
            small.append_to(out);
            text(out, 6, value, mended);
            wire::close(out, start + 1);
            return;
        }
    }
    small.set(1, (small.len() - 2) as u8);
    small.append_to(out);
}
