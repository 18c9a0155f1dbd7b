//! The second pass over a unit: its rows become items.

use super::arrows::{Arrows, arrows};
use super::events::{Asked, Chunk, Counted, Events, Source, add_text, chunks};
use super::joint::{Joint, earlier};
use super::memory::Memory;
use super::names::{self, ById};
use super::places::{Key, NOBODY, Place, Placing, Recent, Spans};
use super::read::Tables;
use super::stacks::Stacks;
use super::strings::{StringTexts, Strings};
use super::survey::{PieceSeen, excludes, is_selected};
use super::units::{DRAWN, Process, Unit, place_of};
use super::words::Words;
use super::{JobRows, TakeItem};
use crate::failure::Failure;
use crate::trace::item::{
    Arg, ArgValue, Dictionary, Facts, FlowEnd, Item, Kind, Selection, StackNumber, TableFacts, TextId,
    TrackKind, UnitLayout, What,
};
use rpd_perfetto::CounterValue;
use rpd_shard::model::{TableId, rocpd};

/// Track of samples that have nothing but the values of counters.
const NO_TRACK: u32 = u32::MAX;

/// What draws the rows of a unit.
pub(super) struct Pen<'a, 'b> {
    pub(super) tables: &'a Tables,
    pub(super) unit: &'a Unit,
    pub(super) placing: &'a Placing<'a>,
    processes: &'a [Process],
    layout: &'a UnitLayout,
    selection: &'a Selection,
    window: Option<(i64, i64)>,
    pub(super) dictionary: &'a mut Dictionary,
    pub(super) strings: StringTexts<'a>,
    pub(super) stacks: Stacks,
    /// Names of the kernels.
    pub(super) kernels: ById<TextId>,
    pub(super) words: Words,
    joint: Joint,
    arrows: Arrows,
    pub(super) memory: Memory,
    recent: Recent<Option<u32>>,
    /// Whether a category is left out, by the number of its text, as far as known.
    left_out: Vec<Option<bool>>,
    /// What became of the events of the chunk.
    fates: Vec<Fate>,
    flows: Vec<FlowEnd>,
    pub(super) facts: Facts,
    take: &'a mut TakeItem<'b>,
}

/// What became of an event's rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
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

/// Draws a unit.
pub(super) fn draw(
    job: &JobRows,
    unit: &Unit,
    layout: &UnitLayout,
    dictionary: &mut Dictionary,
    memory: u64,
    take: &mut TakeItem<'_>,
) -> Result<Facts, Failure> {
    let (tables, strings): (&Tables, &Strings) = (&job.tables, &job.strings);
    let seen = &layout.seen;
    let selection = &job.selection;
    let asked_for = |what: What| !selection.exclude.contains(&what);
    let flows = asked_for(What::Flows);
    let placing = Placing::new(&seen.names, &job.processes, unit, selection.group_by_queue);
    let first = unit.processes.first().and_then(|place| job.processes.get(*place as usize));
    let process = first.filter(|_| !unit.by_pid).map_or(0, |process| process.drawn.id);
    let arrows = match flows {
        true => arrows(tables, unit, &seen.pieces, process, memory)?,
        false => Arrows::default(),
    };
    let mut facts = Facts { backward: arrows.backward, arrows: arrows.len(), ..Facts::default() };
    let words = Words::new(&mut dictionary.texts, &seen.names);
    let earlier = if flows { earlier(job, unit)? } else { 0 };
    let joint = Joint::new(&mut dictionary.texts, earlier);
    let kernels = names::kernels(tables, unit, &mut dictionary.texts, &mut facts.mended)?;
    let mut pen = Pen {
        tables,
        unit,
        placing: &placing,
        processes: &job.processes,
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
        flows: Vec::new(),
        facts,
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
            args: selection.annotations && asked_for(What::Args),
            collectives: flows && asked_for(What::Regions),
            values: asked_for(What::Counters),
        },
        memory,
    };
    for chunk in chunks(tables, unit, memory)? {
        pen.chunk(&source, &chunk, pieces)?;
    }
    pen.finish(&source)
}

impl<'a> Pen<'a, '_> {
    /// Draws the rows of a chunk of events.
    fn chunk(
        &mut self,
        source: &Source<'_>,
        chunk: &Chunk,
        pieces: impl Fn(TableId) -> &'a [PieceSeen],
    ) -> Result<(), Failure> {
        let mut counted = Counted::default();
        let (strings, stacks) = (&mut self.strings, &mut self.stacks);
        let events = Events::read(source, chunk, strings, stacks, self.dictionary, &mut counted)?;
        self.fates.clear();
        self.fates.resize(events.len(), Fate::None);
        for table in DRAWN.into_iter().filter(|table| !matches!(*table, rocpd::ARG | rocpd::PMC_EVENT)) {
            for piece in pieces(table).iter().filter(|piece| chunk.touches(piece)) {
                self.piece(table, piece, chunk, &events)?;
            }
        }
        self.settle(&events, &counted, source.asked);
        Ok(())
    }

    /// Counts what became of the args and counter values of a chunk.
    fn settle(&mut self, events: &Events, counted: &Counted, asked: Asked) {
        self.facts.mended += counted.mended;
        self.facts.cut_stacks += counted.cut_stacks;
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

    fn piece(
        &mut self,
        table: TableId,
        piece: &PieceSeen,
        chunk: &Chunk,
        events: &Events,
    ) -> Result<(), Failure> {
        if self.is_outside(table, piece) {
            // A piece of several chunks is counted with the first.
            if chunk.has(Some(piece.events.0)) {
                let facts = of_table(&mut self.facts, table);
                facts.rows += piece.rows;
                facts.left_out += piece.rows;
            }
            return Ok(());
        }
        match table {
            rocpd::REGION => self.regions(piece.piece, chunk, events),
            rocpd::SAMPLE => self.samples(piece.piece, chunk, events),
            rocpd::KERNEL_DISPATCH => self.kernels(piece.piece, chunk, events),
            rocpd::MEMORY_COPY => self.copies(piece.piece, chunk, events),
            _ => self.allocations(piece.piece, chunk, events),
        }
    }

    /// Whether nothing of a piece can be in the window, nor be a counter value before it.
    fn is_outside(&self, table: TableId, piece: &PieceSeen) -> bool {
        let Some((from, to)) = self.window else { return false };
        let has_values =
            self.layout.seen.pieces.get(place_of(rocpd::PMC_EVENT)).is_some_and(|all| !all.is_empty());
        let is_early = piece.times.1 < from && table != rocpd::MEMORY_ALLOCATE && !has_values;
        piece.times.0 >= to || is_early
    }

    /// What a row is drawn with; `None` where it is not drawn, which is counted.
    #[inline]
    pub(super) fn enter(
        &mut self,
        table: TableId,
        spans: &Spans<'_>,
        i: usize,
        chunk: &Chunk,
        events: &Events,
    ) -> Option<Drawn> {
        let id = spans.event(i);
        if !chunk.has(id) {
            return None;
        }
        let event = events.find(id);
        let facts = of_table(&mut self.facts, table);
        facts.rows += 1;
        let Some((start, mut end)) = spans.times(i) else {
            facts.untimed += 1;
            return None;
        };
        let key = self.placing.key(spans, i);
        let category =
            event.and_then(|event| events.categories.get(event as usize)).copied().unwrap_or_default();
        let mut track = self.track(key);
        if track.is_none() && table == rocpd::SAMPLE && is_selected(self.processes, key) {
            // The survey found that its counters have tracks of their own, and nothing else is here.
            track = Some(NO_TRACK);
        }
        let is_asked = !excludes(self.selection, table) && !self.leaves_out(category);
        let is_late = self.window.is_some_and(|(_, to)| start >= to);
        let Some(track) = track.filter(|_| is_asked && !is_late) else {
            of_table(&mut self.facts, table).left_out += 1;
            self.note(event, Fate::LeftOut);
            return None;
        };
        let in_window = self.window.is_none_or(|(from, _)| end.max(start) >= from);
        let message =
            event.and_then(|event| events.messages.get(event as usize)).copied().unwrap_or_default();
        let facts = of_table(&mut self.facts, table);
        if !in_window {
            facts.left_out += 1;
            self.note(event, Fate::LeftOut);
            return Some(Drawn {
                key,
                start,
                end: end.max(start),
                track,
                event,
                category,
                message,
                in_window,
            });
        }
        if end < start {
            facts.clamped += 1;
            end = start;
        }
        facts.drawn += 1;
        facts.duration += u128::from(end.abs_diff(start));
        self.facts.without_event += u64::from(event.is_none());
        self.facts.without_track += u64::from(is_unknown(key));
        self.note(event, Fate::Drawn);
        Some(Drawn { key, start, end, track, event, category, message, in_window })
    }

    fn note(&mut self, event: Option<u32>, fate: Fate) {
        if let Some(known) = event.and_then(|event| self.fates.get_mut(event as usize)) {
            *known = fate.max(*known);
        }
    }

    /// The place of a track; `None` where its process is not asked for.
    #[inline]
    fn track(&mut self, key: Key) -> Option<u32> {
        if let Some(track) = self.recent.get(key) {
            return track;
        }
        let track = self.layout.seen.tracks.get(&key).copied();
        self.recent.put(key, track);
        track
    }

    /// Whether a category is left out.
    #[inline]
    fn leaves_out(&mut self, category: TextId) -> bool {
        let place = category.0 as usize;
        if place >= self.left_out.len() {
            self.left_out.resize(place + 1, None);
        }
        let Some(known) = self.left_out.get_mut(place) else { return false };
        let (selection, texts) = (self.selection, &self.dictionary.texts);
        *known.get_or_insert_with(|| {
            let category = texts.get(category);
            selection.exclude.iter().any(|what| match what {
                What::Markers => category.starts_with("MARKER_"),
                What::Category(name) => category == name,
                _ => false,
            })
        })
    }

    /// Hands on the slice of a row, and the counter values of its event.
    #[inline]
    pub(super) fn slice<'r>(
        &mut self,
        row: &Drawn,
        name: TextId,
        args: &mut Vec<Arg<'r>>,
        events: &'r Events,
    ) -> Result<(), Failure> {
        if !row.in_window {
            return self.values(row, events);
        }
        self.add_args(row, args, events);
        self.facts.items.slices += 1;
        self.facts.items.flows += self.flows.len() as u64;
        (self.take)(&Item {
            start: row.start,
            end: row.end,
            track: row.track,
            kind: Kind::Slice,
            name,
            category: row.category,
            flows: &self.flows,
            args,
        })?;
        self.values(row, events)
    }

    /// Hands on a sample: an instant, a call stack, or nothing but the counter values of its event.
    pub(super) fn moment<'r>(
        &mut self,
        row: &Drawn,
        name: TextId,
        args: &mut Vec<Arg<'r>>,
        events: &'r Events,
    ) -> Result<(), Failure> {
        self.flows.clear();
        let stack = row.event.and_then(|event| events.stack(event));
        let has_values = row.event.is_some_and(|event| events.attached(event).1 > 0);
        let track = self.layout.tracks.get(row.track as usize);
        let of_thread = track.is_some_and(|track| matches!(track.kind, TrackKind::Thread { .. }));
        self.facts.cut_stacks += u64::from(row.track == NO_TRACK && stack.is_some());
        let kind = match stack {
            _ if !row.in_window || row.track == NO_TRACK => None,
            Some(stack) if of_thread => Some(Kind::Sample(StackNumber(stack))),
            None if has_values => None,
            _ => Some(Kind::Instant),
        };
        if let Some(kind) = kind {
            let is_sample = matches!(kind, Kind::Sample(_));
            if !is_sample {
                self.add_args(row, args, events);
            }
            let counts = &mut self.facts.items;
            if is_sample {
                counts.samples += 1
            } else {
                counts.instants += 1
            }
            let name = if is_sample { TextId(0) } else { name };
            let (start, end, track) = (row.start, row.end, row.track);
            (self.take)(&Item { start, end, track, kind, name, category: row.category, flows: &[], args })?;
        }
        self.values(row, events)
    }

    /// The values of the counters of an event: from the start of the row on, and 0 behind its end if it has one.
    fn values(&mut self, row: &Drawn, events: &Events) -> Result<(), Failure> {
        let Some(event) = row.event else { return Ok(()) };
        let is_moment = matches!(row.key.1, Place::Thread(_) | Place::Moments(_)) && row.start == row.end;
        for value in events.values(event) {
            let Some(track) = value.track else { continue };
            self.counter(row.start, track, value.value)?;
            if !is_moment {
                self.counter(row.end, track, CounterValue::Int(0))?;
            }
        }
        Ok(())
    }

    fn counter(&mut self, at: i64, track: u32, value: CounterValue) -> Result<(), Failure> {
        if self.window.is_some_and(|(_, to)| at >= to) {
            return Ok(());
        }
        self.facts.items.counters += 1;
        let (name, category) = (TextId(0), TextId(0));
        let kind = Kind::Counter(value);
        (self.take)(&Item { start: at, end: at, track, kind, name, category, flows: &[], args: &[] })
    }

    /// Adds what was recorded of the event to what the row itself says.
    #[inline]
    fn add_args<'r>(&mut self, row: &Drawn, args: &mut Vec<Arg<'r>>, events: &'r Events) {
        let Some(event) = row.event else { return };
        if self.selection.annotations {
            if !self.selection.exclude.contains(&What::Args) {
                args.extend(events.args.of(event).map(|(name, value)| Arg { name, value }));
            }
            if let Some(stack) = events.stack(event) {
                let text = self.stacks.text(stack, self.dictionary);
                args.push(Arg { name: self.words.call_stack, value: ArgValue::Known(text) });
            }
        }
    }

    /// Sets the arrows of the next item: those at this row.
    #[inline]
    pub(super) fn set_flows(&mut self, table: TableId, id: i64, next: &mut usize) {
        self.flows.clear();
        let arrows = self.arrows.all(table);
        while let Some((row, number)) = arrows.get(*next).filter(|(row, _)| *row <= id) {
            if *row == id {
                let from = table == rocpd::REGION;
                self.flows.push(if from { FlowEnd::From(*number) } else { FlowEnd::To(*number) });
            }
            *next += 1;
        }
    }

    /// Adds the arrow of a collective, if the row is a call of one.
    #[inline]
    pub(super) fn add_collective(&mut self, row: &Drawn, name: TextId, events: &Events) {
        let texts = &self.dictionary.texts;
        let Some(function) = self.joint.function(name, texts) else { return };
        let Some(event) = row.event.filter(|_| !self.selection.exclude.contains(&What::Flows)) else {
            return;
        };
        if let Some(number) = self.joint.number(function, events.args.of(event), texts) {
            self.facts.collectives += 1;
            self.flows.push(FlowEnd::Through(number));
        }
    }

    /// No arrows at the next item.
    pub(super) fn clear_flows(&mut self) {
        self.flows.clear();
    }

    /// Where the arrows at rows of a table stand from this id on.
    pub(super) fn first_arrow(&self, table: TableId, id: i64) -> usize {
        self.arrows.first(table, id)
    }

    /// Text of a table's column.
    pub(super) fn known_text(&mut self, text: &[u8]) -> TextId {
        add_text(text, self.dictionary, &mut self.facts.mended)
    }

    /// Whether the rows say something of themselves.
    pub(super) fn annotates(&self) -> bool {
        self.selection.annotations
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

/// Whether the process, or something of the place, is not there.
fn is_unknown((process, place): Key) -> bool {
    let there = !matches!(
        place,
        Place::Thread(None) | Place::Moments(None) | Place::Lane(None, _) | Place::Lane(_, None)
    );
    process == NOBODY || !there
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
