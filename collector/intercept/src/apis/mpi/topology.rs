//! Neighbours of this process in the topology of a communicator.

use super::abi::{MpiAbi, MpiHandle, ask};
use crate::interpose::real::{MPI, RealFunction};
use crate::runtime::scratch::ScratchMemory;
use rpd_ring::layout::MAX_NEIGHBOURS;
use std::ffi::c_int;

/// Kinds of topologies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TopologyKind {
    Graph,
    Cartesian,
    DistributedGraph,
}

/// Returns the topology of a communicator that is not an intercommunicator.
fn kind_of(comm: MpiHandle) -> Option<TopologyKind> {
    // The two families number the first two kinds in opposite order.
    let is_graph_first = MpiAbi::get().numbers_graphs_first();
    match ask(&TOPO_TEST, comm)? {
        1 if is_graph_first => Some(TopologyKind::Graph),
        2 if !is_graph_first => Some(TopologyKind::Graph),
        1 | 2 => Some(TopologyKind::Cartesian),
        3 => Some(TopologyKind::DistributedGraph),
        _ => None,
    }
}

/// Returns the number of neighbours that send to this process, and of those that it sends to.
pub(super) fn neighbour_counts(comm: MpiHandle) -> Option<(c_int, c_int)> {
    counts(kind_of(comm)?, comm)
}

fn counts(kind: TopologyKind, comm: MpiHandle) -> Option<(c_int, c_int)> {
    match kind {
        TopologyKind::DistributedGraph => {
            let (mut sources, mut destinations, mut weighted) = (0, 0, 0);
            type Count = unsafe extern "C-unwind" fn(MpiHandle, *mut c_int, *mut c_int, *mut c_int) -> c_int;
            let address = DIST_GRAPH_NEIGHBORS_COUNT.address()?;
            // SAFETY: the function has this type.
            let failed = unsafe {
                std::mem::transmute::<usize, Count>(address)(
                    comm,
                    &raw mut sources,
                    &raw mut destinations,
                    &raw mut weighted,
                )
            };
            (failed == 0).then_some((sources, destinations))
        }
        TopologyKind::Graph => {
            let mut count = 0;
            type Count = unsafe extern "C-unwind" fn(MpiHandle, c_int, *mut c_int) -> c_int;
            let (address, rank) = (GRAPH_NEIGHBORS_COUNT.address()?, MpiAbi::get().rank(comm)?);
            // SAFETY: the function has this type.
            let failed = unsafe { std::mem::transmute::<usize, Count>(address)(comm, rank, &raw mut count) };
            (failed == 0).then_some((count, count))
        }
        TopologyKind::Cartesian => {
            let count = ask(&CARTDIM_GET, comm)?.checked_mul(2)?;
            Some((count, count))
        }
    }
}

/// Neighbours in both directions, in the order of MPI's neighbour collectives.
pub(super) struct CommunicatorNeighbours {
    /// Sources, destinations, and the weights of both: [`MAX_NEIGHBOURS`] numbers each.
    memory: ScratchMemory,
    sources: usize,
    destinations: usize,
}

/// Bytes of the numbers in one direction.
const PART_BYTES: usize = MAX_NEIGHBOURS * size_of::<c_int>();

impl CommunicatorNeighbours {
    /// Returns the neighbours in a communicator with a topology. `None` if there are none or more than
    /// [`MAX_NEIGHBOURS`].
    pub(super) fn of(comm: MpiHandle) -> Option<CommunicatorNeighbours> {
        let kind = kind_of(comm)?;
        let (sources, destinations) = counts(kind, comm)?;
        let (sources, destinations) = (usize::try_from(sources).ok()?, usize::try_from(destinations).ok()?);
        if sources.max(destinations) == 0 || sources.max(destinations) > MAX_NEIGHBOURS {
            return None;
        }
        let mut neighbours =
            CommunicatorNeighbours { memory: ScratchMemory::new(4 * PART_BYTES)?, sources, destinations };
        match kind {
            TopologyKind::DistributedGraph => neighbours.read_distributed_graph(comm)?,
            TopologyKind::Graph => neighbours.read_graph(comm)?,
            TopologyKind::Cartesian => neighbours.read_cartesian(comm)?,
        }
        if kind != TopologyKind::DistributedGraph {
            neighbours.memory.bytes().copy_within(..PART_BYTES, PART_BYTES);
        }
        neighbours.replace_null_processes();
        Some(neighbours)
    }

    /// Ranks of the neighbours that send to this process, 4 bytes each; -1 for none.
    pub(super) fn sources(&mut self) -> &[u8] {
        self.memory.bytes().get(..self.sources * size_of::<c_int>()).unwrap_or_default()
    }

    /// Ranks of the neighbours to which this process sends.
    pub(super) fn destinations(&mut self) -> &[u8] {
        let bytes = PART_BYTES..PART_BYTES + self.destinations * size_of::<c_int>();
        self.memory.bytes().get(bytes).unwrap_or_default()
    }

    /// Returns the address of the numbers of a part.
    fn part(&mut self, part: usize) -> *mut c_int {
        self.memory.bytes().as_mut_ptr().wrapping_add(part * PART_BYTES).cast()
    }

    fn read_distributed_graph(&mut self, comm: MpiHandle) -> Option<()> {
        type Get = unsafe extern "C-unwind" fn(
            MpiHandle,
            c_int,
            *mut c_int,
            *mut c_int,
            c_int,
            *mut c_int,
            *mut c_int,
        ) -> c_int;
        let address = DIST_GRAPH_NEIGHBORS.address()?;
        let (sources, destinations) = (self.sources as c_int, self.destinations as c_int);
        let [from, to, from_weights, to_weights] = [0, 1, 2, 3].map(|part| self.part(part));
        // SAFETY: the function has this type, and each array has space for so many numbers.
        let failed = unsafe {
            std::mem::transmute::<usize, Get>(address)(
                comm,
                sources,
                from,
                from_weights,
                destinations,
                to,
                to_weights,
            )
        };
        (failed == 0).then_some(())
    }

    fn read_graph(&mut self, comm: MpiHandle) -> Option<()> {
        type Get = unsafe extern "C-unwind" fn(MpiHandle, c_int, c_int, *mut c_int) -> c_int;
        let (address, rank) = (GRAPH_NEIGHBORS.address()?, MpiAbi::get().rank(comm)?);
        let (count, ranks) = (self.sources as c_int, self.part(0));
        // SAFETY: the function has this type, and the array has space for so many numbers.
        let failed = unsafe { std::mem::transmute::<usize, Get>(address)(comm, rank, count, ranks) };
        (failed == 0).then_some(())
    }

    /// In each dimension the neighbour before this process, then the one after it.
    fn read_cartesian(&mut self, comm: MpiHandle) -> Option<()> {
        type Shift = unsafe extern "C-unwind" fn(MpiHandle, c_int, c_int, *mut c_int, *mut c_int) -> c_int;
        let address = CART_SHIFT.address()?;
        for dimension in 0..self.sources / 2 {
            let before = self.part(0).wrapping_add(2 * dimension);
            let after = before.wrapping_add(1);
            // SAFETY: the function has this type, and writes two numbers of the array.
            let failed = unsafe {
                std::mem::transmute::<usize, Shift>(address)(comm, dimension as c_int, 1, before, after)
            };
            if failed != 0 {
                return None;
            }
        }
        Some(())
    }

    fn replace_null_processes(&mut self) {
        let abi = MpiAbi::get();
        for bytes in self.memory.bytes().chunks_exact_mut(size_of::<c_int>()).take(2 * MAX_NEIGHBOURS) {
            if let Ok(rank) = <[u8; 4]>::try_from(&*bytes) {
                let rank = abi.peer(c_int::from_ne_bytes(rank)).unwrap_or(-1);
                bytes.copy_from_slice(&rank.to_le_bytes());
            }
        }
    }
}

static TOPO_TEST: RealFunction = RealFunction::new(c"PMPI_Topo_test", Some(&MPI));
static CARTDIM_GET: RealFunction = RealFunction::new(c"PMPI_Cartdim_get", Some(&MPI));
static CART_SHIFT: RealFunction = RealFunction::new(c"PMPI_Cart_shift", Some(&MPI));
static GRAPH_NEIGHBORS_COUNT: RealFunction = RealFunction::new(c"PMPI_Graph_neighbors_count", Some(&MPI));
static GRAPH_NEIGHBORS: RealFunction = RealFunction::new(c"PMPI_Graph_neighbors", Some(&MPI));
static DIST_GRAPH_NEIGHBORS_COUNT: RealFunction =
    RealFunction::new(c"PMPI_Dist_graph_neighbors_count", Some(&MPI));
static DIST_GRAPH_NEIGHBORS: RealFunction = RealFunction::new(c"PMPI_Dist_graph_neighbors", Some(&MPI));
