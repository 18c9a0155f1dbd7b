//! Tests of rings that grow: they take memory as they may, use it again, and lose nothing meanwhile.
#![allow(clippy::unwrap_used)] // clippy takes only functions marked as tests for tests

use rpd_ring::header::{RingHeader, ThreadFacts};
use rpd_ring::layout::{DropCause, DroppedKind, HEADER_BYTES, MAX_DEPTH, MIN_SEGMENT_BYTES};
use rpd_ring::memory::RingMemory;
use rpd_ring::record::{RecordedLibrary, RingEvent, RingRecord};
use rpd_ring::{GrowRing, RingConsumer, RingProducer};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a freed communicator at the time of the record before it.
const RECORD_BYTES: usize = 14;

/// Reads all records. Returns their number, and that of pops.
fn counted(consumer: &mut RingConsumer) -> (usize, usize) {
    let (mut records, mut pops) = (0, 0);
    let mut count = |record: RingRecord<'_>| {
        records += 1;
        pops += usize::from(record.event == RingEvent::Pop);
    };
    while !consumer.drain(u64::MAX, &mut count).unwrap().is_empty {}
    (records, pops)
}

/// A ring of this size of which only the first segment has memory.
fn growing_ring(bytes: usize, grow: GrowRing) -> (RingProducer, RingConsumer) {
    let (left, right) = RingMemory::heap(HEADER_BYTES + bytes);
    RingHeader::new(&left).unwrap().write(&ThreadFacts::default(), &[], bytes, MIN_SEGMENT_BYTES);
    (RingProducer::new(left, grow).unwrap(), RingConsumer::new(right).unwrap())
}

#[test]
fn a_ring_grows_as_far_as_it_may_and_uses_what_was_read_again() {
    static GROWN: AtomicUsize = AtomicUsize::new(0);
    const MOST: usize = 9 * MIN_SEGMENT_BYTES;
    let grow: GrowRing = |_, words, returned| {
        let grown = GROWN.load(Relaxed) + 8 * words.len();
        let may = grown <= MOST + returned as usize;
        GROWN.store(if may { grown } else { GROWN.load(Relaxed) }, Relaxed);
        may
    };
    let (mut producer, mut consumer) = growing_ring(1 << 20, grow);
    let backed = |consumer: &RingConsumer| consumer.header().unwrap().backed_bytes();
    assert_eq!(backed(&consumer), MIN_SEGMENT_BYTES);
    let write =
        |producer: &mut RingProducer, time: i64| producer.communicator_freed(time, RecordedLibrary::Mpi, 1);
    let fill = |producer: &mut RingProducer, time: i64| (0..).take_while(|_| write(producer, time)).count();
    let whole = fill(&mut producer, 0);
    assert_eq!(backed(&consumer), MIN_SEGMENT_BYTES + MOST);
    assert!((whole * RECORD_BYTES).abs_diff(MIN_SEGMENT_BYTES + MOST) < MIN_SEGMENT_BYTES / 2, "{whole}");
    // The consumer frees whole segments; the ring does not grow.
    assert_eq!(counted(&mut consumer).0, whole);
    let again = fill(&mut producer, 1);
    assert!(again + 2 > whole - MIN_SEGMENT_BYTES / RECORD_BYTES && again <= whole, "{again} after {whole}");
    assert_eq!(backed(&consumer), MIN_SEGMENT_BYTES + MOST);
    assert_eq!(counted(&mut consumer).0, again);
    // An idle thread keeps what it writes to, and may take as much again.
    let given_back = consumer.give_back_free_memory();
    assert_eq!(consumer.give_back_free_memory(), 0);
    assert!(backed(&consumer) <= 2 * MIN_SEGMENT_BYTES);
    assert_eq!(given_back as usize + backed(&consumer), MIN_SEGMENT_BYTES + MOST);
    assert!(fill(&mut producer, 1_000_000) < 3 * MIN_SEGMENT_BYTES / RECORD_BYTES, "the budget is used up");
    consumer.header().unwrap().set_returned(given_back);
    // Growing is not attempted after every event.
    assert!(!write(&mut producer, 1_000_001));
    let more = fill(&mut producer, 100_000_000);
    assert!(more > 5 * MIN_SEGMENT_BYTES / RECORD_BYTES, "{more}");
    let header = consumer.header().unwrap();
    assert_eq!(header.drops(DropCause::RingFull, DroppedKind::Communicator), 5);
}

#[test]
fn ends_of_more_than_a_segment_fit_into_a_ring_that_is_full() {
    for (bytes, at_least) in [(256 << 10, 2_000), (4 << 20, MAX_DEPTH as i64)] {
        let (mut producer, mut consumer) = growing_ring(bytes, |_, _, _| true);
        let mut open = 0;
        while open < MAX_DEPTH as i64 && producer.push(open, b"") {
            open += 1;
        }
        assert!(open >= at_least, "{open}");
        let mut count = 0;
        // Whatever else is recorded leaves their space alone.
        while producer.mark(open, b"some longer text that leaves a gap at the end of a segment") {
            count += 1;
        }
        (0..open).for_each(|i| producer.pop(i));
        let (records, pops) = counted(&mut consumer);
        assert_eq!((records as i64, pops as i64), (2 * open + count, open));
    }
}

/// The consumer reads late and gives memory back at any time.
#[test]
fn nothing_is_lost_while_memory_comes_and_goes() {
    let emitted: i64 = if cfg!(miri) { 3_000 } else { 1_000_000 };
    let (mut producer, mut consumer) = growing_ring(512 << 10, |_, _, _| true);
    let thread = std::thread::spawn(move || {
        for i in 0..emitted {
            if !producer.mark(i, &i.to_le_bytes()) {
                std::thread::yield_now();
            }
        }
        producer.header().unwrap().end();
    });
    let (mut read, mut last, mut rounds) = (0, -1, 0);
    loop {
        let ended = consumer.header().unwrap().ended();
        let drained = consumer.drain(100_000, |RingRecord { time, event, .. }| {
            assert!(time > last && event == RingEvent::Mark(&time.to_le_bytes()));
            (last, read) = (time, read + 1);
        });
        rounds += 1;
        if rounds % 7 == 0 {
            consumer.give_back_free_memory();
        }
        if ended && drained.unwrap().is_empty {
            break;
        }
    }
    thread.join().unwrap();
    let dropped = consumer.header().unwrap().drops(DropCause::RingFull, DroppedKind::Mark);
    assert_eq!(read + dropped as i64, emitted);
}

/// A ring of 64 MiB then holds 7 million pairs while the collector stands still.
#[test]
fn a_pair_takes_at_most_ten_bytes() {
    // Time between two pairs, ns. Each segment has each name once.
    for (distance, most) in [(200, 7.4), (1_000, 7.4), (100_000, 7.4), (1_000_000, 9.5), (30_000_000, 9.5)] {
        for names in [1, 20] {
            let bytes = 1 << 20;
            let (mut producer, mut consumer) = growing_ring(bytes, |_, _, _| true);
            let names: Vec<String> = (0..names).map(|i| format!("forward of layer {i}")).collect();
            let (mut time, mut pairs) = (1_000_000_000_000, 0);
            while producer.push(time, names[pairs % names.len()].as_bytes()) {
                producer.pop(time + distance / 2);
                (time, pairs) = (time + distance, pairs + 1);
            }
            let a_pair = bytes as f64 / pairs as f64;
            assert!(a_pair <= most, "{a_pair} bytes a pair every {distance} ns, {} names", names.len());
            assert_eq!(counted(&mut consumer), (2 * pairs, pairs));
        }
    }
}

/// Times with every number of bytes, at both of its ends, and times that go back.
#[test]
fn times_of_each_length_come_back() {
    let (mut producer, mut consumer) = growing_ring(1 << 20, |_, _, _| true);
    let steps = (0..63).flat_map(|bits| [(1i64 << bits) - 1, 1 << bits, -(1 << bits)]);
    let mut written = vec![0i64];
    for step in steps.chain([i64::MAX, i64::MIN]) {
        let time = written.last().unwrap().wrapping_add(step);
        assert!(producer.mark(time, b"step"));
        written.push(time);
    }
    let mut read = vec![0];
    consumer.drain(u64::MAX, |record| read.push(record.time)).unwrap();
    assert_eq!(read, written);
}

/// Two names that share a slot, and names that begin alike, keep their texts.
#[test]
fn names_come_back_whichever_names_were_before() {
    let (mut producer, mut consumer) = growing_ring(1 << 20, |_, _, _| true);
    let names: Vec<Vec<u8>> = (0..3_000_usize)
        .map(|i| {
            // Prefixes of one another, with zeros at the end, and many that differ in one byte.
            let mut name = vec![b'a'; i % 40];
            name.extend_from_slice(&(i / 40).to_le_bytes()[..i % 9]);
            name
        })
        .collect();
    let mut slots = vec![Vec::new(); 256];
    let mut known = 0;
    for round in 0..3 {
        for (i, name) in names.iter().enumerate() {
            assert!(producer.mark(i as i64, name) && producer.mark(i as i64, name));
            let mut read = 0;
            while !consumer
                .drain(u64::MAX, |record| {
                    assert_eq!(record.event, RingEvent::Mark(name), "{i} in round {round}");
                    // Whoever keeps the names of the slots has this one already, or gets it now.
                    let slot = record.slot.unwrap();
                    let kept: &mut Vec<u8> = &mut slots[usize::from(slot.number)];
                    if slot.is_known {
                        assert_eq!(kept, name);
                        known += 1;
                    }
                    kept.clone_from(name);
                    read += 1;
                })
                .unwrap()
                .is_empty
            {}
            assert_eq!(read, 2);
        }
    }
    assert!(known >= 2 * 3_000, "{known}");
}
