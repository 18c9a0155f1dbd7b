//! Ranks of an MPI job. The one file that names `mpi`; compiled into `rpd-merge-mpi` alone.

use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use rpd_merge::comm::Comm;

/// Most bytes of one collective call between two ranks. Counts in MPI are C ints, so that the sum
/// over all ranks must stay below 2 GiB; longer messages go in several rounds.
const ROUND_BYTES: usize = 1 << 30;

/// All ranks of the launched job.
pub(crate) struct Mpi {
    world: SimpleCommunicator,
    /// Finalises MPI when it is dropped.
    _universe: Universe,
}

impl Mpi {
    /// Initialises MPI for use by the main thread; `None` where it is too old for that.
    pub(crate) fn initialize() -> Option<Mpi> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)?;
        Some(Mpi { world: universe.world(), _universe: universe })
    }

    /// Ends all ranks of the job with this exit code.
    pub(crate) fn abort(&self, code: i32) -> ! {
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
        self.all_to_all(vec![mine; self.size()])
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
                all.extend_from_slice(&bytes);
            }
        }
        incoming
    }
}

impl Mpi {
    /// One `MPI_Alltoallv`. Sums of lengths are below 2 GiB.
    fn exchange(&self, send: &[&[u8]], receive: &[usize]) -> Vec<Vec<u8>> {
        use mpi::Count;
        use mpi::datatype::{Partition, PartitionMut};
        let layout = |lengths: &mut dyn Iterator<Item = usize>| -> (Vec<Count>, Vec<Count>) {
            let counts: Vec<Count> = lengths.map(|l| l as Count).collect();
            let starts = counts.iter().scan(0, |at, c| Some(std::mem::replace(at, *at + *c))).collect();
            (counts, starts)
        };
        let (send_counts, send_starts) = layout(&mut send.iter().map(|b| b.len()));
        let (counts, starts) = layout(&mut receive.iter().copied());
        // An empty Vec points at address 1, which is what Open MPI defines MPI_IN_PLACE as: give both
        // buffers memory of their own.
        let mut outgoing = send.concat();
        outgoing.reserve_exact(1);
        let mut incoming = Vec::with_capacity(receive.iter().sum::<usize>() + 1);
        incoming.resize(receive.iter().sum(), 0u8);
        self.world.all_to_all_varcount_into(
            &Partition::new(&outgoing[..], &send_counts[..], &send_starts[..]),
            &mut PartitionMut::new(&mut incoming[..], &counts[..], &starts[..]),
        );
        starts.iter().zip(receive).map(|(s, n)| incoming[*s as usize..*s as usize + n].to_vec()).collect()
    }
}
