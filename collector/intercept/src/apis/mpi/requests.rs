//! Functions on requests: starting persistent ones, waiting, testing, freeing.

use super::argument::{Address, ArgumentKind, Indices, Int, IntPlace, Opaque, Requests, Status, StatusArray};
use super::call::CallEffect::{Completes, Frees, StartsAgain};
use super::call::CompletedRequests::{All, AllIf, One, OneIf, Some as Several};
use super::call::{CallArguments, plain};
use super::{c_function, fortran_functions, mpi_functions};

mpi_functions! { plain:
    MPI_Start mpi_start(request: Requests) => plain().and(StartsAgain(request, 1));
    MPI_Startall mpi_startall(count: Int, requests: Requests) => plain().and(StartsAgain(requests, count));

    MPI_Wait mpi_wait(request: Requests, status: Status) => plain().and(Completes(request, 1, All, status));
    MPI_Waitall mpi_waitall(count: Int, requests: Requests, statuses: StatusArray)
        => plain().and(Completes(requests, count, All, statuses));
    MPI_Waitany mpi_waitany(count: Int, requests: Requests, index: Indices, status: Status)
        => plain().and(Completes(requests, count, One(index), status));
    MPI_Waitsome mpi_waitsome(
        count: Int, requests: Requests, completed: IntPlace, indices: Indices, statuses: StatusArray,
    ) => plain().and(Completes(requests, count, Several(completed, indices), statuses));

    MPI_Test mpi_test(request: Requests, flag: IntPlace, status: Status)
        => plain().and(Completes(request, 1, AllIf(flag), status));
    MPI_Testall mpi_testall(count: Int, requests: Requests, flag: IntPlace, statuses: StatusArray)
        => plain().and(Completes(requests, count, AllIf(flag), statuses));
    MPI_Testany mpi_testany(count: Int, requests: Requests, index: Indices, flag: IntPlace, status: Status)
        => plain().and(Completes(requests, count, OneIf(flag, index), status));
    MPI_Testsome mpi_testsome(
        count: Int, requests: Requests, completed: IntPlace, indices: Indices, statuses: StatusArray,
    ) => plain().and(Completes(requests, count, Several(completed, indices), statuses));

    // The call completes nothing: the request stays.
    MPI_Request_get_status mpi_request_get_status(request: Opaque, flag: IntPlace, status: Address) => plain();
    MPI_Request_free mpi_request_free(request: Requests) => plain().and(Frees(request));
    MPI_Cancel mpi_cancel(request: Requests) => plain();
}
