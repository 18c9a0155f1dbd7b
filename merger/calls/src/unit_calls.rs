//! The calls of the processes of a unit.

use crate::call_gaps::ProcessGaps;
use crate::call_values::NO_COMMUNICATOR;
use crate::functions::FunctionKind;
use crate::gpu_collectives::{GpuCommunicator, GpuCommunicators, LaunchedCollectives};
use crate::gpu_metrics::UnitGpus;
use crate::gpu_rows::GpuRow;
use crate::gpu_streams::{StreamContext, add_streams};
use crate::labels::{LabelKey, LabelNumbers};
use crate::operations::{ProcessNotes, ProcessOperations};
use crate::python_stacks::PythonStacks;
use crate::region_names::RegionNames;
use crate::thread_calls::{ReadPart, ThreadContext, ThreadTimeline, sweep_thread};
use crate::unit_rows::{RegionRow, SampleRow, UnitRows};
use crate::window_ends::EarlierEnds;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

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
    /// Communicators that its kernels show. Their numbers follow those of the unit.
    pub(crate) gpu_communicators: Vec<GpuCommunicator>,
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
    /// Names of GPU work.
    pub(crate) gpu_work: Vec<String>,
    pub(crate) gpu: Option<String>,
    /// The GPUs with work, and what is recorded about GPUs.
    pub(crate) gpus: UnitGpus,
    /// Stacks of the samples of all threads.
    pub(crate) python_stacks: PythonStacks,
    pub(crate) unusable_regions: u64,
}

impl UnitCalls {
    /// Returns about how many bytes the calls and their analysis take, at most.
    pub(crate) fn analysis_bytes(&self) -> u64 {
        let timelines = self.processes.iter().flat_map(|process| &process.timelines);
        let others = self.python_stacks.bytes().saturating_add(self.gpus.bytes());
        timelines.map(ThreadTimeline::analysis_bytes).fold(others, u64::saturating_add)
    }

    /// Builds the calls of all threads from the rows of a unit.
    pub(crate) fn new(rows: UnitRows, names: &RegionNames, part: ReadPart) -> UnitCalls {
        let UnitRows {
            mut regions,
            calls,
            mut samples,
            gpu_work,
            communicators,
            mut cpus,
            python,
            gpu,
            gpus,
            unusable,
        } = rows;
        let order = |region: &RegionRow| {
            (region.process, region.thread, region.start, Reverse(region.end), region.id)
        };
        regions.sort_by_key(order);
        samples.sort_by_key(|sample| sample.process);
        let context = ThreadContext { names, calls: &calls, part, samples: &python.threads };
        let mut labels = LabelNumbers::default();
        let unusable_regions = unusable;
        let mut unit = UnitCalls { communicators, gpu, gpus, unusable_regions, ..UnitCalls::default() };
        let of_regions = regions.iter().map(|region| region.process);
        let processes: BTreeSet<i64> =
            of_regions.chain(gpu_work.rows.iter().map(|row| row.process)).collect();
        for process in processes {
            let rows = ProcessRows {
                regions: of_process(&regions, process, |region| region.process),
                samples: of_process(&samples, process, |sample| sample.process),
                gpu_work: of_process(&gpu_work.rows, process, |row| row.process),
                communicators: unit.communicators.len(),
            };
            let mut found = windowed_calls(rows, context, &mut labels);
            for timeline in found.timelines.iter_mut().filter(|timeline| !timeline.is_stream) {
                timeline.cpus = cpus.remove(&timeline.thread).unwrap_or_default();
            }
            if found.timelines.iter().any(|timeline| timeline.communicates) {
                unit.processes.push(ProcessCalls { process, ..found });
            }
        }
        unit.python_stacks = python.stacks;
        unit.gpu_work = gpu_work.names;
        unit.labels = labels.into_keys();
        unit
    }
}

/// The rows of a process, in the order of its threads and of time.
#[derive(Clone, Copy)]
struct ProcessRows<'a> {
    regions: &'a [RegionRow],
    samples: &'a [SampleRow],
    gpu_work: &'a [GpuRow],
    /// Number of communicators of the unit.
    communicators: usize,
}

/// Returns the rows of a process, of rows that are sorted by process.
fn of_process<T>(rows: &[T], process: i64, process_of: impl Fn(&T) -> i64) -> &[T] {
    let from = rows.partition_point(|row| process_of(row) < process);
    let to = rows.partition_point(|row| process_of(row) <= process);
    &rows[from..to]
}

/// Returns the calls of a process in the window. Those outside of it show which messages in it belong together, and which
/// steps it cuts.
fn windowed_calls(
    rows: ProcessRows<'_>,
    context: ThreadContext<'_>,
    labels: &mut LabelNumbers,
) -> ProcessCalls {
    let Some((from, _)) = context.part.window else {
        return process_calls(rows, context, labels);
    };
    let whole_part = ReadPart { window: None, ..context.part };
    let mut whole = process_calls(rows, ThreadContext { part: whole_part, ..context }, labels);
    let mut found = process_calls(rows, context, labels);
    found.earlier_ends = EarlierEnds::find(&mut found.timelines, &whole.timelines, from);
    for part in &mut found.timelines {
        let same = whole.timelines.iter_mut().find(|whole| whole.thread == part.thread);
        part.step_ranges = same.map(|whole| std::mem::take(&mut whole.step_ranges)).unwrap_or_default();
    }
    // Completions of operations outside of the window are no faults of the recording.
    let ProcessNotes { cut_calls, cut_ns, .. } = found.notes;
    ProcessCalls { notes: ProcessNotes { cut_calls, cut_ns, ..whole.notes }, ..found }
}

fn process_calls(
    rows: ProcessRows<'_>,
    context: ThreadContext<'_>,
    labels: &mut LabelNumbers,
) -> ProcessCalls {
    let ProcessRows { regions, samples, gpu_work, communicators } = rows;
    let requests = || samples.iter().filter(|sample| sample.is_request);
    let created = || samples.iter().filter(|sample| !sample.is_request);
    let calls = || regions.iter().filter_map(|region| context.calls.get(region.call as usize));
    let mut operations = ProcessOperations::new(requests(), created(), calls(), gpu_work);
    let mut timelines = Vec::new();
    let mut sweep = |regions: &[RegionRow]| {
        let number = timelines.len() as u32;
        timelines.extend(sweep_thread(regions, number, context, labels, &mut operations));
    };
    let launching = launching_threads(regions, context);
    // Threads that launch GPU work count as one that does so in turn, as in a backward pass. Of calls at the same time, the
    // first counts.
    let mut joined: Vec<RegionRow> = Vec::new();
    for of_thread in regions.chunk_by(|a, b| a.thread == b.thread) {
        match launching.len() > 1 && of_thread.first().is_some_and(|first| launching.contains(&first.thread))
        {
            true => joined.extend_from_slice(of_thread),
            false => sweep(of_thread),
        }
    }
    joined.sort_by_key(|region| (region.start, Reverse(region.end), region.id));
    sweep(&joined);
    let launched = LaunchedCollectives::new(regions, context.calls, context.names);
    let mut gpu_communicators = GpuCommunicators::after(communicators);
    let streams = StreamContext {
        labels,
        operations: &operations,
        launched,
        communicators: &mut gpu_communicators,
        window: context.part.window,
    };
    add_streams(gpu_work, &mut timelines, streams);
    operations.begin_persistent(requests(), calls(), context.names, &mut timelines);
    operations.complete(requests(), &mut timelines);
    timelines.iter_mut().for_each(ThreadTimeline::shrink_to_fit);
    let gaps = ProcessGaps::find(regions, context.calls, context.names, &timelines);
    operations.notes.missing_numbers = gaps.missing_numbers;
    operations.notes.has_starts = !operations.starts.is_empty();
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
    ProcessCalls {
        process: 0,
        timelines,
        memberships,
        gpu_communicators: gpu_communicators.found,
        notes: operations.notes,
        gaps,
        earlier_ends,
    }
}

/// Returns the keys of the threads that launch GPU work or wait for it. None if several threads call MPI: then it is not
/// known which waits for which.
fn launching_threads(regions: &[RegionRow], context: ThreadContext<'_>) -> BTreeSet<i64> {
    let threads = |is_meant: &dyn Fn(FunctionKind) -> bool| -> BTreeSet<i64> {
        let calls = |region: &&RegionRow| {
            let call = context.calls.get(region.call as usize).filter(|call| !call.is_marker);
            call.is_some_and(|call| is_meant(context.names.kind(call.function)))
        };
        regions.iter().filter(calls).map(|region| region.thread).collect()
    };
    match threads(&FunctionKind::is_of_mpi).len() {
        0 | 1 => threads(&|kind| matches!(kind, FunctionKind::Gpu(_))),
        _ => BTreeSet::new(),
    }
}
