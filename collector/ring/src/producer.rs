//! Writes records. Never waits, allocates or panics. Its system calls wake a sleeping consumer, once per sleep, and make
//! memory for further segments.

use crate::header::RingHeader;
use crate::layout::{DropCause, DroppedKind, MAX_NAME_BYTES, MIN_SEGMENT_BYTES, segment_bytes, word};
use crate::memory::RingMemory;
use crate::record::{
    CUT, END, FIXED, MpiCall, NAME_OF_RCCL, NeighbourDirection, NewCommunicator, OF_RCCL, PREPARED, RECEIVED,
    RcclCall, RecordedLibrary, RequestCompletion, TO_NEIGHBOURS, first_word, kind,
};
use crate::segment_queue::SegmentQueue;
use crate::segments::{LINK, SegmentStates};
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

/// Writes the records of one thread.
#[derive(Debug)]
pub struct RingProducer {
    memory: RingMemory,
    /// First word of the segments.
    ring: usize,
    /// Bytes of all segments, and of each.
    capacity: u64,
    segment: u64,
    grow: GrowRing,
    /// Earliest time of the next attempt to grow.
    grow_at: i64,
    head: u64,
    /// The first word of the current segment, the word of the next record, and the bytes that are left from there.
    start: usize,
    next: usize,
    room: u64,
    ahead: SegmentQueue,
    /// Bytes that records can have in the segments that are taken ahead.
    ahead_bytes: u64,
    /// Bytes reserved for the ends of what is open in this thread.
    reserved: u64,
    /// The head from which on the consumer may have to be woken.
    look: u64,
    /// Bytes between two such looks.
    part: u64,
}

impl RingProducer {
    /// Writes to memory that has a header, see [`RingHeader::write`]. The ring grows by `grow`.
    pub fn new(memory: RingMemory, grow: GrowRing) -> Option<RingProducer> {
        let (ring, bytes) = RingHeader::new(&memory)?.ring()?;
        let (ring, capacity, segment) = (ring / 8, bytes as u64, segment_bytes(bytes) as u64);
        let part = wakeup::part_bytes(capacity);
        Some(RingProducer {
            memory,
            ring,
            capacity,
            segment,
            grow,
            grow_at: i64::MIN,
            head: LINK,
            start: ring,
            next: ring + LINK as usize / 8,
            room: if capacity == 0 { 0 } else { segment - LINK },
            ahead: SegmentQueue::new(),
            ahead_bytes: 0,
            reserved: 0,
            look: part,
            part,
        })
    }

    /// Returns the header, for counters.
    pub fn header(&self) -> Option<RingHeader<'_>> {
        RingHeader::new(&self.memory)
    }

    /// Returns the whole memory.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// `roctxRangePush`. Returns `false` if it could not be recorded; then its pop must not be recorded
    /// either.
    #[inline]
    pub fn push(&mut self, time: i64, name: &[u8]) -> bool {
        let stored = self.named(kind::PUSH, 0, time, None, name, END);
        self.opened(stored, DroppedKind::Range)
    }

    /// `roctxRangePop` of a recorded push. There is always room for it.
    #[inline]
    pub fn pop(&mut self, time: i64) {
        self.end(kind::POP, time);
    }

    /// `roctxRangeStart`.
    #[inline]
    pub fn range_start(&mut self, time: i64, id: u64, name: &[u8]) -> bool {
        let stored = self.named(kind::RANGE_START, 0, time, Some(id), name, 0);
        self.count_if_not(stored, DroppedKind::Range)
    }

    /// `roctxRangeStop`. It may use the space that is reserved from begins. A drop is not counted: its range
    /// was counted at its start, or is recorded and stays open.
    #[inline]
    pub fn range_stop(&mut self, time: i64, id: u64) -> bool {
        self.words(kind::RANGE_STOP, 0, 0, time, [id, 0])
    }

    /// `roctxMark`.
    #[inline]
    pub fn mark(&mut self, time: i64, name: &[u8]) -> bool {
        let stored = self.named(kind::MARK, 0, time, None, name, 0);
        self.count_if_not(stored, DroppedKind::Mark)
    }

    /// Begin of an MPI function. Returns `false` if it could not be recorded; then its exit must not be
    /// recorded either.
    #[inline]
    pub fn mpi_enter(&mut self, time: i64, call: &MpiCall) -> bool {
        let stored = match &call.receive {
            None => {
                let (flags, words) = call.words();
                self.enter(kind::MPI_ENTER, flags, call.function, time, words)
            }
            Some(receive) => {
                let (flags, words) = call.words_with(receive);
                self.enter(kind::MPI_ENTER, flags, call.function, time, words)
            }
        };
        self.opened(stored, DroppedKind::MpiCall)
    }

    /// Return of the MPI function that was recorded last as entered and not left.
    #[inline]
    pub fn mpi_exit(&mut self, time: i64) {
        self.end(kind::MPI_EXIT, time);
    }

    /// Start of an operation by the MPI function that was recorded last as entered. Like everything that a call
    /// ends with, it may use the space that is reserved from begins. If it cannot be recorded, its completion
    /// will be unmatched, and counted there.
    #[inline]
    pub fn mpi_request(&mut self, time: i64, request: u64) -> bool {
        self.words(kind::MPI_REQUEST, 0, 0, time, [request, 0])
    }

    /// Creation of a persistent request by the MPI function that was recorded last as entered.
    #[inline]
    pub fn mpi_prepared(&mut self, time: i64, request: u64) -> bool {
        self.words(kind::MPI_REQUEST, PREPARED, 0, time, [request, 0])
    }

    /// Message that a matched probe has found.
    #[inline]
    pub fn mpi_message_found(&mut self, time: i64, message: u64) -> bool {
        self.words(kind::MPI_MESSAGE, 0, 0, time, [message, 0])
    }

    /// Message of a matched probe that the MPI function recorded last as entered receives.
    #[inline]
    pub fn mpi_message_received(&mut self, time: i64, message: u64) -> bool {
        self.words(kind::MPI_MESSAGE, RECEIVED, 0, time, [message, 0])
    }

    /// Completion of an operation.
    #[inline]
    pub fn mpi_done(&mut self, time: i64, completion: &RequestCompletion) -> bool {
        let (flags, [request, bytes, message]) = completion.words();
        let stored = self.words(kind::MPI_DONE, flags, 0, time, [request, bytes, message, 0]);
        self.count_if_not(stored, DroppedKind::MpiRequest)
    }

    /// A request that was freed before its completion.
    pub fn mpi_freed(&mut self, time: i64, request: u64) -> bool {
        self.words(kind::MPI_FREED, 0, 0, time, [request, 0])
    }

    /// Creation of a communicator.
    pub fn new_communicator(&mut self, time: i64, made: &NewCommunicator) -> bool {
        let (flags, words) = made.words();
        let stored = self.words(kind::COMM_NEW, flags, made.function, time, words);
        self.count_if_not(stored, DroppedKind::Communicator)
    }

    /// Neighbours in the topology of the communicator that is recorded next as created, at most
    /// [`crate::layout::MAX_NEIGHBOURS`].
    pub fn neighbours(
        &mut self,
        time: i64,
        handle: u64,
        direction: NeighbourDirection,
        ranks: &[u8],
    ) -> bool {
        let flags = if direction == NeighbourDirection::Destinations { TO_NEIGHBOURS } else { 0 };
        let stored = self.named(kind::NEIGHBOURS, flags, time, Some(handle), ranks, 0);
        self.count_if_not(stored, DroppedKind::Communicator)
    }

    /// Name of a communicator.
    pub fn communicator_name(
        &mut self,
        time: i64,
        library: RecordedLibrary,
        handle: u64,
        name: &[u8],
    ) -> bool {
        let flags = if library == RecordedLibrary::Rccl { NAME_OF_RCCL } else { 0 };
        let stored = self.named(kind::COMM_NAME, flags, time, Some(handle), name, 0);
        self.count_if_not(stored, DroppedKind::Communicator)
    }

    /// End of a communicator.
    pub fn communicator_freed(&mut self, time: i64, library: RecordedLibrary, handle: u64) -> bool {
        let flags = if library == RecordedLibrary::Rccl { OF_RCCL } else { 0 };
        let stored = self.words(kind::COMM_FREE, flags, 0, time, [handle, 0]);
        self.count_if_not(stored, DroppedKind::Communicator)
    }

    /// Begin of an RCCL function. Returns `false` if it could not be recorded; then its exit must not be
    /// recorded either.
    #[inline]
    pub fn rccl_enter(&mut self, time: i64, call: &RcclCall) -> bool {
        let stored = match call.stream {
            None => {
                let (flags, words) = call.words();
                self.enter(kind::RCCL_ENTER, flags, call.function, time, words)
            }
            Some(stream) => {
                let (flags, words) = call.words_with(stream);
                self.enter(kind::RCCL_ENTER, flags, call.function, time, words)
            }
        };
        self.opened(stored, DroppedKind::RcclCall)
    }

    /// Return of the RCCL function that was recorded last as entered and not left.
    #[inline]
    pub fn rccl_exit(&mut self, time: i64) {
        self.end(kind::RCCL_EXIT, time);
    }

    /// Counts an event that was not recorded.
    #[cold]
    pub fn drop_one(&self, cause: DropCause, what: DroppedKind) {
        if let Some(header) = self.header() {
            header.count_drop(cause, what, 1);
        }
    }

    #[inline]
    fn named(&mut self, kind: u8, flags: u8, time: i64, id: Option<u64>, name: &[u8], extra: u64) -> bool {
        let (name, cut) = name
            .get(..MAX_NAME_BYTES)
            .map_or((name, 0), |start| (start, CUT * u8::from(start.len() < name.len())));
        let flags = flags | cut;
        let fixed = FIXED + if id.is_some() { 8 } else { 0 };
        let bytes = (fixed + name.len() as u64).next_multiple_of(16);
        let Some(at) = self.place(bytes, self.keep_free() + extra, time) else { return false };
        self.store(at, first_word(bytes, kind, flags, name.len() as u32));
        self.store(at + 1, time as u64);
        let mut next = at + 2;
        if let Some(id) = id {
            self.store(next, id);
            next += 1;
        }
        let mut chunks = name.chunks_exact(8);
        for chunk in &mut chunks {
            self.store(next, chunk.try_into().map_or(0, u64::from_le_bytes));
            next += 1;
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            self.store(next, tail(name, rest.len()));
        }
        self.publish(bytes);
        true
    }

    /// A begin without a name. It must leave space for its end.
    #[inline]
    fn enter<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        function: u32,
        time: i64,
        words: [u64; N],
    ) -> bool {
        let keep = self.keep_free() + END;
        self.fixed(kind, flags, function, time, words, keep)
    }

    #[inline]
    fn words<const N: usize>(&mut self, kind: u8, flags: u8, aux: u32, time: i64, words: [u64; N]) -> bool {
        self.fixed(kind, flags, aux, time, words, self.reserved)
    }

    #[inline]
    fn fixed<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        aux: u32,
        time: i64,
        words: [u64; N],
        keep: u64,
    ) -> bool {
        let bytes = FIXED + 8 * N as u64;
        let Some(at) = self.place(bytes, keep, time) else { return false };
        self.store(at, first_word(bytes, kind, flags, aux));
        self.store(at + 1, time as u64);
        for (i, value) in words.into_iter().enumerate() {
            self.store(at + 2 + i, value);
        }
        self.publish(bytes);
        true
    }

    #[inline]
    fn end(&mut self, kind: u8, time: i64) {
        // An end first frees what its begin reserved, so this cannot fail.
        self.reserved = self.reserved.saturating_sub(END);
        if let Some(at) = self.place(END, self.reserved, time) {
            self.store(at, first_word(END, kind, 0, 0));
            self.store(at + 1, time as u64);
            self.publish(END);
        }
    }

    #[inline]
    fn opened(&mut self, stored: bool, what: DroppedKind) -> bool {
        if stored {
            self.reserved += END;
        }
        self.count_if_not(stored, what)
    }

    #[inline]
    fn count_if_not(&self, stored: bool, what: DroppedKind) -> bool {
        if !stored {
            self.not_stored(what);
        }
        stored
    }

    #[cold]
    fn not_stored(&self, what: DroppedKind) {
        let Some(header) = self.header() else { return };
        if !header.closed() {
            let cause = if self.capacity == 0 { DropCause::NoMemory } else { DropCause::RingFull };
            header.count_drop(cause, what, 1);
        }
    }

    /// Begins leave this free: the ends of what is open, and [`FOR_STOPS`].
    #[inline]
    fn keep_free(&self) -> u64 {
        self.reserved + FOR_STOPS
    }

    /// Returns the word for a record of `bytes`, if that leaves `keep` bytes free.
    #[inline]
    fn place(&mut self, bytes: u64, keep: u64, time: i64) -> Option<usize> {
        if bytes <= self.room && bytes + keep <= self.room + self.ahead_bytes {
            return Some(self.next);
        }
        self.place_with_more(bytes, keep, time)
    }

    /// Like [`RingProducer::place`], with further segments.
    #[cold]
    #[inline(never)]
    fn place_with_more(&mut self, bytes: u64, keep: u64, time: i64) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        loop {
            // A record lies in one segment.
            let fits_here = bytes <= self.room;
            let left = if fits_here { self.room + self.ahead_bytes } else { self.ahead_bytes };
            if bytes + keep <= left {
                break;
            }
            let taken = self.take_segment(time)?;
            if !self.ahead.push(taken) {
                self.segments()?.set_ready(taken..taken + 1);
                return None;
            }
            self.ahead_bytes += self.segment - LINK;
        }
        if bytes > self.room {
            self.enter_next_segment();
        }
        Some(self.next)
    }

    /// Continues in the next segment. Returns those to the ring that the ends of what is open do not need any more.
    fn enter_next_segment(&mut self) {
        let Some(number) = self.ahead.pop() else { return };
        if self.room > 0 {
            self.store(self.next, first_word(self.room, kind::PADDING, 0, 0));
        }
        self.store(self.start, number as u64 + 1);
        let usable = self.segment - LINK;
        self.head += self.room + LINK;
        self.ahead_bytes -= usable;
        self.start = self.ring + number * (self.segment as usize / 8);
        (self.next, self.room) = (self.start + LINK as usize / 8, usable);
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

    #[inline(always)]
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.memory.get(at) {
            word.store(value, Relaxed);
        }
    }

    /// Publishes everything written so far.
    #[inline(always)]
    fn publish(&mut self, bytes: u64) {
        self.head += bytes;
        self.next += bytes as usize / 8;
        self.room -= bytes;
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
}

/// Returns the last `rest` bytes of a name, 1 to 7, as a word. Uses as few loads as possible: a loop over the
/// bytes costs as much as the rest of a record.
#[inline]
fn tail(name: &[u8], rest: usize) -> u64 {
    if let Some(last) = name.last_chunk::<8>() {
        return u64::from_le_bytes(*last) >> (64 - 8 * rest);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (rest - 4));
    }
    let byte = |at: usize| name.get(at).map_or(0, |byte| u64::from(*byte) << (8 * at));
    byte(0) | byte(1) | byte(2)
}
