//! Programs in which rank 0 hands out tasks.

use super::super::operation::{Message, Operation, Peer, SendMode, WorkPiece};
use super::super::program::Program;
use super::super::scenario::{CausePattern, ExpectedAnswer, NamedCause, ScenarioSize};
use rpd_graph::ANY;

/// Tags of messages.
const TASK: i32 = 1;
const RESULT: i32 = 2;
const STOP: i32 = 3;
/// Bytes of a message.
const SMALL: u64 = 1_024;
/// Tasks of each worker, on average, where they are handed out on demand.
const TASKS_PER_WORKER: u32 = 120;

fn send(to: u32, tag: i32) -> Operation {
    Operation::Send(Message::with(to, tag, SMALL), SendMode::Standard)
}

fn receive(from: u32, tag: i32) -> Operation {
    Operation::Receive(Message::with(from, tag, SMALL))
}

fn receive_any(has_status: bool) -> Operation {
    Operation::Receive(Message { peer: Peer::Any, has_status, ..Message::with(0, RESULT, SMALL) })
}

pub(super) fn equal_tasks(size: ScenarioSize, has_status: bool) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        if rank > 0 {
            out.push(WorkPiece::operation("task", size.work_ns, size.excess_of(rank)));
            out.push(send(0, RESULT));
            return out.push(receive(0, TASK));
        }
        out.extend((1..size.ranks).map(|_| receive_any(has_status)));
        // So little that it is no cause of its own.
        out.push(WorkPiece::operation("collect", size.work_ns / 200, 0));
        out.extend((1..size.ranks).map(|worker| send(worker, TASK)));
    });
    let expected = ExpectedAnswer::rank(size.subject, "task");
    (program, ExpectedAnswer { may_be_unknown: !has_status, ..expected })
}

pub(super) fn on_demand(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let workers = size.ranks - 1;
    let program = Program::of_lists(size.ranks, move |rank, out| {
        let to_source = |tag| {
            let message = Message { peer: Peer::LastSource, ..Message::with(0, tag, SMALL) };
            Operation::Send(message, SendMode::Standard)
        };
        if rank > 0 {
            out.push(receive(0, ANY));
            out.push(Operation::EndOnTag(STOP));
            out.push(WorkPiece::operation("task", size.work_ns, size.excess_of(rank)));
            out.push(send(0, RESULT));
            return out.push(Operation::Repeat);
        }
        out.extend((1..size.ranks).map(|worker| send(worker, TASK)));
        for _ in workers..workers * TASKS_PER_WORKER {
            out.push(receive_any(true));
            out.push(to_source(TASK));
        }
        for _ in 0..workers {
            out.push(receive_any(true));
            out.push(to_source(STOP));
        }
    });
    (program, ExpectedAnswer::nobody())
}

pub(super) fn slow_master(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    // The limit of the gain is all that the master does.
    let merge_ns = size.work_ns * 3 / 10 + size.excess_ns;
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        if rank > 0 {
            out.push(receive(0, TASK));
            out.push(WorkPiece::operation("task", size.work_ns, 0));
            return out.push(send(0, RESULT));
        }
        out.push(WorkPiece::operation("merge", 0, merge_ns));
        out.extend((1..size.ranks).map(|worker| send(worker, TASK)));
        out.extend((1..size.ranks).map(|worker| receive(worker, RESULT)));
    });
    let expected = ExpectedAnswer {
        cause: NamedCause::AtMost(0),
        range: Some("merge"),
        pattern: CausePattern::Steady,
        ..ExpectedAnswer::nobody()
    };
    (program, expected)
}
