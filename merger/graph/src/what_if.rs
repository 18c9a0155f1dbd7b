//! How long the job would have taken with less work: the replay with other durations.

use crate::call_graph::CallGraph;
use crate::label_times::LabelTimes;
use crate::replay::{ReplayDurations, ReplayObserver, ReplayTimes, ReplayedExit, replay};
use crate::work_table::WorkTable;
use std::ops::Range;

/// Half width of a 95 % interval, in standard errors.
pub(crate) const STANDARD_ERRORS: f64 = 1.96;

/// What the job would gain if some of its work took as long as is typical.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WhatIfGain {
    /// Time by which the job would be shorter, ns.
    pub ns: i64,
    /// Half width of the 95 % interval of `ns`, ns.
    pub error_bound_ns: i64,
}

/// Durations as they were recorded.
pub(crate) struct RecordedDurations<'a> {
    pub(crate) times: &'a LabelTimes<'a>,
}

impl ReplayDurations for RecordedDurations<'_> {
    fn work_ns(&self, timeline: usize, call: usize) -> u64 {
        self.times.job().timelines[timeline].work_ns_before(call)
    }

    fn transfer_ns(&self, timeline: usize, call: usize) -> u64 {
        self.times.transfer_ns(timeline, call)
    }
}

/// Durations of a network that takes no time.
pub(crate) struct IdealNetwork<'a>(pub(crate) RecordedDurations<'a>);

impl ReplayDurations for IdealNetwork<'_> {
    fn work_ns(&self, timeline: usize, call: usize) -> u64 {
        self.0.work_ns(timeline, call)
    }

    fn transfer_ns(&self, _: usize, _: usize) -> u64 {
        0
    }
}

/// Work of some threads.
#[derive(Clone, Debug)]
pub(crate) struct SelectedWork {
    /// Calls of each timeline before which the work is selected.
    calls: Vec<Range<usize>>,
    /// Slot of the label under which the work is selected; `None` for all.
    slot: Option<usize>,
}

/// Durations in which the selected work takes at most as long as is typical.
pub(crate) struct TypicalDurations<'a> {
    recorded: RecordedDurations<'a>,
    table: &'a WorkTable,
    selected: SelectedWork,
}

impl TypicalDurations<'_> {
    /// Returns the duration of work before a call or in it, if it takes at most as long as is typical, ns.
    fn at_most_typical(&self, timeline: usize, call: usize, label: u32, ns: u64) -> u64 {
        let times = self.recorded.times;
        let slot = times.slot(label);
        let block = self.table.block_of(&times.job().timelines[timeline], call);
        let (all, typical) =
            (self.table.ns(timeline, block, slot), self.table.typical_ns(timeline, block, slot));
        let is_known = !self.table.is_lacking(timeline, block);
        let is_selected = self.selected.slot.is_none_or(|selected| selected == slot);
        if all <= typical || !is_known || !is_selected {
            return ns;
        }
        let scaled = u128::from(ns) * u128::from(typical) / u128::from(all);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

impl ReplayDurations for TypicalDurations<'_> {
    fn work_ns(&self, timeline: usize, call: usize) -> u64 {
        if !self.selected.calls[timeline].contains(&call) {
            return self.recorded.work_ns(timeline, call);
        }
        let segments = self.recorded.times.job().timelines[timeline].work_before(call).iter();
        let ns = segments.map(|segment| self.at_most_typical(timeline, call, segment.label, segment.ns));
        ns.fold(0, u64::saturating_add)
    }

    fn transfer_ns(&self, timeline: usize, call: usize) -> u64 {
        let ns = self.recorded.transfer_ns(timeline, call);
        let calls = &self.recorded.times.job().timelines[timeline];
        match self.selected.calls[timeline].contains(&call) && calls.is_collective_kernel(call) {
            true => self.at_most_typical(timeline, call, calls.calls[call].label, ns),
            false => ns,
        }
    }
}

/// When the steps of a replay ended: sums over the threads, ns.
#[derive(Clone, Debug)]
pub(crate) struct StepEnds<'a> {
    graph: &'a CallGraph<'a>,
    /// Next boundary of each timeline.
    next: Vec<usize>,
    /// Sum over the timelines of the times at the boundaries.
    sums: Vec<i128>,
}

impl<'a> StepEnds<'a> {
    pub(crate) fn new(graph: &'a CallGraph<'a>) -> StepEnds<'a> {
        let steps = graph.job.steps as usize;
        let boundaries = if steps == 0 { 0 } else { steps + 1 };
        StepEnds { graph, next: vec![0; graph.job.timelines.len()], sums: vec![0; boundaries] }
    }

    /// Returns the mean length of each step, ns.
    pub(crate) fn lengths(&self) -> Vec<f64> {
        let timelines = self.next.len().max(1) as f64;
        self.sums.windows(2).map(|ends| (ends[1] - ends[0]) as f64 / timelines).collect()
    }

    fn note(&mut self, timeline: usize, calls_left: u32, at: i64) {
        let boundaries = &self.graph.job.timelines[timeline].first_call_of_step;
        while boundaries.get(self.next[timeline]).is_some_and(|first| *first <= calls_left) {
            self.sums[self.next[timeline]] += i128::from(at);
            self.next[timeline] += 1;
        }
    }
}

impl ReplayObserver for StepEnds<'_> {
    fn exited(&mut self, _: &ReplayTimes, exit: ReplayedExit) {
        self.note(exit.timeline as usize, exit.call + 1, exit.exit_ns);
    }
}

/// Compares replays with the one of the recorded durations.
#[derive(Clone, Debug)]
pub(crate) struct WhatIf<'a> {
    pub(crate) graph: &'a CallGraph<'a>,
    pub(crate) times: &'a LabelTimes<'a>,
    pub(crate) table: &'a WorkTable,
    /// Length of the replay with the recorded durations, ns.
    pub(crate) length_ns: i64,
    /// Length of the recorded run less that of the replay, ns.
    pub(crate) off_ns: i64,
    /// Mean length of each step in the replay with the recorded durations, ns.
    pub(crate) step_lengths: &'a [f64],
}

impl<'a> WhatIf<'a> {
    /// Returns the gain if the selected work takes at most as long as is typical.
    pub(crate) fn gain(&self, selected: SelectedWork) -> WhatIfGain {
        self.gain_after((self.length_ns, self.step_lengths), selected)
    }

    /// Returns the durations in which the selected work takes at most as long as is typical.
    pub(crate) fn typical(&self, selected: SelectedWork) -> TypicalDurations<'_> {
        TypicalDurations { recorded: RecordedDurations { times: self.times }, table: self.table, selected }
    }

    /// Selects the work of all threads in some blocks.
    pub(crate) fn work_in(&self, blocks: &Range<usize>) -> SelectedWork {
        let timelines = self.graph.job.timelines.iter();
        SelectedWork { calls: timelines.map(|of| self.table.calls_in(of, blocks)).collect(), slot: None }
    }

    /// Selects the work of some threads, under the label of a slot or under all.
    pub(crate) fn work_of(&self, timelines: &[u32], slot: Option<usize>) -> SelectedWork {
        let mut calls = vec![0..0; self.graph.job.timelines.len()];
        timelines.iter().for_each(|timeline| calls[*timeline as usize] = 0..usize::MAX);
        SelectedWork { calls, slot }
    }

    /// Selects the work of some threads in the steps.
    pub(crate) fn work_in_steps<'t>(&self, timelines: impl IntoIterator<Item = &'t u32>) -> SelectedWork {
        let (jobs, steps) = (&self.graph.job.timelines, self.table.step_blocks());
        let mut calls = vec![0..0; jobs.len()];
        for timeline in timelines {
            calls[*timeline as usize] = self.table.calls_in(&jobs[*timeline as usize], &steps);
        }
        SelectedWork { calls, slot: None }
    }

    /// Returns the gain over a run of this length, with steps of these lengths, ns.
    fn gain_after(&self, (length_ns, lengths): (i64, &[f64]), selected: SelectedWork) -> WhatIfGain {
        let mut steps = StepEnds::new(self.graph);
        let ns = length_ns - replay(self.graph, &self.typical(selected), &mut steps).length_ns();
        let gains: Vec<f64> =
            lengths.iter().zip(steps.lengths()).map(|(before, after)| before - after).collect();
        let spread = STANDARD_ERRORS * standard_error_of_sum(&gains);
        // A replay that is off by some share of the run is taken to be off by the same share of the gain.
        let off = self.off_ns.unsigned_abs() as f64 * (ns as f64 / self.length_ns.max(1) as f64).abs();
        WhatIfGain { ns, error_bound_ns: (spread + off).round() as i64 }
    }

    /// Returns the gain if all work of some timelines in the steps takes at most as long as is typical, where that of the
    /// timelines `before` does so already.
    pub(crate) fn gain_of_timelines(&self, timelines: &[u32], before: &[u32]) -> WhatIfGain {
        let selected = self.work_in_steps(timelines.iter().chain(before));
        if before.is_empty() {
            return self.gain(selected);
        }
        let mut steps = StepEnds::new(self.graph);
        let replayed = replay(self.graph, &self.typical(self.work_in_steps(before)), &mut steps);
        self.gain_after((replayed.length_ns(), &steps.lengths()), selected)
    }

    /// Returns the length of the run with a network that takes no time, ns.
    pub(crate) fn ideal_length_ns(&self) -> i64 {
        let durations = IdealNetwork(RecordedDurations { times: self.times });
        replay(self.graph, &durations, &mut crate::replay::Unobserved).length_ns()
    }
}

/// Returns the standard error of the sum of values, from the differences of neighbours: a value that changes slowly
/// from step to step has a small error.
fn standard_error_of_sum(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
    let pairs = values.len().saturating_sub(1);
    if pairs == 0 {
        return 0.0;
    }
    let variance = differences.sum::<f64>() / (2 * pairs) as f64;
    (variance * values.len() as f64).sqrt()
}
