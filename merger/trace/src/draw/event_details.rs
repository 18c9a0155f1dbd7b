//! Reads the details of a unit's events: category, message, call stack, args and counter values. It reads as
//! many events at once as fit into memory.

use super::arg_values::StoredValue;
use super::call_stacks::CallStacks;
use super::event_ids::EventIds;
use super::extdata::{ArgRange, ExtdataArgs, parse_extdata};
use super::placement::RowSpans;
use super::recorded_flows::RecordedEnd;
use super::string_texts::StringTexts;
use super::survey::PieceSeen;
use super::text_columns::{KnownValues, add_text, each_text};
use super::unit_source::UnitSource;
use crate::item::{FlowEnd, TextId, UnitDictionary};
use rpd_console::Failure;
use rpd_perfetto::CounterValue;
use rpd_run::RunTables;
use rpd_shard::model::{Value, rocpd};

/// Estimated minimum memory of an event with its args, bytes.
const BYTES_PER_EVENT: u64 = 512;
/// Minimum number of events at once.
const MIN_EVENTS: u64 = 1 << 14;
/// Maximum number of events at once.
const MAX_EVENTS: u64 = 1 << 20;
/// Bytes that the args of one piece of events may always use.
const MIN_ARG_BYTES: u64 = 256 << 20;

/// Events that are processed together. The chunks of a unit divide all ids, so that each row belongs to exactly
/// one chunk, even if its event is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EventChunk {
    /// Pieces of the events.
    pub(super) pieces: Vec<usize>,
    /// First id.
    first: i64,
    /// First id after the chunk.
    next: Option<i64>,
}

impl EventChunk {
    /// Returns whether a row with this event belongs to the chunk. Rows without an event belong to the first
    /// chunk.
    #[inline]
    pub(super) fn contains(&self, event: Option<i64>) -> bool {
        let id = event.unwrap_or(i64::MIN);
        self.first <= id && self.next.is_none_or(|next| id < next)
    }

    /// Returns whether the chunk can be [split](EventChunk::split).
    fn is_divisible(&self) -> bool {
        self.pieces.len() > 1
    }

    /// Splits a chunk with several pieces into two halves.
    pub(super) fn split(&self, tables: &RunTables) -> Result<[EventChunk; 2], Failure> {
        let (first, second) = self.pieces.split_at(self.pieces.len() / 2);
        let boundary = second.first().map_or(Ok(i64::MAX), |piece| tables.first_id(rocpd::EVENT, *piece))?;
        if boundary <= self.first || self.next.is_some_and(|next| next <= boundary) {
            return Err(tables.descending_ids(rocpd::EVENT));
        }
        Ok([
            EventChunk { pieces: first.to_vec(), first: self.first, next: Some(boundary) },
            EventChunk { pieces: second.to_vec(), first: boundary, next: self.next },
        ])
    }

    /// Returns whether a piece may have rows of the chunk.
    pub(super) fn touches(&self, piece: &PieceSeen) -> bool {
        self.first <= piece.events.1 && self.next.is_none_or(|next| piece.events.0 < next)
    }
}

/// Returns the chunks of a unit, ascending; at least one.
pub(super) fn event_chunks(source: &UnitSource<'_>) -> Result<Vec<EventChunk>, Failure> {
    let (tables, unit) = (source.tables(), source.unit);
    let max_events = (source.memory / 2 / BYTES_PER_EVENT).clamp(MIN_EVENTS, MAX_EVENTS);
    let mut chunks = vec![EventChunk { pieces: Vec::new(), first: i64::MIN, next: None }];
    let mut events = 0;
    for piece in tables.pieces_with(rocpd::EVENT, unit.ids(rocpd::EVENT))? {
        let rows = tables.row_count(rocpd::EVENT, piece);
        let boundary = tables.first_id(rocpd::EVENT, piece)?;
        if events > 0 && events + rows > max_events {
            if let Some(last) = chunks.last_mut() {
                if boundary <= last.first {
                    return Err(tables.descending_ids(rocpd::EVENT));
                }
                last.next = Some(boundary);
            }
            chunks.push(EventChunk { pieces: Vec::new(), first: boundary, next: None });
            events = 0;
        }
        events += rows;
        if let Some(last) = chunks.last_mut() {
            last.pieces.push(piece);
        }
    }
    Ok(chunks)
}

/// The events of a chunk.
#[derive(Debug, Default)]
pub(super) struct EventDetails {
    ids: EventIds,
    pub(super) categories: Vec<TextId>,
    pub(super) messages: Vec<TextId>,
    /// Number of the call stack plus 1; 0 for none. Empty if no event has one.
    stacks: Vec<u32>,
    /// Ends of flows that args store.
    flow_ends: ByEvent<FlowEnd>,
    pub(super) args: EventArgs,
    values: ByEvent<StoredCount>,
}

/// A counter value.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredCount {
    /// Index of the track; `None` if counters are not requested.
    pub(super) track: Option<u32>,
    pub(super) value: CounterValue,
}

/// A value with the index of its event in the chunk, and its position among the values of that event.
#[derive(Clone, Copy, Debug)]
struct Placed<T> {
    event: u32,
    position: i32,
    value: T,
}

/// Values by event.
#[derive(Debug)]
struct ByEvent<T> {
    all: Vec<Placed<T>>,
    /// Index of the first value of each event, and the total number. Empty if there are no values.
    firsts: Vec<u32>,
}

impl<T> Default for ByEvent<T> {
    fn default() -> ByEvent<T> {
        ByEvent { all: Vec::new(), firsts: Vec::new() }
    }
}

impl<T: Copy> ByEvent<T> {
    /// Sorts the values after all are added.
    fn sort(&mut self, events: usize) {
        let order = |placed: &Placed<T>| (placed.event, placed.position);
        if !self.all.is_sorted_by_key(order) {
            self.all.sort_by_key(order);
        }
        self.firsts.clear();
        if self.all.is_empty() {
            return;
        }
        let mut next = self.all.iter().map(|placed| placed.event).enumerate().peekable();
        for event in 0..=events as u32 {
            while next.next_if(|(_, of)| *of < event).is_some() {}
            self.firsts.push(next.peek().map_or(self.all.len(), |(place, _)| *place) as u32);
        }
    }

    #[inline]
    fn of(&self, event: u32) -> &[Placed<T>] {
        let event = event as usize;
        match self.firsts.get(event..event.saturating_add(2)) {
            Some([first, next]) => self.all.get(*first as usize..*next as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// The args of a chunk.
#[derive(Debug, Default)]
pub(super) struct EventArgs {
    by_event: ByEvent<(TextId, StoredValue)>,
    in_extdata: ExtdataArgs,
    /// The texts of [`StoredValue::Text`].
    texts: String,
}

impl EventArgs {
    #[inline]
    pub(super) fn of(&self, event: u32) -> impl Iterator<Item = (TextId, crate::item::ArgValue<'_>)> {
        let rows = self.by_event.of(event).iter().map(|arg| arg.value);
        let all = rows.chain(self.in_extdata.of(event).iter().copied());
        all.map(|(name, value)| (name, value.arg_value(&self.texts)))
    }
}

/// Counts from reading events.
#[derive(Debug, Default)]
pub(super) struct CountedEvents {
    pub(super) mended: u64,
    /// Strings that were not UTF-8, counted when they are first used.
    pub(super) mended_strings: u64,
    pub(super) cut_stacks: u64,
    /// Counter values that are not numbers.
    pub(super) no_numbers: u64,
    /// Args, values and ends of flows that belong to no event.
    pub(super) stray_args: u64,
    pub(super) stray_values: u64,
    pub(super) stray_flow_ends: u64,
    /// Args without ends of flows.
    pub(super) args: u64,
    /// Args in extdata, if args are not requested.
    pub(super) args_in_extdata: u64,
    pub(super) values: u64,
    pub(super) flow_ends: u64,
}

impl EventDetails {
    /// Reads a chunk. Returns `None` if its args and counter values do not fit into memory and it can be split.
    pub(super) fn read(
        source: &UnitSource<'_>,
        chunk: &EventChunk,
        strings: &mut StringTexts<'_>,
        stacks: &mut CallStacks,
        dictionary: &mut UnitDictionary,
        counted: &mut CountedEvents,
    ) -> Result<Option<EventDetails>, Failure> {
        let mut events = EventDetails::default();
        let (tables, unit) = (source.tables(), source.unit);
        let wanted = &["category_id", "call_stack", "extdata"];
        let ids = unit.ids(rocpd::EVENT);
        tables.read_pieces(rocpd::EVENT, &chunk.pieces, ids, wanted, &mut |_, rows, places| {
            places.clone().for_each(|i| events.ids.push(rows.keys.get(i)));
            let categories = rows.column("category_id");
            for i in places.clone() {
                let category =
                    strings.text(categories.int(i), &mut dictionary.texts, &mut counted.mended_strings);
                events.categories.push(category);
            }
            let EventArgs { in_extdata: ExtdataArgs { all, of_events }, texts, .. } = &mut events.args;
            let parse = |text: &[u8]| {
                let args = source.asked.args.then_some((&mut *all, &mut *texts));
                parse_extdata(text, dictionary, &mut counted.mended, args)
            };
            let none = (TextId(0), ArgRange::default());
            each_text(rows.column("extdata"), places.clone(), none, parse, |(id, args)| {
                if !source.asked.args {
                    counted.args_in_extdata += u64::from(args.1);
                } else if args.0 < args.1 {
                    of_events.resize(events.messages.len(), ArgRange::default());
                    of_events.push(args);
                }
                events.messages.push(id);
            });
            let before = events.categories.len() - places.len();
            let mut at = before;
            let call_stack = |text: &[u8]| stacks.stack_number(text, dictionary, counted);
            each_text(rows.column("call_stack"), places, 0, call_stack, |stack| {
                if stack > 0 {
                    events.stacks.resize(at, 0);
                    events.stacks.push(stack);
                }
                at += 1;
            });
            Ok(())
        })?;
        let fits = events.read_args(source, chunk, dictionary, counted)?
            && events.read_values(source, chunk, counted)?;
        Ok(fits.then_some(events))
    }

    /// Returns the index of an event.
    #[inline]
    pub(super) fn find(&self, id: Option<i64>) -> Option<u32> {
        self.ids.find(id?).map(|place| place as u32)
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of an event's call stack.
    #[inline]
    pub(super) fn stack(&self, event: u32) -> Option<u32> {
        self.stacks.get(event as usize)?.checked_sub(1)
    }

    /// Returns the counter values of an event.
    #[inline]
    pub(super) fn values(&self, event: u32) -> impl Iterator<Item = StoredCount> {
        self.values.of(event).iter().map(|placed| placed.value)
    }

    /// Returns the numbers of rows of an event: args, counter values, and args that are ends of flows.
    pub(super) fn attached(&self, event: u32) -> [u64; 3] {
        let args = self.args.by_event.of(event).len();
        [args, self.values.of(event).len(), self.flow_ends.of(event).len()].map(|rows| rows as u64)
    }

    /// Returns whether an event has counter values.
    pub(super) fn has_values(&self, event: u32) -> bool {
        !self.values.of(event).is_empty()
    }

    /// Returns the ends of flows that an event stores.
    #[inline]
    pub(super) fn flow_ends(&self, event: u32) -> impl Iterator<Item = FlowEnd> {
        self.flow_ends.of(event).iter().map(|placed| placed.value)
    }

    /// Returns whether an event has args, as rows or in its extdata.
    pub(super) fn has_args(&self, event: u32) -> bool {
        self.args.of(event).next().is_some()
    }

    /// Reads the args. Returns `false` if they exceed the memory and the chunk can be split.
    fn read_args(
        &mut self,
        source: &UnitSource<'_>,
        chunk: &EventChunk,
        dictionary: &mut UnitDictionary,
        counted: &mut CountedEvents,
    ) -> Result<bool, Failure> {
        let asked = source.asked;
        let needed = ["comm", "seq", "collective"].map(|name| dictionary.texts.add(name));
        let ids = source.unit.ids(rocpd::ARG);
        let wanted = &["event_id", "position", "type", "name", "value"];
        // Args that are not requested are read, too, because they are counted.
        let pieces =
            piece_numbers(source.seen.pieces(rocpd::ARG).iter().filter(|piece| chunk.touches(piece)));
        let mut fits = true;
        source.tables().read_pieces(rocpd::ARG, &pieces, ids, wanted, &mut |_, rows, places| {
            if !fits {
                return Ok(());
            }
            let spans = RowSpans::of(rocpd::ARG, rows, &source.placing);
            let (positions, values) = (rows.column("position"), rows.column("value"));
            let mut names = Vec::with_capacity(places.len());
            let name = |text: &[u8]| add_text(text, &mut dictionary.texts, &mut counted.mended);
            each_text(rows.column("name"), places.clone(), TextId(0), name, |id| names.push(id));
            let mut known = KnownValues::of(values, places.clone());
            let mut ends = Vec::with_capacity(places.len());
            each_text(rows.column("type"), places.clone(), None, RecordedEnd::of_type, |end| ends.push(end));
            for ((i, name), end) in places.zip(names).zip(ends) {
                let event = spans.event(i);
                if !chunk.contains(event) {
                    continue;
                }
                let (count, strays) = match end {
                    None => (&mut counted.args, &mut counted.stray_args),
                    Some(_) => (&mut counted.flow_ends, &mut counted.stray_flow_ends),
                };
                *count += 1;
                let Some(event) = self.find(event) else {
                    *strays += 1;
                    continue;
                };
                let position = positions.int(i).unwrap_or(0).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                if let Some(end) = end {
                    let value = end.numbered(source.place, dictionary.texts.get(name), values.get(i));
                    self.flow_ends.all.push(Placed { event, position, value });
                    continue;
                }
                let is_needed = asked.collectives && needed.contains(&name);
                if !asked.args && !is_needed {
                    continue;
                }
                let value =
                    known.stored_value(values, i, dictionary, &mut self.args.texts, &mut counted.mended);
                self.args.by_event.all.push(Placed { event, position, value: (name, value) });
            }
            fits = self.check_memory(source, chunk)?;
            Ok(())
        })?;
        self.args.by_event.sort(self.ids.len());
        self.flow_ends.sort(self.ids.len());
        Ok(fits)
    }

    /// Reads the counter values. Returns `false` if they exceed the memory and the chunk can be split.
    fn read_values(
        &mut self,
        source: &UnitSource<'_>,
        chunk: &EventChunk,
        counted: &mut CountedEvents,
    ) -> Result<bool, Failure> {
        let ids = source.unit.ids(rocpd::PMC_EVENT);
        let wanted = &["event_id", "pmc_id", "value"];
        let pieces =
            piece_numbers(source.seen.pieces(rocpd::PMC_EVENT).iter().filter(|piece| chunk.touches(piece)));
        let mut fits = true;
        source.tables().read_pieces(rocpd::PMC_EVENT, &pieces, ids, wanted, &mut |_, rows, places| {
            if !fits {
                return Ok(());
            }
            let spans = RowSpans::of(rocpd::PMC_EVENT, rows, &source.placing);
            let values = rows.column("value");
            for i in places {
                let event = spans.event(i);
                if !chunk.contains(event) {
                    continue;
                }
                counted.values += 1;
                let Some(event) = self.find(event) else {
                    counted.stray_values += 1;
                    continue;
                };
                let value = match values.get(i) {
                    Value::Int(value) => CounterValue::Int(value),
                    Value::Real(value) => CounterValue::Double(value),
                    _ => {
                        counted.no_numbers += 1;
                        CounterValue::Double(f64::NAN)
                    }
                };
                let key = source.placing.track_key(&spans, i);
                let track = source.seen.tracks.get(&key).copied().filter(|_| source.asked.values);
                let value = StoredCount { track, value };
                self.values.all.push(Placed { event, position: 0, value });
            }
            fits = self.check_memory(source, chunk)?;
            Ok(())
        })?;
        self.values.sort(self.ids.len());
        Ok(fits)
    }

    /// Returns whether the details fit into memory, or the chunk must be split. A single piece of events may use
    /// more memory, because it cannot be split.
    fn check_memory(&self, source: &UnitSource<'_>, chunk: &EventChunk) -> Result<bool, Failure> {
        let of = |count: usize, size: usize| (count as u64).saturating_mul(size as u64);
        let args = of(self.args.by_event.all.len(), size_of::<Placed<(TextId, StoredValue)>>());
        let values = of(self.values.all.len(), size_of::<Placed<StoredCount>>());
        let arrows = of(self.flow_ends.all.len(), size_of::<Placed<FlowEnd>>());
        let ExtdataArgs { all, of_events } = &self.args.in_extdata;
        let in_extdata =
            of(all.len(), size_of::<(TextId, StoredValue)>()) + of(of_events.len(), size_of::<ArgRange>());
        let bytes = args + in_extdata + values + arrows + self.args.texts.len() as u64;
        let min_bytes = if chunk.is_divisible() { 0 } else { MIN_ARG_BYTES };
        if bytes <= source.memory.max(min_bytes) && self.args.texts.len() < u32::MAX as usize {
            return Ok(true);
        }
        if chunk.is_divisible() {
            return Ok(false);
        }
        let few = format_args!(
            "{} events have {} MiB of args; leave them out with --no-annotations",
            self.len(),
            bytes >> 20
        );
        Err(source.tables().failure(few))
    }
}

/// Returns the numbers of these pieces.
fn piece_numbers<'a>(seen: impl Iterator<Item = &'a PieceSeen>) -> Vec<usize> {
    seen.map(|piece| piece.piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_event() {
        let mut values = ByEvent::default();
        let placed = |event, position, value| Placed { event, position, value };
        values.all = vec![placed(2, 1, 'c'), placed(0, 0, 'a'), placed(2, 0, 'b'), placed(2, 1, 'd')];
        values.sort(4);
        let of = |event| values.of(event).iter().map(|placed| placed.value).collect::<String>();
        assert_eq!([0, 1, 2, 3, 4, 9].map(of), ["a", "", "bcd", "", "", ""]);
        let mut none: ByEvent<char> = ByEvent::default();
        none.sort(3);
        assert!(none.of(0).is_empty());
    }
}
