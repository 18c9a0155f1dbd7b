//! Describes a new communicator: its size, its rank, and the values from which all its ranks derive the same
//! name.

use super::abi::{MpiAbi, MpiHandle};
use super::call::{COMMUNICATORS, CallArguments};
use super::pointers::HandleArray;
use super::topology::CommunicatorNeighbours;
use crate::interpose::real::{MPI, RealFunction};
use crate::interpose::sequence;
use rpd_ring::mpi::MpiFunction;
use rpd_ring::record::{COMM_WORLD, CommunicatorBirth, NewCommunicator, RecordedLibrary};
use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// A call that creates a communicator.
#[derive(Clone, Copy)]
pub(super) struct CommunicatorCreation {
    /// Address of the new communicator.
    pub(super) place: HandleArray,
    /// Address of a request. The communicator must not be used before the request is complete.
    pub(super) request: Option<HandleArray>,
    pub(super) birth: CommunicatorBirth,
    pub(super) tag: c_int,
}

impl CommunicatorCreation {
    /// Returns the ordinal of the new communicator on its parent. All ranks of the parent count it, whether
    /// or not they become members.
    pub(super) fn ordinal(&self, parent: u64) -> u32 {
        match (self.birth, COMMUNICATORS.of(parent)) {
            (CommunicatorBirth::Collective, Some(numbers)) => sequence::next(&numbers.made),
            _ => 0,
        }
    }

    /// Returns the neighbours in the topology of a complete communicator.
    pub(super) fn neighbours(&self) -> Option<CommunicatorNeighbours> {
        let (abi, comm) = (MpiAbi::get(), self.place.one());
        if self.request.is_some() || !abi.is_communicator(comm) || abi.is_inter(comm) {
            return None;
        }
        CommunicatorNeighbours::of(comm)
    }

    /// Describes the new communicator after a call that succeeded.
    pub(super) fn outcome(&self, call: &CallArguments, ordinal: u32) -> Option<NewCommunicator> {
        let (abi, parent) = (MpiAbi::get(), call.comm?);
        let handle = COMMUNICATORS.name(abi.communicator(self.place.one()));
        let mut new = NewCommunicator {
            library: RecordedLibrary::Mpi,
            function: call.function as u32,
            birth: self.birth,
            handle,
            parent: Some(call.communicator()),
            leader: -1,
            tag: self.tag,
            ordinal,
            ..NewCommunicator::default()
        };
        if handle == 0 {
            return Some(new);
        }
        // An incomplete communicator is like its parent, and only the parent may be queried.
        let comm = if self.request.is_some() { parent } else { self.place.one() };
        let (size, rank) = (abi.size(comm)?, abi.rank(comm)?);
        new.size_rank = Some((u32::try_from(size).ok()?, u32::try_from(rank).ok()?));
        let own = leader(&COMM_GROUP, comm)?;
        new.leader = own;
        if abi.is_inter(comm) {
            // Both groups must agree, so they use the lower rank.
            let other = leader(&COMM_REMOTE_GROUP, comm)?;
            new.leader = own.min(other);
            new.side = (own != other).then_some(u8::from(own > other));
            let (low, high) = (own.min(other) as u32, own.max(other) as u32);
            new.id = u64::from(low) | u64::from(high) << 32;
        }
        Some(new)
    }
}

/// Describes `MPI_COMM_WORLD` after a call that has initialized MPI.
pub(super) fn world(function: MpiFunction) -> Option<NewCommunicator> {
    let abi = MpiAbi::get();
    let (size, rank) = (abi.size(abi.world())?, abi.rank(abi.world())?);
    Some(NewCommunicator {
        library: RecordedLibrary::Mpi,
        function: function as u32,
        birth: CommunicatorBirth::World,
        handle: COMM_WORLD,
        size_rank: Some((u32::try_from(size).ok()?, u32::try_from(rank).ok()?)),
        ..NewCommunicator::default()
    })
}

/// Returns the rank in `MPI_COMM_WORLD` of the first process of a communicator's group, -1 if it is not a
/// member.
fn leader(group_of: &RealFunction, comm: MpiHandle) -> Option<i32> {
    type Translate =
        unsafe extern "C-unwind" fn(MpiHandle, c_int, *const c_int, MpiHandle, *mut c_int) -> c_int;
    let translate = GROUP_TRANSLATE_RANKS.address()?;
    let world = world_group()?;
    let group = group(group_of, comm)?;
    let (first, mut rank) = (0, -1);
    // SAFETY: the function has this type; both groups exist, and the arrays have one element.
    let failed = unsafe {
        std::mem::transmute::<usize, Translate>(translate)(group, 1, &raw const first, world, &raw mut rank)
    };
    free_group(group);
    (failed == 0).then_some(rank.max(-1))
}

/// Returns the group of `MPI_COMM_WORLD`, which is cached. `None` in a program that has only sessions: there
/// the query is an error, and errors end the job.
fn world_group() -> Option<MpiHandle> {
    static WORLD: AtomicUsize = AtomicUsize::new(0);
    if !is_set(&INITIALIZED)? || is_set(&FINALIZED)? {
        return None;
    }
    match WORLD.load(Acquire) {
        0 => {}
        known => return Some(known),
    }
    let made = group(&COMM_GROUP, MpiAbi::get().world())?;
    match WORLD.compare_exchange(0, made, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            free_group(made);
            Some(other)
        }
    }
}

/// Whether several threads may call MPI at the same time. Not before it is initialised.
pub(super) fn may_be_concurrent() -> bool {
    // The levels are numbered from 0 in both families.
    const MPI_THREAD_MULTIPLE: c_int = 3;
    answer_of(&QUERY_THREAD).is_none_or(|provided| provided >= MPI_THREAD_MULTIPLE)
}

/// Calls `int f(int *flag)`.
fn is_set(function: &RealFunction) -> Option<bool> {
    answer_of(function).map(|flag| flag != 0)
}

/// Calls `int f(int *answer)`.
fn answer_of(function: &RealFunction) -> Option<c_int> {
    let (address, mut answer) = (function.address()?, 0);
    // SAFETY: the functions that are asked have this type. MPI_Query_thread is asked after MPI_Init alone, and the others
    // may be called at any time.
    let failed = unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(*mut c_int) -> c_int>(address)(
            &raw mut answer,
        )
    };
    (failed == 0).then_some(answer)
}

fn group(of: &RealFunction, comm: MpiHandle) -> Option<MpiHandle> {
    type Group = unsafe extern "C-unwind" fn(MpiHandle, *mut MpiHandle) -> c_int;
    // A handle of either width fits: an `int` occupies the lower half, which comes first.
    let mut group: MpiHandle = 0;
    let address = of.address()?;
    // SAFETY: the function has this type, and the communicator exists.
    let failed = unsafe { std::mem::transmute::<usize, Group>(address)(comm, &raw mut group) };
    (failed == 0).then_some(group)
}

fn free_group(mut group: MpiHandle) {
    type Free = unsafe extern "C-unwind" fn(*mut MpiHandle) -> c_int;
    let Some(address) = GROUP_FREE.address() else { return };
    // SAFETY: the function has this type, and the group is ours. It sets the handle, of either width.
    unsafe { std::mem::transmute::<usize, Free>(address)(&raw mut group) };
}

static INITIALIZED: RealFunction = RealFunction::new(c"PMPI_Initialized", Some(&MPI));
static QUERY_THREAD: RealFunction = RealFunction::new(c"PMPI_Query_thread", Some(&MPI));
static FINALIZED: RealFunction = RealFunction::new(c"PMPI_Finalized", Some(&MPI));
static COMM_GROUP: RealFunction = RealFunction::new(c"PMPI_Comm_group", Some(&MPI));
static COMM_REMOTE_GROUP: RealFunction = RealFunction::new(c"PMPI_Comm_remote_group", Some(&MPI));
static GROUP_TRANSLATE_RANKS: RealFunction = RealFunction::new(c"PMPI_Group_translate_ranks", Some(&MPI));
static GROUP_FREE: RealFunction = RealFunction::new(c"PMPI_Group_free", Some(&MPI));
