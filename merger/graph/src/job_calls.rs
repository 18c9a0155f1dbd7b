//! The calls of a job, as the analysis takes them: compact, in the order of each thread, without texts.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use thiserror::Error;

/// A process or timeline that is not known.
pub const UNKNOWN: u32 = u32::MAX;
/// The peer or the tag of a receive that accepts any, where the actual one was not recorded.
pub const ANY: i32 = i32::MIN;
/// A call to a communication library, 20 bytes.
///
/// Polls that follow one another without work in between, up to the one that succeeds, are one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(Rust, packed(4))]
pub struct Call {
    /// Time at which the thread entered the call, ns in job time.
    pub enter_ns: i64,
    /// Duration, ns.
    pub duration_ns: u64,
    /// Label of its function.
    pub label: u32,
}

impl Call {
    /// Returns the time at which the thread left the call, ns in job time.
    pub fn exit_ns(&self) -> i64 {
        self.enter_ns.saturating_add_unsigned(self.duration_ns)
    }
}

/// Work of a thread between two calls under one label, 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(Rust, packed(4))]
pub struct WorkSegment {
    /// Label: the innermost range, or the place between two calls.
    pub label: u32,
    /// Duration, ns.
    pub ns: u64,
}

/// How a send or receive takes part in a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum MessageRole {
    /// A send that may return before the message is received.
    Send,
    /// A send that never completes before its receive is posted (`MPI_Ssend`, `MPI_Issend`).
    SynchronousSend,
    /// A send that never waits for its receive (`MPI_Bsend`, `MPI_Rsend`).
    BufferedSend,
    /// A receive.
    Receive,
    /// A probe, which waits for a message and leaves it.
    Probe,
}

impl MessageRole {
    /// Returns whether this end sends the message.
    pub fn is_send(self) -> bool {
        matches!(self, MessageRole::Send | MessageRole::SynchronousSend | MessageRole::BufferedSend)
    }
}

/// One end of a message, 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MessageEnd {
    /// Index of the call that sends or posts the receive.
    pub call: u32,
    /// Index of the communicator.
    pub communicator: u32,
    /// Rank of the other process in the communicator, of an intercommunicator in the other group; [`ANY`].
    pub peer: i32,
    /// Tag; [`ANY`].
    pub tag: i32,
    /// Size, bytes: of a receive the size of its buffer. Larger sizes are [`MessageEnd::MAX_BYTES`], and sizes that are
    /// not recorded [`MessageEnd::UNKNOWN_BYTES`].
    pub bytes: u32,
    /// Side of the message.
    pub role: MessageRole,
    /// Whether the call itself completes the operation. Otherwise a [`Completion`] does.
    pub is_blocking: bool,
}

/// Which members a member of a collective waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CollectiveWaits {
    /// Every member waits for all.
    ForAll,
    /// Every member waits for the root.
    ForRoot,
    /// The root waits for all members.
    RootForAll,
    /// Every member waits for the members of lower rank.
    ForLower,
    /// Nothing says which member waits for which.
    Unknown,
}

impl MessageEnd {
    /// Maximum size, nearly 4 GiB.
    pub const MAX_BYTES: u32 = u32::MAX - 1;
    /// Size that is not recorded.
    pub const UNKNOWN_BYTES: u32 = u32::MAX;

    /// Returns the size that contradicts nothing, if it is not recorded: 0 of a send, of a receive the largest.
    pub(crate) fn assumed_bytes(&self) -> u32 {
        if self.role.is_send() && self.bytes == MessageEnd::UNKNOWN_BYTES { 0 } else { self.bytes }
    }
}

/// The entry of a process into a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectiveEntry {
    /// Index of the call that enters.
    pub call: u32,
    /// Index of the communicator.
    pub communicator: u32,
    /// Number of the collective on the communicator; [`CollectiveEntry::INIT_NUMBER`],
    /// [`CollectiveEntry::FINALIZE_NUMBER`].
    pub number: u32,
    /// Function, in a numbering that all processes share. All members must enter by the same.
    pub function: u32,
    /// Rank of the root in the communicator, of a collective that has one.
    pub root: i32,
    /// Which members wait.
    pub waits: CollectiveWaits,
    /// Whether the call itself completes the collective. Otherwise a [`Completion`] does.
    pub is_blocking: bool,
    /// Class of the bytes that the call passes, of a kernel its elements, see [`CollectiveEntry::size_class`]; 0 if they are
    /// not recorded.
    pub size_class: u8,
    /// Whether all members must pass as many bytes.
    pub is_size_shared: bool,
}

impl CollectiveEntry {
    /// Number of the entry by `MPI_Init` into `MPI_COMM_WORLD`, after which collectives count from 0.
    pub const INIT_NUMBER: u32 = u32::MAX - 1;
    /// Number of the entry by `MPI_Finalize` into `MPI_COMM_WORLD`.
    pub const FINALIZE_NUMBER: u32 = u32::MAX;
}

/// A call that saw the completion of an operation which an earlier call of the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Completion {
    /// Index of the call.
    pub call: u32,
    /// Timeline of the process that began the operation: another than this one, if another thread began it.
    pub begun_on: u32,
    /// What it completed.
    pub operation: BegunOperation,
}

/// An operation that a call begins and another one completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum BegunOperation {
    /// Index of the message end.
    Message(u32),
    /// Index of the collective entry.
    Collective(u32),
}

/// A place in a timeline at which calls with messages of a communicator are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallGap {
    /// Index of the communicator.
    pub communicator: u32,
    /// Index after the last call that is before the gap.
    pub from: u32,
    /// Index of the first call that is after the gap. Whether the calls from `from` on are before or after it is not
    /// known.
    pub to: u32,
    /// Number of missing calls; [`UNKNOWN`] if it is not known.
    pub missing: u32,
}

/// That a call returns only after another timeline of its process has entered a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalDependency {
    /// Index of the call that waits.
    pub call: u32,
    /// The other timeline.
    pub awaited_timeline: u32,
    /// Index of its call.
    pub awaited_call: u32,
}

/// The calls of one thread, or of a stream of a GPU.
///
/// On a stream, kernels and copies are work. Before each of them is a call that waits for the call of a thread that
/// launched it. Kernels of collectives are calls: they wait for other GPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallTimeline {
    /// Process of the thread.
    pub process: u32,
    /// Whether this is a stream of a GPU.
    pub is_stream: bool,
    /// Node of the process.
    pub node: u32,
    /// First recorded time, ns in job time.
    pub start_ns: i64,
    /// Last recorded time, ns in job time.
    pub end_ns: i64,
    /// Error bound of the process's times against those of other nodes, ns; `None` if it is not known.
    pub error_bound_ns: Option<u64>,
    /// The same at moments of job time, ascending, where it is known how it changes; otherwise empty.
    pub error_bounds: Arc<[(i64, Option<u64>)]>,
    /// Work between polls that found nothing and the next ones shortly afterwards, ns. It may be pauses of waiting.
    pub poll_pauses_ns: u64,
    /// Whether the last call had not returned when the recording ended.
    pub is_open: bool,
    /// Whether calls of the process were dropped or are not recorded.
    pub lacks_calls: bool,
    /// Where calls with messages are missing, by communicator and then by place. `None`, if that is not known of a
    /// timeline that lacks calls.
    pub gaps: Option<Vec<CallGap>>,
    /// The calls, in order of time. They do not overlap.
    pub calls: Vec<Call>,
    /// Work before each call and after the last one, in order of time.
    pub work: Vec<WorkSegment>,
    /// Index of the first segment in `work` before each call, then that after the last call, then `work.len()`.
    pub first_work: Vec<u32>,
    /// Ends of messages, by call.
    pub message_ends: Vec<MessageEnd>,
    /// Entries into collectives, by call.
    pub entries: Vec<CollectiveEntry>,
    /// Completions, by call.
    pub completions: Vec<Completion>,
    /// Launches, kernels and copies of the own process for which calls wait, by call.
    pub local_dependencies: Vec<LocalDependency>,
    /// Index of the first call of each step, ascending, then the index after the last call of the last step.
    /// Empty if there are no steps.
    pub first_call_of_step: Vec<u32>,
}

impl CallTimeline {
    /// Returns the error bound of a time of the process, ns in job time: the larger one of the two moments around it.
    /// `None` if it is not known.
    pub fn error_bound_at(&self, time_ns: i64) -> Option<u64> {
        let Some(last) = self.error_bounds.len().checked_sub(1) else { return self.error_bound_ns };
        let after = self.error_bounds.partition_point(|(moment, _)| *moment < time_ns);
        let [before, after] =
            [after.saturating_sub(1), after.min(last)].map(|place| self.error_bounds[place].1);
        before.zip(after).map(|(before, after)| before.max(after))
    }

    /// Returns the calls of a stream that are kernels of collectives. Their time without waiting is work of the GPU.
    pub(crate) fn collective_kernels(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().filter(|_| self.is_stream).map(|entry| entry.call)
    }

    /// Returns whether a call of a stream is the kernel of a collective.
    pub fn is_collective_kernel(&self, call: usize) -> bool {
        self.is_stream && self.entries.binary_search_by_key(&call, |entry| entry.call as usize).is_ok()
    }

    /// Returns the duration of all work, ns.
    pub fn all_work_ns(&self) -> u64 {
        self.work.iter().fold(0, |sum, segment| sum.saturating_add(segment.ns))
    }

    /// Returns the segments of work before a call; of the index after the last call, those after it.
    pub fn work_before(&self, call: usize) -> &[WorkSegment] {
        let range = self.first_work.get(call).zip(self.first_work.get(call + 1));
        range.and_then(|(from, to)| self.work.get(*from as usize..*to as usize)).unwrap_or_default()
    }

    /// Returns the duration of the work before a call, ns.
    pub fn work_ns_before(&self, call: usize) -> u64 {
        self.work_before(call).iter().fold(0, |sum, segment| sum.saturating_add(segment.ns))
    }
}

/// The processes of a communicator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommunicatorMembers {
    /// Process of each rank, or [`UNKNOWN`]: one group, or the two groups of an intercommunicator.
    pub groups: Vec<Vec<u32>>,
}

/// Messages before the part of the run that the calls are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagesBefore {
    /// The process.
    pub process: u32,
    /// Index of the communicator.
    pub communicator: u32,
    /// Rank of the other process, as in [`MessageEnd::peer`].
    pub peer: i32,
    /// Tag; [`ANY`].
    pub tag: i32,
    /// Whether the process sends them.
    pub is_send: bool,
    /// Number of messages.
    pub count: u32,
}

/// The calls of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobCalls {
    /// The threads that communicate, by process.
    pub timelines: Vec<CallTimeline>,
    /// The communicators.
    pub communicators: Vec<CommunicatorMembers>,
    /// Number of processes.
    pub processes: u32,
    /// Number of labels of work and of functions.
    pub labels: u32,
    /// Number of steps; 0 if the job has none.
    pub steps: u32,
    /// Shortest time that a message takes between two nodes, ns, if it was measured.
    pub latency_ns: Option<u64>,
    /// Number of messages and collectives that are not in the timelines, because too little of them was recorded.
    pub unusable_operations: u64,
    /// Whether the calls are of a part of the run, so that other ends of messages may be outside of it.
    pub is_part: bool,
    /// The messages before this part.
    pub messages_before: Vec<MessagesBefore>,
}

/// What contradicts itself in the calls of a job.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CallsError {
    /// A list of a timeline refers to something that is not there, or does not ascend.
    #[error("timeline {timeline}: {list} {index} {problem}")]
    Timeline {
        /// Index of the timeline.
        timeline: usize,
        /// The list.
        list: &'static str,
        /// Index in the list.
        index: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A member of a communicator is no process of the job.
    #[error("a member of a communicator is no process of the job")]
    UnknownMember,
    /// The job has more timelines, calls or labels than their numbers can count.
    #[error("the job has more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

/// Maximum number of timelines and of steps.
const MAX_TIMELINES: usize = 1 << 24;
/// Maximum number of calls of a timeline.
const MAX_CALLS: usize = 1 << 31;
/// Maximum time of a timeline, ns: its times fit into an `i64`.
const MAX_NS: u64 = i64::MAX as u64;

impl JobCalls {
    /// Minimum number of steps: fewer do not show whether a rank is slow or was so by chance.
    pub const MIN_STEPS: usize = 10;

    /// Returns the processes of timelines.
    pub(crate) fn processes_of(&self, timelines: &[u32]) -> BTreeSet<u32> {
        timelines.iter().map(|timeline| self.timelines[*timeline as usize].process).collect()
    }

    /// Returns whether the times of all threads can be compared: they are of one node, or have error bounds.
    pub(crate) fn has_comparable_times(&self) -> bool {
        let is_of_one_node = self.timelines.iter().all(|timeline| timeline.node == self.timelines[0].node);
        let has_bound = |timeline: &CallTimeline| timeline.error_bound_at(timeline.start_ns).is_some();
        is_of_one_node || self.timelines.iter().all(has_bound)
    }

    /// Releases the ends of messages and the completions, about 30 bytes of each call, which the analysis does not need
    /// once [`CallDependencies`](crate::CallDependencies) are found. Then the job has no messages that could be listed.
    pub fn forget_messages(&mut self) {
        for timeline in &mut self.timelines {
            timeline.message_ends = Vec::new();
            timeline.completions = Vec::new();
        }
    }

    /// Checks that all indices refer to something, so that the analysis needs no checks of its own.
    ///
    /// # Errors
    /// [`CallsError`] with the first contradiction.
    pub fn check(&self) -> Result<(), CallsError> {
        if self.timelines.len() > MAX_TIMELINES {
            return Err(CallsError::TooMany { what: "timelines", limit: MAX_TIMELINES as u64 });
        }
        let members = self.communicators.iter().flat_map(|members| members.groups.iter().flatten());
        if members.clone().any(|process| *process != UNKNOWN && *process >= self.processes) {
            return Err(CallsError::UnknownMember);
        }
        let is_known = |before: &MessagesBefore| {
            before.process < self.processes && (before.communicator as usize) < self.communicators.len()
        };
        if !self.messages_before.iter().all(is_known) {
            return Err(CallsError::UnknownMember);
        }
        (0..self.timelines.len()).try_for_each(|timeline| self.check_timeline(timeline))
    }

    fn check_timeline(&self, index: usize) -> Result<(), CallsError> {
        let timeline = &self.timelines[index];
        let calls = timeline.calls.len();
        if calls > MAX_CALLS {
            return Err(CallsError::TooMany { what: "calls in a thread", limit: MAX_CALLS as u64 });
        }
        let fault = |list, index_in_list, problem| CallsError::Timeline {
            timeline: index,
            list,
            index: index_in_list,
            problem,
        };
        if timeline.process >= self.processes {
            return Err(fault("process", timeline.process as usize, "is not one of the job"));
        }
        let mut last_exit = timeline.start_ns;
        for (i, call) in timeline.calls.iter().enumerate() {
            if call.enter_ns < last_exit {
                return Err(fault("call", i, "begins before the end of the one before"));
            }
            if call.label >= self.labels {
                return Err(fault("call", i, "has no label"));
            }
            last_exit = call.exit_ns();
        }
        if let Some(i) = timeline.work.iter().position(|segment| segment.label >= self.labels) {
            return Err(fault("segment of work", i, "has no label"));
        }
        let times = timeline.work.iter().map(|segment| segment.ns);
        let times = times.chain(timeline.calls.iter().map(|call| call.duration_ns));
        let total = times.fold(0, u64::saturating_add).max(timeline.end_ns.abs_diff(timeline.start_ns));
        if total > MAX_NS {
            return Err(CallsError::TooMany { what: "ns in a thread", limit: MAX_NS });
        }
        let ends_well = timeline.first_work.last().is_some_and(|end| *end as usize == timeline.work.len());
        if timeline.first_work.len() != calls + 2 || !timeline.first_work.is_sorted() || !ends_well {
            return Err(fault("first segments of work", timeline.first_work.len(), "do not fit the calls"));
        }
        for (i, end) in timeline.message_ends.iter().enumerate() {
            if end.call as usize >= calls || end.communicator as usize >= self.communicators.len() {
                return Err(fault("message", i, "refers to no call or no communicator"));
            }
        }
        let gaps = timeline.gaps.as_deref().unwrap_or_default();
        for (i, gap) in gaps.iter().enumerate() {
            let is_known = (gap.communicator as usize) < self.communicators.len();
            if !is_known || gap.from > gap.to || gap.to as usize > calls {
                return Err(fault("gap", i, "is at no call or of no communicator"));
            }
        }
        if !gaps.is_sorted_by(|one, other| (one.communicator, one.to) <= (other.communicator, other.from)) {
            return Err(fault("gaps", 0, "are not in the order of calls"));
        }
        for (i, entry) in timeline.entries.iter().enumerate() {
            if entry.call as usize >= calls || entry.communicator as usize >= self.communicators.len() {
                return Err(fault("collective", i, "refers to no call or no communicator"));
            }
        }
        for (i, completion) in timeline.completions.iter().enumerate() {
            let begun_on = self.timelines.get(completion.begun_on as usize);
            let begun = begun_on.filter(|begun| begun.process == timeline.process);
            let is_known = begun.is_some_and(|begun| match completion.operation {
                BegunOperation::Message(end) => (end as usize) < begun.message_ends.len(),
                BegunOperation::Collective(entry) => (entry as usize) < begun.entries.len(),
            });
            if completion.call as usize >= calls || !is_known {
                return Err(fault("completion", i, "refers to no call or no operation"));
            }
        }
        for (i, found) in timeline.local_dependencies.iter().enumerate() {
            let awaited = self.timelines.get(found.awaited_timeline as usize);
            let awaited = awaited.filter(|awaited| awaited.process == timeline.process);
            let is_known = awaited.is_some_and(|awaited| (found.awaited_call as usize) < awaited.calls.len());
            if found.call as usize >= calls || !is_known {
                return Err(fault("local dependency", i, "refers to no call of the process"));
            }
        }
        let by_call = timeline.message_ends.is_sorted_by_key(|end| end.call)
            && timeline.entries.is_sorted_by_key(|entry| entry.call)
            && timeline.completions.is_sorted_by_key(|completion| completion.call)
            && timeline.local_dependencies.is_sorted_by_key(|found| found.call);
        let steps = &timeline.first_call_of_step;
        let steps_fit = steps.is_empty()
            || (self.steps > 0
                && steps.len() == self.steps as usize + 1
                && steps.is_sorted()
                && steps.last().is_some_and(|end| *end as usize <= calls));
        match (by_call, steps_fit) {
            (false, _) => Err(fault("operations", 0, "are not in the order of calls")),
            (_, false) => Err(fault("steps", steps.len(), "do not fit the calls")),
            _ => Ok(()),
        }
    }
}
