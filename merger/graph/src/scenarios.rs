//! Replays a job with other durations, in which its work takes as long as is typical or its network takes no time.

use crate::call_durations::CallDurations;
use crate::call_graph::CallGraph;
use crate::job_calls::CallTimeline;
use crate::label_times::LabelTimes;
use crate::replay::{ReplayDurations, ReplayObserver, ReplayTimes, ReplayedExit, replay};
use crate::replay_plan::PlannedPlace;
use crate::usual_noise::UsualNoise;
use crate::work_table::WorkTable;
use rayon::prelude::*;
use std::ops::Range;

/// Number of scenarios that one pass over the calls replays.
pub(crate) const SCENARIOS_AT_ONCE: usize = 5;

/// Durations as they were recorded.
pub(crate) struct RecordedDurations<'a> {
    pub(crate) graph: &'a CallGraph<'a>,
}

impl ReplayDurations<1> for RecordedDurations<'_> {
    #[inline]
    fn work_ns(&self, place: PlannedPlace) -> [u64; 1] {
        [self.graph.plan().work_ns(self.graph.job, place)]
    }

    #[inline]
    fn transfer_ns(&self, place: PlannedPlace) -> [u64; 1] {
        [self.graph.plan().transfer_ns(place)]
    }
}

/// Work of some threads.
#[derive(Clone, Debug)]
pub(crate) struct SelectedWork {
    /// Calls of each timeline before which the work is selected.
    calls: Vec<Range<usize>>,
    /// Slot of the label under which the work is selected; `None` for all.
    slot: Option<usize>,
    /// By how much its typical durations differ by chance; `None` if they do not.
    noise: Option<UsualNoise>,
}

impl SelectedWork {
    /// Selects the same work, of which typical durations differ by chance.
    pub(crate) fn with_noise(self, noise: UsualNoise) -> SelectedWork {
        SelectedWork { noise: Some(noise), ..self }
    }
}

/// Other durations than the recorded ones.
#[derive(Clone, Debug)]
pub(crate) enum DurationScenario {
    /// The selected work takes at most as long as is typical.
    TypicalWork(SelectedWork),
    /// The network takes no time.
    IdealNetwork,
    /// Messages of a slow network take as long as others.
    TypicalMessages,
}

/// Work that takes at most as long as is typical.
#[derive(Clone, Copy, Debug)]
struct TypicalWork<'a> {
    times: &'a LabelTimes<'a>,
    table: &'a WorkTable,
    /// Slot of the label of which this is so; `None` for all.
    slot: Option<usize>,
}

impl TypicalWork<'_> {
    /// Returns the duration of work under a label, ns, if that takes this long before a call or in it.
    fn at_most_typical(&self, timeline: usize, call: usize, label: u32, ns: u64) -> u64 {
        let slot = self.times.slot(label);
        let block = self.table.block_of(&self.times.job().timelines[timeline], call);
        let (all, typical) =
            (self.table.ns(timeline, block, slot), self.table.typical_ns(timeline, block, slot));
        let is_known = !self.table.is_lacking(timeline, block);
        let is_selected = self.slot.is_none_or(|selected| selected == slot);
        if all <= typical || !is_known || !is_selected {
            return ns;
        }
        let scaled = u128::from(ns) * u128::from(typical) / u128::from(all);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Returns the duration of the work before a call, ns.
    fn before(&self, timeline: usize, call: usize) -> u64 {
        let segments = self.times.job().timelines[timeline].work_before(call).iter();
        segments
            .map(|segment| self.at_most_typical(timeline, call, segment.label, segment.ns))
            .fold(0, u64::saturating_add)
    }
}

/// Duration of the work before each call if all of it takes at most as long as is typical, ns, by timeline.
pub(crate) fn typical_work(times: &LabelTimes<'_>, table: &WorkTable) -> Vec<CallDurations> {
    let typical = TypicalWork { times, table, slot: None };
    let of_timeline = |(timeline, calls): (usize, &CallTimeline)| -> CallDurations {
        (0..=calls.calls.len()).map(|call| typical.before(timeline, call)).collect()
    };
    times.job().timelines.par_iter().enumerate().map(of_timeline).collect()
}

/// Durations of `N` scenarios.
pub(crate) struct ScenarioDurations<'a, const N: usize> {
    pub(crate) replays: ScenarioReplays<'a>,
    pub(crate) scenarios: [DurationScenario; N],
}

impl<const N: usize> ScenarioDurations<'_, N> {
    fn typical(&self, slot: Option<usize>) -> TypicalWork<'_> {
        TypicalWork { times: self.replays.times, table: self.replays.table, slot }
    }
}

impl<const N: usize> ReplayDurations<N> for ScenarioDurations<'_, N> {
    #[inline]
    fn work_ns(&self, place: PlannedPlace) -> [u64; N] {
        let graph = self.replays.graph;
        let mut all = [graph.plan().work_ns(graph.job, place); N];
        for (ns, scenario) in all.iter_mut().zip(&self.scenarios) {
            if let DurationScenario::TypicalWork(selected) = scenario
                && selected.calls[place.timeline].contains(&place.call)
            {
                let PlannedPlace { timeline, call } = place;
                let typical = match selected.slot {
                    None => self.replays.typical[timeline].ns(call),
                    slot => self.typical(slot).before(timeline, call),
                };
                *ns = match &selected.noise {
                    Some(noise) if typical < *ns => {
                        let block = self.replays.table.block_of(&graph.job.timelines[timeline], call);
                        noise.applied(typical, timeline, block).min(*ns)
                    }
                    _ => typical,
                };
            }
        }
        all
    }

    #[inline]
    fn transfer_ns(&self, place: PlannedPlace) -> [u64; N] {
        let PlannedPlace { timeline, call } = place;
        let graph = self.replays.graph;
        let recorded = graph.plan().transfer_ns(place);
        std::array::from_fn(|of| match &self.scenarios[of] {
            DurationScenario::IdealNetwork => 0,
            DurationScenario::TypicalMessages => graph.typical_transfer_ns(timeline, call, recorded),
            DurationScenario::TypicalWork(selected)
                if self.replays.has_streams && selected.calls[timeline].contains(&call) =>
            {
                let calls = &graph.job.timelines[timeline];
                match calls.is_collective_kernel(call) {
                    true => {
                        let label = calls.calls[call].label;
                        self.typical(selected.slot).at_most_typical(timeline, call, label, recorded)
                    }
                    false => recorded,
                }
            }
            DurationScenario::TypicalWork(_) => recorded,
        })
    }
}

/// When the steps of a replay ended: sums over the threads, ns.
#[derive(Clone, Debug)]
pub(crate) struct StepEnds<'a, const N: usize> {
    graph: &'a CallGraph<'a>,
    /// Next boundary of each timeline.
    next: Vec<usize>,
    /// Sums over the timelines of the times at the boundaries.
    sums: Vec<[i128; N]>,
}

impl<'a, const N: usize> StepEnds<'a, N> {
    pub(crate) fn new(graph: &'a CallGraph<'a>) -> StepEnds<'a, N> {
        let steps = graph.job.steps as usize;
        let boundaries = if steps == 0 { 0 } else { steps + 1 };
        StepEnds { graph, next: vec![0; graph.job.timelines.len()], sums: vec![[0; N]; boundaries] }
    }

    /// Returns the mean length of each step with one of the sets of durations, ns.
    pub(crate) fn lengths(&self, of: usize) -> Vec<f64> {
        let timelines = self.next.len().max(1) as f64;
        self.sums.windows(2).map(|ends| (ends[1][of] - ends[0][of]) as f64 / timelines).collect()
    }
}

impl<const N: usize> ReplayObserver<N> for StepEnds<'_, N> {
    fn exited(&mut self, _: &ReplayTimes<N>, exit: ReplayedExit<N>) {
        let timeline = exit.timeline as usize;
        let boundaries = &self.graph.job.timelines[timeline].first_call_of_step;
        while boundaries.get(self.next[timeline]).is_some_and(|first| *first <= exit.call + 1) {
            for (sum, at) in self.sums[self.next[timeline]].iter_mut().zip(exit.exit_ns) {
                *sum += i128::from(at);
            }
            self.next[timeline] += 1;
        }
    }
}

/// Times of a job in a scenario.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ScenarioTimes {
    /// Length of the job, ns.
    pub(crate) length_ns: i64,
    /// Mean length of each step, ns.
    pub(crate) step_lengths: Vec<f64>,
}

/// Replays scenarios of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScenarioReplays<'a> {
    pub(crate) graph: &'a CallGraph<'a>,
    times: &'a LabelTimes<'a>,
    pub(crate) table: &'a WorkTable,
    /// Durations of typical work, as [`typical_work`] returns them.
    typical: &'a [CallDurations],
    /// Whether the work of GPUs is among the calls.
    has_streams: bool,
}

impl<'a> ScenarioReplays<'a> {
    /// `typical` are the durations of [`typical_work`].
    pub(crate) fn new(
        graph: &'a CallGraph<'a>,
        times: &'a LabelTimes<'a>,
        table: &'a WorkTable,
        typical: &'a [CallDurations],
    ) -> ScenarioReplays<'a> {
        let has_streams = graph.job.timelines.iter().any(|timeline| timeline.is_stream);
        ScenarioReplays { graph, times, table, typical, has_streams }
    }

    /// Returns the times of the job in each scenario.
    pub(crate) fn replay(&self, scenarios: Vec<DurationScenario>) -> Vec<ScenarioTimes> {
        let replayed = scenarios.par_chunks(SCENARIOS_AT_ONCE).map(|some| match some {
            [only] => self.replay_at_once([only.clone()], 1),
            some => {
                let at = |place: usize| some.get(place).cloned().unwrap_or(DurationScenario::IdealNetwork);
                self.replay_at_once::<SCENARIOS_AT_ONCE>(std::array::from_fn(at), some.len())
            }
        });
        replayed.flatten_iter().collect()
    }

    /// Returns the times of the job in the first `count` of these scenarios.
    fn replay_at_once<const N: usize>(
        &self,
        scenarios: [DurationScenario; N],
        count: usize,
    ) -> Vec<ScenarioTimes> {
        let mut steps = StepEnds::<N>::new(self.graph);
        let durations = ScenarioDurations { replays: *self, scenarios };
        let lengths = replay(self.graph, &durations, &mut steps).lengths_ns();
        let times = |(of, length_ns)| ScenarioTimes { length_ns, step_lengths: steps.lengths(of) };
        lengths.into_iter().take(count).enumerate().map(times).collect()
    }

    /// Selects the work of all threads in some blocks.
    pub(crate) fn work_in(&self, blocks: &Range<usize>) -> SelectedWork {
        let timelines = self.graph.job.timelines.iter();
        let calls = timelines.map(|of| self.table.calls_in(of, blocks)).collect();
        SelectedWork { calls, slot: None, noise: None }
    }

    /// Selects the work of some threads, under the label of a slot or under all.
    pub(crate) fn work_of(&self, timelines: &[u32], slot: Option<usize>) -> SelectedWork {
        let mut calls = vec![0..0; self.graph.job.timelines.len()];
        timelines.iter().for_each(|timeline| calls[*timeline as usize] = 0..usize::MAX);
        SelectedWork { calls, slot, noise: None }
    }

    /// Selects the work of some threads in the steps.
    pub(crate) fn work_in_steps<'t>(&self, timelines: impl IntoIterator<Item = &'t u32>) -> SelectedWork {
        let (jobs, steps) = (&self.graph.job.timelines, self.table.step_blocks());
        let mut calls = vec![0..0; jobs.len()];
        for timeline in timelines {
            calls[*timeline as usize] = self.table.calls_in(&jobs[*timeline as usize], &steps);
        }
        SelectedWork { calls, slot: None, noise: None }
    }
}
