//! What a rank says to others: messages, collectives of MPI and RCCL, communicators.

use super::native::{NativeCall, NativeRows};
use super::process::{Author, CALL};
use super::random::RandomSource;

const COLLECTIVES: [(&str, i64, Option<i64>); 6] = [
    ("MPI_Allreduce", 4_194_304, None),
    ("MPI_Allreduce", 16_384, None),
    ("MPI_Bcast", 65_536, Some(0)),
    ("MPI_Reduce", 8, Some(1)),
    ("MPI_Allgather", 2_048, None),
    ("MPI_Barrier", 0, None),
];

const RCCL_COMM: &str = "nccl-00000000000000ff";

/// What the main thread of a rank does in the first slots of a step.
pub(super) fn slot(author: &mut Author<'_>, step: i64, slot: usize) {
    match slot {
        0 if step == 0 => communicators(author),
        0 => exchange(author),
        1 | 2 => message(author, slot == 1),
        _ => all_reduce(author, step),
    }
}

/// A rank beside this one: the next or the one before.
fn neighbour(author: &Author<'_>, next: bool) -> i64 {
    (i64::from(author.process.rank) + if next { 1 } else { ranks(author) - 1 }) % ranks(author)
}

fn ranks(author: &Author<'_>) -> i64 {
    i64::from(author.run.config.nodes * author.run.config.ranks_per_node)
}

/// Adds a call that a thread makes now.
fn call(author: &mut Author<'_>, thread: usize, call: NativeCall) -> NativeRows {
    let start = author.pass(thread, CALL);
    let end = author.pass(thread, CALL);
    let (stack, parent) = (author.new_stack(), author.parent(thread));
    let made = NativeRows { thread, call, start, end, stack, parent };
    author.rows.native.push(made.clone());
    made
}

/// A call of MPI without any value.
fn mpi(function: &'static str) -> NativeCall {
    NativeCall::Mpi { function, comm: None, peer: None, root: None, tag: None, bytes: None, seq: None }
}

/// A message to the next rank, or from the one before.
fn message(author: &mut Author<'_>, send: bool) {
    let message = NativeCall::Mpi {
        function: if send { "MPI_Send" } else { "MPI_Recv" },
        comm: Some("MPI_COMM_WORLD"),
        peer: Some(neighbour(author, send)),
        root: None,
        tag: Some(author.messages / 2 % 5),
        bytes: Some(author.random.between(1, 1 << 20)),
        seq: None,
    };
    author.messages += 1;
    call(author, 0, message);
}

/// Messages in both directions at once, that one call sees complete.
fn exchange(author: &mut Author<'_>) {
    let mut started = Vec::new();
    for function in ["MPI_Irecv", "MPI_Isend"] {
        let peer = Some(neighbour(author, function == "MPI_Isend"));
        let begin = NativeCall::Mpi {
            function,
            comm: Some("MPI_COMM_WORLD"),
            peer,
            root: None,
            tag: Some(7),
            bytes: Some(4_096),
            seq: None,
        };
        started.push((function, call(author, 0, begin).stack));
    }
    let start = author.pass(0, CALL);
    let (stack, parent) = (author.new_stack(), author.parent(0));
    for (function, started) in started {
        let at = author.pass(0, CALL);
        // Only a receive has a message, and only where the program asked for it.
        let received =
            (function == "MPI_Irecv" && author.random.chance(60)).then(|| neighbour(author, false));
        let bytes = received.map(|_| 4_000);
        let request = NativeCall::Request { function, message: received.map(|peer| (peer, 7)), bytes };
        let seen = NativeRows { thread: 0, call: request, start: at, end: at, stack: started, parent: stack };
        author.rows.native.push(seen);
    }
    let end = author.pass(0, CALL);
    author.rows.native.push(NativeRows { thread: 0, call: mpi("MPI_Waitall"), start, end, stack, parent });
}

/// Communicators that a program makes when it begins, in its last thread.
fn communicators(author: &mut Author<'_>) {
    let thread = author.threads() - 1;
    let size_rank = Some((ranks(author), i64::from(author.process.rank)));
    let split = "MPI_COMM_WORLD/1@0";
    for (function, comm, label, size_rank) in [
        ("MPI_Comm_split", split, None, size_rank),
        ("MPI_Comm_set_name", split, Some("data parallel"), size_rank),
        ("MPI_Comm_set_name", "comm-1", Some("of a library"), None),
        ("ncclCommInitRank", RCCL_COMM, None, size_rank),
    ] {
        let rccl = NativeCall::Rccl { function, comm: None, root: None, elements: None, seq: None };
        let made_by = if function.starts_with("nccl") { rccl } else { mpi(function) };
        let within = call(author, thread, made_by);
        let made = NativeCall::Communicator { function, comm, label, size_rank };
        let at = within.start + 1;
        author.rows.native.push(NativeRows { call: made, start: at, end: at, ..within });
    }
}

/// A call of RCCL: now and then one that has no values.
fn all_reduce(author: &mut Author<'_>, step: i64) {
    let broadcast = step % 3 == 1;
    let rccl = match step % 3 {
        2 => NativeCall::Rccl { function: "ncclGroupEnd", comm: None, root: None, elements: None, seq: None },
        _ => NativeCall::Rccl {
            function: if broadcast { "ncclBroadcast" } else { "ncclAllReduce" },
            comm: Some(RCCL_COMM),
            root: broadcast.then_some(0),
            elements: Some((1 << 20, "ncclFloat32", 4 << 20)),
            seq: Some(step + 1),
        },
    };
    call(author, 0, rccl);
}

/// The collective at the end of a step: the same one in all ranks, which leave it together, soon after the last of
/// them has come.
pub(super) fn collective(author: &mut Author<'_>, step: i64, end_of_step: i64) {
    let mut shared = RandomSource::new(&[author.run.config.seed, 5, step as u64]);
    let (function, bytes, root) = *shared.pick(&COLLECTIVES);
    let done = end_of_step - 500_000 + shared.between(0, 200_000);
    let last = shared.between(0, ranks(author));
    let waits = author.random.duration(200_000).min(9_000_000);
    let waits = if i64::from(author.process.rank) == last { 0 } else { waits };
    let start = done - 20_000 - waits;
    let end = done + author.random.between(0, 5_000);
    let call = NativeCall::Mpi {
        function,
        comm: Some(if shared.chance(80) { "MPI_COMM_WORLD" } else { "data parallel" }),
        peer: None,
        root,
        tag: None,
        bytes: (function != "MPI_Barrier").then_some(bytes),
        seq: Some(author.collectives),
    };
    author.collectives += 1;
    let stack = author.new_stack();
    author.rows.native.push(NativeRows { thread: 0, call, start, end, stack, parent: 0 });
}
