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
