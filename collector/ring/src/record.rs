//! The records of a ring.
//!
//! Every record starts at a multiple of 16 bytes and does not wrap around the end of the ring:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 2 | bytes of the record with padding, a multiple of 16 |
//! | 2 | 1 | kind |
//! | 3 | 1 | `MpiEnter`: which values are there, lowest bit first: comm, peer, root, tag, bytes; a name: 1 if it was cut |
//! | 4 | 4 | bytes of the name; `MpiEnter`: number of the function ([`crate::mpi::MpiFunction`]) |
//! | 8 | 8 | time, ns of `CLOCK_BOOTTIME` |
//!
//! | kind | name | rest, from offset 16 |
//! |---|---|---|
//! | 0 | padding up to the end of the ring | anything |
//! | 1 | push | name |
//! | 2 | pop | |
//! | 3 | range start | 8 bytes id, name |
//! | 4 | range stop | 8 bytes id, 8 unused |
//! | 5 | mark | name |
//! | 6 | MPI enter | 8 comm, 8 bytes, 4 peer, 4 root, 4 tag, 4 unused |
//! | 7 | MPI exit | |
//!
//! Pop and MPI exit are exactly 16 bytes and so fit anywhere: the producer keeps room for the end of
//! everything that is open.

use crate::layout::NAME_LIMIT;

/// Flag of a record whose name was longer than [`NAME_LIMIT`].
pub(crate) const CUT: u8 = 1;
/// How a name ends that was cut: what is in front of it is whole characters.
pub const CUT_MARK: &str = "\u{2026}";

/// The communicator of an MPI call that is `MPI_COMM_WORLD`, whatever its handle.
pub const COMM_WORLD: u64 = u64::MAX;
/// The communicator of an MPI call that is `MPI_COMM_SELF`, whatever its handle.
pub const COMM_SELF: u64 = u64::MAX - 1;

/// Bytes of the fixed part.
pub(crate) const FIXED: u64 = 16;
/// Bytes of a record that ends something.
pub(crate) const END: u64 = 16;
/// Bytes of an `MpiEnter`.
pub(crate) const MPI_ENTER: u64 = 48;
/// Longest record.
pub(crate) const LONGEST: u64 = (24 + NAME_LIMIT as u64).next_multiple_of(16);

pub(crate) mod kind {
    pub(crate) const PADDING: u8 = 0;
    pub(crate) const PUSH: u8 = 1;
    pub(crate) const POP: u8 = 2;
    pub(crate) const RANGE_START: u8 = 3;
    pub(crate) const RANGE_STOP: u8 = 4;
    pub(crate) const MARK: u8 = 5;
    pub(crate) const MPI_ENTER: u8 = 6;
    pub(crate) const MPI_EXIT: u8 = 7;
}

/// What an MPI call was asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MpiCall {
    /// Number of the function, see [`crate::mpi::MpiFunction`].
    pub function: u32,
    /// Handle of the communicator, or [`COMM_WORLD`], [`COMM_SELF`].
    pub comm: Option<u64>,
    /// Rank of the other side in the communicator; -1 is `MPI_PROC_NULL`, none `MPI_ANY_SOURCE`.
    pub peer: Option<i32>,
    /// Root of a collective, by its rank in the communicator.
    pub root: Option<i32>,
    /// Tag; none for `MPI_ANY_TAG`.
    pub tag: Option<i32>,
    /// Bytes that this rank hands over or has room for.
    pub bytes: Option<i64>,
}

/// One record. Times in ns of `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// `roctxRangePush`.
    Push {
        /// When.
        time: i64,
        /// Text; one over [`NAME_LIMIT`] is cut and ends in [`CUT_MARK`].
        name: &'a [u8],
    },
    /// `roctxRangePop`.
    Pop {
        /// When.
        time: i64,
    },
    /// `roctxRangeStart`.
    RangeStart {
        /// When.
        time: i64,
        /// Id of the range in the process.
        id: u64,
        /// Text; one over [`NAME_LIMIT`] is cut and ends in [`CUT_MARK`].
        name: &'a [u8],
    },
    /// `roctxRangeStop`, from any thread of the process.
    RangeStop {
        /// When.
        time: i64,
        /// Id of the range in the process.
        id: u64,
    },
    /// `roctxMark`.
    Mark {
        /// When.
        time: i64,
        /// Text; one over [`NAME_LIMIT`] is cut and ends in [`CUT_MARK`].
        name: &'a [u8],
    },
    /// An MPI function was called.
    MpiEnter {
        /// When.
        time: i64,
        /// Which, and with what.
        call: MpiCall,
    },
    /// The innermost MPI function returned.
    MpiExit {
        /// When.
        time: i64,
    },
}

/// First word of a record.
pub(crate) const fn first_word(bytes: u64, kind: u8, flags: u8, aux: u32) -> u64 {
    bytes | (kind as u64) << 16 | (flags as u64) << 24 | (aux as u64) << 32
}

impl MpiCall {
    /// The flags byte and the four words after the time.
    pub(crate) fn words(&self) -> (u8, [u64; 4]) {
        let flags = u8::from(self.comm.is_some())
            | u8::from(self.peer.is_some()) << 1
            | u8::from(self.root.is_some()) << 2
            | u8::from(self.tag.is_some()) << 3
            | u8::from(self.bytes.is_some()) << 4;
        let pair = |low: Option<i32>, high: Option<i32>| {
            u64::from(low.unwrap_or(0) as u32) | u64::from(high.unwrap_or(0) as u32) << 32
        };
        let words = [
            self.comm.unwrap_or(0),
            self.bytes.unwrap_or(0) as u64,
            pair(self.peer, self.root),
            pair(self.tag, None),
        ];
        (flags, words)
    }

    /// The reverse of [`MpiCall::words`].
    pub(crate) fn from_words(function: u32, flags: u8, words: [u64; 4]) -> MpiCall {
        let has = |bit: u8| flags >> bit & 1 == 1;
        MpiCall {
            function,
            comm: has(0).then_some(words[0]),
            peer: has(1).then_some(words[2] as u32 as i32),
            root: has(2).then_some((words[2] >> 32) as u32 as i32),
            tag: has(3).then_some(words[3] as u32 as i32),
            bytes: has(4).then_some(words[1] as i64),
        }
    }
}
