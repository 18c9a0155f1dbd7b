//! Programs with ranks that wait for messages.

use super::super::operation::{Collective, CollectiveKind, Message, Operation, SendMode, WorkPiece};
use super::super::program::{Program, SlowNode};
use super::super::scenario::{ExpectedAnswer, NamedCause, ScenarioSize};

/// Steps from one reduction of the stencil to the next.
const STENCIL_PERIOD: u32 = 10;
/// Steps from one reduction of the program with overlap to the next.
const OVERLAP_PERIOD: u32 = 5;
/// Bytes of a message that is copied.
const SMALL: u64 = 4_096;
/// Bytes of a message that waits for its receive.
const LARGE: u64 = 1 << 20;
/// Tags of messages to the next rank and to the one before.
const UP: i32 = 1;
const DOWN: i32 = 2;

/// How the ranks of the stencil exchange their halos.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HaloExchange {
    Requests,
    SendReceive,
    Persistent,
    Large,
}

fn allreduce() -> Operation {
    Operation::Collective(Collective::of_all(CollectiveKind::Allreduce, 0))
}

fn barrier() -> Operation {
    Operation::Collective(Collective::of_all(CollectiveKind::Barrier, 0))
}

fn send(to: u32) -> Operation {
    Operation::Send(Message::with(to, UP, SMALL), SendMode::Standard)
}

fn receive(from: u32) -> Operation {
    Operation::Receive(Message::with(from, UP, SMALL))
}

pub(super) fn chain(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        out.push(WorkPiece::operation("setup", size.work_ns, size.excess_of(rank)));
        if rank > size.subject {
            out.push(receive(rank - 1));
        }
        if rank >= size.subject && rank + 1 < size.ranks {
            out.push(send(rank + 1));
        }
        out.push(barrier());
    });
    (program, ExpectedAnswer::rank(size.subject, "setup"))
}

pub(super) fn displaced(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let receiver = (size.subject + 1) % size.ranks;
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        out.push(WorkPiece::operation("setup", size.work_ns / 4, size.excess_of(rank)));
        if rank == size.subject {
            out.push(send(receiver));
        }
        if rank == receiver {
            out.push(receive(size.subject));
        }
        out.push(WorkPiece::operation("work", size.work_ns - size.work_ns / 4, 0));
        out.push(barrier());
    });
    (program, ExpectedAnswer::rank(size.subject, "setup"))
}

/// Returns the ranks before and after one in a ring.
fn neighbours(rank: u32, ranks: u32) -> (u32, u32) {
    ((rank + ranks - 1) % ranks, (rank + 1) % ranks)
}

/// Posts the messages of a halo in the slots 0 to 3.
fn post_halo(rank: u32, ranks: u32, bytes: u64, out: &mut Vec<Operation>) {
    let (before, after) = neighbours(rank, ranks);
    out.push(Operation::BeginReceive(Message::with(before, UP, bytes), 0));
    out.push(Operation::BeginReceive(Message::with(after, DOWN, bytes), 1));
    out.push(Operation::BeginSend(Message::with(after, UP, bytes), 2));
    out.push(Operation::BeginSend(Message::with(before, DOWN, bytes), 3));
}

pub(super) fn stencil(size: ScenarioSize, exchange: HaloExchange) -> (Program, ExpectedAnswer) {
    let step = move |rank: u32, step: u32, out: &mut Vec<Operation>| {
        out.push(WorkPiece::operation("update", size.work_ns, size.excess_of(rank)));
        let (before, after) = neighbours(rank, size.ranks);
        let small = |peer, tag| Message::with(peer, tag, SMALL);
        match exchange {
            HaloExchange::Requests => post_halo(rank, size.ranks, SMALL, out),
            HaloExchange::Large => post_halo(rank, size.ranks, LARGE, out),
            HaloExchange::Persistent => out.push(Operation::Start(vec![0, 1, 2, 3])),
            HaloExchange::SendReceive => {
                out.push(Operation::SendReceive(small(after, UP), small(before, UP)));
                out.push(Operation::SendReceive(small(before, DOWN), small(after, DOWN)));
            }
        }
        if exchange != HaloExchange::SendReceive {
            out.push(Operation::Wait(vec![0, 1, 2, 3]));
        }
        if step % STENCIL_PERIOD == STENCIL_PERIOD - 1 {
            out.push(allreduce());
        }
    };
    let mut program = Program::of_steps(size.ranks, size.steps, step);
    if exchange == HaloExchange::Persistent {
        program.start = Box::new(move |rank, out| {
            let (before, after) = neighbours(rank, size.ranks);
            out.push(Operation::PrepareReceive(Message::with(before, UP, SMALL), 0));
            out.push(Operation::PrepareReceive(Message::with(after, DOWN, SMALL), 1));
            out.push(Operation::PrepareSend(Message::with(after, UP, SMALL), 2));
            out.push(Operation::PrepareSend(Message::with(before, DOWN, SMALL), 3));
        });
    }
    (program, ExpectedAnswer::rank(size.subject, "update"))
}

/// Fewer nodes have no neighbours that receive nothing from the slow one.
const MIN_NODES_OF_RING: u32 = 5;

pub(super) fn slow_network(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let has_other_neighbours = size.ranks / size.ranks_per_node >= MIN_NODES_OF_RING;
    let exchange = match size.seed % 4 {
        0 if has_other_neighbours => HaloExchange::Requests,
        1 if has_other_neighbours => HaloExchange::Persistent,
        2 if has_other_neighbours => HaloExchange::Large,
        _ => HaloExchange::SendReceive,
    };
    let (mut program, _) = stencil(ScenarioSize { excess_ns: 0, ..size }, exchange);
    let node = size.subject / size.ranks_per_node;
    let received_ns = if size.seed % 8 < 4 { 0 } else { size.excess_ns };
    program.slow_node = Some(SlowNode { node, sent_ns: size.excess_ns, received_ns });
    let cause = NamedCause::Network(node);
    let expected = ExpectedAnswer { cause, ..ExpectedAnswer::nobody() };
    (program, expected)
}

pub(super) fn overlap(size: ScenarioSize, inner_ns: u64) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, step, out| {
        out.push(WorkPiece::operation("border", size.work_ns, size.excess_of(rank)));
        post_halo(rank, size.ranks, SMALL, out);
        out.push(WorkPiece::operation("inner", inner_ns, 0));
        out.push(Operation::Wait(vec![0, 1, 2, 3]));
        if step % OVERLAP_PERIOD == OVERLAP_PERIOD - 1 {
            out.push(allreduce());
        }
    });
    (program, ExpectedAnswer::rank(size.subject, "border"))
}

pub(super) fn pipeline(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        if rank > 0 {
            out.push(receive(rank - 1));
        }
        out.push(WorkPiece::operation("stage", size.work_ns, size.excess_of(rank)));
        if rank + 1 < size.ranks {
            out.push(send(rank + 1));
        }
    });
    (program, ExpectedAnswer::rank(size.subject, "stage"))
}

pub(super) fn ring(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        let (before, after) = neighbours(rank, size.ranks);
        out.push(WorkPiece::operation("update", size.work_ns, size.excess_of(rank)));
        out.push(send(after));
        out.push(receive(before));
    });
    (program, ExpectedAnswer::rank(size.subject, "update"))
}
