//! The MPI functions that are recorded, with their numbers.

use crate::functions::numbered_functions;

numbered_functions! {
    /// An MPI function. The numbers are part of the contract, not of any file.
    MpiFunction:
    MPI_Init MPI_Init_thread MPI_Finalize
    MPI_Send MPI_Ssend MPI_Bsend MPI_Rsend MPI_Recv MPI_Isend MPI_Issend MPI_Ibsend MPI_Irsend MPI_Irecv
    MPI_Sendrecv MPI_Sendrecv_replace MPI_Probe MPI_Iprobe MPI_Mprobe MPI_Improbe MPI_Mrecv MPI_Imrecv
    MPI_Send_init MPI_Ssend_init MPI_Bsend_init MPI_Rsend_init MPI_Recv_init MPI_Start MPI_Startall
    MPI_Wait MPI_Waitall MPI_Waitany MPI_Waitsome MPI_Test MPI_Testall MPI_Testany MPI_Testsome
    MPI_Request_free MPI_Cancel
    MPI_Barrier MPI_Bcast MPI_Gather MPI_Gatherv MPI_Scatter MPI_Scatterv MPI_Allgather MPI_Allgatherv
    MPI_Alltoall MPI_Alltoallv MPI_Alltoallw MPI_Allreduce MPI_Reduce MPI_Reduce_scatter
    MPI_Reduce_scatter_block MPI_Scan MPI_Exscan
    MPI_Neighbor_allgather MPI_Neighbor_allgatherv MPI_Neighbor_alltoall MPI_Neighbor_alltoallv
    MPI_Neighbor_alltoallw
    MPI_Ibarrier MPI_Ibcast MPI_Igather MPI_Igatherv MPI_Iscatter MPI_Iscatterv MPI_Iallgather MPI_Iallgatherv
    MPI_Ialltoall MPI_Ialltoallv MPI_Ialltoallw MPI_Iallreduce MPI_Ireduce MPI_Ireduce_scatter
    MPI_Ireduce_scatter_block MPI_Iscan MPI_Iexscan
    MPI_Ineighbor_allgather MPI_Ineighbor_allgatherv MPI_Ineighbor_alltoall MPI_Ineighbor_alltoallv
    MPI_Ineighbor_alltoallw
    MPI_Comm_dup MPI_Comm_dup_with_info MPI_Comm_idup MPI_Comm_create MPI_Comm_split MPI_Comm_split_type
    MPI_Cart_create MPI_Cart_sub MPI_Graph_create MPI_Dist_graph_create MPI_Dist_graph_create_adjacent
    MPI_Intercomm_merge MPI_Comm_free MPI_Comm_disconnect
    MPI_Comm_create_group MPI_Intercomm_create MPI_Comm_set_name
    MPI_Request_get_status
    MPI_Win_create MPI_Win_free MPI_Win_fence MPI_Win_start MPI_Win_complete MPI_Win_post MPI_Win_wait MPI_Win_test
    MPI_Win_lock MPI_Win_unlock MPI_Win_lock_all MPI_Win_unlock_all MPI_Win_flush MPI_Win_flush_all
    MPI_Win_flush_local MPI_Win_flush_local_all
    MPI_File_open MPI_File_close MPI_File_sync MPI_File_set_size MPI_File_set_view MPI_File_preallocate
    MPI_File_read MPI_File_read_all MPI_File_read_shared MPI_File_read_ordered MPI_File_read_at MPI_File_read_at_all
    MPI_File_write MPI_File_write_all MPI_File_write_shared MPI_File_write_ordered MPI_File_write_at
    MPI_File_write_at_all
    MPI_File_read_all_begin MPI_File_read_all_end MPI_File_read_at_all_begin MPI_File_read_at_all_end
    MPI_File_read_ordered_begin MPI_File_read_ordered_end
    MPI_File_write_all_begin MPI_File_write_all_end MPI_File_write_at_all_begin MPI_File_write_at_all_end
    MPI_File_write_ordered_begin MPI_File_write_ordered_end
    MPI_Win_allocate MPI_Win_allocate_shared MPI_Win_create_dynamic
}

/// Whether the function with this number is a collective: the n-th one on a communicator is the same call in
/// all its ranks. Functions after the last collective are calls of some of its ranks.
#[inline]
pub fn is_collective(number: u32) -> bool {
    (MpiFunction::MPI_Barrier as u32..=MpiFunction::MPI_Comm_disconnect as u32).contains(&number)
}

/// Whether the function with this number starts persistent requests.
pub fn starts_persistent(number: u32) -> bool {
    [MpiFunction::MPI_Start, MpiFunction::MPI_Startall].iter().any(|function| *function as u32 == number)
}

/// Whether the function with this number may start a receive. A status contains nothing about other
/// operations.
pub fn may_receive(number: u32) -> bool {
    use MpiFunction::{MPI_Imrecv, MPI_Irecv};
    starts_persistent(number) || [MPI_Irecv, MPI_Imrecv].iter().any(|function| *function as u32 == number)
}
