//! Reads the work of the GPUs of a unit, and the calls that launched it.

use super::collective_kernels::{CollectiveKernel, read_collectives};
use crate::kernel_class::KernelClass;
use crate::rows::{NameNumber, TimedRow, TimedRows, TimedTable};
use rpd_console::Failure;
use rpd_run::{RowUnit, row_times};
use rpd_shard::model::{IntColumn, Keys, Value, rocpd};
use std::collections::{BTreeMap, HashMap};

/// A kernel, fill or copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GpuWork {
    /// Start and end, ns in job time.
    pub(super) start: i64,
    pub(super) end: i64,
    /// Class of its kernel; that of memory for a copy.
    pub(super) class: KernelClass,
    pub(super) is_kernel: bool,
    /// Start and end of the call that launched it, if that is recorded.
    pub(super) launch: Option<(i64, i64)>,
}

/// Place of the process, and id of the agent.
pub(super) type GpuKey = (u32, i64);

/// Work by GPU.
type WorkByGpu = BTreeMap<GpuKey, Vec<GpuWork>>;

/// Reads the selected work of a unit, by GPU, and its kernels that carry out collectives. `is_gpu` decides which of the
/// agents of a copy it belongs to.
pub(super) fn read_work(
    rows: &TimedRows<'_>,
    unit: &RowUnit,
    is_gpu: impl Fn(i64) -> bool + Sync,
) -> Result<(WorkByGpu, Vec<CollectiveKernel>), Failure> {
    let take = |found: &mut Vec<TimedRow>, row: TimedRow| found.push(row);
    let join = |mut one: Vec<TimedRow>, other: Vec<TimedRow>| {
        one.extend(other);
        one
    };
    let found = rows.fold_unit(unit, &[TimedTable::Kernel, TimedTable::Copy], Vec::new, take, join)?;
    if found.is_empty() {
        return Ok(Default::default());
    }
    let stacks = EventStacks::read(rows, unit)?;
    let calls = LaunchCalls::read(rows, unit, &stacks, &found)?;
    let mut classes: HashMap<NameNumber, KernelClass> = HashMap::new();
    let mut class_of =
        |name: NameNumber| *classes.entry(name).or_insert_with(|| KernelClass::of(&rows.names.text(name)));
    let mut work = WorkByGpu::new();
    let mut communicating = Vec::new();
    for row in found {
        let is_kernel = row.table == TimedTable::Kernel;
        // A copy belongs to the GPU that receives it, or else to the one that sends it.
        let agents = [row.agent, row.source_agent];
        let agent = agents.into_iter().flatten().find(|agent| is_kernel || is_gpu(*agent));
        let class = match is_kernel {
            true => row.name.map_or(KernelClass::Other, &mut class_of),
            false => KernelClass::Memory,
        };
        if class == KernelClass::Communication {
            communicating.push(row);
        }
        let (start, end) = (row.start, row.end.max(row.start));
        let process = rows.run.process(row.process).map_or(0, |process| process.id);
        let process = if unit.is_unclaimed { process } else { 0 };
        let launch = calls.of((process, stacks.of(row.event)), start);
        let key = (row.process, agent.unwrap_or(0));
        work.entry(key).or_default().push(GpuWork { start, end, class, is_kernel, launch });
    }
    work.values_mut().for_each(|work| work.sort_by_key(|one| (one.start, one.end)));
    Ok((work, read_collectives(rows, unit, &communicating)?))
}

/// Stack ids of the events of a unit.
struct EventStacks {
    /// Consecutive events, ascending: the first and the last key, all keys, and the stack id of each.
    parts: Vec<(i64, i64, Keys, Vec<i64>)>,
}

impl EventStacks {
    fn read(rows: &TimedRows<'_>, unit: &RowUnit) -> Result<EventStacks, Failure> {
        let tables = &rows.run.database.tables;
        let mut parts = Vec::new();
        tables.read_rows(rocpd::EVENT, unit.ids(rocpd::EVENT), &["stack_id"], &mut |rows, places| {
            let column = rows.column("stack_id");
            let stacks = places.clone().map(|i| column.get(i).stack_id().unwrap_or(0)).collect();
            let (first, last) = (rows.keys.get(places.start), rows.keys.get(places.end - 1));
            let keys = match &rows.keys {
                Keys::Dense(_) => Keys::Dense(first),
                Keys::Sparse(_) => Keys::Sparse(places.map(|i| rows.keys.get(i)).collect()),
            };
            parts.push((first, last, keys, stacks));
            Ok(())
        })?;
        Ok(EventStacks { parts })
    }

    /// Returns the stack id of an event; 0 if it has none.
    fn of(&self, event: Option<i64>) -> i64 {
        let find = |event: i64| {
            let part = self.parts.get(self.parts.partition_point(|(_, last, ..)| *last < event))?;
            let (first, _, keys, stacks) = part;
            let place = match keys {
                Keys::Dense(_) => usize::try_from(event.checked_sub(*first)?).ok()?,
                Keys::Sparse(keys) => keys.binary_search(&event).ok()?,
            };
            stacks.get(place).copied()
        };
        event.and_then(find).unwrap_or(0)
    }
}

/// Calls that launched work: process and stack id, start and end, sorted.
struct LaunchCalls(Vec<(LaunchKey, i64, i64)>);

/// Key of the process, 0 in a unit of one process, and stack id.
type LaunchKey = (i64, i64);

impl LaunchCalls {
    /// Reads the regions with the stack ids of this work.
    fn read(
        rows: &TimedRows<'_>,
        unit: &RowUnit,
        stacks: &EventStacks,
        work: &[TimedRow],
    ) -> Result<LaunchCalls, Failure> {
        let mut wanted: Vec<i64> = work.iter().map(|row| stacks.of(row.event)).collect();
        wanted.sort_unstable();
        // In a unit of several processes, these may use the same stack ids.
        let process_of = |pid: Option<i64>| if unit.is_unclaimed { pid.unwrap_or(0) } else { 0 };
        wanted.dedup();
        let tables = &rows.run.database.tables;
        let columns = &["pid", "start", "end", "event_id"];
        let mut calls = Vec::new();
        tables.read_rows(rocpd::REGION, unit.ids(rocpd::REGION), columns, &mut |rows, places| {
            let [starts, ends, processes] =
                ["start", "end", "pid"].map(|column| IntColumn::of(rows.column(column)));
            let events = rows.column("event_id");
            for i in places {
                let stack = match events.get(i) {
                    Value::Int(event) => stacks.of(Some(event)),
                    _ => 0,
                };
                if stack != 0
                    && wanted.binary_search(&stack).is_ok()
                    && let Some((start, end)) = row_times(starts, ends, i)
                {
                    calls.push(((process_of(processes.at(i)), stack), start, end.max(start)));
                }
            }
            Ok(())
        })?;
        // The sort is stable: of calls that begin together, the first row counts.
        calls.sort_by_key(|(key, start, _)| (*key, *start));
        Ok(LaunchCalls(calls))
    }

    /// Returns the times of the call that launched work with a key: the last that began before the work did.
    fn of(&self, key: LaunchKey, start: i64) -> Option<(i64, i64)> {
        if key.1 == 0 {
            return None;
        }
        let end = self.0.partition_point(|(other, begun, _)| (*other, *begun) <= (key, start));
        let (other, begun, _) = *self.0.get(end.checked_sub(1)?)?;
        if other != key {
            return None;
        }
        let first = self.0.partition_point(|(other, other_begun, _)| (*other, *other_begun) < (key, begun));
        self.0.get(first).map(|(_, start, end)| (*start, *end))
    }
}
