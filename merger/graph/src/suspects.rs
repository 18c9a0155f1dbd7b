//! Threads that may slow the job down: those that work longer than is typical.

use crate::excess::StepExcess;
use crate::job_calls::JobCalls;
use crate::work_table::WorkTable;

/// Minimum gain of a finding, as a share of the run.
const MIN_GAIN: f64 = 0.01;

/// Returns the minimum gain of a finding in a run of this length, ns.
pub(crate) fn min_gain_ns(length_ns: i64) -> i64 {
    (length_ns as f64 * MIN_GAIN) as i64
}

/// Returns the threads that work longer than is typical, by more than the noise and `min_gain` ns, the longest excess
/// first.
pub(crate) fn suspects(job: &JobCalls, table: &WorkTable, min_gain: i64) -> Vec<(u32, StepExcess)> {
    let excess = |timeline: u32| {
        let ns = table.step_blocks().map(|block| table.excess_ns(timeline as usize, block));
        (timeline, StepExcess::new(ns, job.timelines[timeline as usize].lacks_calls))
    };
    let mut suspects: Vec<(u32, StepExcess)> = Vec::new();
    for is_stream in [false, true] {
        let of_kind = (0u32..).zip(&job.timelines).filter(|(_, timeline)| timeline.is_stream == is_stream);
        let mut all: Vec<(u32, StepExcess)> = of_kind.map(|(number, _)| excess(number)).collect();
        all.sort_by_cached_key(|(number, excess)| (excess.mean() as i64, *number));
        let middle = all.len().saturating_sub(1) / 2;
        let Some((_, typical)) = all.get(middle).cloned() else { continue };
        let is_suspect = |excess: &StepExcess| excess.is_systematic(&typical) && excess.sum_ns() >= min_gain;
        suspects.extend(all.into_iter().filter(|(_, excess)| is_suspect(excess)));
    }
    suspects.sort_by_key(|(timeline, excess)| (std::cmp::Reverse(excess.sum_ns()), *timeline));
    suspects
}

/// Returns up to `count` threads of the kind of the first of `except` and not among those, the ones whose excess is closest
/// to that of the median thread.
pub(crate) fn usual_threads(job: &JobCalls, table: &WorkTable, except: &[u32], count: usize) -> Vec<u32> {
    let is_stream = except.first().is_some_and(|first| job.timelines[*first as usize].is_stream);
    let excess_ns = |timeline: u32| -> i64 {
        let of = |block| table.excess_ns(timeline as usize, block).unwrap_or(0);
        table.step_blocks().map(of).fold(0, i64::saturating_add)
    };
    let others = (0u32..)
        .zip(&job.timelines)
        .filter(|(number, timeline)| timeline.is_stream == is_stream && !except.contains(number));
    let mut others: Vec<(i64, u32)> = others.map(|(number, _)| (excess_ns(number), number)).collect();
    others.sort_unstable();
    let first = others.len().saturating_sub(count) / 2;
    others.into_iter().skip(first).take(count).map(|(_, number)| number).collect()
}
