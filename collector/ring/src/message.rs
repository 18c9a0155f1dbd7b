//! What the library sends over the collector's socket: one packet of 16 bytes per connection.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | magic `rpdm` |
//! | 4 | 4 | 1: the memfd of a ring is attached; a thread stays untraced: 2: for want of memory, 3: `ulimit -f` is too small |
//! | 8 | 4 | thread id, as the program sees it |
//! | 12 | 4 | [`crate::layout::VERSION`] |

use crate::layout::VERSION;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 16;
/// Variable that names the collector's abstract socket, with a leading `@` for the zero byte.
pub const SOCKET_VARIABLE: &str = "RPD_SOCKET";
/// Variable with the bytes of a ring.
pub const RING_VARIABLE: &str = "RPD_RING_BYTES";

const MAGIC: [u8; 4] = *b"rpdm";

/// What a thread tells the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Here is my ring.
    Ring {
        /// Thread id, as the program sees it.
        tid: i32,
    },
    /// I have no ring.
    Untraced {
        /// Thread id, as the program sees it.
        tid: i32,
        /// Why.
        why: Untraced,
    },
}

/// Why a thread has no ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untraced {
    /// Its memory could not be had.
    NoMemory,
    /// `ulimit -f` allows no file of that size.
    FileLimit,
}

impl Message {
    /// As bytes.
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (kind, tid) = match self {
            Message::Ring { tid } => (1u32, tid),
            Message::Untraced { tid, why: Untraced::NoMemory } => (2u32, tid),
            Message::Untraced { tid, why: Untraced::FileLimit } => (3u32, tid),
        };
        let words = [MAGIC, kind.to_le_bytes(), tid.to_le_bytes(), VERSION.to_le_bytes()];
        let mut bytes = [0; MESSAGE_BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word);
        }
        bytes
    }

    /// From bytes; none for anything that this version does not send.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let word = |i: usize| <[u8; 4]>::try_from(bytes.get(i * 4..i * 4 + 4)?).ok();
        if bytes.len() != MESSAGE_BYTES || word(0)? != MAGIC || u32::from_le_bytes(word(3)?) != VERSION {
            return None;
        }
        let tid = i32::from_le_bytes(word(2)?);
        match u32::from_le_bytes(word(1)?) {
            1 => Some(Message::Ring { tid }),
            2 => Some(Message::Untraced { tid, why: Untraced::NoMemory }),
            3 => Some(Message::Untraced { tid, why: Untraced::FileLimit }),
            _ => None,
        }
    }
}
