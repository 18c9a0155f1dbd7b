//! The second pass over a unit: turns its rows into items.

use super::allocations::AllocationSums;
use super::call_stacks::CallStacks;
use super::collective_calls::CollectiveFlows;
use super::event_details::{CountedEvents, EventChunk, EventDetails, event_chunks};
use super::flows::LaunchFlows;
use super::placement::RecentPlaces;
use super::shared_labels::SharedLabels;
use super::string_texts::StringTexts;
use super::survey::PieceSeen;
use super::table_rows::{ChunkRows, drawn_columns};
use super::unit_source::UnitSource;
use super::{JobRows, TakeItem};
use crate::item::{FlowEnd, TextId, UnitDictionary, UnitFacts, UnitLayout};
use rpd_console::Failure;
use rpd_perfetto::CounterValue;
use rpd_run::{ById, DRAWN_TABLES, RowUnit, UnitNames};
use rpd_shard::model::{TableId, rocpd};
use std::borrow::Cow;

/// State for drawing the rows of a unit.
pub(super) struct UnitDrawer<'a, 'b> {
    pub(super) source: &'a UnitSource<'a>,
    pub(super) layout: &'a UnitLayout,
    pub(super) dictionary: UnitDictionary,
    pub(super) strings: StringTexts<'a>,
    pub(super) stacks: CallStacks,
    /// Names of the kernels.
    pub(super) kernels: ById<TextId>,
    pub(super) labels: SharedLabels,
    pub(super) collectives: CollectiveFlows,
    pub(super) arrows: LaunchFlows,
    pub(super) allocations: AllocationSums,
    pub(super) recent: RecentPlaces<Option<u32>>,
    /// Whether a category is excluded, by the number of its text, if already determined.
    pub(super) excluded_categories: Vec<Option<bool>>,
    /// How the rows of each event in the chunk were drawn.
    pub(super) outcomes: Vec<EventOutcome>,
    /// Time at which the counter values of each event in the chunk were last drawn.
    pub(super) values_drawn_at: Vec<Option<i64>>,
    pub(super) flows: Vec<FlowEnd>,
    pub(super) facts: UnitFacts,
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

/// Draws a unit. `place` is its index in the job.
pub(super) fn draw_unit(
    job: &JobRows,
    place: usize,
    unit: &RowUnit,
    layout: &UnitLayout,
    memory: u64,
    take: &mut TakeItem<'_>,
) -> Result<(UnitFacts, UnitDictionary), Failure> {
    let source = UnitSource::new(job, (place, unit), layout, memory);
    let arrows = match source.asked.flows {
        true => LaunchFlows::find(&source, place)?,
        false => LaunchFlows::default(),
    };
    let mut facts =
        UnitFacts { backward: arrows.backward, launch_flows: arrows.len(), ..UnitFacts::default() };
    let mut dictionary = UnitDictionary::default();
    let labels = SharedLabels::new(&mut dictionary.texts, &layout.seen.names);
    let collectives = CollectiveFlows::new(&mut dictionary.texts, CollectiveFlows::count_earlier(&source)?);
    let kernels = UnitNames::read_kernels(source.tables(), unit, |name| {
        facts.mended += u64::from(matches!(name, Cow::Owned(_)));
        dictionary.texts.add(&name)
    })?;
    let mut drawer = UnitDrawer {
        source: &source,
        layout,
        dictionary,
        strings: StringTexts::new(&job.run.strings),
        stacks: CallStacks::default(),
        kernels,
        labels,
        collectives,
        arrows,
        allocations: AllocationSums::default(),
        recent: RecentPlaces::default(),
        excluded_categories: Vec::new(),
        outcomes: Vec::new(),
        values_drawn_at: Vec::new(),
        flows: Vec::new(),
        facts,
        take,
    };
    let mut chunks = event_chunks(&source)?;
    chunks.reverse();
    while let Some(chunk) = chunks.pop() {
        if !drawer.draw_chunk(&chunk)? {
            let [first, second] = chunk.split(source.tables())?;
            chunks.extend([second, first]);
        }
    }
    drawer.finish()
}

impl UnitDrawer<'_, '_> {
    /// Draws the rows of a chunk of events. Returns `false` without drawing if the details of the events exceed
    /// the memory.
    fn draw_chunk(&mut self, chunk: &EventChunk) -> Result<bool, Failure> {
        let mut counted = CountedEvents::default();
        let (strings, stacks) = (&mut self.strings, &mut self.stacks);
        let events =
            EventDetails::read(self.source, chunk, strings, stacks, &mut self.dictionary, &mut counted)?;
        self.facts.mended += counted.mended_strings;
        let Some(events) = events else { return Ok(false) };
        self.outcomes.clear();
        self.outcomes.resize(events.len(), EventOutcome::None);
        self.values_drawn_at.clear();
        self.values_drawn_at.resize(events.len(), None);
        let is_attached = |table: &TableId| matches!(*table, rocpd::ARG | rocpd::PMC_EVENT);
        for table in DRAWN_TABLES.into_iter().filter(|table| !is_attached(table)) {
            self.draw_table(table, chunk, &events)?;
        }
        self.count_outcomes(&events, &counted);
        Ok(true)
    }

    /// Counts how the args and counter values of a chunk were drawn.
    fn count_outcomes(&mut self, events: &EventDetails, counted: &CountedEvents) {
        let asked = self.source.asked;
        self.facts.mended += counted.mended;
        self.facts.cut_stacks += counted.cut_stacks;
        if asked.values {
            self.facts.no_numbers += counted.no_numbers;
        }
        let mut outcomes = [[0u64; 3]; 3];
        for (event, outcome) in (0u32..).zip(&self.outcomes) {
            if let Some(sums) = outcomes.get_mut(*outcome as usize) {
                sums.iter_mut().zip(events.attached(event)).for_each(|(sum, rows)| *sum += rows);
            }
        }
        let strays = [counted.stray_args, counted.stray_values, counted.stray_flow_ends];
        self.facts.extdata_args_left_out += counted.args_in_extdata;
        let rows = [counted.args, counted.values, counted.flow_ends];
        let shown = [asked.args, asked.values, asked.flows];
        if !asked.flows {
            self.facts.flow_ends_left_out += counted.flow_ends;
        }
        // Ends of flows are args, too.
        for (which, table) in [rocpd::ARG, rocpd::PMC_EVENT, rocpd::ARG].into_iter().enumerate() {
            let facts = self.facts.table_mut(table);
            facts.rows += rows[which];
            if !shown[which] {
                facts.left_out += rows[which];
                continue;
            }
            // Rows outside of the window were not read.
            let without = strays[which] + outcomes[EventOutcome::None as usize][which];
            match self.source.job.window {
                Some(_) => facts.left_out += without,
                None => facts.untimed += without,
            }
            facts.left_out += outcomes[EventOutcome::LeftOut as usize][which];
            facts.drawn += outcomes[EventOutcome::Drawn as usize][which];
        }
    }

    fn draw_table(
        &mut self,
        table: TableId,
        chunk: &EventChunk,
        events: &EventDetails,
    ) -> Result<(), Failure> {
        let source = self.source;
        let pieces = source.seen.pieces(table);
        let mut drawn = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter(|piece| chunk.touches(piece)) {
            if !self.is_outside(table, piece) {
                drawn.push(piece.piece);
            } else if chunk.contains(Some(piece.events.0)) {
                // A piece that several chunks touch is counted with the first one.
                let facts = self.facts.table_mut(table);
                facts.rows += piece.rows;
                facts.left_out += piece.rows;
            }
        }
        let ids = source.unit.ids(table);
        source.tables().read_pieces(table, &drawn, ids, drawn_columns(table), &mut |_, rows, places| {
            self.draw_rows(&ChunkRows::new(table, rows, places, source, chunk, events))
        })
    }

    /// Returns whether a piece has neither rows in the window nor counter values before it.
    fn is_outside(&self, table: TableId, piece: &PieceSeen) -> bool {
        let Some((from, to)) = self.source.job.window else { return false };
        let has_values = !self.source.seen.pieces(rocpd::PMC_EVENT).is_empty();
        let is_early = piece.times.1 < from && table != rocpd::MEMORY_ALLOCATE && !has_values;
        piece.times.0 >= to || is_early
    }

    /// Draws the sums of allocated memory.
    fn finish(mut self) -> Result<(UnitFacts, UnitDictionary), Failure> {
        let allocations = std::mem::take(&mut self.allocations);
        if self.source.asked.values {
            allocations.sums(|at, key, bytes| match self.source.seen.tracks.get(&key) {
                Some(track) => self.emit_counter(at, *track, CounterValue::Int(bytes)),
                None => Ok(()),
            })?;
        }
        Ok((self.facts, self.dictionary))
    }
}
