//! The collectives of MPI-3, blocking and not.

use super::abi::{Handle, Ints, Ptr};
use super::call::Volume::{Counts, CountsOfTypes, Elements, OwnCount, PerRank, Unknown};
use super::call::{collective, rooted};
use super::mpi_functions;
use std::ffi::c_int;

/// Exports a collective, and its form that takes a request as one argument more.
macro_rules! with_nonblocking {
    ($($blocking:ident $nonblocking:ident($($argument:ident: $kind:ty),* $(,)?) => $describe:expr;)*) => {
        mpi_functions! {
            $($blocking($($argument: $kind),*) => $describe;)*
            $($nonblocking($($argument: $kind),*, request: Ptr) => $describe;)*
        }
    };
}

with_nonblocking! {
    MPI_Barrier MPI_Ibarrier(comm: Handle)
        => collective(Unknown, comm);
    MPI_Bcast MPI_Ibcast(buffer: Ptr, count: c_int, datatype: Handle, root: c_int, comm: Handle)
        => rooted(Elements(count, datatype), root, comm);
    MPI_Gather MPI_Igather(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcount: c_int, recvtype:
        Handle, root: c_int, comm: Handle,
    )
        => rooted(Elements(sendcount, sendtype), root, comm)
            .or_in_place(sendbuf, Elements(recvcount, recvtype));
    MPI_Gatherv MPI_Igatherv(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcounts: Ints, rdispls:
        Ints, recvtype: Handle, root: c_int, comm: Handle,
    )
        => rooted(Elements(sendcount, sendtype), root, comm)
            .or_in_place(sendbuf, OwnCount(recvcounts, recvtype));
    MPI_Scatter MPI_Iscatter(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcount: c_int, recvtype:
        Handle, root: c_int, comm: Handle,
    )
        => rooted(Elements(recvcount, recvtype), root, comm)
            .or_in_place(recvbuf, Elements(sendcount, sendtype));
    MPI_Scatterv MPI_Iscatterv(
        sendbuf: Ptr, sendcounts: Ints, sdispls: Ints, sendtype: Handle, recvbuf: Ptr, recvcount:
        c_int, recvtype: Handle, root: c_int, comm: Handle,
    )
        => rooted(Elements(recvcount, recvtype), root, comm)
            .or_in_place(recvbuf, OwnCount(sendcounts, sendtype));
    MPI_Allgather MPI_Iallgather(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcount: c_int, recvtype:
        Handle, comm: Handle,
    )
        => collective(Elements(sendcount, sendtype), comm)
            .or_in_place(sendbuf, Elements(recvcount, recvtype));
    MPI_Allgatherv MPI_Iallgatherv(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcounts: Ints, rdispls:
        Ints, recvtype: Handle, comm: Handle,
    )
        => collective(Elements(sendcount, sendtype), comm)
            .or_in_place(sendbuf, OwnCount(recvcounts, recvtype));
    MPI_Alltoall MPI_Ialltoall(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcount: c_int, recvtype:
        Handle, comm: Handle,
    )
        => collective(PerRank(sendcount, sendtype), comm).or_in_place(sendbuf, PerRank(recvcount, recvtype));
    MPI_Alltoallv MPI_Ialltoallv(
        sendbuf: Ptr, sendcounts: Ints, sdispls: Ints, sendtype: Handle, recvbuf: Ptr, recvcounts:
        Ints, rdispls: Ints, recvtype: Handle, comm: Handle,
    )
        => collective(Counts(sendcounts, sendtype), comm).or_in_place(sendbuf, Counts(recvcounts, recvtype));
    MPI_Alltoallw MPI_Ialltoallw(
        sendbuf: Ptr, sendcounts: Ints, sdispls: Ptr, sendtypes: Ptr, recvbuf: Ptr, recvcounts:
        Ints, rdispls: Ptr, recvtypes: Ptr, comm: Handle,
    )
        => collective(CountsOfTypes(sendcounts, sendtypes), comm)
            .or_in_place(sendbuf, CountsOfTypes(recvcounts, recvtypes));
    MPI_Allreduce MPI_Iallreduce(
        sendbuf: Ptr, recvbuf: Ptr, count: c_int, datatype: Handle, op: Handle, comm: Handle,
    )
        => collective(Elements(count, datatype), comm);
    MPI_Reduce MPI_Ireduce(
        sendbuf: Ptr, recvbuf: Ptr, count: c_int, datatype: Handle, op: Handle, root: c_int, comm:
        Handle,
    )
        => rooted(Elements(count, datatype), root, comm);
    MPI_Reduce_scatter MPI_Ireduce_scatter(
        sendbuf: Ptr, recvbuf: Ptr, recvcounts: Ints, datatype: Handle, op: Handle, comm: Handle,
    )
        => collective(Counts(recvcounts, datatype), comm);
    MPI_Reduce_scatter_block MPI_Ireduce_scatter_block(
        sendbuf: Ptr, recvbuf: Ptr, recvcount: c_int, datatype: Handle, op: Handle, comm: Handle,
    )
        => collective(PerRank(recvcount, datatype), comm);
    MPI_Scan MPI_Iscan(sendbuf: Ptr, recvbuf: Ptr, count: c_int, datatype: Handle, op: Handle, comm: Handle)
        => collective(Elements(count, datatype), comm);
    MPI_Exscan MPI_Iexscan(
        sendbuf: Ptr, recvbuf: Ptr, count: c_int, datatype: Handle, op: Handle, comm: Handle,
    )
        => collective(Elements(count, datatype), comm);
    MPI_Neighbor_allgather MPI_Ineighbor_allgather(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcount: c_int, recvtype:
        Handle, comm: Handle,
    )
        => collective(Elements(sendcount, sendtype), comm);
    MPI_Neighbor_allgatherv MPI_Ineighbor_allgatherv(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcounts: Ints, rdispls:
        Ints, recvtype: Handle, comm: Handle,
    )
        => collective(Elements(sendcount, sendtype), comm);
    MPI_Neighbor_alltoall MPI_Ineighbor_alltoall(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, recvbuf: Ptr, recvcount: c_int, recvtype:
        Handle, comm: Handle,
    )
        => collective(Elements(sendcount, sendtype), comm);
    MPI_Neighbor_alltoallv MPI_Ineighbor_alltoallv(
        sendbuf: Ptr, sendcounts: Ints, sdispls: Ints, sendtype: Handle, recvbuf: Ptr, recvcounts:
        Ints, rdispls: Ints, recvtype: Handle, comm: Handle,
    )
        => collective(Unknown, comm);
    MPI_Neighbor_alltoallw MPI_Ineighbor_alltoallw(
        sendbuf: Ptr, sendcounts: Ints, sdispls: Ptr, sendtypes: Ptr, recvbuf: Ptr, recvcounts:
        Ints, rdispls: Ptr, recvtypes: Ptr, comm: Handle,
    )
        => collective(Unknown, comm);
}
