//! Times by name: `rpd-report summary`.

use crate::input::{ProcessGroups, ReportRun};
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::rows::{CategoryCode, NameNumber, TimedRow, TimedRows, TimedTable};
use crate::statistics::{Distribution, DurationSummary};
use rayon::prelude::*;
use rpd_comm::{Comm, all_gather_values, exchange_values, gather_values};
use rpd_console::Failure;
use rpd_console::wording::{counted, grouped};
use rpd_run::RowUnit;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// What has rows of its own in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SummaryRows {
    WholeRun,
    ByRank,
    ByNode,
}

/// Columns after those of the rank or node.
const COLUMNS: [(&str, &str); 13] = [
    ("domain", "domain"),
    ("name", "name"),
    ("calls", "calls"),
    ("total_ns", "total"),
    ("share", "share"),
    ("mean_ns", "mean"),
    ("min_ns", "min"),
    ("p50_ns", "p50"),
    ("p95_ns", "p95"),
    ("p99_ns", "p99"),
    ("max_ns", "max"),
    ("sd_ns", "sd"),
    // Shown as a note.
    ("percentiles_exact", ""),
];

/// Why values of a column are not known.
const REASONS: [(&str, &str); 6] = [
    ("rank", "these processes have no rank"),
    ("process", "the database does not say which process recorded these rows"),
    ("host", "the database does not say which process recorded these rows"),
    ("name", "the database does not contain the name of these rows"),
    ("share", "all rows of the domain together took no time"),
    ("sd_ns", "it exceeds the range of times"),
];

/// Makes the report.
pub(crate) fn report_summary(
    run: &ReportRun,
    comm: &dyn Comm,
    by: SummaryRows,
    max_rows: usize,
) -> Result<Report, Failure> {
    let processes = &run.database.processes;
    let groups = match by {
        SummaryRows::WholeRun => ProcessGroups::whole_run(processes),
        SummaryRows::ByRank => ProcessGroups::by_rank(processes),
        SummaryRows::ByNode => ProcessGroups::by_node(processes),
    };
    let rows = TimedRows::new(run);
    let max_exact = Distribution::exact_values(run.memory_limit);
    let (named, span) = named_durations(&rows, comm, &groups, max_exact)?;
    let lines = sorted_lines(summarise(comm, named)?);
    let mut notes = Vec::new();
    let inexact = lines.iter().filter(|line| !line.times.is_exact).count();
    if inexact > 0 {
        let names = counted(inexact as u64, "name");
        notes.push(format!(
            "percentiles of {names} with more than {} calls are rounded to three significant digits",
            grouped(max_exact as u64)
        ));
    }
    let is_empty = lines.is_empty();
    let table = fill_table(by, &groups, lines, max_rows);
    let mut unavailable = table.unknown_values(&REASONS);
    unavailable.extend(rows.left_out("summary"));
    if is_empty {
        unavailable.push(Unavailable::new("summary", "no rows with times are in this part of the run"));
    }
    let run = run.head_with(span);
    Ok(Report { subject: "summary", run, tables: vec![table], notes, unavailable, screen: None })
}

/// A name within its group, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct NameKey {
    group: u32,
    table: TimedTable,
    category: CategoryCode,
    name: Option<NameNumber>,
}

/// Number of names whose places are found without a hash.
const NEAR_NAMES: usize = 256;

/// Durations by name.
#[derive(Debug)]
struct NamedDurations {
    /// Number of durations of a name of which percentiles are exact.
    max_exact: usize,
    places: HashMap<NameKey, usize>,
    durations: Vec<(NameKey, Distribution)>,
    /// Key and place of a row with a name of each slot: the last one.
    near: Vec<Option<(NameKey, usize)>>,
    /// First start and last end, ns.
    span: Option<(i64, i64)>,
}

impl NamedDurations {
    fn new(max_exact: usize) -> NamedDurations {
        NamedDurations {
            max_exact,
            places: HashMap::new(),
            durations: Vec::new(),
            near: Vec::new(),
            span: None,
        }
    }

    #[inline]
    fn add(&mut self, groups: &ProcessGroups, row: TimedRow) {
        let TimedRow { table, category, name, process, start, end, .. } = row;
        let key = NameKey { group: groups.of(process), table, category, name };
        if self.near.is_empty() {
            self.near = vec![None; NEAR_NAMES];
        }
        let slot = name.map_or(0, |name| name.slot(NEAR_NAMES));
        let place = match self.near[slot] {
            Some((known, place)) if known == key => place,
            _ => {
                let place = self.place(key);
                self.near[slot] = Some((key, place));
                place
            }
        };
        if let Some((_, durations)) = self.durations.get_mut(place) {
            durations.add(end - start);
        }
        self.span = joined_span(self.span, Some((start, start.max(end))));
    }

    fn place(&mut self, key: NameKey) -> usize {
        *self.places.entry(key).or_insert_with(|| {
            self.durations.push((key, Distribution::with_exact(self.max_exact)));
            self.durations.len() - 1
        })
    }

    /// Returns the durations by names instead of numbers.
    fn into_named(self, rows: &TimedRows<'_>) -> NamedTimes {
        let mut named = NamedTimes::new();
        for (key, durations) in self.durations {
            let domain = rows.names.category(key.category);
            let domain = domain.map_or_else(|| key.table.domain().to_owned(), |domain| domain.into_owned());
            let name = key.name.map(|name| rows.names.text(name).into_owned());
            named.entry((key.group, domain, name)).or_default().join(durations);
        }
        named
    }

    fn join(mut self, other: NamedDurations) -> NamedDurations {
        if self.durations.is_empty() {
            return other;
        }
        self.span = joined_span(self.span, other.span);
        for (key, durations) in other.durations {
            let place = self.place(key);
            if let Some((_, own)) = self.durations.get_mut(place) {
                own.join(durations);
            }
        }
        self
    }
}

/// Returns the span that contains both.
pub(crate) fn joined_span(one: Option<(i64, i64)>, other: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        _ => one.or(other),
    }
}

/// A name within its group.
type GroupName = (u32, String, Option<String>);
/// Durations of each name.
type NamedTimes = BTreeMap<GroupName, Distribution>;

/// Returns the durations of each name on this merge rank, and on rank 0 the span of all rows.
fn named_durations(
    rows: &TimedRows<'_>,
    comm: &dyn Comm,
    groups: &ProcessGroups,
    max_exact: usize,
) -> Result<(NamedTimes, Option<(i64, i64)>), Failure> {
    let of_unit = |_, unit: &RowUnit| {
        let found = rows.fold_unit(
            unit,
            &TimedTable::ALL,
            || NamedDurations::new(max_exact),
            |found, row| found.add(groups, row),
            NamedDurations::join,
        )?;
        let span = found.span;
        Ok((found.into_named(rows), span))
    };
    let join = |(mut named, span): (NamedTimes, _), (others, other_span): (NamedTimes, _)| {
        for (name, durations) in others {
            named.entry(name).or_default().join(durations);
        }
        (named, joined_span(span, other_span))
    };
    let (named, span) = rows.fold_own_units(comm, of_unit, join)?;
    Ok((named, rows.gather(comm, span, joined_span)?))
}

/// Evaluates the durations of each name on one of the merge ranks. Returns the results on rank 0, by name.
fn summarise(comm: &dyn Comm, named: NamedTimes) -> Result<Vec<(GroupName, DurationSummary)>, Failure> {
    let own: Vec<_> = share_names(comm, named)?.into_iter().collect();
    let summary = |(name, durations): (GroupName, Distribution)| Some((name, durations.summary()?));
    let summarised: Vec<_> = own.into_par_iter().filter_map(summary).collect();
    let mut all: Vec<_> = gather_values(comm, summarised)?.into_iter().flatten().collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

/// Shares the names among the merge ranks, so that each has about as many durations. Returns the names of this one with
/// their durations on all ranks.
fn share_names(comm: &dyn Comm, named: NamedTimes) -> Result<NamedTimes, Failure> {
    if comm.size() == 1 {
        return Ok(named);
    }
    let own: Vec<(GroupName, u64)> =
        named.iter().map(|(name, durations)| (name.clone(), durations.kept() as u64)).collect();
    let mut counts: BTreeMap<GroupName, u64> = BTreeMap::new();
    for (name, count) in all_gather_values(comm, &own)?.into_iter().flatten() {
        *counts.entry(name).or_default() += count;
    }
    let mut by_count: Vec<(GroupName, u64)> = counts.into_iter().collect();
    by_count.sort_by_key(|(_, count)| Reverse(*count));
    let mut least: BinaryHeap<Reverse<(u64, usize)>> =
        (0..comm.size()).map(|rank| Reverse((0, rank))).collect();
    let mut owners: HashMap<GroupName, usize> = HashMap::new();
    for (name, count) in by_count {
        if let Some(Reverse((load, rank))) = least.pop() {
            least.push(Reverse((load + count, rank)));
            owners.insert(name, rank);
        }
    }
    let mut outgoing: Vec<Vec<(GroupName, Distribution)>> = (0..comm.size()).map(|_| Vec::new()).collect();
    for (name, durations) in named {
        let owner = owners.get(&name).copied().unwrap_or(0);
        outgoing[owner].push((name, durations));
    }
    let mut shared: NamedTimes = std::mem::take(&mut outgoing[comm.rank()]).into_iter().collect();
    for (name, durations) in exchange_values(comm, outgoing)? {
        shared.entry(name).or_default().join(durations);
    }
    Ok(shared)
}

/// A line of the table.
#[derive(Debug)]
struct SummaryLine {
    group: u32,
    domain: String,
    name: Option<String>,
    times: DurationSummary,
    /// Part of its domain in the group; `None` if that has no time.
    share: Option<f64>,
}

/// Returns the lines by group, those with the most time first.
fn sorted_lines(summarised: Vec<(GroupName, DurationSummary)>) -> Vec<SummaryLine> {
    let mut totals: HashMap<(u32, String), i128> = HashMap::new();
    for ((group, domain, _), times) in &summarised {
        *totals.entry((*group, domain.clone())).or_default() += times.total;
    }
    let line = |((group, domain, name), times): (GroupName, DurationSummary)| {
        let total = totals.get(&(group, domain.clone())).copied().filter(|total| *total > 0);
        let share = total.map(|total| times.total as f64 / total as f64);
        SummaryLine { group, domain, name, times, share }
    };
    let mut lines: Vec<SummaryLine> = summarised.into_iter().map(line).collect();
    // The sort is stable: names with equal totals remain in alphabetical order.
    lines.sort_by_key(|line| (line.group, Reverse(line.times.total)));
    lines
}

fn fill_table(
    by: SummaryRows,
    groups: &ProcessGroups,
    lines: Vec<SummaryLine>,
    max_rows: usize,
) -> ReportTable {
    let group_columns: &[(&str, &str)] = match by {
        SummaryRows::WholeRun => &[],
        SummaryRows::ByRank => &[("rank", "rank"), ("process", "process")],
        SummaryRows::ByNode => &[("host", "host")],
    };
    let columns: Vec<_> = group_columns.iter().chain(&COLUMNS).copied().collect();
    let mut table = ReportTable::new("summary", &columns);
    for lines in lines.chunk_by(|one, other| one.group == other.group) {
        let max_rows = max_rows.saturating_add(table.rows.len());
        for line in lines {
            let mut row: Vec<Cell> = match groups.groups.get(line.group as usize) {
                Some(group) if by == SummaryRows::ByRank => {
                    let rank = Cell::known(group.rank, |rank| Cell::Count(rank.into()));
                    vec![rank, Cell::Text(group.name.clone())]
                }
                Some(group) if by == SummaryRows::ByNode => vec![Cell::Text(group.host.clone())],
                _ => vec![Cell::Unknown; group_columns.len()],
            };
            row.extend(cells(line));
            table.push_up_to(max_rows, row);
        }
    }
    table
}

fn cells(line: &SummaryLine) -> Vec<Cell> {
    let times = &line.times;
    let [p50, p95, p99] = times.percentiles.map(Cell::Nanoseconds);
    vec![
        Cell::Text(line.domain.clone()),
        Cell::known(line.name.clone(), Cell::Text),
        Cell::Count(times.count),
        Cell::sum(times.total),
        Cell::known(line.share, Cell::Ratio),
        Cell::Nanoseconds(times.mean),
        Cell::Nanoseconds(times.min),
        p50,
        p95,
        p99,
        Cell::Nanoseconds(times.max),
        Cell::known(times.deviation, Cell::Nanoseconds),
        Cell::Flag(times.is_exact),
    ]
}
