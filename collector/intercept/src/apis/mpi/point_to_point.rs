//! Start and end of MPI, and messages.

use super::argument::{
    Address, ArgumentKind, Buffer, Comm, Datatype, ElementCount, Int, IntPlace, MessagePlace, Requests,
    Status,
};
use super::call::{CallArguments, CallEffect, message, plain, probe, receives};
use super::{c_function, fortran_functions, mpi_functions};

mpi_functions! { plain:
    MPI_Finalize mpi_finalize() => plain();
}

/// `MPI_Init`: Fortran passes no command line.
mod mpi_init {
    use super::*;
    c_function! { MPI_Init(argc: Address, argv: Address) => plain().and(CallEffect::MakesWorld) }
    fortran_functions! { MPI_Init ("mpi_init") () => plain().and(CallEffect::MakesWorld) }
}

/// `MPI_Init_thread`, likewise.
mod mpi_init_thread {
    use super::*;
    c_function! {
        MPI_Init_thread(argc: Address, argv: Address, required: Int, provided: Address)
            => plain().and(CallEffect::MakesWorld)
    }
    fortran_functions! {
        MPI_Init_thread ("mpi_init_thread") (required: Int, provided: Address)
            => plain().and(CallEffect::MakesWorld)
    }
}

/// Functions with the arguments of `MPI_Send`, and those with an additional request.
macro_rules! sends {
    ($($blocking:ident $lower:ident $starting:ident $starting_lower:ident $preparing:ident $preparing_lower:ident;)*) => {
        mpi_functions! { counted: $(
            $blocking $lower(buf: Buffer, count: ElementCount, datatype: Datatype, dest: Int, tag: Int, comm: Comm)
                => message(count, datatype, dest, tag, comm);
            $starting $starting_lower(
                buf: Buffer, count: ElementCount, datatype: Datatype, dest: Int, tag: Int, comm: Comm,
                request: Requests,
            ) => message(count, datatype, dest, tag, comm).and(CallEffect::Starts(request));
            $preparing $preparing_lower(
                buf: Buffer, count: ElementCount, datatype: Datatype, dest: Int, tag: Int, comm: Comm,
                request: Requests,
            ) => message(count, datatype, dest, tag, comm).and(CallEffect::PreparesSend(request));
        )* }
    };
}

sends! {
    MPI_Send mpi_send MPI_Isend mpi_isend MPI_Send_init mpi_send_init;
    MPI_Ssend mpi_ssend MPI_Issend mpi_issend MPI_Ssend_init mpi_ssend_init;
    MPI_Bsend mpi_bsend MPI_Ibsend mpi_ibsend MPI_Bsend_init mpi_bsend_init;
    MPI_Rsend mpi_rsend MPI_Irsend mpi_irsend MPI_Rsend_init mpi_rsend_init;
}

mpi_functions! { counted:
    MPI_Recv mpi_recv(
        buf: Buffer, count: ElementCount, datatype: Datatype, source: Int, tag: Int, comm: Comm, status: Status,
    ) => message(count, datatype, source, tag, comm).and(CallEffect::Receives(None, status));
    MPI_Irecv mpi_irecv(
        buf: Buffer, count: ElementCount, datatype: Datatype, source: Int, tag: Int, comm: Comm, request: Requests,
    ) => message(count, datatype, source, tag, comm).and(CallEffect::StartsReceive(request));
    MPI_Recv_init mpi_recv_init(
        buf: Buffer, count: ElementCount, datatype: Datatype, source: Int, tag: Int, comm: Comm, request: Requests,
    ) => message(count, datatype, source, tag, comm).and(CallEffect::PreparesReceive(request));
    MPI_Sendrecv mpi_sendrecv(
        sendbuf: Buffer, sendcount: ElementCount, sendtype: Datatype, dest: Int, sendtag: Int,
        recvbuf: Buffer, recvcount: ElementCount, recvtype: Datatype, source: Int, recvtag: Int,
        comm: Comm, status: Status,
    ) => message(sendcount, sendtype, dest, sendtag, comm)
        .and_receives(recvcount, recvtype, source, recvtag, status);
    MPI_Sendrecv_replace mpi_sendrecv_replace(
        buf: Buffer, count: ElementCount, datatype: Datatype, dest: Int, sendtag: Int, source: Int, recvtag: Int,
        comm: Comm, status: Status,
    ) => message(count, datatype, dest, sendtag, comm).and_receives(count, datatype, source, recvtag, status);
    MPI_Mrecv mpi_mrecv(
        buf: Buffer, count: ElementCount, datatype: Datatype, message: MessagePlace, status: Status,
    ) => receives(count, datatype, message).and(CallEffect::Receives(None, status));
    MPI_Imrecv mpi_imrecv(
        buf: Buffer, count: ElementCount, datatype: Datatype, message: MessagePlace, request: Requests,
    ) => receives(count, datatype, message).and(CallEffect::Starts(request));
}

mpi_functions! { plain:
    MPI_Probe mpi_probe(source: Int, tag: Int, comm: Comm, status: Status)
        => probe(source, tag, comm).and(CallEffect::Receives(None, status));
    MPI_Iprobe mpi_iprobe(source: Int, tag: Int, comm: Comm, flag: IntPlace, status: Status)
        => probe(source, tag, comm).and(CallEffect::Receives(Some(flag), status));
    MPI_Mprobe mpi_mprobe(source: Int, tag: Int, comm: Comm, message: MessagePlace, status: Status)
        => probe(source, tag, comm).finds(message).and(CallEffect::Receives(None, status));
    MPI_Improbe mpi_improbe(
        source: Int, tag: Int, comm: Comm, flag: IntPlace, message: MessagePlace, status: Status,
    ) => probe(source, tag, comm).finds(message).and(CallEffect::Receives(Some(flag), status));
}
