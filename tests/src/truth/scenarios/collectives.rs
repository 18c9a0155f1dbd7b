//! Programs with ranks that wait in collectives.

use super::super::operation::{Collective, CollectiveKind, Message, Operation, SendMode, WorkPiece};
use super::super::program::{ModelCommunicator, Program};
use super::super::scenario::{CausePattern, ExpectedAnswer, NamedCause, ScenarioSize};
use crate::synthetic::RandomSource;

/// Steps from one meeting of all ranks to the next, where groups have their own.
const MEETING_PERIOD: u32 = 5;
/// Shortest and longest start-up of a rank, in steps.
const START_UP_STEPS: (i64, i64) = (2, 20);
/// Communicators of the nested ones: that between the halves, and that of the even ranks.
const BETWEEN: u32 = 7;
const EVEN: u32 = 8;

fn collective(kind: CollectiveKind, communicator: u32) -> Operation {
    Operation::Collective(Collective::of_all(kind, communicator))
}

fn rooted(kind: CollectiveKind, root: u32) -> Operation {
    Operation::Collective(Collective::rooted(kind, 0, root))
}

/// Returns a program of work and a reduction, with the excess of each rank and step.
fn reductions(size: ScenarioSize, excess_of: impl Fn(u32, u32) -> u64 + 'static) -> Program {
    Program::of_steps(size.ranks, size.steps, move |rank, step, out| {
        out.push(WorkPiece::operation("compute", size.work_ns, excess_of(rank, step)));
        out.push(collective(CollectiveKind::Allreduce, 0));
    })
}

pub(super) fn allreduce(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = reductions(size, move |rank, _| size.excess_of(rank));
    (program, ExpectedAnswer::rank(size.subject, "compute"))
}

pub(super) fn late_root(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        out.push(WorkPiece::operation("prepare", size.work_ns / 2, size.excess_of(rank)));
        out.push(rooted(CollectiveKind::Bcast, size.subject));
        out.push(WorkPiece::operation("compute", size.work_ns - size.work_ns / 2, 0));
        out.push(collective(CollectiveKind::Allreduce, 0));
    });
    (program, ExpectedAnswer::rank(size.subject, "prepare"))
}

pub(super) fn reduce_broadcast(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        out.push(WorkPiece::operation("compute", size.work_ns, size.excess_of(rank)));
        out.push(rooted(CollectiveKind::Reduce, 0));
        out.push(rooted(CollectiveKind::Bcast, 0));
    });
    (program, ExpectedAnswer::rank(size.subject, "compute"))
}

pub(super) fn start_up(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let mut random = RandomSource::new(&[size.seed, 12]);
    let (shortest, longest) = START_UP_STEPS;
    let step_ns = size.work_ns as i64;
    let loads: Vec<u64> =
        (0..size.ranks).map(|_| random.between(shortest * step_ns, longest * step_ns) as u64).collect();
    let mut sorted = loads.clone();
    sorted.sort_unstable();
    let usual = sorted[(sorted.len() - 1) / 2];
    let mut program = reductions(size, |_, _| 0);
    program.start = Box::new(move |rank, out| {
        let load = loads[rank as usize];
        let piece =
            WorkPiece { range: Some("load"), ns: load.min(usual), excess_ns: load.saturating_sub(usual) };
        out.push(Operation::Work(piece));
        out.push(collective(CollectiveKind::Barrier, 0));
    });
    let (cause, pattern) = (NamedCause::StartUp, CausePattern::None);
    (program, ExpectedAnswer { cause, range: Some("load"), pattern, ..ExpectedAnswer::nobody() })
}

pub(super) fn more_rows(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        // One row more takes as long as the excess.
        let rows = size.work_ns / size.excess_ns.max(1);
        out.extend((0..rows).map(|_| WorkPiece::operation("row", size.excess_ns, 0)));
        out.push(WorkPiece::operation("row", 0, size.excess_of(rank)));
        out.push(collective(CollectiveKind::Allreduce, 0));
    });
    let expected = ExpectedAnswer::rank(size.subject, "row");
    (program, ExpectedAnswer { work_cause: Some("more_work"), ..expected })
}

pub(super) fn slow_node(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let node = size.subject / size.ranks_per_node;
    let is_slow = move |rank: u32| rank / size.ranks_per_node == node;
    let program = reductions(size, move |rank, _| if is_slow(rank) { size.excess_ns } else { 0 });
    let expected = ExpectedAnswer::rank(size.subject, "compute");
    (program, ExpectedAnswer { cause: NamedCause::Node(node), ..expected })
}

pub(super) fn alternating(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let is_slow = move |rank: u32, step: u32| step % size.ranks == rank;
    let program = reductions(size, move |rank, step| if is_slow(rank, step) { size.excess_ns } else { 0 });
    (program, ExpectedAnswer { pattern: CausePattern::Rotating, ..ExpectedAnswer::nobody() })
}

pub(super) fn two_stragglers(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let second = (size.subject + 2) % size.ranks;
    let program = reductions(size, move |rank, _| match rank {
        rank if rank == size.subject => size.excess_ns,
        rank if rank == second => size.excess_ns / 2,
        _ => 0,
    });
    let cause = NamedCause::Ranks(vec![size.subject, second]);
    (program, ExpectedAnswer { cause, ..ExpectedAnswer::rank(size.subject, "compute") })
}

pub(super) fn phase(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let (from, to) = (size.steps / 4, size.steps * 3 / 4);
    let is_slow = move |rank: u32, step: u32| rank == size.subject && (from..to).contains(&step);
    let program = reductions(size, move |rank, step| if is_slow(rank, step) { size.excess_ns } else { 0 });
    let pattern = CausePattern::Phase { from, to };
    (program, ExpectedAnswer { pattern, ..ExpectedAnswer::rank(size.subject, "compute") })
}

/// Returns the number of rows of the grid of so many ranks that is nearest to a square.
fn rows_of(ranks: u32) -> u32 {
    let divides = |rows: &u32| ranks.is_multiple_of(*rows) && rows * rows <= ranks;
    (1..=ranks).rfind(divides).unwrap_or(1)
}

pub(super) fn grid(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let rows = rows_of(size.ranks);
    let columns = size.ranks / rows;
    let mut program = Program::of_steps(size.ranks, size.steps, move |rank, _, out| {
        out.push(WorkPiece::operation("compute", size.work_ns, size.excess_of(rank)));
        out.push(collective(CollectiveKind::Allreduce, 1 + rank / columns));
        out.push(collective(CollectiveKind::Allreduce, 1 + rows + rank % columns));
    });
    let of = |name: String, ranks: Vec<u32>| ModelCommunicator::of(&name, "MPI_Comm_split", ranks);
    program.communicators.extend((0..rows).map(|row| {
        of(format!("MPI_COMM_WORLD/1@{}", row * columns), (0..columns).map(|c| row * columns + c).collect())
    }));
    program.communicators.extend((0..columns).map(|column| {
        of(format!("MPI_COMM_WORLD/2@{column}"), (0..rows).map(|r| r * columns + column).collect())
    }));
    (program, ExpectedAnswer::rank(size.subject, "compute"))
}

pub(super) fn halves(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let half = size.ranks / 2;
    let mut program = Program::of_steps(size.ranks, size.steps, move |rank, step, out| {
        out.push(WorkPiece::operation("compute", size.work_ns, size.excess_of(rank)));
        out.push(collective(CollectiveKind::Allreduce, if rank < half { 1 } else { 2 }));
        if step % MEETING_PERIOD == MEETING_PERIOD - 1 {
            out.push(collective(CollectiveKind::Barrier, 0));
        }
    });
    let made_by = "MPI_Comm_split";
    program.communicators.push(ModelCommunicator::of("MPI_COMM_WORLD/1@0", made_by, 0..half));
    let second = format!("MPI_COMM_WORLD/1@{half}");
    program.communicators.push(ModelCommunicator::of(&second, made_by, half..size.ranks));
    (program, ExpectedAnswer::rank(size.subject, "compute"))
}

pub(super) fn nested(size: ScenarioSize) -> (Program, ExpectedAnswer) {
    let (half, quarter) = (size.ranks / 2, size.ranks / 4);
    let mut program = Program::of_steps(size.ranks, size.steps, move |rank, step, out| {
        out.push(WorkPiece::operation("compute", size.work_ns, size.excess_of(rank)));
        out.push(collective(CollectiveKind::Allreduce, 3 + rank / quarter));
        if rank % 2 == 0 {
            out.push(collective(CollectiveKind::Allreduce, EVEN));
        }
        let message = Message { communicator: BETWEEN, ..Message::with(rank % half, 5, 512) };
        match rank < half {
            true => out.push(Operation::Send(message, SendMode::Standard)),
            false => out.push(Operation::Receive(message)),
        }
        if step % MEETING_PERIOD == MEETING_PERIOD - 1 {
            out.push(collective(CollectiveKind::Barrier, BETWEEN));
        }
    });
    let communicators = &mut program.communicators;
    for part in 0..2 {
        let name = format!("MPI_COMM_WORLD/1@{}", part * half);
        communicators.push(ModelCommunicator::of(&name, "MPI_Comm_split", part * half..(part + 1) * half));
    }
    for part in 0..4 {
        let name = format!("MPI_COMM_WORLD/1@{}/1@{}", part / 2 * half, part * quarter);
        let ranks = part * quarter..(part + 1) * quarter;
        communicators.push(ModelCommunicator::of(&name, "MPI_Comm_split", ranks));
    }
    communicators.push(ModelCommunicator {
        name: "MPI_COMM_WORLD/2@0".to_owned(),
        made_by: "MPI_Intercomm_create",
        groups: vec![(0..half).collect(), (half..size.ranks).collect()],
    });
    let even = (0..size.ranks).filter(|rank| rank % 2 == 0);
    communicators.push(ModelCommunicator::of("MPI_COMM_WORLD/3@0", "MPI_Comm_create_group", even));
    (program, ExpectedAnswer::rank(size.subject, "compute"))
}
