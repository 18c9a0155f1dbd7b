//! The place of a producer in the segments of its ring: where the next byte goes, and how much may still follow.

use crate::header::RingHeader;
use crate::layout::{MIN_SEGMENT_BYTES, segment_bytes, word};
use crate::memory::RingMemory;
use crate::record::{MAX_END_BYTES, kind};
use crate::segment_queue::SegmentQueue;
use crate::segments::{BASE_TIME, LINK, SegmentStates};
use crate::wakeup;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Makes memory for a part of a ring: bytes of the words, and [`RingHeader::returned`]. Returns whether there is memory
/// now.
pub type GrowRing = fn(&RingMemory, Range<usize>, u64) -> bool;

/// Number of segments for which memory is made at once, if there is as much.
const SEGMENTS_AT_ONCE: u32 = 4;
/// Time between two attempts to make memory if there was none, ns.
const GROW_AGAIN_NS: i64 = 10_000_000;
/// Bytes that begins leave free for the stops of ranges that other threads may have started.
const FOR_STOPS: u64 = MIN_SEGMENT_BYTES as u64 / 4;

/// Where a producer writes, byte by byte, in whole words.
#[derive(Debug)]
pub(crate) struct RecordSpace {
    memory: RingMemory,
    /// First word of the segments.
    ring: usize,
    /// Bytes of all segments, and of each.
    capacity: u64,
    segment: u64,
    grow: GrowRing,
    /// Earliest time of the next attempt to grow.
    grow_at: i64,
    /// Bytes ever published.
    head: u64,
    /// Number and first word of the current segment; the number counts all that were entered.
    entered: u64,
    start: usize,
    /// The word that is being written, what it has so far, and how many bits that is.
    at: usize,
    partial: u64,
    filled: u32,
    /// Bytes that are left in the current segment after the last published record.
    room: u64,
    ahead: SegmentQueue,
    /// Bytes that records can have in the segments that are taken ahead.
    ahead_bytes: u64,
    /// Bytes reserved for the ends of what is open in this thread.
    reserved: u64,
    /// Time of the last record, ns of `CLOCK_BOOTTIME`.
    last_time: i64,
    /// The head from which on the consumer may have to be woken.
    look: u64,
    /// Bytes between two such looks.
    part: u64,
}

impl RecordSpace {
    pub(crate) fn new(memory: RingMemory, grow: GrowRing) -> Option<RecordSpace> {
        let (ring, bytes) = RingHeader::new(&memory)?.ring()?;
        let (ring, capacity, segment) = (ring / 8, bytes as u64, segment_bytes(bytes) as u64);
        let part = wakeup::part_bytes(capacity);
        Some(RecordSpace {
            memory,
            ring,
            capacity,
            segment,
            grow,
            grow_at: i64::MIN,
            head: LINK,
            entered: 0,
            start: ring,
            at: ring + LINK as usize / 8,
            partial: 0,
            filled: 0,
            room: if capacity == 0 { 0 } else { segment - LINK },
            ahead: SegmentQueue::new(),
            ahead_bytes: 0,
            reserved: 0,
            last_time: 0,
            look: part,
            part,
        })
    }

    pub(crate) fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Whether there are segments. Without them, drops are only counted.
    pub(crate) fn has_segments(&self) -> bool {
        self.capacity > 0
    }

    /// Returns the time from which the next record counts.
    #[inline(always)]
    pub(crate) fn last_time(&self) -> i64 {
        self.last_time
    }

    #[inline(always)]
    pub(crate) fn set_last_time(&mut self, time: i64) {
        self.last_time = time;
    }

    /// Reserves space for the end of something that is open.
    #[inline(always)]
    pub(crate) fn reserve_end(&mut self) {
        self.reserved += MAX_END_BYTES;
    }

    /// Frees the space that is reserved for one end.
    #[inline(always)]
    pub(crate) fn release_end(&mut self) {
        self.reserved = self.reserved.saturating_sub(MAX_END_BYTES);
    }

    /// Returns the bytes that are reserved for ends.
    #[inline(always)]
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Begins leave this free: the ends of what is open, and [`FOR_STOPS`].
    #[inline(always)]
    pub(crate) fn keep_free(&self) -> u64 {
        self.reserved + FOR_STOPS
    }

    /// Whether a record of `bytes` fits into the current segment and leaves `keep` bytes free.
    #[inline(always)]
    pub(crate) fn fits(&self, bytes: u64, keep: u64) -> bool {
        bytes <= self.room && bytes + keep <= self.room + self.ahead_bytes
    }

    /// Takes further segments until a record of `bytes` fits into one and leaves `keep` bytes free, and continues in the
    /// next one if it does not fit into the current one. Returns whether it fits now.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self, bytes: u64, keep: u64, time: i64) -> bool {
        if self.capacity == 0 {
            return false;
        }
        loop {
            // A record lies in one segment.
            let fits_here = bytes <= self.room;
            let left = if fits_here { self.room + self.ahead_bytes } else { self.ahead_bytes };
            if bytes + keep <= left {
                break;
            }
            if !self.take_ahead(time) {
                return false;
            }
        }
        if bytes > self.room {
            self.enter_next_segment();
        }
        true
    }

    /// Takes one more segment ahead.
    fn take_ahead(&mut self, time: i64) -> bool {
        let Some(taken) = self.take_segment(time) else { return false };
        if !self.ahead.push(taken) {
            if let Some(states) = self.segments() {
                states.set_ready(taken..taken + 1);
            }
            return false;
        }
        self.ahead_bytes += self.segment - LINK;
        true
    }

    /// Continues in the next segment. Returns those to the ring that the ends of what is open do not need any more.
    fn enter_next_segment(&mut self) {
        let Some(number) = self.ahead.pop() else { return };
        if self.room > 0 {
            self.append(u64::from(kind::PADDING), 1);
        }
        self.store(self.start, number as u64 + 1);
        let usable = self.segment - LINK;
        self.head += self.room + LINK;
        self.ahead_bytes -= usable;
        self.entered += 1;
        self.start = self.ring + number * (self.segment as usize / 8);
        self.store(self.start + BASE_TIME, self.last_time as u64);
        (self.at, self.partial, self.filled) = (self.start + LINK as usize / 8, 0, 0);
        self.room = usable;
        while self.ahead.len() > 1 && self.ahead_bytes - usable > self.keep_free() {
            let Some(last) = self.ahead.pop_last() else { return };
            self.ahead_bytes -= usable;
            if let Some(states) = self.segments() {
                states.set_ready(last..last + 1);
            }
        }
    }

    /// Takes a free segment, or one for which there is memory now.
    fn take_segment(&mut self, time: i64) -> Option<usize> {
        let header = RingHeader::new(&self.memory)?;
        let states = header.segments()?;
        if let Some(ready) = states.take_ready() {
            return Some(ready);
        }
        if time < self.grow_at {
            return None;
        }
        for wanted in [SEGMENTS_AT_ONCE, 1] {
            let Some(taken) = states.take_absent(wanted) else { break };
            let words = |number: usize| self.ring + number * (self.segment as usize / 8);
            if (self.grow)(&self.memory, words(taken.start)..words(taken.end), header.returned()) {
                states.set_ready(taken.start + 1..taken.end);
                return Some(taken.start);
            }
            states.set_absent(taken);
        }
        // Without memory, not every event asks for it.
        self.grow_at = time.saturating_add(GROW_AGAIN_NS);
        None
    }

    fn segments(&self) -> Option<SegmentStates<'_>> {
        RingHeader::new(&self.memory)?.segments()
    }

    /// Returns how many segments were entered: no two have the same number, also if they have the same memory.
    #[inline(always)]
    pub(crate) fn entered(&self) -> u64 {
        self.entered
    }

    /// Returns the number of the current segment's word that is written next, for [`RecordSpace::word`].
    #[inline(always)]
    pub(crate) fn next_word(&self) -> usize {
        self.at - self.start
    }

    /// Returns a word of the current segment.
    #[inline(always)]
    pub(crate) fn word(&self, number: usize) -> u64 {
        self.memory.get(self.start + number).map_or(0, |word| word.load(Relaxed))
    }

    /// Writes the lowest `bytes` of a value, 1 to 8. Its other bits are zero. Space must have been found before.
    #[inline(always)]
    pub(crate) fn append(&mut self, value: u64, bytes: u32) {
        let before = self.filled;
        self.partial |= value << before;
        self.store(self.at, self.partial);
        self.filled = before + 8 * bytes;
        if self.filled >= 64 {
            self.filled -= 64;
            self.at += 1;
            self.partial = (value >> 1) >> (63 - before);
            if self.filled > 0 {
                self.store(self.at, self.partial);
            }
        }
    }

    /// Continues at the next whole word.
    #[inline(always)]
    pub(crate) fn align(&mut self) {
        if self.filled > 0 {
            (self.at, self.partial, self.filled) = (self.at + 1, 0, 0);
        }
    }

    /// Publishes everything written so far.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        let written = 8 * (self.at - self.start) as u64 + u64::from(self.filled / 8);
        let room = self.segment - written;
        self.head += self.room - room;
        self.room = room;
        if let Some(head) = self.memory.get(word::HEAD) {
            head.store(self.head, Release);
        }
        if self.head >= self.look {
            self.wake_consumer();
        }
    }

    /// Wakes the consumer if it sleeps. If it falls asleep at this moment and this misses it, it sees what
    /// was published so far, or the next part of the ring wakes it.
    #[cold]
    fn wake_consumer(&mut self) {
        self.look = self.head + self.part;
        wakeup::call(&self.memory);
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.memory.get(at) {
            word.store(value, Relaxed);
        }
    }
}
