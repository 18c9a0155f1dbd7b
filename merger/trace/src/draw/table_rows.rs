//! Draws the rows of each table.

use super::allocations::AllocationChange;
use super::arg_values::push_hex;
use super::event_details::{EventChunk, EventDetails};
use super::placement::{RowSpans, StackLevel, TrackPlace};
use super::text_columns::each_text;
use super::unit::{DrawnTable, UnitDrawer};
use crate::item::{ArgValue, ItemArg, TextId};
use rpd_console::Failure;
use rpd_shard::model::{Cells, Local, Rows, TableId, Value, rocpd};
use std::ops::Range;

const REGION: &[&str] = &["pid", "tid", "start", "end", "name_id", "event_id", "extdata"];
const SAMPLE: &[&str] = &["track_id", "timestamp", "event_id"];
const DISPATCH: &[&str] = &[
    "pid",
    "agent_id",
    "kernel_id",
    "dispatch_id",
    "queue_id",
    "stream_id",
    "start",
    "end",
    "private_segment_size",
    "group_segment_size",
    "workgroup_size_x",
    "workgroup_size_y",
    "workgroup_size_z",
    "grid_size_x",
    "grid_size_y",
    "grid_size_z",
    "region_name_id",
    "event_id",
];
const COPY: &[&str] = &[
    "pid",
    "start",
    "end",
    "name_id",
    "dst_agent_id",
    "src_agent_id",
    "size",
    "queue_id",
    "stream_id",
    "region_name_id",
    "event_id",
];
const ALLOCATE: &[&str] = &[
    "pid",
    "agent_id",
    "type",
    "level",
    "start",
    "end",
    "address",
    "size",
    "queue_id",
    "stream_id",
    "event_id",
];

/// Returns the columns that are needed to draw a table.
pub(super) fn wanted(table: TableId) -> &'static [&'static str] {
    match table {
        rocpd::REGION => REGION,
        rocpd::SAMPLE => SAMPLE,
        rocpd::KERNEL_DISPATCH => DISPATCH,
        rocpd::MEMORY_COPY => COPY,
        _ => ALLOCATE,
    }
}

/// Rows, and the range of those to use.
pub(super) type TheseRows<'r> = (&'r Rows<Local>, Range<usize>);

/// Maximum number of args of one row, apart from recorded ones.
const ARGS: usize = 16;

impl UnitDrawer<'_, '_> {
    pub(super) fn regions(
        &mut self,
        (rows, places): TheseRows<'_>,
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let table = rocpd::REGION;
        let spans = RowSpans::of(table, rows, self.placing);
        let names = rows.column("name_id");
        let mut arrow = self.first_arrow(table, rows.keys.get(places.start));
        let open = open(rows.column("extdata"), places.clone());
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(ARGS);
        for i in places.clone() {
            let Some(row) = self.enter(table, &spans, i, chunk, events) else { continue };
            let name = self.string(names.int(i));
            args.clear();
            self.set_flows(table, rows.keys.get(i), &mut arrow);
            self.add_collective(&row, name, events);
            if self.annotates() {
                if row.message != TextId(0) && row.message != name {
                    args.push(known(self.words.call, name));
                }
                if open.get(i - places.start).is_some_and(|open| *open) {
                    args.push(ItemArg { name: self.words.open, value: ArgValue::Bool(true) });
                }
            }
            self.slice(&row, message_or(&row, name), &mut args, events)?;
        }
        Ok(())
    }

    pub(super) fn samples(
        &mut self,
        (rows, places): TheseRows<'_>,
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let table = rocpd::SAMPLE;
        let spans = RowSpans::of(table, rows, self.placing);
        let tracks = rows.column("track_id");
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(ARGS);
        for i in places {
            let Some(row) = self.enter(table, &spans, i, chunk, events) else { continue };
            let tracks_known = &self.placing.names.tracks;
            let track = tracks_known.place(tracks.int(i)).and_then(|place| tracks_known.at(place));
            let name = self.string(track.and_then(|(_, track)| track.name));
            args.clear();
            if self.annotates() && row.message != TextId(0) && row.message != name {
                args.push(known(self.words.track, name));
            }
            self.moment(&row, message_or(&row, name), &mut args, events)?;
        }
        Ok(())
    }

    pub(super) fn kernels(
        &mut self,
        (rows, places): TheseRows<'_>,
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let table = rocpd::KERNEL_DISPATCH;
        let spans = RowSpans::of(table, rows, self.placing);
        let column = |name| rows.column(name);
        let (kernels, dispatches) = (column("kernel_id"), column("dispatch_id"));
        let workgroup = ["workgroup_size_x", "workgroup_size_y", "workgroup_size_z"].map(column);
        let grid = ["grid_size_x", "grid_size_y", "grid_size_z"].map(column);
        let (queues, streams) = (column("queue_id"), column("stream_id"));
        let sizes = [column("group_segment_size"), column("private_segment_size")];
        let regions = column("region_name_id");
        let mut arrow = self.first_arrow(table, rows.keys.get(places.start));
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(ARGS);
        for i in places {
            let Some(row) = self.enter(table, &spans, i, chunk, events) else { continue };
            let kernel = self.kernels.place(kernels.int(i)).and_then(|place| self.kernels.at(place));
            let name = kernel.map_or(self.words.unknown, |(_, name)| *name);
            args.clear();
            self.set_flows(table, rows.keys.get(i), &mut arrow);
            if self.annotates() {
                for (word, of) in [(self.words.grid, grid), (self.words.workgroup, workgroup)] {
                    let sizes = of.map(|cells| cells.int(i).unwrap_or(0));
                    // Inputs without sizes store 0, because RocPD does not allow NULL here.
                    if sizes != [0; 3] {
                        args.push(known(word, self.words.sizes(sizes, &mut self.dictionary.texts)));
                    }
                }
                self.lanes((queues, streams), i, &mut args);
                number(self.words.dispatch, dispatches.get(i), &mut args);
                for (name, cells) in [self.words.lds, self.words.scratch].into_iter().zip(sizes) {
                    if cells.int(i) != Some(0) {
                        number(name, cells.get(i), &mut args);
                    }
                }
                self.region(regions, i, &mut args);
            }
            self.slice(&row, name, &mut args, events)?;
        }
        Ok(())
    }

    pub(super) fn copies(
        &mut self,
        (rows, places): TheseRows<'_>,
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let table = rocpd::MEMORY_COPY;
        let spans = RowSpans::of(table, rows, self.placing);
        let column = |name| rows.column(name);
        let (names, sizes) = (column("name_id"), column("size"));
        let (to, from) = (column("dst_agent_id"), column("src_agent_id"));
        let (queues, streams) = (column("queue_id"), column("stream_id"));
        let regions = column("region_name_id");
        let mut arrow = self.first_arrow(table, rows.keys.get(places.start));
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(ARGS);
        for i in places {
            let Some(row) = self.enter(table, &spans, i, chunk, events) else { continue };
            let name = self.string(names.int(i));
            args.clear();
            self.set_flows(table, rows.keys.get(i), &mut arrow);
            if self.annotates() {
                number(self.words.size, sizes.get(i), &mut args);
                for (name, agents) in [(self.words.src, from), (self.words.dst, to)] {
                    let agent = self.words.agent_at(self.placing.names.agents.place(agents.int(i)));
                    args.extend(agent.map(|agent| known(name, agent)));
                }
                self.lanes((queues, streams), i, &mut args);
                self.region(regions, i, &mut args);
            }
            self.slice(&row, name, &mut args, events)?;
        }
        Ok(())
    }

    pub(super) fn allocations(
        &mut self,
        (rows, places): TheseRows<'_>,
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let table = rocpd::MEMORY_ALLOCATE;
        let spans = RowSpans::of(table, rows, self.placing);
        let column = |name| rows.column(name);
        let (kinds, levels) = (column("type"), column("level"));
        let (addresses, sizes) = (column("address"), column("size"));
        let (queues, streams) = (column("queue_id"), column("stream_id"));
        let [mut names, mut known_levels] = [const { Vec::new() }; 2];
        each_text(
            kinds,
            places.clone(),
            self.words.unknown,
            |text| self.known_text(text),
            |id| names.push(id),
        );
        each_text(
            levels,
            places.clone(),
            TextId(0),
            |text| self.known_text(text),
            |id| known_levels.push(id),
        );
        let hex = Hex::of(addresses, places.clone());
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(ARGS);
        for (place, i) in places.enumerate() {
            let Some(row) = self.enter(table, &spans, i, chunk, events) else { continue };
            if let Some(change) = AllocationChange::of(kinds.get(i)) {
                let (level, times) = (StackLevel::of(levels.get(i)), (row.start, row.end));
                let bytes = sizes.int(i).unwrap_or(0);
                self.memory.add(row.key, level, change, times, addresses.int(i), bytes);
            }
            args.clear();
            self.clear_flows();
            if self.annotates() {
                number(self.words.size, sizes.get(i), &mut args);
                if let Some(address) = hex.at(place) {
                    args.push(ItemArg { name: self.words.address, value: ArgValue::Text(address) });
                }
                let level = known_levels.get(place).copied().filter(|level| *level != TextId(0));
                args.extend(level.map(|level| known(self.words.level, level)));
                if let (_, TrackPlace::Allocations(agent)) = row.key {
                    let agent = self.words.agent_at(agent);
                    args.extend(agent.map(|agent| known(self.words.agent, agent)));
                }
                self.lanes((queues, streams), i, &mut args);
            }
            let name = names.get(place).copied().unwrap_or_default();
            self.slice(&row, name, &mut args, events)?;
        }
        Ok(())
    }

    #[inline]
    fn string(&mut self, id: Option<i64>) -> TextId {
        self.strings.text(id, &mut self.dictionary.texts, &mut self.facts.mended)
    }

    /// Adds the queue and the stream of a row, with the names of their tracks.
    #[inline]
    fn lanes(&self, (queues, streams): (&Cells, &Cells), i: usize, args: &mut Vec<ItemArg<'_>>) {
        let (names, words) = (self.placing.names, &self.words);
        let queue = words.queue_at(names.queues.place(queues.int(i))).map(|name| known(words.queue, name));
        let stream =
            words.stream_at(names.streams.place(streams.int(i))).map(|name| known(words.stream, name));
        args.extend([queue, stream].into_iter().flatten());
    }

    /// Adds the region that launched a kernel or copy.
    #[inline]
    fn region(&mut self, regions: &Cells, i: usize, args: &mut Vec<ItemArg<'_>>) {
        let region = self.string(regions.int(i));
        if region != TextId(0) {
            args.push(known(self.words.region, region));
        }
    }
}

/// Returns the displayed name of a row: the message of its event, or else its own name.
fn message_or(row: &DrawnTable, name: TextId) -> TextId {
    if row.message == TextId(0) { name } else { row.message }
}

#[inline]
fn known(name: TextId, text: TextId) -> ItemArg<'static> {
    ItemArg { name, value: ArgValue::Known(text) }
}

/// Adds a number of a row, if it has one.
#[inline]
fn number(name: TextId, value: Value<'_>, args: &mut Vec<ItemArg<'_>>) {
    let value = match value {
        Value::Int(value) => ArgValue::Int(value),
        Value::Real(value) => ArgValue::Double(value),
        _ => return,
    };
    args.push(ItemArg { name, value });
}

/// Returns which regions were open when their process ended; empty if none was.
fn open(extdata: &Cells, places: Range<usize>) -> Vec<bool> {
    let is_open =
        |text: &[u8]| text.len() > 2 && text.windows(6).any(|part| part == b"\"open\"") && says_open(text);
    let mut open = Vec::new();
    let mut any = false;
    each_text(extdata, places, false, is_open, |is_open| {
        any |= is_open;
        open.push(is_open);
    });
    if any { open } else { Vec::new() }
}

/// Returns whether the extdata contains `{"rpd":{"open":true}}`.
fn says_open(extdata: &[u8]) -> bool {
    let json = serde_json::from_slice::<serde_json::Value>(extdata);
    json.is_ok_and(|json| json.pointer("/rpd/open").and_then(serde_json::Value::as_bool) == Some(true))
}

/// Addresses of rows as texts.
struct Hex {
    texts: String,
    ends: Vec<usize>,
}

impl Hex {
    fn of(addresses: &Cells, places: Range<usize>) -> Hex {
        let mut hex =
            Hex { texts: String::with_capacity(places.len() * 16), ends: Vec::with_capacity(places.len()) };
        for i in places {
            match addresses.get(i) {
                Value::Int(address) => push_hex(address.cast_unsigned(), &mut hex.texts),
                // Values above the range of `i64` are stored as floating point numbers.
                Value::Real(address) if address >= 0.0 => push_hex(address as u64, &mut hex.texts),
                _ => {}
            }
            hex.ends.push(hex.texts.len());
        }
        hex
    }

    fn at(&self, place: usize) -> Option<&str> {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.texts.get(start..*self.ends.get(place)?).filter(|text| !text.is_empty())
    }
}
