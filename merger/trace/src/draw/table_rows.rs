//! Draws the rows of each table.

use super::allocations::AllocationChange;
use super::arg_values::push_hex;
use super::event_details::{EventChunk, EventDetails};
use super::placement::{MemoryLevel, RowSpans, TrackPlace};
use super::row_to_item::DrawnRow;
use super::text_columns::{add_text, each_text};
use super::unit::UnitDrawer;
use super::unit_source::UnitSource;
use crate::item::{ArgValue, FlowEnd, ItemArg, TextId, table_place};
use rpd_console::Failure;
use rpd_shard::model::{Cells, Local, Rows, TableId, Value, rocpd};
use std::ops::Range;

const REGION_COLUMNS: &[&str] = &["pid", "tid", "start", "end", "name_id", "event_id", "extdata"];
const SAMPLE_COLUMNS: &[&str] = &["track_id", "timestamp", "event_id"];
const KERNEL_COLUMNS: &[&str] = &[
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
const COPY_COLUMNS: &[&str] = &[
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
const ALLOCATION_COLUMNS: &[&str] = &[
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
pub(super) fn drawn_columns(table: TableId) -> &'static [&'static str] {
    match table {
        rocpd::REGION => REGION_COLUMNS,
        rocpd::SAMPLE => SAMPLE_COLUMNS,
        rocpd::KERNEL_DISPATCH => KERNEL_COLUMNS,
        rocpd::MEMORY_COPY => COPY_COLUMNS,
        _ => ALLOCATION_COLUMNS,
    }
}

/// Rows of one table that are drawn, with the details of their events.
pub(super) struct ChunkRows<'r> {
    /// Index of the table in [`UnitFacts`](crate::item::UnitFacts).
    pub(super) facts: usize,
    rows: &'r Rows<Local>,
    /// Indices of the rows to use.
    places: Range<usize>,
    pub(super) spans: RowSpans<'r>,
    pub(super) chunk: &'r EventChunk,
    pub(super) events: &'r EventDetails,
}

impl<'r> ChunkRows<'r> {
    pub(super) fn new(
        table: TableId,
        rows: &'r Rows<Local>,
        places: Range<usize>,
        source: &UnitSource<'_>,
        chunk: &'r EventChunk,
        events: &'r EventDetails,
    ) -> ChunkRows<'r> {
        let spans = RowSpans::of(table, rows, &source.placing);
        ChunkRows { facts: table_place(table), rows, places, spans, chunk, events }
    }

    fn column(&self, name: &str) -> &'r Cells {
        self.rows.column(name)
    }

    fn columns<const N: usize>(&self, names: [&str; N]) -> [&'r Cells; N] {
        names.map(|name| self.rows.column(name))
    }
}

/// Maximum number of args of one row, apart from recorded ones.
const MAX_ARGS: usize = 16;

impl UnitDrawer<'_, '_> {
    pub(super) fn draw_rows(&mut self, rows: &ChunkRows<'_>) -> Result<(), Failure> {
        match rows.spans.table {
            rocpd::REGION => self.draw_regions(rows),
            rocpd::SAMPLE => self.draw_samples(rows),
            rocpd::KERNEL_DISPATCH => self.draw_kernels(rows),
            rocpd::MEMORY_COPY => self.draw_copies(rows),
            _ => self.draw_allocations(rows),
        }
    }

    fn draw_regions(&mut self, rows: &ChunkRows<'_>) -> Result<(), Failure> {
        let names = rows.column("name_id");
        let mut arrow = self.first_arrow(rows);
        let open = open_regions(rows.column("extdata"), rows.places.clone());
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(MAX_ARGS);
        for i in rows.places.clone() {
            let Some(row) = self.classify_row(rows, i) else { continue };
            let name = self.string_text(names.int(i));
            args.clear();
            self.set_flows(rows, (i, row.event), &mut arrow);
            self.add_collective(&row, name, rows.events);
            if self.has_annotations() {
                if row.message != TextId(0) && row.message != name {
                    args.push(known_arg(self.labels.call, name));
                }
                if open.get(i - rows.places.start) == Some(&true) {
                    args.push(ItemArg { name: self.labels.open, value: ArgValue::Bool(true) });
                }
            }
            self.emit_slice(&row, message_or(&row, name), &mut args, rows.events)?;
        }
        Ok(())
    }

    fn draw_samples(&mut self, rows: &ChunkRows<'_>) -> Result<(), Failure> {
        let tracks = rows.column("track_id");
        let known_tracks = &self.source.placing.names.tracks;
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(MAX_ARGS);
        for i in rows.places.clone() {
            let Some(row) = self.classify_row(rows, i) else { continue };
            let track = known_tracks.at(known_tracks.place(tracks.int(i)));
            let name = self.string_text(track.and_then(|track| track.name));
            args.clear();
            if self.has_annotations() && row.message != TextId(0) && row.message != name {
                args.push(known_arg(self.labels.track, name));
            }
            self.emit_sample(&row, message_or(&row, name), &mut args, rows.events)?;
        }
        Ok(())
    }

    fn draw_kernels(&mut self, rows: &ChunkRows<'_>) -> Result<(), Failure> {
        let [kernels, dispatches, regions] = rows.columns(["kernel_id", "dispatch_id", "region_name_id"]);
        let workgroup = rows.columns(["workgroup_size_x", "workgroup_size_y", "workgroup_size_z"]);
        let grid = rows.columns(["grid_size_x", "grid_size_y", "grid_size_z"]);
        let lanes = rows.columns(["queue_id", "stream_id"]);
        let sizes = rows.columns(["group_segment_size", "private_segment_size"]);
        let mut arrow = self.first_arrow(rows);
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(MAX_ARGS);
        for i in rows.places.clone() {
            let Some(row) = self.classify_row(rows, i) else { continue };
            let kernel = self.kernels.at(self.kernels.place(kernels.int(i)));
            let name = kernel.copied().unwrap_or(self.labels.unknown);
            args.clear();
            self.set_flows(rows, (i, row.event), &mut arrow);
            if self.has_annotations() {
                for (label, of) in [(self.labels.grid, grid), (self.labels.workgroup, workgroup)] {
                    let sizes = of.map(|cells| cells.int(i).unwrap_or(0));
                    // Inputs without sizes store 0, because RocPD does not allow NULL here.
                    if sizes != [0; 3] {
                        args.push(known_arg(label, self.labels.size_text(sizes, &mut self.dictionary.texts)));
                    }
                }
                self.add_lanes(lanes, i, &mut args);
                add_number(self.labels.dispatch, dispatches.get(i), &mut args);
                for (name, cells) in [self.labels.lds, self.labels.scratch].into_iter().zip(sizes) {
                    if cells.int(i) != Some(0) {
                        add_number(name, cells.get(i), &mut args);
                    }
                }
                self.add_region(regions, i, &mut args);
            }
            self.emit_slice(&row, name, &mut args, rows.events)?;
        }
        Ok(())
    }

    fn draw_copies(&mut self, rows: &ChunkRows<'_>) -> Result<(), Failure> {
        let [names, sizes, regions] = rows.columns(["name_id", "size", "region_name_id"]);
        let [to, from] = rows.columns(["dst_agent_id", "src_agent_id"]);
        let lanes = rows.columns(["queue_id", "stream_id"]);
        let mut arrow = self.first_arrow(rows);
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(MAX_ARGS);
        for i in rows.places.clone() {
            let Some(row) = self.classify_row(rows, i) else { continue };
            let name = self.string_text(names.int(i));
            args.clear();
            self.set_flows(rows, (i, row.event), &mut arrow);
            if self.has_annotations() {
                add_size(self.labels.size, sizes.get(i), &mut args);
                for (name, agents) in [(self.labels.src, from), (self.labels.dst, to)] {
                    let agent = self.labels.agent_at(self.source.placing.names.agents.place(agents.int(i)));
                    args.extend(agent.map(|agent| known_arg(name, agent)));
                }
                self.add_lanes(lanes, i, &mut args);
                self.add_region(regions, i, &mut args);
            }
            self.emit_slice(&row, name, &mut args, rows.events)?;
        }
        Ok(())
    }

    fn draw_allocations(&mut self, rows: &ChunkRows<'_>) -> Result<(), Failure> {
        let [kinds, levels, addresses, sizes] = rows.columns(["type", "level", "address", "size"]);
        let lanes = rows.columns(["queue_id", "stream_id"]);
        let mut texts = |cells, none| {
            let mut found = Vec::new();
            let add = |text: &[u8]| add_text(text, &mut self.dictionary.texts, &mut self.facts.mended);
            each_text(cells, rows.places.clone(), none, add, |id| found.push(id));
            found
        };
        let names = texts(kinds, self.labels.unknown);
        let known_levels = texts(levels, TextId(0));
        let hex = AddressTexts::of(addresses, rows.places.clone());
        let mut args: Vec<ItemArg<'_>> = Vec::with_capacity(MAX_ARGS);
        for (place, i) in rows.places.clone().enumerate() {
            let Some(row) = self.classify_row(rows, i) else { continue };
            if let Some(change) = AllocationChange::of(kinds.get(i)) {
                let (level, times) = (MemoryLevel::of(levels.get(i)), (row.start, row.end));
                let bytes = sizes.int(i).unwrap_or(0);
                self.allocations.add(row.key, level, change, times, addresses.int(i), bytes);
            }
            args.clear();
            self.flows.clear();
            if self.has_annotations() {
                add_size(self.labels.size, sizes.get(i), &mut args);
                if let Some(address) = hex.at(place) {
                    args.push(ItemArg { name: self.labels.address, value: ArgValue::Text(address) });
                }
                let level = known_levels.get(place).copied().filter(|level| *level != TextId(0));
                args.extend(level.map(|level| known_arg(self.labels.level, level)));
                if let (_, TrackPlace::Allocations(agent)) = row.key {
                    let agent = self.labels.agent_at(agent);
                    args.extend(agent.map(|agent| known_arg(self.labels.agent, agent)));
                }
                self.add_lanes(lanes, i, &mut args);
            }
            let name = names.get(place).copied().unwrap_or_default();
            self.emit_slice(&row, name, &mut args, rows.events)?;
        }
        Ok(())
    }

    /// Returns the index of the first flow at these rows.
    fn first_arrow(&self, rows: &ChunkRows<'_>) -> usize {
        self.arrows.first(rows.spans.table, rows.rows.keys.get(rows.places.start))
    }

    /// Sets the flows of the next item: those at row `i`, and those that its event stores.
    #[inline]
    fn set_flows(&mut self, rows: &ChunkRows<'_>, (i, event): (usize, Option<u32>), next: &mut usize) {
        self.flows.clear();
        let (table, id) = (rows.spans.table, rows.rows.keys.get(i));
        let arrows = self.arrows.all(table);
        while let Some((row, number)) = arrows.get(*next).filter(|(row, _)| *row <= id) {
            if *row == id {
                let from = table == rocpd::REGION;
                self.flows.push(if from { FlowEnd::From(*number) } else { FlowEnd::To(*number) });
            }
            *next += 1;
        }
        if table == rocpd::REGION {
            self.flows.extend(self.source.job.message_ends(id));
        }
        if let Some(event) = event.filter(|_| self.source.asked.flows) {
            self.flows.extend(rows.events.flow_ends(event));
        }
    }

    /// Returns whether annotations are requested.
    fn has_annotations(&self) -> bool {
        self.source.job.selection.annotations
    }

    #[inline]
    fn string_text(&mut self, id: Option<i64>) -> TextId {
        self.strings.text(id, &mut self.dictionary.texts, &mut self.facts.mended)
    }

    /// Adds the queue and the stream of a row, with the names of their tracks.
    #[inline]
    fn add_lanes(&self, [queues, streams]: [&Cells; 2], i: usize, args: &mut Vec<ItemArg<'_>>) {
        let (names, labels) = (self.source.placing.names, &self.labels);
        let queue =
            labels.queue_at(names.queues.place(queues.int(i))).map(|name| known_arg(labels.queue, name));
        let stream =
            labels.stream_at(names.streams.place(streams.int(i))).map(|name| known_arg(labels.stream, name));
        args.extend([queue, stream].into_iter().flatten());
    }

    /// Adds the region that launched a kernel or copy.
    #[inline]
    fn add_region(&mut self, regions: &Cells, i: usize, args: &mut Vec<ItemArg<'_>>) {
        let region = self.string_text(regions.int(i));
        if region != TextId(0) {
            args.push(known_arg(self.labels.region, region));
        }
    }
}

/// Returns the displayed name of a row: the message of its event, or else its own name.
fn message_or(row: &DrawnRow, name: TextId) -> TextId {
    if row.message == TextId(0) { name } else { row.message }
}

#[inline]
fn known_arg(name: TextId, text: TextId) -> ItemArg<'static> {
    ItemArg { name, value: ArgValue::Known(text) }
}

/// Adds a number of a row, if it has one.
#[inline]
fn add_number(name: TextId, value: Value<'_>, args: &mut Vec<ItemArg<'_>>) {
    let value = match value {
        Value::Int(value) => ArgValue::Int(value),
        Value::Real(value) => ArgValue::Double(value),
        _ => return,
    };
    args.push(ItemArg { name, value });
}

/// Adds a size, unless it is 0, which stands for one that is not recorded.
fn add_size(name: TextId, value: Value<'_>, args: &mut Vec<ItemArg<'_>>) {
    if value != Value::Int(0) {
        add_number(name, value, args);
    }
}

/// Returns which regions were open when their process ended.
fn open_regions(extdata: &Cells, places: Range<usize>) -> Vec<bool> {
    let is_open = |text: &[u8]| {
        text.len() > 2 && text.windows(6).any(|part| part == b"\"open\"") && is_marked_open(text)
    };
    let mut open = Vec::new();
    each_text(extdata, places, false, is_open, |is_open| open.push(is_open));
    open
}

/// Returns whether the extdata contains `{"rpd":{"open":true}}`.
fn is_marked_open(extdata: &[u8]) -> bool {
    let json = serde_json::from_slice::<serde_json::Value>(extdata);
    json.is_ok_and(|json| json.pointer("/rpd/open").and_then(serde_json::Value::as_bool) == Some(true))
}

/// Addresses of rows as texts.
struct AddressTexts {
    texts: String,
    ends: Vec<usize>,
}

impl AddressTexts {
    fn of(addresses: &Cells, places: Range<usize>) -> AddressTexts {
        let mut hex = AddressTexts {
            texts: String::with_capacity(places.len() * 16),
            ends: Vec::with_capacity(places.len()),
        };
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
