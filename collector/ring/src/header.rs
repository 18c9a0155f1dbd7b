//! The header of a ring, field by field.

use crate::layout::{
    DropCause, DroppedKind, HEADER_BYTES, MAGIC, MAX_IDENTITY_BYTES, MAX_RING_BYTES, MIN_RING_BYTES,
    THREAD_NAME_BYTES, VERSION, identity_bytes, segment_bytes, word,
};
use crate::segments::SegmentStates;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Name of a thread, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadName(pub [u8; THREAD_NAME_BYTES]);

impl Default for ThreadName {
    fn default() -> ThreadName {
        ThreadName([0; THREAD_NAME_BYTES])
    }
}

impl ThreadName {
    /// Returns the name without the padding.
    pub fn text(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// Properties of a thread that the library reports when it creates a ring.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadFacts {
    /// Process id, as the program sees it.
    pub pid: i32,
    /// Thread id, as the program sees it.
    pub tid: i32,
    /// Process id of the parent, as the program sees it.
    pub ppid: i32,
    /// Start of the process, clock ticks since boot; 0 if unknown.
    pub start_ticks: u64,
    /// Creation of the ring, ns of `CLOCK_BOOTTIME`.
    pub start_ns: i64,
    /// Thread name.
    pub thread_name: ThreadName,
    /// Inode of the time namespace, 0 if unknown.
    pub time_namespace: u64,
    /// Forked from a traced process, without an exec since.
    pub is_forked: bool,
    /// The times of records are ticks, see [`crate::ticks`].
    pub has_ticks: bool,
}

/// The first page of a ring's memory.
#[derive(Clone, Copy, Debug)]
pub struct RingHeader<'a> {
    words: &'a [AtomicU64],
}

impl<'a> RingHeader<'a> {
    /// Returns the header of this memory; `None` if the memory is too small.
    #[inline]
    pub fn new(memory: &'a [AtomicU64]) -> Option<RingHeader<'a>> {
        (memory.len() >= HEADER_BYTES / 8).then_some(RingHeader { words: memory })
    }

    /// Fills in a new ring: facts, identity, and finally the magic. The first `backed_bytes` of its segments have memory;
    /// the first of them is in use.
    pub fn write(self, facts: &ThreadFacts, identity: &[u8], ring_bytes: usize, backed_bytes: usize) {
        let identity = identity.get(..MAX_IDENTITY_BYTES).unwrap_or(identity);
        let low = |value: i32| u64::from(value as u32);
        let reserved = identity_bytes(identity.len()) as u64;
        self.set(word::VERSION_IDENTITY, u64::from(VERSION) | reserved << 32);
        self.set(word::RING_BYTES, ring_bytes as u64);
        self.set(word::PID_TID, low(facts.pid) | low(facts.tid) << 32);
        self.set(word::PPID_IDENTITY_USED, low(facts.ppid) | (identity.len() as u64) << 32);
        self.set(word::START_TICKS, facts.start_ticks);
        self.set(word::START_NS, facts.start_ns as u64);
        self.set_bytes(word::THREAD_NAME, &facts.thread_name.0);
        self.set(word::TIME_NAMESPACE, facts.time_namespace);
        self.set(word::FLAGS, u64::from(facts.is_forked) | u64::from(facts.has_ticks) << 1);
        self.set_bytes(HEADER_BYTES / 8, identity);
        if let Some(states) = self.segments() {
            let [segments, backed] =
                [ring_bytes, backed_bytes].map(|bytes| bytes / segment_bytes(ring_bytes));
            states.set_ready(1..backed.min(segments));
            states.set_absent(backed.max(1)..segments);
        }
        self.set(word::MAGIC, MAGIC);
    }

    /// Returns offset and bytes of the segments; `None` if magic, version and sizes are inconsistent.
    pub fn ring(self) -> Option<(usize, usize)> {
        let version_identity = self.get(word::VERSION_IDENTITY);
        if self.get(word::MAGIC) != MAGIC || version_identity as u32 != VERSION {
            return None;
        }
        let identity = (version_identity >> 32) as usize;
        let ring = usize::try_from(self.get(word::RING_BYTES)).ok()?;
        let sane = identity <= MAX_IDENTITY_BYTES
            && identity.is_multiple_of(4096)
            && (ring == 0 || (MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring) && ring.is_power_of_two())
            && HEADER_BYTES + identity + ring == self.words.len() * 8;
        sane.then_some((HEADER_BYTES + identity, ring))
    }

    /// Returns the states of the segments.
    pub fn segments(self) -> Option<SegmentStates<'a>> {
        SegmentStates::new(self.words)
    }

    /// Returns how many bytes of the segments have memory.
    pub fn backed_bytes(self) -> usize {
        let Some((_, bytes)) = self.ring() else { return 0 };
        let absent = self.segments().map_or(0, |states| states.absent().saturating_mul(segment_bytes(bytes)));
        bytes.saturating_sub(absent)
    }

    /// Notes how many bytes of rings of this process the consumer has given back to the system so far.
    pub fn set_returned(self, bytes: u64) {
        self.set(word::RETURNED, bytes);
    }

    /// Returns how many bytes of rings of this process the consumer has given back to the system so far.
    pub fn returned(self) -> u64 {
        self.get(word::RETURNED)
    }

    /// Returns what the library reported about the thread.
    pub fn facts(self) -> ThreadFacts {
        let high = |value: u64| (value >> 32) as u32 as i32;
        let mut thread_name = ThreadName::default();
        for (i, word) in thread_name.0.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.get(word::THREAD_NAME + i).to_le_bytes());
        }
        ThreadFacts {
            pid: self.get(word::PID_TID) as u32 as i32,
            tid: high(self.get(word::PID_TID)),
            ppid: self.get(word::PPID_IDENTITY_USED) as u32 as i32,
            start_ticks: self.get(word::START_TICKS),
            start_ns: self.get(word::START_NS) as i64,
            thread_name,
            time_namespace: self.get(word::TIME_NAMESPACE),
            is_forked: self.get(word::FLAGS) & 1 == 1,
            has_ticks: self.has_ticks(),
        }
    }

    /// Whether the times of records are ticks, see [`crate::ticks`].
    pub fn has_ticks(self) -> bool {
        self.get(word::FLAGS) >> 1 & 1 == 1
    }

    /// Returns the bytes of the identity, see [`crate::identity`].
    pub fn identity(self) -> Vec<u8> {
        let reserved = (self.get(word::VERSION_IDENTITY) >> 32) as usize;
        let used = (self.get(word::PPID_IDENTITY_USED) >> 32) as usize;
        let used = used.min(reserved).min(MAX_IDENTITY_BYTES);
        let mut bytes = Vec::with_capacity(used + 8);
        for i in 0..used.div_ceil(8) {
            bytes.extend_from_slice(&self.get(HEADER_BYTES / 8 + i).to_le_bytes());
        }
        bytes.truncate(used);
        bytes
    }

    /// Adds to a counter of drops.
    pub fn count_drop(self, cause: DropCause, what: DroppedKind, events: u64) {
        if let Some(counter) =
            self.words.get(word::DROPS + cause as usize * DroppedKind::PLACES + what as usize)
        {
            counter.fetch_add(events, Relaxed);
        }
    }

    /// Returns a counter of drops.
    pub fn drops(self, cause: DropCause, what: DroppedKind) -> u64 {
        self.get(word::DROPS + cause as usize * DroppedKind::PLACES + what as usize)
    }

    /// Marks that the thread has ended: everything it recorded has been published.
    pub fn end(self) {
        if let Some(ended) = self.words.get(word::ENDED) {
            ended.store(1, Release);
        }
    }

    /// Whether the thread has ended. Call it before draining: the drain then finds everything.
    pub fn ended(self) -> bool {
        self.words.get(word::ENDED).is_some_and(|ended| ended.load(Acquire) == 1)
    }

    /// Marks that no consumer reads the ring any more, so that drops do not matter.
    pub fn close(self) {
        if let Some(closed) = self.words.get(word::CLOSED) {
            closed.store(1, Release);
        }
    }

    /// Whether no consumer reads the ring any more.
    pub fn closed(self) -> bool {
        self.get(word::CLOSED) == 1
    }

    fn get(self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Relaxed))
    }

    fn set(self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Relaxed);
        }
    }

    fn set_bytes(self, at: usize, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks(8).enumerate() {
            self.set(at + i, chunk.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        }
    }
}
