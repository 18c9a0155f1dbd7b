//! The steps of a run as a series: how long they take, and how long ranks work in them.

use super::lengths::StepLengths;
use super::rows::{compared_timelines, step_rows, steps_in_row};
use super::time;
use crate::report::{Cell, ReportTable};
use crate::waiting::AnalysedRun;
use rayon::prelude::*;

/// Maximum number of rows. Longer runs have several steps in a row.
const MAX_SERIES_ROWS: u32 = 20_000;
/// Maximum number of intervals of the distribution.
const BINS: u64 = 40;
/// Steps longer than the median by this factor are in the last interval.
const MAX_TIMES_MEDIAN: u64 = 3;
/// Keys and titles of the work of ranks that are named.
const NAMED_WORK_COLUMNS: [(&str, &str); 3] = [
    ("named_1_work_ns", "work of the first rank"),
    ("named_2_work_ns", "work of the second rank"),
    ("named_3_work_ns", "work of the third rank"),
];

/// The steps in the order of time.
#[derive(Debug)]
pub(crate) struct StepSeries {
    /// Number of steps in a row of `series`.
    pub(crate) steps_in_row: u32,
    /// Lengths of the steps, the work of a rank in them, and that of each named rank in columns of their own.
    pub(crate) series: ReportTable,
    /// Number of steps by their length.
    pub(crate) distribution: ReportTable,
}

/// Returns the steps; without rows, if the run has none. `named` are threads, of which the first three are in the series.
/// `origin` is the time at which the run begins, ns in job time.
pub(crate) fn step_series(found: &AnalysedRun<'_>, named: &[u32], origin: i64) -> StepSeries {
    let job = &found.calls.job;
    let threads = compared_timelines(job);
    let named = &named[..named.len().min(NAMED_WORK_COLUMNS.len())];
    let in_row = steps_in_row(job.timelines.len(), job.steps).max(job.steps.div_ceil(MAX_SERIES_ROWS)).max(1);
    let (rows, lengths) = step_rows(found.analysis, job, (&threads, false), in_row);
    let mut columns = vec![
        ("step", "step"),
        ("steps", "steps"),
        ("at_ns", "at"),
        ("length_ns", "length"),
        ("shortest_ns", "shortest"),
        ("longest_ns", "longest"),
        ("work_p5_ns", "work p5"),
        ("work_p50_ns", "work of the median rank"),
        ("work_p95_ns", "work p95"),
    ];
    columns.extend(&NAMED_WORK_COLUMNS[..named.len()]);
    let mut series = ReportTable::new("step_series", &columns);
    // Of each row: the percentiles, then the named ranks.
    let work: Vec<Vec<u64>> = rows
        .par_iter()
        .map(|row| {
            let count = row.steps.len().max(1) as u64;
            let of = |thread: u32| {
                found.analysis.times_in_steps(thread as usize, row.steps.clone()).work_ns / count
            };
            let mut all: Vec<u64> = threads.iter().map(|thread| of(*thread)).collect();
            all.sort_unstable();
            let percentile = |percent: usize| {
                let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
                all.get(place).copied().unwrap_or(0)
            };
            [5, 50, 95].into_iter().map(percentile).chain(named.iter().map(|thread| of(*thread))).collect()
        })
        .collect();
    for (row, work) in rows.iter().zip(work) {
        let mut cells = vec![
            Cell::Count(row.steps.start.into()),
            Cell::Count(row.steps.len() as u64),
            Cell::Nanoseconds(row.start_ns.saturating_sub(origin)),
            time(row.length_ns / (row.steps.len() as u64).max(1)),
            time(row.shortest_ns),
            time(row.longest_ns),
        ];
        cells.extend(work.into_iter().map(time));
        series.push_up_to(usize::MAX, cells);
    }
    StepSeries { steps_in_row: in_row, series, distribution: distribution(&lengths) }
}

/// Counts the steps by their length.
fn distribution(lengths: &StepLengths) -> ReportTable {
    let mut table = ReportTable::new(
        "step_distribution",
        &[("from_ns", "length from"), ("to_ns", "to"), ("steps", "steps")],
    );
    let all = lengths.all_ns();
    let Some((least, most)) = all.iter().min().copied().zip(all.iter().max().copied()) else { return table };
    let limit = super::lengths::median(all.to_vec()).saturating_mul(MAX_TIMES_MEDIAN).clamp(least, most);
    let width = ((limit - least) / BINS + 1).max(1);
    let bins = ((limit - least) / width + 1).min(BINS);
    let mut counts = vec![0u64; bins as usize];
    for ns in all {
        counts[((ns - least) / width).min(bins - 1) as usize] += 1;
    }
    for (bin, count) in (0u64..).zip(counts) {
        let from = least.saturating_add(bin * width);
        let is_last = bin + 1 == bins;
        let to = if is_last { most.max(from) } else { from.saturating_add(width) };
        table.push_up_to(usize::MAX, vec![time(from), time(to), Cell::Count(count)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_counted_once() {
        let of = |ns: Vec<u64>| {
            let steps = ns.len() as u64;
            let table = distribution(&StepLengths::new(ns));
            let count = |row: &Vec<Cell>| if let Cell::Count(count) = row[2] { count } else { 0 };
            assert_eq!(table.rows.iter().map(count).sum::<u64>(), steps);
            table.rows.len()
        };
        assert_eq!(of(Vec::new()), 0);
        assert_eq!(of(vec![7; 9]), 1);
        assert_eq!(of((0..1_000).map(|step| 1_000_000 + step * 977 % 5_000).collect()), BINS as usize);
        assert_eq!(of(vec![1, 1, 1, u64::MAX / 2]), 3);
    }
}
