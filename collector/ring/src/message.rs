//! Messages of the library over the collector's socket: one packet of 24 bytes per connection.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | magic `rpdm` |
//! | 4 | 4 | 1: the memfd of a ring is attached; 2: a thread stays untraced; 3: events of threads without rings are lost; 4: a process has ended |
//! | 8 | 4 | 1, 2: thread id, as the program sees it; 3: unused; 4: process id, as the sender sees it |
//! | 12 | 4 | [`crate::layout::VERSION`] |
//! | 16 | 8 | 1: why the ring is smaller than wanted, 0 if it is not; 2: why there is none; 3: how many events; 4: status as `waitpid` returns it |
//!
//! Reasons: 1: no memory, 2: `ulimit -f` is too small, 3: the program may open no more files.

use crate::layout::VERSION;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 24;
/// Variable that names the collector's abstract socket, with a leading `@` for the zero byte.
pub const SOCKET_VARIABLE: &str = "RPD_SOCKET";
/// Variable with the bytes of a ring.
pub const RING_VARIABLE: &str = "RPD_RING_BYTES";
/// Variable with what is recorded: words of [`TRACED`] with commas between.
pub const TRACE_VARIABLE: &str = "RPD_TRACE";
/// Variable with the maximum number of bytes of all rings of one process.
pub const MEMORY_VARIABLE: &str = "RPD_RING_MEMORY";
/// Variable with the inode of the collector's time namespace, if the library may write ticks instead of times: in another
/// namespace it may not, as the collector would convert them to times of its own. 0 where there are no such namespaces.
pub const TICKS_VARIABLE: &str = "RPD_TICKS";
/// Variable with the process id of the collector, if it may read the memory of the program only with the permission of that.
pub const TRACER_VARIABLE: &str = "RPD_TRACER";
/// Names of the APIs that the library can record.
pub const TRACED: [&str; 3] = ["roctx", "mpi", "rccl"];

const MAGIC: [u8; 4] = *b"rpdm";

/// A message to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LibraryMessage {
    /// The thread sends its ring.
    Ring {
        /// Thread id, as the program sees it.
        tid: i32,
        /// Why the ring is smaller than wanted, if it is.
        cut: Option<RingObstacle>,
    },
    /// The thread has no ring.
    Untraced {
        /// Thread id, as the program sees it.
        tid: i32,
        /// The reason.
        why: RingObstacle,
    },
    /// Number of events of threads without rings.
    Lost {
        /// Number of events.
        events: u64,
    },
    /// A process has ended, or is about to.
    Ended {
        /// Process id, as the sender sees it.
        pid: i32,
        /// Status as `waitpid` returns it.
        status: i32,
    },
}

/// Why a thread has no ring, or a smaller one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingObstacle {
    /// The memory is not available.
    NoMemory = 1,
    /// `ulimit -f` allows no file of that size.
    FileLimit = 2,
    /// The program may open no more files.
    OpenFiles = 3,
}

impl RingObstacle {
    fn of_number(number: u64) -> Option<RingObstacle> {
        let all = [RingObstacle::NoMemory, RingObstacle::FileLimit, RingObstacle::OpenFiles];
        all.into_iter().find(|obstacle| *obstacle as u64 == number)
    }
}

impl LibraryMessage {
    /// Converts the message to bytes.
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (kind, id, value) = match self {
            LibraryMessage::Ring { tid, cut } => (1u32, tid, cut.map_or(0, |why| why as u64)),
            LibraryMessage::Untraced { tid, why } => (2, tid, why as u64),
            LibraryMessage::Lost { events } => (3, 0, events),
            LibraryMessage::Ended { pid, status } => (4, pid, u64::from(status as u32)),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        let (words, last) = bytes.split_at_mut(16);
        let first = [MAGIC, kind.to_le_bytes(), id.to_le_bytes(), VERSION.to_le_bytes()];
        for (place, word) in words.chunks_exact_mut(4).zip(first) {
            place.copy_from_slice(&word);
        }
        last.copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// Parses a message; `None` for anything that this version does not send.
    pub fn decode(bytes: &[u8]) -> Option<LibraryMessage> {
        let word = |i: usize| <[u8; 4]>::try_from(bytes.get(i * 4..i * 4 + 4)?).ok();
        if bytes.len() != MESSAGE_BYTES || word(0)? != MAGIC || u32::from_le_bytes(word(3)?) != VERSION {
            return None;
        }
        let tid = i32::from_le_bytes(word(2)?);
        let value = u64::from_le_bytes(bytes.get(16..)?.try_into().ok()?);
        match u32::from_le_bytes(word(1)?) {
            1 => Some(LibraryMessage::Ring { tid, cut: RingObstacle::of_number(value) }),
            2 => Some(LibraryMessage::Untraced { tid, why: RingObstacle::of_number(value)? }),
            3 => Some(LibraryMessage::Lost { events: value }),
            4 => Some(LibraryMessage::Ended { pid: tid, status: value as u32 as i32 }),
            _ => None,
        }
    }
}
