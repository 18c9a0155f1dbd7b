//! The ranks of one merge, and how they talk.
//!
//! [`Solo`] is one rank with all cores; [`threads`] runs several ranks in one process, for tests
//! without MPI; `mpi.rs` is compiled into `rpd-merge-mpi` alone, so that `rpd-merge` never links
//! libmpi. Messages are bytes: what they mean is the business of who sends them.

pub mod launcher;
mod solo;
pub mod threads;

pub use solo::Solo;

/// The ranks of a merge. Every call but the first two is collective: all ranks make it, in the same
/// order, on their main thread.
pub trait Comm {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn size(&self) -> usize;
    /// Everyone's bytes, by rank.
    fn all_gather(&self, mine: Vec<u8>) -> Vec<Vec<u8>>;
    /// Sends `outgoing[r]` to rank `r`; returns what each rank sent to this one.
    fn all_to_all(&self, outgoing: Vec<Vec<u8>>) -> Vec<Vec<u8>>;
}
