//! Where calls of a process are missing: numbers that no call has, although later calls on the communicator have one.

use crate::call_values::NO_COMMUNICATOR;
use crate::communicators::run_number;
use crate::functions::FunctionKind;
use crate::region_names::RegionNames;
use crate::thread_calls::ThreadTimeline;
use crate::unit_rows::{CallRow, RegionRow};
use foldhash::fast::RandomState;
use rpd_graph::{CallGap, UNKNOWN};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The calls of a process that may be missing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProcessGaps {
    /// Number of numbers that no call has.
    pub(crate) missing_numbers: u64,
    /// Whether the process calls MPI in one thread, so that the places are known.
    is_of_one_thread: bool,
    /// Gaps in the numbers of calls with messages.
    gaps: Vec<CallGap>,
    /// For each communicator, the calls after the last one that has a number.
    last: Vec<CallGap>,
}

/// The numbers of the calls on a communicator so far.
#[derive(Clone, Copy, Debug, Default)]
struct SeenNumbers {
    largest: u64,
    count: u64,
    /// Time of the end of the last call.
    end: i64,
}

impl ProcessGaps {
    /// Finds the numbers that are missing in the calls of a process. Collectives have numbers of their own.
    pub(crate) fn find(
        regions: &[RegionRow],
        calls: &[CallRow],
        names: &RegionNames,
        timelines: &[ThreadTimeline],
    ) -> ProcessGaps {
        let mut threads = timelines.iter().filter(|timeline| !timeline.is_stream);
        let only = threads.next().filter(|_| threads.next().is_none());
        let mut found = ProcessGaps { is_of_one_thread: only.is_some(), ..ProcessGaps::default() };
        let mut numbers: HashMap<(u32, bool), SeenNumbers, RandomState> = HashMap::default();
        for region in regions {
            let is_numbered = |call: &&CallRow| call.values.seq > 0 && names.kind(call.function).is_of_mpi();
            let Some(call) = calls.get(region.call as usize).filter(is_numbered) else { continue };
            let is_of_all = matches!(names.kind(call.function), FunctionKind::Collective { .. });
            let (communicator, number) = (call.values.communicator, call.values.seq);
            let seen = numbers.entry((communicator, is_of_all)).or_default();
            let missing = number.saturating_sub(seen.largest).saturating_sub(1);
            if let Some(timeline) =
                only.filter(|_| missing > 0 && !is_of_all && communicator != NO_COMMUNICATOR)
            {
                let from = if seen.count > 0 { index_after(timeline, seen.end) } else { 0 };
                let to = index_of(timeline, region.end);
                let missing = u32::try_from(missing).unwrap_or(u32::MAX).min(UNKNOWN - 1);
                found.gaps.push(CallGap { communicator, from, to, missing });
            }
            seen.largest = seen.largest.max(number);
            (seen.count, seen.end) = (seen.count + 1, region.end);
        }
        let missing = numbers.values().map(|seen| seen.largest.saturating_sub(seen.count));
        found.missing_numbers = missing.fold(0, u64::saturating_add);
        if let Some(timeline) = only {
            let of_messages = numbers
                .iter()
                .filter(|((communicator, is_of_all), _)| !is_of_all && *communicator != NO_COMMUNICATOR);
            let last: BTreeMap<u32, u32> = of_messages
                .map(|((communicator, _), seen)| (*communicator, index_after(timeline, seen.end)))
                .collect();
            let to = timeline.calls.len() as u32;
            let gap = |(communicator, from)| CallGap { communicator, from, to, missing: UNKNOWN };
            found.last = last.into_iter().map(gap).collect();
        }
        found
    }

    /// Returns the gaps with the numbers of communicators in the run.
    pub(crate) fn in_run(mut self, communicators: &[u32]) -> ProcessGaps {
        for gap in self.gaps.iter_mut().chain(&mut self.last) {
            gap.communicator = run_number(communicators, gap.communicator);
        }
        self
    }

    /// Returns the gaps, if it is known where calls are missing; with `may_lack_last`, those after the last numbered
    /// calls may be.
    pub(crate) fn located(&self, may_lack_last: bool) -> Option<Vec<CallGap>> {
        let last = self.last.iter().filter(|_| may_lack_last);
        let mut gaps: Vec<CallGap> = self.gaps.iter().chain(last).copied().collect();
        gaps.sort_by_key(|gap| (gap.communicator, gap.from));
        // Times that contradict the numbers show no place.
        let is_ordered = gaps.iter().all(|gap| gap.from <= gap.to)
            && gaps.is_sorted_by(|one, other| (one.communicator, one.to) <= (other.communicator, other.from));
        (self.is_of_one_thread && is_ordered).then_some(gaps)
    }
}

/// Returns the index of the call that ends at a time or after it, which it contains.
fn index_of(timeline: &ThreadTimeline, end: i64) -> u32 {
    timeline.calls.partition_point(|call| call.exit_ns() < end) as u32
}

/// Returns the index of the first call after the one that contains a time.
fn index_after(timeline: &ThreadTimeline, end: i64) -> u32 {
    (index_of(timeline, end) + 1).min(timeline.calls.len() as u32)
}
