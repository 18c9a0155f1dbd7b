//! Reads records. For any content of the ring, it neither panics nor allocates more than the names of a segment.

use crate::header::RingHeader;
use crate::layout::{MAX_NAME_BYTES, NAME_SLOTS, segment_bytes, word};
use crate::memory::RingMemory;
use crate::name_slots::CUT_BIT;
use crate::record::{
    CUT_MARK, KIND_BITS, MAX_KNOWN_BYTES, MpiCall, NameSlot, NeighbourDirection, NewCommunicator, OF_RCCL,
    PREPARED, RECEIVED, RcclCall, RecordedLibrary, RequestCompletion, RingEvent, RingRecord, WHOLE_TIME,
    kind,
};
use crate::record_reader::RecordReader;
use crate::segments::{BASE_TIME, LINK};
use crate::wakeup;
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

/// The records of a ring at some time, from [`RingConsumer::published`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublishedRecords {
    /// Bytes ever published.
    head: u64,
    /// Some have not been read.
    pub is_new: bool,
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
    /// Bytes of all segments, and of each: powers of two.
    capacity: u64,
    segment: u64,
    /// Bytes ever read.
    tail: u64,
    /// The segment that is being read.
    current: usize,
    /// Time of the last record.
    last_time: i64,
    slots: Box<[NamePlace; NAME_SLOTS]>,
    /// Names of the segment that is being read, one after the other: no more bytes than it has, and a mark for each cut one.
    names: Vec<u8>,
}

/// Place of a name in [`RingConsumer::names`].
#[derive(Clone, Copy, Debug, Default)]
struct NamePlace {
    start: u32,
    bytes: u16,
    /// Whether records may repeat it.
    is_known: bool,
}

impl RingConsumer {
    /// Reads mapped memory; `None` if its header is invalid.
    pub fn new(memory: RingMemory) -> Option<RingConsumer> {
        let (ring, capacity) = RingHeader::new(&memory)?.ring()?;
        let (memory, ring, segment) = (Arc::new(memory), ring / 8, segment_bytes(capacity) as u64);
        Some(RingConsumer {
            memory,
            ring,
            capacity: capacity as u64,
            segment,
            tail: LINK,
            current: 0,
            last_time: 0,
            slots: Box::new([NamePlace::default(); NAME_SLOTS]),
            names: Vec::new(),
        })
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

    /// Returns the bytes since the start of the segment that is being read.
    #[inline(always)]
    fn offset(&self) -> u64 {
        self.tail & (self.segment - 1)
    }

    fn segment_start(&self, number: usize) -> usize {
        self.ring + number * (self.segment as usize / 8)
    }

    /// Returns what has been published until now.
    pub fn published(&self) -> PublishedRecords {
        let head = self.head();
        PublishedRecords { head, is_new: head != self.tail }
    }

    /// Reads what has been published, oldest first, and stops after about `budget` bytes of records and their names.
    pub fn drain(
        &mut self,
        budget: u64,
        each: impl FnMut(RingRecord<'_>),
    ) -> Result<DrainProgress, BadRecord> {
        self.drain_until(self.published(), budget, each)
    }

    /// Like [`RingConsumer::drain`], but reads only what had been published at some time.
    pub fn drain_until(
        &mut self,
        PublishedRecords { head, .. }: PublishedRecords,
        budget: u64,
        mut each: impl FnMut(RingRecord<'_>),
    ) -> Result<DrainProgress, BadRecord> {
        if self.capacity == 0 {
            return Ok(DrainProgress { records: 0, is_empty: true, fullness: 0.0 });
        }
        let available = head.wrapping_sub(self.tail);
        if available > self.capacity {
            return Err(BadRecord { position: self.tail });
        }
        let memory = Arc::clone(&self.memory);
        let (mut records, mut read) = (0, 0);
        while self.tail < head && read < budget {
            let before = self.tail;
            if self.offset() == 0 {
                self.follow_link()?;
                read += self.tail - before;
            } else {
                let (some, bytes) = self.read_segment(&memory, head, budget - read, &mut each)?;
                (records, read) = (records + some, read + bytes);
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
        self.last_time = self.load(self.segment_start(self.current) + BASE_TIME) as i64;
        *self.slots = [NamePlace::default(); NAME_SLOTS];
        self.names.clear();
        Ok(())
    }

    /// Reads records of the current segment. Returns their number, and the bytes of them and their names.
    ///
    /// Its place is in local variables: loads from `self` in each record would wait for stores to other memory that have the
    /// same last 12 bits in their addresses, which made reading a third slower in some runs.
    #[inline(always)]
    fn read_segment(
        &mut self,
        memory: &RingMemory,
        head: u64,
        budget: u64,
        each: &mut impl FnMut(RingRecord<'_>),
    ) -> Result<(u64, u64), BadRecord> {
        let words = memory.get(self.segment_start(self.current)..).unwrap_or_default();
        let (segment, start) = (self.segment, self.tail - self.offset());
        let end = segment.min(head - start);
        let (mut at, mut last_time) = (self.offset(), self.last_time);
        let (mut records, mut read) = (0, 0);
        let mut result = Ok(());
        while at < end && read < budget {
            let bad = Err(BadRecord { position: start + at });
            let mut reader = RecordReader::new(words, at, end);
            let Some(first) = reader.byte() else {
                result = bad;
                break;
            };
            let kind = first & ((1 << KIND_BITS) - 1);
            if kind == kind::PADDING {
                read += segment - at;
                at = segment;
                if start + at > head {
                    result = bad;
                }
                break;
            }
            let (mut name_bytes, known_bytes) = (0, self.names.len());
            let mut read_one = || {
                let time = read_time(&mut reader, first, last_time)?;
                let slot = read_slot(&mut reader, kind)?;
                let number = slot.map_or(0, |slot| slot.number);
                let event = self.read_event(&mut reader, kind, number, &mut name_bytes)?;
                each(RingRecord { time, event, slot });
                Some(time)
            };
            let Some(time) = read_one() else {
                self.names.truncate(known_bytes);
                result = bad;
                break;
            };
            last_time = time;
            records += 1;
            // A name that is repeated takes a byte of the ring, and counts as any other.
            read += reader.position() - at + name_bytes as u64;
            at = reader.position();
        }
        (self.tail, self.last_time) = (start + at, last_time);
        result.map(|()| (records, read))
    }

    #[inline(always)]
    fn read_event(
        &mut self,
        reader: &mut RecordReader<'_>,
        kind: u8,
        slot: u8,
        name_bytes: &mut usize,
    ) -> Option<RingEvent<'_>> {
        let event = match kind {
            kind::POP => RingEvent::Pop,
            kind::MPI_EXIT => RingEvent::MpiExit,
            kind::RCCL_EXIT => RingEvent::RcclExit,
            kind::PUSH => RingEvent::Push(self.next_name(reader, slot)?),
            kind::KNOWN_PUSH => RingEvent::Push(self.known_name(slot)?),
            kind::RANGE_START => {
                RingEvent::RangeStart { id: reader.word()?, name: self.next_name(reader, slot)? }
            }
            kind::KNOWN_RANGE_START => {
                RingEvent::RangeStart { id: reader.word()?, name: self.known_name(slot)? }
            }
            kind::MARK => RingEvent::Mark(self.next_name(reader, slot)?),
            kind::KNOWN_MARK => RingEvent::Mark(self.known_name(slot)?),
            kind::COMM_NAME | kind::RCCL_COMM_NAME => {
                let library =
                    if kind == kind::COMM_NAME { RecordedLibrary::Mpi } else { RecordedLibrary::Rccl };
                let handle = reader.word()?;
                RingEvent::CommunicatorName { library, handle, name: self.next_name(reader, slot)? }
            }
            kind::SOURCES | kind::DESTINATIONS => {
                let direction = match kind {
                    kind::SOURCES => NeighbourDirection::Sources,
                    _ => NeighbourDirection::Destinations,
                };
                let handle = reader.word()?;
                let ranks = self.next_name(reader, slot)?;
                RingEvent::Neighbours { handle, direction, ranks: whole_ranks(ranks)? }
            }
            _ => {
                let (event, position) = read_call(*reader, kind)?;
                reader.set_position(position);
                event
            }
        };
        if let RingEvent::Push(name)
        | RingEvent::Mark(name)
        | RingEvent::RangeStart { name, .. }
        | RingEvent::CommunicatorName { name, .. } = event
        {
            *name_bytes = name.len();
        }
        Some(event)
    }

    /// Copies the text of a name, which the producer could change while it is inspected. From then on it is in a slot.
    /// Returns it with the position after it.
    fn new_name(&mut self, mut reader: RecordReader<'_>, slot: u8) -> Option<(&[u8], u64)> {
        let length = reader.bytes(2)? as u16;
        reader.align();
        let at = self.segment_start(self.current) + (reader.position() / 8) as usize;
        let (bytes, is_cut) = (usize::from(length & !CUT_BIT), length & CUT_BIT != 0);
        if bytes > MAX_NAME_BYTES || !reader.skip(bytes.next_multiple_of(8) as u64) {
            return None;
        }
        let start = self.names.len();
        for i in 0..bytes.div_ceil(8) {
            self.names.extend_from_slice(&self.load(at + i).to_le_bytes());
        }
        self.names.truncate(start + bytes);
        if is_cut {
            self.names.truncate(start + bytes.min(MAX_NAME_BYTES - CUT_MARK.len()));
            let whole = whole_characters(self.names.get(start..)?);
            self.names.truncate(start + whole);
            self.names.extend_from_slice(CUT_MARK.as_bytes());
        }
        let place = NamePlace {
            start: start as u32,
            bytes: (self.names.len() - start) as u16,
            is_known: bytes <= MAX_KNOWN_BYTES,
        };
        *self.slots.get_mut(usize::from(slot))? = place;
        Some((self.name_at(place)?, reader.position()))
    }

    #[inline(always)]
    fn next_name(&mut self, reader: &mut RecordReader<'_>, slot: u8) -> Option<&[u8]> {
        let (name, position) = self.new_name(*reader, slot)?;
        reader.set_position(position);
        Some(name)
    }

    #[inline(always)]
    fn known_name(&self, slot: u8) -> Option<&[u8]> {
        let place = *self.slots.get(usize::from(slot))?;
        if place.is_known { self.name_at(place) } else { None }
    }

    #[inline(always)]
    fn name_at(&self, place: NamePlace) -> Option<&[u8]> {
        self.names.get(place.start as usize..)?.get(..usize::from(place.bytes))
    }

    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        self.memory.get(at).map_or(0, |word| word.load(Relaxed))
    }
}

/// Reads the time of a record from its first byte and the time of the one before.
#[inline(always)]
fn read_time(reader: &mut RecordReader<'_>, first: u8, last_time: i64) -> Option<i64> {
    let bytes = u32::from(first >> KIND_BITS);
    if bytes == WHOLE_TIME {
        return reader.word().map(|time| time as i64);
    }
    Some(last_time.wrapping_add(reader.bytes(bytes)? as i64))
}

/// Reads the slot of a record that has one; the outer `None` is the end of the record.
#[inline(always)]
fn read_slot(reader: &mut RecordReader<'_>, kind: u8) -> Option<Option<NameSlot>> {
    let is_known = match kind {
        kind::KNOWN_PUSH | kind::KNOWN_RANGE_START | kind::KNOWN_MARK => true,
        kind::PUSH
        | kind::RANGE_START
        | kind::MARK
        | kind::COMM_NAME
        | kind::RCCL_COMM_NAME
        | kind::SOURCES
        | kind::DESTINATIONS => false,
        _ => return Some(None),
    };
    Some(Some(NameSlot { number: reader.byte()?, is_known }))
}

/// Reads the rest of a record of MPI or RCCL, or of a stopped range, and the position after it.
fn read_call(mut reader: RecordReader<'_>, kind: u8) -> Option<(RingEvent<'static>, u64)> {
    let (flags, function) = (reader.byte()?, reader.bytes(2)? as u32);
    let event = match kind {
        kind::RANGE_STOP => RingEvent::RangeStop(reader.word()?),
        kind::MPI_ENTER => RingEvent::MpiEnter(MpiCall::from_words(function, flags, reader.words()?)),
        kind::MPI_EXCHANGE => RingEvent::MpiEnter(MpiCall::from_words_with(function, flags, reader.words()?)),
        kind::MPI_REQUEST if flags == PREPARED => RingEvent::MpiPrepared(reader.word()?),
        kind::MPI_REQUEST => RingEvent::MpiRequest(reader.word()?),
        kind::MPI_DONE => RingEvent::MpiDone(RequestCompletion::from_words(flags, reader.words()?)),
        kind::COMM_NEW => {
            RingEvent::NewCommunicator(NewCommunicator::from_words(function, flags, reader.words()?)?)
        }
        kind::COMM_FREE => {
            let library = if flags & OF_RCCL == 0 { RecordedLibrary::Mpi } else { RecordedLibrary::Rccl };
            RingEvent::CommunicatorFreed { library, handle: reader.word()? }
        }
        kind::RCCL_ENTER => RingEvent::RcclEnter(RcclCall::from_words(function, flags, reader.words()?)),
        kind::RCCL_ENTER_ON_STREAM => {
            RingEvent::RcclEnter(RcclCall::from_words_with(function, flags, reader.words()?))
        }
        kind::MPI_FREED => RingEvent::MpiFreed(reader.word()?),
        kind::MPI_MESSAGE if flags == RECEIVED => RingEvent::MpiMessageReceived(reader.word()?),
        kind::MPI_MESSAGE => RingEvent::MpiMessageFound(reader.word()?),
        _ => return None,
    };
    Some((event, reader.position()))
}

/// Returns the ranks of neighbours without a rank that is incomplete; `None` if some were cut.
fn whole_ranks(ranks: &[u8]) -> Option<&[u8]> {
    ranks.len().is_multiple_of(4).then_some(ranks)
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
