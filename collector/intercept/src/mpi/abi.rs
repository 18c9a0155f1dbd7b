//! What differs between the two families of MPI: handles are addresses in Open MPI and `int` in
//! MPICH and its relatives, and the special values are other numbers.

use crate::real::{Fallback, RealFunction, mpi_variable};
use rpd_ring::record::{COMM_SELF, COMM_WORLD};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Any pointer.
pub(super) type Ptr = *mut c_void;
/// A pointer to an array of `int`.
pub(super) type Ints = *const c_int;
/// A handle of MPI in the register or stack slot that carries it. With `int` handles the upper half
/// is undefined: passed on as it came, cut off where we look at it.
pub(super) type Handle = usize;

const OMPI_IN_PLACE: usize = 1;
const MPICH_IN_PLACE: usize = usize::MAX;
const MPICH_COMM_WORLD: usize = 0x4400_0000;
const MPICH_COMM_SELF: usize = 0x4400_0001;
const MPICH_DATATYPE_NULL: usize = 0x0c00_0000;

/// The family of the MPI library that is loaded.
#[derive(Clone, Copy)]
pub(super) struct Abi {
    open_mpi: bool,
    world: usize,
    own: usize,
    no_datatype: usize,
}

static KNOWN: AtomicBool = AtomicBool::new(false);
static WORLD: AtomicUsize = AtomicUsize::new(0);
static OWN: AtomicUsize = AtomicUsize::new(0);
static NO_DATATYPE: AtomicUsize = AtomicUsize::new(0);

impl Abi {
    /// Finds out, once. Threads that find out together find the same.
    #[inline]
    pub(super) fn get() -> Abi {
        if !KNOWN.load(Acquire) {
            WORLD.store(mpi_variable(c"ompi_mpi_comm_world").unwrap_or(0), Release);
            OWN.store(mpi_variable(c"ompi_mpi_comm_self").unwrap_or(0), Release);
            NO_DATATYPE.store(mpi_variable(c"ompi_mpi_datatype_null").unwrap_or(0), Release);
            KNOWN.store(true, Release);
        }
        match WORLD.load(Acquire) {
            0 => Abi {
                open_mpi: false,
                world: MPICH_COMM_WORLD,
                own: MPICH_COMM_SELF,
                no_datatype: MPICH_DATATYPE_NULL,
            },
            world => {
                Abi { open_mpi: true, world, own: OWN.load(Acquire), no_datatype: NO_DATATYPE.load(Acquire) }
            }
        }
    }

    fn value(self, handle: Handle) -> usize {
        if self.open_mpi { handle } else { handle & 0xffff_ffff }
    }

    /// A communicator as the ring carries it.
    pub(super) fn comm(self, handle: Handle) -> u64 {
        match self.value(handle) {
            world if world == self.world => COMM_WORLD,
            own if own == self.own => COMM_SELF,
            other => other as u64,
        }
    }

    /// The other side of a message: none for any source, -1 for `MPI_PROC_NULL`.
    pub(super) fn peer(self, rank: c_int) -> Option<i32> {
        let (any, nobody) = if self.open_mpi { (-1, -2) } else { (-2, -1) };
        match rank {
            rank if rank == any => None,
            rank if rank == nobody => Some(-1),
            rank => Some(rank),
        }
    }

    /// Whether a buffer is `MPI_IN_PLACE`.
    pub(super) fn in_place(self, buffer: Ptr) -> bool {
        buffer as usize == if self.open_mpi { OMPI_IN_PLACE } else { MPICH_IN_PLACE }
    }

    /// Bytes of `count` elements; none if MPI does not say.
    pub(super) fn bytes(self, count: i64, datatype: Handle) -> Option<i64> {
        if count <= 0 {
            return Some(0);
        }
        let value = self.value(datatype);
        if value == self.no_datatype || value == 0 {
            return None;
        }
        // MPICH writes the size of its basic types into their handles.
        if !self.open_mpi && value >> 24 == 0x4c {
            return count.checked_mul((value >> 8 & 0xff) as i64);
        }
        count.checked_mul(i64::from(ask(&TYPE_SIZE, datatype)?))
    }

    /// Number of processes of a communicator.
    pub(super) fn size(self, comm: Handle) -> Option<i32> {
        ask(&COMM_SIZE, comm)
    }

    /// Rank of this process in a communicator.
    pub(super) fn rank(self, comm: Handle) -> Option<i32> {
        ask(&COMM_RANK, comm)
    }

    /// The handle at a place of an array of handles.
    ///
    /// # Safety
    /// The array has that many elements.
    pub(super) unsafe fn handle_at(self, array: Ptr, at: usize) -> Handle {
        // SAFETY: the caller's promise, and the width of a handle in this family.
        unsafe {
            if self.open_mpi {
                array.cast::<usize>().add(at).read_unaligned()
            } else {
                array.cast::<u32>().add(at).read_unaligned() as usize
            }
        }
    }
}

static TYPE_SIZE: RealFunction = RealFunction::new(c"PMPI_Type_size", Fallback::LoadedMpi);
static COMM_SIZE: RealFunction = RealFunction::new(c"PMPI_Comm_size", Fallback::LoadedMpi);
static COMM_RANK: RealFunction = RealFunction::new(c"PMPI_Comm_rank", Fallback::LoadedMpi);

/// Calls `int f(handle, int *answer)`. The program has just passed the handle to MPI itself.
fn ask(function: &RealFunction, handle: Handle) -> Option<i32> {
    let address = function.address()?;
    let mut answer: c_int = 0;
    // SAFETY: the three functions above have this type, with a handle in an integer register.
    let failed = unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(Handle, *mut c_int) -> c_int>(address)(
            handle,
            &raw mut answer,
        )
    };
    (failed == 0).then_some(answer)
}
