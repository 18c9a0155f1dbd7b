//! One-sided communication: the calls in which a process may wait for others. Transfers return at once and
//! are not recorded.

use super::argument::{Address, ArgumentKind, Int, IntPlace, Offset, Opaque};
use super::call::{CallArguments, plain};
use super::{c_function, fortran_functions, mpi_functions};

mpi_functions! { plain:
    MPI_Win_create mpi_win_create(
        base: Address, size: Offset, disp_unit: Int, info: Opaque, comm: Opaque, win: Address,
    ) => plain();
    MPI_Win_allocate mpi_win_allocate(
        size: Offset, disp_unit: Int, info: Opaque, comm: Opaque, base: Address, win: Address,
    ) => plain();
    MPI_Win_allocate_shared mpi_win_allocate_shared(
        size: Offset, disp_unit: Int, info: Opaque, comm: Opaque, base: Address, win: Address,
    ) => plain();
    MPI_Win_create_dynamic mpi_win_create_dynamic(info: Opaque, comm: Opaque, win: Address) => plain();
    MPI_Win_free mpi_win_free(win: Address) => plain();
    MPI_Win_fence mpi_win_fence(assert: Int, win: Opaque) => plain();
    MPI_Win_start mpi_win_start(group: Opaque, assert: Int, win: Opaque) => plain();
    MPI_Win_complete mpi_win_complete(win: Opaque) => plain();
    MPI_Win_post mpi_win_post(group: Opaque, assert: Int, win: Opaque) => plain();
    MPI_Win_wait mpi_win_wait(win: Opaque) => plain();
    MPI_Win_test mpi_win_test(win: Opaque, flag: IntPlace) => plain();
    MPI_Win_lock mpi_win_lock(lock_type: Int, rank: Int, assert: Int, win: Opaque) => plain();
    MPI_Win_unlock mpi_win_unlock(rank: Int, win: Opaque) => plain();
    MPI_Win_lock_all mpi_win_lock_all(assert: Int, win: Opaque) => plain();
    MPI_Win_unlock_all mpi_win_unlock_all(win: Opaque) => plain();
    MPI_Win_flush mpi_win_flush(rank: Int, win: Opaque) => plain();
    MPI_Win_flush_all mpi_win_flush_all(win: Opaque) => plain();
    MPI_Win_flush_local mpi_win_flush_local(rank: Int, win: Opaque) => plain();
    MPI_Win_flush_local_all mpi_win_flush_local_all(win: Opaque) => plain();
}
