//! Work by thread, step and label, and the typical work of all threads.

use crate::job_calls::CallTimeline;
use crate::label_times::{LabelTimes, SLOTS};

/// Maximum number of cells. Longer runs are divided into blocks of several steps.
const MAX_CELLS: usize = 1 << 24;
/// A label has a typical time if at least this many threads have it, or all threads of a smaller job.
const MIN_HOLDERS: usize = 3;

/// Work of all threads without waits and transfers, ns.
///
/// The columns are blocks of steps: first the time before the first step, last that after the last step.
#[derive(Clone, Debug)]
pub(crate) struct WorkTable {
    pub(crate) blocks: usize,
    pub(crate) steps_in_block: usize,
    /// By timeline, block and slot.
    cells: Vec<u64>,
    /// Typical time by block and slot.
    typical: Vec<u64>,
    /// Whether enough threads have the label of a slot.
    pub(crate) is_common: [bool; SLOTS],
    /// Number of threads that have the label of a slot.
    pub(crate) holders: [usize; SLOTS],
}

impl WorkTable {
    pub(crate) fn new(times: &LabelTimes<'_>) -> WorkTable {
        let job = times.job();
        let timelines = job.timelines.len().max(1);
        let steps = job.steps as usize;
        let max_blocks = (MAX_CELLS / (timelines * SLOTS)).saturating_sub(2).max(1);
        let steps_in_block = steps.div_ceil(max_blocks).max(1);
        let blocks = steps.div_ceil(steps_in_block) + 2;
        let mut table = WorkTable {
            blocks,
            steps_in_block,
            cells: vec![0; timelines * blocks * SLOTS],
            typical: vec![0; blocks * SLOTS],
            is_common: [false; SLOTS],
            holders: [0; SLOTS],
        };
        for (number, timeline) in job.timelines.iter().enumerate() {
            for call in 0..=timeline.calls.len() {
                let block = table.block_of(timeline, call);
                for segment in timeline.work_before(call) {
                    let place = table.place(number, block, times.slot(segment.label));
                    table.cells[place] = table.cells[place].saturating_add(segment.ns);
                }
            }
        }
        table.find_typical(job.timelines.len());
        table
    }

    fn find_typical(&mut self, timelines: usize) {
        for slot in 0..SLOTS {
            let has_slot =
                |timeline: &usize| (0..self.blocks).any(|block| self.ns(*timeline, block, slot) > 0);
            let holders: Vec<usize> = (0..timelines).filter(has_slot).collect();
            self.holders[slot] = holders.len();
            self.is_common[slot] = !holders.is_empty() && holders.len() >= MIN_HOLDERS.min(timelines);
            if !self.is_common[slot] {
                continue;
            }
            for block in 0..self.blocks {
                let mut ns: Vec<u64> =
                    holders.iter().map(|timeline| self.ns(*timeline, block, slot)).collect();
                let middle = (ns.len() - 1) / 2;
                self.typical[block * SLOTS + slot] = *ns.select_nth_unstable(middle).1;
            }
        }
    }

    /// Returns the block of the work before a call.
    pub(crate) fn block_of(&self, timeline: &CallTimeline, call: usize) -> usize {
        let steps = &timeline.first_call_of_step;
        match steps.partition_point(|first| *first as usize <= call) {
            0 => 0,
            after if after == steps.len() => self.blocks - 1,
            step => (step - 1) / self.steps_in_block + 1,
        }
    }

    /// Returns the blocks of steps, without the times before and after them.
    pub(crate) fn step_blocks(&self) -> std::ops::Range<usize> {
        1..self.blocks - 1
    }

    fn place(&self, timeline: usize, block: usize, slot: usize) -> usize {
        (timeline * self.blocks + block) * SLOTS + slot
    }

    /// Returns the work of a thread in a block under the label of a slot, ns.
    pub(crate) fn ns(&self, timeline: usize, block: usize, slot: usize) -> u64 {
        self.cells[self.place(timeline, block, slot)]
    }

    /// Returns the typical work of a thread in a block under the label of a slot, ns: the lower median of the
    /// threads that have the label. It is 0 for a label that only one or two threads have.
    pub(crate) fn typical_ns(&self, block: usize, slot: usize) -> u64 {
        self.typical[block * SLOTS + slot]
    }

    /// Returns by how much a thread works longer in a block than is typical, ns.
    pub(crate) fn excess_ns(&self, timeline: usize, block: usize) -> i64 {
        let of_slot = |slot| {
            let ns = self.ns(timeline, block, slot);
            // A thread without the label is not ahead by it.
            if ns == 0 { 0 } else { ns as i64 - self.typical_ns(block, slot) as i64 }
        };
        (0..SLOTS).map(of_slot).fold(0, i64::saturating_add)
    }
}
