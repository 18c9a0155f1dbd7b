//! Writes records. Never waits, allocates or panics. Its system calls wake a sleeping consumer, once per sleep, and make
//! memory for further segments.

use crate::header::RingHeader;
use crate::layout::{DropCause, DroppedKind};
use crate::memory::RingMemory;
use crate::name_slots::{self, ShortName, StoredName, words};
use crate::record::{
    KIND_BITS, MAX_END_BYTES, MpiCall, NeighbourDirection, NewCommunicator, OF_RCCL, PREPARED, RECEIVED,
    RcclCall, RecordedLibrary, RequestCompletion, WHOLE_TIME, kind,
};
use crate::record_space::{GrowRing, RecordSpace};

/// Bytes of flags and the function's number.
const CALL_BYTES: u64 = 3;
/// Bytes of a slot and the length of a name.
const NAME_BYTES: u64 = 3;
/// Maximum number of zeros before a text.
const ALIGNMENT: u64 = 7;

/// Writes the records of one thread.
#[derive(Debug)]
pub struct RingProducer {
    space: RecordSpace,
}

impl RingProducer {
    /// Writes to memory that has a header, see [`RingHeader::write`]. The ring grows by `grow`.
    pub fn new(memory: RingMemory, grow: GrowRing) -> Option<RingProducer> {
        Some(RingProducer { space: RecordSpace::new(memory, grow)? })
    }

    /// Returns the header, for counters.
    pub fn header(&self) -> Option<RingHeader<'_>> {
        RingHeader::new(self.space.memory())
    }

    /// Returns the whole memory.
    pub fn memory(&self) -> &RingMemory {
        self.space.memory()
    }

    /// `roctxRangePush`. Returns `false` if it could not be recorded; then its pop must not be recorded
    /// either.
    #[inline]
    pub fn push(&mut self, time: i64, name: &[u8]) -> bool {
        let stored = self.named(kind::PUSH, kind::KNOWN_PUSH, time, None, name, MAX_END_BYTES);
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
        let stored = self.named(kind::RANGE_START, kind::KNOWN_RANGE_START, time, Some(id), name, 0);
        self.count_if_not(stored, DroppedKind::Range)
    }

    /// `roctxRangeStop`. It may use the space that is reserved from begins. A drop is not counted: its range
    /// was counted at its start, or is recorded and stays open.
    #[inline]
    pub fn range_stop(&mut self, time: i64, id: u64) -> bool {
        self.words(kind::RANGE_STOP, 0, 0, time, [id])
    }

    /// `roctxMark`.
    #[inline]
    pub fn mark(&mut self, time: i64, name: &[u8]) -> bool {
        let stored = self.named(kind::MARK, kind::KNOWN_MARK, time, None, name, 0);
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
                self.enter(kind::MPI_EXCHANGE, flags, call.function, time, words)
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
        self.words(kind::MPI_REQUEST, 0, 0, time, [request])
    }

    /// Creation of a persistent request by the MPI function that was recorded last as entered.
    #[inline]
    pub fn mpi_prepared(&mut self, time: i64, request: u64) -> bool {
        self.words(kind::MPI_REQUEST, PREPARED, 0, time, [request])
    }

    /// Message that a matched probe has found.
    #[inline]
    pub fn mpi_message_found(&mut self, time: i64, message: u64) -> bool {
        self.words(kind::MPI_MESSAGE, 0, 0, time, [message])
    }

    /// Message of a matched probe that the MPI function recorded last as entered receives.
    #[inline]
    pub fn mpi_message_received(&mut self, time: i64, message: u64) -> bool {
        self.words(kind::MPI_MESSAGE, RECEIVED, 0, time, [message])
    }

    /// Completion of an operation.
    #[inline]
    pub fn mpi_done(&mut self, time: i64, completion: &RequestCompletion) -> bool {
        let (flags, [request, bytes, message]) = completion.words();
        let stored = self.words(kind::MPI_DONE, flags, 0, time, [request, bytes, message]);
        self.count_if_not(stored, DroppedKind::MpiRequest)
    }

    /// A request that was freed before its completion.
    pub fn mpi_freed(&mut self, time: i64, request: u64) -> bool {
        self.words(kind::MPI_FREED, 0, 0, time, [request])
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
        let kind = match direction {
            NeighbourDirection::Sources => kind::SOURCES,
            NeighbourDirection::Destinations => kind::DESTINATIONS,
        };
        let stored = self.new_name(kind, time, Some(handle), &StoredName::new(ranks), 0);
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
        let kind = match library {
            RecordedLibrary::Mpi => kind::COMM_NAME,
            RecordedLibrary::Rccl => kind::RCCL_COMM_NAME,
        };
        let stored = self.new_name(kind, time, Some(handle), &StoredName::new(name), 0);
        self.count_if_not(stored, DroppedKind::Communicator)
    }

    /// End of a communicator.
    pub fn communicator_freed(&mut self, time: i64, library: RecordedLibrary, handle: u64) -> bool {
        let flags = if library == RecordedLibrary::Rccl { OF_RCCL } else { 0 };
        let stored = self.words(kind::COMM_FREE, flags, 0, time, [handle]);
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
                self.enter(kind::RCCL_ENTER_ON_STREAM, flags, call.function, time, words)
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

    /// A record with a name, and for its end `extra` bytes more than other records leave free.
    #[inline(always)]
    fn named(&mut self, new: u8, known: u8, time: i64, id: Option<u64>, name: &[u8], extra: u64) -> bool {
        let start = TimedStart::new(known, time, self.space.last_time());
        let bytes = start.bytes() + 1 + if id.is_some() { 8 } else { 0 };
        if let Some(short) = ShortName::new(name)
            && !start.is_whole_time
            && self.space.fits(bytes, self.space.keep_free() + extra)
            && name_slots::has_short(short, &self.space)
        {
            self.known_name(start, time, short.key.slot(), id);
            return true;
        }
        self.long_or_new_name(new, known, time, id, name, extra)
    }

    #[inline(never)]
    fn long_or_new_name(
        &mut self,
        new: u8,
        known: u8,
        time: i64,
        id: Option<u64>,
        name: &[u8],
        extra: u64,
    ) -> bool {
        let name = StoredName::new(name);
        let start = TimedStart::new(known, time, self.space.last_time());
        let (bytes, keep) =
            (start.bytes() + 1 + if id.is_some() { 8 } else { 0 }, self.space.keep_free() + extra);
        // Further room may be in another segment, which has no names.
        if !start.is_whole_time
            && name_slots::has(&name, &self.space)
            && (self.space.fits(bytes, keep) || self.space.make_room(bytes, keep, time))
            && name_slots::has(&name, &self.space)
        {
            self.known_name(start, time, name.key.slot(), id);
            return true;
        }
        self.new_name(new, time, id, &name, extra)
    }

    /// A record with a name that the segment has.
    #[inline(always)]
    fn known_name(&mut self, start: TimedStart, time: i64, slot: u8, id: Option<u64>) {
        self.space.append(start.value | u64::from(slot) << (8 * start.value_bytes), start.value_bytes + 1);
        self.space.set_last_time(time);
        if let Some(id) = id {
            self.space.append(id, 8);
        }
        self.space.publish();
    }

    /// A record with the text of its name.
    fn new_name(&mut self, kind: u8, time: i64, id: Option<u64>, name: &StoredName<'_>, extra: u64) -> bool {
        let start = TimedStart::new(kind, time, self.space.last_time());
        let before_text = start.bytes() + NAME_BYTES + if id.is_some() { 8 } else { 0 } + ALIGNMENT;
        let bytes = before_text + (name.text.len() as u64).next_multiple_of(8);
        let keep = self.space.keep_free() + extra;
        if !self.space.fits(bytes, keep) && !self.space.make_room(bytes, keep, time) {
            return false;
        }
        self.start_record(start, time);
        self.space.append(u64::from(name.key.slot()), 1);
        if let Some(id) = id {
            self.space.append(id, 8);
        }
        self.space.append(u64::from(name.key.length), 2);
        self.space.align();
        name_slots::note(name, self.space.next_word(), &self.space);
        words(name.text).for_each(|word| self.space.append(word, 8));
        self.space.publish();
        true
    }

    /// A begin without a name. It must leave space for its end.
    #[inline(always)]
    fn enter<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        function: u32,
        time: i64,
        words: [u64; N],
    ) -> bool {
        let keep = self.space.keep_free() + MAX_END_BYTES;
        self.call(kind, flags, function, time, words, keep)
    }

    #[inline]
    fn words<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        function: u32,
        time: i64,
        words: [u64; N],
    ) -> bool {
        self.call(kind, flags, function, time, words, self.space.reserved())
    }

    #[inline(always)]
    fn call<const N: usize>(
        &mut self,
        kind: u8,
        flags: u8,
        function: u32,
        time: i64,
        words: [u64; N],
        keep: u64,
    ) -> bool {
        let start = TimedStart::new(kind, time, self.space.last_time());
        let bytes = start.bytes() + CALL_BYTES + 8 * N as u64;
        if !self.space.fits(bytes, keep) && !self.space.make_room(bytes, keep, time) {
            return false;
        }
        self.start_record(start, time);
        let function = u16::try_from(function).unwrap_or(u16::MAX);
        self.space.append(u64::from(flags) | u64::from(function) << 8, CALL_BYTES as u32);
        self.space.append_words(words);
        self.space.publish();
        true
    }

    #[inline(always)]
    fn end(&mut self, kind: u8, time: i64) {
        // An end first frees what its begin reserved, so this cannot fail.
        self.space.release_end();
        let start = TimedStart::new(kind, time, self.space.last_time());
        let (bytes, keep) = (start.bytes(), self.space.reserved());
        if self.space.fits(bytes, keep) || self.space.make_room(bytes, keep, time) {
            self.start_record(start, time);
            self.space.publish();
        }
    }

    #[inline(always)]
    fn start_record(&mut self, start: TimedStart, time: i64) {
        self.space.append(start.value, start.value_bytes);
        if start.is_whole_time {
            self.whole_time(time);
        }
        self.space.set_last_time(time);
    }

    #[cold]
    fn whole_time(&mut self, time: i64) {
        self.space.append(time as u64, 8);
    }

    #[inline]
    fn opened(&mut self, stored: bool, what: DroppedKind) -> bool {
        if stored {
            self.space.reserve_end();
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
            let cause = if self.space.has_segments() { DropCause::RingFull } else { DropCause::NoMemory };
            header.count_drop(cause, what, 1);
        }
    }
}

/// Kind and time of a record.
#[derive(Clone, Copy)]
struct TimedStart {
    /// The first byte, and the time since the last record.
    value: u64,
    value_bytes: u32,
    /// The time itself follows.
    is_whole_time: bool,
}

impl TimedStart {
    /// The time of a dense record takes 2 bytes, even where fewer would do. The processor predicts this branch, so
    /// that the length of the record does not wait for the clock that was read.
    #[inline(always)]
    fn new(kind: u8, time: i64, last: i64) -> TimedStart {
        let passed = time.wrapping_sub(last) as u64;
        if passed <= u64::from(u16::MAX) {
            Self::with_bytes(kind, passed, 2)
        } else {
            Self::sparse(kind, passed)
        }
    }

    /// Not inlined: the compiler could then compute both lengths and choose one without a branch.
    #[cold]
    #[inline(never)]
    fn sparse(kind: u8, passed: u64) -> TimedStart {
        let bytes = (u64::BITS - passed.leading_zeros()).div_ceil(8);
        if bytes < WHOLE_TIME {
            return Self::with_bytes(kind, passed, bytes);
        }
        let value = u64::from(kind) | u64::from(WHOLE_TIME) << KIND_BITS;
        TimedStart { value, value_bytes: 1, is_whole_time: true }
    }

    #[inline(always)]
    fn with_bytes(kind: u8, passed: u64, bytes: u32) -> TimedStart {
        let value = u64::from(kind) | u64::from(bytes) << KIND_BITS | passed << 8;
        TimedStart { value, value_bytes: bytes + 1, is_whole_time: false }
    }

    #[inline(always)]
    fn bytes(self) -> u64 {
        u64::from(self.value_bytes) + if self.is_whole_time { 8 } else { 0 }
    }
}
