//! Writes records. Never waits, allocates or panics. Its only system call wakes a sleeping consumer, once per
//! sleep.

use crate::header::RingHeader;
use crate::layout::{DropCause, DroppedKind, MAX_NAME_BYTES, word};
use crate::memory::RingMemory;
use crate::record::{
    CUT, END, FIXED, MpiCall, NAME_OF_RCCL, NeighbourDirection, NewCommunicator, OF_RCCL, PREPARED, RECEIVED,
    RcclCall, RecordedLibrary, RequestCompletion, TO_NEIGHBOURS, first_word, kind,
};
use crate::wakeup;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Writes the records of one thread.
#[derive(Debug)]
pub struct RingProducer {
    memory: RingMemory,
    /// First word of the ring.
    ring: usize,
    /// Bytes of the ring.
    capacity: u64,
    head: u64,
    /// The tail at its last load: loading it costs a cache miss.
    tail: u64,
    /// Bytes reserved for the ends of what is open in this thread.
    reserved: u64,
    /// The head from which on the consumer may have to be woken.
    look: u64,
}

impl RingProducer {
    /// Writes to memory that has a header, see [`RingHeader::write`].
    pub fn new(memory: RingMemory) -> Option<RingProducer> {
        let (ring, capacity) = RingHeader::new(&memory)?.ring()?;
        let capacity = capacity as u64;
        let look = capacity / wakeup::PARTS_PER_RING;
        Some(RingProducer { memory, ring: ring / 8, capacity, head: 0, tail: 0, reserved: 0, look })
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
        let Some(at) = self.place(bytes, self.keep_free() + extra) else { return false };
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
        let Some(at) = self.place(bytes, keep) else { return false };
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
        if let Some(at) = self.place(END, self.reserved) {
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

    /// Begins leave this free: the ends of what is open, and a sixteenth of the ring for the stops of ranges
    /// that other threads may have started.
    #[inline]
    fn keep_free(&self) -> u64 {
        self.reserved + self.capacity / 16
    }

    /// Returns the word for a record of `bytes`, if that leaves `keep` bytes free.
    #[inline]
    fn place(&mut self, bytes: u64, keep: u64) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        let offset = self.head & (self.capacity - 1);
        let to_end = self.capacity - offset;
        let padding = if bytes > to_end { to_end } else { 0 };
        let needed = bytes + padding + keep;
        if self.capacity - (self.head - self.tail) < needed {
            // The consumer writes the tail. An impossible value counts as a full ring.
            let tail = self.memory.get(word::TAIL)?.load(Acquire);
            if tail < self.tail || tail > self.head {
                return None;
            }
            self.tail = tail;
            if self.capacity - (self.head - self.tail) < needed {
                return None;
            }
        }
        if padding > 0 {
            self.store(self.ring + offset as usize / 8, first_word(padding, kind::PADDING, 0, 0));
            self.head += padding;
            return Some(self.ring);
        }
        Some(self.ring + offset as usize / 8)
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
        self.look = self.head + self.capacity / wakeup::PARTS_PER_RING;
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
