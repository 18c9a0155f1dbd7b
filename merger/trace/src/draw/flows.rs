//! Finds the call that launched each kernel or copy: both have the same stack id.
//!
//! Several kernels may share a stack id (a graph), and so may several regions (a range around a call, a nested
//! call). A flow starts at the last region that began no later than the kernel; of several with the same begin,
//! at the first row.

use super::event_ids::EventIds;
use super::survey::excludes_table;
use super::unit_source::UnitSource;
use crate::item::{COLLECTIVE_BIT, UNIT_FLOW_SHIFT};
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};
use std::ops::Range;

/// Tables with rows at which flows end.
const SINK_TABLES: [TableId; 2] = [rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY];
/// The highest bit in the numbers of flows that an input stores.
pub(super) const RECORDED_BIT: u64 = 1 << 62;
/// Minimum number of events for which stack ids are held at once.
const MIN_EVENTS: u64 = 1 << 16;

/// Flows by the rows at which they begin and end.
#[derive(Debug, Default)]
pub(super) struct LaunchFlows {
    /// Id of the region, and number of the flow.
    from: Vec<(i64, u64)>,
    /// Id of the row and number of the flow, for each table of [`SINK_TABLES`].
    to: [Vec<(i64, u64)>; 2],
    /// Number of kernels and copies that began before all calls with their stack id.
    pub(super) backward: u64,
}

/// A kernel or copy, by its stack id and row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Sink {
    stack: i64,
    table: u8,
    id: i64,
    start: i64,
}

/// A region that may be the launching call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Call {
    stack: i64,
    start: i64,
    id: i64,
}

/// Stack ids of consecutive events.
#[derive(Debug, Default)]
struct StackIds {
    events: EventIds,
    stacks: Vec<i64>,
}

impl StackIds {
    fn push(&mut self, event: i64, stack: i64) {
        self.events.push(event);
        self.stacks.push(stack);
    }

    /// Returns the stack id of an event; 0 if it has none.
    #[inline]
    fn of(&self, event: Option<i64>) -> i64 {
        event
            .and_then(|event| self.events.find(event))
            .and_then(|place| self.stacks.get(place))
            .map_or(0, |id| *id)
    }
}

/// The set of stack ids that launched a kernel or copy.
enum Launching {
    Bits { low: i64, bits: Vec<u64> },
    Sorted,
}

impl Launching {
    /// `sinks` must be sorted.
    fn of(sinks: &[Sink]) -> Launching {
        let (Some(first), Some(last)) = (sinks.first(), sinks.last()) else { return Launching::Sorted };
        let width = last.stack.abs_diff(first.stack);
        if width / 256 > sinks.len() as u64 {
            return Launching::Sorted;
        }
        let mut bits = vec![0u64; (width / 64 + 1) as usize];
        for sink in sinks {
            let at = sink.stack.abs_diff(first.stack);
            if let Some(word) = bits.get_mut((at / 64) as usize) {
                *word |= 1 << (at % 64);
            }
        }
        Launching::Bits { low: first.stack, bits }
    }

    #[inline]
    fn contains(&self, stack: i64, sinks: &[Sink]) -> bool {
        match self {
            Launching::Bits { low, bits } => {
                let Some(at) = stack.checked_sub(*low).and_then(|at| u64::try_from(at).ok()) else {
                    return false;
                };
                bits.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
            }
            Launching::Sorted => sinks.binary_search_by_key(&stack, |sink| sink.stack).is_ok(),
        }
    }
}

/// Connects sinks with calls. Both must be sorted.
fn connect_calls(sinks: &[Sink], calls: &[Call], place: usize) -> LaunchFlows {
    let mut arrows = LaunchFlows::default();
    let first = (place as u64 + 1) << UNIT_FLOW_SHIFT & !(COLLECTIVE_BIT | RECORDED_BIT);
    let mut calls = calls;
    for sinks in sinks.chunk_by(|one, other| one.stack == other.stack) {
        let Some(stack) = sinks.first().map(|sink| sink.stack) else { continue };
        calls = calls.get(calls.partition_point(|call| call.stack < stack)..).unwrap_or_default();
        let own = calls.get(..calls.partition_point(|call| call.stack == stack)).unwrap_or_default();
        if own.is_empty() {
            continue;
        }
        for sink in sinks {
            let before = own.get(..own.partition_point(|call| call.start <= sink.start)).unwrap_or_default();
            let Some(last) = before.last() else {
                arrows.backward += 1;
                continue;
            };
            let Some(call) = before.get(before.partition_point(|call| call.start < last.start)) else {
                continue;
            };
            let number = first + arrows.from.len() as u64;
            arrows.from.push((call.id, number));
            if let Some(to) = arrows.to.get_mut(usize::from(sink.table)) {
                to.push((sink.id, number));
            }
        }
    }
    // A stable sort keeps the flows of one region in the order of their ends.
    arrows.from.sort_by_key(|(id, _)| *id);
    arrows.to.iter_mut().for_each(|to| to.sort_unstable());
    arrows
}

impl LaunchFlows {
    /// Finds the flows of a unit. `place` is its index in the job.
    pub(super) fn find(source: &UnitSource<'_>, place: usize) -> Result<LaunchFlows, Failure> {
        // A flow needs both of its ends.
        let is_drawn = |table| !excludes_table(&source.job.selection, table);
        let rows = |table| match is_drawn(table) {
            true => source.seen.pieces(table).iter().map(|piece| piece.rows).sum::<u64>(),
            false => 0,
        };
        let all: u64 = SINK_TABLES.map(rows).iter().sum();
        if all == 0 || rows(rocpd::REGION) == 0 {
            return Ok(LaunchFlows::default());
        }
        let mut sinks: Vec<Sink> = Vec::with_capacity(usize::try_from(all).unwrap_or(0));
        let only = each_stack(source, &mut |stacks| {
            for (number, table) in (0u8..).zip(SINK_TABLES).filter(|(_, table)| is_drawn(*table)) {
                each_span(source, table, stacks, &mut |stack, start, id| {
                    sinks.push(Sink { stack, table: number, id, start });
                })?;
            }
            Ok(())
        })?;
        sinks.sort_unstable();
        let launching = Launching::of(&sinks);
        let mut calls: Vec<Call> = Vec::new();
        let mut find = |stacks: &StackIds| {
            each_span(source, rocpd::REGION, stacks, &mut |stack, start, id| {
                if launching.contains(stack, &sinks) {
                    calls.push(Call { stack, start, id });
                }
            })
        };
        match only {
            Some(stacks) => find(&stacks)?,
            None => drop(each_stack(source, &mut find)?),
        }
        calls.sort_unstable();
        Ok(connect_calls(&sinks, &calls, place))
    }

    /// Returns the number of flows.
    pub(super) fn len(&self) -> u64 {
        self.from.len() as u64
    }

    /// Returns the flows at the rows of a table: pairs of row, ascending, and number.
    #[inline]
    pub(super) fn all(&self, table: TableId) -> &[(i64, u64)] {
        match table {
            rocpd::REGION => &self.from,
            rocpd::KERNEL_DISPATCH => &self.to[0],
            rocpd::MEMORY_COPY => &self.to[1],
            _ => &[],
        }
    }

    /// Returns the index of the first flow at this row or after it.
    pub(super) fn first(&self, table: TableId, row: i64) -> usize {
        self.all(table).partition_point(|(id, _)| *id < row)
    }
}

/// Passes on the stack ids of the events, as many at once as fit. If all fit, they are returned as well.
fn each_stack(
    source: &UnitSource<'_>,
    take: &mut dyn FnMut(&StackIds) -> Result<(), Failure>,
) -> Result<Option<StackIds>, Failure> {
    let ids = source.unit.ids(rocpd::EVENT);
    let max_events = (source.memory / 4 / 16).max(MIN_EVENTS);
    let mut stacks = StackIds::default();
    let mut is_only = true;
    source.tables().read_rows(rocpd::EVENT, ids, &["stack_id"], &mut |rows, places: Range<usize>| {
        if stacks.stacks.len() as u64 >= max_events {
            take(&stacks)?;
            stacks = StackIds::default();
            is_only = false;
        }
        let cells = rows.column("stack_id");
        places.for_each(|place| stacks.push(rows.keys.get(place), cells.int(place).unwrap_or(0)));
        Ok(())
    })?;
    take(&stacks)?;
    Ok(is_only.then_some(stacks))
}

/// Passes on stack id, start and id of the rows that have one of these stack ids.
fn each_span(
    source: &UnitSource<'_>,
    table: TableId,
    stacks: &StackIds,
    take: &mut dyn FnMut(i64, i64, i64),
) -> Result<(), Failure> {
    let Some((first, last)) = stacks.events.bounds() else { return Ok(()) };
    let touched =
        source.seen.pieces(table).iter().filter(|piece| piece.events.0 <= last && piece.events.1 >= first);
    let touched: Vec<usize> = touched.map(|piece| piece.piece).collect();
    let (ids, wanted) = (source.unit.ids(table), &["start", "event_id"]);
    source.tables().read_pieces(table, &touched, ids, wanted, &mut |_, rows, places| {
        let (starts, events) = (rows.column("start"), rows.column("event_id"));
        for i in places {
            let stack = stacks.of(events.int(i));
            if let Some(start) = starts.int(i).filter(|_| stack != 0) {
                take(stack, start, rows.keys.get(i));
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(stack: i64, start: i64, id: i64) -> Call {
        Call { stack, start, id }
    }

    fn sink(stack: i64, table: u8, id: i64, start: i64) -> Sink {
        Sink { stack, table, id, start }
    }

    #[test]
    fn an_arrow_begins_at_the_last_region_before_its_end() {
        let calls =
            [call(1, 10, 7), call(2, 10, 1), call(2, 20, 2), call(2, 20, 3), call(2, 30, 4), call(9, 1, 9)];
        let sinks =
            [sink(1, 0, 1, 9), sink(1, 0, 2, 10), sink(2, 0, 3, 25), sink(2, 1, 1, 40), sink(5, 0, 5, 50)];
        let arrows = connect_calls(&sinks, &calls, 1);
        let rows = |all: &[(i64, u64)]| all.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(rows(&arrows.from), [2, 4, 7]);
        assert_eq!(rows(arrows.all(rocpd::KERNEL_DISPATCH)), [2, 3]);
        assert_eq!(rows(arrows.all(rocpd::MEMORY_COPY)), [1]);
        assert_eq!(arrows.backward, 1);
        assert_eq!([1, 2, 3, 5, 8].map(|row| arrows.first(rocpd::REGION, row)), [0, 0, 1, 2, 3]);
        let of = |all: &[(i64, u64)], row| all.iter().find(|(id, _)| *id == row).map(|(_, number)| *number);
        assert_eq!(of(&arrows.from, 2), of(&arrows.to[0], 3));
        assert_eq!(of(&arrows.from, 4), of(&arrows.to[1], 1));
        assert_eq!(of(&arrows.from, 7), Some(2 << 40));
        assert_ne!(of(&arrows.from, 2), of(&connect_calls(&sinks, &calls, 2).from, 2));
    }

    #[test]
    fn stack_ids_that_launched_something_are_found_however_far_apart() {
        for far in [10, i64::MAX] {
            let sinks = [sink(-5, 0, 1, 0), sink(7, 0, 1, 0), sink(far, 0, 1, 0)];
            let launching = Launching::of(&sinks);
            let found = [-6, -5, 0, 7, far].map(|stack| launching.contains(stack, &sinks));
            assert_eq!(found, [false, true, false, true, true], "{far}");
        }
    }

    #[test]
    fn stack_ids_are_found_with_and_without_gaps() {
        let mut stacks = StackIds::default();
        (5..8).for_each(|event| stacks.push(event, 45 + event));
        assert_eq!([Some(4), Some(5), Some(7), Some(8), None].map(|id| stacks.of(id)), [0, 50, 52, 0, 0]);
        stacks.push(9, 90);
        assert_eq!([5, 7, 8, 9].map(|id| stacks.of(Some(id))), [50, 52, 0, 90]);
    }
}
