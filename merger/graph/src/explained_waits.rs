//! Single waits with what the thread that was waited for did meanwhile: the evidence of a finding.

use crate::analysis::WaitAnalysis;
use crate::job_calls::CallTimeline;
use crate::label_times::{SLOTS, SlotTimes};
use crate::wait_causes::waited_before;
use crate::waits::{CallWait, NO_CALL};
use std::cmp::Reverse;

/// A wait of a thread for another one. "Meanwhile" is the time since the two last synchronised, until the other
/// entered the call for which the thread waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExplainedWait {
    /// The thread that waited.
    pub timeline: u32,
    /// Index of the call in which it waited.
    pub call: u32,
    /// Time that it waited, ns. Members of a collective that came last together have a part each.
    pub waited_ns: u64,
    /// The thread for which it waited.
    pub cause: u32,
    /// Index of the call that the other thread had to enter.
    pub cause_call: u32,
    /// Error bound of the times of one thread against those of the other, ns; `None` if it is not known.
    pub error_bound_ns: Option<u64>,
    /// Label of what the other did meanwhile that exceeds most what this thread did; `None` for all labels without
    /// a slot.
    pub label: Option<u32>,
    /// Time of the other under this label, ns; 0 if it did nothing longer than this thread.
    pub label_ns: u64,
    /// Time of this thread under the label, ns.
    pub own_label_ns: u64,
    /// Time that the work under this label would have taken if it were typical, ns. `None` for calls, and for work
    /// that only one or two threads do.
    pub typical_ns: Option<u64>,
    /// Time that the other waited itself meanwhile, ns.
    pub cause_waited_ns: u64,
}

/// The waits for some threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExplainedWaits {
    /// The longest of them, the longest first.
    pub listed: Vec<ExplainedWait>,
    /// Number of all.
    pub count: u64,
    /// Time of all, ns.
    pub waited_ns: u64,
}

impl WaitAnalysis<'_> {
    /// Returns the waits of other processes in the steps for some threads, at most `max_listed` of them with what explains
    /// them. If there are no steps, all waits count.
    pub fn waits_for(&self, causes: &[u32], max_listed: usize) -> ExplainedWaits {
        let mut is_cause = vec![false; self.graph.job.timelines.len()];
        causes.iter().for_each(|cause| is_cause[*cause as usize] = true);
        let process = |timeline: u32| self.graph.job.timelines[timeline as usize].process;
        let is_selected = |wait: &&CallWait| {
            is_cause[wait.cause as usize]
                && process(wait.timeline) != process(wait.cause)
                && wait.is_in_steps(self.graph.job)
        };
        let mut found: Vec<&CallWait> = self.waits.iter().filter(is_selected).collect();
        let (count, waited_ns) =
            (found.len() as u64, found.iter().fold(0u64, |sum, wait| sum.saturating_add(wait.ns)));
        let order =
            |wait: &&CallWait| (Reverse(wait.ns), wait.timeline, wait.call, wait.cause, wait.cause_call);
        if max_listed < found.len() {
            found.select_nth_unstable_by_key(max_listed, order);
            found.truncate(max_listed);
        }
        found.sort_unstable_by_key(order);
        ExplainedWaits {
            listed: found.into_iter().map(|wait| self.explain(wait)).collect(),
            count,
            waited_ns,
        }
    }

    fn explain(&self, wait: &CallWait) -> ExplainedWait {
        let CallWait { timeline, call, cause, cause_call, synchronised, cause_synchronised, ns, .. } = *wait;
        let after = |call: u32| (call != NO_CALL).then_some(call as usize);
        let of_cause: SlotTimes =
            self.times.between(cause as usize, after(cause_synchronised), cause_call as usize);
        let of_own = self.times.between(timeline as usize, after(synchronised), call as usize);
        let longer = |slot: &usize| of_cause[*slot].saturating_sub(of_own[*slot]);
        let slot = (0..SLOTS).max_by_key(|slot| (longer(slot), Reverse(*slot))).unwrap_or(0);
        let is_longer = longer(&slot) > 0;
        let if_longer = |ns: u64| if is_longer { ns } else { 0 };
        let (one, other) =
            (&self.graph.job.timelines[timeline as usize], &self.graph.job.timelines[cause as usize]);
        let error_bound_ns = match one.node == other.node {
            true => Some(0),
            false => {
                let entered = |thread: &CallTimeline, call: u32| thread.calls[call as usize].enter_ns;
                let bound = |thread: &CallTimeline, call| thread.error_bound_at(entered(thread, call));
                bound(one, call).zip(bound(other, cause_call)).map(|(own, other)| own.saturating_add(other))
            }
        };
        ExplainedWait {
            timeline,
            call,
            waited_ns: ns,
            cause,
            cause_call,
            error_bound_ns,
            label: self.times.label(slot).filter(|_| is_longer),
            label_ns: if_longer(of_cause[slot]),
            own_label_ns: if_longer(of_own[slot]),
            typical_ns: self.typical_meanwhile(wait, slot).filter(|_| is_longer),
            cause_waited_ns: waited_before(&self.times, &self.replayed, wait, &of_cause),
        }
    }

    /// Returns how long the work of the cause under the label of a slot would have taken since the two last
    /// synchronised, if it had taken in each step as long as is typical.
    fn typical_meanwhile(&self, wait: &CallWait, slot: usize) -> Option<u64> {
        let table = &self.table;
        if !table.is_compared(slot) {
            return None;
        }
        let cause = wait.cause as usize;
        let calls = &self.graph.job.timelines[cause];
        let first = wait.cause_synchronised.wrapping_add(1) as usize;
        let mut typical_ns = 0u64;
        for call in first..=wait.cause_call as usize {
            let of_slot = calls.work_before(call).iter().filter(|work| self.times.slot(work.label) == slot);
            let ns = of_slot.fold(0u64, |sum, work| sum.saturating_add(work.ns));
            if ns > 0 {
                let block = table.block_of(calls, call);
                let all = u128::from(table.ns(cause, block, slot).max(1));
                let typical = u128::from(ns) * u128::from(table.typical_ns(cause, block, slot)) / all;
                typical_ns = typical_ns.saturating_add(u64::try_from(typical).unwrap_or(u64::MAX));
            }
        }
        Some(typical_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::ExplainedWait;
    use crate::WaitAnalysis;
    use crate::call_graph::CallGraph;
    use crate::job_calls::CollectiveWaits;
    use crate::small_job::{Act, run};

    const UPDATE: u32 = 1;

    #[test]
    fn each_wait_has_what_the_other_did_meanwhile() {
        let program = |rank: u64| {
            let step = |step: u64| {
                let excess = if rank == 2 { 1_000 * (step + 1) } else { 0 };
                [Act::Step, Act::Work(UPDATE, 10_000 + excess), Act::Collective(CollectiveWaits::ForAll)]
            };
            (0..12).flat_map(step).collect::<Vec<Act>>()
        };
        let job = run(&(0..4).map(program).collect::<Vec<_>>(), 2);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        let all = analysis.waits_for(&[2], usize::MAX);
        let excess: u64 = (1..=12).map(|step| step * 1_000).sum();
        assert_eq!((all.count, all.waited_ns, all.listed.len()), (36, 3 * excess, 36));
        let first = all.listed[0];
        let expected = ExplainedWait {
            timeline: 0,
            call: 11,
            waited_ns: 12_000,
            cause: 2,
            cause_call: 11,
            error_bound_ns: Some(0),
            label: Some(UPDATE),
            label_ns: 22_000,
            own_label_ns: 10_000,
            typical_ns: Some(10_000),
            cause_waited_ns: 0,
        };
        assert_eq!(first, expected);
        assert!(all.listed.is_sorted_by_key(|wait| std::cmp::Reverse(wait.waited_ns)));
        let few = analysis.waits_for(&[2], 5);
        assert_eq!((few.count, few.waited_ns), (all.count, all.waited_ns));
        assert_eq!(few.listed, all.listed[..5]);
        assert_eq!(analysis.waits_for(&[1], 5).count, 0);
    }
}
