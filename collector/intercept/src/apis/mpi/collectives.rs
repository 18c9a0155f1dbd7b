//! The collectives of MPI-3, blocking and non-blocking.

use super::argument::{
    Address, ArgumentKind, Buffer, Comm, Datatype, Datatypes, ElementCount, Int, Opaque, OwnNumbers,
    RecvNumbers, Requests, SendNumbers,
};
use super::call::DataVolume::{
    Counts, CountsOfTypes, Elements, MemberCounts, OwnCount, PerMember, PerRank, Unknown,
};
use super::call::{CallArguments, CallEffect, collective, neighbours, rooted};
use super::{c_function, fortran_functions, mpi_functions};

/// Exports collectives, and the form of each with an additional request.
macro_rules! with_nonblocking {
    (
        $counted:ident:
        $($blocking:ident $lower:ident $starting:ident $starting_lower:ident(
            $($argument:ident: $kind:ident),* $(,)?
        ) => $describe:expr;)*
    ) => {
        mpi_functions! { $counted:
            $($blocking $lower($($argument: $kind),*) => $describe;)*
            $($starting $starting_lower($($argument: $kind),*, request: Requests)
                => $describe.and(CallEffect::Starts(request));)*
        }
    };
}

with_nonblocking! { plain:
    MPI_Barrier mpi_barrier MPI_Ibarrier mpi_ibarrier(comm: Comm)
        => collective(Unknown, comm);
}

with_nonblocking! { counted:
    MPI_Bcast mpi_bcast MPI_Ibcast mpi_ibcast(
        buffer: Buffer, count: ElementCount, datatype: Datatype, root: Int, comm: Comm,
    ) => rooted(Elements(count, datatype), root, comm);
    MPI_Gather mpi_gather MPI_Igather mpi_igather(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcount: ElementCount,
        recvtype: Datatype, root: Int, comm: Comm,
    )
        => rooted(Elements(sendcount, sendtype), root, comm)
            .or_in_place(sendbuf, Elements(recvcount, recvtype));
    MPI_Gatherv mpi_gatherv MPI_Igatherv mpi_igatherv(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcounts: RecvNumbers,
        rdispls: RecvNumbers, recvtype: Datatype, root: Int, comm: Comm,
    )
        => rooted(Elements(sendcount, sendtype), root, comm)
            .or_in_place(sendbuf, OwnCount(recvcounts, recvtype));
    MPI_Scatter mpi_scatter MPI_Iscatter mpi_iscatter(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcount: ElementCount,
        recvtype: Datatype, root: Int, comm: Comm,
    )
        => rooted(Elements(recvcount, recvtype), root, comm)
            .or_in_place(recvbuf, Elements(sendcount, sendtype));
    MPI_Scatterv mpi_scatterv MPI_Iscatterv mpi_iscatterv(
        sendbuf: Buffer, sendcounts: SendNumbers, sdispls: SendNumbers, sendtype: Datatype,
        recvbuf: Buffer, recvcount: ElementCount, recvtype: Datatype, root: Int, comm: Comm,
    )
        => rooted(Elements(recvcount, recvtype), root, comm)
            .or_in_place(recvbuf, OwnCount(sendcounts, sendtype));
    MPI_Allgather mpi_allgather MPI_Iallgather mpi_iallgather(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcount: ElementCount,
        recvtype: Datatype, comm: Comm,
    )
        => collective(Elements(sendcount, sendtype), comm)
            .or_in_place(sendbuf, Elements(recvcount, recvtype));
    MPI_Allgatherv mpi_allgatherv MPI_Iallgatherv mpi_iallgatherv(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcounts: RecvNumbers,
        rdispls: RecvNumbers, recvtype: Datatype, comm: Comm,
    )
        => collective(Elements(sendcount, sendtype), comm)
            .or_in_place(sendbuf, OwnCount(recvcounts, recvtype));
    MPI_Alltoall mpi_alltoall MPI_Ialltoall mpi_ialltoall(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcount: ElementCount,
        recvtype: Datatype, comm: Comm,
    )
        => collective(PerRank(sendcount, sendtype), comm).or_in_place(sendbuf, PerRank(recvcount, recvtype));
    MPI_Alltoallv mpi_alltoallv MPI_Ialltoallv mpi_ialltoallv(
        sendbuf: Buffer, sendcounts: SendNumbers, sdispls: SendNumbers, sendtype: Datatype,
        recvbuf: Buffer, recvcounts: RecvNumbers, rdispls: RecvNumbers, recvtype: Datatype, comm: Comm,
    )
        => collective(Counts(sendcounts, sendtype), comm).or_in_place(sendbuf, Counts(recvcounts, recvtype));
    MPI_Alltoallw mpi_alltoallw MPI_Ialltoallw mpi_ialltoallw(
        sendbuf: Buffer, sendcounts: SendNumbers, sdispls: SendNumbers, sendtypes: Datatypes,
        recvbuf: Buffer, recvcounts: RecvNumbers, rdispls: RecvNumbers, recvtypes: Datatypes, comm: Comm,
    )
        => collective(CountsOfTypes(sendcounts, sendtypes), comm)
            .or_in_place(sendbuf, CountsOfTypes(recvcounts, recvtypes));
    MPI_Allreduce mpi_allreduce MPI_Iallreduce mpi_iallreduce(
        sendbuf: Buffer, recvbuf: Buffer, count: ElementCount, datatype: Datatype, op: Opaque, comm: Comm,
    ) => collective(Elements(count, datatype), comm);
    MPI_Reduce mpi_reduce MPI_Ireduce mpi_ireduce(
        sendbuf: Buffer, recvbuf: Buffer, count: ElementCount, datatype: Datatype, op: Opaque, root: Int,
        comm: Comm,
    ) => rooted(Elements(count, datatype), root, comm);
    MPI_Reduce_scatter mpi_reduce_scatter MPI_Ireduce_scatter mpi_ireduce_scatter(
        sendbuf: Buffer, recvbuf: Buffer, recvcounts: OwnNumbers, datatype: Datatype, op: Opaque,
        comm: Comm,
    ) => collective(MemberCounts(recvcounts, datatype), comm);
    MPI_Reduce_scatter_block mpi_reduce_scatter_block MPI_Ireduce_scatter_block mpi_ireduce_scatter_block(
        sendbuf: Buffer, recvbuf: Buffer, recvcount: ElementCount, datatype: Datatype, op: Opaque, comm: Comm,
    ) => collective(PerMember(recvcount, datatype), comm);
    MPI_Scan mpi_scan MPI_Iscan mpi_iscan(
        sendbuf: Buffer, recvbuf: Buffer, count: ElementCount, datatype: Datatype, op: Opaque, comm: Comm,
    ) => collective(Elements(count, datatype), comm);
    MPI_Exscan mpi_exscan MPI_Iexscan mpi_iexscan(
        sendbuf: Buffer, recvbuf: Buffer, count: ElementCount, datatype: Datatype, op: Opaque, comm: Comm,
    ) => collective(Elements(count, datatype), comm);
    MPI_Neighbor_allgather mpi_neighbor_allgather MPI_Ineighbor_allgather mpi_ineighbor_allgather(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcount: ElementCount,
        recvtype: Datatype, comm: Comm,
    ) => neighbours(Elements(sendcount, sendtype), comm);
    MPI_Neighbor_allgatherv mpi_neighbor_allgatherv MPI_Ineighbor_allgatherv mpi_ineighbor_allgatherv(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcounts: RecvNumbers,
        rdispls: RecvNumbers, recvtype: Datatype, comm: Comm,
    ) => neighbours(Elements(sendcount, sendtype), comm);
    MPI_Neighbor_alltoall mpi_neighbor_alltoall MPI_Ineighbor_alltoall mpi_ineighbor_alltoall(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, recvbuf: Buffer, recvcount: ElementCount,
        recvtype: Datatype, comm: Comm,
    ) => neighbours(Elements(sendcount, sendtype), comm);
    MPI_Neighbor_alltoallv mpi_neighbor_alltoallv MPI_Ineighbor_alltoallv mpi_ineighbor_alltoallv(
        sendbuf: Buffer, sendcounts: SendNumbers, sdispls: SendNumbers, sendtype: Datatype,
        recvbuf: Buffer, recvcounts: RecvNumbers, rdispls: RecvNumbers, recvtype: Datatype, comm: Comm,
    ) => neighbours(Unknown, comm);
    MPI_Neighbor_alltoallw mpi_neighbor_alltoallw MPI_Ineighbor_alltoallw mpi_ineighbor_alltoallw(
        sendbuf: Buffer, sendcounts: SendNumbers, sdispls: Address, sendtypes: Datatypes, recvbuf: Buffer,
        recvcounts: RecvNumbers, rdispls: Address, recvtypes: Datatypes, comm: Comm,
    ) => neighbours(Unknown, comm);
}
