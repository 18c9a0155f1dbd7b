//! Times of each rank: `rpd-report ranks`.

use crate::clocks::ClockBounds;
use crate::input::{ProcessGroups, ReportRun};
use crate::kernel_class::KernelClass;
use crate::report::{Cell, Report, ReportTable};
use crate::rows::{CategoryCode, NameNumber, TimedRow, TimedRows, TimedTable};
use crate::statistics::IntervalUnion;
use crate::summary::joined_span;
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_run::{RowUnit, UnitNames};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const COLUMNS: [(&str, &str); 12] = [
    ("rank", "rank"),
    ("process", "process"),
    ("host", "host"),
    ("gpus", "GPU"),
    ("length_ns", "length"),
    ("mpi_ns", "in MPI"),
    ("mpi_share", "MPI"),
    ("rccl_ns", "in RCCL"),
    ("gpu_busy_ns", "GPU busy"),
    ("gpu_busy_share", "busy"),
    ("copy_ns", "copies"),
    ("error_bound_ns", "error bound"),
];

/// Why values of a column are not known.
const REASONS: [(&str, &str); 4] = [
    ("rank", "these processes have no rank"),
    ("mpi_share", "the rows of these ranks took no time"),
    ("gpu_busy_share", "the rows of these ranks took no time"),
    ("error_bound_ns", "the merge did not compare the clocks of these ranks with others"),
];

/// Makes the report.
pub(crate) fn report_ranks(run: &ReportRun, comm: &dyn Comm, max_rows: usize) -> Result<Report, Failure> {
    rank_report(&TimedRows::new(run), comm, max_rows)
}

/// Makes the report from these rows, and reads the categories of their events.
pub(crate) fn rank_report(rows: &TimedRows<'_>, comm: &dyn Comm, max_rows: usize) -> Result<Report, Failure> {
    let groups = ProcessGroups::by_rank(&rows.run.database.processes);
    let times = rank_times(rows, comm, &groups)?;
    Ok(ranks_report(rows, &groups, times, max_rows))
}

/// Makes the report from the times of each group, after all rows are read.
pub(crate) fn ranks_report(
    rows: &TimedRows<'_>,
    groups: &ProcessGroups,
    times: BTreeMap<u32, RankTimes>,
    max_rows: usize,
) -> Report {
    let run = rows.run;
    let bounds = ClockBounds::of(run);
    let span = times.values().fold(None, |span, times| joined_span(span, times.span));
    let mut table = ReportTable::new("ranks", &COLUMNS);
    for (group, times) in times {
        let Some(group) = groups.groups.get(group as usize) else { continue };
        let bound = bounds.error_bound(group.rank, &group.host);
        let length = times.span.map_or(0, |(first, last)| last.saturating_sub(first));
        let mut kernels = times.computing;
        kernels.join(times.communicating);
        let [mpi, rccl, busy, copies] =
            [times.mpi, times.rccl, kernels, times.copies].map(IntervalUnion::length);
        let share = |ns: i64| if length > 0 { Cell::Ratio(ns as f64 / length as f64) } else { Cell::Unknown };
        let row = vec![
            Cell::known(group.rank, |rank| Cell::Count(rank.into())),
            Cell::Text(group.name.clone()),
            Cell::Text(group.host.clone()),
            Cell::Texts(times.gpus.into_iter().collect()),
            Cell::Nanoseconds(length),
            Cell::Nanoseconds(mpi),
            share(mpi),
            Cell::Nanoseconds(rccl),
            Cell::Nanoseconds(busy),
            share(busy),
            Cell::Nanoseconds(copies),
            Cell::known(bound, Cell::Nanoseconds),
        ];
        table.push_up_to(max_rows, row);
    }
    let mut unavailable = table.unknown_values(&REASONS);
    unavailable.extend(rows.left_out("ranks"));
    let run = run.head_with(span);
    Report { subject: "ranks", run, tables: vec![table], notes: Vec::new(), unavailable, screen: None }
}

/// Times of the processes of a rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankTimes {
    /// First start and last end, ns.
    pub(crate) span: Option<(i64, i64)>,
    pub(crate) mpi: IntervalUnion,
    pub(crate) rccl: IntervalUnion,
    /// Kernels that do not communicate, and those that do.
    pub(crate) computing: IntervalUnion,
    pub(crate) communicating: IntervalUnion,
    pub(crate) copies: IntervalUnion,
    agents: BTreeSet<i64>,
    gpus: BTreeSet<String>,
}

/// Kinds of calls that have a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallKind {
    Mpi,
    Rccl,
    Other,
}

/// Times by group, while rows are read.
#[derive(Debug, Default)]
struct GroupTimes {
    times: BTreeMap<u32, RankTimes>,
    kinds: HashMap<CategoryCode, CallKind>,
    /// Whether the kernels of a name communicate.
    communicating: HashMap<NameNumber, bool>,
}

impl GroupTimes {
    fn add(&mut self, rows: &TimedRows<'_>, groups: &ProcessGroups, row: TimedRow) {
        if row.process == u32::MAX {
            return;
        }
        let TimedRow { table, category, start, end, .. } = row;
        let times = self.times.entry(groups.of(row.process)).or_default();
        times.span = joined_span(times.span, Some((start, start.max(end))));
        match table {
            TimedTable::Region => {
                let kind = self.kinds.entry(category).or_insert_with(|| call_kind(rows, category));
                match kind {
                    CallKind::Mpi => times.mpi.add(start, end),
                    CallKind::Rccl => times.rccl.add(start, end),
                    CallKind::Other => {}
                }
            }
            TimedTable::Kernel => {
                let communicates =
                    |name: NameNumber| KernelClass::of(&rows.names.text(name)) == KernelClass::Communication;
                let is_communicating = row.name.is_some_and(|name| {
                    *self.communicating.entry(name).or_insert_with(|| communicates(name))
                });
                match is_communicating {
                    true => times.communicating.add(start, end),
                    false => times.computing.add(start, end),
                }
                times.agents.extend(row.agent);
            }
            TimedTable::Copy => times.copies.add(start, end),
            TimedTable::Allocation => {}
        }
    }

    fn join(mut self, other: GroupTimes) -> GroupTimes {
        self.times = joined_times(self.times, other.times);
        self
    }
}

fn joined_times(
    mut all: BTreeMap<u32, RankTimes>,
    others: BTreeMap<u32, RankTimes>,
) -> BTreeMap<u32, RankTimes> {
    for (group, theirs) in others {
        let times = all.entry(group).or_default();
        times.span = joined_span(times.span, theirs.span);
        times.mpi.join(theirs.mpi);
        times.rccl.join(theirs.rccl);
        times.computing.join(theirs.computing);
        times.communicating.join(theirs.communicating);
        times.copies.join(theirs.copies);
        times.agents.extend(theirs.agents);
        times.gpus.extend(theirs.gpus);
    }
    all
}

fn call_kind(rows: &TimedRows<'_>, category: CategoryCode) -> CallKind {
    match rows.names.category(category).as_deref() {
        Some("MPI_API") => CallKind::Mpi,
        Some("RCCL_API") => CallKind::Rccl,
        _ => CallKind::Other,
    }
}

/// Returns the times of each group that has rows.
pub(crate) fn rank_times(
    rows: &TimedRows<'_>,
    comm: &dyn Comm,
    groups: &ProcessGroups,
) -> Result<BTreeMap<u32, RankTimes>, Failure> {
    let of_unit = |_, unit: &RowUnit| -> Result<BTreeMap<u32, RankTimes>, Failure> {
        let take = |found: &mut GroupTimes, row| found.add(rows, groups, row);
        let mut found =
            rows.fold_unit(unit, &TimedTable::ALL, GroupTimes::default, take, GroupTimes::join)?;
        // Ids of agents are those of the unit's own agents.
        if found.times.values().any(|times| !times.agents.is_empty()) {
            let names = UnitNames::read(&rows.run.database.tables, unit)?;
            for times in found.times.values_mut() {
                let agents = std::mem::take(&mut times.agents).into_iter();
                let known = agents.filter_map(|id| names.agents.at(names.agents.place(Some(id))));
                times
                    .gpus
                    .extend(known.map(|agent| agent.number.map_or(agent.model.clone(), |n| n.to_string())));
            }
        }
        Ok(found.times)
    };
    rows.fold_units(comm, of_unit, joined_times)
}
