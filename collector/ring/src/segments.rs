//! The segments of a ring.
//!
//! ```text
//! ABSENT --producer--> IN USE --consumer--> READY --producer--> IN USE
//!   ^---------------------------consumer------'
//! ```
//!
//! An absent segment has no memory. The producer takes segments that are ready, and only without one makes memory for an
//! absent one. The first word of a segment that is full has the number of the next one plus 1, so that the consumer follows
//! the producer. The second word has the time from which the first record counts. The consumer returns a segment that it has read, and gives the memory of ready ones back to the system when the
//! thread is idle.
//!
//! Two maps of bits in the header have the ready and the absent segments. Whoever clears a bit owns the segment until it
//! sets one again. So neither side waits for the other.

use crate::layout::{MAX_SEGMENTS, word};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Bytes at the start of each segment that have no records.
pub(crate) const LINK: u64 = 16;
/// Bytes at the end of each segment that have no records, so that the producer may write a word after the last one.
pub(crate) const REST: u64 = 16;
/// Number of the segment's word with the time of the record before its first one.
pub(crate) const BASE_TIME: usize = 1;

const WORDS: usize = MAX_SEGMENTS / 64;
const _: () = assert!(word::READY + WORDS == word::ABSENT);

/// The states of all segments of a ring.
#[derive(Clone, Copy, Debug)]
pub struct SegmentStates<'a> {
    ready: &'a [AtomicU64],
    absent: &'a [AtomicU64],
}

impl<'a> SegmentStates<'a> {
    /// Returns the states in a header; `None` if it is too small.
    pub(crate) fn new(header: &'a [AtomicU64]) -> Option<SegmentStates<'a>> {
        let ready = header.get(word::READY..word::READY + WORDS)?;
        let absent = header.get(word::ABSENT..word::ABSENT + WORDS)?;
        Some(SegmentStates { ready, absent })
    }

    /// Takes the first ready segment.
    pub(crate) fn take_ready(self) -> Option<usize> {
        take(self.ready, 1).map(|taken| taken.start)
    }

    /// Takes up to `wanted` absent segments that follow each other.
    pub(crate) fn take_absent(self, wanted: u32) -> Option<Range<usize>> {
        take(self.absent, wanted)
    }

    /// Takes up to 64 ready segments that follow each other, of which the first has a number below `end`.
    pub(crate) fn take_last_ready(self, end: usize) -> Option<Range<usize>> {
        let words = self.ready.iter().enumerate().take(end.div_ceil(64)).rev();
        words.filter(|(_, word)| word.load(Relaxed) != 0).find_map(|(at, word)| {
            let taken = take(std::slice::from_ref(word), 64)?;
            Some(taken.start + 64 * at..taken.end + 64 * at)
        })
    }

    /// Notes that segments have memory and are free.
    pub(crate) fn set_ready(self, segments: Range<usize>) {
        set(self.ready, segments);
    }

    /// Notes that segments have no memory.
    pub(crate) fn set_absent(self, segments: Range<usize>) {
        set(self.absent, segments);
    }

    /// Returns the number of segments without memory.
    pub fn absent(self) -> usize {
        self.absent.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }
}

/// Clears up to `wanted` bits that follow each other in one word, from the first set one. Returns their numbers.
fn take(words: &[AtomicU64], wanted: u32) -> Option<Range<usize>> {
    for (at, word) in words.iter().enumerate() {
        let mut value = word.load(Acquire);
        while value != 0 {
            let first = value.trailing_zeros();
            let length = (value >> first).trailing_ones().min(wanted);
            let bits = (u64::MAX >> (64 - length)) << first;
            match word.compare_exchange_weak(value, value & !bits, AcqRel, Acquire) {
                Ok(_) => {
                    let start = 64 * at + first as usize;
                    return Some(start..start + length as usize);
                }
                Err(other) => value = other,
            }
        }
    }
    None
}

fn set(words: &[AtomicU64], numbers: Range<usize>) {
    for number in numbers {
        if let Some(word) = words.get(number / 64) {
            word.fetch_or(1 << (number % 64), Release);
        }
    }
}
