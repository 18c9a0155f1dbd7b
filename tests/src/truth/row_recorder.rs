use super::call_recorder::DroppedCalls;
use super::program::Program;
use super::recorder::{CallOperation, CalledMessage, MessageStatus, ModelCall, RunRecorder};
use rpd_graph::{ANY, CollectiveEntry};
use rpd_shard::model::{TableId, native};

/// Value of a column of a native row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ColumnValue {
    Int(i64),
    Text(String),
}

/// A row that the collector writes. Columns that it does not have are NULL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RecordedRow {
    pub(super) table: TableId,
    /// Time of its beginning, ns from the start of the run.
    pub(super) start_ns: i64,
    /// Time of its end; of what happens at a moment, that of its beginning.
    pub(super) end_ns: i64,
    /// Function, or name of the range.
    pub(super) name: String,
    pub(super) stack: i64,
    pub(super) parent: i64,
    /// Other columns by their names.
    pub(super) values: Vec<(&'static str, ColumnValue)>,
}

/// Rows of a rank, in the order of their ends.
#[derive(Clone, Debug, Default)]
pub(super) struct RankRows {
    pub(super) rows: Vec<RecordedRow>,
    /// Calls that its ring dropped.
    pub(super) dropped: u64,
    calls: u64,
    stacks: i64,
    /// Start and stack id of the open range of a step.
    step: Option<(i64, i64)>,
    slots: Vec<Option<BegunCall>>,
    /// Calls that are no collectives, by communicator.
    numbers: Vec<i64>,
}

/// The call that began the operation in a slot.
#[derive(Clone, Copy, Debug)]
struct BegunCall {
    function: &'static str,
    stack: i64,
    bytes: Option<i64>,
    /// Stack id of the call that created a persistent request.
    prepared_by: Option<i64>,
}

impl RankRows {
    pub(super) fn new_stack(&mut self) -> i64 {
        self.stacks += 1;
        self.stacks
    }

    pub(super) fn parent(&self) -> i64 {
        self.step.map_or(0, |(_, stack)| stack)
    }

    pub(super) fn begin_step(&mut self, at_ns: i64) {
        let stack = self.new_stack();
        self.step = Some((at_ns, stack));
    }

    pub(super) fn end_step(&mut self, at_ns: i64) {
        if let Some((start_ns, stack)) = self.step.take() {
            self.add_range("step", (start_ns, at_ns), stack, 0);
        }
    }

    pub(super) fn add_range(&mut self, name: &str, (start_ns, end_ns): (i64, i64), stack: i64, parent: i64) {
        let (table, name) = (native::RANGE, name.to_owned());
        self.rows.push(RecordedRow { table, start_ns, end_ns, name, stack, parent, values: Vec::new() });
    }

    fn take_number(&mut self, communicator: u32) -> i64 {
        let place = communicator as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, 0);
        }
        self.numbers[place] += 1;
        self.numbers[place]
    }

    fn slot(&mut self, slot: usize) -> &mut Option<BegunCall> {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        &mut self.slots[slot]
    }

    fn add_request(&mut self, begun: BegunCall, at_ns: i64, call: i64, status: Option<MessageStatus>) {
        let mut values = Vec::new();
        if let Some((source, tag)) = status {
            values.push(("peer", ColumnValue::Int(i64::from(source))));
            values.push(("tag", ColumnValue::Int(i64::from(tag))));
            values.extend(begun.bytes.map(|bytes| ("bytes", ColumnValue::Int(bytes))));
        }
        values.extend(begun.prepared_by.map(|stack| ("init_stack_id", ColumnValue::Int(stack))));
        let (table, name) = (native::MPI_REQUEST, begun.function.to_owned());
        let (stack, parent) = (begun.stack, call);
        self.rows.push(RecordedRow { table, start_ns: at_ns, end_ns: at_ns, name, stack, parent, values });
    }
}

/// Records the rows that collectors write of a run.
pub(super) struct RowRecorder<'a> {
    program: &'a Program,
    dropped: &'a [DroppedCalls],
    pub(super) ranks: Vec<RankRows>,
}

impl<'a> RowRecorder<'a> {
    pub(super) fn new(program: &'a Program, dropped: &'a [DroppedCalls]) -> RowRecorder<'a> {
        let ranks = vec![RankRows::default(); program.ranks as usize];
        RowRecorder { program, dropped, ranks }
    }

    fn name_of(&self, communicator: u32) -> ColumnValue {
        ColumnValue::Text(self.program.communicators[communicator as usize].name.clone())
    }

    /// Returns the columns of what a call does, in the terms of the collector.
    fn values_of(&mut self, rank: u32, operations: &[CallOperation]) -> Vec<(&'static str, ColumnValue)> {
        let mut values = Vec::new();
        let mut has_send = false;
        for operation in operations {
            match *operation {
                CallOperation::Send(message, _) => {
                    // The two halves of MPI_Sendrecv are one call; MPI_Start has no values.
                    if self.is_started(rank, message) {
                        continue;
                    }
                    has_send = true;
                    values.extend(self.message_values(rank, message, ["peer", "tag", "bytes"], true));
                }
                CallOperation::Receive(message, status) => {
                    if self.is_started(rank, message) {
                        continue;
                    }
                    let (source, tag) = status.unwrap_or((ANY, ANY));
                    let known = |posted: i32, actual: i32| if posted == ANY { actual } else { posted };
                    let (peer, tag) = (known(message.peer, source), known(message.tag, tag));
                    let message = CalledMessage { peer, tag, ..message };
                    let columns = match has_send {
                        true => ["source", "recvtag", "recvbytes"],
                        false => ["peer", "tag", "bytes"],
                    };
                    values.extend(self.message_values(rank, message, columns, !has_send));
                }
                CallOperation::Prepare(message, _) => {
                    values.extend(self.message_values(rank, message, ["peer", "tag", "bytes"], true));
                }
                CallOperation::Collective(entered) => {
                    // The collector gives MPI_Init and MPI_Finalize no communicator.
                    if matches!(
                        entered.number,
                        CollectiveEntry::INIT_NUMBER | CollectiveEntry::FINALIZE_NUMBER
                    ) {
                        continue;
                    }
                    values.push(("comm_id", self.name_of(entered.communicator)));
                    // The first collective of a communicator is the call that made it.
                    let first = if entered.communicator == 0 { 1 } else { 2 };
                    values.push(("seq", ColumnValue::Int(i64::from(entered.number) + first)));
                    values.extend(entered.root.map(|root| ("root", ColumnValue::Int(i64::from(root)))));
                    values.push(("bytes", ColumnValue::Int(entered.bytes as i64)));
                }
                CallOperation::Completion(..) => {}
            }
        }
        values
    }

    /// Returns whether a message belongs to a persistent request, which `MPI_Start` begins.
    fn is_started(&mut self, rank: u32, message: CalledMessage) -> bool {
        let slot = message.slot.and_then(|slot| *self.ranks[rank as usize].slot(slot));
        slot.is_some_and(|begun| begun.prepared_by.is_some())
    }

    fn message_values(
        &mut self,
        rank: u32,
        message: CalledMessage,
        [peer, tag, bytes]: [&'static str; 3],
        is_first: bool,
    ) -> Vec<(&'static str, ColumnValue)> {
        let mut values = Vec::new();
        if is_first {
            let number = self.ranks[rank as usize].take_number(message.communicator);
            values.push(("comm_id", self.name_of(message.communicator)));
            values.push(("seq", ColumnValue::Int(number)));
        }
        let known = |value: i32| (value != ANY).then_some(ColumnValue::Int(i64::from(value)));
        values.extend(known(message.peer).map(|value| (peer, value)));
        values.extend(known(message.tag).map(|value| (tag, value)));
        values.push((bytes, ColumnValue::Int(message.bytes as i64)));
        values
    }

    /// Notes which call began the operations that later calls complete.
    fn begin(&mut self, call: &ModelCall<'_>, stack: i64) {
        let state = &mut self.ranks[call.rank as usize];
        for operation in call.operations {
            let begun = BegunCall { function: call.function, stack, bytes: None, prepared_by: None };
            match *operation {
                CallOperation::Prepare(message, _) => {
                    *state.slot(message.slot.unwrap_or(0)) =
                        Some(BegunCall { prepared_by: Some(stack), ..begun });
                }
                CallOperation::Send(CalledMessage { slot: Some(slot), .. }, _) => {
                    let prepared_by = state.slot(slot).and_then(|begun| begun.prepared_by);
                    *state.slot(slot) = Some(BegunCall { prepared_by, ..begun });
                }
                CallOperation::Receive(CalledMessage { slot: Some(slot), bytes, .. }, _) => {
                    let prepared_by = state.slot(slot).and_then(|begun| begun.prepared_by);
                    let bytes = Some(bytes as i64);
                    *state.slot(slot) = Some(BegunCall { prepared_by, bytes, ..begun });
                }
                CallOperation::Collective(entered) => {
                    if let Some(slot) = entered.slot {
                        *state.slot(slot) = Some(begun);
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds the communicators of a rank, which it creates after `MPI_Init`.
    fn add_communicators(&mut self, rank: u32, at_ns: i64) {
        for communicator in &self.program.communicators[1..] {
            let Some((group, place)) = communicator.place_of(rank) else { continue };
            let state = &mut self.ranks[rank as usize];
            let (stack, parent) = (state.new_stack(), state.parent());
            let name = communicator.made_by.to_owned();
            let mut values = vec![
                ("comm_id", ColumnValue::Text(communicator.name.clone())),
                ("size", ColumnValue::Int(communicator.groups[group].len() as i64)),
                ("rank", ColumnValue::Int(i64::from(place))),
            ];
            if communicator.groups.len() > 1 {
                values.push(("side", ColumnValue::Int(group as i64)));
            }
            let row = RecordedRow {
                table: native::MPI_CALL,
                start_ns: at_ns,
                end_ns: at_ns,
                name,
                stack,
                parent,
                values: vec![
                    ("comm_id", ColumnValue::Text(communicator.name.clone())),
                    ("seq", ColumnValue::Int(1)),
                ],
            };
            state.rows.push(RecordedRow { table: native::COMMUNICATOR, values, ..row.clone() });
            state.rows.push(row);
        }
    }
}

impl RunRecorder for RowRecorder<'_> {
    fn worked(&mut self, rank: u32, range: Option<&'static str>, start_ns: i64, end_ns: i64) {
        let state = &mut self.ranks[rank as usize];
        if let Some(range) = range {
            let (stack, parent) = (state.new_stack(), state.parent());
            state.add_range(range, (start_ns, end_ns), stack, parent);
        }
    }

    fn called(&mut self, call: &ModelCall<'_>) {
        let state = &mut self.ranks[call.rank as usize];
        let number = state.calls;
        state.calls += 1;
        let (stack, parent) = (state.new_stack(), state.parent());
        // The numbers of a communicator count calls that are dropped.
        let values = self.values_of(call.rank, call.operations);
        let drops = |dropped: &DroppedCalls| dropped.rank == call.rank && dropped.calls.contains(&number);
        if self.dropped.iter().any(drops) {
            self.ranks[call.rank as usize].dropped += 1;
            return;
        }
        self.begin(call, stack);
        let state = &mut self.ranks[call.rank as usize];
        for operation in call.operations {
            if let CallOperation::Completion(slot, status) = *operation
                && let Some(begun) = *state.slot(slot)
            {
                state.add_request(begun, call.exit_ns, stack, status);
            }
        }
        let (start_ns, end_ns, name) = (call.enter_ns, call.exit_ns, call.function.to_owned());
        state.rows.push(RecordedRow {
            table: native::MPI_CALL,
            start_ns,
            end_ns,
            name,
            stack,
            parent,
            values,
        });
        if call.function == "MPI_Init" {
            self.add_communicators(call.rank, call.exit_ns);
        }
    }

    fn step_begins(&mut self, rank: u32, _: u32, at_ns: i64) {
        let state = &mut self.ranks[rank as usize];
        state.end_step(at_ns);
        state.begin_step(at_ns);
    }

    fn steps_end(&mut self, rank: u32, at_ns: i64) {
        self.ranks[rank as usize].end_step(at_ns);
    }
}
