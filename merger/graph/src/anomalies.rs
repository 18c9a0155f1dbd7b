//! Single events that take much longer than others of their kind: a step, a piece of work, a call, the work of a rank.
//!
//! The measure is the modified z-score: 0.6745 times the distance from the median, divided by the median of all distances
//! from it (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993). It does not depend on how long the outliers are.

use crate::analysis::WaitAnalysis;
use crate::job_calls::CallTimeline;
use std::collections::HashMap;

/// Minimum modified z-score.
const MIN_SCORE: f64 = 6.0;
/// Minimum time beyond the median, as a share of a step.
const MIN_SHARE_OF_STEP: f64 = 0.05;
/// A run without steps counts as so many.
const PARTS_OF_RUN: f64 = 100.0;
/// Minimum number of events of a kind that are compared.
const MIN_EVENTS: usize = 10;
/// Events that take long on one thread in more than this share of the steps are no single ones.
const MAX_SHARE_OF_STEPS: f64 = 0.2;
/// Minimum number of ranks whose work is compared.
const MIN_RANKS: usize = 5;
/// Factor that makes the median of distances comparable with a standard deviation.
const SCALE: f64 = 0.6745;

/// Kind of an event that takes long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AnomalyKind {
    /// A step of a rank.
    Step,
    /// Work under a label between two calls, or a kernel or copy.
    Work,
    /// A call, without its waiting.
    Call,
    /// All work of a rank in the steps.
    Rank,
}

impl AnomalyKind {
    /// Returns the kind in a word.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::Step => "step",
            AnomalyKind::Work => "work",
            AnomalyKind::Call => "call",
            AnomalyKind::Rank => "rank",
        }
    }
}

/// Events of one kind and label in one step that take much longer than others of the kind and label.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JobAnomaly {
    /// Kind of the events.
    pub kind: AnomalyKind,
    /// Label; `None` for steps and ranks.
    pub label: Option<u32>,
    /// The step; `None` outside of steps, and for ranks.
    pub step: Option<u32>,
    /// Thread or stream of the longest event; of a step, which takes all threads about equally long, the one that worked
    /// longest.
    pub timeline: u32,
    /// Start of the event of this thread, ns in job time.
    pub start_ns: i64,
    /// Duration of the event of this thread, ns.
    pub ns: u64,
    /// Median of all events of the kind and label, ns.
    pub typical_ns: u64,
    /// Modified z-score of the longest event; `None` if at least half of the events take equally long.
    pub score: Option<f64>,
    /// Number of such events in the step.
    pub events: u64,
}

/// An event.
#[derive(Clone, Copy, Debug)]
struct JobEvent {
    timeline: u32,
    step: Option<u32>,
    start_ns: i64,
    ns: u64,
    /// Its own time, ns: of a step the work in it.
    own_ns: u64,
}

/// Kind and label of events.
type EventKind = (AnomalyKind, Option<u32>);

impl WaitAnalysis<'_> {
    /// Returns the anomalies, the one that is longest beyond the median first.
    pub fn anomalies(&self) -> Vec<JobAnomaly> {
        let mut durations: HashMap<EventKind, Vec<u64>> = HashMap::new();
        self.each_event(&mut |kind, event| durations.entry(kind).or_default().push(event.ns));
        let (of_step, of_rank) = self.min_excess_ns();
        let min_excess_ns = |kind: AnomalyKind| if kind == AnomalyKind::Rank { of_rank } else { of_step };
        let limits: HashMap<EventKind, EventLimit> = durations
            .into_iter()
            .filter_map(|(kind, ns)| Some((kind, EventLimit::of(kind.0, ns, min_excess_ns(kind.0))?)))
            .collect();
        // With the own time of the event.
        let mut found: HashMap<(EventKind, Option<u32>), (u64, JobAnomaly)> = HashMap::new();
        self.each_event(&mut |kind, event| {
            let Some(limit) = limits.get(&kind).filter(|limit| event.ns >= limit.min_ns) else { return };
            let anomaly = JobAnomaly {
                kind: kind.0,
                label: kind.1,
                step: event.step,
                timeline: event.timeline,
                start_ns: event.start_ns,
                ns: event.ns,
                typical_ns: limit.median_ns,
                score: limit.score(event.ns),
                events: 1,
            };
            let first = (event.own_ns, JobAnomaly { events: 0, ..anomaly });
            let (own_ns, known) = found.entry((kind, event.step)).or_insert(first);
            let events = known.events + 1;
            if event.own_ns > *own_ns {
                (*own_ns, *known) = (event.own_ns, anomaly);
            }
            known.events = events;
        });
        let mut found: Vec<JobAnomaly> = found.into_values().map(|(_, anomaly)| anomaly).collect();
        self.leave_out_steady(&mut found);
        let order = |one: &JobAnomaly| {
            (std::cmp::Reverse(one.ns - one.typical_ns), one.kind, one.label, one.step, one.timeline)
        };
        found.sort_by_key(order);
        found
    }

    /// Leaves out events that take long on one thread in many steps. The diagnosis is about these.
    fn leave_out_steady(&self, found: &mut Vec<JobAnomaly>) {
        let mut rows: HashMap<(EventKind, u32), u32> = HashMap::new();
        let key = |one: &JobAnomaly| ((one.kind, one.label), one.timeline);
        found.iter().for_each(|one| *rows.entry(key(one)).or_default() += 1);
        let steps = self.graph.job.steps;
        let is_single = |one: &JobAnomaly| {
            rows.get(&key(one))
                .is_none_or(|rows| f64::from(*rows) <= (f64::from(steps) * MAX_SHARE_OF_STEPS).max(1.0))
        };
        if steps > 0 {
            found.retain(is_single);
        }
    }

    /// Returns by how much an event in a step, and the work of a rank, must at least exceed the median, ns.
    fn min_excess_ns(&self) -> (u64, u64) {
        let job = self.graph.job;
        // A job of which only kernels are recorded has no threads.
        let has_threads = job.timelines.iter().any(|timeline| !timeline.is_stream);
        let compared: Vec<usize> = (0..job.timelines.len())
            .filter(|timeline| !has_threads || !job.timelines[*timeline].is_stream)
            .collect();
        let in_steps = compared.iter().map(|of| self.times_in_steps(*of, 0..job.steps).length_ns as f64);
        let in_steps = in_steps.sum::<f64>() / compared.len().max(1) as f64;
        let (step_ns, all_ns) = match job.steps {
            0 => (self.replayed_ns() as f64 / PARTS_OF_RUN, self.replayed_ns() as f64),
            steps => (in_steps / f64::from(steps), in_steps),
        };
        ((step_ns * MIN_SHARE_OF_STEP) as u64, (all_ns * MIN_SHARE_OF_STEP) as u64)
    }

    fn each_event(&self, take: &mut dyn FnMut(EventKind, JobEvent)) {
        let job = self.graph.job;
        for (timeline, calls) in (0u32..).zip(&job.timelines) {
            let number = timeline as usize;
            if !calls.is_stream {
                for step in 0..job.steps {
                    let times = self.times_in_steps(number, step..step + 1);
                    let (ns, own_ns) = (times.length_ns, times.work_ns);
                    let start_ns = self.step_start_ns(number, step);
                    take(
                        (AnomalyKind::Step, None),
                        JobEvent { timeline, step: Some(step), start_ns, ns, own_ns },
                    );
                }
                let ns = self.times_in_steps(number, 0..job.steps).work_ns;
                let ns = if job.steps > 0 { ns } else { calls.all_work_ns() };
                take(
                    (AnomalyKind::Rank, None),
                    JobEvent { timeline, step: None, start_ns: calls.start_ns, ns, own_ns: ns },
                );
            }
            for call in 0..=calls.calls.len() {
                let step = step_of(calls, call);
                let mut start_ns = match call.checked_sub(1) {
                    Some(before) => calls.calls[before].exit_ns(),
                    None => calls.start_ns,
                };
                for segment in calls.work_before(call) {
                    let event = JobEvent { timeline, step, start_ns, ns: segment.ns, own_ns: segment.ns };
                    take((AnomalyKind::Work, Some(segment.label)), event);
                    start_ns = start_ns.saturating_add_unsigned(segment.ns);
                }
                // A stream that waits for a launch is idle.
                let is_counted = !calls.is_stream || calls.is_collective_kernel(call);
                if let Some(found) = calls.calls.get(call).filter(|_| is_counted) {
                    let ns = self.times.transfer_ns(number, call);
                    // Before it, the call waited.
                    let start_ns = found.exit_ns().saturating_sub_unsigned(ns);
                    let event = JobEvent { timeline, step, start_ns, ns, own_ns: ns };
                    take((AnomalyKind::Call, Some(found.label)), event);
                }
            }
        }
    }
}

/// Returns the step of a call of a timeline.
fn step_of(calls: &CallTimeline, call: usize) -> Option<u32> {
    let steps = &calls.first_call_of_step;
    let after = steps.partition_point(|first| *first as usize <= call);
    (1..steps.len()).contains(&after).then(|| after as u32 - 1)
}

/// The durations of the events of a kind and label.
#[derive(Clone, Copy, Debug)]
struct EventLimit {
    median_ns: u64,
    /// Median of the distances from the median, ns.
    deviation_ns: u64,
    /// Minimum duration of an anomaly, ns.
    min_ns: u64,
}

impl EventLimit {
    /// Returns the limit of events with these durations; `None` if there are too few.
    fn of(kind: AnomalyKind, mut ns: Vec<u64>, min_excess_ns: u64) -> Option<EventLimit> {
        let min_events = if kind == AnomalyKind::Rank { MIN_RANKS } else { MIN_EVENTS };
        if ns.len() < min_events {
            return None;
        }
        let middle = (ns.len() - 1) / 2;
        let median_ns = *ns.select_nth_unstable(middle).1;
        ns.iter_mut().for_each(|ns| *ns = ns.abs_diff(median_ns));
        let deviation_ns = *ns.select_nth_unstable(middle).1;
        let by_score = (deviation_ns as f64 * MIN_SCORE / SCALE).ceil() as u64;
        let min_ns = median_ns.saturating_add(by_score.max(min_excess_ns).saturating_add(1));
        Some(EventLimit { median_ns, deviation_ns, min_ns })
    }

    fn score(self, ns: u64) -> Option<f64> {
        let excess = ns.saturating_sub(self.median_ns) as f64;
        (self.deviation_ns > 0).then(|| SCALE * excess / self.deviation_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_graph::CallGraph;
    use crate::diagnosis::JobVerdict;
    use crate::job_calls::CollectiveWaits;
    use crate::small_job::{Act, run};

    const UPDATE: u32 = 1;
    const MS: u64 = 1_000_000;

    /// Six ranks work for about 10 ms in each of 40 steps; one of them longer in one step.
    fn job(excess: u64) -> crate::JobCalls {
        let program = |rank: u64| {
            let of_step = |step: u64| {
                let noise = (rank * 7 + step * 13) % 11 * 10_000;
                let more = if (rank, step) == (4, 17) { excess } else { 0 };
                [
                    Act::Step,
                    Act::Work(UPDATE, 10 * MS + noise + more),
                    Act::Collective(CollectiveWaits::ForAll),
                ]
            };
            (0..40).flat_map(of_step).collect::<Vec<Act>>()
        };
        run(&(0..6).map(program).collect::<Vec<_>>(), 2)
    }

    #[test]
    fn a_single_long_event_is_an_anomaly_and_no_straggler() {
        let job = job(15 * MS);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        let mut found = analysis.anomalies();
        found.sort_by_key(|anomaly| anomaly.kind);
        let [step, work] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((step.kind, step.step, step.events), (AnomalyKind::Step, Some(17), 6));
        assert_eq!(step.timeline, 4, "the others waited");
        assert_eq!((work.kind, work.label, work.step), (AnomalyKind::Work, Some(UPDATE), Some(17)));
        assert_eq!((work.timeline, work.events), (4, 1));
        assert!(work.ns > 25 * MS && work.typical_ns < 11 * MS && work.score.unwrap() > 100.0, "{work:?}");
        let diagnosis = analysis.diagnose();
        assert!(diagnosis.findings.is_empty(), "{diagnosis:#?}");
        assert_ne!(diagnosis.verdict, JobVerdict::Slow);
    }

    #[test]
    fn noise_and_short_events_are_no_anomalies() {
        for excess in [0, MS / 3] {
            let job = job(excess);
            let graph = CallGraph::new(&job).unwrap();
            assert_eq!(WaitAnalysis::new(&graph).anomalies(), []);
        }
    }
}
