//! Reads the bytes of records from the words of a segment.

use std::array;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A position in a segment. It reads up to the end of what was published.
#[derive(Clone, Copy)]
pub(crate) struct RecordReader<'a> {
    segment: &'a [AtomicU64],
    /// Bytes since the start of the segment.
    position: u64,
    end: u64,
}

impl<'a> RecordReader<'a> {
    pub(crate) fn new(segment: &'a [AtomicU64], position: u64, end: u64) -> RecordReader<'a> {
        RecordReader { segment, position, end }
    }

    /// Returns the bytes since the start of the segment.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Continues where a copy of this reader has read to.
    #[inline(always)]
    pub(crate) fn set_position(&mut self, position: u64) {
        self.position = position.min(self.end);
    }

    /// Reads a number of so many bytes, at most 8.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: u32) -> Option<u64> {
        let (at, shift) = (self.position / 8, 8 * (self.position % 8) as u32);
        if !self.skip(u64::from(bytes)) {
            return None;
        }
        let mut value = self.load(at) >> shift;
        if shift + 8 * bytes > 64 {
            value |= self.load(at + 1) << (64 - shift);
        }
        Some(if bytes < 8 { value & !(u64::MAX << (8 * bytes)) } else { value })
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte as u8)
    }

    #[inline(always)]
    pub(crate) fn word(&mut self) -> Option<u64> {
        self.bytes(8)
    }

    #[inline(always)]
    pub(crate) fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        if (self.end - self.position) < 8 * N as u64 {
            return None;
        }
        Some(array::from_fn(|_| self.word().unwrap_or(0)))
    }

    /// Leaves out so many bytes. Returns `false` if there are fewer.
    #[inline(always)]
    pub(crate) fn skip(&mut self, bytes: u64) -> bool {
        let is_there = bytes <= self.end - self.position;
        if is_there {
            self.position += bytes;
        }
        is_there
    }

    /// Continues at the next whole word, or at the end.
    #[inline(always)]
    pub(crate) fn align(&mut self) {
        self.position = self.position.next_multiple_of(8).min(self.end);
    }

    #[inline(always)]
    fn load(&self, at: u64) -> u64 {
        self.segment.get(at as usize).map_or(0, |word| word.load(Relaxed))
    }
}
