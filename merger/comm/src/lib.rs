//! The ranks of one merge, the messages between them, and how they agree.
//!
//! [`Solo`] is one rank with all cores. [`threads`] runs several ranks in one process, for tests without MPI. The crate
//! `rpd-comm-mpi` implements [`Comm`] on MPI, so that no library of the workspace links libmpi.

mod agreement;
mod launcher;
mod solo;
pub mod threads;

pub use agreement::{agree_on_result, broadcast_result, gather_counts, shared_failure};
pub use launcher::{Launcher, exec_mpi_twin};
pub use solo::Solo;

/// The ranks of a merge. [`rank`](Comm::rank) and [`size`](Comm::size) are local. Every other call is collective: all ranks
/// make it, in the same order, on their main thread.
pub trait Comm {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn size(&self) -> usize;
    /// Sends bytes to every rank; returns what each rank sent, by rank.
    fn all_gather(&self, mine: Vec<u8>) -> Vec<Vec<u8>>;
    /// Sends `outgoing[r]` to rank `r`; returns what each rank sent to this one, by rank.
    fn all_to_all(&self, outgoing: Vec<Vec<u8>>) -> Vec<Vec<u8>>;
    /// Returns when every rank has called it.
    fn barrier(&self) {
        self.all_gather(Vec::new());
    }
}
