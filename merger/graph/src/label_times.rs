//! Time without waiting by label, between any two calls of a thread.

use crate::job_calls::{CallTimeline, JobCalls};
use crate::replay_plan::{PlannedPlace, ReplayPlan};
use rayon::prelude::*;

/// Number of slots: one for each of the labels with the most time, and one for all others.
pub(crate) const SLOTS: usize = 32;
/// Sums are stored for every so many calls.
const STRIDE: usize = 64;
/// Up to this many calls are added up one by one.
const MAX_WALK: usize = 2 * STRIDE;

/// Time of each slot, ns.
pub(crate) type SlotTimes = [u64; SLOTS];

/// The labels with the most time in the job, each with a slot, and the times of the threads by slot.
#[derive(Clone, Debug)]
pub(crate) struct LabelTimes<'a> {
    job: &'a JobCalls,
    plan: &'a ReplayPlan,
    slot_of_label: Vec<u8>,
    /// Labels of the slots, the one with the most time first. The slot after the last is that of all others; those
    /// after it are not in use.
    labels: Vec<u32>,
    /// Sums up to every [`STRIDE`]th call, by timeline: those of each of the labels, and of all others.
    sums: Vec<Vec<u64>>,
}

impl<'a> LabelTimes<'a> {
    pub(crate) fn new(job: &'a JobCalls, plan: &'a ReplayPlan) -> LabelTimes<'a> {
        let none = || vec![0u64; job.labels as usize];
        let add_timeline = |mut totals: Vec<u64>, (number, timeline): (usize, &CallTimeline)| {
            let mut add = |label: u32, ns: u64| {
                totals[label as usize] = totals[label as usize].saturating_add(ns);
            };
            timeline.work.iter().for_each(|segment| add(segment.label, segment.ns));
            for (call, of_call) in timeline.calls.iter().enumerate() {
                add(of_call.label, plan.transfer_ns(PlannedPlace { timeline: number, call }));
            }
            totals
        };
        let sum = |mut one: Vec<u64>, other: Vec<u64>| {
            one.iter_mut().zip(other).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
            one
        };
        // One list of totals for each thread, as there may be many labels.
        let of_thread = job.timelines.len().div_ceil(rayon::current_num_threads()).max(1);
        let timelines = job.timelines.par_iter().enumerate().with_min_len(of_thread);
        let totals = timelines.fold(none, add_timeline).reduce(none, sum);
        let mut labels: Vec<u32> = (0..job.labels).filter(|label| totals[*label as usize] > 0).collect();
        labels.sort_by_key(|label| (std::cmp::Reverse(totals[*label as usize]), *label));
        labels.truncate(SLOTS - 1);
        let mut slot_of_label = vec![labels.len() as u8; job.labels as usize];
        for (slot, label) in (0u8..).zip(&labels) {
            slot_of_label[*label as usize] = slot;
        }
        let mut times = LabelTimes { job, plan, slot_of_label, labels, sums: Vec::new() };
        times.sums =
            (0..job.timelines.len()).into_par_iter().map(|timeline| times.sums_of(timeline)).collect();
        times
    }

    /// Returns the label of a slot; `None` for that of all other labels.
    pub(crate) fn label(&self, slot: usize) -> Option<u32> {
        self.labels.get(slot).copied()
    }

    /// Returns the number of slots in use; the last of them is that of all labels without a slot of their own.
    pub(crate) fn used_slots(&self) -> usize {
        self.labels.len() + 1
    }

    /// Returns the slot of a label.
    pub(crate) fn slot(&self, label: u32) -> usize {
        usize::from(self.slot_of_label[label as usize])
    }

    /// Returns the calls whose times these are.
    pub(crate) fn job(&self) -> &'a JobCalls {
        self.job
    }

    /// Returns the duration of a call without waiting, ns.
    pub(crate) fn transfer_ns(&self, timeline: usize, call: usize) -> u64 {
        self.plan.transfer_ns(PlannedPlace { timeline, call })
    }

    fn sums_of(&self, timeline: usize) -> Vec<u64> {
        let calls = self.job.timelines[timeline].calls.len();
        let mut sums = Vec::with_capacity((calls / STRIDE + 1) * self.used_slots());
        let mut sum = [0; SLOTS];
        for call in 0..=calls {
            if call % STRIDE == 0 {
                sums.extend(&sum[..self.used_slots()]);
            }
            if call < calls {
                self.add_work(timeline, call, &mut sum);
                self.add_transfer(timeline, call, &mut sum);
            }
        }
        sums
    }

    fn timeline(&self, timeline: usize) -> &CallTimeline {
        &self.job.timelines[timeline]
    }

    fn add_work(&self, timeline: usize, call: usize, sum: &mut SlotTimes) {
        for segment in self.timeline(timeline).work_before(call) {
            let slot = &mut sum[self.slot(segment.label)];
            *slot = slot.saturating_add(segment.ns);
        }
    }

    fn add_transfer(&self, timeline: usize, call: usize, sum: &mut SlotTimes) {
        let slot = &mut sum[self.slot(self.timeline(timeline).calls[call].label)];
        *slot = slot.saturating_add(self.transfer_ns(timeline, call));
    }

    /// Returns the times from the moment at which a thread entered the call `from` (`None` is the start of the
    /// thread) to that at which it entered the call `to`.
    pub(crate) fn between(&self, timeline: usize, from: Option<usize>, to: usize) -> SlotTimes {
        let first = from.unwrap_or(0);
        let mut sum = [0; SLOTS];
        if to.saturating_sub(first) <= MAX_WALK {
            if from.is_none() {
                self.add_work(timeline, first, &mut sum);
            }
            let calls = self.timeline(timeline);
            for call in first..to {
                let slot = &mut sum[self.slot(calls.calls[call].label)];
                *slot = slot.saturating_add(self.transfer_ns(timeline, call));
                for segment in calls.work_before(call + 1) {
                    let slot = &mut sum[self.slot(segment.label)];
                    *slot = slot.saturating_add(segment.ns);
                }
            }
            return sum;
        }
        let end = self.up_to(timeline, to);
        let start = from.map_or([0; SLOTS], |from| self.up_to(timeline, from));
        for (slot, (end, start)) in sum.iter_mut().zip(end.iter().zip(start)).take(self.used_slots()) {
            *slot = end.saturating_sub(start);
        }
        sum
    }

    /// Returns the times from the start of a thread to the moment at which it entered a call.
    fn up_to(&self, timeline: usize, call: usize) -> SlotTimes {
        let place = call / STRIDE;
        let used = self.used_slots();
        let mut sum = [0; SLOTS];
        sum[..used].copy_from_slice(&self.sums[timeline][place * used..][..used]);
        for before in place * STRIDE..call {
            self.add_work(timeline, before, &mut sum);
            self.add_transfer(timeline, before, &mut sum);
        }
        self.add_work(timeline, call, &mut sum);
        sum
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::call_graph::CallGraph;
    use crate::small_job::{Act, CALL_NS, IN_CALL, run};

    #[test]
    fn sums_between_calls_are_those_of_a_walk() {
        let calls = 300u64;
        let program: Vec<Act> = (0..calls)
            .flat_map(|call| [Act::Work(1 + (call % 50) as u32, call + 1), Act::Send(1, 0)])
            .collect();
        let mut job = run(&[program, Vec::new()], 60);
        job.timelines.iter_mut().for_each(|timeline| timeline.first_call_of_step.clear());
        let graph = CallGraph::new(&job).unwrap();
        let times = LabelTimes::new(&job, graph.plan());
        for (from, to) in [(0, 0), (3, 3), (0, 300), (5, 140), (5, 133), (64, 128), (63, 299), (128, 300)] {
            let mut expected = [0; SLOTS];
            for call in from..to {
                expected[times.slot(IN_CALL)] += CALL_NS as u64;
                let next = call as u64 + 1;
                if next < calls {
                    expected[times.slot(1 + (next % 50) as u32)] += next + 1;
                }
            }
            assert_eq!(times.between(0, Some(from), to), expected, "{from} {to}");
            expected[times.slot(1)] += 1;
            if from == 0 {
                assert_eq!(times.between(0, None, to), expected);
            }
        }
        assert_eq!(times.label(SLOTS - 1), None);
        assert_eq!(
            (times.slot(1), times.used_slots()),
            (SLOTS - 1, SLOTS),
            "a label with little time is one of the others"
        );
    }
}
