//! One element of `traceEvents`. A single pass over the element selects its fields by name.

use crate::cursor::{JsonCursor, JsonValue, ScanStop, elements};
use crate::number::{integer, nanoseconds};

/// A process or thread as events name it: a number or a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum EventPlace<'b> {
    /// The event does not name one.
    #[default]
    None,
    Number(i64),
    /// A word, with its escapes.
    Word(&'b [u8]),
}

impl<'b> EventPlace<'b> {
    fn of(value: JsonValue<'b>) -> EventPlace<'b> {
        match value {
            JsonValue::Scalar(text) | JsonValue::Text(text) if integer(text).is_some() => {
                integer(text).map_or(EventPlace::None, EventPlace::Number)
            }
            JsonValue::Scalar(text) | JsonValue::Text(text) => EventPlace::Word(text),
            JsonValue::Array(_) | JsonValue::Object(_) => EventPlace::None,
        }
    }

    pub(crate) fn number(self) -> Option<i64> {
        match self {
            EventPlace::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// The fields of an event that are used. Texts include their escapes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TraceEvent<'b> {
    /// `ph`; 0 if it is not a single letter.
    pub(crate) phase: u8,
    pub(crate) name: &'b [u8],
    pub(crate) category: Option<&'b [u8]>,
    pub(crate) pid: EventPlace<'b>,
    pub(crate) tid: EventPlace<'b>,
    /// Time in ns since the base time of the file.
    pub(crate) ts: Option<i64>,
    /// Duration in ns; 0 if the event has none.
    pub(crate) dur: Option<i64>,
    /// Id of a flow.
    pub(crate) id: &'b [u8],
    pub(crate) args: EventArgs<'b>,
}

/// The members of `args` that are used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventArgs<'b> {
    /// The whole object, including its brackets.
    pub(crate) all: Option<&'b [u8]>,
    /// `External id`: id of the operator that launched the work.
    pub(crate) external: Option<i64>,
    pub(crate) correlation: Option<i64>,
    pub(crate) stream: Option<i64>,
    pub(crate) device: Option<i64>,
    pub(crate) bytes: Option<i64>,
    pub(crate) shared_memory: Option<i64>,
    /// Array of three numbers; the same for `block`.
    pub(crate) grid: Option<&'b [u8]>,
    pub(crate) block: Option<&'b [u8]>,
    /// Name or labels in a metadata event.
    pub(crate) name: Option<&'b [u8]>,
    pub(crate) labels: Option<&'b [u8]>,
    pub(crate) collective: CollectiveArgs<'b>,
}

/// The parameters of a collective.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CollectiveArgs<'b> {
    pub(crate) name: Option<&'b [u8]>,
    pub(crate) elements: Option<&'b [u8]>,
    pub(crate) datatype: Option<&'b [u8]>,
    pub(crate) group: Option<&'b [u8]>,
    pub(crate) ranks: Option<&'b [u8]>,
    pub(crate) group_size: Option<&'b [u8]>,
    pub(crate) sequence: Option<&'b [u8]>,
    /// `Input Dims` and `Input type`: arrays with one element per input.
    pub(crate) dims: Option<&'b [u8]>,
    pub(crate) types: Option<&'b [u8]>,
}

impl<'b> TraceEvent<'b> {
    /// Reads the event at the start of the bytes; returns the event and its length in bytes.
    #[inline]
    pub(crate) fn read(bytes: &'b [u8]) -> Result<(TraceEvent<'b>, usize), ScanStop> {
        let mut cursor = JsonCursor::new(bytes);
        let mut event = TraceEvent { dur: Some(0), ..TraceEvent::default() };
        cursor.enter()?;
        let mut first = true;
        while let Some(name) = cursor.member(&mut first)? {
            if name == b"args" && cursor.peek()? == b'{' {
                event.args = EventArgs::read(bytes, &mut cursor)?;
                continue;
            }
            let value = cursor.value()?;
            match name {
                b"ph" => {
                    event.phase = match value {
                        JsonValue::Text(&[phase]) => phase,
                        _ => 0,
                    }
                }
                b"name" => event.name = value.plain().unwrap_or_default(),
                b"cat" => event.category = value.plain(),
                b"pid" => event.pid = EventPlace::of(value),
                b"tid" => event.tid = EventPlace::of(value),
                b"ts" => event.ts = value.plain().and_then(nanoseconds),
                b"dur" => event.dur = value.plain().and_then(nanoseconds),
                b"id" => event.id = value.plain().unwrap_or_default(),
                _ => {}
            }
        }
        Ok((event, cursor.at()))
    }
}

impl<'b> EventArgs<'b> {
    fn read(bytes: &'b [u8], cursor: &mut JsonCursor<'b>) -> Result<EventArgs<'b>, ScanStop> {
        let begin = cursor.at();
        let mut args = EventArgs::default();
        cursor.enter()?;
        let mut first = true;
        while let Some(name) = cursor.member(&mut first)? {
            let value = cursor.value()?;
            args.take(name, value);
        }
        args.all = bytes.get(begin..cursor.at());
        Ok(args)
    }

    #[inline]
    fn take(&mut self, name: &[u8], value: JsonValue<'b>) {
        let plain = value.plain();
        let number = || plain.and_then(integer);
        let array = || match value {
            JsonValue::Array(array) => Some(array),
            _ => None,
        };
        match name {
            b"External id" | b"external id" => self.external = number(),
            b"correlation" => self.correlation = number(),
            b"stream" => self.stream = number(),
            b"device" => self.device = number(),
            b"bytes" => self.bytes = number(),
            b"shared memory" => self.shared_memory = number(),
            b"grid" => self.grid = array(),
            b"block" => self.block = array(),
            b"name" => self.name = plain,
            b"labels" => self.labels = plain,
            b"Input Dims" => self.collective.dims = array(),
            b"Input type" => self.collective.types = array(),
            b"Collective name" => self.collective.name = plain,
            b"In msg nelems" => self.collective.elements = plain,
            b"dtype" => self.collective.datatype = plain,
            b"Process Group Name" => self.collective.group = plain,
            b"Process Group Ranks" | b"Ranks" => self.collective.ranks = plain.or(array()),
            b"Group size" => self.collective.group_size = plain,
            b"Seq" => self.collective.sequence = plain,
            _ => {}
        }
    }
}

/// Returns the three numbers of a size; missing numbers are 1.
pub(crate) fn sizes(array: Option<&[u8]>) -> [i64; 3] {
    let mut sizes = [1; 3];
    let values = elements(array.unwrap_or_default()).map(|value| value.plain().and_then(integer));
    for (size, value) in sizes.iter_mut().zip(values) {
        *size = value.filter(|value| *value >= 0).unwrap_or(1);
    }
    if array.is_none() { [0; 3] } else { sizes }
}
