//! The analysis of a job: its replay, what caused its waiting, and what other durations would change.

use crate::call_durations::CallDurations;
use crate::call_graph::CallGraph;
use crate::critical_path::{CriticalPath, critical_path};
use crate::delay_costs::{DelayCosts, delay_costs};
use crate::job_calls::{CallTimeline, JobCalls};
use crate::label_times::LabelTimes;
use crate::matched_share::MIN_MATCHED;
use crate::replay::{ReplayTimes, replay};
use crate::scenarios::{
    DurationScenario, RecordedDurations, ScenarioDurations, ScenarioReplays, ScenarioTimes, StepEnds,
    typical_work,
};
use crate::suspects::{min_gain_ns, suspects};
use crate::waits::{CallWait, WaitRecorder};
use crate::what_if::{WhatIf, WhatIfGain};
use crate::work_table::WorkTable;
use std::collections::BTreeMap;

/// Times of one thread, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimelineTimes {
    /// From its first to its last recorded time.
    pub length_ns: u64,
    /// Outside of calls.
    pub work_ns: u64,
    /// In calls, waiting for others.
    pub waited_ns: u64,
    /// In calls, not waiting; on a stream in kernels of collectives.
    pub transfer_ns: u64,
    /// On a stream, without work although it does not wait for a launch or other work that is known.
    pub idle_ns: u64,
}

/// The efficiency of the job by the factors of the POP project, each from 0 to 1.
///
/// Their product is the parallel efficiency: the mean work of a thread divided by the length of the run. Streams of GPUs
/// do not count.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct JobEfficiency {
    /// Mean work of a thread divided by the length of the run.
    pub parallel: f64,
    /// Mean work divided by the longest work of a thread.
    pub load_balance: f64,
    /// Longest work of a thread divided by the length of the run with a network that takes no time. `None`, if too
    /// many calls do not match.
    pub serialization: Option<f64>,
    /// Length of the run with a network that takes no time divided by the length of the run. `None`, if too many
    /// calls do not match.
    pub transfer: Option<f64>,
}

/// The analysis of a job.
#[derive(Clone, Debug)]
pub struct WaitAnalysis<'a> {
    pub(crate) graph: &'a CallGraph<'a>,
    pub(crate) times: LabelTimes<'a>,
    pub(crate) table: WorkTable,
    /// Work before each call if it takes at most as long as is typical.
    typical: Vec<CallDurations>,
    /// All waits, in an order in which a wait comes after every wait of any thread that ended before it began.
    pub(crate) waits: Vec<CallWait>,
    pub(crate) replayed: ReplayTimes<1>,
    /// Times of the replay with the recorded durations.
    pub(crate) recorded: ScenarioTimes,
    /// Causes of the waiting in the steps; if there are no steps, of all waiting.
    pub(crate) costs: DelayCosts,
    pub(crate) scenarios: UsualScenarios,
}

/// Times in the scenarios that nearly every diagnosis compares.
#[derive(Clone, Debug)]
pub(crate) struct UsualScenarios {
    /// All work in the steps takes at most as long as is typical.
    pub(crate) typical_steps: ScenarioTimes,
    /// All work before the first step takes at most as long as is typical.
    pub(crate) typical_start_up: ScenarioTimes,
    /// All work after the last step takes at most as long as is typical.
    pub(crate) typical_ending: ScenarioTimes,
    /// The network takes no time.
    pub(crate) ideal_network: ScenarioTimes,
    /// The work of these threads, the likely suspects, takes at most as long as is typical in the steps.
    pub(crate) typical_suspects: Option<(Vec<u32>, ScenarioTimes)>,
}

impl UsualScenarios {
    /// Replays all of them in one pass over the calls.
    fn replay(replays: ScenarioReplays<'_>) -> UsualScenarios {
        let job = replays.graph.job;
        let suspects: Vec<u32> = suspects(job, replays.table, min_gain_ns(recorded_ns(job)))
            .into_iter()
            .map(|(timeline, _)| timeline)
            .collect();
        let blocks = replays.table.step_blocks();
        let after = blocks.end..blocks.end + 1;
        let mut scenarios = vec![
            DurationScenario::TypicalWork(replays.work_in(&blocks)),
            DurationScenario::TypicalWork(replays.work_in(&(0..1))),
            DurationScenario::TypicalWork(replays.work_in(&after)),
            DurationScenario::IdealNetwork,
        ];
        if !suspects.is_empty() {
            scenarios.push(DurationScenario::TypicalWork(replays.work_in_steps(&suspects)));
        }
        let mut replayed = replays.replay(scenarios).into_iter();
        let mut next = || replayed.next().unwrap_or_default();
        UsualScenarios {
            typical_steps: next(),
            typical_start_up: next(),
            typical_ending: next(),
            ideal_network: next(),
            typical_suspects: (!suspects.is_empty()).then(|| (suspects, next())),
        }
    }
}

impl<'a> WaitAnalysis<'a> {
    /// Replays the calls of a job.
    pub fn new(graph: &'a CallGraph<'a>) -> WaitAnalysis<'a> {
        let times = LabelTimes::new(graph.job, graph.plan());
        let recorded = || {
            let mut observers = (WaitRecorder::new(graph), StepEnds::new(graph));
            let replayed = replay(graph, &RecordedDurations { graph }, &mut observers);
            let (recorder, steps) = observers;
            let recorded = ScenarioTimes { length_ns: replayed.length_ns(), step_lengths: steps.lengths(0) };
            let waits = recorder.finish();
            let costs = delay_costs(&waits, &times, &replayed, |wait| wait.is_in_steps(graph.job));
            (replayed, recorded, waits, costs)
        };
        let scenarios = || {
            let table = WorkTable::new(&times);
            let typical = typical_work(&times, &table);
            let found = UsualScenarios::replay(ScenarioReplays::new(graph, &times, &table, &typical));
            (table, typical, found)
        };
        // The causes are measured while the scenarios, which take longer, are still replayed.
        let ((replayed, recorded, waits, costs), (table, typical, scenarios)) =
            rayon::join(recorded, scenarios);
        WaitAnalysis { graph, times, table, typical, waits, replayed, recorded, costs, scenarios }
    }

    /// Returns the recorded length of the run, ns: if the clocks of nodes cannot be compared, that of its longest thread.
    pub fn recorded_ns(&self) -> i64 {
        recorded_ns(self.graph.job)
    }

    /// Returns the length of the replay with the recorded durations, ns. It differs from the recorded length if not
    /// all dependencies are known.
    pub fn replayed_ns(&self) -> i64 {
        self.replayed.length_ns()
    }

    /// Returns the number of dependencies that were given up, because calls waited for one another.
    pub fn given_up(&self) -> u64 {
        self.replayed.given_up
    }

    /// Returns the times of a thread.
    pub fn timeline_times(&self, timeline: usize) -> TimelineTimes {
        let calls = &self.graph.job.timelines[timeline];
        let work_ns = calls.all_work_ns();
        let (mut idle_ns, mut transfer_ns) = (0u64, 0u64);
        for call in 0..calls.calls.len() {
            let is_idle = calls.is_stream && !calls.is_collective_kernel(call);
            let sum = if is_idle { &mut idle_ns } else { &mut transfer_ns };
            *sum = sum.saturating_add(self.times.transfer_ns(timeline, call));
        }
        let replayed_ns = self.replayed.length_of(timeline);
        TimelineTimes {
            length_ns: calls.end_ns.abs_diff(calls.start_ns),
            work_ns,
            waited_ns: replayed_ns
                .saturating_sub(work_ns)
                .saturating_sub(transfer_ns)
                .saturating_sub(idle_ns),
            transfer_ns,
            idle_ns,
        }
    }

    /// Returns the time that a thread waited in a call, ns.
    pub fn waited_in_call(&self, timeline: usize, call: usize) -> u64 {
        let calls = &self.graph.job.timelines[timeline];
        let until = match calls.calls.len() - call {
            1 => self.replayed.end_of(timeline),
            _ => self.replayed.enter_ns(timeline as u32, call as u32 + 1),
        };
        let lasted = until.saturating_sub(self.replayed.enter_ns(timeline as u32, call as u32));
        let known = self.times.transfer_ns(timeline, call).saturating_add(calls.work_ns_before(call + 1));
        u64::try_from(lasted).unwrap_or(0).saturating_sub(known)
    }

    /// Returns the causes of the waiting in the steps; if there are no steps, of all waiting.
    pub fn delay_costs(&self) -> &DelayCosts {
        &self.costs
    }

    /// Attributes the waiting in the steps and after them to its causes.
    pub(crate) fn costs_to_end(&self) -> DelayCosts {
        let first = |wait: &CallWait| {
            self.graph.job.timelines[wait.timeline as usize].first_call_of_step.first().copied().unwrap_or(0)
        };
        delay_costs(&self.waits, &self.times, &self.replayed, |wait| wait.call >= first(wait))
    }

    /// Attributes the waiting that would remain in the steps if the work of some threads took as long as is typical.
    pub(crate) fn delay_costs_without(&self, what_if: &WhatIf<'_>, timelines: &[u32]) -> DelayCosts {
        let mut recorder = WaitRecorder::new(self.graph);
        let selected = what_if.scenarios.work_in_steps(timelines);
        let scenarios = [DurationScenario::TypicalWork(selected)];
        let durations = ScenarioDurations { replays: what_if.scenarios, scenarios };
        let replayed = replay(self.graph, &durations, &mut recorder);
        delay_costs(&recorder.finish(), &self.times, &replayed, |wait| wait.is_in_steps(self.graph.job))
    }

    /// Returns the critical path.
    pub fn critical_path(&self) -> CriticalPath {
        critical_path(&self.times, &self.waits, &self.replayed)
    }

    pub(crate) fn what_if(&self) -> WhatIf<'_> {
        let scenarios = ScenarioReplays::new(self.graph, &self.times, &self.table, &self.typical);
        let off_ns = self.recorded_ns() - self.replayed_ns();
        WhatIf { scenarios, recorded: &self.recorded, off_ns }
    }

    /// Returns the gain if the work of these threads took as long as is typical, under one label or in all.
    pub fn gain(&self, timelines: &[u32], label: Option<u32>) -> WhatIfGain {
        let what_if = self.what_if();
        what_if.gain(what_if.scenarios.work_of(timelines, label.map(|label| self.times.slot(label))))
    }

    /// Returns the efficiency of the threads; `None` if there are none.
    pub fn efficiency(&self) -> Option<JobEfficiency> {
        let threads = self.graph.job.timelines.iter().filter(|timeline| !timeline.is_stream);
        self.efficiency_with(&threads.map(CallTimeline::all_work_ns).collect::<Vec<u64>>())
    }

    /// Returns the efficiency of the GPUs, of which each process has those that it uses; `None` if there are none. Work is
    /// the time with a kernel or copy on any stream; that of kernels of collectives does not count.
    pub fn gpu_efficiency(&self) -> Option<JobEfficiency> {
        let mut intervals: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for (number, timeline) in self.graph.job.timelines.iter().enumerate().filter(|(_, one)| one.is_stream)
        {
            let of_process = intervals.entry(timeline.process).or_default();
            for call in 0..timeline.calls.len() {
                let end = self.replayed.enter_ns(number as u32, call as u32);
                of_process.push((end.saturating_sub_unsigned(timeline.work_ns_before(call)), end));
            }
        }
        let covered = |mut of_process: Vec<(i64, i64)>| {
            of_process.sort_unstable();
            let (mut sum, mut until) = (0u64, i64::MIN);
            for (start, end) in of_process {
                sum = sum.saturating_add(u64::try_from(end.saturating_sub(start.max(until))).unwrap_or(0));
                until = until.max(end);
            }
            sum
        };
        let work: Vec<u64> = intervals.into_values().map(covered).collect();
        self.efficiency_with(&work)
    }

    /// Returns the efficiency with these times of work, ns; `None` if there are none.
    fn efficiency_with(&self, work: &[u64]) -> Option<JobEfficiency> {
        let longest = *work.iter().max()? as f64;
        let mean = work.iter().map(|ns| *ns as f64).sum::<f64>() / work.len() as f64;
        let length = self.replayed_ns() as f64;
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let ideal = self.scenarios.ideal_network.length_ns as f64;
        let ideal = (self.matched_share().share() >= MIN_MATCHED).then_some(ideal);
        Some(JobEfficiency {
            parallel: ratio(mean, length),
            load_balance: ratio(mean, longest),
            serialization: ideal.map(|ideal| ratio(longest, ideal)),
            transfer: ideal.map(|ideal| ratio(ideal, length)),
        })
    }
}

/// Returns the recorded length of a run, ns: if the clocks of nodes cannot be compared, that of its longest thread.
fn recorded_ns(job: &JobCalls) -> i64 {
    let timelines = &job.timelines;
    if !job.has_comparable_times() {
        let lengths = timelines.iter().map(|timeline| timeline.end_ns.saturating_sub(timeline.start_ns));
        return lengths.max().unwrap_or(0);
    }
    let start = timelines.iter().map(|timeline| timeline.start_ns).min().unwrap_or(0);
    let end = timelines.iter().map(|timeline| timeline.end_ns).max().unwrap_or(0);
    end.saturating_sub(start)
}
