//! Layout of the shared memory of a thread.
//!
//! Header page. All values little endian (both sides run on one machine), offsets in bytes:
//!
//! | offset | size | written by | meaning |
//! |---|---|---|---|
//! | 0 | 8 | producer, once | magic `rpdring\0` |
//! | 8 | 4 | producer, once | [`VERSION`] |
//! | 12 | 4 | producer, once | bytes reserved for the identity, a multiple of 4096 |
//! | 16 | 8 | producer, once | bytes of the segments, a power of two; 0: there are none, drops are counted alone |
//! | 24 | 4 | producer, once | process id, as the traced program sees it |
//! | 28 | 4 | producer, once | thread id, as the traced program sees it |
//! | 32 | 4 | producer, once | parent's process id, as the traced program sees it |
//! | 36 | 4 | producer, once | bytes of the identity in use |
//! | 40 | 8 | producer, once | start of the process, clock ticks since boot, 0 where unknown |
//! | 48 | 8 | producer, once | when the ring was made, ns of `CLOCK_BOOTTIME` |
//! | 56 | 8 | producer, once | inode of the time namespace, 0 where unknown |
//! | 64 | 8 | producer, once | bit 0: forked from a traced process without an exec since; bit 1: times are ticks, see [`crate::ticks`] |
//! | 128 | 8 | producer | head: bytes ever written, counts up only |
//! | 192 | 8 | consumer | 1: no consumer reads this ring any more |
//! | 200 | 8 | consumer | bytes that it has given back to the system, of all rings of the process |
//! | 256 | 256 | producer | drops: 4 causes x 8 tables of 8 bytes, see [`DropCause`] and [`DroppedKind`] |
//! | 512 | 8 | producer | 1 once the thread has ended |
//! | 576 | 8 | both | how the consumer waits, see [`crate::wakeup`]; a futex in its first four bytes |
//! | 640 | 64 | producer, once | thread name, padded with zeros |
//! | 1024 | 512 | both | a bit for each segment that is free and has memory, see `segments` |
//! | 1536 | 512 | both | a bit for each segment that has no memory |
//! | 2048 | 2048 | producer | where the names of the current segment are, for the producer alone, see [`crate::record`] |
//!
//! Head, drops, the end mark, the futex and the consumer's words have cache lines of their own. The identity and the
//! segments follow. The file is as long as all segments, and most of it has no memory.

/// First eight bytes: `rpdring\0`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rpdring\0");
/// Version of this contract.
pub const VERSION: u32 = 7;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Maximum number of bytes of the identity.
pub const MAX_IDENTITY_BYTES: usize = 64 << 10;
/// Minimum number of bytes of a segment: room for a few records with the longest name.
pub const MIN_SEGMENT_BYTES: usize = 16 << 10;
/// Number of names that a segment remembers: one for each value of a byte.
pub(crate) const NAME_SLOTS: usize = 256;
/// Maximum number of segments of a ring.
pub const MAX_SEGMENTS: usize = 4096;
/// Minimum number of bytes of all segments of a ring: the producer fills one while the consumer reads the other.
pub const MIN_RING_BYTES: usize = 2 * MIN_SEGMENT_BYTES;
/// Maximum number of bytes of all segments of a ring.
pub const MAX_RING_BYTES: usize = 256 << 20;
/// Default maximum number of bytes of all segments of a ring.
pub const DEFAULT_RING_BYTES: usize = DEFAULT_MEMORY_BYTES;
/// Bytes of records in a ring of which the consumer need not read any at once. More in a larger ring only covers times in
/// which the consumer gets no CPU.
pub const USUAL_RING_BYTES: usize = 1 << 20;
/// Maximum length of a name in a record. The rest is cut off.
pub const MAX_NAME_BYTES: usize = 4096;
/// Maximum number of neighbours in each direction that a record has.
pub const MAX_NEIGHBOURS: usize = MAX_NAME_BYTES / 4;
/// Default limit for the bytes of all rings of one process.
pub const DEFAULT_MEMORY_BYTES: usize = 64 << 20;
/// All rings of one process may use one part in this many of the limit of its memory cgroup.
pub const CGROUP_DIVISOR: usize = 32;
/// Length of a thread's name.
pub const THREAD_NAME_BYTES: usize = 64;
/// Maximum nesting of push and pop that is recorded.
pub const MAX_DEPTH: usize = 64 << 10;

/// Word (8 bytes) numbers of the header.
pub(crate) mod word {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION_IDENTITY: usize = 1;
    pub(crate) const RING_BYTES: usize = 2;
    pub(crate) const PID_TID: usize = 3;
    pub(crate) const PPID_IDENTITY_USED: usize = 4;
    pub(crate) const START_TICKS: usize = 5;
    pub(crate) const START_NS: usize = 6;
    pub(crate) const TIME_NAMESPACE: usize = 7;
    pub(crate) const FLAGS: usize = 8;
    pub(crate) const HEAD: usize = 16;
    pub(crate) const CLOSED: usize = 24;
    pub(crate) const RETURNED: usize = 25;
    pub(crate) const DROPS: usize = 32;
    pub(crate) const ENDED: usize = 64;
    pub(crate) const WAKEUP: usize = 72;
    pub(crate) const THREAD_NAME: usize = 80;
    pub(crate) const READY: usize = 128;
    pub(crate) const ABSENT: usize = 192;
    pub(crate) const NAMES: usize = 256;
}

/// Why the library could not record an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropCause {
    /// The ring was full.
    RingFull = 0,
    /// The event came from a signal handler, inside another event of the thread.
    Reentrant = 1,
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep = 2,
    /// There was no memory for a ring.
    NoMemory = 3,
}

/// Kind of a dropped event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DroppedKind {
    /// A roctx range.
    Range = 0,
    /// A roctx mark.
    Mark = 1,
    /// An MPI call.
    MpiCall = 2,
    /// The kind is unknown.
    Unknown = 3,
    /// An RCCL call.
    RcclCall = 4,
    /// A completed request of MPI.
    MpiRequest = 5,
    /// A communicator that was created or named.
    Communicator = 6,
}

impl DroppedKind {
    /// Number of counters per cause in the header.
    pub(crate) const PLACES: usize = 8;
}

/// Returns the next larger valid size of a ring: a power of two between [`MIN_RING_BYTES`] and
/// [`MAX_RING_BYTES`].
pub fn ring_bytes(wanted: usize) -> usize {
    let wanted = wanted.clamp(MIN_RING_BYTES, MAX_RING_BYTES);
    wanted.checked_next_power_of_two().unwrap_or(MAX_RING_BYTES)
}

/// Returns the bytes of each segment of a ring of this size.
pub fn segment_bytes(ring_bytes: usize) -> usize {
    (ring_bytes / MAX_SEGMENTS).max(MIN_SEGMENT_BYTES)
}

/// Returns the bytes to reserve for an identity of this length.
pub fn identity_bytes(used: usize) -> usize {
    used.min(MAX_IDENTITY_BYTES).next_multiple_of(4096)
}
