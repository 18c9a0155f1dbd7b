//! Start and end of MPI, messages, and waiting for them.

use super::abi::{Handle, Ints, Ptr};
use super::call::{Call, message, plain};
use super::mpi_functions;
use std::ffi::c_int;

mpi_functions! {
    MPI_Init(argc: Ptr, argv: Ptr) => plain();
    MPI_Init_thread(argc: Ptr, argv: Ptr, required: c_int, provided: Ptr) => plain();
    MPI_Finalize() => plain();

    MPI_Send(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle)
        => message(count, datatype, dest, tag, comm);
    MPI_Ssend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle)
        => message(count, datatype, dest, tag, comm);
    MPI_Bsend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle)
        => message(count, datatype, dest, tag, comm);
    MPI_Rsend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle)
        => message(count, datatype, dest, tag, comm);
    MPI_Recv(buf: Ptr, count: c_int, datatype: Handle, source: c_int, tag: c_int, comm: Handle, status: Ptr)
        => message(count, datatype, source, tag, comm);
    MPI_Isend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle, request: Ptr)
        => message(count, datatype, dest, tag, comm);
    MPI_Issend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle, request: Ptr)
        => message(count, datatype, dest, tag, comm);
    MPI_Ibsend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle, request: Ptr)
        => message(count, datatype, dest, tag, comm);
    MPI_Irsend(buf: Ptr, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle, request: Ptr)
        => message(count, datatype, dest, tag, comm);
    MPI_Irecv(buf: Ptr, count: c_int, datatype: Handle, source: c_int, tag: c_int, comm: Handle, request: Ptr)
        => message(count, datatype, source, tag, comm);
    MPI_Sendrecv(
        sendbuf: Ptr, sendcount: c_int, sendtype: Handle, dest: c_int, sendtag: c_int,
        recvbuf: Ptr, recvcount: c_int, recvtype: Handle, source: c_int, recvtag: c_int,
        comm: Handle, status: Ptr,
    ) => message(sendcount, sendtype, dest, sendtag, comm);
    MPI_Sendrecv_replace(
        buf: Ptr, count: c_int, datatype: Handle, dest: c_int, sendtag: c_int, source: c_int, recvtag: c_int,
        comm: Handle, status: Ptr,
    ) => message(count, datatype, dest, sendtag, comm);
    MPI_Probe(source: c_int, tag: c_int, comm: Handle, status: Ptr)
        => Call { comm: Some(comm), peer: Some(source), tag: Some(tag), ..plain() };

    MPI_Wait(request: Ptr, status: Ptr) => plain();
    MPI_Waitall(count: c_int, requests: Ptr, statuses: Ptr) => plain();
    MPI_Waitany(count: c_int, requests: Ptr, index: Ptr, status: Ptr) => plain();
    MPI_Waitsome(count: c_int, requests: Ptr, done: Ptr, indices: Ints, statuses: Ptr) => plain();
}
