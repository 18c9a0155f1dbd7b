use super::operation::{Collective, CollectiveKind, Message, Operation, Slot};
use super::program::Program;
use super::recorder::{CallOperation, MessageStatus, RunRecorder};
use super::simulation::NEVER;

/// An operation that a call began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// When it is complete, ns, once that is known.
    pub(super) completion_ns: Option<i64>,
    /// When the last thing came that it depends on, ns.
    pub(super) late_ns: i64,
    pub(super) status: MessageStatus,
    pub(super) has_status: bool,
    pub(super) is_receive: bool,
    pub(super) slot: Option<Slot>,
    pub(super) is_awaited: bool,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            completion_ns: None,
            late_ns: NEVER,
            status: (0, 0),
            has_status: false,
            is_receive: false,
            slot: None,
            is_awaited: false,
        }
    }
}

/// The call in which a rank is.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockedCall {
    pub(super) function: &'static str,
    pub(super) enter_ns: i64,
    /// Requests that it completes.
    pub(super) requests: Vec<usize>,
    pub(super) missing: usize,
    pub(super) operations: Vec<CallOperation>,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotContent {
    pub(super) request: Option<usize>,
    /// The message of a prepared request, and whether it is sent.
    pub(super) prepared: Option<(Message, bool)>,
}

/// Where a rank is in its program.
#[derive(Clone, Debug, Default)]
pub(super) struct Rank {
    /// Number of the next part: 0 is `MPI_Init`, 1 the start-up.
    part: u32,
    operations: Vec<Operation>,
    next: usize,
    slots: Vec<SlotContent>,
    requests: Vec<Request>,
    free_requests: Vec<usize>,
    pub(super) blocked: Option<BlockedCall>,
    pub(super) last_status: MessageStatus,
    pub(super) has_ended: bool,
    works: u64,
    ends: u32,
    /// Number of collectives by communicator.
    collectives: Vec<u32>,
}

impl Rank {
    /// Returns the next operation; `None` at the end of the program.
    pub(super) fn next_operation(
        &mut self,
        program: &Program,
        rank: u32,
        now: i64,
        recorder: &mut impl RunRecorder,
    ) -> Option<Operation> {
        let steps = program.steps;
        while self.next >= self.operations.len() {
            let part = self.part;
            self.part += 1;
            self.next = 0;
            self.operations.clear();
            let out = &mut self.operations;
            let world = |kind| Operation::Collective(Collective::of_all(kind, 0));
            match part {
                0 => out.push(world(CollectiveKind::Init)),
                1 => (program.start)(rank, out),
                part if part < steps + 2 => {
                    recorder.step_begins(rank, part - 2, now);
                    (program.step)(rank, part - 2, out);
                }
                part if part == steps + 2 => {
                    if steps > 0 {
                        recorder.steps_end(rank, now);
                    }
                    (program.end)(rank, out);
                }
                part if part == steps + 3 => out.push(world(CollectiveKind::Finalize)),
                _ => return None,
            }
        }
        let operation = self.operations[self.next].clone();
        self.next += 1;
        Some(operation)
    }

    pub(super) fn repeat_part(&mut self) {
        self.next = 0;
    }

    pub(super) fn end_part_if(&mut self, tag: i32) {
        if self.last_status.1 == tag {
            self.next = self.operations.len();
        }
    }

    pub(super) fn take_work_number(&mut self) -> u64 {
        self.works += 1;
        self.works - 1
    }

    pub(super) fn take_end_number(&mut self) -> u32 {
        self.ends += 1;
        self.ends - 1
    }

    pub(super) fn take_collective_number(&mut self, communicator: u32) -> u32 {
        let place = communicator as usize;
        if self.collectives.len() <= place {
            self.collectives.resize(place + 1, 0);
        }
        self.collectives[place] += 1;
        self.collectives[place] - 1
    }

    pub(super) fn slot(&mut self, slot: Slot) -> &mut SlotContent {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, SlotContent::default());
        }
        &mut self.slots[slot]
    }

    pub(super) fn open(&mut self, request: Request) -> usize {
        match self.free_requests.pop() {
            Some(place) => {
                self.requests[place] = request;
                place
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        }
    }

    pub(super) fn close(&mut self, request: usize) -> Request {
        self.free_requests.push(request);
        self.requests[request]
    }

    /// Blocks the rank in a call. Returns whether nothing is missing.
    pub(super) fn block(&mut self, mut call: BlockedCall) -> bool {
        for request in &call.requests {
            let request = &mut self.requests[*request];
            request.is_awaited = request.completion_ns.is_none();
            call.missing += usize::from(request.is_awaited);
        }
        let is_complete = call.missing == 0;
        self.blocked = Some(call);
        is_complete
    }

    /// Completes a request. Returns whether the call in which the rank is misses nothing more.
    pub(super) fn complete(
        &mut self,
        request: usize,
        at_ns: i64,
        late_ns: i64,
        status: MessageStatus,
    ) -> bool {
        let request = &mut self.requests[request];
        (request.completion_ns, request.late_ns, request.status) = (Some(at_ns), late_ns, status);
        let Some(call) = self.blocked.as_mut().filter(|_| request.is_awaited) else { return false };
        call.missing -= 1;
        call.missing == 0
    }
}
