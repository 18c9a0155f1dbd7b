//! Native tables: compact tables that the collector writes. A merge expands each row into several rows of RocPD; no
//! native table reaches an output.
//!
//! Rows do not repeat their node or process, because a block belongs to one process. `end` is NULL if the process
//! died or called exec before the range or call ended.

use super::columns::{int, reference, stack, string, text, time};
use super::rocpd::INFO_THREAD;
use super::row_types::{MarkRow, TableRow};
use super::table::{FIRST_CARRIED_TABLE, Table, TableId};

/// A roctx range (push/pop or start/stop). Expands to an event and a region.
pub const RANGE: TableId = TableId(64);
/// A roctx mark. Expands to an event and a sample on the track "roctxMark" of its thread.
pub const MARK: TableId = TableId(65);
/// An MPI call. Expands to an event, a region, and one arg for each value of the call.
pub const MPI_CALL: TableId = TableId(66);
/// An RCCL host call. Expands to an event, a region, and one arg for each value of the call.
pub const RCCL_CALL: TableId = TableId(67);
/// A completed non-blocking MPI operation. Expands to an event, a sample on the track "MPI request" of the thread
/// that observed the completion, and one arg for each value.
pub const MPI_REQUEST: TableId = TableId(68);
/// A communicator of MPI or RCCL that was created or named. Expands to an event, a sample on the track
/// "communicator" of its thread, and one arg for each value.
pub const COMMUNICATOR: TableId = TableId(69);

/// Returns whether a table is native.
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

    let mark = MarkRow::table().columns;

    // `name_id` is the function, as in `range`, so that the nesting columns keep their positions. `seq` counts this
    // process's collectives on one communicator from 1, separately from its other calls. The n-th collective
    // therefore has the same number in every rank, even if some calls were not recorded. `bytes` is the size of
    // this rank's message (sends and collectives) or buffer (receives). `source`, `recvtag` and `recvbytes` (buffer)
    // are what `MPI_Sendrecv` receives. `probe_stack_id` is the matched probe that found the message of the call, with
    // its communicator, peer and tag.
    let mut mpi_call = range.clone();
    mpi_call.extend([string("comm_id"), int("peer"), int("root"), int("tag"), int("bytes"), int("seq")]);
    mpi_call.extend([int("source"), int("recvtag"), int("recvbytes"), stack("probe_stack_id")]);

    // `stream` is the handle of the stream that gets the operation.
    let mut rccl_call = range.clone();
    rccl_call.extend([
        string("comm_id"),
        int("peer"),
        int("root"),
        int("count"),
        string("datatype_id"),
        int("bytes"),
        int("seq"),
        int("stream"),
    ]);

    // `name_id` is the function that started the operation. `stack_id` is the id of that call, which joins the two.
    // `parent_stack_id` is the call that completed the operation. `peer`, `tag` and `bytes` are those of the
    // received message if the program requested a status or may have received any. `init_stack_id` is the call that
    // created a persistent request.
    let mut mpi_request = mark.clone();
    mpi_request.extend([int("peer"), int("tag"), int("bytes"), stack("init_stack_id")]);

    // `name_id` is the function that created or named the communicator; `stack_id` is the id of that call.
    // `label_id` is the name that the program assigned. `size` and `rank` are those of the own side of an
    // intercommunicator; `side` is 0 if the leader of this side has the lower rank in `MPI_COMM_WORLD`, 1 for the
    // other one. `sources` and `destinations` are JSON lists with the ranks of the neighbours in a topology.
    let mut communicator = mark.clone();
    communicator.extend([string("comm_id"), string("label_id"), int("size"), int("rank"), int("side")]);
    communicator.extend([text("sources"), text("destinations")]);

    vec![
        table(RANGE, "range", range),
        table(MARK, "mark", mark),
        table(MPI_CALL, "mpi_call", mpi_call),
        table(RCCL_CALL, "rccl_call", rccl_call),
        table(MPI_REQUEST, "mpi_request", mpi_request),
        table(COMMUNICATOR, "communicator", communicator),
    ]
}
