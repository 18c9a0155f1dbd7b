//! The analysis of a job: its replay, what caused its waiting, and what other durations would change.

use crate::call_graph::CallGraph;
use crate::critical_path::{CriticalPath, critical_path};
use crate::delay_costs::{DelayCosts, delay_costs};
use crate::job_calls::CallTimeline;
use crate::label_times::LabelTimes;
use crate::matched_share::MIN_MATCHED;
use crate::replay::{ReplayTimes, replay};
use crate::waits::{CallWait, WaitRecorder};
use crate::what_if::{RecordedDurations, StepEnds, WhatIf, WhatIfGain};
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
    /// All waits, in an order in which a wait comes after every wait of any thread that ended before it began.
    pub(crate) waits: Vec<CallWait>,
    pub(crate) replayed: ReplayTimes,
    /// Mean length of each step in the replay, ns.
    step_lengths: Vec<f64>,
}

impl<'a> WaitAnalysis<'a> {
    /// Replays the calls of a job.
    pub fn new(graph: &'a CallGraph<'a>) -> WaitAnalysis<'a> {
        let times = LabelTimes::new(graph.job, graph.transfers());
        let recorded = || {
            let mut observers = (WaitRecorder::new(graph), StepEnds::new(graph));
            let replayed = replay(graph, &RecordedDurations { times: &times }, &mut observers);
            (observers, replayed)
        };
        let (((recorder, steps), replayed), table) = rayon::join(recorded, || WorkTable::new(&times));
        let (waits, step_lengths) = (recorder.finish(), steps.lengths());
        WaitAnalysis { graph, times, table, waits, replayed, step_lengths }
    }

    /// Returns the recorded length of the run, ns: if the clocks of nodes cannot be compared, that of its longest thread.
    pub fn recorded_ns(&self) -> i64 {
        let timelines = &self.graph.job.timelines;
        if !self.graph.job.has_comparable_times() {
            let lengths = timelines.iter().map(|timeline| timeline.end_ns.saturating_sub(timeline.start_ns));
            return lengths.max().unwrap_or(0);
        }
        let start = timelines.iter().map(|timeline| timeline.start_ns).min().unwrap_or(0);
        let end = timelines.iter().map(|timeline| timeline.end_ns).max().unwrap_or(0);
        end.saturating_sub(start)
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
        let is_idle = |call: &usize| calls.is_stream && !calls.is_collective_kernel(*call);
        let (idle, calling): (Vec<usize>, Vec<usize>) = (0..calls.calls.len()).partition(is_idle);
        let sum = |of: Vec<usize>| {
            of.into_iter().map(|call| self.times.transfer_ns(timeline, call)).fold(0, u64::saturating_add)
        };
        let (idle_ns, transfer_ns) = (sum(idle), sum(calling));
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
            1 => self.replayed.ends[timeline],
            _ => self.replayed.enter_ns(timeline as u32, call as u32 + 1),
        };
        let lasted = until.saturating_sub(self.replayed.enter_ns(timeline as u32, call as u32));
        let known = self.times.transfer_ns(timeline, call).saturating_add(calls.work_ns_before(call + 1));
        u64::try_from(lasted).unwrap_or(0).saturating_sub(known)
    }

    /// Attributes the waiting in the steps to its causes; if there are no steps, all waiting.
    pub fn delay_costs(&self) -> DelayCosts {
        delay_costs(&self.waits, &self.times, &self.replayed, |wait| self.is_in_steps(wait))
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
        let durations = what_if.typical(what_if.work_in_steps(timelines));
        let replayed = replay(self.graph, &durations, &mut recorder);
        delay_costs(&recorder.finish(), &self.times, &replayed, |wait| self.is_in_steps(wait))
    }

    /// Returns the critical path.
    pub fn critical_path(&self) -> CriticalPath {
        critical_path(&self.times, &self.waits, &self.replayed)
    }

    pub(crate) fn what_if(&self) -> WhatIf<'_> {
        let length_ns = self.replayed_ns();
        WhatIf {
            graph: self.graph,
            times: &self.times,
            table: &self.table,
            length_ns,
            off_ns: self.recorded_ns() - length_ns,
            step_lengths: &self.step_lengths,
        }
    }

    /// Returns the gain if the work of these threads took as long as is typical, under one label or in all.
    pub fn gain(&self, timelines: &[u32], label: Option<u32>) -> WhatIfGain {
        let what_if = self.what_if();
        what_if.gain(what_if.work_of(timelines, label.map(|label| self.times.slot(label))))
    }

    /// Returns the efficiency of the threads.
    pub fn efficiency(&self) -> JobEfficiency {
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
        (!work.is_empty()).then(|| self.efficiency_with(&work))
    }

    /// Returns the efficiency with these times of work, ns.
    fn efficiency_with(&self, work: &[u64]) -> JobEfficiency {
        let longest = work.iter().copied().max().unwrap_or(0) as f64;
        let mean = work.iter().map(|ns| *ns as f64).sum::<f64>() / work.len().max(1) as f64;
        let length = self.replayed_ns() as f64;
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let ideal =
            (self.matched_share().share() >= MIN_MATCHED).then(|| self.what_if().ideal_length_ns() as f64);
        JobEfficiency {
            parallel: ratio(mean, length),
            load_balance: ratio(mean, longest),
            serialization: ideal.map(|ideal| ratio(longest, ideal)),
            transfer: ideal.map(|ideal| ratio(ideal, length)),
        }
    }
}
