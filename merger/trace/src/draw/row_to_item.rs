//! Turns a row into an item: whether it is drawn, on which track, and with which args and flows.

use super::event_details::EventDetails;
use super::placement::{NO_PROCESS, TrackKey, TrackPlace};
use super::survey::{excludes_table, is_selected};
use super::table_rows::ChunkRows;
use super::unit::{EventOutcome, UnitDrawer};
use crate::item::{
    ArgValue, FlowEnd, ItemArg, ItemExclusion, ItemKind, StackNumber, TextId, TraceItem, TrackKind,
};
use rpd_console::Failure;
use rpd_perfetto::CounterValue;
use rpd_shard::model::rocpd;

/// A row that is drawn.
pub(super) struct DrawnRow {
    pub(super) key: TrackKey,
    pub(super) start: i64,
    pub(super) end: i64,
    track: u32,
    /// Index of its event in the chunk.
    pub(super) event: Option<u32>,
    category: TextId,
    pub(super) message: TextId,
    /// If false, the row is before the window and only its counter values are used.
    in_window: bool,
}

/// Track of samples that only have counter values.
const NO_TRACK: u32 = u32::MAX;

impl UnitDrawer<'_, '_> {
    /// Returns the properties with which a row is drawn. Returns `None` if it is not drawn, and counts the
    /// reason.
    #[inline]
    pub(super) fn classify_row(&mut self, rows: &ChunkRows<'_>, i: usize) -> Option<DrawnRow> {
        let (spans, events, source) = (&rows.spans, rows.events, self.source);
        let id = spans.event(i);
        if !rows.chunk.contains(id) {
            return None;
        }
        let event = events.find(id);
        let facts = &mut self.facts.tables[rows.facts];
        facts.rows += 1;
        let Some((start, end)) = spans.times(i) else {
            facts.untimed += 1;
            return None;
        };
        let text_of =
            |texts: &[TextId]| event.and_then(|event| texts.get(event as usize)).copied().unwrap_or_default();
        let key = source.placing.track_key(spans, i);
        let category = text_of(&events.categories);
        let mut track = self.track(key);
        if track.is_none() && spans.table == rocpd::SAMPLE && is_selected(&source.job.run.processes, key) {
            // The survey found only counters in this sample, which have separate tracks.
            track = Some(NO_TRACK);
        }
        let is_asked =
            !excludes_table(&source.job.selection, spans.table) && !self.excludes_category(category);
        let is_late = source.job.window.is_some_and(|(_, to)| start >= to);
        let track = track.filter(|_| is_asked && !is_late);
        let (is_clamped, end) = (end < start, end.max(start));
        let in_window = source.job.window.is_none_or(|(from, _)| end >= from);
        let facts = &mut self.facts.tables[rows.facts];
        if track.is_some() && in_window {
            facts.clamped += u64::from(is_clamped);
            facts.drawn += 1;
            facts.duration += u128::from(end.abs_diff(start));
            self.facts.without_event += u64::from(event.is_none());
            self.facts.without_track += u64::from(is_unknown(key));
            self.note_outcome(event, EventOutcome::Drawn);
        } else {
            facts.left_out += 1;
            self.note_outcome(event, EventOutcome::LeftOut);
        }
        let message = text_of(&events.messages);
        Some(DrawnRow { key, start, end, track: track?, event, category, message, in_window })
    }

    fn note_outcome(&mut self, event: Option<u32>, outcome: EventOutcome) {
        if let Some(known) = event.and_then(|event| self.outcomes.get_mut(event as usize)) {
            *known = outcome.max(*known);
        }
    }

    /// Returns the index of a track; `None` if its process is not selected.
    #[inline]
    fn track(&mut self, key: TrackKey) -> Option<u32> {
        if let Some(track) = self.recent.get(key) {
            return track;
        }
        let track = self.source.seen.tracks.get(&key).copied();
        self.recent.put(key, track);
        track
    }

    /// Returns whether a category is excluded.
    #[inline]
    fn excludes_category(&mut self, category: TextId) -> bool {
        let place = category.0 as usize;
        if place >= self.excluded_categories.len() {
            self.excluded_categories.resize(place + 1, None);
        }
        let Some(known) = self.excluded_categories.get_mut(place) else { return false };
        let (selection, texts) = (&self.source.job.selection, &self.dictionary.texts);
        let facts = &mut self.facts;
        *known.get_or_insert_with(|| {
            let category = texts.get(category);
            let mut is_excluded = false;
            for (place, what) in (0u32..).zip(&selection.exclude) {
                let excludes = match what {
                    // Prefixes that rocprofv3 and rocprof-sys use.
                    ItemExclusion::Markers => {
                        category.starts_with("MARKER_") || category.starts_with("rocm_marker_")
                    }
                    ItemExclusion::Category(name) => category == name,
                    _ => false,
                };
                if excludes {
                    facts.matched_exclusions |= 1u64.checked_shl(place).unwrap_or(0);
                    is_excluded = true;
                }
            }
            is_excluded
        })
    }

    /// Passes on the slice of a row, and the counter values of its event.
    #[inline]
    pub(super) fn emit_slice<'r>(
        &mut self,
        row: &DrawnRow,
        name: TextId,
        args: &mut Vec<ItemArg<'r>>,
        events: &'r EventDetails,
    ) -> Result<(), Failure> {
        if !row.in_window {
            return self.emit_values(row, events);
        }
        self.add_args(row, args, events);
        self.facts.items.slices += 1;
        self.facts.items.flows += self.flows.len() as u64;
        let DrawnRow { start, end, track, category, .. } = *row;
        let (kind, flows) = (ItemKind::Slice, &self.flows);
        (self.take)(&TraceItem { start, end, track, kind, name, category, flows, args })?;
        self.emit_values(row, events)
    }

    /// Passes on a sample: an instant, a call stack, or only the counter values of its event.
    pub(super) fn emit_sample<'r>(
        &mut self,
        row: &DrawnRow,
        name: TextId,
        args: &mut Vec<ItemArg<'r>>,
        events: &'r EventDetails,
    ) -> Result<(), Failure> {
        self.flows.clear();
        let stack = row.event.and_then(|event| events.stack(event));
        let has_values = row.event.is_some_and(|event| events.has_values(event));
        let track = self.layout.tracks.get(row.track as usize);
        let of_thread = track.is_some_and(|track| matches!(track.kind, TrackKind::Thread { .. }));
        self.facts.cut_stacks += u64::from(row.track == NO_TRACK && stack.is_some());
        let selection = &self.source.job.selection;
        // A mark with a call stack or counters remains an instant, because nothing else shows its text and args.
        let is_mark = row.message != TextId(0) || row.event.is_some_and(|event| events.has_args(event));
        let leaves_out_stack = stack.is_some() && !is_mark && !selection.includes(ItemExclusion::Samples);
        let shows_values = has_values && self.source.asked.values;
        let kind = match stack {
            _ if !row.in_window || row.track == NO_TRACK || leaves_out_stack => None,
            Some(stack) if of_thread && !is_mark => Some(ItemKind::Sample(StackNumber(stack))),
            None if has_values && !is_mark => None,
            _ => Some(ItemKind::Instant),
        };
        if row.in_window && kind.is_none() && (leaves_out_stack || !shows_values) {
            let facts = self.facts.table_mut(rocpd::SAMPLE);
            facts.drawn -= 1;
            facts.left_out += 1;
            let outcome = row.event.and_then(|event| self.outcomes.get_mut(event as usize));
            if let Some(outcome) = outcome.filter(|_| !shows_values) {
                *outcome = EventOutcome::LeftOut;
            }
        }
        if let Some(kind) = kind {
            let is_sample = matches!(kind, ItemKind::Sample(_));
            if is_sample {
                self.facts.items.samples += 1;
            } else {
                self.add_args(row, args, events);
                self.facts.items.instants += 1;
            }
            let name = if is_sample { TextId(0) } else { name };
            let DrawnRow { start, end, track, category, .. } = *row;
            (self.take)(&TraceItem { start, end, track, kind, name, category, flows: &[], args })?;
        }
        self.emit_values(row, events)
    }

    /// Passes on the counter values of an event from the start of the row, and 0 after its end if it has one.
    ///
    /// Several samples of one time may share an event, such as those of one reading of a GPU by rocprof-sys.
    /// Their values are passed on once.
    fn emit_values(&mut self, row: &DrawnRow, events: &EventDetails) -> Result<(), Failure> {
        let Some(event) = row.event else { return Ok(()) };
        let before = self.values_drawn_at.get_mut(event as usize).and_then(|at| at.replace(row.start));
        if before == Some(row.start) {
            return Ok(());
        }
        let is_moment =
            matches!(row.key.1, TrackPlace::Thread(_) | TrackPlace::Moments(_)) && row.start == row.end;
        for value in events.values(event) {
            let Some(track) = value.track else { continue };
            self.emit_counter(row.start, track, value.value)?;
            if !is_moment {
                self.emit_counter(row.end, track, CounterValue::Int(0))?;
            }
        }
        Ok(())
    }

    pub(super) fn emit_counter(&mut self, at: i64, track: u32, value: CounterValue) -> Result<(), Failure> {
        if self.source.job.window.is_some_and(|(_, to)| at >= to) {
            return Ok(());
        }
        self.facts.items.counters += 1;
        let (name, category) = (TextId(0), TextId(0));
        let kind = ItemKind::Counter(value);
        (self.take)(&TraceItem { start: at, end: at, track, kind, name, category, flows: &[], args: &[] })
    }

    /// Adds the recorded args of the event to those of the row itself, which they replace if they have the same name.
    #[inline]
    fn add_args<'r>(&mut self, row: &DrawnRow, args: &mut Vec<ItemArg<'r>>, events: &'r EventDetails) {
        let Some(event) = row.event else { return };
        if self.source.job.selection.annotations {
            if self.source.asked.args {
                let own = args.len();
                args.extend(events.args.of(event).map(|(name, value)| ItemArg { name, value }));
                remove_repeated(args, own);
            }
            if let Some(stack) = events.stack(event) {
                let text = self.stacks.text(stack, &mut self.dictionary);
                args.push(ItemArg { name: self.labels.call_stack, value: ArgValue::Known(text) });
            }
        }
    }

    /// Adds the flow of a collective, if the row is a call of one.
    #[inline]
    pub(super) fn add_collective(&mut self, row: &DrawnRow, name: TextId, events: &EventDetails) {
        let texts = &self.dictionary.texts;
        let Some(function) = self.collectives.function(name, texts) else { return };
        let Some(event) = row.event.filter(|_| self.source.asked.flows) else { return };
        if let Some(number) = self.collectives.number(function, events.args.of(event), texts) {
            self.facts.collectives += 1;
            self.flows.push(FlowEnd::Through(number));
        }
    }
}

/// Removes those of the first `own` args whose names later ones have.
fn remove_repeated(args: &mut Vec<ItemArg<'_>>, own: usize) {
    let (first, later) = args.split_at(own);
    if first.iter().any(|arg| later.iter().any(|other| other.name == arg.name)) {
        let names: Vec<TextId> = later.iter().map(|arg| arg.name).collect();
        let mut place = 0;
        args.retain(|arg| {
            place += 1;
            place > own || !names.contains(&arg.name)
        });
    }
}

/// Returns whether the process, or an entry that determines the track, is missing.
fn is_unknown((process, place): TrackKey) -> bool {
    let there = !matches!(
        place,
        TrackPlace::Thread(None)
            | TrackPlace::Moments(None)
            | TrackPlace::Lane(None, _)
            | TrackPlace::Lane(_, None)
    );
    process == NO_PROCESS || !there
}
