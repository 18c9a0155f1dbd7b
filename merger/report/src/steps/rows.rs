//! The times of each step, or of several steps of a long run.

use super::lengths::{StepLengths, median};
use rpd_graph::{JobCalls, TimelineTimes, WaitAnalysis};
use std::ops::Range;

/// Maximum number of cells, ranks times steps.
const MAX_CELLS: u64 = 2_000_000;
/// Maximum number of rows.
const MAX_ROWS: u64 = 100_000;

/// Times of some steps, ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StepRow {
    pub(super) steps: Range<u32>,
    /// When the first rank began, in job time.
    pub(super) start_ns: i64,
    /// Length, the mean of the ranks: sum, least and greatest, and the step with that.
    pub(super) length_ns: u64,
    pub(super) shortest_ns: u64,
    pub(super) longest_ns: u64,
    pub(super) longest_step: u32,
    /// Sums over the ranks.
    pub(super) work_ns: u64,
    pub(super) waited_ns: u64,
    pub(super) communication_ns: u64,
    /// What is typical of all ranks, if the row is of one rank.
    pub(super) typical: Option<TypicalTimes>,
}

/// The lower medians of all ranks, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TypicalTimes {
    pub(super) length_ns: u64,
    pub(super) work_ns: u64,
    pub(super) waited_ns: u64,
    pub(super) communication_ns: u64,
}

/// Returns how many steps a row has, so that the table stays small.
pub(super) fn steps_in_row(timelines: usize, steps: u32) -> u32 {
    let cells = (timelines as u64).saturating_mul(steps.into());
    let in_row = cells.div_ceil(MAX_CELLS).max(u64::from(steps).div_ceil(MAX_ROWS)).max(1);
    u32::try_from(in_row).unwrap_or(u32::MAX)
}

/// Returns the timelines whose steps are compared: threads, or the streams of a job of which only GPUs are recorded.
pub(super) fn compared_timelines(job: &JobCalls) -> Vec<u32> {
    let has_threads = job.timelines.iter().any(|timeline| !timeline.is_stream);
    let is_compared = |timeline: &u32| !has_threads || !job.timelines[*timeline as usize].is_stream;
    (0..job.timelines.len() as u32).filter(is_compared).collect()
}

/// Returns the rows of the selected timelines, with what is typical if `is_of_rank`, and the length of each step.
pub(super) fn step_rows(
    analysis: &WaitAnalysis<'_>,
    job: &JobCalls,
    (selected, is_of_rank): (&[u32], bool),
    in_row: u32,
) -> (Vec<StepRow>, StepLengths) {
    let mut lengths = Vec::with_capacity(job.steps as usize);
    let mut rows = Vec::new();
    for first in (0..job.steps).step_by(in_row.max(1) as usize) {
        let steps = first..first.saturating_add(in_row).min(job.steps);
        let mut sums = TimelineTimes::default();
        for step in steps.clone() {
            let mut of_step = TimelineTimes::default();
            for timeline in selected {
                let times = analysis.times_in_steps(*timeline as usize, step..step + 1);
                add(&mut of_step, times);
            }
            lengths.push(of_step.length_ns / (selected.len() as u64).max(1));
            add(&mut sums, of_step);
        }
        let starts = selected.iter().map(|timeline| analysis.step_start_ns(*timeline as usize, first));
        let of_steps = &lengths[first as usize..];
        let longest = (0..of_steps.len()).max_by_key(|step| (of_steps[*step], std::cmp::Reverse(*step)));
        let longest = longest.unwrap_or(0);
        rows.push(StepRow {
            start_ns: starts.min().unwrap_or(0),
            length_ns: of_steps.iter().fold(0, |sum, ns| sum.saturating_add(*ns)),
            shortest_ns: of_steps.iter().copied().min().unwrap_or(0),
            longest_ns: of_steps.get(longest).copied().unwrap_or(0),
            longest_step: first + longest as u32,
            work_ns: sums.work_ns,
            waited_ns: sums.waited_ns,
            communication_ns: sums.transfer_ns,
            typical: is_of_rank.then(|| typical_times(analysis, job, steps.clone())),
            steps,
        });
    }
    (rows, StepLengths::new(lengths))
}

fn add(sums: &mut TimelineTimes, times: TimelineTimes) {
    sums.length_ns = sums.length_ns.saturating_add(times.length_ns);
    sums.work_ns = sums.work_ns.saturating_add(times.work_ns);
    sums.waited_ns = sums.waited_ns.saturating_add(times.waited_ns);
    sums.transfer_ns = sums.transfer_ns.saturating_add(times.transfer_ns);
}

fn typical_times(analysis: &WaitAnalysis<'_>, job: &JobCalls, steps: Range<u32>) -> TypicalTimes {
    let compared = compared_timelines(job).into_iter();
    let times: Vec<TimelineTimes> =
        compared.map(|timeline| analysis.times_in_steps(timeline as usize, steps.clone())).collect();
    let of = |ns: fn(&TimelineTimes) -> u64| median(times.iter().map(ns).collect());
    TypicalTimes {
        length_ns: of(|times| times.length_ns),
        work_ns: of(|times| times.work_ns),
        waited_ns: of(|times| times.waited_ns),
        communication_ns: of(|times| times.transfer_ns),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rpd_graph::{Call, CallGraph, CallTimeline, WorkSegment};

    #[test]
    fn long_runs_have_several_steps_in_a_row() {
        assert_eq!([(4, 40), (2_000, 1_000), (1, 100_000)].map(|(t, s)| steps_in_row(t, s)), [1, 1, 1]);
        assert_eq!(
            [(2_000, 1_001), (4_096, 10_000), (1, 1 << 20)].map(|(t, s)| steps_in_row(t, s)),
            [2, 21, 11]
        );
        assert_eq!(steps_in_row(0, 0), 1);
        assert_eq!(steps_in_row(usize::MAX, u32::MAX), u32::MAX);
    }

    /// A job of processes that call without others and work for `work(process, call)` ns before each call.
    fn job(processes: u32, calls: u32, work: impl Fn(u32, u32) -> u64) -> JobCalls {
        let timeline = |process: u32| {
            let mut now = i64::from(process) * 3;
            let mut timeline = CallTimeline { process, start_ns: now, ..CallTimeline::default() };
            for call in 0..calls {
                timeline.first_work.push(call);
                timeline.work.push(WorkSegment { label: 1, ns: work(process, call) });
                now += work(process, call) as i64;
                timeline.calls.push(Call { enter_ns: now, duration_ns: 10, label: 0 });
                now += 10;
            }
            timeline.first_work.extend([calls, calls]);
            timeline.end_ns = now;
            timeline.first_call_of_step = (0..=calls).collect();
            timeline
        };
        JobCalls {
            timelines: (0..processes).map(timeline).collect(),
            processes,
            labels: 2,
            steps: calls,
            ..JobCalls::default()
        }
    }

    #[test]
    fn rows_of_several_steps_have_the_sums_of_single_ones() {
        let work = |process: u32, call: u32| u64::from(1_000 + process * 10 + call * 7 % 5 * 100);
        let job = job(3, 23, work);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        let (single, lengths) = step_rows(&analysis, &job, (&[0, 1, 2], false), 1);
        assert_eq!(single.len(), 23);
        for (row, call) in single.iter().zip(0..) {
            let all: u64 = (0..3).map(|process| work(process, call)).sum();
            assert_eq!((row.work_ns, row.waited_ns, row.communication_ns), (all, 0, 30));
            let length = (all + 30) / 3;
            assert_eq!((row.length_ns, row.shortest_ns, row.longest_ns), (length, length, length));
            assert_eq!((row.steps.clone(), row.longest_step, row.typical), (call..call + 1, call, None));
            let before: u64 = (0..call).map(|before| work(0, before) + 10).sum();
            assert_eq!(row.start_ns, before as i64, "the first process is the first to begin");
        }
        for in_row in [2, 5, 23, 24] {
            let (rows, same) = step_rows(&analysis, &job, (&[0, 1, 2], false), in_row);
            assert_eq!(same, lengths);
            for (row, singles) in rows.iter().zip(single.chunks(in_row as usize)) {
                let sum = |of: fn(&StepRow) -> u64| singles.iter().map(of).sum::<u64>();
                assert_eq!(row.steps, singles[0].steps.start..singles.last().unwrap().steps.end);
                assert_eq!((row.work_ns, row.length_ns), (sum(|row| row.work_ns), sum(|row| row.length_ns)));
                assert_eq!(row.start_ns, singles[0].start_ns);
                let longest = singles.iter().map(|row| row.length_ns).max().unwrap();
                assert_eq!((row.longest_ns, single[row.longest_step as usize].length_ns), (longest, longest));
                assert_eq!(Some(row.shortest_ns), singles.iter().map(|row| row.length_ns).min());
            }
        }
    }

    #[test]
    fn a_rank_is_beside_the_lower_median() {
        let job = job(4, 12, |process, _| u64::from(100 * (1 + process)));
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        let (rows, _) = step_rows(&analysis, &job, (&[3], true), 4);
        let typical = TypicalTimes { length_ns: 840, work_ns: 800, waited_ns: 0, communication_ns: 40 };
        assert_eq!((rows.len(), rows[1].work_ns, rows[1].typical), (3, 1_600, Some(typical)));
    }
}
