//! The trait `Comm` of rpd-comm on MPI: the only crate of the workspace that depends on the package `mpi`.
//!
//! Only programs with a name that ends with `-mpi` link it, so that the others run on nodes without libmpi. Without
//! the feature `mpi` the crate is empty.
#![cfg(feature = "mpi")]

use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use mpi::{Count, Threading};
use rpd_comm::Comm;

/// Maximum number of bytes in one collective call between two ranks. Counts in MPI are C ints, so the sum over
/// all ranks must stay below 2 GiB. Longer messages are sent in several rounds.
const ROUND_BYTES: usize = 1 << 30;

/// All ranks of the launched job.
#[allow(missing_debug_implementations, reason = "the types of the package mpi have no Debug")]
pub struct Mpi {
    world: SimpleCommunicator,
    /// Finalises MPI when it is dropped.
    _universe: Universe,
}

impl Mpi {
    /// Initialises MPI for use by the main thread. Returns `None` if MPI does not support that.
    pub fn initialize() -> Option<Mpi> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)?;
        Some(Mpi { world: universe.world(), _universe: universe })
    }

    /// Ends all ranks of the job with this exit code.
    pub fn abort(&self, code: i32) -> ! {
        self.world.abort(code)
    }
}

impl Comm for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn all_gather(&self, mine: Vec<u8>) -> Vec<Vec<u8>> {
        let mut lengths = vec![0u64; self.size()];
        self.world.all_gather_into(&(mine.len() as u64), &mut lengths[..]);
        if lengths.iter().sum::<u64>() > ROUND_BYTES as u64 {
            return self.all_to_all(vec![mine; self.size()]);
        }
        let (counts, starts) = layout(lengths.iter().map(|n| *n as usize));
        let outgoing = own_memory(mine);
        let mut incoming = own_memory(vec![0; lengths.iter().sum::<u64>() as usize]);
        let mut parts = PartitionMut::new(&mut incoming[..], &counts[..], &starts[..]);
        self.world.all_gather_varcount_into(&outgoing[..], &mut parts);
        split(&incoming, &counts)
    }

    fn all_to_all(&self, outgoing: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let size = self.size();
        let sizes: Vec<u64> = outgoing.iter().map(|b| b.len() as u64).collect();
        let mut incoming_sizes = vec![0u64; size];
        self.world.all_to_all_into(&sizes[..], &mut incoming_sizes[..]);
        let mut longest = vec![0u64; size];
        let mine = sizes.iter().chain(&incoming_sizes).copied().max().unwrap_or(0);
        self.world.all_gather_into(&mine, &mut longest[..]);

        let piece = ROUND_BYTES / size;
        let rounds = (longest.into_iter().max().unwrap_or(0) as usize).div_ceil(piece);
        let mut incoming: Vec<Vec<u8>> = vec![Vec::new(); size];
        for round in 0..rounds {
            let part = |length: usize| (round * piece).min(length)..((round + 1) * piece).min(length);
            let send: Vec<&[u8]> = outgoing.iter().map(|b| &b[part(b.len())]).collect();
            let receive: Vec<usize> = incoming_sizes.iter().map(|n| part(*n as usize).len()).collect();
            for (all, bytes) in incoming.iter_mut().zip(self.exchange(&send, &receive)) {
                if all.is_empty() {
                    *all = bytes;
                } else {
                    all.extend_from_slice(&bytes);
                }
            }
        }
        incoming
    }
}

impl Mpi {
    /// Makes one `MPI_Alltoallv` call. The sums of lengths must be below 2 GiB.
    fn exchange(&self, send: &[&[u8]], receive: &[usize]) -> Vec<Vec<u8>> {
        let (send_counts, send_starts) = layout(send.iter().map(|b| b.len()));
        let (counts, starts) = layout(receive.iter().copied());
        let outgoing = own_memory(send.concat());
        let mut incoming = own_memory(vec![0; receive.iter().sum()]);
        self.world.all_to_all_varcount_into(
            &Partition::new(&outgoing[..], &send_counts[..], &send_starts[..]),
            &mut PartitionMut::new(&mut incoming[..], &counts[..], &starts[..]),
        );
        split(&incoming, &counts)
    }
}

/// Returns counts and displacements of consecutive parts.
fn layout(lengths: impl Iterator<Item = usize>) -> (Vec<Count>, Vec<Count>) {
    let counts: Vec<Count> = lengths.map(|l| l as Count).collect();
    let starts = counts.iter().scan(0, |at, c| Some(std::mem::replace(at, *at + *c))).collect();
    (counts, starts)
}

fn split(bytes: &[u8], counts: &[Count]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut take = |count: &Count| {
        let (part, after) = rest.split_at(*count as usize);
        rest = after;
        part.to_vec()
    };
    counts.iter().map(&mut take).collect()
}

/// Allocates memory for an empty `Vec`. Otherwise it points at address 1, which is the value of MPI_IN_PLACE in
/// Open MPI.
fn own_memory(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.reserve(1);
    bytes
}
