//! Work by thread, step and label, and the typical work of all threads.

use crate::job_calls::{CallTimeline, CollectiveEntry, UNKNOWN};
use crate::label_times::{LabelTimes, SLOTS};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

/// Maximum number of cells. Longer runs are divided into blocks of several steps.
const MAX_CELLS: usize = 1 << 23;
/// A label has a typical time if at least this many threads have it, or as many as a smaller job has processes.
const MIN_HOLDERS: usize = 3;
/// Threads with a smaller share of the longest work of a thread do hardly any such work.
const MIN_SHARE_OF_MOST: f64 = 0.1;

/// Work of all threads without waits and transfers, ns.
///
/// The columns are blocks of steps: first the time before the first step, last that after the last step.
#[derive(Clone, Debug)]
pub(crate) struct WorkTable {
    pub(crate) blocks: usize,
    pub(crate) steps_in_block: usize,
    /// Column of each slot that has work: mostly calls have slots of their own.
    column_of: [Option<u8>; SLOTS],
    columns: usize,
    /// By timeline, block and column.
    cells: Vec<u64>,
    /// Typical time by block and column.
    typical: Vec<u64>,
    /// Medians of the threads that have the label without one of them, by block and column.
    of_others: Vec<OtherMedians>,
    /// Whether enough threads have the label of a slot.
    pub(crate) is_common: [bool; SLOTS],
    /// Work under labels that too few threads have, if enough threads do such work.
    pool: Option<RareWork>,
    /// Number of threads that have the label of a slot.
    pub(crate) holders: [usize; SLOTS],
    /// Blocks of each thread in which calls are known to be missing, so that waiting looks like work: first and last,
    /// ascending.
    lacking: Vec<Vec<(u32, u32)>>,
}

impl WorkTable {
    pub(crate) fn new(times: &LabelTimes<'_>) -> WorkTable {
        let job = times.job();
        let timelines = job.timelines.len().max(1);
        let steps = job.steps as usize;
        let mut column_of = [None; SLOTS];
        let mut columns = 0;
        let of_work = job.timelines.iter().flat_map(|timeline| &timeline.work).map(|segment| segment.label);
        let of_kernels = job.timelines.iter().flat_map(|timeline| {
            timeline.collective_kernels().map(|call| timeline.calls[call as usize].label)
        });
        for label in of_work.chain(of_kernels) {
            column_of[times.slot(label)].get_or_insert_with(|| {
                columns += 1;
                columns as u8 - 1
            });
        }
        let max_blocks = (MAX_CELLS / (timelines * columns.max(1))).saturating_sub(2).max(1);
        let steps_in_block = steps.div_ceil(max_blocks).max(1);
        let blocks = steps.div_ceil(steps_in_block) + 2;
        let mut table = WorkTable {
            blocks,
            steps_in_block,
            column_of,
            columns,
            cells: vec![0; timelines * blocks * columns],
            typical: vec![0; blocks * columns],
            of_others: vec![OtherMedians::default(); blocks * columns],
            is_common: [false; SLOTS],
            pool: None,
            holders: [0; SLOTS],
            lacking: Vec::new(),
        };
        table.lacking = job.timelines.iter().map(|timeline| table.blocks_with_gaps(timeline)).collect();
        for (number, timeline) in job.timelines.iter().enumerate() {
            for call in 0..=timeline.calls.len() {
                let block = table.block_of(timeline, call);
                for segment in timeline.work_before(call) {
                    table.add(number, block, times.slot(segment.label), segment.ns);
                }
            }
            for call in timeline.collective_kernels().map(|call| call as usize) {
                let (block, slot) = (table.block_of(timeline, call), times.slot(timeline.calls[call].label));
                table.add(number, block, slot, times.transfer_ns(number, call));
            }
        }
        table.find_typical(job.timelines.len(), job.processes as usize);
        table
    }

    /// Returns the first and last block of each gap in the calls of a thread.
    fn blocks_with_gaps(&self, timeline: &CallTimeline) -> Vec<(u32, u32)> {
        let known = timeline.gaps.iter().flatten().filter(|gap| gap.missing != UNKNOWN);
        let mut gaps: Vec<(u32, u32)> = known.map(|gap| (gap.from, gap.to)).collect();
        let mut last: HashMap<u32, CollectiveEntry> = HashMap::new();
        for entry in timeline
            .entries
            .iter()
            .filter(|entry| timeline.lacks_calls && entry.number < CollectiveEntry::INIT_NUMBER)
        {
            let before = last.insert(entry.communicator, *entry);
            let (next, from) =
                before.map_or((0, 0), |before| (before.number.saturating_add(1), before.call + 1));
            if entry.number > next {
                gaps.push((from, entry.call));
            }
        }
        // The step before a gap ends in it.
        let block = |call: u32| self.block_of(timeline, call as usize) as u32;
        let mut blocks: Vec<(u32, u32)> =
            gaps.iter().map(|(from, to)| (block(from.saturating_sub(1)), block(*to))).collect();
        blocks.sort_unstable();
        blocks.dedup_by(|next, last| {
            let is_within = next.0 <= last.1;
            last.1 = if is_within { next.1.max(last.1) } else { last.1 };
            is_within
        });
        blocks
    }

    /// Returns whether calls of a thread are known to be missing in a block.
    pub(crate) fn is_lacking(&self, timeline: usize, block: usize) -> bool {
        let blocks = &self.lacking[timeline];
        let before = blocks.partition_point(|(first, _)| *first as usize <= block);
        before.checked_sub(1).is_some_and(|place| blocks[place].1 as usize >= block)
    }

    /// Finds the typical work under each label. A label that most of its threads hardly have is one of those that too few
    /// have, if the sum of such work can be compared; else all its threads are compared.
    fn find_typical(&mut self, timelines: usize, processes: usize) {
        let min_holders = MIN_HOLDERS.min(processes);
        let mut little: Vec<(usize, usize, Vec<usize>)> = Vec::new();
        for (slot, column) in self.columns_by_slot() {
            let work: Vec<u64> = (0..timelines).map(|timeline| self.all_under(timeline, slot)).collect();
            let holders: Vec<usize> = (0..timelines).filter(|timeline| work[*timeline] > 0).collect();
            self.holders[slot] = holders.len();
            let mainly = share_of_most(&work);
            if mainly.len() >= min_holders {
                self.compare(slot, column, &mainly);
            } else if holders.len() >= min_holders {
                little.push((slot, column, holders));
            }
        }
        self.pool = self.pool_rare_work(timelines, min_holders);
        if self.pool.is_none() {
            little.iter().for_each(|(slot, column, holders)| self.compare(*slot, *column, holders));
            self.pool = self.pool_rare_work(timelines, min_holders);
        }
    }

    /// Returns the work of a thread under the label of a slot in all blocks, ns.
    fn all_under(&self, timeline: usize, slot: usize) -> u64 {
        (0..self.blocks).map(|block| self.ns(timeline, block, slot)).fold(0, u64::saturating_add)
    }

    /// Compares the work of these threads under the label of a slot.
    fn compare(&mut self, slot: usize, column: usize, holders: &[usize]) {
        self.is_common[slot] = !holders.is_empty();
        for block in 0..self.blocks {
            let known = holders.iter().filter(|timeline| !self.is_lacking(**timeline, block));
            let mut ns: Vec<u64> = known.map(|timeline| self.ns(*timeline, block, slot)).collect();
            if ns.is_empty() {
                continue;
            }
            ns.sort_unstable();
            let middle = (ns.len() - 1) / 2;
            self.typical[block * self.columns + column] = ns[middle];
            self.of_others[block * self.columns + column] = OtherMedians::new(&ns);
        }
    }

    /// Compares the work under labels that too few threads have by its sum: the threads at the ends of a line, and its
    /// inner ones, do the same work between other calls. Returns `None` if too few threads do such work.
    fn pool_rare_work(&self, timelines: usize, min_holders: usize) -> Option<RareWork> {
        let in_steps = |timeline: usize| -> u64 {
            self.step_blocks().map(|block| self.rare_ns(timeline, block)).fold(0, u64::saturating_add)
        };
        let work: Vec<u64> = (0..timelines).map(in_steps).collect();
        let holders = share_of_most(&work);
        if holders.len() < min_holders {
            return None;
        }
        let mut pool =
            RareWork { typical: vec![0; self.blocks], of_others: vec![OtherMedians::default(); self.blocks] };
        for block in 0..self.blocks {
            let known = holders.iter().filter(|timeline| !self.is_lacking(**timeline, block));
            let mut ns: Vec<u64> = known.map(|timeline| self.rare_ns(*timeline, block)).collect();
            ns.sort_unstable();
            if let Some(typical) = ns.get(ns.len().saturating_sub(1) / 2) {
                pool.typical[block] = *typical;
                pool.of_others[block] = OtherMedians::new(&ns);
            }
        }
        Some(pool)
    }

    /// Returns the work of a thread in a block under labels that too few threads have, ns.
    fn rare_ns(&self, timeline: usize, block: usize) -> u64 {
        let rare = self.columns_by_slot().filter(|(slot, _)| !self.is_common[*slot]);
        rare.map(|(slot, _)| self.ns(timeline, block, slot)).fold(0, u64::saturating_add)
    }

    /// Returns whether the work under the label of a slot is compared with that of others.
    pub(crate) fn is_compared(&self, slot: usize) -> bool {
        self.is_common[slot] || self.pool.is_some()
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
    pub(crate) fn step_blocks(&self) -> Range<usize> {
        1..self.blocks - 1
    }

    /// Returns the calls of a thread whose work before them is in these blocks.
    pub(crate) fn calls_in(&self, timeline: &CallTimeline, blocks: &Range<usize>) -> Range<usize> {
        let calls = 0..=timeline.calls.len();
        let first_in = |block: usize| {
            // The calls ascend, and so do their blocks.
            let (mut from, mut to) = (*calls.start(), *calls.end() + 1);
            while from < to {
                let middle = from.midpoint(to);
                if self.block_of(timeline, middle) < block { from = middle + 1 } else { to = middle }
            }
            from
        };
        first_in(blocks.start)..first_in(blocks.end)
    }

    /// Returns the slots that have work, with the column of each.
    fn columns_by_slot(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let slots = self.column_of.into_iter().enumerate();
        slots.filter_map(|(slot, column)| Some((slot, usize::from(column?))))
    }

    fn add(&mut self, timeline: usize, block: usize, slot: usize, ns: u64) {
        if let Some(place) = self.place(timeline, block, slot) {
            self.cells[place] = self.cells[place].saturating_add(ns);
        }
    }

    fn place(&self, timeline: usize, block: usize, slot: usize) -> Option<usize> {
        let column = usize::from(self.column_of[slot]?);
        Some((timeline * self.blocks + block) * self.columns + column)
    }

    /// Returns the work of a thread in a block under the label of a slot, ns.
    pub(crate) fn ns(&self, timeline: usize, block: usize, slot: usize) -> u64 {
        self.place(timeline, block, slot).map_or(0, |place| self.cells[place])
    }

    /// Returns the typical work of a thread in a block under the label of a slot, ns: the lower median of the
    /// threads that have the label. Of labels that only one or two threads have, it is the part of their sum, which is
    /// compared; it is 0 if only one or two threads do such work.
    pub(crate) fn typical_ns(&self, timeline: usize, block: usize, slot: usize) -> u64 {
        match &self.pool {
            Some(pool) if !self.is_common[slot] => {
                let (own, all) = (self.ns(timeline, block, slot), self.rare_ns(timeline, block));
                let part = u128::from(own) * u128::from(pool.typical[block]) / u128::from(all.max(1));
                u64::try_from(part).unwrap_or(u64::MAX)
            }
            _ => self.column_of[slot]
                .map_or(0, |column| self.typical[block * self.columns + usize::from(column)]),
        }
    }

    /// Returns by how much a thread works longer in a block than is typical of the others, ns. `None` if calls are
    /// missing in it.
    ///
    /// The lower median of all is below their mean by chance, so that each of a few threads would seem to be slow.
    pub(crate) fn excess_ns(&self, timeline: usize, block: usize) -> Option<i64> {
        if self.is_lacking(timeline, block) {
            return None;
        }
        // A thread without such work is not ahead by it.
        let longer = |ns: u64, others: &OtherMedians| {
            if ns == 0 { 0 } else { ns as i64 - others.without(ns) as i64 }
        };
        let of_slot = |(slot, column): (usize, usize)| match &self.pool {
            Some(_) if !self.is_common[slot] => 0,
            _ => longer(self.ns(timeline, block, slot), &self.of_others[block * self.columns + column]),
        };
        let of_labels = self.columns_by_slot().map(of_slot).fold(0, i64::saturating_add);
        let of_rare = self
            .pool
            .as_ref()
            .map_or(0, |pool| longer(self.rare_ns(timeline, block), &pool.of_others[block]));
        Some(of_labels.saturating_add(of_rare))
    }

    /// Returns the work of a thread in a block, ns.
    pub(crate) fn all_ns(&self, timeline: usize, block: usize) -> u64 {
        self.columns_by_slot().map(|(slot, _)| self.ns(timeline, block, slot)).fold(0, u64::saturating_add)
    }

    /// Returns by how much the work of a thread differs by chance from block to block, as a share of it: the median of
    /// the threads.
    pub(crate) fn noise_share(&self, timelines: usize) -> f64 {
        let share_of = |timeline: usize| {
            let ns: Vec<f64> = self.step_blocks().map(|block| self.all_ns(timeline, block) as f64).collect();
            let squares: f64 = ns.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
            let deviation = (squares / (2 * ns.len().saturating_sub(1).max(1)) as f64).sqrt();
            let mean = ns.iter().sum::<f64>() / ns.len().max(1) as f64;
            (mean > 0.0).then(|| deviation / mean)
        };
        let mut shares: Vec<f64> = (0..timelines).filter_map(share_of).collect();
        shares.sort_by(f64::total_cmp);
        shares.get(shares.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
    }

    /// Returns which share of the work of a thread under a label is more than is typical, in all steps.
    pub(crate) fn excess_share(&self, timeline: usize, slot: usize) -> f64 {
        let known = || self.step_blocks().filter(|block| !self.is_lacking(timeline, *block));
        let ns: u128 = known().map(|block| u128::from(self.ns(timeline, block, slot))).sum();
        let typical: u128 = known().map(|block| u128::from(self.typical_ns(timeline, block, slot))).sum();
        if ns > typical { (ns - typical) as f64 / ns as f64 } else { 0.0 }
    }
}

/// Returns the threads with a share of the longest work that counts, ascending.
pub(crate) fn share_of_most(work: &[u64]) -> Vec<usize> {
    let most = work.iter().copied().max().unwrap_or(0);
    let counts = |timeline: &usize| most > 0 && work[*timeline] as f64 >= most as f64 * MIN_SHARE_OF_MOST;
    (0..work.len()).filter(counts).collect()
}

/// Work under labels that too few threads have, by block.
#[derive(Clone, Debug)]
struct RareWork {
    /// Lower median of the threads that do such work, ns.
    typical: Vec<u64>,
    /// Medians of these threads without one of them.
    of_others: Vec<OtherMedians>,
}

/// The medians of all threads but one.
#[derive(Clone, Copy, Debug, Default)]
struct OtherMedians {
    /// Median without a thread that has less than `limit_ns`, as much, or more, ns.
    of_lower_ns: u64,
    of_equal_ns: u64,
    of_upper_ns: u64,
    limit_ns: u64,
}

impl OtherMedians {
    /// Returns the median of the threads other than one with this work, ns.
    fn without(&self, own_ns: u64) -> u64 {
        match own_ns.cmp(&self.limit_ns) {
            Ordering::Less => self.of_lower_ns,
            Ordering::Equal => self.of_equal_ns,
            Ordering::Greater => self.of_upper_ns,
        }
    }

    /// Returns the medians of times, which ascend.
    fn new(ns: &[u64]) -> OtherMedians {
        let at = |place: usize| ns.get(place).copied().unwrap_or(0);
        let half = ns.len() / 2;
        match ns.len() {
            0 => OtherMedians::default(),
            1 => OtherMedians { of_equal_ns: at(0), limit_ns: at(0), ..OtherMedians::default() },
            count if count % 2 == 0 => {
                let (low, high) = (at(half - 1), at(half));
                OtherMedians { of_lower_ns: high, of_equal_ns: high, of_upper_ns: low, limit_ns: low }
            }
            _ => {
                let [low, middle, high] = [at(half - 1), at(half), at(half + 1)];
                OtherMedians {
                    of_lower_ns: middle.midpoint(high),
                    of_equal_ns: low.midpoint(high),
                    of_upper_ns: low.midpoint(middle),
                    limit_ns: middle,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_others_is_that_without_the_thread() {
        for count in 1..9u64 {
            let all: Vec<u64> = (0..count).map(|place| place * place * 2).collect();
            let medians = OtherMedians::new(&all);
            for own in &all {
                let others: Vec<u64> = all.iter().copied().filter(|ns| ns != own).collect();
                let expected = match others.len() {
                    0 => *own,
                    length => others[(length - 1) / 2].midpoint(others[length / 2]),
                };
                assert_eq!(medians.without(*own), expected, "{own} of {all:?}");
            }
        }
    }
}
