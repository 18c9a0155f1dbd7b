//! The ranks of one merge, the messages between them, and their agreement on results.
//!
//! [`Solo`] is one rank with all cores. [`threads`] runs several ranks in one process, for tests without MPI.
//! The crate `rpd-comm-mpi` implements [`Comm`] on MPI, so that no library of the workspace links libmpi.

mod agreement;
mod launcher;
mod solo;
pub mod threads;

pub use agreement::{
    agree_on_result, all_gather_counts, all_gather_values, broadcast_result, exchange_values, gather_values,
    shared_failure,
};
pub use launcher::{Launcher, check_launched_ranks, continue_under_launcher};
pub use solo::Solo;

/// The ranks of a merge. [`rank`](Comm::rank) and [`size`](Comm::size) are local. Every other call is
/// collective: all ranks must make it, in the same order, on their main thread.
pub trait Comm {
    /// Returns this rank, from 0.
    fn rank(&self) -> usize;
    /// Returns the number of ranks.
    fn size(&self) -> usize;
    /// Sends bytes to every rank and returns the bytes of each rank, by rank.
    fn all_gather(&self, mine: Vec<u8>) -> Vec<Vec<u8>>;
    /// Sends `outgoing[r]` to rank `r` and returns the bytes that each rank sent to this one, by rank.
    fn all_to_all(&self, outgoing: Vec<Vec<u8>>) -> Vec<Vec<u8>>;
    /// Waits until every rank has called it.
    fn barrier(&self) {
        self.all_gather(Vec::new());
    }
}
