//! The first pass over a unit: determines its tracks, its times, and which pieces hold which events.

use super::layout::lay_out_tracks;
use super::placement::{NO_PROCESS, RecentPlaces, RowPlacement, RowSpans, TrackKey, TrackPlace};
use super::{JobRows, TakeStart};
use crate::item::{ItemExclusion, TraceSelection, UnitLayout};
use rpd_console::Failure;
use rpd_run::{DRAWN_TABLES, RowUnit, RunProcess, UnitNames};
use rpd_shard::model::{TableId, Value, rocpd};
use std::collections::BTreeSet;

/// Maximum number of tracks in a unit.
const MAX_TRACKS: usize = 1 << 20;

/// Surveyed properties of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceSeen {
    /// Index of the piece in its table.
    pub(super) piece: usize,
    /// Smallest and largest event id; `i64::MIN` for rows without an event.
    pub(super) events: (i64, i64),
    /// First and last time.
    pub(super) times: (i64, i64),
    /// Number of rows of the unit.
    pub(super) rows: u64,
}

/// Returns the columns that the first pass reads from a table.
fn surveyed_columns(table: TableId) -> &'static [&'static str] {
    match table {
        rocpd::REGION => &["pid", "tid", "start", "end", "event_id"],
        rocpd::SAMPLE => &["track_id", "timestamp", "event_id"],
        rocpd::KERNEL_DISPATCH => &["pid", "agent_id", "queue_id", "stream_id", "start", "end", "event_id"],
        rocpd::MEMORY_COPY => &["pid", "dst_agent_id", "src_agent_id", "start", "end", "event_id"],
        rocpd::MEMORY_ALLOCATE => &["pid", "agent_id", "type", "level", "start", "end", "event_id"],
        rocpd::PMC_EVENT => &["event_id", "pmc_id"],
        _ => &["event_id"],
    }
}

/// Returns whether a whole table is excluded.
pub(super) fn excludes_table(selection: &TraceSelection, table: TableId) -> bool {
    let what = match table {
        rocpd::REGION => ItemExclusion::Regions,
        rocpd::KERNEL_DISPATCH => ItemExclusion::Kernels,
        rocpd::MEMORY_COPY => ItemExclusion::Copies,
        rocpd::MEMORY_ALLOCATE => ItemExclusion::Allocations,
        rocpd::PMC_EVENT => ItemExclusion::Counters,
        _ => return false,
    };
    !selection.includes(what)
}

/// State of the first pass.
struct Survey<'a, 'b> {
    placing: RowPlacement<'a>,
    job: &'a JobRows,
    each: &'a mut TakeStart<'b>,
    tracks: BTreeSet<TrackKey>,
    recent: RecentPlaces<()>,
    /// Ids of the events of counter values, ascending.
    value_events: Vec<i64>,
    /// For the first value of each event, the time at which it was last drawn.
    drawn_at: Vec<i64>,
    layout: UnitLayout,
}

/// Surveys a unit.
pub(super) fn survey_unit(
    job: &JobRows,
    unit: &RowUnit,
    each: &mut TakeStart<'_>,
) -> Result<UnitLayout, Failure> {
    let names = UnitNames::read(&job.run.tables, unit)?;
    let mut pieces: Vec<Vec<PieceSeen>> = vec![Vec::new(); DRAWN_TABLES.len()];
    let mut survey = Survey {
        placing: RowPlacement::new(job, unit, &names),
        job,
        each,
        tracks: BTreeSet::new(),
        recent: RecentPlaces::default(),
        value_events: Vec::new(),
        drawn_at: Vec::new(),
        layout: UnitLayout::default(),
    };
    // Counter values are read before samples, because whether a sample has counters determines its track.
    for (place, table) in DRAWN_TABLES.into_iter().enumerate().rev() {
        pieces[place] = survey.survey_table(unit, table)?;
        if table == rocpd::PMC_EVENT {
            survey.value_events.sort_unstable();
            survey.drawn_at = vec![i64::MIN; survey.value_events.len()];
        }
    }
    let Survey { tracks, layout: mut found, .. } = survey;
    lay_out_tracks(job, unit, &names, &tracks, &mut found);
    found.seen.names = names;
    found.seen.pieces = pieces;
    Ok(found)
}

impl Survey<'_, '_> {
    fn survey_table(&mut self, unit: &RowUnit, table: TableId) -> Result<Vec<PieceSeen>, Failure> {
        let tables = &self.job.run.tables;
        let ids = unit.ids(table);
        let all = tables.pieces_with(table, ids)?;
        let mut pieces: Vec<PieceSeen> = Vec::new();
        let mut before: Option<i64> = None;
        tables.read_pieces(table, &all, ids, surveyed_columns(table), &mut |number, rows, places| {
            let Some(&piece) = all.get(number) else { return Ok(()) };
            if pieces.last().is_none_or(|seen| seen.piece != piece) {
                self.check_track_count()?;
                let (events, times) = ((i64::MAX, i64::MIN), (i64::MAX, i64::MIN));
                pieces.push(PieceSeen { piece, events, times, rows: 0 });
            }
            let Some(seen) = pieces.last_mut() else { return Ok(()) };
            let spans = RowSpans::of(table, rows, &self.placing);
            let first = rows.keys.get(places.start);
            if before.is_some_and(|before| before >= first) {
                return Err(tables.descending_ids(table));
            }
            before = places.end.checked_sub(1).map(|last| rows.keys.get(last));
            seen.rows += places.len() as u64;
            for i in places.clone() {
                let event = spans.event(i).unwrap_or(i64::MIN);
                seen.events = (seen.events.0.min(event), seen.events.1.max(event));
            }
            match table {
                rocpd::ARG => {}
                rocpd::PMC_EVENT => {
                    let is_drawn = !excludes_table(&self.job.selection, table);
                    for i in places {
                        self.value_events.extend(spans.event(i));
                        if is_drawn {
                            self.add_track(self.placing.track_key(&spans, i));
                        }
                    }
                }
                _ if excludes_table(&self.job.selection, table) => {}
                _ => {
                    let kinds = rows.column("type");
                    for i in places {
                        let Some((start, end)) = spans.times(i) else { continue };
                        seen.times = (seen.times.0.min(start), seen.times.1.max(end).max(start));
                        let grows = table == rocpd::MEMORY_ALLOCATE
                            && matches!(kinds.get(i), Value::Text(b"ALLOC" | b"REALLOC"));
                        self.count_row(table, &spans, i, (start, end), grows);
                    }
                }
            }
            Ok(())
        })?;
        self.check_track_count()?;
        Ok(pieces)
    }

    fn check_track_count(&self) -> Result<(), Failure> {
        match self.tracks.len() {
            0..=MAX_TRACKS => Ok(()),
            _ => {
                Err(self.job.run.tables.failure(format_args!("a process has more than {MAX_TRACKS} tracks")))
            }
        }
    }

    #[inline]
    fn count_row(
        &mut self,
        table: TableId,
        spans: &RowSpans<'_>,
        i: usize,
        (start, end): (i64, i64),
        grows: bool,
    ) {
        let key = self.placing.track_key(spans, i);
        if !is_selected(&self.job.run.processes, key) {
            return;
        }
        let layout = &mut self.layout;
        layout.first = Some(layout.first.map_or(start, |first| first.min(start)));
        layout.last = Some(layout.last.map_or(start, |last| last.max(start)).max(end));
        let (values, is_first) = self.count_values(spans.event(i), start);
        let is_moment = table == rocpd::SAMPLE;
        // A sample of counters with values only provides their time.
        if !(is_moment && values > 0 && matches!(key.1, TrackPlace::Moments(_))) {
            self.add_track(key);
        }
        let counts = &mut self.layout.counts;
        if !is_moment {
            counts.slices += 1;
            (self.each)(start);
        } else if values == 0 {
            counts.instants += 1;
            (self.each)(start);
        }
        let has_counters = !excludes_table(&self.job.selection, rocpd::PMC_EVENT);
        let values = if has_counters && is_first { values } else { 0 };
        let ends = if is_moment { 1 } else { 2 };
        counts.counters += values * ends;
        for _ in 0..values {
            (self.each)(start);
            if !is_moment {
                (self.each)(end);
            }
        }
        if grows && has_counters {
            self.layout.counts.counters += 1;
            (self.each)(end);
            if let (process, TrackPlace::Allocations(agent)) = key {
                self.add_track((process, TrackPlace::Sum(agent, spans.level(i))));
            }
        }
    }

    fn add_track(&mut self, key: TrackKey) {
        if self.recent.get(key).is_none() {
            self.recent.put(key, ());
            if is_selected(&self.job.run.processes, key) {
                self.tracks.insert(key);
            }
        }
    }

    /// Returns the number of counter values of an event, and whether no other row at the same time has drawn
    /// them already.
    #[inline]
    fn count_values(&mut self, event: Option<i64>, at: i64) -> (u64, bool) {
        let Some(event) = event.filter(|_| !self.value_events.is_empty()) else { return (0, true) };
        let first = self.value_events.partition_point(|other| *other < event);
        let rest = self.value_events.get(first..).unwrap_or_default();
        let values = rest.iter().take_while(|other| **other == event).count() as u64;
        let drawn_at = self.drawn_at.get_mut(first).filter(|_| values > 0);
        (values, drawn_at.is_none_or(|drawn_at| std::mem::replace(drawn_at, at) != at))
    }
}

/// Returns whether the process of a track is selected.
pub(super) fn is_selected(processes: &[RunProcess], (process, _): TrackKey) -> bool {
    process == NO_PROCESS || processes.get(process as usize).is_some_and(|process| process.is_selected)
}
