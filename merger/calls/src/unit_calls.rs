//! The calls of the processes of a unit.

use crate::call_gaps::ProcessGaps;
use crate::call_values::NO_COMMUNICATOR;
use crate::labels::{LabelKey, LabelNumbers};
use crate::operations::{ProcessNotes, ProcessOperations};
use crate::region_names::RegionNames;
use crate::thread_calls::{ReadPart, ThreadContext, ThreadTimeline, sweep_thread};
use crate::unit_rows::{RegionRow, SampleRow, UnitRows};
use crate::window_ends::EarlierEnds;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// That a process is a member of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Membership {
    /// Index among the communicators of the unit.
    pub(crate) communicator: u32,
    pub(crate) size: u32,
    pub(crate) rank: u32,
    /// Side of an intercommunicator, to which size and rank then refer.
    pub(crate) side: Option<u8>,
    /// Communicator of the call that created it: of an intercommunicator, that of the own side.
    pub(crate) origin: u32,
}

/// The calls of a process, in the numbers of its unit.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProcessCalls {
    /// Key of the process, if the unit is of several; otherwise 0.
    pub(crate) process: i64,
    pub(crate) timelines: Vec<ThreadTimeline>,
    pub(crate) memberships: Vec<Membership>,
    pub(crate) notes: ProcessNotes,
    pub(crate) gaps: ProcessGaps,
    /// Messages before the window.
    pub(crate) earlier_ends: EarlierEnds,
}

/// The calls of a unit.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct UnitCalls {
    pub(crate) processes: Vec<ProcessCalls>,
    pub(crate) communicators: Vec<Box<[u8]>>,
    /// The labels, by their numbers in the unit.
    pub(crate) labels: Vec<LabelKey>,
    pub(crate) gpu: Option<String>,
    pub(crate) unusable_regions: u64,
}

impl UnitCalls {
    /// Builds the calls of all threads from the rows of a unit.
    pub(crate) fn new(rows: UnitRows, names: &RegionNames, part: ReadPart) -> UnitCalls {
        let UnitRows { mut regions, calls, mut samples, communicators, gpu, unusable } = rows;
        let order = |region: &RegionRow| {
            (region.process, region.thread, region.start, Reverse(region.end), region.id)
        };
        regions.sort_by_key(order);
        samples.sort_by_key(|sample| sample.process);
        let context = ThreadContext { names, calls: &calls, part };
        let mut labels = LabelNumbers::default();
        let mut unit = UnitCalls { communicators, gpu, unusable_regions: unusable, ..UnitCalls::default() };
        for of_process in regions.chunk_by(|a, b| a.process == b.process) {
            let Some(process) = of_process.first().map(|region| region.process) else { continue };
            let from = samples.partition_point(|sample| sample.process < process);
            let to = samples.partition_point(|sample| sample.process <= process);
            let found = windowed_calls(of_process, &samples[from..to], context, &mut labels);
            if !found.timelines.is_empty() {
                unit.processes.push(ProcessCalls { process, ..found });
            }
        }
        unit.labels = labels.into_keys();
        unit
    }
}

/// Returns the calls of a process in the window. Those outside of it show which messages in it belong together, and which
/// steps it cuts.
fn windowed_calls(
    regions: &[RegionRow],
    samples: &[SampleRow],
    context: ThreadContext<'_>,
    labels: &mut LabelNumbers,
) -> ProcessCalls {
    let Some((from, _)) = context.part.window else {
        return process_calls(regions, samples, context, labels);
    };
    let whole_part = ReadPart { window: None, ..context.part };
    let mut whole = process_calls(regions, samples, ThreadContext { part: whole_part, ..context }, labels);
    let mut found = process_calls(regions, samples, context, labels);
    found.earlier_ends = EarlierEnds::find(&mut found.timelines, &whole.timelines, from);
    for part in &mut found.timelines {
        let same = whole.timelines.iter_mut().find(|whole| whole.thread == part.thread);
        part.step_ranges = same.map(|whole| std::mem::take(&mut whole.step_ranges)).unwrap_or_default();
    }
    // Completions of operations outside of the window are no faults of the recording.
    ProcessCalls { notes: whole.notes, ..found }
}

fn process_calls(
    regions: &[RegionRow],
    samples: &[SampleRow],
    context: ThreadContext<'_>,
    labels: &mut LabelNumbers,
) -> ProcessCalls {
    let requests = || samples.iter().filter(|sample| sample.is_request);
    let calls = || regions.iter().filter_map(|region| context.calls.get(region.call as usize));
    let mut operations = ProcessOperations::new(requests(), calls());
    let mut timelines = Vec::new();
    for of_thread in regions.chunk_by(|a, b| a.thread == b.thread) {
        let number = timelines.len() as u32;
        timelines.extend(sweep_thread(of_thread, number, context, labels, &mut operations));
    }
    operations.begin_persistent(requests(), calls(), context.names, &mut timelines);
    operations.complete(requests(), &mut timelines);
    timelines.iter_mut().for_each(ThreadTimeline::shrink_to_fit);
    let gaps = ProcessGaps::find(regions, context.calls, context.names, &timelines);
    operations.notes.missing_numbers = gaps.missing_numbers;
    operations.notes.has_starts = !operations.starts.is_empty();
    let created = || samples.iter().filter(|sample| !sample.is_request);
    let stacks: HashSet<i64> = created().map(|sample| sample.stack).filter(|stack| *stack != 0).collect();
    let creating = calls().filter(|call| stacks.contains(&call.stack));
    let origins: HashMap<i64, u32> = creating.map(|call| (call.stack, call.values.communicator)).collect();
    let membership = |sample: &SampleRow| {
        let (size, rank) = (sample.values.size?, sample.values.rank?);
        let communicator = sample.values.communicator;
        let side = sample.values.side;
        let origin = origins.get(&sample.stack).copied().unwrap_or(NO_COMMUNICATOR);
        (communicator != NO_COMMUNICATOR).then_some(Membership { communicator, size, rank, side, origin })
    };
    let memberships = created().filter_map(membership).collect();
    let earlier_ends = EarlierEnds::default();
    ProcessCalls { process: 0, timelines, memberships, notes: operations.notes, gaps, earlier_ends }
}
