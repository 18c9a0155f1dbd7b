//! Reads the values of counters with the times for which they count.
//!
//! A value belongs to an event, and its time is that of the sample, kernel or other row with the same event. The values of
//! a unit are read in batches, and of the other tables only the pieces with events of the batch.

use crate::input::ReportRun;
use rpd_console::Failure;
use rpd_run::{RowUnit, row_times};
use rpd_shard::model::{IntColumn, TableId, Value, rocpd};
use std::collections::BTreeMap;

/// Number of values after which a batch ends.
const BATCH_VALUES: usize = 1 << 18;
/// Maximum number of rows at different times that share the values of an event. Recorders write one, or several at one time.
const MAX_ROWS_OF_EVENT: u16 = 256;
/// Maximum time for which the value of a sample counts, ns. Collectors write a value when it changes, and once a second.
pub(super) const HOLD_NS: i64 = 2_500_000_000;

/// Tables of rows with times, and their columns: event, start and end.
const TIMED_TABLES: [(TableId, &[&str; 3]); 5] = [
    (rocpd::SAMPLE, &["event_id", "timestamp", "timestamp"]),
    (rocpd::KERNEL_DISPATCH, &["event_id", "start", "end"]),
    (rocpd::REGION, &["event_id", "start", "end"]),
    (rocpd::MEMORY_COPY, &["event_id", "start", "end"]),
    (rocpd::MEMORY_ALLOCATE, &["event_id", "start", "end"]),
];

/// A value, and the time from `start` to before `end` for which it counts, ns in job time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct HeldValue {
    /// Place of the counter in the names of its unit.
    pub(super) counter: u32,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) value: f64,
}

/// Takes the values of counters.
pub(super) trait TakesValues {
    /// Returns whether the values of a counter are wanted.
    fn wants(&mut self, counter: u32) -> bool;
    /// Takes a value. Those of the samples of a counter come in the order of time, if the rows are.
    fn take(&mut self, value: HeldValue);
}

/// A value that was read without its time.
#[derive(Clone, Copy, Debug)]
struct EventValue {
    event: i64,
    counter: u32,
    value: f64,
}

/// A piece of a table with times.
#[derive(Clone, Copy, Debug)]
struct TimedPiece {
    table: TableId,
    columns: &'static [&'static str; 3],
    piece: usize,
    /// Smallest and largest id of an event.
    events: (i64, i64),
}

/// Passes the values of a unit in the selected times to `taker`. `place` returns the place of a counter by its id.
pub(super) fn read_values(
    run: &ReportRun,
    unit: &RowUnit,
    place: impl Fn(Option<i64>) -> Option<u32>,
    taker: &mut impl TakesValues,
) -> Result<(), Failure> {
    let tables = &run.database.tables;
    let mut timed: Option<Vec<TimedPiece>> = None;
    let mut held = HeldSamples::default();
    let mut batch: Vec<EventValue> = Vec::new();
    let ids = unit.ids(rocpd::PMC_EVENT);
    let pieces = tables.pieces_with(rocpd::PMC_EVENT, ids)?;
    for (number, piece) in pieces.iter().enumerate() {
        let wanted = &["event_id", "pmc_id", "value"];
        tables.read_pieces(rocpd::PMC_EVENT, &[*piece], ids, wanted, &mut |_, rows, places| {
            let column = |name: &str| IntColumn::of(rows.column(name));
            let (events, counters, values) = (column("event_id"), column("pmc_id"), rows.column("value"));
            for i in places {
                let Some((event, counter)) = events.at(i).zip(place(counters.at(i))) else { continue };
                let value = match values.get(i) {
                    Value::Int(value) => value as f64,
                    Value::Real(value) => value,
                    _ => continue,
                };
                if value.is_finite() && taker.wants(counter) {
                    batch.push(EventValue { event, counter, value });
                }
            }
            Ok(())
        })?;
        let has_more = number + 1 < pieces.len();
        if batch.is_empty() || (has_more && batch.len() < BATCH_VALUES) {
            continue;
        }
        let timed = match &mut timed {
            Some(timed) => timed,
            none => none.insert(timed_pieces(run, unit)?),
        };
        add_times(run, unit, timed, &mut batch, &mut held, taker)?;
    }
    held.finish(taker);
    Ok(())
}

/// Returns the pieces of a unit that have rows with times and events.
fn timed_pieces(run: &ReportRun, unit: &RowUnit) -> Result<Vec<TimedPiece>, Failure> {
    let tables = &run.database.tables;
    let mut found = Vec::new();
    for (table, columns) in TIMED_TABLES {
        let ids = unit.ids(table);
        let pieces = tables.pieces_with(table, ids)?;
        let mut bounds = vec![(i64::MAX, i64::MIN); pieces.len()];
        tables.read_pieces(table, &pieces, ids, &["event_id"], &mut |number, rows, places| {
            let events = IntColumn::of(rows.column("event_id"));
            if let Some((first, last)) = bounds.get_mut(number) {
                for event in places.filter_map(|i| events.at(i)) {
                    (*first, *last) = ((*first).min(event), (*last).max(event));
                }
            }
            Ok(())
        })?;
        let pieces = pieces.into_iter().zip(bounds);
        found.extend(pieces.map(|(piece, events)| TimedPiece { table, columns, piece, events }));
    }
    found.retain(|piece| piece.events.0 <= piece.events.1);
    Ok(found)
}

/// Finds the times of a batch of values, and passes the values on. Empties the batch.
fn add_times(
    run: &ReportRun,
    unit: &RowUnit,
    timed: &[TimedPiece],
    batch: &mut Vec<EventValue>,
    held: &mut HeldSamples,
    taker: &mut impl TakesValues,
) -> Result<(), Failure> {
    batch.sort_by_key(|value| value.event);
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
    let (first, last) = (first.event, last.event);
    // By event, at its first value: the time of the last row with the event, and the number of such rows.
    let mut seen = vec![(i64::MIN, 0u16); batch.len()];
    for piece in timed.iter().filter(|piece| piece.events.0 <= last && first <= piece.events.1) {
        let [event, start, end] = *piece.columns;
        let ids = unit.ids(piece.table);
        let tables = &run.database.tables;
        tables.read_pieces(piece.table, &[piece.piece], ids, piece.columns, &mut |_, rows, places| {
            let [events, starts, ends] = [event, start, end].map(|name| IntColumn::of(rows.column(name)));
            for i in places {
                let Some(event) = events.at(i).filter(|event| (first..=last).contains(event)) else {
                    continue;
                };
                let Some((start, _)) = row_times(starts, ends, i) else { continue };
                if !run.selection.contains_time(start) {
                    continue;
                }
                let from = batch.partition_point(|value| value.event < event);
                let Some((at, rows)) = seen.get_mut(from).filter(|(at, _)| *at != start) else { continue };
                if *rows == MAX_ROWS_OF_EVENT {
                    continue;
                }
                (*at, *rows) = (start, *rows + 1);
                let values = batch.get(from..).unwrap_or_default();
                for value in values.iter().take_while(|value| value.event == event) {
                    let EventValue { counter, value, .. } = *value;
                    if piece.table == rocpd::SAMPLE {
                        held.add(counter, start, value, taker);
                    } else {
                        // The value of a row with a duration counts once, at its start.
                        taker.take(HeldValue { counter, start, end: start.saturating_add(1), value });
                    }
                }
            }
            Ok(())
        })?;
    }
    held.flush(taker);
    batch.clear();
    Ok(())
}

/// Values of samples, each of which counts until the next one of its counter.
#[derive(Debug, Default)]
struct HeldSamples {
    /// Counter, time and value.
    waiting: Vec<(u32, i64, f64)>,
    /// The last time and value of each counter.
    last: BTreeMap<u32, (i64, f64)>,
}

impl HeldSamples {
    fn add(&mut self, counter: u32, at: i64, value: f64, taker: &mut impl TakesValues) {
        self.waiting.push((counter, at, value));
        if self.waiting.len() >= BATCH_VALUES * 2 {
            self.flush(taker);
        }
    }

    /// Passes on all values that are followed by another one.
    fn flush(&mut self, taker: &mut impl TakesValues) {
        self.waiting.sort_by_key(|(counter, at, _)| (*counter, *at));
        for (counter, at, value) in self.waiting.drain(..) {
            if let Some((start, before)) = self.last.insert(counter, (at, value)) {
                let longest = start.saturating_add(HOLD_NS);
                // Rows that are not in the order of time tell nothing about the next value.
                let end = if at < start { longest } else { at.min(longest) };
                taker.take(HeldValue { counter, start, end, value: before });
            }
        }
    }

    /// Passes on the last value of each counter.
    fn finish(mut self, taker: &mut impl TakesValues) {
        self.flush(taker);
        for (counter, (start, value)) in self.last {
            taker.take(HeldValue { counter, start, end: start.saturating_add(HOLD_NS), value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct TakenValues(Vec<(u32, i64, i64, f64)>);

    impl TakesValues for TakenValues {
        fn wants(&mut self, _: u32) -> bool {
            true
        }

        fn take(&mut self, HeldValue { counter, start, end, value }: HeldValue) {
            self.0.push((counter, start, end, value));
        }
    }

    #[test]
    fn the_value_of_a_sample_counts_until_the_next_one_and_two_seconds_at_most() {
        let (mut held, mut taken) = (HeldSamples::default(), TakenValues::default());
        held.add(1, 100, 5.0, &mut taken);
        held.add(0, 0, 1.0, &mut taken);
        held.flush(&mut taken);
        assert_eq!(taken.0, [], "nothing follows yet");
        held.add(1, 300, 6.0, &mut taken);
        held.add(0, 3 * HOLD_NS, 2.0, &mut taken);
        held.finish(&mut taken);
        let expected = [
            (0, 0, HOLD_NS, 1.0),
            (1, 100, 300, 5.0),
            (0, 3 * HOLD_NS, 4 * HOLD_NS, 2.0),
            (1, 300, 300 + HOLD_NS, 6.0),
        ];
        assert_eq!(taken.0, expected);
    }

    #[test]
    fn samples_that_are_not_in_the_order_of_time_count() {
        let (mut held, mut taken) = (HeldSamples::default(), TakenValues::default());
        held.add(0, 500, 5.0, &mut taken);
        held.flush(&mut taken);
        held.add(0, 200, 2.0, &mut taken);
        held.add(0, 200, 3.0, &mut taken);
        held.finish(&mut taken);
        let expected = [(0, 500, 500 + HOLD_NS, 5.0), (0, 200, 200, 2.0), (0, 200, 200 + HOLD_NS, 3.0)];
        assert_eq!(taken.0, expected);
    }
}
