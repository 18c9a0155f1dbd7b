use super::clock_errors::ClockErrors;
use super::operation::SendMode;
use super::program::Program;
use super::recorder::{
    CallOperation, CalledCollective, CalledMessage, MessageStatus, ModelCall, RunRecorder,
};
use rpd_calls::mark_steps_without_ranges;
use rpd_graph::{
    ANY, BegunOperation, Call, CallGap, CallTimeline, CollectiveEntry, CommunicatorMembers, Completion,
    JobCalls, MessageEnd, MessageRole, UNKNOWN, WorkSegment,
};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// What a label of [`ModelledCalls`] stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LabelText {
    /// A range.
    Range(&'static str),
    /// A function of MPI.
    Function(&'static str),
    /// Work without a range between two calls; the start and the end of the program have no name.
    Between(&'static str, &'static str),
}

/// The calls of a run in the form that the analysis takes.
#[derive(Clone, Debug, Default)]
pub struct ModelledCalls {
    /// The calls.
    pub job: JobCalls,
    /// Texts of the labels.
    pub labels: Vec<LabelText>,
    /// True messages: timeline and number of the sending and the receiving end.
    pub messages: Vec<((u32, u32), (u32, u32))>,
    /// Number of each message end of a timeline in `messages`, which count those that are missing.
    pub end_numbers: Vec<Vec<u32>>,
    /// Number of calls that are missing.
    pub dropped: u64,
}

impl ModelledCalls {
    /// Returns the name of the range that a label is.
    pub fn range(&self, label: u32) -> Option<&'static str> {
        match self.labels.get(label as usize)? {
            LabelText::Range(name) => Some(name),
            _ => None,
        }
    }
}

/// Calls that were dropped, because a ring was full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DroppedCalls {
    /// The rank.
    pub rank: u32,
    /// Numbers of its calls, from 0.
    pub calls: Range<u64>,
}

/// How the calls are recorded.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CallRecording {
    /// Errors of the clocks.
    pub clocks: ClockErrors,
    /// Calls that are missing.
    pub dropped: Vec<DroppedCalls>,
    /// Whether true messages are kept.
    pub keeps_messages: bool,
}

/// Makes [`ModelledCalls`] of a run.
#[derive(Debug)]
pub struct CallRecorder<'a> {
    recording: &'a CallRecording,
    calls: ModelledCalls,
    numbers: HashMap<LabelText, u32>,
    ranks: Vec<RecordedRank>,
}

#[derive(Clone, Debug, Default)]
struct RecordedRank {
    /// Work since the last call: name of the range, ns.
    pending: Vec<(Option<&'static str>, u64)>,
    last_function: &'static str,
    slots: Vec<Option<BegunOperation>>,
    calls: u64,
    /// Number of its message ends.
    ends: u32,
    /// The numbers of its calls with messages, by communicator.
    numbers: BTreeMap<u32, MessageNumbers>,
    has_starts: bool,
}

/// The numbers that the collector gives to the calls with messages of a rank on a communicator, but `MPI_Start`.
#[derive(Clone, Copy, Debug, Default)]
struct MessageNumbers {
    /// Number of calls.
    all: u32,
    /// Number of calls up to the last one that was recorded, and the index of the call after it.
    recorded: u32,
    next_call: u32,
}

impl<'a> CallRecorder<'a> {
    /// Returns a recorder of a run of a program.
    pub fn new(program: &Program, recording: &'a CallRecording) -> CallRecorder<'a> {
        let timelines = (0..program.ranks).map(|rank| CallTimeline {
            process: rank,
            node: program.node_of(rank),
            start_ns: recording.clocks.job_time(program.node_of(rank), 0),
            error_bound_ns: recording.clocks.error_bound_ns,
            first_work: vec![0],
            ..CallTimeline::default()
        });
        let members = |groups: &Vec<Vec<u32>>| CommunicatorMembers { groups: groups.clone() };
        let job = JobCalls {
            timelines: timelines.collect(),
            communicators: program.communicators.iter().map(|found| members(&found.groups)).collect(),
            processes: program.ranks,
            labels: 0,
            steps: program.steps,
            latency_ns: None,
            ..JobCalls::default()
        };
        CallRecorder {
            recording,
            calls: ModelledCalls {
                job,
                end_numbers: vec![Vec::new(); program.ranks as usize],
                ..ModelledCalls::default()
            },
            numbers: HashMap::new(),
            ranks: vec![RecordedRank::default(); program.ranks as usize],
        }
    }

    /// Returns the calls, with the latency that the clocks measured between nodes. Those of a program without ranges of
    /// steps have the steps that rpd-calls finds.
    pub fn finish(mut self, latency_ns: u64) -> ModelledCalls {
        self.calls.job.latency_ns = Some(latency_ns);
        self.calls.job.labels = self.calls.labels.len() as u32;
        self.locate_gaps();
        if self.calls.job.steps == 0 {
            let _ = mark_steps_without_ranges(&mut self.calls.job);
        }
        self.calls
    }

    /// Stores which calls may be missing, as far as the numbers of the recorded ones show it.
    fn locate_gaps(&mut self) {
        let timelines = &self.calls.job.timelines;
        let gaps = timelines.iter().flat_map(|timeline| timeline.gaps.iter().flatten());
        let of_messages: u64 = gaps.map(|gap| u64::from(gap.missing)).sum();
        let of_collectives: u64 = timelines.iter().map(missing_collectives).sum();
        let are_unseen = self.calls.dropped > of_messages + of_collectives;
        for (timeline, rank) in self.calls.job.timelines.iter_mut().zip(&self.ranks) {
            let mut gaps = timeline.gaps.take().unwrap_or_default();
            timeline.lacks_calls = are_unseen || !gaps.is_empty() || missing_collectives(timeline) > 0;
            if are_unseen {
                // The last calls may be missing on any communicator.
                let to = timeline.calls.len() as u32;
                gaps.extend(rank.numbers.iter().map(|(communicator, numbers)| CallGap {
                    communicator: *communicator,
                    from: numbers.next_call,
                    to,
                    missing: UNKNOWN,
                }));
            }
            gaps.sort_by_key(|gap| (gap.communicator, gap.from));
            // No number shows that MPI_Start is missing.
            timeline.gaps = Some(gaps).filter(|_| timeline.lacks_calls && !(are_unseen && rank.has_starts));
        }
    }

    /// Takes the number of a call with messages, and notes those before it that were not recorded.
    fn take_number(&mut self, call: &ModelCall<'_>, is_recorded: bool) {
        let state = &mut self.ranks[call.rank as usize];
        if call.function.starts_with("MPI_Start") {
            state.has_starts |= is_recorded;
            return;
        }
        let communicator = call.operations.iter().find_map(|operation| match operation {
            CallOperation::Send(message, _)
            | CallOperation::Receive(message, _)
            | CallOperation::Prepare(message, _) => Some(message.communicator),
            _ => None,
        });
        let Some(communicator) = communicator else { return };
        let numbers = state.numbers.entry(communicator).or_default();
        numbers.all += 1;
        if !is_recorded {
            return;
        }
        let timeline = &mut self.calls.job.timelines[call.rank as usize];
        let this = timeline.calls.len() as u32 - 1;
        let missing = numbers.all - numbers.recorded - 1;
        if missing > 0 {
            let gap = CallGap { communicator, from: numbers.next_call, to: this, missing };
            timeline.gaps.get_or_insert_default().push(gap);
        }
        (numbers.recorded, numbers.next_call) = (numbers.all, this + 1);
    }

    fn label(&mut self, text: LabelText) -> u32 {
        let labels = &mut self.calls.labels;
        *self.numbers.entry(text).or_insert_with(|| {
            labels.push(text);
            labels.len() as u32 - 1
        })
    }

    fn job_time(&self, rank: u32, at_ns: i64) -> i64 {
        self.recording.clocks.job_time(self.calls.job.timelines[rank as usize].node, at_ns)
    }

    fn is_dropped(&self, rank: u32, call: u64) -> bool {
        self.recording.dropped.iter().any(|dropped| dropped.rank == rank && dropped.calls.contains(&call))
    }

    /// Adds the work since the last call, before a function.
    fn add_work(&mut self, rank: u32, function: &'static str) {
        let state = &mut self.ranks[rank as usize];
        let last = std::mem::replace(&mut state.last_function, function);
        let pending = std::mem::take(&mut state.pending);
        for (range, ns) in &pending {
            let text = range.map_or(LabelText::Between(last, function), LabelText::Range);
            let label = self.label(text);
            let work = &mut self.calls.job.timelines[rank as usize].work;
            work.push(WorkSegment { label, ns: *ns });
        }
        self.ranks[rank as usize].pending = pending;
        self.ranks[rank as usize].pending.clear();
        let timeline = &mut self.calls.job.timelines[rank as usize];
        timeline.first_work.push(timeline.work.len() as u32);
    }

    fn add_operation(&mut self, rank: u32, operation: &CallOperation) {
        let timeline = &self.calls.job.timelines[rank as usize];
        let call = timeline.calls.len() as u32 - 1;
        match *operation {
            CallOperation::Send(message, mode) => {
                let role = match mode {
                    SendMode::Standard => MessageRole::Send,
                    SendMode::Synchronous => MessageRole::SynchronousSend,
                    SendMode::Buffered => MessageRole::BufferedSend,
                };
                self.add_end(rank, call, message, role);
            }
            CallOperation::Receive(message, status) => {
                let (peer, tag) = actual((message.peer, message.tag), status);
                self.add_end(rank, call, CalledMessage { peer, tag, ..message }, MessageRole::Receive);
            }
            CallOperation::Prepare(..) => {}
            CallOperation::Collective(CalledCollective {
                kind,
                communicator,
                number,
                root,
                bytes,
                slot,
                ..
            }) => {
                let function = self.label(LabelText::Function(kind.function()));
                let root = root.map_or(-1, |root| root as i32);
                let (waits, is_blocking) = (kind.waits(), slot.is_none());
                let entry = CollectiveEntry {
                    call,
                    communicator,
                    number,
                    function,
                    root,
                    waits,
                    is_blocking,
                    size_class: CollectiveEntry::size_class(bytes as u32),
                    is_size_shared: kind.is_size_shared(),
                };
                let entries = &mut self.calls.job.timelines[rank as usize].entries;
                entries.push(entry);
                let begun = BegunOperation::Collective(entries.len() as u32 - 1);
                self.begin(rank, slot, begun);
            }
            CallOperation::Completion(slot, status) => {
                let begun = self.ranks[rank as usize].slots.get_mut(slot).and_then(Option::take);
                let Some(operation) = begun else { return };
                let timeline = &mut self.calls.job.timelines[rank as usize];
                if let BegunOperation::Message(end) = operation {
                    let end = &mut timeline.message_ends[end as usize];
                    (end.peer, end.tag) = actual((end.peer, end.tag), status);
                }
                timeline.completions.push(Completion { call, begun_on: rank, operation });
            }
        }
    }

    fn add_end(&mut self, rank: u32, call: u32, message: CalledMessage, role: MessageRole) {
        let CalledMessage { communicator, peer, tag, bytes, slot } = message;
        let ends = &mut self.calls.job.timelines[rank as usize].message_ends;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(MessageEnd::MAX_BYTES);
        let is_blocking = slot.is_none();
        ends.push(MessageEnd { call, communicator, peer, tag, bytes, role, is_blocking });
        let begun = BegunOperation::Message(ends.len() as u32 - 1);
        self.begin(rank, slot, begun);
    }

    fn begin(&mut self, rank: u32, slot: Option<usize>, operation: BegunOperation) {
        let Some(slot) = slot else { return };
        let slots = &mut self.ranks[rank as usize].slots;
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(operation);
    }

    /// Forgets what a dropped call began.
    fn drop_operations(&mut self, rank: u32, operations: &[CallOperation]) {
        let slots = &mut self.ranks[rank as usize].slots;
        for operation in operations {
            let slot = match *operation {
                CallOperation::Send(message, _) | CallOperation::Receive(message, _) => message.slot,
                CallOperation::Collective(collective) => collective.slot,
                CallOperation::Completion(slot, _) => Some(slot),
                CallOperation::Prepare(..) => None,
            };
            if let Some(begun) = slot.and_then(|slot| slots.get_mut(slot)) {
                *begun = None;
            }
        }
    }
}

/// Returns how many numbers no collective of a timeline has.
fn missing_collectives(timeline: &CallTimeline) -> u64 {
    let mut last: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    for entry in timeline.entries.iter().filter(|entry| entry.number < CollectiveEntry::INIT_NUMBER) {
        let (all, recorded) = last.entry(entry.communicator).or_default();
        (*all, *recorded) = (entry.number + 1, *recorded + 1);
    }
    last.values().map(|(all, recorded)| u64::from(*all) - recorded).sum()
}

/// Returns source and tag of a receive, with those of its status where the receive accepts any.
fn actual((peer, tag): (i32, i32), status: Option<MessageStatus>) -> (i32, i32) {
    let (source, sent) = status.unwrap_or((peer, tag));
    (if peer == ANY { source } else { peer }, if tag == ANY { sent } else { tag })
}

impl RunRecorder for CallRecorder<'_> {
    fn worked(&mut self, rank: u32, range: Option<&'static str>, start_ns: i64, end_ns: i64) {
        let ns = self.job_time(rank, end_ns).saturating_sub(self.job_time(rank, start_ns));
        self.ranks[rank as usize].pending.push((range, ns.max(0) as u64));
    }

    fn called(&mut self, call: &ModelCall<'_>) {
        let (enter_ns, exit_ns) =
            (self.job_time(call.rank, call.enter_ns), self.job_time(call.rank, call.exit_ns));
        let duration_ns = exit_ns.saturating_sub(enter_ns).max(0) as u64;
        let number = self.ranks[call.rank as usize].calls;
        let is_end = |operation: &&CallOperation| {
            matches!(operation, CallOperation::Send(..) | CallOperation::Receive(..))
        };
        let state = &mut self.ranks[call.rank as usize];
        let ends = state.ends..state.ends + call.operations.iter().filter(is_end).count() as u32;
        state.ends = ends.end;
        self.ranks[call.rank as usize].calls += 1;
        if self.is_dropped(call.rank, number) {
            self.calls.dropped += 1;
            self.take_number(call, false);
            self.ranks[call.rank as usize].pending.push((None, duration_ns));
            return self.drop_operations(call.rank, call.operations);
        }
        self.add_work(call.rank, call.function);
        let label = self.label(LabelText::Function(call.function));
        let timeline = &mut self.calls.job.timelines[call.rank as usize];
        timeline.calls.push(Call { enter_ns, duration_ns, label });
        self.take_number(call, true);
        self.calls.end_numbers[call.rank as usize].extend(ends);
        for operation in call.operations {
            self.add_operation(call.rank, operation);
        }
    }

    fn step_begins(&mut self, rank: u32, _: u32, _: i64) {
        let timeline = &mut self.calls.job.timelines[rank as usize];
        timeline.first_call_of_step.push(timeline.calls.len() as u32);
    }

    fn steps_end(&mut self, rank: u32, _: i64) {
        let timeline = &mut self.calls.job.timelines[rank as usize];
        timeline.first_call_of_step.push(timeline.calls.len() as u32);
    }

    fn matched(&mut self, send: (u32, u32), receive: (u32, u32)) {
        if self.recording.keeps_messages {
            self.calls.messages.push((send, receive));
        }
    }

    fn ended(&mut self, rank: u32, at_ns: i64) {
        let end_ns = self.job_time(rank, at_ns);
        self.add_work(rank, "");
        self.calls.job.timelines[rank as usize].end_ns = end_ns;
    }
}
