//! Runs several ranks in one process, as one thread each. It serves tests of results that must not depend on the
//! number of ranks.

use super::Comm;
use std::panic::resume_unwind;
use std::sync::{Barrier, Mutex, PoisonError};

/// State that the ranks share.
#[derive(Debug)]
struct Board {
    barrier: Barrier,
    /// Messages: `slots[to][from]`.
    slots: Vec<Mutex<Vec<Vec<u8>>>>,
}

/// One of several ranks that are threads of this process.
#[derive(Debug)]
pub struct ThreadRank<'a> {
    rank: usize,
    board: &'a Board,
}

/// Runs `body` once per rank and returns the results by rank. As under MPI, a rank that returns early blocks the
/// others: `body` must make the same collective calls on every rank.
pub fn run<T: Send>(size: usize, body: impl Fn(&ThreadRank<'_>) -> T + Sync) -> Vec<T> {
    let slots = (0..size).map(|_| Mutex::new(vec![Vec::new(); size])).collect();
    let board = Board { barrier: Barrier::new(size), slots };
    let (board, body) = (&board, &body);
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..size).map(|rank| scope.spawn(move || body(&ThreadRank { rank, board }))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

impl Comm for ThreadRank<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.board.slots.len()
    }

    fn all_gather(&self, mine: Vec<u8>) -> Vec<Vec<u8>> {
        self.all_to_all(vec![mine; self.size()])
    }

    fn all_to_all(&self, outgoing: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        for (slot, bytes) in self.board.slots.iter().zip(outgoing) {
            slot.lock().unwrap_or_else(PoisonError::into_inner)[self.rank] = bytes;
        }
        self.board.barrier.wait();
        let size = self.size();
        let mut slot = self.board.slots[self.rank].lock().unwrap_or_else(PoisonError::into_inner);
        let incoming = std::mem::replace(&mut *slot, vec![Vec::new(); size]);
        drop(slot);
        // No rank may post its next message before all ranks have received this one.
        self.board.barrier.wait();
        incoming
    }
}
