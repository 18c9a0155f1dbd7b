//! The functions that create, free and name communicators.

use super::abi::{MpiHandle, MpiPointer};
use super::argument::{Address, ArgumentKind, Comm, CommPlace, Int, Opaque, Requests};
use super::call::{CallArguments, CallEffect, DataVolume, collective, plain};
use super::new_communicator::CommunicatorCreation;
use super::pointers::HandleArray;
use super::{c_function, fortran_functions, mpi_functions};
use rpd_ring::layout::MAX_NAME_BYTES;
use rpd_ring::record::CommunicatorBirth;
use std::ffi::c_int;

/// All ranks of a communicator create another one.
fn creates(comm: MpiHandle, place: HandleArray) -> CallArguments {
    creates_later(comm, place, None)
}

/// Like `creates`. The communicator is complete when `request` is.
fn creates_later(comm: MpiHandle, place: HandleArray, request: Option<HandleArray>) -> CallArguments {
    let creation = CommunicatorCreation { place, request, birth: CommunicatorBirth::Collective, tag: 0 };
    collective(DataVolume::Unknown, comm).and(CallEffect::Makes(creation))
}

/// The ranks of a group create a communicator, or those of two groups.
fn creates_tagged(
    comm: MpiHandle,
    tag: c_int,
    birth: CommunicatorBirth,
    place: HandleArray,
) -> CallArguments {
    let creation = CommunicatorCreation { place, request: None, birth, tag };
    CallArguments { tag: Some(tag), ..collective(DataVolume::Unknown, comm).and(CallEffect::Makes(creation)) }
}

/// A communicator is freed.
fn frees(place: HandleArray) -> CallArguments {
    CallArguments { comm: Some(place.one()), effect: CallEffect::FreesComm, ..plain() }
}

mpi_functions! { plain:
    MPI_Comm_dup mpi_comm_dup(comm: Comm, newcomm: CommPlace) => creates(comm, newcomm);
    MPI_Comm_dup_with_info mpi_comm_dup_with_info(comm: Comm, info: Opaque, newcomm: CommPlace)
        => creates(comm, newcomm);
    MPI_Comm_idup mpi_comm_idup(comm: Comm, newcomm: CommPlace, request: Requests)
        => creates_later(comm, newcomm, Some(request));
    MPI_Comm_create mpi_comm_create(comm: Comm, group: Opaque, newcomm: CommPlace) => creates(comm, newcomm);
    MPI_Comm_create_group mpi_comm_create_group(comm: Comm, group: Opaque, tag: Int, newcomm: CommPlace)
        => creates_tagged(comm, tag, CommunicatorBirth::Group, newcomm);
    MPI_Comm_split mpi_comm_split(comm: Comm, color: Int, key: Int, newcomm: CommPlace)
        => creates(comm, newcomm);
    MPI_Comm_split_type mpi_comm_split_type(
        comm: Comm, split_type: Int, key: Int, info: Opaque, newcomm: CommPlace,
    ) => creates(comm, newcomm);
    MPI_Cart_create mpi_cart_create(
        comm: Comm, ndims: Int, dims: Address, periods: Address, reorder: Int, newcomm: CommPlace,
    ) => creates(comm, newcomm);
    MPI_Cart_sub mpi_cart_sub(comm: Comm, remain_dims: Address, newcomm: CommPlace) => creates(comm, newcomm);
    MPI_Graph_create mpi_graph_create(
        comm: Comm, nnodes: Int, index: Address, edges: Address, reorder: Int, newcomm: CommPlace,
    ) => creates(comm, newcomm);
    MPI_Dist_graph_create mpi_dist_graph_create(
        comm: Comm, n: Int, sources: Address, degrees: Address, destinations: Address, weights: Address,
        info: Opaque, reorder: Int, newcomm: CommPlace,
    ) => creates(comm, newcomm);
    MPI_Dist_graph_create_adjacent mpi_dist_graph_create_adjacent(
        comm: Comm, indegree: Int, sources: Address, source_weights: Address, outdegree: Int,
        destinations: Address, destination_weights: Address, info: Opaque, reorder: Int, newcomm: CommPlace,
    ) => creates(comm, newcomm);
    MPI_Intercomm_create mpi_intercomm_create(
        comm: Comm, local_leader: Int, peer_comm: Opaque, remote_leader: Int, tag: Int, newcomm: CommPlace,
    ) => creates_tagged(comm, tag, CommunicatorBirth::Inter, newcomm);
    MPI_Intercomm_merge mpi_intercomm_merge(comm: Comm, high: Int, newcomm: CommPlace)
        => creates(comm, newcomm);
    MPI_Comm_free mpi_comm_free(comm: CommPlace) => frees(comm);
    MPI_Comm_disconnect mpi_comm_disconnect(comm: CommPlace) => frees(comm);
}

/// `MPI_Comm_set_name`: in C the name ends with a zero byte, in Fortran its length follows the other
/// arguments.
mod mpi_comm_set_name {
    use super::*;

    fn describe(comm: MpiHandle, name: MpiPointer) -> CallArguments {
        if name.is_null() {
            return nameless(comm);
        }
        // SAFETY: MPI wants a text there that ends with a zero byte.
        let bytes = unsafe { libc::strnlen(name.cast(), MAX_NAME_BYTES) };
        named(comm, name, bytes)
    }

    /// MPI reports the error about a missing name.
    fn nameless(comm: MpiHandle) -> CallArguments {
        CallArguments { comm: Some(comm), ..plain() }
    }

    fn named(comm: MpiHandle, name: MpiPointer, bytes: usize) -> CallArguments {
        CallArguments { effect: CallEffect::Names(name.cast_const().cast(), bytes), ..nameless(comm) }
    }

    /// Removes the padding blanks. Some compilers pass the length as an `int`, which leaves the upper half
    /// undefined; no name is long enough to need it.
    fn describe_fortran(comm: MpiHandle, name: MpiPointer, length: usize) -> CallArguments {
        let bytes = (length & 0xffff_ffff).min(MAX_NAME_BYTES);
        if name.is_null() {
            return nameless(comm);
        }
        // SAFETY: the compiler passes the length of the text there.
        let text = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), bytes) };
        named(comm, name, text.trim_ascii_end().len())
    }

    c_function! { MPI_Comm_set_name(comm: Comm, name: Address) => describe(comm, name) }

    fortran_functions! {
        MPI_Comm_set_name ("mpi_comm_set_name") (comm: Comm, name: Address), length: usize
            => describe_fortran(comm, name, length)
    }
}
