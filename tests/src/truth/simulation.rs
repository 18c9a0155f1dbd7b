//! Executes a modelled program: a discrete-event simulation with exact times.

use super::collectives::OpenCollectives;
use super::conditions::{PlantedExcess, RunConditions};
use super::mailbox::{Envelope, Mailbox, PostedReceive};
use super::operation::{Collective, CollectiveKind, Message, Operation, Peer, SendMode, Slot};
use super::program::{Program, SlowNode};
use super::ranks::{BlockedCall, Rank, Request};
use super::recorder::{
    CallOperation, CalledCollective, CalledMessage, MessageStatus, ModelCall, RunRecorder,
};
use rpd_graph::{ANY, CollectiveEntry};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use thiserror::Error;

/// Time that no call waited for.
pub(super) const NEVER: i64 = i64::MIN;
/// Tag of no message.
const NO_TAG: i32 = -1;

/// What a run took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunDurations {
    /// From the start to the end of the last rank, ns.
    pub length_ns: i64,
    /// Time that each rank waited for others in its calls, ns.
    pub waited_ns: Vec<u64>,
}

impl RunDurations {
    /// Returns the time that all ranks waited, ns.
    pub fn all_waited_ns(&self) -> u64 {
        self.waited_ns.iter().sum()
    }
}

/// The program cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("rank {rank} waits for ever in {function}")]
pub struct DeadlockError {
    /// A rank that did not end.
    pub rank: u32,
    /// The function in which it is.
    pub function: &'static str,
}

/// Runs a program.
///
/// # Errors
/// [`DeadlockError`], if ranks wait for one another.
pub fn simulate(
    program: &Program,
    conditions: &RunConditions,
    recorder: &mut impl RunRecorder,
) -> Result<RunDurations, DeadlockError> {
    let mut places = HashMap::new();
    for (communicator, members) in (0u32..).zip(&program.communicators) {
        for (group, ranks) in members.groups.iter().enumerate() {
            places.extend((0u32..).zip(ranks).map(|(place, rank)| ((communicator, *rank), (group, place))));
        }
    }
    let mut simulation = Simulation {
        program,
        conditions,
        recorder,
        places,
        ranks: (0..program.ranks).map(|_| Rank::default()).collect(),
        mailboxes: (0..program.ranks).map(|_| Mailbox::default()).collect(),
        collectives: OpenCollectives::default(),
        envelopes: Vec::new(),
        free_envelopes: Vec::new(),
        events: BinaryHeap::new(),
        events_added: 0,
        durations: RunDurations { length_ns: 0, waited_ns: vec![0; program.ranks as usize] },
    };
    simulation.run()?;
    Ok(simulation.durations)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A rank goes on.
    Continue(u32),
    /// An envelope reaches its destination.
    Arrive(usize),
}

struct Simulation<'a, R> {
    program: &'a Program,
    conditions: &'a RunConditions,
    recorder: &'a mut R,
    /// Group and place of each rank in each communicator.
    places: HashMap<(u32, u32), (usize, u32)>,
    ranks: Vec<Rank>,
    mailboxes: Vec<Mailbox>,
    collectives: OpenCollectives,
    envelopes: Vec<Envelope>,
    free_envelopes: Vec<usize>,
    /// Events by time, and those of one time in the order in which they were added.
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    events_added: u64,
    durations: RunDurations,
}

impl<R: RunRecorder> Simulation<'_, R> {
    fn run(&mut self) -> Result<(), DeadlockError> {
        for rank in 0..self.program.ranks {
            self.schedule(0, Event::Continue(rank));
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            match event {
                Event::Continue(rank) => self.continue_rank(rank, now),
                Event::Arrive(envelope) => self.arrive(envelope),
            }
        }
        let stuck = (0u32..).zip(&self.ranks).find(|(_, rank)| !rank.has_ended);
        stuck.map_or(Ok(()), |(rank, state)| {
            let function = state.blocked.as_ref().map_or("no call", |call| call.function);
            Err(DeadlockError { rank, function })
        })
    }

    fn schedule(&mut self, at: i64, event: Event) {
        self.events_added += 1;
        self.events.push(Reverse((at, self.events_added, event)));
    }

    fn continue_rank(&mut self, rank: u32, now: i64) {
        loop {
            let state = &mut self.ranks[rank as usize];
            let Some(operation) = state.next_operation(self.program, rank, now, self.recorder) else {
                state.has_ended = true;
                self.recorder.ended(rank, now);
                self.durations.length_ns = self.durations.length_ns.max(now);
                return;
            };
            match operation {
                Operation::Work(piece) => {
                    let number = state.take_work_number();
                    let noisy = self.conditions.noisy_ns(rank, number, piece.ns);
                    let excess = if self.conditions.excess.includes(rank) { piece.excess_ns } else { 0 };
                    let end = now + (noisy + excess) as i64;
                    if end > now {
                        self.recorder.worked(rank, piece.range, now, end);
                        return self.schedule(end, Event::Continue(rank));
                    }
                }
                Operation::Repeat => state.repeat_part(),
                Operation::EndOnTag(tag) => state.end_part_if(tag),
                call => return self.call(rank, now, call),
            }
        }
    }

    fn call(&mut self, rank: u32, now: i64, operation: Operation) {
        let function = function_of(&operation);
        let mut call = BlockedCall { function, enter_ns: now, ..BlockedCall::default() };
        match operation {
            Operation::Send(message, mode) => self.send(rank, &mut call, message, mode, None),
            Operation::Receive(message) => self.receive(rank, &mut call, message, None),
            Operation::SendReceive(sent, received) => {
                self.send(rank, &mut call, sent, SendMode::Standard, None);
                self.receive(rank, &mut call, received, None);
            }
            Operation::BeginSend(message, slot) => {
                self.send(rank, &mut call, message, SendMode::Standard, Some(slot));
            }
            Operation::BeginReceive(message, slot) => self.receive(rank, &mut call, message, Some(slot)),
            Operation::PrepareSend(message, slot) => self.prepare(rank, &mut call, message, slot, true),
            Operation::PrepareReceive(message, slot) => self.prepare(rank, &mut call, message, slot, false),
            Operation::Start(slots) => {
                for slot in slots {
                    match self.ranks[rank as usize].slot(slot).prepared {
                        Some((message, true)) => {
                            self.send(rank, &mut call, message, SendMode::Standard, Some(slot));
                        }
                        Some((message, false)) => self.receive(rank, &mut call, message, Some(slot)),
                        None => {}
                    }
                }
            }
            Operation::Wait(slots) => {
                for slot in slots {
                    call.requests.extend(self.ranks[rank as usize].slot(slot).request.take());
                }
            }
            Operation::Collective(collective) => self.enter(rank, &mut call, collective, None),
            Operation::BeginCollective(collective, slot) => {
                self.enter(rank, &mut call, collective, Some(slot));
            }
            Operation::Work(_) | Operation::Repeat | Operation::EndOnTag(_) => {}
        }
        if self.ranks[rank as usize].block(call) {
            self.leave(rank);
        }
    }

    fn prepare(&mut self, rank: u32, call: &mut BlockedCall, message: Message, slot: Slot, is_send: bool) {
        self.ranks[rank as usize].slot(slot).prepared = Some((message, is_send));
        let Message { communicator, peer, tag, bytes, .. } = message;
        let peer = self.peer_of(rank, peer);
        let called = CalledMessage { communicator, peer, tag, bytes, slot: Some(slot) };
        call.operations.push(CallOperation::Prepare(called, is_send));
    }

    fn peer_of(&self, rank: u32, peer: Peer) -> i32 {
        match peer {
            Peer::Rank(peer) => peer as i32,
            Peer::Any => ANY,
            Peer::LastSource => self.ranks[rank as usize].last_status.0,
        }
    }

    /// Returns the rank of the job that a peer is.
    fn rank_of(&self, rank: u32, communicator: u32, peer: i32) -> Option<u32> {
        let groups = &self.program.communicators[communicator as usize].groups;
        let (own, _) = *self.places.get(&(communicator, rank))?;
        let group = if groups.len() > 1 { &groups[1 - own] } else { &groups[0] };
        group.get(usize::try_from(peer).ok()?).copied()
    }

    /// Returns the time that a message of one rank to another takes, ns.
    fn latency(&self, from: u32, to: u32) -> i64 {
        let network = &self.conditions.network;
        let [from, to] = [from, to].map(|rank| self.program.node_of(rank));
        if from == to {
            return network.near_latency_ns as i64;
        }
        let delay = self.slow_node().map_or(0, |slow| {
            let of = |node: u32, ns: u64| if node == slow.node { ns } else { 0 };
            of(from, slow.sent_ns) + of(to, slow.received_ns)
        });
        (network.far_latency_ns + delay) as i64
    }

    fn slow_node(&self) -> Option<SlowNode> {
        self.program.slow_node.filter(|_| self.conditions.excess != PlantedExcess::None)
    }

    /// Returns the time of a collective of a communicator after the last member has entered, ns. Its members exchange
    /// messages in both directions.
    fn collective_ns(&self, communicator: u32) -> i64 {
        let ranks = self.program.communicators[communicator as usize].groups.iter().flatten();
        let nodes = || ranks.clone().map(|rank| self.program.node_of(*rank));
        let delayed = self
            .slow_node()
            .filter(|slow| nodes().any(|node| node == slow.node) && nodes().any(|node| node != slow.node));
        let delay = delayed.map_or(0, |slow| slow.sent_ns + slow.received_ns);
        (self.conditions.network.collective_ns + delay) as i64
    }

    /// Adds the request of an operation to the call, or to the slot that a later call completes.
    fn open(&mut self, rank: u32, call: &mut BlockedCall, slot: Option<Slot>, request: Request) -> usize {
        let state = &mut self.ranks[rank as usize];
        let number = state.open(Request { slot, ..request });
        match slot {
            Some(slot) => state.slot(slot).request = Some(number),
            None => call.requests.push(number),
        }
        number
    }

    fn send(
        &mut self,
        rank: u32,
        call: &mut BlockedCall,
        message: Message,
        mode: SendMode,
        slot: Option<Slot>,
    ) {
        let Message { communicator, peer, tag, bytes, .. } = message;
        let (enter, network) = (call.enter_ns, self.conditions.network);
        let peer = self.peer_of(rank, peer);
        let called = CalledMessage { communicator, peer, tag, bytes, slot };
        call.operations.push(CallOperation::Send(called, mode));
        let number = self.ranks[rank as usize].take_end_number();
        let waits = match mode {
            SendMode::Standard => bytes > network.eager_limit,
            SendMode::Synchronous => true,
            SendMode::Buffered => false,
        };
        let completion_ns = (!waits).then_some(enter);
        let request = self.open(rank, call, slot, Request { completion_ns, ..Request::default() });
        let Some(destination) = self.rank_of(rank, communicator, peer) else { return };
        let source = self.places.get(&(communicator, rank)).map_or(0, |(_, place)| *place as i32);
        let arrival_ns = enter + network.overhead_ns as i64 + self.latency(rank, destination);
        let sender = waits.then_some(request);
        let envelope = Envelope {
            communicator,
            sender: rank,
            destination,
            source,
            tag,
            bytes,
            request: sender,
            sent_ns: enter,
            arrival_ns,
            number,
        };
        let place = self.free_envelopes.pop().unwrap_or(self.envelopes.len());
        if place == self.envelopes.len() {
            self.envelopes.push(envelope);
        } else {
            self.envelopes[place] = envelope;
        }
        self.schedule(arrival_ns, Event::Arrive(place));
    }

    fn receive(&mut self, rank: u32, call: &mut BlockedCall, message: Message, slot: Option<Slot>) {
        let Message { communicator, peer, tag, bytes, has_status } = message;
        let peer = self.peer_of(rank, peer);
        let called = CalledMessage { communicator, peer, tag, bytes, slot };
        call.operations.push(CallOperation::Receive(called, None));
        let number = self.ranks[rank as usize].take_end_number();
        let request = Request { has_status, is_receive: true, ..Request::default() };
        let request = self.open(rank, call, slot, request);
        let posted = PostedReceive { communicator, source: peer, tag, request, at_ns: call.enter_ns, number };
        if let Some(envelope) = self.mailboxes[rank as usize].post(posted, &self.envelopes) {
            self.deliver(envelope, posted);
        }
    }

    fn arrive(&mut self, envelope: usize) {
        let destination = self.envelopes[envelope].destination as usize;
        if let Some(posted) = self.mailboxes[destination].arrive(envelope, &self.envelopes) {
            self.deliver(envelope, posted);
        }
    }

    /// Completes a message and its receive.
    fn deliver(&mut self, envelope: usize, posted: PostedReceive) {
        self.free_envelopes.push(envelope);
        let Envelope {
            sender, destination, source, tag, bytes, request, sent_ns, arrival_ns, number, ..
        } = self.envelopes[envelope];
        self.recorder.matched((sender, number), (destination, posted.number));
        let carried = (bytes / self.conditions.network.bytes_per_ns.max(1)) as i64;
        let done = match request {
            None => posted.at_ns.max(arrival_ns + carried),
            // The receiver asks for the message, which then comes.
            Some(_) => {
                let there_and_back = self.latency(destination, sender) + self.latency(sender, destination);
                posted.at_ns.max(arrival_ns) + there_and_back + carried
            }
        };
        if let Some(request) = request {
            self.complete(sender, request, done, posted.at_ns, None);
        }
        self.complete(destination, posted.request, done, sent_ns, Some((source, tag)));
    }

    fn enter(&mut self, rank: u32, call: &mut BlockedCall, collective: Collective, slot: Option<Slot>) {
        let Collective { kind, communicator, root, bytes } = collective;
        let number = match kind {
            CollectiveKind::Init => CollectiveEntry::INIT_NUMBER,
            CollectiveKind::Finalize => CollectiveEntry::FINALIZE_NUMBER,
            _ => self.ranks[rank as usize].take_collective_number(communicator),
        };
        let called = CalledCollective { kind, communicator, number, root, bytes, slot };
        call.operations.push(CallOperation::Collective(called));
        let request = self.open(rank, call, slot, Request::default());
        let Some((group, place)) = self.places.get(&(communicator, rank)).copied() else { return };
        let members = &self.program.communicators[communicator as usize];
        let place = place + if group > 0 { members.groups[0].len() as u32 } else { 0 };
        let cost = self.collective_ns(communicator);
        let key = (communicator, number);
        let arrival = (rank, request, call.enter_ns);
        let done = self.collectives.arrive(key, (kind.waits(), root), members.size(), place, arrival, cost);
        for completed in done {
            self.complete(completed.rank, completed.request, completed.at_ns, completed.late_ns, None);
        }
    }

    fn complete(
        &mut self,
        rank: u32,
        request: usize,
        at_ns: i64,
        late_ns: i64,
        status: Option<MessageStatus>,
    ) {
        if self.ranks[rank as usize].complete(request, at_ns, late_ns, status.unwrap_or((ANY, NO_TAG))) {
            self.leave(rank);
        }
    }

    /// Lets a rank leave its call, in which nothing is missing.
    fn leave(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let Some(call) = state.blocked.take() else { return };
        let BlockedCall { function, enter_ns, requests, mut operations, .. } = call;
        let (mut done_ns, mut late_ns) = (enter_ns, NEVER);
        for number in requests {
            let request = state.close(number);
            done_ns = done_ns.max(request.completion_ns.unwrap_or(enter_ns));
            late_ns = late_ns.max(request.late_ns);
            if request.is_receive {
                state.last_status = request.status;
            }
            let known = (request.is_receive && request.has_status).then_some(request.status);
            match request.slot {
                Some(slot) => operations.push(CallOperation::Completion(slot, known)),
                None => note_status(&mut operations, known),
            }
        }
        let exit_ns = done_ns + self.conditions.network.overhead_ns as i64;
        let waited_ns = late_ns.min(exit_ns).saturating_sub(enter_ns).max(0) as u64;
        self.durations.waited_ns[rank as usize] += waited_ns;
        let left = ModelCall { rank, function, enter_ns, exit_ns, waited_ns, operations: &operations };
        self.recorder.called(&left);
        self.schedule(exit_ns, Event::Continue(rank));
    }
}

/// Notes the status of the receive that a call began and completed.
fn note_status(operations: &mut [CallOperation], known: Option<MessageStatus>) {
    for operation in operations {
        if let CallOperation::Receive(CalledMessage { slot: None, .. }, status) = operation {
            *status = status.or(known);
        }
    }
}

fn function_of(operation: &Operation) -> &'static str {
    match operation {
        Operation::Send(_, SendMode::Standard) => "MPI_Send",
        Operation::Send(_, SendMode::Synchronous) => "MPI_Ssend",
        Operation::Send(_, SendMode::Buffered) => "MPI_Bsend",
        Operation::Receive(_) => "MPI_Recv",
        Operation::SendReceive(..) => "MPI_Sendrecv",
        Operation::BeginSend(..) => "MPI_Isend",
        Operation::BeginReceive(..) => "MPI_Irecv",
        Operation::PrepareSend(..) => "MPI_Send_init",
        Operation::PrepareReceive(..) => "MPI_Recv_init",
        Operation::Start(slots) if slots.len() == 1 => "MPI_Start",
        Operation::Start(_) => "MPI_Startall",
        Operation::Wait(slots) if slots.len() == 1 => "MPI_Wait",
        Operation::Wait(_) => "MPI_Waitall",
        Operation::Collective(collective) => collective.kind.function(),
        Operation::BeginCollective(collective, _) => collective.kind.begin_function(),
        Operation::Work(_) | Operation::Repeat | Operation::EndOnTag(_) => "",
    }
}
