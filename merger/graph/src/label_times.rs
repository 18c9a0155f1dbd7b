//! Time without waiting by label, between any two calls of a thread.

use crate::call_durations::CallDurations;
use crate::job_calls::{CallTimeline, JobCalls};
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
    /// Durations of the calls without waiting, by timeline.
    transfers: &'a [CallDurations],
    slot_of_label: Vec<u8>,
    /// Labels of the slots, the one with the most time first. The slot after the last is that of all others; those
    /// after it are not in use.
    labels: Vec<u32>,
    /// Sums up to every [`STRIDE`]th call, by timeline: those of each of the labels, and of all others.
    sums: Vec<Vec<u64>>,
}

impl<'a> LabelTimes<'a> {
    pub(crate) fn new(job: &'a JobCalls, transfers: &'a [CallDurations]) -> LabelTimes<'a> {
        let mut totals = vec![0u64; job.labels as usize];
        for (timeline, transfers) in job.timelines.iter().zip(transfers) {
            for segment in &timeline.work {
                totals[segment.label as usize] = totals[segment.label as usize].saturating_add(segment.ns);
            }
            for (call, ns) in timeline.calls.iter().zip(transfers.iter()) {
                totals[call.label as usize] = totals[call.label as usize].saturating_add(ns);
            }
        }
        let mut labels: Vec<u32> = (0..job.labels).filter(|label| totals[*label as usize] > 0).collect();
        labels.sort_by_key(|label| (std::cmp::Reverse(totals[*label as usize]), *label));
        labels.truncate(SLOTS - 1);
        let mut slot_of_label = vec![labels.len() as u8; job.labels as usize];
        for (slot, label) in (0u8..).zip(&labels) {
            slot_of_label[*label as usize] = slot;
        }
        let mut times = LabelTimes { job, transfers, slot_of_label, labels, sums: Vec::new() };
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
        self.transfers[timeline].ns(call)
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
        *slot = slot.saturating_add(self.transfers[timeline].ns(call));
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
            let (calls, transfers) = (self.timeline(timeline), &self.transfers[timeline]);
            for call in first..to {
                let slot = &mut sum[self.slot(calls.calls[call].label)];
                *slot = slot.saturating_add(transfers.ns(call));
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
    use super::*;
    use crate::small_job::{Act, CALL_NS, IN_CALL, run};

    #[test]
    fn sums_between_calls_are_those_of_a_walk() {
        let calls = 300u64;
        let program: Vec<Act> = (0..calls)
            .flat_map(|call| [Act::Work(1 + (call % 50) as u32, call + 1), Act::Send(1, 0)])
            .collect();
        let job = run(&[program, Vec::new()], 60);
        let transfers: Vec<CallDurations> = job
            .timelines
            .iter()
            .map(|timeline| timeline.calls.iter().map(|_| CALL_NS as u64).collect())
            .collect();
        let times = LabelTimes::new(&job, &transfers);
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
