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
    let mut suspects: Vec<(u32, StepExcess)> = (0..job.timelines.len() as u32)
        .map(excess)
        .filter(|(_, excess)| excess.is_systematic() && excess.sum_ns() >= min_gain)
        .collect();
    suspects.sort_by_key(|(timeline, excess)| (std::cmp::Reverse(excess.sum_ns()), *timeline));
    suspects
}
