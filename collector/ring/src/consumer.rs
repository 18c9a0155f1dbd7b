//! Reads records. For any content of the ring, it neither panics nor allocates more than the longest name.

use crate::header::RingHeader;
use crate::layout::{MAX_NAME_BYTES, segment_bytes, word};
use crate::memory::RingMemory;
use crate::record::{
    COMM_NEW, CUT, CUT_MARK, END, FIXED, HANDLE, LONG_ENTER, MAX_RECORD_BYTES, MPI_ENTER, MpiCall,
    NAME_OF_RCCL, NeighbourDirection, NewCommunicator, OF_RCCL, PREPARED, RECEIVED, RcclCall,
    RecordedLibrary, RequestCompletion, RingEvent, RingRecord, TO_NEIGHBOURS, kind,
};
use crate::segments::LINK;
use crate::wakeup;
use std::array;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The ring contains data that no producer of this version writes. The start of the next record is then
/// unknown, so the rest of the ring is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a ring contains an invalid record at byte {position}")]
pub struct BadRecord {
    /// Bytes since the ring was created.
    pub position: u64,
}

/// Progress of one call of [`RingConsumer::drain`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DrainProgress {
    /// Number of records read.
    pub records: u64,
    /// The ring was empty at the end.
    pub is_empty: bool,
    /// Fill level of the ring at the start, from 0 to 1.
    pub fullness: f32,
}

/// Reads the records of one thread.
#[derive(Debug)]
pub struct RingConsumer {
    memory: Arc<RingMemory>,
    /// First word of the segments.
    ring: usize,
    /// Bytes of all segments, and of each.
    capacity: u64,
    segment: u64,
    /// Bytes ever read.
    tail: u64,
    /// The segment that is being read.
    current: usize,
    name: Vec<u8>,
}

impl RingConsumer {
    /// Reads mapped memory; `None` if its header is invalid.
    pub fn new(memory: RingMemory) -> Option<RingConsumer> {
        let (ring, capacity) = RingHeader::new(&memory)?.ring()?;
        let name = Vec::with_capacity(MAX_NAME_BYTES + 8);
        let (memory, ring, segment) = (Arc::new(memory), ring / 8, segment_bytes(capacity) as u64);
        Some(RingConsumer { memory, ring, capacity: capacity as u64, segment, tail: LINK, current: 0, name })
    }

    /// The header.
    pub fn header(&self) -> Option<RingHeader<'_>> {
        RingHeader::new(&self.memory)
    }

    /// Whether there is a ring after the header. Without one, drops are only counted.
    pub fn has_ring(&self) -> bool {
        self.capacity > 0
    }

    /// Returns the handle by which a thread waits for the producer's call.
    pub fn wakeup(&self) -> wakeup::RingWakeup {
        wakeup::RingWakeup::new(Arc::clone(&self.memory))
    }

    /// Requests a call of the producer. Returns whether the consumer may sleep: not if so much was published
    /// before that there will be no call for it.
    pub fn fall_asleep(&self) -> bool {
        wakeup::set_asleep(&self.memory);
        self.head().wrapping_sub(self.tail) <= wakeup::part_bytes(self.capacity)
    }

    /// Ends the request for a call. Returns whether the producer has called.
    pub fn wake_up(&self) -> bool {
        wakeup::set_awake(&self.memory)
    }

    /// Gives the memory of free segments back to the system. Returns its bytes. Used for idle threads: a busy one would
    /// have to make memory again.
    pub fn give_back_free_memory(&self) -> u64 {
        let Some(states) = self.header().and_then(RingHeader::segments) else { return 0 };
        let segments = (self.capacity / self.segment) as usize;
        let mut given_back = 0;
        for _ in 0..segments {
            let Some(taken) = states.take_last_ready(segments) else { break };
            let words = self.segment_start(taken.start)..self.segment_start(taken.end);
            if !self.memory.discard(words) {
                states.set_ready(taken);
                break;
            }
            given_back += taken.len() as u64 * self.segment;
            states.set_absent(taken);
        }
        given_back
    }

    fn head(&self) -> u64 {
        // Nothing is published before the first record.
        self.memory.get(word::HEAD).map_or(LINK, |head| head.load(Acquire).max(LINK))
    }

    fn segment_start(&self, number: usize) -> usize {
        self.ring + number * (self.segment as usize / 8)
    }

    /// Reads what has been published, oldest first, and stops after about `budget` bytes.
    pub fn drain(
        &mut self,
        budget: u64,
        mut each: impl FnMut(RingRecord<'_>),
    ) -> Result<DrainProgress, BadRecord> {
        if self.capacity == 0 {
            return Ok(DrainProgress { records: 0, is_empty: true, fullness: 0.0 });
        }
        let head = self.head();
        let available = head.wrapping_sub(self.tail);
        if available > self.capacity || !head.is_multiple_of(16) {
            return Err(BadRecord { position: self.tail });
        }
        let stop = head.min(self.tail.saturating_add(budget));
        let mut records = 0;
        while self.tail < stop {
            if self.tail.is_multiple_of(self.segment) {
                self.follow_link()?;
            } else {
                records += u64::from(self.read_record(head, &mut each)?);
            }
        }
        let fullness = available as f32 / wakeup::usual_bytes(self.capacity) as f32;
        Ok(DrainProgress { records, is_empty: self.tail == head, fullness })
    }

    /// Continues in the next segment, and returns the one that was read.
    fn follow_link(&mut self) -> Result<(), BadRecord> {
        let link = self.load(self.segment_start(self.current)).checked_sub(1);
        let next = link.filter(|next| *next < self.capacity / self.segment);
        let Some(next) = next else { return Err(BadRecord { position: self.tail }) };
        if let Some(states) = self.header().and_then(RingHeader::segments) {
            states.set_ready(self.current..self.current + 1);
        }
        self.current = next as usize;
        self.tail += LINK;
        Ok(())
    }

    /// Reads one record. Returns `false` for padding.
    fn read_record(&mut self, head: u64, each: &mut impl FnMut(RingRecord<'_>)) -> Result<bool, BadRecord> {
        let bad = BadRecord { position: self.tail };
        let offset = self.tail % self.segment;
        let at = self.segment_start(self.current) + offset as usize / 8;
        let first = self.load(at);
        let bytes = first & 0xffff;
        let limit = (head - self.tail).min(self.segment - offset);
        // Padding may be longer than any record.
        let is_padding = (first >> 16) as u8 == kind::PADDING;
        if bytes < FIXED
            || !bytes.is_multiple_of(16)
            || bytes > limit
            || bytes > MAX_RECORD_BYTES && !is_padding
        {
            return Err(bad);
        }
        let (flags, aux) = ((first >> 24) as u8, (first >> 32) as u32);
        let time = self.load(at + 1) as i64;
        let event = match (first >> 16) as u8 {
            kind::PADDING if bytes == self.segment - offset => {
                self.tail += bytes;
                return Ok(false);
            }
            kind::PUSH => RingEvent::Push(self.read_name(at + 2, aux, flags, bytes - 16).ok_or(bad)?),
            kind::POP if bytes == END => RingEvent::Pop,
            kind::RANGE_START if bytes >= 32 => {
                let id = self.load(at + 2);
                RingEvent::RangeStart { id, name: self.read_name(at + 3, aux, flags, bytes - 24).ok_or(bad)? }
            }
            kind::RANGE_STOP if bytes == 32 => RingEvent::RangeStop(self.load(at + 2)),
            kind::MARK => RingEvent::Mark(self.read_name(at + 2, aux, flags, bytes - 16).ok_or(bad)?),
            kind::MPI_ENTER if bytes == MPI_ENTER => {
                RingEvent::MpiEnter(MpiCall::from_words(aux, flags, self.load_words(at + 2)))
            }
            kind::MPI_ENTER if bytes == LONG_ENTER => {
                RingEvent::MpiEnter(MpiCall::from_words_with(aux, flags, self.load_words(at + 2)))
            }
            kind::MPI_EXIT if bytes == END => RingEvent::MpiExit,
            kind::MPI_REQUEST if bytes == HANDLE && flags == PREPARED => {
                RingEvent::MpiPrepared(self.load(at + 2))
            }
            kind::MPI_REQUEST if bytes == HANDLE => RingEvent::MpiRequest(self.load(at + 2)),
            kind::MPI_DONE if bytes == MPI_ENTER => {
                RingEvent::MpiDone(RequestCompletion::from_words(flags, self.load_words(at + 2)))
            }
            kind::COMM_NEW if bytes == COMM_NEW => {
                let made = NewCommunicator::from_words(aux, flags, self.load_words(at + 2));
                RingEvent::NewCommunicator(made.ok_or(bad)?)
            }
            kind::COMM_NAME if bytes >= HANDLE => {
                let (library, handle) = (library(flags & NAME_OF_RCCL), self.load(at + 2));
                let name = self.read_name(at + 3, aux, flags, bytes - 24).ok_or(bad)?;
                RingEvent::CommunicatorName { library, handle, name }
            }
            kind::NEIGHBOURS if bytes >= HANDLE && aux.is_multiple_of(4) => {
                let direction = match flags & TO_NEIGHBOURS {
                    0 => NeighbourDirection::Sources,
                    _ => NeighbourDirection::Destinations,
                };
                let handle = self.load(at + 2);
                let ranks = self.read_name(at + 3, aux, flags & !CUT, bytes - 24).ok_or(bad)?;
                RingEvent::Neighbours { handle, direction, ranks }
            }
            kind::COMM_FREE if bytes == HANDLE => {
                let library = library(flags & OF_RCCL);
                RingEvent::CommunicatorFreed { library, handle: self.load(at + 2) }
            }
            kind::RCCL_ENTER if bytes == MPI_ENTER => {
                RingEvent::RcclEnter(RcclCall::from_words(aux, flags, self.load_words(at + 2)))
            }
            kind::RCCL_ENTER if bytes == LONG_ENTER => {
                RingEvent::RcclEnter(RcclCall::from_words_with(aux, flags, self.load_words(at + 2)))
            }
            kind::MPI_FREED if bytes == HANDLE => RingEvent::MpiFreed(self.load(at + 2)),
            kind::MPI_MESSAGE if bytes == HANDLE && flags == RECEIVED => {
                RingEvent::MpiMessageReceived(self.load(at + 2))
            }
            kind::MPI_MESSAGE if bytes == HANDLE => RingEvent::MpiMessageFound(self.load(at + 2)),
            kind::RCCL_EXIT if bytes == END => RingEvent::RcclExit,
            _ => return Err(bad),
        };
        each(RingRecord { time, event });
        self.tail += bytes;
        Ok(true)
    }

    /// Copies a name, which the producer could change while it is inspected.
    fn read_name(&mut self, at: usize, length: u32, flags: u8, room: u64) -> Option<&[u8]> {
        let length = length as usize;
        if length as u64 > room || length > MAX_NAME_BYTES {
            return None;
        }
        self.name.clear();
        for i in 0..length.div_ceil(8) {
            let word = self.load(at + i);
            self.name.extend_from_slice(&word.to_le_bytes());
        }
        if flags & CUT != 0 {
            self.name.truncate(length.min(MAX_NAME_BYTES - CUT_MARK.len()));
            let whole = whole_characters(&self.name);
            self.name.truncate(whole);
            self.name.extend_from_slice(CUT_MARK.as_bytes());
            return Some(&self.name);
        }
        self.name.get(..length)
    }

    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        self.memory.get(at).map_or(0, |word| word.load(Relaxed))
    }

    #[inline(always)]
    fn load_words<const N: usize>(&self, at: usize) -> [u64; N] {
        array::from_fn(|i| self.load(at + i))
    }
}

fn library(flag: u8) -> RecordedLibrary {
    if flag == 0 { RecordedLibrary::Mpi } else { RecordedLibrary::Rccl }
}

/// Returns the bytes of a text without an incomplete last character.
fn whole_characters(text: &[u8]) -> usize {
    let begun = text.iter().rev().take(4).position(|byte| *byte & 0xc0 != 0x80).unwrap_or(0);
    let start = text.len().saturating_sub(begun + 1);
    match text.get(start) {
        Some(first) if first.leading_ones() as usize > begun + 1 => start,
        _ => text.len(),
    }
}
