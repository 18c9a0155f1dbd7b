//! The second pass over a unit: turns its rows into items.

use super::allocations::AllocationSums;
use super::call_stacks::CallStacks;
use super::collective_calls::{CollectiveFlows, earlier};
use super::event_details::{AskedEvents, CountedEvents, EventChunk, EventDetails, ValueSource, chunks};
use super::flows::{LaunchFlows, arrows};
use super::placement::{RecentPlaces, RowPlacement, TrackKey};
use super::shared_labels::SharedLabels;
use super::string_texts::StringTexts;
use super::survey::PieceSeen;
use super::table_rows::wanted;
use super::{JobRows, TakeItem};
use crate::item::{
    FlowEnd, ItemExclusion, TableFacts, TextId, TraceSelection, UnitDictionary, UnitFacts, UnitLayout,
};
use rpd_console::Failure;
use rpd_perfetto::CounterValue;
use rpd_run::{ById, DRAWN, RowUnit, RunProcess, RunStrings, RunTables, kernel_names, place_of};
use rpd_shard::model::{TableId, rocpd};
use std::borrow::Cow;

/// State for drawing the rows of a unit.
pub(super) struct UnitDrawer<'a, 'b> {
    pub(super) tables: &'a RunTables,
    pub(super) unit: &'a RowUnit,
    pub(super) placing: &'a RowPlacement<'a>,
    pub(super) processes: &'a [RunProcess],
    pub(super) layout: &'a UnitLayout,
    pub(super) selection: &'a TraceSelection,
    pub(super) window: Option<(i64, i64)>,
    pub(super) dictionary: &'a mut UnitDictionary,
    pub(super) strings: StringTexts<'a>,
    pub(super) stacks: CallStacks,
    /// Names of the kernels.
    pub(super) kernels: ById<TextId>,
    pub(super) words: SharedLabels,
    pub(super) joint: CollectiveFlows,
    pub(super) arrows: LaunchFlows,
    pub(super) memory: AllocationSums,
    pub(super) recent: RecentPlaces<Option<u32>>,
    /// Whether a category is excluded, by the number of its text, if already determined.
    pub(super) left_out: Vec<Option<bool>>,
    /// How the rows of each event in the chunk were drawn.
    pub(super) fates: Vec<EventOutcome>,
    /// Time at which the counter values of each event in the chunk were last drawn.
    pub(super) valued: Vec<Option<i64>>,
    pub(super) flows: Vec<FlowEnd>,
    pub(super) facts: UnitFacts,
    /// Whether arguments are requested.
    pub(super) shows_args: bool,
    pub(super) take: &'a mut TakeItem<'b>,
}

/// How the rows of an event were drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventOutcome {
    /// The event has no rows.
    None,
    LeftOut,
    Drawn,
}

/// A row that is drawn.
pub(super) struct DrawnTable {
    pub(super) key: TrackKey,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) track: u32,
    /// Index of its event in the chunk.
    pub(super) event: Option<u32>,
    pub(super) category: TextId,
    pub(super) message: TextId,
    /// If false, the row is before the window and only its counter values are used.
    pub(super) in_window: bool,
}

/// Draws a unit. `place` is its index in the job.
pub(super) fn draw(
    job: &JobRows,
    place: usize,
    unit: &RowUnit,
    layout: &UnitLayout,
    dictionary: &mut UnitDictionary,
    memory: u64,
    take: &mut TakeItem<'_>,
) -> Result<UnitFacts, Failure> {
    let (tables, strings): (&RunTables, &RunStrings) = (&job.run.tables, &job.run.strings);
    let seen = &layout.seen;
    let selection = &job.selection;
    let asked_for = |what: ItemExclusion| !selection.exclude.contains(&what);
    let flows = asked_for(ItemExclusion::Flows);
    let placing = RowPlacement::new(&seen.names, &job.run.processes, unit, selection.group_by_queue);
    let arrows = match flows {
        true => arrows(tables, unit, &seen.pieces, place, memory)?,
        false => LaunchFlows::default(),
    };
    let mut facts = UnitFacts { backward: arrows.backward, arrows: arrows.len(), ..UnitFacts::default() };
    let words = SharedLabels::new(&mut dictionary.texts, &seen.names);
    let earlier = if flows { earlier(job, unit)? } else { 0 };
    let joint = CollectiveFlows::new(&mut dictionary.texts, earlier);
    let kernels = kernel_names(tables, unit, |name| {
        facts.mended += u64::from(matches!(name, Cow::Owned(_)));
        dictionary.texts.add(&name)
    })?;
    let mut pen = UnitDrawer {
        tables,
        unit,
        placing: &placing,
        processes: &job.run.processes,
        layout,
        selection,
        window: job.window,
        dictionary,
        strings: StringTexts::new(strings),
        stacks: CallStacks::default(),
        kernels,
        words,
        joint,
        arrows,
        memory: AllocationSums::default(),
        recent: RecentPlaces::default(),
        left_out: Vec::new(),
        fates: Vec::new(),
        valued: Vec::new(),
        flows: Vec::new(),
        facts,
        shows_args: selection.annotations && asked_for(ItemExclusion::Args),
        take,
    };
    let pieces = |table| seen.pieces.get(place_of(table)).map_or(&[][..], Vec::as_slice);
    let source = ValueSource {
        tables,
        unit,
        placing: &placing,
        tracks: &seen.tracks,
        args: pieces(rocpd::ARG),
        values: pieces(rocpd::PMC_EVENT),
        asked: AskedEvents {
            args: pen.shows_args,
            collectives: flows && asked_for(ItemExclusion::Regions),
            values: asked_for(ItemExclusion::Counters),
            flows,
        },
        memory,
    };
    let mut chunks = chunks(tables, unit, memory)?;
    chunks.reverse();
    while let Some(chunk) = chunks.pop() {
        if !pen.chunk(&source, &chunk, pieces)? {
            let [first, second] = chunk.split(tables)?;
            chunks.extend([second, first]);
        }
    }
    pen.finish(&source)
}

impl<'a> UnitDrawer<'a, '_> {
    /// Draws the rows of a chunk of events. Returns `false` without drawing if the details of the events exceed
    /// the memory.
    fn chunk(
        &mut self,
        source: &ValueSource<'_>,
        chunk: &EventChunk,
        pieces: impl Fn(TableId) -> &'a [PieceSeen],
    ) -> Result<bool, Failure> {
        let mut counted = CountedEvents::default();
        let (strings, stacks) = (&mut self.strings, &mut self.stacks);
        let events = EventDetails::read(source, chunk, strings, stacks, self.dictionary, &mut counted)?;
        self.facts.mended += counted.mended_strings;
        let Some(events) = events else { return Ok(false) };
        self.fates.clear();
        self.fates.resize(events.len(), EventOutcome::None);
        self.valued.clear();
        self.valued.resize(events.len(), None);
        for table in DRAWN.into_iter().filter(|table| !matches!(*table, rocpd::ARG | rocpd::PMC_EVENT)) {
            self.table(table, pieces(table), chunk, &events)?;
        }
        self.count_outcomes(&events, &counted, source.asked);
        Ok(true)
    }

    /// Counts how the args and counter values of a chunk were drawn.
    fn count_outcomes(&mut self, events: &EventDetails, counted: &CountedEvents, asked: AskedEvents) {
        self.facts.mended += counted.mended;
        self.facts.cut_stacks += counted.cut_stacks;
        if asked.values {
            self.facts.no_numbers += counted.no_numbers;
        }
        for (event, category) in events.other_arrows() {
            if self.fates.get(*event as usize) == Some(&EventOutcome::Drawn) {
                self.facts.add_other_arrows(self.dictionary.texts.get(*category), 1);
            }
        }
        let mut fates = [[0u64; 2]; 3];
        for (event, fate) in (0u32..).zip(&self.fates) {
            let (args, values) = events.attached(event);
            if let Some(sums) = fates.get_mut(*fate as usize) {
                sums[0] += args;
                sums[1] += values;
            }
        }
        let strays = [counted.stray_args, counted.stray_values];
        let rows = [counted.args, counted.values];
        let shown = [asked.args, asked.values];
        let facts = [&mut self.facts.args, &mut self.facts.values];
        for (which, facts) in facts.into_iter().enumerate() {
            facts.rows += rows[which];
            if !shown[which] {
                facts.left_out += rows[which];
                continue;
            }
            // Rows outside of the window were not read.
            let without = strays[which] + fates[EventOutcome::None as usize][which];
            if self.window.is_some() {
                facts.left_out += without
            } else {
                facts.untimed += without
            }
            facts.left_out += fates[EventOutcome::LeftOut as usize][which];
            facts.drawn += fates[EventOutcome::Drawn as usize][which];
        }
    }

    fn table(
        &mut self,
        table: TableId,
        pieces: &[PieceSeen],
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let mut drawn = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter(|piece| chunk.touches(piece)) {
            if !self.is_outside(table, piece) {
                drawn.push(piece.piece);
            } else if chunk.has(Some(piece.events.0)) {
                // A piece that several chunks touch is counted with the first one.
                let facts = of_table(&mut self.facts, table);
                facts.rows += piece.rows;
                facts.left_out += piece.rows;
            }
        }
        let (tables, ids) = (self.tables, self.unit.ids(table));
        tables.each_of(table, &drawn, ids, wanted(table), &mut |_, rows, places| {
            let these = (rows, places);
            match table {
                rocpd::REGION => self.regions(these, chunk, events),
                rocpd::SAMPLE => self.samples(these, chunk, events),
                rocpd::KERNEL_DISPATCH => self.kernels(these, chunk, events),
                rocpd::MEMORY_COPY => self.copies(these, chunk, events),
                _ => self.allocations(these, chunk, events),
            }
        })
    }

    /// Returns whether a piece has neither rows in the window nor counter values before it.
    fn is_outside(&self, table: TableId, piece: &PieceSeen) -> bool {
        let Some((from, to)) = self.window else { return false };
        let has_values =
            self.layout.seen.pieces.get(place_of(rocpd::PMC_EVENT)).is_some_and(|all| !all.is_empty());
        let is_early = piece.times.1 < from && table != rocpd::MEMORY_ALLOCATE && !has_values;
        piece.times.0 >= to || is_early
    }

    /// Draws the sums of allocated memory.
    fn finish(mut self, source: &ValueSource<'_>) -> Result<UnitFacts, Failure> {
        let memory = std::mem::take(&mut self.memory);
        if source.asked.values {
            memory.sums(|at, key, bytes| match self.layout.seen.tracks.get(&key) {
                Some(track) => self.counter(at, *track, CounterValue::Int(bytes)),
                None => Ok(()),
            })?;
        }
        Ok(self.facts)
    }
}

/// Returns the facts of a table.
pub(super) fn of_table(facts: &mut UnitFacts, table: TableId) -> &mut TableFacts {
    match table {
        rocpd::REGION => &mut facts.regions,
        rocpd::SAMPLE => &mut facts.samples,
        rocpd::KERNEL_DISPATCH => &mut facts.kernels,
        rocpd::MEMORY_COPY => &mut facts.copies,
        rocpd::MEMORY_ALLOCATE => &mut facts.allocations,
        rocpd::PMC_EVENT => &mut facts.values,
        _ => &mut facts.args,
    }
}
