//! The second pass over a unit: its rows become items.

use super::allocations::Memory;
use super::call_stacks::Stacks;
use super::collective_calls::{Joint, earlier};
use super::event_details::{Asked, Chunk, Counted, Events, Source, chunks};
use super::flows::{Arrows, arrows};
use super::placement::{Key, Placing, Recent};
use super::shared_labels::Words;
use super::string_texts::StringTexts;
use super::survey::PieceSeen;
use super::table_rows::wanted;
use super::{JobRows, TakeItem};
use crate::item::{Dictionary, Facts, FlowEnd, Selection, TableFacts, TextId, UnitLayout, What};
use rpd_console::Failure;
use rpd_perfetto::CounterValue;
use rpd_run::{ById, DRAWN, Process, Strings, Tables, Unit, kernel_names, place_of};
use rpd_shard::model::{TableId, rocpd};
use std::borrow::Cow;

/// What draws the rows of a unit.
pub(super) struct Pen<'a, 'b> {
    pub(super) tables: &'a Tables,
    pub(super) unit: &'a Unit,
    pub(super) placing: &'a Placing<'a>,
    pub(super) processes: &'a [Process],
    pub(super) layout: &'a UnitLayout,
    pub(super) selection: &'a Selection,
    pub(super) window: Option<(i64, i64)>,
    pub(super) dictionary: &'a mut Dictionary,
    pub(super) strings: StringTexts<'a>,
    pub(super) stacks: Stacks,
    /// Names of the kernels.
    pub(super) kernels: ById<TextId>,
    pub(super) words: Words,
    pub(super) joint: Joint,
    pub(super) arrows: Arrows,
    pub(super) memory: Memory,
    pub(super) recent: Recent<Option<u32>>,
    /// Whether a category is left out, by the number of its text, as far as known.
    pub(super) left_out: Vec<Option<bool>>,
    /// What became of the events of the chunk.
    pub(super) fates: Vec<Fate>,
    /// At which time the counter values of each event of the chunk were drawn last.
    pub(super) valued: Vec<Option<i64>>,
    pub(super) flows: Vec<FlowEnd>,
    pub(super) facts: Facts,
    /// Whether arguments are asked for.
    pub(super) shows_args: bool,
    pub(super) take: &'a mut TakeItem<'b>,
}

/// What became of an event's rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// There are none.
    None,
    LeftOut,
    Drawn,
}

/// A row that is drawn.
pub(super) struct Drawn {
    pub(super) key: Key,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) track: u32,
    /// Place of its event in the chunk.
    pub(super) event: Option<u32>,
    pub(super) category: TextId,
    pub(super) message: TextId,
    /// Else it is before the window, and only its counter values matter.
    pub(super) in_window: bool,
}

/// Draws a unit, whose place in the job is `place`.
pub(super) fn draw(
    job: &JobRows,
    place: usize,
    unit: &Unit,
    layout: &UnitLayout,
    dictionary: &mut Dictionary,
    memory: u64,
    take: &mut TakeItem<'_>,
) -> Result<Facts, Failure> {
    let (tables, strings): (&Tables, &Strings) = (&job.run.tables, &job.run.strings);
    let seen = &layout.seen;
    let selection = &job.selection;
    let asked_for = |what: What| !selection.exclude.contains(&what);
    let flows = asked_for(What::Flows);
    let placing = Placing::new(&seen.names, &job.run.processes, unit, selection.group_by_queue);
    let arrows = match flows {
        true => arrows(tables, unit, &seen.pieces, place, memory)?,
        false => Arrows::default(),
    };
    let mut facts = Facts { backward: arrows.backward, arrows: arrows.len(), ..Facts::default() };
    let words = Words::new(&mut dictionary.texts, &seen.names);
    let earlier = if flows { earlier(job, unit)? } else { 0 };
    let joint = Joint::new(&mut dictionary.texts, earlier);
    let kernels = kernel_names(tables, unit, |name| {
        facts.mended += u64::from(matches!(name, Cow::Owned(_)));
        dictionary.texts.add(&name)
    })?;
    let mut pen = Pen {
        tables,
        unit,
        placing: &placing,
        processes: &job.run.processes,
        layout,
        selection,
        window: job.window,
        dictionary,
        strings: StringTexts::new(strings),
        stacks: Stacks::default(),
        kernels,
        words,
        joint,
        arrows,
        memory: Memory::default(),
        recent: Recent::default(),
        left_out: Vec::new(),
        fates: Vec::new(),
        valued: Vec::new(),
        flows: Vec::new(),
        facts,
        shows_args: selection.annotations && asked_for(What::Args),
        take,
    };
    let pieces = |table| seen.pieces.get(place_of(table)).map_or(&[][..], Vec::as_slice);
    let source = Source {
        tables,
        unit,
        placing: &placing,
        tracks: &seen.tracks,
        args: pieces(rocpd::ARG),
        values: pieces(rocpd::PMC_EVENT),
        asked: Asked {
            args: pen.shows_args,
            collectives: flows && asked_for(What::Regions),
            values: asked_for(What::Counters),
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

impl<'a> Pen<'a, '_> {
    /// Draws the rows of a chunk of events; `false`, and nothing, if what they say is too much to be held at once.
    fn chunk(
        &mut self,
        source: &Source<'_>,
        chunk: &Chunk,
        pieces: impl Fn(TableId) -> &'a [PieceSeen],
    ) -> Result<bool, Failure> {
        let mut counted = Counted::default();
        let (strings, stacks) = (&mut self.strings, &mut self.stacks);
        let events = Events::read(source, chunk, strings, stacks, self.dictionary, &mut counted)?;
        self.facts.mended += counted.mended_strings;
        let Some(events) = events else { return Ok(false) };
        self.fates.clear();
        self.fates.resize(events.len(), Fate::None);
        self.valued.clear();
        self.valued.resize(events.len(), None);
        for table in DRAWN.into_iter().filter(|table| !matches!(*table, rocpd::ARG | rocpd::PMC_EVENT)) {
            self.table(table, pieces(table), chunk, &events)?;
        }
        self.agree_on_result(&events, &counted, source.asked);
        Ok(true)
    }

    /// Counts what became of the args and counter values of a chunk.
    fn agree_on_result(&mut self, events: &Events, counted: &Counted, asked: Asked) {
        self.facts.mended += counted.mended;
        self.facts.cut_stacks += counted.cut_stacks;
        if asked.values {
            self.facts.no_numbers += counted.no_numbers;
        }
        for (event, category) in events.other_arrows() {
            if self.fates.get(*event as usize) == Some(&Fate::Drawn) {
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
            // What is outside of the window was not read.
            let without = strays[which] + fates[Fate::None as usize][which];
            if self.window.is_some() {
                facts.left_out += without
            } else {
                facts.untimed += without
            }
            facts.left_out += fates[Fate::LeftOut as usize][which];
            facts.drawn += fates[Fate::Drawn as usize][which];
        }
    }

    fn table(
        &mut self,
        table: TableId,
        pieces: &[PieceSeen],
        chunk: &Chunk,
        events: &Events,
    ) -> Result<(), Failure> {
        let mut drawn = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter(|piece| chunk.touches(piece)) {
            if !self.is_outside(table, piece) {
                drawn.push(piece.piece);
            } else if chunk.has(Some(piece.events.0)) {
                // A piece of several chunks is counted with the first.
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

    /// Whether nothing of a piece can be in the window, nor be a counter value before it.
    fn is_outside(&self, table: TableId, piece: &PieceSeen) -> bool {
        let Some((from, to)) = self.window else { return false };
        let has_values =
            self.layout.seen.pieces.get(place_of(rocpd::PMC_EVENT)).is_some_and(|all| !all.is_empty());
        let is_early = piece.times.1 < from && table != rocpd::MEMORY_ALLOCATE && !has_values;
        piece.times.0 >= to || is_early
    }

    /// The sums of allocated memory.
    fn finish(mut self, source: &Source<'_>) -> Result<Facts, Failure> {
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

/// The facts of a table.
pub(super) fn of_table(facts: &mut Facts, table: TableId) -> &mut TableFacts {
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
