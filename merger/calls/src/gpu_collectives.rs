//! Which kernels of different processes carry out the same collective.
//!
//! The call to RCCL that launched a kernel numbers it, if rpd-collect recorded it; otherwise the args of a kernel may, as
//! in traces of PyTorch. Kernels without numbers match by their order within their process group, if all its processes
//! have equally many of them and those of each collective overlap.

use crate::call_values::{CallValues, NO_COMMUNICATOR};
use crate::functions::FunctionKind;
use crate::gpu_rows::KernelCollective;
use crate::region_names::RegionNames;
use crate::unit_rows::{CallRow, RegionRow};
use rpd_graph::{CallTimeline, CollectiveEntry, CollectiveWaits, JobCalls};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Numbers of the functions of kernels begin here; those of MPI are below.
const FIRST_FUNCTION: u32 = 1 << 20;
/// Words in the names of functions, in lower case without separators, and whether each member waits for all.
const FUNCTIONS: [(&str, CollectiveWaits); 8] = [
    ("allreduce", CollectiveWaits::ForAll),
    ("allgather", CollectiveWaits::ForAll),
    ("reducescatter", CollectiveWaits::ForAll),
    ("alltoall", CollectiveWaits::Unknown),
    ("broadcast", CollectiveWaits::ForAll),
    ("reduce", CollectiveWaits::ForAll),
    ("barrier", CollectiveWaits::ForAll),
    ("generic", CollectiveWaits::ForAll),
];

/// A communicator that only kernels show.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GpuCommunicator {
    pub(crate) name: String,
    pub(crate) size: Option<u32>,
    /// Whether its collectives are numbered by the order of its kernels.
    pub(crate) is_by_order: bool,
}

/// The communicators that the kernels of a process show. Their numbers follow those of the unit.
#[derive(Debug)]
pub(crate) struct GpuCommunicators {
    first: u32,
    pub(crate) found: Vec<GpuCommunicator>,
    numbers: HashMap<KernelGroup, u32>,
}

/// The group of a kernel, as its args name it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct KernelGroup {
    /// Name and ranks, if the args have them.
    group: Option<Arc<str>>,
    ranks: Option<Arc<str>>,
    /// Whether its kernels have no numbers.
    is_by_order: bool,
}

impl GpuCommunicators {
    pub(crate) fn after(of_unit: usize) -> GpuCommunicators {
        GpuCommunicators { first: of_unit as u32, found: Vec::new(), numbers: HashMap::new() }
    }

    /// Returns the number of the communicator of a group with this many ranks.
    fn number(&mut self, group: KernelGroup, size: Option<u32>) -> u32 {
        let next = self.first + self.found.len() as u32;
        let found = &mut self.found;
        *self.numbers.entry(group).or_insert_with_key(|KernelGroup { group, ranks, is_by_order }| {
            let ranks = ranks.as_ref().map_or(String::new(), |ranks| format!(" {ranks}"));
            let name = match (group, is_by_order) {
                (None, _) => format!("kernels of RCCL{ranks}"),
                (Some(group), true) => format!("kernels of process group {group}{ranks}"),
                (Some(group), false) => format!("process group {group}{ranks}"),
            };
            found.push(GpuCommunicator { name, size, is_by_order: *is_by_order });
            next
        })
    }
}

/// The calls to RCCL of a process, by which the kernels that they launch are numbered.
#[derive(Debug, Default)]
pub(crate) struct LaunchedCollectives {
    /// By start.
    calls: Vec<RcclCall>,
}

#[derive(Clone, Copy, Debug)]
struct RcclCall {
    start: i64,
    end: i64,
    /// Communicator and number of its collective; of the call that ends a group, those of the last call in it.
    collective: Option<(u32, u32)>,
}

/// The call that launches the collectives of a group.
const GROUP_ENDS: [&str; 2] = ["ncclGroupEnd", "rcclGroupEnd"];
/// Maximum number of calls that are searched for the one around a launch.
const MAX_SEARCHED: usize = 64;

impl LaunchedCollectives {
    /// Finds the calls in the regions of a process, which are in the order of its threads.
    pub(crate) fn new(regions: &[RegionRow], calls: &[CallRow], names: &RegionNames) -> LaunchedCollectives {
        let mut found = Vec::new();
        for of_thread in regions.chunk_by(|one, other| one.thread == other.thread) {
            let mut last = None;
            for region in of_thread {
                let Some(call) = calls.get(region.call as usize) else { continue };
                if names.kind(call.function) != FunctionKind::Rccl {
                    continue;
                }
                let own = collective_of(&call.values);
                last = own.or(last);
                let is_group = GROUP_ENDS.contains(&names.function_name(call.function));
                let collective = if is_group { last.take() } else { own };
                found.push(RcclCall { start: region.start, end: region.end, collective });
            }
        }
        found.sort_by_key(|call| (call.start, call.end));
        LaunchedCollectives { calls: found }
    }

    /// Returns communicator and number of the collective that a launch at a time belongs to: that of the call around it.
    fn at(&self, launched: i64) -> Option<(u32, u32)> {
        let before = self.calls.partition_point(|call| call.start <= launched);
        let mut around = self.calls[..before].iter().rev().take(MAX_SEARCHED);
        around.find(|call| call.end >= launched && call.collective.is_some())?.collective
    }
}

/// Returns communicator and number of the collective that a call to RCCL enters.
fn collective_of(values: &CallValues) -> Option<(u32, u32)> {
    let number = u32::try_from(values.seq.checked_sub(1)?).ok();
    let number = number.filter(|number| *number < CollectiveEntry::INIT_NUMBER)?;
    (values.communicator != NO_COMMUNICATOR).then_some((values.communicator, number))
}

/// Finds the collectives that the kernels of a process enter, in the order of their starts.
pub(crate) struct KernelEntries<'a> {
    launched: LaunchedCollectives,
    communicators: &'a mut GpuCommunicators,
    entered: HashSet<(u32, u32)>,
    /// Number of kernels without numbers so far, by communicator.
    without_numbers: HashMap<u32, u32>,
}

impl<'a> KernelEntries<'a> {
    pub(crate) fn new(
        launched: LaunchedCollectives,
        communicators: &'a mut GpuCommunicators,
    ) -> KernelEntries<'a> {
        KernelEntries { launched, communicators, entered: HashSet::new(), without_numbers: HashMap::new() }
    }

    /// Returns the entry of the next kernel; `None` if an earlier kernel carried out the same collective. The index of
    /// its call is not known here.
    pub(crate) fn enter(
        &mut self,
        kernel: &KernelCollective,
        launched: Option<i64>,
    ) -> Option<CollectiveEntry> {
        let (communicator, number) = launched
            .and_then(|at| self.launched.at(at))
            .or_else(|| self.numbered_by_args(kernel))
            .unwrap_or_else(|| self.numbered_by_order(kernel));
        let (function, waits) = function_of(&kernel.function);
        let entry = CollectiveEntry {
            call: 0,
            communicator,
            number,
            function,
            root: -1,
            waits,
            is_blocking: true,
            size_class: kernel.elements.map_or(0, CollectiveEntry::size_class),
            is_size_shared: false,
        };
        self.entered.insert((communicator, number)).then_some(entry)
    }

    fn numbered_by_args(&mut self, kernel: &KernelCollective) -> Option<(u32, u32)> {
        let number =
            u32::try_from(kernel.seq?).ok().filter(|number| *number < CollectiveEntry::INIT_NUMBER)?;
        let group = KernelGroup {
            group: Some(kernel.group.clone()?),
            ranks: kernel.ranks.clone(),
            is_by_order: false,
        };
        Some((self.communicators.number(group, kernel.size), number))
    }

    fn numbered_by_order(&mut self, kernel: &KernelCollective) -> (u32, u32) {
        let group =
            KernelGroup { group: kernel.group.clone(), ranks: kernel.ranks.clone(), is_by_order: true };
        let communicator = self.communicators.number(group, kernel.size);
        let next = self.without_numbers.entry(communicator).or_default();
        *next += 1;
        (communicator, *next - 1)
    }
}

/// Returns number and waits of a function, in any spelling.
fn function_of(name: &str) -> (u32, CollectiveWaits) {
    let name: String = name.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect();
    let found = (FIRST_FUNCTION..).zip(&FUNCTIONS).find(|(_, (word, _))| name.contains(word));
    let other = (FIRST_FUNCTION + FUNCTIONS.len() as u32, CollectiveWaits::Unknown);
    found.map_or(other, |(number, (_, waits))| (number, *waits))
}

/// Removes the entries into communicators by the order of kernels if these do not match: processes have different
/// numbers of them, or kernels of a collective do not overlap. Returns the number of kernels of which the entries
/// are removed. A part of the run has the collectives of which it has the kernels of all processes.
pub(crate) fn remove_unmatched(job: &mut JobCalls, by_order: &HashSet<u32>) -> u64 {
    let mut removed = 0;
    for communicator in by_order {
        if job.is_part {
            remove_cut(job, *communicator);
        }
        if !do_match(job, *communicator) {
            removed += retain_entries(job, |entry| entry.communicator != *communicator);
        }
    }
    removed
}

/// Removes the entries of collectives of which the part does not have the kernels of all processes.
fn remove_cut(job: &mut JobCalls, communicator: u32) {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let mut processes: HashSet<u32> = HashSet::new();
    for timeline in &job.timelines {
        for entry in timeline.entries.iter().filter(|entry| entry.communicator == communicator) {
            *counts.entry(entry.number).or_default() += 1;
            processes.insert(timeline.process);
        }
    }
    let is_whole = |entry: &CollectiveEntry| counts.get(&entry.number) == Some(&processes.len());
    let _ = retain_entries(job, |entry| entry.communicator != communicator || is_whole(entry));
}

/// Removes all other entries. Returns their number.
fn retain_entries(job: &mut JobCalls, is_kept: impl Fn(&CollectiveEntry) -> bool) -> u64 {
    let mut removed = 0;
    for timeline in &mut job.timelines {
        let before = timeline.entries.len();
        timeline.entries.retain(&is_kept);
        removed += (before - timeline.entries.len()) as u64;
    }
    removed
}

/// Returns whether all processes have equally many kernels of a communicator, and those of each collective overlap.
fn do_match(job: &JobCalls, communicator: u32) -> bool {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    // Latest start and earliest end of each collective, with the error bounds of the clocks.
    let mut spans: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let nodes: HashSet<u32> = job.timelines.iter().map(|timeline| timeline.node).collect();
    let bound = |timeline: &CallTimeline, at: i64| match nodes.len() {
        1 => Some(0),
        _ => timeline.error_bound_at(at).and_then(|bound| i64::try_from(bound).ok()),
    };
    for timeline in &job.timelines {
        for entry in timeline.entries.iter().filter(|entry| entry.communicator == communicator) {
            let Some(call) = timeline.calls.get(entry.call as usize) else { return false };
            let Some(bound) = bound(timeline, call.enter_ns) else { return false };
            let span = spans.entry(entry.number).or_insert((i64::MIN, i64::MAX));
            span.0 = span.0.max(call.enter_ns.saturating_sub(bound));
            span.1 = span.1.min(call.exit_ns().saturating_add(bound));
            *counts.entry(timeline.process).or_default() += 1;
        }
    }
    let first = counts.values().next().copied();
    counts.values().all(|count| Some(*count) == first) && spans.values().all(|(start, end)| start <= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_graph::Call;

    #[test]
    fn kernels_without_numbers_match_if_they_overlap() {
        let timeline = |process, starts: &[i64]| {
            let call = |start: &i64| Call { enter_ns: *start, duration_ns: 10, label: 0 };
            let entry = |number: u32| CollectiveEntry {
                call: number,
                communicator: 3,
                number,
                function: FIRST_FUNCTION,
                root: -1,
                waits: CollectiveWaits::ForAll,
                is_blocking: true,
                size_class: 0,
                is_size_shared: false,
            };
            CallTimeline {
                process,
                is_stream: true,
                calls: starts.iter().map(call).collect(),
                entries: (0..starts.len() as u32).map(entry).collect(),
                ..CallTimeline::default()
            }
        };
        let removed = |one: &[i64], other: &[i64]| {
            let mut job =
                JobCalls { timelines: vec![timeline(0, one), timeline(1, other)], ..JobCalls::default() };
            remove_unmatched(&mut job, &HashSet::from([3]))
        };
        assert_eq!(removed(&[0, 50], &[5, 45]), 0);
        assert_eq!(removed(&[0, 50], &[5, 70]), 4, "these do not overlap");
        assert_eq!(removed(&[0, 50], &[5]), 3, "one is missing");
        let mut part = JobCalls {
            timelines: vec![timeline(0, &[0, 50]), timeline(1, &[5])],
            is_part: true,
            ..JobCalls::default()
        };
        assert_eq!(remove_unmatched(&mut part, &HashSet::from([3])), 0);
        assert_eq!(part.timelines[0].entries.len(), 1, "the window cuts the other");
    }

    #[test]
    fn kernels_without_numbers_are_ordered_within_their_process_group() {
        let mut communicators = GpuCommunicators::after(5);
        let mut entries = KernelEntries::new(LaunchedCollectives::default(), &mut communicators);
        let mut enter = |group: Option<&str>, seq| {
            let group = group.map(Arc::from);
            let kernel = KernelCollective {
                function: "allreduce".into(),
                group,
                ranks: None,
                size: None,
                seq,
                elements: None,
            };
            entries.enter(&kernel, None).map(|entry| (entry.communicator, entry.number))
        };
        let groups =
            [(Some("0"), None), (Some("1"), None), (None, None), (Some("1"), None), (Some("0"), Some(7))];
        let entered = groups.map(|(group, seq)| enter(group, seq));
        assert_eq!(entered, [(5, 0), (6, 0), (7, 0), (6, 1), (8, 7)].map(Some));
        let found: Vec<(&str, bool)> =
            communicators.found.iter().map(|one| (one.name.as_str(), one.is_by_order)).collect();
        let of_group = [("kernels of process group 0", true), ("kernels of process group 1", true)];
        assert_eq!(found[..2], of_group);
        assert_eq!(found[2..], [("kernels of RCCL", true), ("process group 0", false)]);
    }

    #[test]
    fn functions_are_found_in_the_names_of_kernels_and_of_pytorch() {
        let all = |place: u32| (FIRST_FUNCTION + place, CollectiveWaits::ForAll);
        assert_eq!(function_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), all(0));
        assert_eq!(function_of("_allgather_base"), all(1));
        assert_eq!(function_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE"), all(2));
        assert_eq!(function_of("ncclDevKernel_Generic_4"), all(7));
        assert_eq!(function_of("ncclDevKernel_SendRecv"), (FIRST_FUNCTION + 8, CollectiveWaits::Unknown));
    }
}
