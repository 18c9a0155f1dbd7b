//! The compact tables that the collector writes. One row represents several rows of RocPD and is
//! expanded into them when shards are merged; none of them reaches an output.
//!
//! No row repeats its node or process: a block belongs to one process.
//! `end` is NULL where the process died, or left by exec, before the range or call had ended.

use super::rocpd::INFO_THREAD;
use super::table::{FIRST_CARRIED_TABLE, Table, TableId, int, reference, stack, string, time};

/// A roctx range (push/pop or start/stop): event, region.
pub const RANGE: TableId = TableId(64);
/// A roctx mark: event, sample on the track "roctxMark" of its thread.
pub const MARK: TableId = TableId(65);
/// An MPI call: event, region, one arg for each value that the call has.
pub const MPI_CALL: TableId = TableId(66);
/// An RCCL host call: event, region, one arg for each value that the call has.
pub const RCCL_CALL: TableId = TableId(67);
/// A non-blocking MPI operation that was seen to be complete: event, sample on the track
/// "MPI request" of the thread that saw it, one arg for each value.
pub const MPI_REQUEST: TableId = TableId(68);
/// A communicator of MPI or RCCL that was made or named: event, sample on the track "communicator" of
/// its thread, one arg for each value.
pub const COMMUNICATOR: TableId = TableId(69);

/// Whether a table is one of these.
pub fn is_native(table: TableId) -> bool {
    (RANGE..FIRST_CARRIED_TABLE).contains(&table)
}

pub(super) fn tables() -> Vec<Table> {
    let span = || [reference("tid", INFO_THREAD).not_null(), time("start").not_null(), time("end").near(1)];
    let nesting = || [stack("stack_id"), stack("parent_stack_id").near(4)];
    let table =
        |id, name: &str, columns: Vec<super::table::Column>| Table { id, name: name.to_owned(), columns };
    let mut range: Vec<_> = span().into();
    range.push(string("name_id").not_null());
    range.extend(nesting());

    let mark = vec![
        reference("tid", INFO_THREAD).not_null(),
        time("timestamp").not_null(),
        string("name_id").not_null(),
        stack("stack_id"),
        stack("parent_stack_id").near(3),
    ];

    // `name_id` is the function, as in `range`, so that the nesting columns keep their places.
    // `seq` counts this process's collectives on one communicator from 1, and apart from them its
    // other calls, so that the n-th collective is the n-th in every rank, also where some were not
    // recorded. `bytes` is what this rank
    // passes (sends and collectives) or has room for (receives).
    let mut mpi_call = range.clone();
    mpi_call.extend([string("comm_id"), int("peer"), int("root"), int("tag"), int("bytes"), int("seq")]);

    let mut rccl_call = range.clone();
    rccl_call.extend([
        string("comm_id"),
        int("peer"),
        int("root"),
        int("count"),
        string("datatype_id"),
        int("bytes"),
        int("seq"),
    ]);

    // `name_id` is the function that started the operation and `stack_id` that call's, so that the two
    // can be joined; `parent_stack_id` is the call that completed it. `peer`, `tag` and `bytes` are
    // those of the message that came, where the program asked for them with a status.
    let mut mpi_request = mark.clone();
    mpi_request.extend([int("peer"), int("tag"), int("bytes")]);

    // `name_id` is the function that made or named it and `stack_id` that call's. `label_id` is the
    // name that the program gave it.
    let mut communicator = mark.clone();
    communicator.extend([string("comm_id"), string("label_id"), int("size"), int("rank")]);

    vec![
        table(RANGE, "range", range),
        table(MARK, "mark", mark),
        table(MPI_CALL, "mpi_call", mpi_call),
        table(RCCL_CALL, "rccl_call", rccl_call),
        table(MPI_REQUEST, "mpi_request", mpi_request),
        table(COMMUNICATOR, "communicator", communicator),
    ]
}
