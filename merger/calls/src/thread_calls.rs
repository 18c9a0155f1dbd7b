//! The calls of one thread: which regions are one call, and what each call does.

use crate::call_values::{CallValues, NO_COMMUNICATOR};
use crate::functions::{FunctionKind, GpuWait};
use crate::labels::{LabelKey, LabelNumbers, WorkBorder};
use crate::operations::{OperationLists, ProcessOperations};
use crate::python_samples::{StackSample, WorkSample};
use crate::region_names::RegionNames;
use crate::step_ranges::{NamedRange, StepRangeCounter, StepRanges, within};
use crate::thread_cpus::ThreadCpus;
use crate::thread_work::ThreadWork;
use crate::unit_rows::{CallRow, NO_CALL, RegionRow};
use crate::work_amounts::WorkAmounts;
use rpd_graph::{Call, CallTimeline, LocalDependency, WorkSegment};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum time between two polls that are one call, ns.
const MAX_POLL_GAP_NS: i64 = 10_000;
/// Maximum time between two polls that may be a pause of waiting, ns.
const MAX_POLL_PAUSE_NS: i64 = 1_000_000;
/// Maximum overlap of two calls that is an error of rounding, ns.
const MAX_ROUNDING_NS: i64 = 1_000;

/// The part of each thread that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPart {
    /// First time and end, ns in job time.
    pub(crate) window: Option<(i64, i64)>,
    /// Class of the ranges that mark steps, if the user named them.
    pub(crate) step_class: Option<u32>,
    /// Whether the keys of the rows of calls are kept.
    pub(crate) keeps_row_keys: bool,
}

impl ReadPart {
    /// Returns the whole run, with steps as they are found and without the keys of rows.
    pub(crate) fn whole() -> ReadPart {
        ReadPart { window: None, step_class: None, keeps_row_keys: false }
    }
}

/// What a thread needs of its run and unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadContext<'a> {
    pub(crate) names: &'a RegionNames,
    pub(crate) calls: &'a [CallRow],
    pub(crate) part: ReadPart,
    /// Samples of Python stacks by time, by the key of the thread.
    pub(crate) samples: &'a BTreeMap<i64, Vec<StackSample>>,
}

/// The calls of a thread, or of a stream of a GPU, in the numbers of its unit.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ThreadTimeline {
    /// Key of the thread.
    pub(crate) thread: i64,
    /// Whether this is a stream.
    pub(crate) is_stream: bool,
    /// Whether it communicates with other processes.
    pub(crate) communicates: bool,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) calls: Vec<Call>,
    pub(crate) region_ids: Vec<i64>,
    pub(crate) work: Vec<WorkSegment>,
    pub(crate) first_work: Vec<u32>,
    /// Amount of each segment of work, see [`WorkAmounts`].
    pub(crate) amounts: WorkAmounts,
    /// Time between polls that found nothing and the next ones shortly afterwards, ns.
    pub(crate) poll_pauses: u64,
    /// Whether the last call had not returned when the recording ended.
    pub(crate) is_open: bool,
    pub(crate) operations: OperationLists,
    /// Timelines by their numbers in the process.
    pub(crate) local_dependencies: Vec<LocalDependency>,
    pub(crate) step_ranges: Vec<StepRanges>,
    pub(crate) cpus: ThreadCpus,
    /// Samples of Python stacks in its work, by time; empty if there are none.
    pub(crate) python_samples: Vec<WorkSample>,
}

impl ThreadTimeline {
    /// Returns about how many bytes it and its analysis take, at most.
    pub(crate) fn analysis_bytes(&self) -> u64 {
        let OperationLists { message_ends, entries, completions, .. } = &self.operations;
        let lengths = [self.calls.len(), self.work.len(), entries.len(), self.local_dependencies.len()];
        let samples = self.cpus.bytes() + size_of_val(&self.python_samples[..]);
        let kept = (size_of_val(&self.region_ids[..]) + samples + self.amounts.bytes()) as u64;
        CallTimeline::analysis_bytes(lengths, message_ends, completions).saturating_add(kept)
    }

    /// Releases what its lists have reserved to grow: of many threads, that is half of their memory.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.calls.shrink_to_fit();
        self.region_ids.shrink_to_fit();
        self.work.shrink_to_fit();
        self.first_work.shrink_to_fit();
        self.amounts.shrink_to_fit();
        self.operations.message_ends.shrink_to_fit();
        self.operations.entries.shrink_to_fit();
        self.operations.completions.shrink_to_fit();
        self.local_dependencies.shrink_to_fit();
        self.python_samples.shrink_to_fit();
    }
}

/// A call of which the operations are not known before the next call.
#[derive(Clone, Copy, Debug)]
struct PendingCall {
    exit: i64,
    function: u16,
    kind: FunctionKind,
    values: CallValues,
    stack: i64,
    has_completed: bool,
}

struct ThreadSweep<'a, 'b> {
    context: ThreadContext<'a>,
    labels: &'b mut LabelNumbers,
    process: &'b mut ProcessOperations,
    work: ThreadWork<'a>,
    calls: Vec<Call>,
    region_ids: Vec<i64>,
    operations: OperationLists,
    pending: Option<PendingCall>,
    poll_pauses: u64,
    is_last_open: bool,
    communicates: bool,
    /// Number of messages that matched probes took and no call has received yet.
    taken_messages: u64,
    /// Number of this thread among those of its process.
    number: u32,
}

/// Sweeps over the regions of a thread, which are sorted by start, the longer first. Returns `None` if none is a
/// call.
pub(crate) fn sweep_thread(
    regions: &[RegionRow],
    number: u32,
    context: ThreadContext<'_>,
    labels: &mut LabelNumbers,
    process: &mut ProcessOperations,
) -> Option<ThreadTimeline> {
    let call_of = |region: &RegionRow| -> Option<&CallRow> {
        let call = context.calls.get(region.call as usize).filter(|_| region.call != NO_CALL)?;
        let is_rccl = context.names.kind(call.function) == FunctionKind::Rccl;
        (!call.is_marker && !is_rccl).then_some(call)
    };
    let window = context.part.window.map(|window| {
        let (inner, cut) =
            without_cut_calls(window, regions.iter().filter(|region| call_of(region).is_some()));
        process.notes.cut_calls += cut;
        process.notes.cut_ns =
            process.notes.cut_ns.saturating_add(window.1.abs_diff(window.0) - inner.1.abs_diff(inner.0));
        inner
    });
    let spans = || regions.iter().filter_map(|region| Some((region, within(region, window)?)));
    if !spans().any(|(region, _)| call_of(region).is_some()) {
        return None;
    }
    let start = spans().map(|(_, (start, _))| start).min()?;
    let end = spans().map(|(_, (_, end))| end).max()?;
    let thread = regions.first()?.thread;
    let samples = context.samples.get(&thread).map_or(&[][..], Vec::as_slice);
    let mut sweep = ThreadSweep {
        context,
        labels,
        process,
        work: ThreadWork::new(start, samples),
        calls: Vec::new(),
        region_ids: Vec::new(),
        operations: OperationLists::default(),
        pending: None,
        poll_pauses: 0,
        is_last_open: false,
        communicates: false,
        taken_messages: 0,
        number,
    };
    let mut counter = StepRangeCounter::default();
    for (region, (start, end)) in spans() {
        if let Some(call) = call_of(region) {
            // Others overlap a call that the window cuts.
            if (start, end) == (region.start, region.end) {
                sweep.call(region, call);
            }
            continue;
        }
        let class = context.names.class(region.name);
        let depth = sweep.work.depth_at(start);
        counter.add(class, start, end, depth);
        let key = match context.names.is_shared(class) {
            true => LabelKey::Class(class),
            false => LabelKey::Name(region.name),
        };
        let label = sweep.labels.number(key);
        sweep.work.open(start, end, label);
    }
    sweep.finish_pending();
    sweep.work.finish(end, sweep.labels);
    let ranges = spans().filter(|(region, _)| call_of(region).is_none());
    let ranges = ranges.map(|(region, (start, end))| {
        let class = context.names.class(region.name);
        NamedRange { class, name: region.name, start, end }
    });
    Some(ThreadTimeline {
        thread,
        is_stream: false,
        communicates: sweep.communicates,
        start,
        end,
        calls: sweep.calls,
        region_ids: sweep.region_ids,
        work: sweep.work.work,
        first_work: sweep.work.first_work,
        amounts: WorkAmounts::of_segments(sweep.work.ranges),
        poll_pauses: sweep.poll_pauses,
        is_open: sweep.is_last_open,
        operations: sweep.operations,
        local_dependencies: Vec::new(),
        cpus: ThreadCpus::default(),
        python_samples: sweep.work.work_samples,
        step_ranges: counter.candidates(context.part.step_class, end.abs_diff(start), ranges),
    })
}

/// Returns the part of a window between the calls that it cuts, and their number: how long these wait in the window is not
/// known, and their time is no work.
fn without_cut_calls<'r>(
    (from, to): (i64, i64),
    calls: impl Iterator<Item = &'r RegionRow>,
) -> ((i64, i64), u64) {
    let (mut first, mut last, mut cut) = (from, to, 0);
    for call in calls.filter(|call| call.end > from && call.start < to) {
        let (begins_before, ends_after) = (call.start < from, call.end > to);
        cut += u64::from(begins_before || ends_after);
        if begins_before {
            first = first.max(call.end.min(to));
        }
        if ends_after {
            last = last.min(call.start.max(from));
        }
    }
    ((first, last.max(first)), cut)
}

impl ThreadSweep<'_, '_> {
    fn call(&mut self, region: &RegionRow, call: &CallRow) {
        let (mut enter, exit) = (region.start, region.end);
        let kind = self.context.names.kind(call.function);
        let is_poll = kind.is_poll();
        let has_taken = self.process.is_taking_probe(call.stack);
        let kind = if has_taken { FunctionKind::MatchedProbe } else { kind };
        let has_completed = has_taken || self.process.completing_call(call.stack);
        if let Some(last) = &mut self.pending {
            if enter < last.exit && exit <= last.exit {
                // A profiler and our library may both record a call. Only our regions have its values.
                if last.function == call.function && last.values.communicator == NO_COMMUNICATOR {
                    (last.values, last.stack) = (call.values, call.stack);
                }
                self.note_stack(call.stack, kind);
                self.process.notes.nested += 1;
                return;
            }
            if enter < last.exit {
                self.process.notes.overlapping += u64::from(last.exit - enter > MAX_ROUNDING_NS);
                enter = last.exit;
            }
            let is_again = last.kind.is_poll() && is_poll && !last.has_completed;
            if is_again && enter - last.exit <= MAX_POLL_GAP_NS {
                self.poll_again(region, call, kind, has_completed);
                return;
            }
            if is_again && enter - last.exit <= MAX_POLL_PAUSE_NS {
                self.poll_pauses = self.poll_pauses.saturating_add_signed(enter - last.exit);
            }
        }
        self.finish_pending_before(kind, enter);
        let label = self.labels.number(LabelKey::Function(call.function));
        self.work.call(enter, exit, self.border(call), self.labels);
        if let FunctionKind::Gpu(wait) = kind
            && wait != GpuWait::Nothing
        {
            self.process.gpu_waits.push((self.number, self.calls.len() as u32, wait));
        }
        self.calls.push(Call { enter_ns: enter, duration_ns: exit.abs_diff(enter), label });
        if self.context.part.keeps_row_keys {
            self.region_ids.push(region.id);
        }
        self.set_pending(region, call, kind, has_completed);
    }

    fn border(&self, call: &CallRow) -> WorkBorder {
        let is_of_part = self.process.is_of_part(call.values.communicator);
        WorkBorder { function: call.function, is_of_part }
    }

    fn poll_again(&mut self, region: &RegionRow, call: &CallRow, kind: FunctionKind, has_completed: bool) {
        self.process.notes.merged_polls += 1;
        let label = self.labels.number(LabelKey::Function(call.function));
        if let Some(last) = self.calls.last_mut() {
            last.duration_ns = region.end.abs_diff(last.enter_ns);
            last.label = label;
        }
        if let Some(id) = self.region_ids.last_mut() {
            *id = region.id;
        }
        self.work.extend_call(region.end, self.border(call));
        self.set_pending(region, call, kind, has_completed);
    }

    /// Notes that the last call has a stack id, by which the work that it launches or completes refers to it.
    fn note_stack(&mut self, stack: i64, kind: FunctionKind) {
        let place = (self.number, self.calls.len() as u32 - 1);
        match kind {
            FunctionKind::Gpu(_) => self.process.launching.set(stack, place),
            _ => self.process.completing.set(stack, place),
        }
    }

    fn set_pending(&mut self, region: &RegionRow, call: &CallRow, kind: FunctionKind, has_completed: bool) {
        self.note_stack(call.stack, kind);
        self.communicates |= !matches!(kind, FunctionKind::Gpu(_));
        // A call to HIP waits for GPU work, and for no message.
        self.is_last_open = region.is_open && kind.is_of_mpi();
        self.pending = Some(PendingCall {
            exit: region.end,
            function: call.function,
            kind,
            values: call.values,
            stack: call.stack,
            has_completed,
        });
    }

    /// Finishes the last call before the next one, which shows whether a poll for a message found one.
    fn finish_pending_before(&mut self, next: FunctionKind, enter: i64) {
        let is_receive = matches!(next, FunctionKind::Receive { .. });
        if let Some(last) = &mut self.pending {
            let found_message = match last.kind {
                FunctionKind::PollMessage => is_receive && enter - last.exit <= MAX_POLL_GAP_NS,
                FunctionKind::PollMatched => next == FunctionKind::ReceiveMatched,
                _ => false,
            };
            match last.kind {
                FunctionKind::PollMessage if found_message => last.kind = FunctionKind::Probe,
                FunctionKind::PollMatched if found_message => last.kind = FunctionKind::MatchedProbe,
                _ => {}
            }
        }
        self.finish_pending();
    }

    fn finish_pending(&mut self) {
        let Some(last) = self.pending.take() else { return };
        match last.kind {
            FunctionKind::MatchedProbe => self.taken_messages += 1,
            FunctionKind::ReceiveMatched if self.taken_messages > 0 => self.taken_messages -= 1,
            FunctionKind::ReceiveMatched => self.process.notes.unknown_probes += 1,
            _ => {}
        }
        let call = self.calls.len() as u32 - 1;
        let place = (self.number, call);
        self.operations.add(place, last.kind, &last.values, last.function, last.stack, self.process);
    }
}
