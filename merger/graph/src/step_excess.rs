//! The times of threads step by step, and which of them works longest beyond what is typical.

use crate::analysis::{TimelineTimes, WaitAnalysis};
use crate::label_times::{SLOTS, SlotTimes};
use std::cmp::Reverse;
use std::ops::Range;

/// Work of a thread in some steps that takes longer than is typical.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExcessWork {
    /// The thread.
    pub timeline: u32,
    /// Time by which all of its work in these steps is longer, ns; positive.
    pub excess_ns: i64,
    /// Label of the work that exceeds what is typical most; `None` for all labels without a slot.
    pub label: Option<u32>,
    /// Time of the thread under this label, ns.
    pub label_ns: u64,
    /// Typical time under this label, ns; 0 if only one or two threads do such work.
    pub typical_ns: u64,
}

impl WaitAnalysis<'_> {
    /// Returns the times of a thread in some steps: from the end of the last call before them to the end of their
    /// last call.
    pub fn times_in_steps(&self, timeline: usize, steps: Range<u32>) -> TimelineTimes {
        let calls = &self.graph.job.timelines[timeline];
        let mut times = TimelineTimes::default();
        for call in self.calls_in_steps(timeline, steps) {
            let work_ns = calls.work_ns_before(call);
            let length_ns = work_ns.saturating_add(calls.calls[call].duration_ns);
            times.length_ns = times.length_ns.saturating_add(length_ns);
            times.work_ns = times.work_ns.saturating_add(work_ns);
            times.waited_ns = times.waited_ns.saturating_add(self.waited_in_call(timeline, call));
            times.transfer_ns = times.transfer_ns.saturating_add(self.times.transfer_ns(timeline, call));
        }
        times
    }

    /// Returns when a thread began a step, ns in job time: at the end of its last call before it.
    pub fn step_start_ns(&self, timeline: usize, step: u32) -> i64 {
        let calls = &self.graph.job.timelines[timeline];
        let before = self.calls_in_steps(timeline, step..step + 1).start.checked_sub(1);
        before.and_then(|call| calls.calls.get(call)).map_or(calls.start_ns, |call| call.exit_ns())
    }

    /// Returns the thread or stream among `candidates` that works longest beyond what is typical of all threads, or of all
    /// streams: in each `steps_in_row` steps from the first on. `None` where none works longer.
    pub fn longest_work(&self, candidates: &[u32], steps_in_row: u32) -> Vec<Option<ExcessWork>> {
        let job = self.graph.job;
        let holders = [false, true].map(|is_stream| self.label_holders(is_stream));
        let mut work: Vec<SlotTimes> = vec![[0; SLOTS]; job.timelines.len()];
        let mut of_row = |first: u32| {
            let steps = first..first.saturating_add(steps_in_row).min(job.steps);
            for (timeline, of_slots) in work.iter_mut().enumerate() {
                *of_slots = self.work_in_steps(timeline, steps.clone());
            }
            let typical = holders.each_ref().map(|holders| typical_times(&work, holders));
            let excess = |timeline: &u32| {
                let is_stream = job.timelines[*timeline as usize].is_stream;
                self.excess_work(*timeline, &work[*timeline as usize], &typical[usize::from(is_stream)])
            };
            let longest = candidates.iter().map(excess);
            let longest = longest.max_by_key(|excess| (excess.excess_ns, Reverse(excess.timeline)));
            longest.filter(|excess| excess.excess_ns > 0)
        };
        (0..job.steps).step_by(steps_in_row.max(1) as usize).map(&mut of_row).collect()
    }

    fn excess_work(&self, timeline: u32, work: &SlotTimes, typical: &SlotTimes) -> ExcessWork {
        let excess = |slot: &usize| {
            // A thread without the label is not ahead by it.
            if work[*slot] == 0 { 0 } else { work[*slot] as i64 - typical[*slot] as i64 }
        };
        let slot = (0..SLOTS).max_by_key(|slot| (excess(slot), Reverse(*slot))).unwrap_or(0);
        ExcessWork {
            timeline,
            excess_ns: (0..SLOTS).map(|slot| excess(&slot)).fold(0, i64::saturating_add),
            label: self.times.label(slot),
            label_ns: work[slot],
            typical_ns: typical[slot],
        }
    }

    /// Returns the calls of a thread or stream in some steps.
    pub fn calls_in_steps(&self, timeline: usize, steps: Range<u32>) -> Range<usize> {
        let first = &self.graph.job.timelines[timeline].first_call_of_step;
        let at = |step: u32| first.get(step as usize).map_or(0, |call| *call as usize);
        at(steps.start)..at(steps.end)
    }

    fn work_in_steps(&self, timeline: usize, steps: Range<u32>) -> SlotTimes {
        let calls = &self.graph.job.timelines[timeline];
        let mut sum = [0u64; SLOTS];
        for segment in self.calls_in_steps(timeline, steps).flat_map(|call| calls.work_before(call)) {
            let of_slot = &mut sum[self.times.slot(segment.label)];
            *of_slot = of_slot.saturating_add(segment.ns);
        }
        sum
    }

    /// Returns the threads or the streams that have the label of each slot; none for a label that has no typical time.
    fn label_holders(&self, is_stream: bool) -> Vec<Vec<usize>> {
        let table = &self.table;
        let has =
            |timeline: usize, slot: usize| (0..table.blocks).any(|block| table.ns(timeline, block, slot) > 0);
        let jobs = &self.graph.job.timelines;
        let timelines = || (0..jobs.len()).filter(|timeline| jobs[*timeline].is_stream == is_stream);
        let of_slot = |slot: usize| timelines().filter(|timeline| has(*timeline, slot)).collect();
        (0..SLOTS).map(|slot| if table.is_common[slot] { of_slot(slot) } else { Vec::new() }).collect()
    }
}

/// Returns the lower median of the threads that have each label.
fn typical_times(work: &[SlotTimes], holders: &[Vec<usize>]) -> SlotTimes {
    let mut typical = [0; SLOTS];
    for (slot, holders) in holders.iter().enumerate().filter(|(_, holders)| !holders.is_empty()) {
        let mut ns: Vec<u64> = holders.iter().map(|timeline| work[*timeline][slot]).collect();
        let middle = (ns.len() - 1) / 2;
        typical[slot] = *ns.select_nth_unstable(middle).1;
    }
    typical
}

#[cfg(test)]
mod tests {
    use crate::call_graph::CallGraph;
    use crate::job_calls::{CollectiveWaits, JobCalls};
    use crate::small_job::{Act, CALL_NS, run};
    use crate::{TimelineTimes, WaitAnalysis};

    const UPDATE: u32 = 1;
    const EXTRA: u32 = 2;

    /// Work of a rank in a step, ns.
    fn work_ns(rank: u64, step: u64) -> u64 {
        10_000 + rank * 7 + step * 11 + u64::from(step % 4 == rank) * 5_000
    }

    fn job(ranks: u64, steps: u64) -> JobCalls {
        let program = |rank: u64| {
            let step = |step: u64| {
                let extra = if rank == 1 && step == 2 { 30_000 } else { 0 };
                let work = [Act::Work(UPDATE, work_ns(rank, step)), Act::Work(EXTRA, extra)];
                [Act::Step].into_iter().chain(work).chain([Act::Collective(CollectiveWaits::ForAll)])
            };
            (0..steps).flat_map(step).collect()
        };
        run(&(0..ranks).map(program).collect::<Vec<Vec<Act>>>(), 3)
    }

    #[test]
    fn the_times_of_steps_are_those_of_the_program() {
        let (ranks, steps) = (4u64, 9u64);
        let job = job(ranks, steps);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        for step in 0..steps {
            let work = |rank: u64| work_ns(rank, step) + if (rank, step) == (1, 2) { 30_000 } else { 0 };
            let longest = (0..ranks).map(work).max().unwrap();
            for rank in 0..ranks {
                let found = analysis.times_in_steps(rank as usize, step as u32..step as u32 + 1);
                let expected = TimelineTimes {
                    length_ns: longest + CALL_NS as u64,
                    work_ns: work(rank),
                    waited_ns: longest - work(rank),
                    transfer_ns: CALL_NS as u64,
                    idle_ns: 0,
                };
                assert_eq!(found, expected, "{rank} {step}");
                let start = (0..step).map(|before| {
                    let extra = if before == 2 { 30_000 } else { 0 };
                    let others = (0..ranks).map(|rank| work_ns(rank, before)).max().unwrap();
                    others.max(work_ns(1, before) + extra) as i64 + CALL_NS
                });
                assert_eq!(analysis.step_start_ns(rank as usize, step as u32), start.sum::<i64>());
            }
        }
    }

    #[test]
    fn the_longest_work_is_the_one_that_a_naive_search_finds() {
        let (ranks, steps) = (4u64, 9u64);
        let job = job(ranks, steps);
        let graph = CallGraph::new(&job).unwrap();
        let analysis = WaitAnalysis::new(&graph);
        let candidates: Vec<u32> = (0..ranks as u32).collect();
        for steps_in_row in [1, 2, 9, 100] {
            let found = analysis.longest_work(&candidates, steps_in_row);
            assert_eq!(found.len(), (steps as usize).div_ceil(steps_in_row as usize));
            for (row, found) in (0u64..).zip(found) {
                let steps = row * u64::from(steps_in_row)..((row + 1) * u64::from(steps_in_row)).min(steps);
                let of = |rank: u64| steps.clone().map(|step| work_ns(rank, step)).sum::<u64>();
                let mut sorted: Vec<u64> = (0..ranks).map(of).collect();
                sorted.sort_unstable();
                let typical = sorted[(ranks as usize - 1) / 2];
                let extra = |rank: u64| if rank == 1 && steps.contains(&2) { 30_000 } else { 0 };
                let excess = |rank: u64| (of(rank) + extra(rank)) as i64 - typical as i64;
                let slowest =
                    (0..ranks).max_by_key(|rank| (excess(*rank), std::cmp::Reverse(*rank))).unwrap();
                let found = found.unwrap();
                assert_eq!((found.timeline, found.excess_ns), (slowest as u32, excess(slowest)), "{steps:?}");
                let by_extra = extra(slowest) as i64 > of(slowest) as i64 - typical as i64;
                let label = if by_extra { (EXTRA, 30_000, 0) } else { (UPDATE, of(slowest), typical) };
                assert_eq!((found.label.unwrap(), found.label_ns, found.typical_ns), label);
            }
        }
        let of_one = analysis.longest_work(&[0], 1);
        assert_eq!(of_one[0].unwrap().timeline, 0);
        assert_eq!(of_one[1], None, "rank 0 is the fastest in this step");
    }
}
