//! The records of a ring.
//!
//! A record has any number of bytes and lies within one segment. It begins with its kind and its time:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | kind in the lower five bits, above them the number of bytes of the time |
//! | 2 to 6 | ns since the last record of the thread; that before the first record of a segment is in the segment |
//! | or 8 | if the number is 7: ns of `CLOCK_BOOTTIME`, for times before the last one or 2^48 and more after it |
//!
//! Where the header says so, times are ticks of the processor's counter and not ns ([`crate::ticks`]).
//!
//! | kind | record | what follows |
//! |---|---|---|
//! | 0 | padding up to the end of the segment; without a time | anything |
//! | 1 | push | slot, name |
//! | 2 | pop | |
//! | 3 | range start | slot, 8 id, name |
//! | 4 | range stop | 8 id |
//! | 5 | mark | slot, name |
//! | 6 | MPI enter | call: 8 comm, 8 bytes, 4 peer, 4 root, 4 tag, 4 seq |
//! | 7 | MPI exit | |
//! | 8 | MPI request | call: 8 request: the innermost open call has started it, or created it if it is persistent |
//! | 9 | MPI done | call: 8 request, 8 bytes, 4 source, 4 tag: the innermost open call has seen it complete |
//! | 10 | new communicator | call: 8 handle, 8 parent, 8 id, 4 size, 4 rank, 4 leader, 4 tag, 4 ordinal, 4 side: 0 none, 1 low, 2 high |
//! | 11 | communicator's name | slot, 8 handle, name |
//! | 12 | communicator freed | call: 8 handle |
//! | 13 | RCCL enter | call: 8 comm, 8 count, 4 peer, 4 root, 4 datatype, 4 seq |
//! | 14 | RCCL exit | |
//! | 15 | MPI request freed | call: 8 request: its completion will not be seen |
//! | 16 | MPI message | call: 8 message: the innermost open call, a matched probe, has found it, or receives it |
//! | 17 | sources of a communicator that follows | slot, 8 handle, ranks of 4 bytes each as a name |
//! | 18 | its destinations | the same |
//! | 19 | RCCL communicator's name | as 11 |
//! | 20 | push of a known name | slot |
//! | 21 | range start with a known name | slot, 8 id |
//! | 22 | mark with a known name | slot |
//! | 23 | MPI enter of a call that also receives | as 6, and 8 bytes or -1, 4 source, 4 tag |
//! | 24 | RCCL enter of a call with a stream | as 13, and 8 stream |
//!
//! A *slot* is a byte. It has the name that was written with it last in the same segment, and that a record with a known
//! name repeats, unless it is longer than 256 bytes: the consumer's work is bounded by the bytes of the ring. A *name* is 2 bytes of length, with bit 15 if it was cut, zeros up to a multiple of 8 bytes, its text, and
//! zeros again: so the producer compares whole words. A *call* begins with a byte of flags and 2 bytes with the number of the
//! function ([`crate::mpi::MpiFunction`], [`crate::rccl::RcclFunction`]) or zeros.
//!
//! Flags, lowest bit first: of an MPI enter which values are there: comm, peer, root, tag, bytes, seq, source
//! and tag of what it also receives;
//! of an MPI request bit 0: it was created; of an MPI message bit 0: it is received; of an RCCL enter comm, peer, root, count,
//! datatype, seq; of an MPI done source, tag, bytes; of a new
//! communicator bits 0 to 3 its [`CommunicatorBirth`], bit 4 size and rank are there, bit 5 it has a parent; of
//! records 10 and 12 bit 7: the handle is RCCL's.
//!
//! A pop, and the exit of a call, have at most 16 bytes: the producer keeps that much free for each open push and
//! call, and a part of a segment for stops of ranges, which any thread may stop.

#[cfg(doc)]
use crate::layout::MAX_NAME_BYTES;
use crate::segments::{LINK, REST};

/// End of a truncated name, after whole characters.
pub const CUT_MARK: &str = "\u{2026}";

/// `MPI_COMM_WORLD` as the communicator of an MPI call, whatever its handle.
pub const COMM_WORLD: u64 = u64::MAX;
/// `MPI_COMM_SELF` as the communicator of an MPI call, whatever its handle.
pub const COMM_SELF: u64 = u64::MAX - 1;
/// First number of communicators with a recorded creation. Numbers are not reused; a handle may be, and
/// calls on the old and the new communicator are in the rings of several threads. Other communicators are
/// identified by their handles, which are smaller.
pub const COMM_MADE: u64 = 1 << 62;

/// Flag of the record of a request: it was created and not started.
pub(crate) const PREPARED: u8 = 1;
/// Flag of the record of a message: it is received and not found.
pub(crate) const RECEIVED: u8 = 1;

/// Number of bits of a kind.
pub(crate) const KIND_BITS: u32 = 5;
/// Number of bytes of a time that says that a whole time follows.
pub(crate) const WHOLE_TIME: u32 = 7;
/// Bytes reserved for a record that ends something. It has at most 9, and fewer than that may be left at the end of a segment:
/// what records may take of a segment is a multiple of this.
pub(crate) const MAX_END_BYTES: u64 = 16;
const _: () = assert!((LINK + REST).is_multiple_of(MAX_END_BYTES));
/// Maximum number of bytes of a name that is not written again.
pub(crate) const MAX_KNOWN_BYTES: usize = 256;
/// Flag of a communicator's record: the handle is RCCL's.
pub(crate) const OF_RCCL: u8 = 0x80;

pub(crate) mod kind {
    pub(crate) const PADDING: u8 = 0;
    pub(crate) const PUSH: u8 = 1;
    pub(crate) const POP: u8 = 2;
    pub(crate) const RANGE_START: u8 = 3;
    pub(crate) const RANGE_STOP: u8 = 4;
    pub(crate) const MARK: u8 = 5;
    pub(crate) const MPI_ENTER: u8 = 6;
    pub(crate) const MPI_EXIT: u8 = 7;
    pub(crate) const MPI_REQUEST: u8 = 8;
    pub(crate) const MPI_DONE: u8 = 9;
    pub(crate) const COMM_NEW: u8 = 10;
    pub(crate) const COMM_NAME: u8 = 11;
    pub(crate) const COMM_FREE: u8 = 12;
    pub(crate) const RCCL_ENTER: u8 = 13;
    pub(crate) const RCCL_EXIT: u8 = 14;
    pub(crate) const MPI_FREED: u8 = 15;
    pub(crate) const MPI_MESSAGE: u8 = 16;
    pub(crate) const SOURCES: u8 = 17;
    pub(crate) const DESTINATIONS: u8 = 18;
    pub(crate) const RCCL_COMM_NAME: u8 = 19;
    pub(crate) const KNOWN_PUSH: u8 = 20;
    pub(crate) const KNOWN_RANGE_START: u8 = 21;
    pub(crate) const KNOWN_MARK: u8 = 22;
    pub(crate) const MPI_EXCHANGE: u8 = 23;
    pub(crate) const RCCL_ENTER_ON_STREAM: u8 = 24;
}

/// Arguments of an MPI call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MpiCall {
    /// Number of the function, see [`crate::mpi::MpiFunction`].
    pub function: u32,
    /// Handle of the communicator, its number from [`COMM_MADE`], or [`COMM_WORLD`], [`COMM_SELF`].
    pub comm: Option<u64>,
    /// Rank of the peer in the communicator; -1 is `MPI_PROC_NULL`, `None` is `MPI_ANY_SOURCE`.
    pub peer: Option<i32>,
    /// Root of a collective: its rank in the communicator.
    pub root: Option<i32>,
    /// Tag; `None` is `MPI_ANY_TAG`.
    pub tag: Option<i32>,
    /// Bytes that this rank sends, or size of its receive buffer.
    pub bytes: Option<i64>,
    /// Number of the call on the communicator, from 1. Collectives are counted separately from the others.
    pub seq: Option<u32>,
    /// Receive half of a call that also sends to its peer.
    pub receive: Option<MpiReceive>,
}

/// The receive half of `MPI_Sendrecv` or `MPI_Sendrecv_replace`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MpiReceive {
    /// Source, as the peer of an [`MpiCall`].
    pub source: Option<i32>,
    /// Tag; `None` is `MPI_ANY_TAG`.
    pub tag: Option<i32>,
    /// Size of the receive buffer, bytes.
    pub bytes: Option<i64>,
}

/// Arguments of an RCCL call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcclCall {
    /// Number of the function, see [`crate::rccl::RcclFunction`].
    pub function: u32,
    /// Handle of the communicator, or its number from [`COMM_MADE`].
    pub comm: Option<u64>,
    /// Rank of the peer.
    pub peer: Option<i32>,
    /// Root of a collective.
    pub root: Option<i32>,
    /// Number of elements, as the function counts them.
    pub count: Option<u64>,
    /// `ncclDataType_t`.
    pub datatype: Option<u32>,
    /// Number of the call on the communicator, from 1. Collectives are counted separately from the others.
    pub seq: Option<u32>,
    /// Handle of the stream that gets the operation.
    pub stream: Option<u64>,
}

/// A completed request. The values come from its status, if the program requested one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestCompletion {
    /// Handle of the request; 0 for the innermost open call itself, a blocking receive.
    pub request: u64,
    /// Rank that sent the message.
    pub source: Option<i32>,
    /// Tag of the message.
    pub tag: Option<i32>,
    /// Bytes of the message.
    pub bytes: Option<i64>,
}

/// The library of a communicator. Handles of both may be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum RecordedLibrary {
    /// MPI.
    #[default]
    Mpi,
    /// RCCL, or NCCL.
    Rccl,
}

/// How a communicator was created. All its ranks know these values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CommunicatorBirth {
    /// By a call of all ranks of the parent. `ordinal` counts such calls.
    #[default]
    Collective = 0,
    /// By a call of its members alone, with a tag.
    Group = 1,
    /// Between two groups. `id` has the world ranks of their leaders, the lower one in the lower half, and
    /// `tag` is that of the call.
    Inter = 2,
    /// From an id that all ranks share. `id` is its hash.
    Shared = 3,
    /// By this process alone.
    Alone = 4,
    /// By `MPI_Init`: `MPI_COMM_WORLD`.
    World = 5,
}

impl CommunicatorBirth {
    pub(crate) fn from_flags(flags: u8) -> Option<CommunicatorBirth> {
        use CommunicatorBirth::{Alone, Collective, Group, Inter, Shared, World};
        let all = [Collective, Group, Inter, Shared, Alone, World];
        all.into_iter().find(|birth| *birth as u8 == flags & 0xf)
    }
}

/// A communicator that was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewCommunicator {
    /// Library of the communicator.
    pub library: RecordedLibrary,
    /// Number of the function that created it.
    pub function: u32,
    /// How it was created.
    pub birth: CommunicatorBirth,
    /// Its handle, or its number from [`COMM_MADE`]; 0 if this rank got none.
    pub handle: u64,
    /// Handle of its parent, or [`COMM_WORLD`], [`COMM_SELF`].
    pub parent: Option<u64>,
    /// See [`CommunicatorBirth`].
    pub id: u64,
    /// Number of its ranks, and rank of this process in it.
    pub size_rank: Option<(u32, u32)>,
    /// Rank in `MPI_COMM_WORLD` of its rank 0; for RCCL the color of a split.
    pub leader: i32,
    /// Tag of the call that created it.
    pub tag: i32,
    /// Its ordinal among those created from its parent, from 1, whether or not others were recorded or belong
    /// to this rank.
    pub ordinal: u32,
    /// Side of an intercommunicator to which this process belongs: 0 if its own leader has the lower rank in
    /// `MPI_COMM_WORLD`, 1 if the other one has.
    pub side: Option<u8>,
}

/// Direction of messages between neighbours in a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourDirection {
    /// Neighbours that send to this process.
    Sources,
    /// Neighbours to which this process sends.
    Destinations,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingRecord<'a> {
    /// Time, ns of `CLOCK_BOOTTIME`; ticks if the header of the ring says so.
    pub time: i64,
    /// The event that the library recorded.
    pub event: RingEvent<'a>,
    /// Slot of the event's name, or of the ranks of neighbours.
    pub slot: Option<NameSlot>,
}

/// Slot of a name. Whoever reads a ring need look up a known name only once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameSlot {
    /// Number of the slot.
    pub number: u8,
    /// The name is that of the last record with this slot.
    pub is_known: bool,
}

/// The event of a record. A name longer than [`MAX_NAME_BYTES`] is truncated and ends in [`CUT_MARK`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingEvent<'a> {
    /// `roctxRangePush` with this name.
    Push(&'a [u8]),
    /// `roctxRangePop`.
    Pop,
    /// `roctxRangeStart`.
    RangeStart {
        /// Id of the range in the process.
        id: u64,
        /// Name of the range.
        name: &'a [u8],
    },
    /// `roctxRangeStop` of the range with this id, from any thread of the process.
    RangeStop(u64),
    /// `roctxMark` with this name.
    Mark(&'a [u8]),
    /// An MPI function was called.
    MpiEnter(MpiCall),
    /// The innermost MPI function returned.
    MpiExit,
    /// The innermost MPI function has started an operation with this handle of its request.
    MpiRequest(u64),
    /// The innermost MPI function has created a persistent request with this handle.
    MpiPrepared(u64),
    /// The innermost MPI function, a matched probe, has found a message with this handle.
    MpiMessageFound(u64),
    /// The innermost MPI function receives the message that had this handle.
    MpiMessageReceived(u64),
    /// The innermost MPI function has observed the completion of an operation.
    MpiDone(RequestCompletion),
    /// The request with this handle was freed: its completion will not be observed.
    MpiFreed(u64),
    /// A communicator was created.
    NewCommunicator(NewCommunicator),
    /// A communicator that the next record of the thread creates has a topology.
    Neighbours {
        /// Handle of the communicator.
        handle: u64,
        /// To which neighbours this process sends, or from which it receives.
        direction: NeighbourDirection,
        /// Their ranks in the communicator, 4 bytes each, in MPI's order; -1 for none.
        ranks: &'a [u8],
    },
    /// A communicator was named.
    CommunicatorName {
        /// Library of the communicator.
        library: RecordedLibrary,
        /// Handle of the communicator.
        handle: u64,
        /// The name.
        name: &'a [u8],
    },
    /// A communicator was freed. Its handle may be reused.
    CommunicatorFreed {
        /// Library of the communicator.
        library: RecordedLibrary,
        /// Handle of the communicator.
        handle: u64,
    },
    /// An RCCL function was called.
    RcclEnter(RcclCall),
    /// The innermost RCCL function returned.
    RcclExit,
}
