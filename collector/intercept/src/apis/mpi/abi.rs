//! Differences between the two families of MPI: handles are addresses in Open MPI and `int` in MPICH and its
//! relatives, special values are other numbers, and a status has another layout.
//!
//! Other families exist (the standard ABI of MPI 5, HPE MPT), to which none of this applies. Their calls are
//! passed on without inspection.

use crate::interpose::real::{MPI, MPI_FORTRAN, RealFunction, c_name, variable};
use crate::runtime::errno;
use rpd_ring::record::{COMM_SELF, COMM_WORLD, RequestCompletion};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

/// Any pointer.
pub(super) type MpiPointer = *mut c_void;
/// A handle of MPI in the register or stack slot that carries it. With `int` handles the upper half is
/// undefined: it is passed on unchanged, and cut off where the handle is inspected. This holds on x86-64 and
/// on aarch64 under Linux, where every argument on the stack has 8 bytes, and the callee ignores or extends
/// the upper half of an `int`.
pub(super) type MpiHandle = usize;

/// A special value of a handle or a buffer.
struct Special {
    /// In Open MPI: the variable that has this address.
    open_mpi: &'static CStr,
    /// In MPICH: the value.
    mpich: usize,
    /// The value in the library that is loaded.
    value: AtomicUsize,
}

impl Special {
    const fn new(open_mpi: &'static CStr, mpich: usize) -> Special {
        Special { open_mpi, mpich, value: AtomicUsize::new(0) }
    }
}

static WORLD: Special = Special::new(c"ompi_mpi_comm_world", 0x4400_0000);
static OWN: Special = Special::new(c"ompi_mpi_comm_self", 0x4400_0001);
static NO_COMMUNICATOR: Special = Special::new(c"ompi_mpi_comm_null", 0x0400_0000);
static NO_DATATYPE: Special = Special::new(c"ompi_mpi_datatype_null", 0x0c00_0000);
static NO_REQUEST: Special = Special::new(c"ompi_request_null", 0x2c00_0000);

/// Datatypes of Open MPI that most programs use. They are variables of the library, so a handle never changes its meaning.
const OPEN_MPI_TYPES: [&CStr; 24] = [
    c"ompi_mpi_byte",
    c"ompi_mpi_char",
    c"ompi_mpi_signed_char",
    c"ompi_mpi_unsigned_char",
    c"ompi_mpi_short",
    c"ompi_mpi_unsigned_short",
    c"ompi_mpi_int",
    c"ompi_mpi_unsigned",
    c"ompi_mpi_long",
    c"ompi_mpi_unsigned_long",
    c"ompi_mpi_long_long_int",
    c"ompi_mpi_float",
    c"ompi_mpi_double",
    c"ompi_mpi_int8_t",
    c"ompi_mpi_uint8_t",
    c"ompi_mpi_int32_t",
    c"ompi_mpi_uint32_t",
    c"ompi_mpi_int64_t",
    c"ompi_mpi_uint64_t",
    c"ompi_mpi_integer",
    c"ompi_mpi_real",
    c"ompi_mpi_dblprec",
    c"ompi_mpi_cplex",
    c"ompi_mpi_dblcplex",
];
/// Number of places for these, a power of two.
const TYPE_PLACES: usize = 64;
/// Their handles, by open addressing: each is in the first place that was free from its hash on. 0: free.
static TYPES: [AtomicUsize; TYPE_PLACES] = [const { AtomicUsize::new(0) }; TYPE_PLACES];
/// Their sizes in bytes plus one; 0 until MPI has been asked.
static TYPE_SIZES: [AtomicU32; TYPE_PLACES] = [const { AtomicU32::new(0) }; TYPE_PLACES];

const OMPI_IN_PLACE: usize = 1;
const MPICH_IN_PLACE: usize = usize::MAX;
/// `MPI_ROOT`, for the root's side of a collective on an intercommunicator.
const OMPI_ROOT: c_int = -4;
const MPICH_ROOT: c_int = -3;

/// The family of the loaded MPI library: Open MPI or MPICH, if it [is known](is_known).
#[derive(Clone, Copy)]
pub(super) struct MpiAbi {
    open_mpi: bool,
}

/// A symbol, `MPI_DUP_FN`, that MPICH and its relatives promise to programs.
const OF_MPICH: &CStr = c"MPIR_Dup_fn";

/// 0 until it is known.
static FAMILY: AtomicU8 = AtomicU8::new(0);
const OPEN_MPI: u8 = 1;
const MPICH: u8 = 2;
const OTHER: u8 = 3;

/// Whether the layout of handles and statuses is known. Nothing else here may be called otherwise.
#[inline]
pub(super) fn is_known() -> bool {
    if FAMILY.load(Acquire) == 0 {
        MpiAbi::find();
    }
    matches!(FAMILY.load(Acquire), OPEN_MPI | MPICH)
}

impl MpiAbi {
    /// Detects the family once. Threads that detect it at the same time find the same.
    #[inline]
    pub(super) fn get() -> MpiAbi {
        match FAMILY.load(Acquire) {
            0 => MpiAbi::find(),
            family => MpiAbi { open_mpi: family == OPEN_MPI },
        }
    }

    #[cold]
    fn find() -> MpiAbi {
        let open_mpi = variable(WORLD.open_mpi, &MPI).is_some();
        for special in [&WORLD, &OWN, &NO_COMMUNICATOR, &NO_DATATYPE, &NO_REQUEST] {
            let value = if open_mpi { variable(special.open_mpi, &MPI).unwrap_or(0) } else { special.mpich };
            special.value.store(value, Relaxed);
        }
        if open_mpi {
            note_types();
        }
        let family = match open_mpi {
            true => OPEN_MPI,
            false if variable(OF_MPICH, &MPI).is_some() => MPICH,
            false if variable(c"PMPI_Init", &MPI).is_some() => OTHER,
            // No MPI library is loaded yet.
            false => 0,
        };
        FAMILY.store(family, Release);
        MpiAbi { open_mpi }
    }

    fn value(self, handle: MpiHandle) -> usize {
        if self.open_mpi { handle } else { handle & 0xffff_ffff }
    }

    fn is(self, handle: MpiHandle, special: &Special) -> bool {
        self.value(handle) == special.value.load(Relaxed)
    }

    /// Whether this is a communicator that may be passed to MPI.
    pub(super) fn is_communicator(self, handle: MpiHandle) -> bool {
        self.value(handle) != 0 && !self.is(handle, &NO_COMMUNICATOR)
    }

    /// Whether this is a request.
    pub(super) fn is_request(self, handle: MpiHandle) -> bool {
        self.value(handle) != 0 && !self.is(handle, &NO_REQUEST)
    }

    /// Converts a handle to its form in the ring.
    pub(super) fn number(self, handle: MpiHandle) -> u64 {
        self.value(handle) as u64
    }

    /// Converts a communicator to its form in the ring, 0 for none.
    pub(super) fn communicator(self, handle: MpiHandle) -> u64 {
        if self.is(handle, &WORLD) {
            COMM_WORLD
        } else if self.is(handle, &OWN) {
            COMM_SELF
        } else if self.is_communicator(handle) {
            self.number(handle)
        } else {
            0
        }
    }

    /// Returns the handle of `MPI_COMM_WORLD`.
    pub(super) fn world(self) -> MpiHandle {
        WORLD.value.load(Relaxed)
    }

    /// Converts the peer of a message: `None` for any source, -1 for `MPI_PROC_NULL`.
    pub(super) fn peer(self, rank: c_int) -> Option<i32> {
        let proc_null = if self.open_mpi { -2 } else { -1 };
        match rank {
            rank if rank == self.any_source() => None,
            rank if rank == proc_null => Some(-1),
            rank => Some(rank),
        }
    }

    /// `MPI_ANY_SOURCE`.
    pub(super) fn any_source(self) -> c_int {
        if self.open_mpi { -1 } else { -2 }
    }

    /// Whether this process is the root, in a collective on an intercommunicator.
    pub(super) fn is_root_itself(self, root: c_int) -> bool {
        root == if self.open_mpi { OMPI_ROOT } else { MPICH_ROOT }
    }

    /// Whether a buffer of a C program is `MPI_IN_PLACE`.
    pub(super) fn is_in_place(self, buffer: MpiPointer) -> bool {
        buffer as usize == if self.open_mpi { OMPI_IN_PLACE } else { MPICH_IN_PLACE }
    }

    /// Whether a status of a C program is `MPI_STATUS_IGNORE` or `MPI_STATUSES_IGNORE`.
    pub(super) fn is_ignored(self, status: MpiPointer) -> bool {
        status as usize == usize::from(!self.open_mpi)
    }

    /// Whether `MPI_GRAPH` is 1 and `MPI_CART` 2, and not the reverse.
    pub(super) fn numbers_graphs_first(self) -> bool {
        !self.open_mpi
    }

    /// `MPI_ERR_OTHER`.
    pub(super) fn error_other(self) -> c_int {
        if self.open_mpi { 16 } else { 15 }
    }

    /// `MPI_ERR_NO_MEM`.
    pub(super) fn error_no_memory(self) -> c_int {
        if self.open_mpi { 39 } else { 34 }
    }

    /// Returns the bytes of `count` elements; `None` if MPI does not return them.
    pub(super) fn bytes(self, count: i64, datatype: MpiHandle) -> Option<i64> {
        if count <= 0 {
            return Some(0);
        }
        let value = self.value(datatype);
        if value == 0 || self.is(datatype, &NO_DATATYPE) {
            return None;
        }
        // MPICH encodes the size of its basic types in their handles.
        if !self.open_mpi && value >> 24 == 0x4c {
            return count.checked_mul((value >> 8 & 0xff) as i64);
        }
        count.checked_mul(i64::from(type_size(datatype)?))
    }

    /// Returns the number of processes in the local group of a communicator.
    pub(super) fn size(self, comm: MpiHandle) -> Option<c_int> {
        if self.is_communicator(comm) { ask(&COMM_SIZE, comm) } else { None }
    }

    /// Returns the rank of this process in a communicator.
    pub(super) fn rank(self, comm: MpiHandle) -> Option<c_int> {
        if self.is_communicator(comm) { ask(&COMM_RANK, comm) } else { None }
    }

    /// Whether a communicator is an intercommunicator.
    pub(super) fn is_inter(self, comm: MpiHandle) -> bool {
        !self.is(comm, &WORLD) && self.is_communicator(comm) && ask(&COMM_TEST_INTER, comm) == Some(1)
    }

    /// Returns the number of processes with which a collective exchanges data.
    pub(super) fn partners(self, comm: MpiHandle) -> Option<c_int> {
        if self.is_inter(comm) { ask(&COMM_REMOTE_SIZE, comm) } else { self.size(comm) }
    }

    /// Reads a handle from an array.
    ///
    /// # Safety
    /// The array has that many elements.
    pub(super) unsafe fn handle_at(self, array: MpiPointer, at: usize) -> MpiHandle {
        // SAFETY: the caller's promise, and the width of a handle in this family.
        unsafe {
            if self.open_mpi {
                array.cast::<usize>().add(at).read_unaligned()
            } else {
                array.cast::<u32>().add(at).read_unaligned() as usize
            }
        }
    }

    /// Converts a Fortran handle to C.
    pub(super) fn c_handle(self, handle: c_int, convert: &RealFunction) -> MpiHandle {
        if !self.open_mpi {
            return handle as u32 as usize;
        }
        // MPI may change errno.
        let _errno = errno::PreservedErrno::new();
        let Some(address) = convert.address() else { return 0 };
        // SAFETY: the four functions below have this type in Open MPI, and check the range of the
        // number that they get.
        unsafe {
            std::mem::transmute::<usize, unsafe extern "C-unwind" fn(c_int) -> MpiHandle>(address)(handle)
        }
    }

    /// Reads what a status contains about a message; `None` if it is not about a message.
    ///
    /// # Safety
    /// The address is that of an array of statuses with that many elements, which MPI has written.
    pub(super) unsafe fn message(self, statuses: MpiPointer, at: usize) -> Option<RequestCompletion> {
        // SAFETY: the caller's promise, and the layouts of the two families, 24 and 20 bytes. Those of
        // Fortran's statuses are the same.
        let (source, tag, cancelled, bytes) = unsafe {
            if self.open_mpi {
                let status = statuses.cast::<OpenMpiStatus>().add(at).read_unaligned();
                (status.source, status.tag, status.cancelled != 0, status.bytes as i64)
            } else {
                let status = statuses.cast::<MpichStatus>().add(at).read_unaligned();
                let high = i64::from(status.count_high_and_cancelled >> 1);
                let bytes = high << 32 | i64::from(status.count_low);
                (status.source, status.tag, status.count_high_and_cancelled & 1 != 0, bytes)
            }
        };
        let source = self.peer(source)?;
        if cancelled {
            return None;
        }
        let tag = (tag >= 0).then_some(tag);
        Some(RequestCompletion { request: 0, source: Some(source), tag, bytes: Some(bytes) })
    }
}

/// Bytes of the larger status.
pub(super) const MAX_STATUS_BYTES: usize = size_of::<OpenMpiStatus>();

#[repr(C)]
struct OpenMpiStatus {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: usize,
}

#[repr(C)]
struct MpichStatus {
    count_low: u32,
    count_high_and_cancelled: u32,
    source: c_int,
    tag: c_int,
    error: c_int,
}

static TYPE_SIZE: RealFunction = RealFunction::new(c"PMPI_Type_size", Some(&MPI));
static COMM_SIZE: RealFunction = RealFunction::new(c"PMPI_Comm_size", Some(&MPI));
static COMM_RANK: RealFunction = RealFunction::new(c"PMPI_Comm_rank", Some(&MPI));
static COMM_TEST_INTER: RealFunction = RealFunction::new(c"PMPI_Comm_test_inter", Some(&MPI));
static COMM_REMOTE_SIZE: RealFunction = RealFunction::new(c"PMPI_Comm_remote_size", Some(&MPI));

pub(super) static COMM_F2C: RealFunction = RealFunction::new(c"PMPI_Comm_f2c", Some(&MPI));
pub(super) static TYPE_F2C: RealFunction = RealFunction::new(c"PMPI_Type_f2c", Some(&MPI));
pub(super) static REQUEST_F2C: RealFunction = RealFunction::new(c"PMPI_Request_f2c", Some(&MPI));
pub(super) static MESSAGE_F2C: RealFunction = RealFunction::new(c"PMPI_Message_f2c", Some(&MPI));

/// Notes the handles of [`OPEN_MPI_TYPES`]. Threads that do so at the same time store the same.
fn note_types() {
    for handle in OPEN_MPI_TYPES.iter().filter_map(|name| variable(name, &MPI)) {
        if let Err(Some(free)) = find_type(handle)
            && let Some(place) = TYPES.get(free)
        {
            place.store(handle, Relaxed);
        }
    }
}

/// Returns the place of a handle in [`TYPES`]; an error with the free place where it belongs, if there is one.
#[inline]
fn find_type(handle: MpiHandle) -> Result<usize, Option<usize>> {
    let hash = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - TYPE_PLACES.ilog2());
    let mut at = hash as usize;
    for _ in 0..TYPE_PLACES {
        match TYPES.get(at).map_or(0, |place| place.load(Relaxed)) {
            0 => return Err(Some(at)),
            known if known == handle => return Ok(at),
            _ => at = (at + 1) % TYPE_PLACES,
        }
    }
    Err(None)
}

/// Returns the bytes of a datatype; `None` if MPI does not return them.
#[inline]
fn type_size(datatype: MpiHandle) -> Option<c_int> {
    let place = find_type(datatype).ok().and_then(|at| TYPE_SIZES.get(at));
    match place.map_or(0, |place| place.load(Relaxed)) {
        0 => ask_type_size(datatype, place),
        known => Some(known as c_int - 1),
    }
}

#[cold]
fn ask_type_size(datatype: MpiHandle, place: Option<&AtomicU32>) -> Option<c_int> {
    let size = ask(&TYPE_SIZE, datatype)?;
    if let (Some(place), Ok(bytes)) = (place, u32::try_from(size)) {
        place.store(bytes + 1, Relaxed);
    }
    Some(size)
}

/// Calls `int f(handle, int *answer)`. The program has just passed the handle to MPI itself.
pub(super) fn ask(function: &RealFunction, handle: MpiHandle) -> Option<c_int> {
    // MPI may change errno.
    let _errno = errno::PreservedErrno::new();
    let address = function.address()?;
    let mut answer: c_int = 0;
    // SAFETY: the functions that are asked have this type, with a handle in an integer register, and
    // write an `int` where they succeed.
    let failed = unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(MpiHandle, *mut c_int) -> c_int>(address)(
            handle,
            &raw mut answer,
        )
    };
    (failed == 0).then_some(answer)
}

/// A special address in Fortran programs: a common block, by any of the names that compilers give it, or the
/// value of a variable of the library.
pub(super) struct SentinelAddress {
    commons: [&'static CStr; 5],
    holder: &'static CStr,
    /// Addresses of all of them, 0 if there is none.
    places: [AtomicUsize; 6],
    known: AtomicU8,
}

/// Names in Open MPI as four kinds of compilers spell them, then in MPICH: for `use mpi_f08`, and the
/// variable.
macro_rules! sentinel {
    ($lower:literal, $upper:literal, $fortran_2008:literal, $holder:literal) => {
        SentinelAddress {
            commons: [
                c_name(concat!($lower, "_\0")),
                c_name(concat!($lower, "\0")),
                c_name(concat!($lower, "__\0")),
                c_name(concat!($upper, "\0")),
                c_name(concat!($fortran_2008, "\0")),
            ],
            holder: c_name(concat!($holder, "\0")),
            places: [const { AtomicUsize::new(0) }; 6],
            known: AtomicU8::new(0),
        }
    };
}

pub(super) static FORTRAN_IN_PLACE: SentinelAddress =
    sentinel!("mpi_fortran_in_place", "MPI_FORTRAN_IN_PLACE", "MPIR_F08_MPI_IN_PLACE", "MPIR_F_MPI_IN_PLACE");
pub(super) static FORTRAN_STATUS_IGNORE: SentinelAddress = sentinel!(
    "mpi_fortran_status_ignore",
    "MPI_FORTRAN_STATUS_IGNORE",
    "MPIR_F08_MPI_STATUS_IGNORE_OBJ",
    "MPI_F_STATUS_IGNORE"
);
pub(super) static FORTRAN_STATUSES_IGNORE: SentinelAddress = sentinel!(
    "mpi_fortran_statuses_ignore",
    "MPI_FORTRAN_STATUSES_IGNORE",
    "MPIR_F08_MPI_STATUSES_IGNORE_OBJ",
    "MPI_F_STATUSES_IGNORE"
);

impl SentinelAddress {
    /// Whether this is the address.
    pub(super) fn is(&self, address: MpiPointer) -> bool {
        if self.known.load(Acquire) == 0 {
            self.find();
        }
        let [commons @ .., holder] = &self.places;
        let is_common = commons.iter().any(|place| place.load(Relaxed) == address as usize);
        let holder = holder.load(Relaxed);
        // SAFETY: the address of a pointer variable of the library, aligned as C has it. The library stays
        // loaded while the program is in a function of it.
        address.is_null()
            || is_common
            || holder != 0 && unsafe { (holder as *const MpiPointer).read() } == address
    }

    #[cold]
    fn find(&self) {
        let names = self.commons.into_iter().chain([self.holder]);
        for (place, name) in self.places.iter().zip(names) {
            let found = variable(name, &MPI).or_else(|| variable(name, &MPI_FORTRAN));
            place.store(found.unwrap_or(0), Relaxed);
        }
        self.known.store(1, Release);
    }
}
