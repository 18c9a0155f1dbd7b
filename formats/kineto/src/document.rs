//! Reads the whole file as a stream: top-level members in any order, and events one by one. Unneeded members are
//! skipped without being kept, whatever their length or depth.

use crate::cursor::{JsonCursor, JsonValue, ScanStop};
use crate::event::TraceEvent;
use crate::facts::is_fact;
use crate::input::JsonInput;
use rpd_translator::TranslateError;

/// Maximum length in bytes of an event, and of a top-level member that is examined.
pub(crate) const MAX_VALUE: usize = 16 << 20;

/// An item that the walk over a file found.
pub(crate) enum TraceItem<'b> {
    /// A relevant top-level member: name and value.
    Fact(&'b [u8], JsonValue<'b>),
    /// A relevant top-level member that cannot be used: its name and the reason.
    UnusedFact(&'b [u8], &'static str),
    /// The events begin.
    Events {
        /// The events are the whole document, as torch without Kineto writes it.
        bare: bool,
    },
    /// An event: its offset in the file, and its contents.
    Event(u64, &'b TraceEvent<'b>),
    /// A malformed element of the events: offset and reason.
    Broken {
        at: u64,
        why: &'static str,
        /// Whether only this element is lost. Otherwise an unknown number of elements up to the next well-formed
        /// one is lost.
        alone: bool,
    },
    /// An event of more than [`MAX_VALUE`] bytes, at this offset.
    TooLong(u64),
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct WalkResult {
    /// Offset at which the walk could not continue, and the reason.
    pub(crate) damage: Option<(u64, String)>,
    /// Offset of the end of a complete document, and the unexpected data after it.
    pub(crate) trailing: Option<(u64, TrailingData)>,
    /// Whether the file has a list of events, even an empty one.
    pub(crate) has_events: bool,
}

/// Unexpected data after the document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TrailingData {
    /// Number of bytes after the document that are not only white space. They were all read.
    Bytes(u64),
    /// The compressed file could not be read to its end, for this reason: its checksum is wrong or missing, or the
    /// following bytes are not a gzip member.
    Packing(String),
}

/// Number of offsets that are tried after malformed JSON, and bytes of an event that are examined there.
const MAX_TRIES: usize = 1000;
const TRIED_BYTES: usize = 64 << 10;

/// The parts of the file that a walk reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkDepth {
    Everything,
    /// Events are skipped.
    FactsOnly,
}

/// Walks over a file and passes each item to `take`.
pub(crate) fn walk(
    input: &mut JsonInput,
    depth: WalkDepth,
    take: &mut impl FnMut(TraceItem<'_>) -> Result<(), TranslateError>,
) -> Result<WalkResult, TranslateError> {
    let mut result = WalkResult::default();
    input.pass_mark();
    match document(input, depth, &mut result, take) {
        Err(WalkStop::Reader(error)) => return Err(error),
        Err(WalkStop::Damage(at, why)) => {
            result.damage = Some((at, input.damage().unwrap_or(why).to_owned()));
        }
        Ok(()) if depth == WalkDepth::Everything => result.trailing = trailing_data(input),
        Ok(()) => {}
    }
    Ok(result)
}

/// Reads the data after the document. The checksum of a compressed file is at its end.
fn trailing_data(input: &mut JsonInput) -> Option<(u64, TrailingData)> {
    let end = input.offset();
    let first = input.peek().map(|_| input.offset());
    while input.more() {
        input.pass(input.bytes().len());
    }
    let packing = input.damage().map(|why| (end, TrailingData::Packing(why.to_owned())));
    packing.or_else(|| first.map(|at| (at, TrailingData::Bytes(input.end() - at))))
}

/// The reason why a walk ended too early.
pub(crate) enum WalkStop {
    /// Offset, and what is wrong there.
    Damage(u64, &'static str),
    /// The items could not be taken.
    Reader(TranslateError),
}

impl From<TranslateError> for WalkStop {
    fn from(error: TranslateError) -> WalkStop {
        WalkStop::Reader(error)
    }
}

const CUT_OFF: &str = "the file ends too early";

fn document(
    input: &mut JsonInput,
    depth: WalkDepth,
    result: &mut WalkResult,
    take: &mut impl FnMut(TraceItem<'_>) -> Result<(), TranslateError>,
) -> Result<(), WalkStop> {
    match input.peek() {
        Some(b'[') => {
            result.has_events = true;
            take(TraceItem::Events { bare: true })?;
            return events(input, depth, take);
        }
        Some(b'{') => input.pass(1),
        Some(_) => return Err(WalkStop::Damage(0, "expected an object or an array")),
        None => return Err(WalkStop::Damage(0, "the file is empty")),
    }
    let (mut name, mut is_first) = (Vec::new(), true);
    while next_member(input, &mut is_first, &mut name)? {
        let begin = input.offset();
        if name == b"traceEvents" && input.peek() == Some(b'[') {
            result.has_events = true;
            take(TraceItem::Events { bare: false })?;
            events(input, depth, take)?;
        } else if is_fact(&name) {
            fact(input, &name, take)?;
        } else if !input.pass_value() {
            let why = if input.peek().is_some() { "expected a value" } else { CUT_OFF };
            return Err(WalkStop::Damage(begin, why));
        }
    }
    Ok(())
}

/// Reads up to the value of the next top-level member; returns false after the last one. `is_first` is true until a
/// member was read.
pub(crate) fn next_member(
    input: &mut JsonInput,
    is_first: &mut bool,
    name: &mut Vec<u8>,
) -> Result<bool, WalkStop> {
    match input.peek() {
        None => return Err(WalkStop::Damage(input.offset(), CUT_OFF)),
        Some(b'}') => {
            input.pass(1);
            return Ok(false);
        }
        Some(b',') if !*is_first => input.pass(1),
        Some(_) if *is_first => {}
        Some(_) => return Err(WalkStop::Damage(input.offset(), "expected a comma")),
    }
    *is_first = false;
    let begin = input.offset();
    member_name(input, name).map_err(|why| WalkStop::Damage(begin, why))?;
    Ok(true)
}

/// Passes a relevant member to `take`. Skips a member that is too long or nested too deeply, and returns the
/// reason. Returns an error if the value has no end.
fn fact(
    input: &mut JsonInput,
    name: &[u8],
    take: &mut impl FnMut(TraceItem<'_>) -> Result<(), TranslateError>,
) -> Result<(), WalkStop> {
    let begin = input.offset();
    let why = match whole_value(input) {
        Whole::Length(length) => {
            if let Ok(value) = JsonCursor::new(input.bytes()).value() {
                take(TraceItem::Fact(name, value))?;
            }
            input.pass(length);
            return Ok(());
        }
        Whole::Cut => return Err(WalkStop::Damage(begin, CUT_OFF)),
        Whole::Bad(why) => why,
        Whole::TooLong => "it has more than 16 MiB",
    };
    take(TraceItem::UnusedFact(name, why))?;
    if input.pass_value() { Ok(()) } else { Err(WalkStop::Damage(begin, why)) }
}

/// Reads the name of a top-level member, up to its value.
fn member_name(input: &mut JsonInput, name: &mut Vec<u8>) -> Result<(), &'static str> {
    loop {
        let mut cursor = JsonCursor::new(input.bytes());
        let read = cursor.string().and_then(|text| {
            let is_colon = cursor.peek()? == b':';
            is_colon.then_some(text).ok_or(ScanStop::Bad(cursor.at(), "expected a colon"))
        });
        match read {
            Ok(text) => {
                name.clear();
                name.extend_from_slice(text);
                let length = cursor.at() + 1;
                input.pass(length);
                return Ok(());
            }
            Err(ScanStop::Bad(_, why)) => return Err(why),
            Err(ScanStop::More) => {}
        }
        if input.bytes().len() >= MAX_VALUE || !input.more() {
            return Err(CUT_OFF);
        }
    }
}

enum Whole {
    Length(usize),
    Bad(&'static str),
    TooLong,
    Cut,
}

/// Reads until the next value is complete in the buffer.
fn whole_value(input: &mut JsonInput) -> Whole {
    loop {
        let mut cursor = JsonCursor::new(input.bytes());
        match cursor.value() {
            Ok(_) => return Whole::Length(cursor.at()),
            Err(ScanStop::Bad(_, why)) => return Whole::Bad(why),
            Err(ScanStop::More) => {}
        }
        if input.bytes().len() >= MAX_VALUE {
            return Whole::TooLong;
        }
        if !input.more() {
            return Whole::Cut;
        }
    }
}

/// Reads the events, starting at their opening bracket.
fn events(
    input: &mut JsonInput,
    depth: WalkDepth,
    take: &mut impl FnMut(TraceItem<'_>) -> Result<(), TranslateError>,
) -> Result<(), WalkStop> {
    let begin = input.offset();
    if depth == WalkDepth::FactsOnly {
        return if input.pass_value() { Ok(()) } else { Err(WalkStop::Damage(begin, CUT_OFF)) };
    }
    input.pass(1);
    if input.peek() == Some(b']') {
        input.pass(1);
        return Ok(());
    }
    loop {
        if input.peek().is_none() {
            return Err(WalkStop::Damage(input.offset(), CUT_OFF));
        }
        let begin = input.offset();
        let read = match TraceEvent::read(input.bytes()) {
            Ok((event, length)) => {
                take(TraceItem::Event(begin, &event))?;
                Ok(length)
            }
            Err(stop) => Err(stop),
        };
        match read {
            Ok(length) => input.pass(length),
            Err(ScanStop::More) if input.bytes().len() >= MAX_VALUE => {
                take(TraceItem::TooLong(begin))?;
                if !input.pass_value() {
                    return Err(WalkStop::Damage(begin, CUT_OFF));
                }
            }
            Err(ScanStop::More) if input.more() => continue,
            Err(ScanStop::More) => return Err(WalkStop::Damage(begin, CUT_OFF)),
            Err(ScanStop::Bad(place, why)) => {
                let at = begin + place as u64;
                match leave(input) {
                    Left::After => take(TraceItem::Broken { at, why, alone: true })?,
                    Left::Before => {
                        take(TraceItem::Broken { at, why, alone: false })?;
                        continue;
                    }
                    Left::Nowhere => return Err(WalkStop::Damage(at, why)),
                }
            }
        }
        match input.peek() {
            None => return Err(WalkStop::Damage(input.offset(), CUT_OFF)),
            Some(b',') => input.pass(1),
            Some(b']') => {
                input.pass(1);
                return Ok(());
            }
            Some(_) => {
                return Err(WalkStop::Damage(input.offset(), "expected a comma or the end of the events"));
            }
        }
    }
}

/// Position of the walk after it has left malformed JSON.
enum Left {
    /// After the malformed element.
    After,
    /// Before a well-formed event.
    Before,
    Nowhere,
}

/// Leaves a malformed element: at its closing bracket, or else at the next well-formed event.
fn leave(input: &mut JsonInput) -> Left {
    if let Whole::Length(length) = whole_value(input) {
        let mut following = JsonCursor::new(input.bytes().get(length..).unwrap_or_default());
        if matches!(following.peek(), Ok(b',' | b']')) {
            input.pass(length);
            return Left::After;
        }
    }
    input.pass(1);
    let mut tries = 0;
    while tries < MAX_TRIES {
        // An event follows a comma; its args follow a colon.
        let bytes = input.bytes();
        let comma = bytes.iter().position(|byte| *byte == b',');
        let Some(comma) = comma else {
            let all = bytes.len();
            input.pass(all);
            if input.more() {
                continue;
            }
            return Left::Nowhere;
        };
        input.pass(comma + 1);
        while input.bytes().len() < TRIED_BYTES && input.more() {}
        let bytes = input.bytes();
        let mut cursor = JsonCursor::new(bytes.get(..TRIED_BYTES.min(bytes.len())).unwrap_or_default());
        if cursor.peek() != Ok(b'{') {
            continue;
        }
        tries += 1;
        let space = cursor.at();
        let tried = bytes.get(space..TRIED_BYTES.min(bytes.len())).unwrap_or_default();
        if TraceEvent::read(tried).is_ok_and(|(event, _)| event.phase != 0) {
            input.pass(space);
            return Left::Before;
        }
    }
    Left::Nowhere
}
