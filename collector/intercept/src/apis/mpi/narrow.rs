//! Functions for large counts (`MPI_Send_c`), for MPI libraries without them.
//!
//! A program may check for these functions by weak references, as mpi4py does, and finds ours. So they must
//! work. They call the functions without large counts, which take an `int` each and arrays of `int`. A number
//! that is too large gives `MPI_ERR_COUNT`.
//!
//! The arrays of a non-blocking call must exist until its request is complete. They are stored with the
//! request, and freed when a function that completes it has set it to `MPI_REQUEST_NULL`. Beyond
//! [`MAX_HELD_REQUESTS`] such requests at a time the arrays are never freed.

use super::abi::{MpiAbi, MpiHandle};
use super::call::CallArguments;
use super::pointers::HandleArray;
use super::topology::neighbour_counts;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// `MPI_ERR_COUNT` of both families.
const ERR_COUNT: c_int = 2;
/// The processes for which an array has a number each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrayLength {
    /// Destinations of data.
    Destinations,
    /// Sources of data.
    Sources,
    /// Processes of the local group.
    Group,
}

/// Maximum number of arrays of one call: counts and displacements of both directions.
const MAX_ARRAYS: usize = 4;

/// The arguments of one call, converted to `int`.
pub(super) struct NarrowedArguments {
    comm: Option<MpiHandle>,
    root: Option<c_int>,
    is_in_place: bool,
    is_of_neighbours: bool,
    request: Option<HandleArray>,
    arrays: [*mut c_int; MAX_ARRAYS],
    used: usize,
    failure: c_int,
}

impl NarrowedArguments {
    pub(super) fn of(call: &CallArguments) -> NarrowedArguments {
        NarrowedArguments {
            comm: call.comm,
            root: call.root,
            is_in_place: call.is_in_place,
            is_of_neighbours: call.is_of_neighbours,
            request: call.starts(),
            arrays: [ptr::null_mut(); MAX_ARRAYS],
            used: 0,
            failure: MpiAbi::get().error_other(),
        }
    }

    pub(super) fn number(&mut self, value: i64) -> Option<c_int> {
        let number = c_int::try_from(value).ok();
        self.failure = ERR_COUNT;
        number
    }

    pub(super) fn array(&mut self, values: *const i64, length: ArrayLength) -> Option<*const c_int> {
        if values.is_null() || !self.is_significant(length) {
            return Some(ptr::null());
        }
        let place = self.used;
        let length = self.length(length)?;
        // SAFETY: plain memory, freed in `finish` or with the request.
        let array = unsafe { libc::malloc(length.max(1).checked_mul(size_of::<c_int>())?) }.cast::<c_int>();
        if array.is_null() {
            self.failure = MpiAbi::get().error_no_memory();
            return None;
        }
        *self.arrays.get_mut(place)? = array;
        self.used += 1;
        for at in 0..length {
            // SAFETY: MPI wants `length` numbers there, and so many were allocated.
            unsafe { array.add(at).write(self.number(values.add(at).read_unaligned())?) };
        }
        Some(array)
    }

    /// Whether MPI reads arrays of this kind. Others may be invalid.
    fn is_significant(&self, length: ArrayLength) -> bool {
        let (Some(root), Some(comm)) = (self.root, self.comm) else {
            return !(self.is_in_place && length == ArrayLength::Destinations);
        };
        let abi = MpiAbi::get();
        abi.is_root_itself(root) || !abi.is_inter(comm) && abi.rank(comm) == Some(root)
    }

    fn length(&self, length: ArrayLength) -> Option<usize> {
        let (abi, comm) = (MpiAbi::get(), self.comm?);
        let length = match length {
            ArrayLength::Group => abi.size(comm)?,
            _ if !self.is_of_neighbours => abi.partners(comm)?,
            ArrayLength::Destinations => neighbour_counts(comm)?.1,
            ArrayLength::Sources => neighbour_counts(comm)?.0,
        };
        usize::try_from(length).ok()
    }

    /// Ends the conversion with the result of the call, or of a call that could not be made.
    pub(super) fn finish(self, result: Option<c_int>) -> c_int {
        let request = self.request.filter(|_| result == Some(0)).map(HandleArray::one);
        match request.filter(|request| MpiAbi::get().is_request(*request) && self.used > 0) {
            Some(request) => hold(request, self.arrays),
            None => free(self.arrays),
        }
        result.unwrap_or(self.failure)
    }
}

/// Frees arrays.
fn free(arrays: [*mut c_int; MAX_ARRAYS]) {
    for array in arrays {
        // SAFETY: null, or allocated above and used by nobody any more.
        unsafe { libc::free(array.cast()) };
    }
}

/// Maximum number of requests with stored arrays.
const MAX_HELD_REQUESTS: usize = 1024;
/// A slot that a thread is filling or emptying.
const BUSY: u64 = 1;

struct HeldArrays {
    /// 0 for a free slot.
    request: AtomicU64,
    arrays: [AtomicPtr<c_int>; MAX_ARRAYS],
}

static HELD_ARRAYS: [HeldArrays; MAX_HELD_REQUESTS] = [const {
    HeldArrays { request: AtomicU64::new(0), arrays: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_ARRAYS] }
}; MAX_HELD_REQUESTS];
static HELD_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Stores the arrays of a request.
fn hold(request: MpiHandle, arrays: [*mut c_int; MAX_ARRAYS]) {
    for slot in &HELD_ARRAYS {
        if slot.request.load(Relaxed) == 0 && slot.request.compare_exchange(0, BUSY, AcqRel, Acquire).is_ok()
        {
            for (place, array) in slot.arrays.iter().zip(arrays) {
                place.store(array, Relaxed);
            }
            HELD_COUNT.fetch_add(1, Relaxed);
            slot.request.store(MpiAbi::get().number(request), Release);
            return;
        }
    }
}

/// Whether arrays are stored for any request.
#[inline]
pub(super) fn has_held_arrays() -> bool {
    HELD_COUNT.load(Relaxed) != 0
}

/// Requests of one call that have arrays.
pub(super) struct WaitingRequests {
    /// Indices of the requests in the call, and their handles.
    requests: [(usize, MpiHandle); WaitingRequests::MAX_REQUESTS],
    used: usize,
}

impl WaitingRequests {
    /// Maximum number of requests of one call. The arrays of others stay until a later call.
    const MAX_REQUESTS: usize = 32;

    /// Collects the requests before a call that may complete them.
    pub(super) fn among(requests: HandleArray, count: usize) -> WaitingRequests {
        let mut waiting = WaitingRequests { requests: [(0, 0); WaitingRequests::MAX_REQUESTS], used: 0 };
        let abi = MpiAbi::get();
        for at in 0..count {
            let request = requests.at(at);
            let is_held = || HELD_ARRAYS.iter().any(|slot| slot.request.load(Relaxed) == abi.number(request));
            if abi.is_request(request)
                && is_held()
                && let Some(place) = waiting.requests.get_mut(waiting.used)
            {
                *place = (at, request);
                waiting.used += 1;
            }
        }
        waiting
    }

    /// Frees the arrays of completed requests after the call.
    pub(super) fn free_if_complete(&self, requests: HandleArray) {
        let abi = MpiAbi::get();
        for (at, request) in self.requests.iter().take(self.used) {
            if !abi.is_request(requests.at(*at)) {
                release(abi.number(*request));
            }
        }
    }
}

fn release(request: u64) {
    for slot in &HELD_ARRAYS {
        if slot.request.load(Relaxed) == request
            && slot.request.compare_exchange(request, BUSY, AcqRel, Acquire).is_ok()
        {
            free(slot.arrays.each_ref().map(|place| place.swap(ptr::null_mut(), Relaxed)));
            HELD_COUNT.fetch_sub(1, Relaxed);
            slot.request.store(0, Release);
            return;
        }
    }
}
