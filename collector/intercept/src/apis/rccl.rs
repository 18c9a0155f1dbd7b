//! RCCL, and NCCL: exports, records and passes on every function of [`rpd_ring::rccl::RcclFunction`].
//!
//! These are host calls: a collective is recorded while it is enqueued on a stream; its execution on the GPU
//! is not. Recorded besides the times:
//! * communicator, by its handle; root; peer;
//! * count and datatype as the function takes them, for `ncclAllToAllv` the sum over all partners if the
//!   number of ranks is known;
//! * seq: ordinal of the call on its communicator, see [`crate::interpose::sequence`]: collectives are
//!   counted separately from the others;
//! * communicators: their creation, and how they were created, so that their ranks agree on a name; and their
//!   end. A communicator that is created from a non-blocking parent may still be in progress.

use crate::interpose::inside::{CallOutcome, TracedCall};
use crate::interpose::real::{RCCL, RealFunction, c_name};
use crate::interpose::sequence::{self, CommunicatorTable};
use crate::runtime::errno;
use rpd_ring::rccl::{self, RcclFunction};
use rpd_ring::record::{CommunicatorBirth, NewCommunicator, RcclCall, RecordedLibrary};
use std::ffi::{c_int, c_void};

type Ptr = *mut c_void;
/// `ncclComm_t`.
type Comm = *mut c_void;
/// Address of a communicator.
type CommPlace = *mut Comm;
/// `hipStream_t`.
type Stream = *mut c_void;
/// An enumeration.
type Enum = c_int;
/// `const size_t[]`.
type Sizes = *const usize;

/// `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

/// `ncclSystemError`, returned if a program calls RCCL without the library. Except for weak references, a
/// program that gets here could not have started without this library.
const NO_RCCL: c_int = 2;
/// `ncclInProgress`, of a non-blocking communicator: the call was accepted.
const IN_PROGRESS: c_int = 7;

/// Sequence numbers of calls on communicators.
static COMMUNICATORS: CommunicatorTable = CommunicatorTable::new();

/// Effect of a call on communicators.
#[derive(Clone, Copy)]
enum Effect {
    Nothing,
    /// Creates a communicator of this many ranks, of which this process is one, from an id that all of them
    /// share.
    Joins(CommPlace, UniqueIdHash, c_int, c_int),
    /// Creates all ranks of a communicator.
    MakesAll(CommPlace, c_int),
    /// Creates a communicator for the ranks with the same color.
    Splits(CommPlace, c_int),
    /// Frees the communicator of the call.
    Frees,
}

/// The relevant arguments of a call.
struct Call {
    /// Handle of the communicator.
    comm: Option<u64>,
    record: RcclCall,
    effect: Effect,
}

fn plain() -> Call {
    Call { comm: None, record: RcclCall::default(), effect: Effect::Nothing }
}

/// Makes a call on a communicator.
fn on(comm: Comm) -> Call {
    Call { comm: Some(comm as u64), ..plain() }
}

/// Makes a call that transfers data on a communicator, in a stream.
fn data(count: usize, datatype: Enum, comm: Comm, stream: Stream) -> Call {
    let call = on(comm);
    let datatype = u32::try_from(datatype).ok();
    let (count, stream) = (Some(count as u64), Some(stream as u64));
    Call { record: RcclCall { count, datatype, stream, ..call.record }, ..call }
}

impl Call {
    fn with_root(self, root: c_int) -> Call {
        Call { record: RcclCall { root: Some(root), ..self.record }, ..self }
    }

    fn with_peer(self, peer: c_int) -> Call {
        Call { record: RcclCall { peer: Some(peer), ..self.record }, ..self }
    }

    fn and(self, effect: Effect) -> Call {
        Call { effect, ..self }
    }
}

/// Exports functions. Each entry has the arguments in the order of the header, and after the arrow the call
/// to record.
macro_rules! rccl_functions {
    ($($name:ident($($argument:ident: $kind:ty),* $(,)?) => $describe:expr;)*) => {$(
        #[doc = concat!("Records and passes on `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As RCCL says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_variables, clippy::too_many_arguments)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> c_int {
            type Real = unsafe extern "C-unwind" fn($($kind),*) -> c_int;
            static REAL: RealFunction =
                RealFunction::new(c_name(concat!(stringify!($name), "\0")), Some(&RCCL));
            let Some(address) = REAL.address() else { return NO_RCCL };
            run(
                RcclFunction::$name,
                || $describe,
                // SAFETY: the function of this name in RCCL, and in NCCL, has these arguments, the id by
                // value, and gets what the program passed.
                || unsafe { std::mem::transmute::<usize, Real>(address)($($argument),*) },
            )
        }
    )*};
}

rccl_functions! {
    ncclCommInitRank(comm: CommPlace, nranks: c_int, id: UniqueId, rank: c_int)
        => plain().and(Effect::Joins(comm, id.hash(), nranks, rank));
    ncclCommInitRankConfig(comm: CommPlace, nranks: c_int, id: UniqueId, rank: c_int, config: Ptr)
        => plain().and(Effect::Joins(comm, id.hash(), nranks, rank));
    ncclCommInitAll(comms: CommPlace, ndev: c_int, devlist: *const c_int)
        => plain().and(Effect::MakesAll(comms, ndev));
    ncclCommSplit(comm: Comm, color: c_int, key: c_int, newcomm: CommPlace, config: Ptr)
        => on(comm).and(Effect::Splits(newcomm, color));
    ncclCommFinalize(comm: Comm) => on(comm);
    ncclCommDestroy(comm: Comm) => on(comm).and(Effect::Frees);
    ncclCommAbort(comm: Comm) => on(comm).and(Effect::Frees);
    ncclGroupStart() => plain();
    ncclGroupEnd() => plain();
    ncclSend(sendbuff: Ptr, count: usize, datatype: Enum, peer: c_int, comm: Comm, stream: Stream)
        => data(count, datatype, comm, stream).with_peer(peer);
    ncclRecv(recvbuff: Ptr, count: usize, datatype: Enum, peer: c_int, comm: Comm, stream: Stream)
        => data(count, datatype, comm, stream).with_peer(peer);
    ncclAllReduce(
        sendbuff: Ptr, recvbuff: Ptr, count: usize, datatype: Enum, op: Enum, comm: Comm, stream: Stream,
    ) => data(count, datatype, comm, stream);
    ncclBroadcast(
        sendbuff: Ptr, recvbuff: Ptr, count: usize, datatype: Enum, root: c_int, comm: Comm, stream: Stream,
    ) => data(count, datatype, comm, stream).with_root(root);
    ncclBcast(buff: Ptr, count: usize, datatype: Enum, root: c_int, comm: Comm, stream: Stream)
        => data(count, datatype, comm, stream).with_root(root);
    ncclReduce(
        sendbuff: Ptr, recvbuff: Ptr, count: usize, datatype: Enum, op: Enum, root: c_int, comm: Comm,
        stream: Stream,
    ) => data(count, datatype, comm, stream).with_root(root);
    ncclAllGather(
        sendbuff: Ptr, recvbuff: Ptr, sendcount: usize, datatype: Enum, comm: Comm, stream: Stream,
    ) => data(sendcount, datatype, comm, stream);
    ncclReduceScatter(
        sendbuff: Ptr, recvbuff: Ptr, recvcount: usize, datatype: Enum, op: Enum, comm: Comm, stream: Stream,
    ) => data(recvcount, datatype, comm, stream);
    ncclGather(
        sendbuff: Ptr, recvbuff: Ptr, sendcount: usize, datatype: Enum, root: c_int, comm: Comm,
        stream: Stream,
    ) => data(sendcount, datatype, comm, stream).with_root(root);
    ncclScatter(
        sendbuff: Ptr, recvbuff: Ptr, recvcount: usize, datatype: Enum, root: c_int, comm: Comm,
        stream: Stream,
    ) => data(recvcount, datatype, comm, stream).with_root(root);
    ncclAllToAll(
        sendbuff: Ptr, recvbuff: Ptr, count: usize, datatype: Enum, comm: Comm, stream: Stream,
    ) => data(count, datatype, comm, stream);
    ncclAllToAllv(
        sendbuff: Ptr, sendcounts: Sizes, sdispls: Sizes, recvbuff: Ptr, recvcounts: Sizes, rdispls: Sizes,
        datatype: Enum, comm: Comm, stream: Stream,
    ) => all_to_all(sendcounts, datatype, comm, stream);
}

/// Returns the number of elements for all partners.
fn all_to_all(counts: Sizes, datatype: Enum, comm: Comm, stream: Stream) -> Call {
    let mut call = data(0, datatype, comm, stream);
    call.record.count = sum(counts, comm);
    call
}

fn sum(counts: Sizes, comm: Comm) -> Option<u64> {
    type Count = unsafe extern "C-unwind" fn(Comm, *mut c_int) -> c_int;
    static COMM_COUNT: RealFunction = RealFunction::new(c"ncclCommCount", Some(&RCCL));
    if counts.is_null() || comm.is_null() {
        return None;
    }
    let _errno = errno::PreservedErrno::new();
    let (address, mut ranks) = (COMM_COUNT.address()?, 0);
    // SAFETY: the function has this type, and the program has just passed the communicator to RCCL.
    let failed = unsafe { std::mem::transmute::<usize, Count>(address)(comm, &raw mut ranks) };
    let ranks = usize::try_from(ranks).ok().filter(|_| failed == 0)?;
    // SAFETY: RCCL wants a count for every rank of the communicator, aligned as C has it.
    (0..ranks).try_fold(0u64, |sum, at| sum.checked_add(unsafe { counts.add(at).read() } as u64))
}

/// Hashes a unique id. The id itself is not recorded, because it contains the address of a process.
type UniqueIdHash = u64;

impl UniqueId {
    /// FNV-1a.
    fn hash(&self) -> UniqueIdHash {
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

/// Runs a function for the program. `describe` reads its arguments, `real` passes them on.
#[inline]
fn run(function: RcclFunction, describe: impl FnOnce() -> Call, real: impl FnOnce() -> c_int) -> c_int {
    let mut inside = TracedCall::begin(RecordedLibrary::Rccl);
    if !inside.is_traced() {
        let result = real();
        inside.end(|_| ());
        return result;
    }
    let mut call = describe();
    let ordinal = call.begin(function, &mut inside);
    let result = real();
    if result == 0 || result == IN_PROGRESS {
        call.count();
        inside.end(|outcome| call.note(ordinal, outcome));
    } else {
        inside.end(|_| ());
    }
    result
}

impl Call {
    /// Prepares a call. Returns the ordinal of the communicator that it is to create.
    fn begin(&mut self, function: RcclFunction, inside: &mut TracedCall) -> u32 {
        let mut ordinal = 0;
        self.record.function = function as u32;
        if let Some(numbers) = self.comm.and_then(|comm| COMMUNICATORS.of(comm)) {
            let counter =
                if rccl::is_collective(function as u32) { &numbers.collectives } else { &numbers.others };
            self.record.seq = Some(sequence::next(counter));
            if let Effect::Splits(..) = self.effect {
                ordinal = sequence::next(&numbers.made);
            }
        }
        self.record.comm = self.comm.map(|comm| COMMUNICATORS.name(comm));
        if inside.is_recorded() {
            inside.begin_rccl(&self.record);
        }
        if let Effect::Frees = self.effect {
            // The program may not use the communicator from here on. After it is freed, another thread may
            // get its handle.
            COMMUNICATORS.end(self.comm.unwrap_or(0));
        }
        ordinal
    }

    /// Counts the effects of a call that succeeded, recorded or not.
    fn count(&self) {
        match self.effect {
            Effect::Nothing | Effect::Frees => {}
            Effect::Joins(place, ..) | Effect::Splits(place, _) => COMMUNICATORS.begin(at(place, 0)),
            Effect::MakesAll(places, count) => {
                (0..length(count)).for_each(|i| COMMUNICATORS.begin(at(places, i)));
            }
        }
    }

    /// Records the effects of a call that succeeded.
    fn note(&self, ordinal: u32, outcome: &mut CallOutcome<'_>) {
        let made = |handle, birth| NewCommunicator {
            library: RecordedLibrary::Rccl,
            function: self.record.function,
            birth,
            handle: COMMUNICATORS.name(handle),
            parent: self.record.comm,
            ordinal,
            ..NewCommunicator::default()
        };
        let mut record = |made: &NewCommunicator| outcome.producer.new_communicator(outcome.time, made);
        let size_rank = |size, rank| Some((u32::try_from(size).ok()?, u32::try_from(rank).ok()?));
        match self.effect {
            Effect::Nothing => {}
            Effect::Joins(place, id, size, rank) => {
                let made = made(at(place, 0), CommunicatorBirth::Shared);
                record(&NewCommunicator { id, size_rank: size_rank(size, rank), ..made });
            }
            Effect::MakesAll(places, size) => {
                for (i, rank) in (0..length(size)).zip(0..) {
                    let made = made(at(places, i), CommunicatorBirth::Alone);
                    record(&NewCommunicator { size_rank: size_rank(size, rank), ..made });
                }
            }
            Effect::Splits(place, color) => {
                record(&NewCommunicator {
                    leader: color,
                    ..made(at(place, 0), CommunicatorBirth::Collective)
                });
            }
            Effect::Frees => {
                if let Some(comm) = self.record.comm {
                    outcome.producer.communicator_freed(outcome.time, RecordedLibrary::Rccl, comm);
                }
            }
        }
    }
}

/// Reads the communicator that a call has created, 0 for none.
fn at(places: CommPlace, at: usize) -> u64 {
    // SAFETY: the program's places, as many as it asked RCCL for. Inside of a group some versions of RCCL
    // write them only at its end: then this is what the program had there.
    if places.is_null() { 0 } else { unsafe { places.add(at).read() as u64 } }
}

fn length(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_by_their_hash() {
        // The published test vectors of FNV-1a are shorter than an id: this is the hash of 128 zero bytes.
        let expected = (0..128).fold(0xcbf2_9ce4_8422_2325u64, |hash, _| hash.wrapping_mul(0x100_0000_01b3));
        assert_eq!(UniqueId([0; 128]).hash(), expected);
        let mut other = UniqueId([0; 128]);
        other.0[127] = 1;
        assert_ne!(other.hash(), expected);
    }
}
