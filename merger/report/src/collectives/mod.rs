//! Collectives by communicator, function and size: `rpd-report collectives`.

mod calls;
mod skew;

use crate::clocks::ClockBounds;
use crate::input::{ProcessGroups, ReportRun};
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::statistics::{Distribution, DurationSummary};
use crate::summary::joined_span;
use calls::{CollectiveCall, CollectiveCalls, read_calls};
use rayon::prelude::*;
use rpd_collectives::CollectiveFunction;
use rpd_comm::Comm;
use rpd_console::Failure;
use skew::{InstanceSkew, instance_skews};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: [(&str, &str); 11] = [
    ("communicator", "communicator"),
    ("ranks", "ranks"),
    ("function", "function"),
    ("bytes", "size"),
    ("calls", "calls"),
    ("matched", "matched"),
    ("total_ns", "total"),
    ("p50_ns", "p50"),
    ("p95_ns", "p95"),
    ("skew_p50_ns", "skew p50"),
    ("skew_p95_ns", "skew p95"),
];

/// Why a skew is not known.
const NO_SKEW: &str =
    "no collective of these calls is recorded of all ranks with its communicator and number";
/// Why values of a column are not known.
const REASONS: [(&str, &str); 4] = [
    ("communicator", "profilers do not record it"),
    ("bytes", "not recorded, or the function has no size"),
    ("skew_p50_ns", NO_SKEW),
    ("skew_p95_ns", NO_SKEW),
];

/// Makes the report.
pub(crate) fn report_collectives(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Report, Failure> {
    let groups = ProcessGroups::by_rank(&run.database.processes);
    let calls = read_calls(run, comm)?;
    let span = calls.calls.iter().fold(None, |span, call| joined_span(span, Some((call.start, call.end))));
    let skews = instance_skews(run, &groups, &calls);
    let lines = sorted_lines(&groups, &calls, &skews);
    let notes = notes(run, &lines);
    let mut table = ReportTable::new("collectives", &COLUMNS);
    lines.iter().for_each(|line| table.push_up_to(max_rows, line.cells(&calls)));
    let mut unavailable = table.unknown_values(&REASONS);
    for missing in unavailable.iter_mut().filter(|missing| missing.subject == "collectives.communicator") {
        missing.how_to_record = Some("rpd-collect");
    }
    if lines.is_empty() {
        let reason = "no calls of collectives are in this part of the run";
        unavailable.push(Unavailable::new("collectives", reason));
    }
    if calls.has_unnamed_functions {
        let reason = "calls of which only the args name the function are left out";
        unavailable.push(Unavailable::new("collectives.function", reason));
    }
    let run = run.head_with(span);
    Ok(Report { subject: "collectives", run, tables: vec![table], notes, unavailable, screen: None })
}

/// What the calls of a line have in common: communicator, function, bytes.
type LineKey = (Option<u32>, CollectiveFunction, Option<u64>);

/// A line of the table.
#[derive(Debug)]
struct CollectiveLine {
    key: LineKey,
    /// Number of ranks that call it.
    ranks: u64,
    times: DurationSummary,
    /// Collectives that all ranks of the communicator entered: the time from the first to the last entry.
    skew: Option<DurationSummary>,
}

#[derive(Debug, Default)]
struct LineCalls {
    ranks: BTreeSet<u32>,
    times: Distribution,
    skews: Distribution,
}

fn line_key(call: &CollectiveCall) -> LineKey {
    (call.communicator, call.function, call.bytes)
}

fn sorted_lines(
    groups: &ProcessGroups,
    calls: &CollectiveCalls,
    skews: &[InstanceSkew],
) -> Vec<CollectiveLine> {
    let mut by_key: BTreeMap<LineKey, LineCalls> = BTreeMap::new();
    for call in &calls.calls {
        let line = by_key.entry(line_key(call)).or_default();
        line.ranks.insert(groups.of(call.process));
        line.times.add(call.end - call.start);
    }
    for skew in skews {
        if let Some(first) = calls.calls.get(skew.first_call) {
            by_key.entry(line_key(first)).or_default().skews.add(skew.ns);
        }
    }
    let line = |(key, line): (LineKey, LineCalls)| {
        let (ranks, skew) = (line.ranks.len() as u64, line.skews.summary());
        Some(CollectiveLine { key, ranks, times: line.times.summary()?, skew })
    };
    let mut lines: Vec<_> = by_key.into_iter().collect::<Vec<_>>().into_par_iter().filter_map(line).collect();
    let names =
        |key: &LineKey| (key.0.and_then(|number| calls.communicators.get(number as usize)), key.1.name());
    lines.sort_by(|one, other| {
        let order = |line: &CollectiveLine| (Reverse(line.times.total), line.key.2);
        order(one).cmp(&order(other)).then_with(|| names(&one.key).cmp(&names(&other.key)))
    });
    lines
}

impl CollectiveLine {
    fn cells(&self, calls: &CollectiveCalls) -> Vec<Cell> {
        let (communicator, function, bytes) = self.key;
        let name = communicator.and_then(|number| calls.communicators.get(number as usize));
        let skew = |place: usize| Cell::known(self.skew, |skew| Cell::Nanoseconds(skew.percentiles[place]));
        let [p50, p95, _] = self.times.percentiles.map(Cell::Nanoseconds);
        vec![
            Cell::known(name.cloned(), Cell::Text),
            Cell::Count(self.ranks),
            Cell::Text(function.name().into_owned()),
            Cell::known(bytes, Cell::Bytes),
            Cell::Count(self.times.count),
            Cell::Count(self.skew.map_or(0, |skew| skew.count)),
            Cell::sum(self.times.total),
            p50,
            p95,
            skew(0),
            skew(1),
        ]
    }
}

fn notes(run: &ReportRun, lines: &[CollectiveLine]) -> Vec<String> {
    let mut notes = Vec::new();
    let bounds = ClockBounds::of(run);
    if lines.iter().any(|line| line.skew.is_some()) && bounds.largest() != Some(0) {
        notes.push(format!("a skew compares the clocks of nodes: {}", bounds.describe()));
    }
    if lines.iter().any(|line| line.key.1.is_rccl()) {
        notes.push(
            "calls of RCCL end before their operations: their durations are those of the calls".to_owned(),
        );
    }
    notes
}
