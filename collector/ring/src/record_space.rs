//! The place of a producer in the segments of its ring: where the next byte goes, and how much may still follow.

use crate::header::RingHeader;
use crate::layout::{MIN_SEGMENT_BYTES, NAME_SLOTS, segment_bytes, word};
use crate::memory::RingMemory;
use crate::record::{MAX_END_BYTES, kind};
use crate::segment_queue::SegmentQueue;
use crate::segments::{BASE_TIME, LINK, REST, SegmentStates};
use crate::wakeup;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Makes memory for a part of a ring: bytes of the words, and [`RingHeader::returned`]. Returns whether there is memory
/// now.
pub type GrowRing = fn(&RingMemory, Range<usize>, u64) -> bool;

/// Number of segments for which memory is made at once, if there is as much.
const SEGMENTS_AT_ONCE: u32 = 4;
/// Time between two attempts to make memory if there was none: 10 ms, or 2 to 10 ms if times are ticks.
const GROW_AGAIN: i64 = 10_000_000;
/// Bytes that begins leave free for the stops of ranges that other threads may have started.
const FOR_STOPS: u64 = MIN_SEGMENT_BYTES as u64 / 4;

/// Where a producer writes, byte by byte.
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
    /// Byte of the memory where the next record begins. The bits after it in its word are zero.
    position: u64,
    /// End of what records of the current segment may take.
    end: u64,
    /// Number of bytes ever written, minus the position; may be negative and wraps around.
    before: u64,
    /// First word of the current segment.
    start: usize,
    ahead: SegmentQueue,
    /// Bytes that records can have in the segments that are taken ahead.
    ahead_bytes: u64,
    /// Bytes reserved for the ends of what is open in this thread.
    reserved: u64,
    /// Time of the last record.
    last_time: i64,
    /// The number of written bytes from which on the consumer may have to be woken.
    look: u64,
    /// Bytes between two such looks.
    part: u64,
}

impl RecordSpace {
    pub(crate) fn new(memory: RingMemory, grow: GrowRing) -> Option<RecordSpace> {
        let (ring, bytes) = RingHeader::new(&memory)?.ring()?;
        let (ring, capacity, segment) = (ring / 8, bytes as u64, segment_bytes(bytes) as u64);
        let part = wakeup::part_bytes(capacity);
        let first = 8 * ring as u64 + LINK;
        Some(RecordSpace {
            memory,
            ring,
            capacity,
            segment,
            grow,
            grow_at: i64::MIN,
            position: first,
            end: if capacity == 0 { first } else { first + segment - LINK - REST },
            // The first segment's link counts as written.
            before: LINK.wrapping_sub(first),
            start: ring,
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
        let end = self.position + bytes;
        end <= self.end && end + keep <= self.end + self.ahead_bytes
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
            let room = self.end - self.position;
            let left = if bytes <= room { room + self.ahead_bytes } else { self.ahead_bytes };
            if bytes + keep <= left {
                break;
            }
            if !self.take_ahead(time) {
                return false;
            }
        }
        if self.position + bytes > self.end {
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
        self.ahead_bytes += self.segment - LINK - REST;
        true
    }

    /// Continues in the next segment. Returns those to the ring that the ends of what is open do not need any more.
    fn enter_next_segment(&mut self) {
        let Some(number) = self.ahead.pop() else { return };
        self.append(u64::from(kind::PADDING), 1);
        self.store(self.start, number as u64 + 1);
        let usable = self.segment - LINK - REST;
        self.ahead_bytes -= usable;
        let written = self.before.wrapping_add(self.end + REST + LINK);
        self.start = self.ring + number * (self.segment as usize / 8);
        self.store(self.start + BASE_TIME, self.last_time as u64);
        self.position = 8 * self.start as u64 + LINK;
        self.end = self.position + usable;
        self.before = written.wrapping_sub(self.position);
        self.store(self.start + LINK as usize / 8, 0);
        self.name_slots().iter().for_each(|slot| slot.store(0, Relaxed));
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
        self.grow_at = time.saturating_add(GROW_AGAIN);
        None
    }

    fn segments(&self) -> Option<SegmentStates<'_>> {
        RingHeader::new(&self.memory)?.segments()
    }

    /// Returns the number of the current segment's word that is written next, for [`RecordSpace::words`].
    #[inline(always)]
    pub(crate) fn next_word(&self) -> usize {
        (self.position / 8) as usize - self.start
    }

    /// Returns the slots of names, see [`crate::name_slots`].
    #[inline(always)]
    pub(crate) fn name_slots(&self) -> &[AtomicU64] {
        self.memory.get(word::NAMES..word::NAMES + NAME_SLOTS).unwrap_or_default()
    }

    /// Returns words of the current segment.
    #[inline(always)]
    pub(crate) fn words(&self, numbers: Range<usize>) -> &[AtomicU64] {
        self.memory.get(self.start + numbers.start..self.start + numbers.end).unwrap_or_default()
    }

    /// Writes the lowest `bytes` of a value, 1 to 8. Its other bits are zero. Space must have been found before.
    ///
    /// Without a branch, as none could be predicted: records have any number of bytes. So it also writes to the next word.
    #[inline(always)]
    pub(crate) fn append(&mut self, value: u64, bytes: u32) {
        let (at, shift) = ((self.position / 8) as usize, 8 * (self.position % 8) as u32);
        if let Some([first, second]) = self.memory.get(at..at + 2) {
            first.store(first.load(Relaxed) | value << shift, Relaxed);
            second.store((value >> 1) >> (63 - shift), Relaxed);
        }
        self.position += u64::from(bytes);
    }

    /// Writes whole words, as [`RecordSpace::append`].
    #[inline(always)]
    pub(crate) fn append_words<const N: usize>(&mut self, values: [u64; N]) {
        let (at, shift) = ((self.position / 8) as usize, 8 * (self.position % 8) as u32);
        if let Some([places @ .., last]) = self.memory.get(at..at + N + 1)
            && let [first, ..] = places
        {
            let mut begun = first.load(Relaxed);
            for (place, value) in places.iter().zip(values) {
                place.store(begun | value << shift, Relaxed);
                begun = (value >> 1) >> (63 - shift);
            }
            last.store(begun, Relaxed);
        }
        self.position += 8 * N as u64;
    }

    /// Continues at the next whole word.
    pub(crate) fn align(&mut self) {
        self.position = self.position.next_multiple_of(8);
        self.store((self.position / 8) as usize, 0);
    }

    /// Publishes everything written so far.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        let written = self.before.wrapping_add(self.position);
        if let Some(head) = self.memory.get(word::HEAD) {
            head.store(written, Release);
        }
        if written >= self.look {
            self.wake_consumer(written);
        }
    }

    /// Wakes the consumer if it sleeps. If it falls asleep at this moment and this misses it, it sees what
    /// was published so far, or the next part of the ring wakes it.
    #[cold]
    fn wake_consumer(&mut self, written: u64) {
        self.look = written + self.part;
        wakeup::call(&self.memory);
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.memory.get(at) {
            word.store(value, Relaxed);
        }
    }
}
