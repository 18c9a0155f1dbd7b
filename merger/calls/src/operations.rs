//! What calls do: messages, collectives, and the completion of both.

use crate::call_values::{CallValues, NO_COMMUNICATOR};
use crate::functions::{FunctionKind, GpuWait};
use crate::gpu_rows::GpuRow;
use crate::id_index::IdIndex;
use crate::thread_calls::ThreadTimeline;
use crate::unit_rows::{CallRow, SampleRow};
use rpd_graph::{ANY, BegunOperation, CollectiveEntry, CollectiveWaits, Completion, MessageEnd, MessageRole};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// `MPI_COMM_WORLD` in entries by `MPI_Init` and `MPI_Finalize`, which name no communicator.
pub(crate) const WORLD: u32 = NO_COMMUNICATOR - 1;

/// Numbers of calls of a process that the analysis cannot use as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ProcessNotes {
    /// Calls inside of another call, which are left out.
    pub(crate) nested: u64,
    /// Polls that became part of the next one.
    pub(crate) merged_polls: u64,
    /// Calls that overlap another one by more than rounding.
    pub(crate) overlapping: u64,
    /// Calls that the window cuts, which are left out.
    pub(crate) cut_calls: u64,
    /// Time of the window in these calls, ns.
    pub(crate) cut_ns: u64,
    /// Messages and collectives without a communicator or number.
    pub(crate) without_communicator: u64,
    /// Receives of `MPI_Sendrecv` of which the source is not recorded.
    pub(crate) unknown_receive_halves: u64,
    /// Starts of persistent operations that are not recorded.
    pub(crate) unknown_starts: u64,
    /// Messages that a matched probe took, it is not known which.
    pub(crate) unknown_probes: u64,
    /// Completions of operations that are not known.
    pub(crate) unknown_completions: u64,
    /// Numbers on communicators that no call has.
    pub(crate) missing_numbers: u64,
    /// Whether the process starts persistent operations. The calls that do so have no numbers.
    pub(crate) has_starts: bool,
}

impl ProcessNotes {
    /// Returns the number of messages and collectives that are not in the timelines.
    pub(crate) fn unusable_operations(&self) -> u64 {
        let counts = [
            self.without_communicator,
            self.unknown_receive_halves,
            self.unknown_starts,
            self.unknown_probes,
            self.unknown_completions,
        ];
        counts.into_iter().fold(0, u64::saturating_add)
    }
}

/// What the calls of a thread do, in the order of calls.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OperationLists {
    pub(crate) message_ends: Vec<MessageEnd>,
    /// `function` is the number of [`crate::region_names::RegionNames`].
    pub(crate) entries: Vec<CollectiveEntry>,
    pub(crate) completions: Vec<Completion>,
}

/// Values of stack ids that are known beforehand.
#[derive(Debug)]
pub(crate) struct StackTable<T> {
    index: IdIndex,
    values: Vec<Option<T>>,
}

impl<T: Copy> StackTable<T> {
    fn new(stacks: Vec<i64>) -> StackTable<T> {
        StackTable { index: IdIndex::new(&stacks), values: vec![None; stacks.len()] }
    }

    fn contains(&self, stack: i64) -> bool {
        self.index.row(stack).is_some()
    }

    pub(crate) fn get(&self, stack: i64) -> Option<T> {
        self.values.get(self.index.row(stack)?).copied().flatten()
    }

    /// Sets the value of a stack id, if it is one of those that are known.
    pub(crate) fn set(&mut self, stack: i64, value: T) {
        if let Some(place) = self.index.row(stack).and_then(|row| self.values.get_mut(row)) {
            *place = Some(value);
        }
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten()
    }
}

/// State that the threads of a process share.
#[derive(Debug)]
pub(crate) struct ProcessOperations {
    /// Thread and call of each stack id that completes an operation; `None` until the call is read.
    pub(crate) completing: StackTable<(u32, u32)>,
    /// Thread and call of each stack id that launches GPU work; `None` until the call is read.
    pub(crate) launching: StackTable<(u32, u32)>,
    /// Thread and operation of each stack id that begins one which completes; `None` until the call is read.
    pub(crate) begun: StackTable<(u32, BegunOperation)>,
    /// Thread and call of each stack id that starts persistent operations.
    pub(crate) starts: HashMap<i64, (u32, u32)>,
    /// Operation of each request of a persistent operation, in their order.
    pub(crate) persistent: Vec<Option<(u32, BegunOperation)>>,
    /// Thread, call and kind of each call that waits for GPU work.
    pub(crate) gpu_waits: Vec<(u32, u32, GpuWait)>,
    /// Stack ids of matched probes whose messages later calls receive.
    taking_probes: HashSet<i64>,
    /// Communicators that have fewer ranks than another one of the process.
    smaller_communicators: HashSet<u32>,
    pub(crate) notes: ProcessNotes,
}

impl ProcessOperations {
    /// Prepares for the calls, the completions, the created communicators and the GPU work of a process.
    pub(crate) fn new<'a>(
        requests: impl Iterator<Item = &'a SampleRow> + Clone,
        created: impl Iterator<Item = &'a SampleRow> + Clone,
        calls: impl Iterator<Item = &'a CallRow>,
        gpu_work: &[GpuRow],
    ) -> ProcessOperations {
        let ids = |of: fn(&SampleRow) -> i64| requests.clone().map(of).filter(|stack| *stack != 0).collect();
        let probes = calls.map(|call| call.values.other_stack).filter(|stack| *stack != 0);
        let sizes = created.filter_map(|sample| Some((sample.values.communicator, sample.values.size?)));
        let sizes = sizes.filter(|(communicator, _)| *communicator != NO_COMMUNICATOR);
        let largest = sizes.clone().map(|(_, size)| size).max();
        let smaller = sizes.filter(|(_, size)| Some(*size) < largest).map(|(communicator, _)| communicator);
        ProcessOperations {
            completing: StackTable::new(ids(|sample| sample.parent)),
            begun: StackTable::new(ids(|sample| sample.stack)),
            launching: StackTable::new(
                gpu_work.iter().map(|row| row.stack).filter(|stack| *stack != 0).collect(),
            ),
            starts: HashMap::new(),
            persistent: Vec::new(),
            gpu_waits: Vec::new(),
            taking_probes: probes.collect(),
            smaller_communicators: smaller.collect(),
            notes: ProcessNotes::default(),
        }
    }

    /// Returns whether a communicator has fewer ranks than another one of the process.
    pub(crate) fn is_of_part(&self, communicator: u32) -> bool {
        !self.smaller_communicators.is_empty() && self.smaller_communicators.contains(&communicator)
    }

    /// Returns whether a call receives the message of this matched probe.
    pub(crate) fn is_taking_probe(&self, stack: i64) -> bool {
        self.taking_probes.contains(&stack)
    }

    /// Returns whether a call completed operations.
    pub(crate) fn completing_call(&self, stack: i64) -> bool {
        self.completing.contains(stack)
    }

    /// Adds the completions to the calls that saw them, and the actual source and tag to receives.
    pub(crate) fn complete<'a>(
        &mut self,
        requests: impl Iterator<Item = &'a SampleRow>,
        timelines: &mut [ThreadTimeline],
    ) {
        let mut persistent = std::mem::take(&mut self.persistent).into_iter();
        for sample in requests {
            let of_persistent = persistent.next().flatten();
            let seen_by = self.completing.get(sample.parent);
            let begun = of_persistent.or_else(|| self.begun.get(sample.stack));
            let (Some((thread, call)), Some((begun_on, operation))) = (seen_by, begun) else {
                self.notes.unknown_completions += 1;
                continue;
            };
            let begun_lists = timelines.get_mut(begun_on as usize).map(|timeline| &mut timeline.operations);
            if let (BegunOperation::Message(end), Some(lists)) = (operation, begun_lists)
                && let Some(end) = lists.message_ends.get_mut(end as usize)
            {
                let actual = |stored: i32, found: i32| if found == ANY { stored } else { found };
                end.peer = actual(end.peer, sample.values.peer);
                end.tag = actual(end.tag, sample.values.tag);
            }
            if let Some(timeline) = timelines.get_mut(thread as usize) {
                timeline.operations.completions.push(Completion { call, begun_on, operation });
            }
        }
        for timeline in timelines {
            timeline.operations.completions.sort_by_key(|completion| completion.call);
        }
    }
}

impl OperationLists {
    /// Adds what a call does. `place` is its thread and its index there.
    pub(crate) fn add(
        &mut self,
        place: (u32, u32),
        kind: FunctionKind,
        values: &CallValues,
        function: u16,
        stack: i64,
        process: &mut ProcessOperations,
    ) {
        use FunctionKind as Kind;
        let (thread, call) = place;
        let is_known = values.communicator != NO_COMMUNICATOR;
        let end = |role: MessageRole, is_blocking: bool| MessageEnd {
            call,
            communicator: values.communicator,
            peer: values.peer,
            tag: values.tag,
            bytes: values.bytes,
            role,
            is_blocking,
        };
        let message = match kind {
            Kind::Send { role, is_blocking } => end(role, is_blocking),
            Kind::Receive { is_blocking } => end(MessageRole::Receive, is_blocking),
            Kind::SendAndReceive { is_blocking } => {
                let Some((peer, tag, bytes)) = values.received.filter(|_| is_known) else {
                    process.notes.unknown_receive_halves += 1;
                    return self.add_end(end(MessageRole::Send, is_blocking), place, stack, process);
                };
                let receive = MessageEnd { peer, tag, bytes, ..end(MessageRole::Receive, is_blocking) };
                self.add_end(receive, place, stack, process);
                end(MessageRole::Send, is_blocking)
            }
            Kind::Probe => end(MessageRole::Probe, true),
            Kind::MatchedProbe => end(MessageRole::Receive, true),
            Kind::Initialize | Kind::Finalize => {
                let number = if kind == Kind::Initialize {
                    CollectiveEntry::INIT_NUMBER
                } else {
                    CollectiveEntry::FINALIZE_NUMBER
                };
                let communicator = WORLD;
                let waits = CollectiveWaits::ForAll;
                // Both forms of MPI_Init are one function here.
                let function = number;
                let entry = CollectiveEntry {
                    call,
                    communicator,
                    number,
                    function,
                    root: -1,
                    waits,
                    is_blocking: true,
                    size_class: 0,
                    is_size_shared: false,
                };
                self.entries.push(entry);
                return;
            }
            Kind::Collective { waits, is_blocking, is_size_shared } => {
                let number = values.seq.checked_sub(1).and_then(|seq| u32::try_from(seq).ok());
                let number = number.filter(|number| *number < CollectiveEntry::INIT_NUMBER);
                let (Some(number), true) = (number, is_known) else {
                    process.notes.without_communicator += 1;
                    return;
                };
                if !is_blocking && stack != 0 {
                    let operation = BegunOperation::Collective(self.entries.len() as u32);
                    process.begun.set(stack, (thread, operation));
                }
                let function = u32::from(function);
                let (communicator, root) = (values.communicator, values.root);
                let entry = CollectiveEntry {
                    call,
                    communicator,
                    number,
                    function,
                    root,
                    waits,
                    is_blocking,
                    size_class: CollectiveEntry::size_class(values.bytes),
                    is_size_shared,
                };
                self.entries.push(entry);
                return;
            }
            Kind::Start => {
                process.starts.insert(stack, place);
                return;
            }
            Kind::ReceiveMatched
            | Kind::PollMessage
            | Kind::PollMatched
            | Kind::PollRequests
            | Kind::Prepare(_)
            | Kind::Gpu(_)
            | Kind::Rccl
            | Kind::Other => return,
        };
        self.add_end(message, place, stack, process);
    }

    fn add_end(&mut self, end: MessageEnd, place: (u32, u32), stack: i64, process: &mut ProcessOperations) {
        if end.communicator == NO_COMMUNICATOR {
            process.notes.without_communicator += 1;
            return;
        }
        if !end.is_blocking && stack != 0 {
            let operation = BegunOperation::Message(self.message_ends.len() as u32);
            process.begun.set(stack, (place.0, operation));
        }
        self.message_ends.push(end);
    }
}
