//! Tests of the ring: everything that is written is read or counted, and no content causes harm.
#![allow(clippy::unwrap_used)] // clippy takes only functions marked as tests for tests

use proptest::prelude::*;
use rpd_ring::header::{RingHeader, ThreadFacts, ThreadName};
use rpd_ring::layout::{
    DropCause, DroppedKind, HEADER_BYTES, MAX_NAME_BYTES, MAX_NEIGHBOURS, MIN_RING_BYTES, identity_bytes,
    ring_bytes,
};
use rpd_ring::memory::RingMemory;
use rpd_ring::record::{
    COMM_WORLD, CUT_MARK, CommunicatorBirth, MpiCall, MpiReceive, NeighbourDirection, NewCommunicator,
    RcclCall, RecordedLibrary, RequestCompletion, RingEvent, RingRecord,
};
use rpd_ring::{
    RingConsumer, RingProducer, identity,
    message::{LibraryMessage, RingObstacle},
    mpi,
};
use std::sync::atomic::Ordering::Relaxed;

fn ring(bytes: usize) -> (RingProducer, RingConsumer) {
    let (left, right) = RingMemory::heap(HEADER_BYTES + bytes);
    RingHeader::new(&left).unwrap().write(&ThreadFacts::default(), &[], bytes, bytes);
    (RingProducer::new(left, |_, _, _| false).unwrap(), RingConsumer::new(right).unwrap())
}

/// A record that owns its name.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Push(i64, Vec<u8>),
    Pop(i64),
    Start(i64, u64, Vec<u8>),
    Stop(i64, u64),
    Mark(i64, Vec<u8>),
    Enter(i64, MpiCall),
    Exit(i64),
    Request(i64, u64),
    Prepared(i64, u64),
    Found(i64, u64),
    Received(i64, u64),
    Done(i64, RequestCompletion),
    Freed(i64, u64),
    Made(i64, NewCommunicator),
    Neighbours(i64, u64, NeighbourDirection, Vec<u8>),
    Named(i64, RecordedLibrary, u64, Vec<u8>),
    Gone(i64, RecordedLibrary, u64),
    RcclEnter(i64, RcclCall),
    RcclExit(i64),
}

fn owned(RingRecord { time, event, .. }: RingRecord<'_>) -> Event {
    match event {
        RingEvent::Push(name) => Event::Push(time, name.to_vec()),
        RingEvent::Pop => Event::Pop(time),
        RingEvent::RangeStart { id, name } => Event::Start(time, id, name.to_vec()),
        RingEvent::RangeStop(id) => Event::Stop(time, id),
        RingEvent::Mark(name) => Event::Mark(time, name.to_vec()),
        RingEvent::MpiEnter(call) => Event::Enter(time, call),
        RingEvent::MpiExit => Event::Exit(time),
        RingEvent::MpiRequest(request) => Event::Request(time, request),
        RingEvent::MpiPrepared(request) => Event::Prepared(time, request),
        RingEvent::MpiMessageFound(message) => Event::Found(time, message),
        RingEvent::MpiMessageReceived(message) => Event::Received(time, message),
        RingEvent::MpiDone(completion) => Event::Done(time, completion),
        RingEvent::MpiFreed(request) => Event::Freed(time, request),
        RingEvent::NewCommunicator(made) => Event::Made(time, made),
        RingEvent::Neighbours { handle, direction, ranks } => {
            Event::Neighbours(time, handle, direction, ranks.to_vec())
        }
        RingEvent::CommunicatorName { library, handle, name } => {
            Event::Named(time, library, handle, name.to_vec())
        }
        RingEvent::CommunicatorFreed { library, handle } => Event::Gone(time, library, handle),
        RingEvent::RcclEnter(call) => Event::RcclEnter(time, call),
        RingEvent::RcclExit => Event::RcclExit(time),
    }
}

/// Returns the stored form of an ASCII name.
fn cut(name: &[u8]) -> Vec<u8> {
    match name.get(..MAX_NAME_BYTES - CUT_MARK.len()) {
        Some(kept) if name.len() > MAX_NAME_BYTES => [kept, CUT_MARK.as_bytes()].concat(),
        _ => name.to_vec(),
    }
}

#[test]
fn a_name_is_cut_between_characters() {
    let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
    for prefix_length in 0..4 {
        for character in ["x", "\u{e9}", "\u{2026}", "\u{1f600}"] {
            let whole = "x".repeat(prefix_length) + &character.repeat(MAX_NAME_BYTES + 1);
            assert!(producer.mark(1, whole.as_bytes()));
            let [Event::Mark(1, name)] = &drained(&mut consumer)[..] else { panic!() };
            let name = std::str::from_utf8(name).unwrap();
            assert!(name.len() <= MAX_NAME_BYTES && name.len() > MAX_NAME_BYTES - 4);
            assert!(name.ends_with(CUT_MARK) && whole.starts_with(name.trim_end_matches(CUT_MARK)));
        }
    }
    // Bytes that are not text are cut at any position.
    assert!(producer.mark(1, &[0xff; MAX_NAME_BYTES + 1]) && producer.mark(1, &[0x80; MAX_NAME_BYTES + 1]));
    assert_eq!(drained(&mut consumer).len(), 2);
    // A name of the maximum length is stored completely.
    assert!(producer.mark(1, &[b'x'; MAX_NAME_BYTES]));
    assert_eq!(drained(&mut consumer), [Event::Mark(1, vec![b'x'; MAX_NAME_BYTES])]);
}

fn drained(consumer: &mut RingConsumer) -> Vec<Event> {
    let mut events = Vec::new();
    while !consumer.drain(u64::MAX, |record| events.push(owned(record))).unwrap().is_empty {}
    events
}

#[test]
fn every_kind_comes_out_as_it_went_in() {
    let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
    let call = MpiCall {
        function: mpi::MpiFunction::MPI_Send as u32,
        comm: Some(COMM_WORLD),
        peer: Some(-1),
        root: None,
        tag: Some(i32::MAX),
        bytes: Some(i64::MAX),
        seq: Some(u32::MAX),
        receive: None,
    };
    let exchanges = [(Some(-1), None, Some(i64::MAX)), (None, Some(i32::MAX), Some(0)), (None, None, None)];
    let exchanges = exchanges
        .map(|(source, tag, bytes)| MpiCall { receive: Some(MpiReceive { source, tag, bytes }), ..call });
    let completion = RequestCompletion { request: 9, source: Some(-1), tag: None, bytes: Some(i64::MAX) };
    let made = NewCommunicator {
        library: RecordedLibrary::Rccl,
        function: 3,
        birth: CommunicatorBirth::Alone,
        handle: u64::MAX,
        parent: Some(1),
        id: 1 << 63,
        size_rank: Some((u32::MAX, 7)),
        leader: -1,
        tag: i32::MIN,
        ordinal: u32::MAX,
        side: None,
    };
    let sides = [Some(0), Some(1)].map(|side| NewCommunicator { side, ..made });
    let bare = NewCommunicator {
        library: RecordedLibrary::Mpi,
        birth: CommunicatorBirth::Collective,
        parent: None,
        size_rank: None,
        ..made
    };
    let rccl = RcclCall {
        function: 11,
        comm: Some(1),
        peer: None,
        root: Some(-2),
        count: Some(u64::MAX),
        datatype: Some(7),
        seq: None,
        stream: None,
    };
    let streams = [0, u64::MAX].map(|stream| RcclCall { stream: Some(stream), ..rccl });
    assert!(producer.push(1, b"a name of more than eight bytes"));
    assert!(producer.range_start(2, u64::MAX, b"exactly8"));
    assert!(producer.mpi_enter(3, &call));
    producer.mpi_exit(4);
    assert!(producer.mark(5, b""));
    assert!(producer.range_stop(6, u64::MAX));
    producer.pop(-7);
    let long = vec![b'x'; MAX_NAME_BYTES + 10];
    assert!(producer.mark(8, &long));
    assert!(producer.mpi_request(9, 1) && producer.mpi_done(10, &completion) && producer.mpi_freed(11, 2));
    assert!(producer.new_communicator(12, &made) && producer.new_communicator(13, &bare));
    assert!(producer.communicator_name(14, RecordedLibrary::Rccl, 5, b"rows"));
    assert!(producer.communicator_name(15, RecordedLibrary::Mpi, 5, &long));
    assert!(
        producer.communicator_freed(16, RecordedLibrary::Rccl, 5)
            && producer.communicator_freed(17, RecordedLibrary::Mpi, 6)
    );
    assert!(producer.rccl_enter(18, &rccl));
    producer.rccl_exit(19);
    assert!(exchanges.iter().all(|exchange| producer.mpi_enter(20, exchange)));
    assert!(producer.mpi_prepared(21, u64::MAX));
    assert!(sides.iter().all(|made| producer.new_communicator(24, made)));
    let ranks = vec![7; 4 * MAX_NEIGHBOURS];
    assert!(producer.neighbours(25, 5, NeighbourDirection::Destinations, &ranks));
    assert!(producer.neighbours(26, 5, NeighbourDirection::Sources, &ranks[..12]));
    assert!(streams.iter().all(|call| producer.rccl_enter(27, call)));
    assert!(producer.mpi_message_found(22, 1) && producer.mpi_message_received(23, 2));
    let expected = vec![
        Event::Push(1, b"a name of more than eight bytes".to_vec()),
        Event::Start(2, u64::MAX, b"exactly8".to_vec()),
        Event::Enter(3, call),
        Event::Exit(4),
        Event::Mark(5, Vec::new()),
        Event::Stop(6, u64::MAX),
        Event::Pop(-7),
        Event::Mark(8, cut(&long)),
        Event::Request(9, 1),
        Event::Done(10, completion),
        Event::Freed(11, 2),
        Event::Made(12, made),
        Event::Made(13, bare),
        Event::Named(14, RecordedLibrary::Rccl, 5, b"rows".to_vec()),
        Event::Named(15, RecordedLibrary::Mpi, 5, cut(&long)),
        Event::Gone(16, RecordedLibrary::Rccl, 5),
        Event::Gone(17, RecordedLibrary::Mpi, 6),
        Event::RcclEnter(18, rccl),
        Event::RcclExit(19),
        Event::Enter(20, exchanges[0]),
        Event::Enter(20, exchanges[1]),
        Event::Enter(20, exchanges[2]),
        Event::Prepared(21, u64::MAX),
        Event::Made(24, sides[0]),
        Event::Made(24, sides[1]),
        Event::Neighbours(25, 5, NeighbourDirection::Destinations, ranks.clone()),
        Event::Neighbours(26, 5, NeighbourDirection::Sources, ranks[..12].to_vec()),
        Event::RcclEnter(27, streams[0]),
        Event::RcclEnter(27, streams[1]),
        Event::Found(22, 1),
        Event::Received(23, 2),
    ];
    assert_eq!(drained(&mut consumer), expected);
}

#[test]
fn ends_fit_into_a_ring_that_is_full_of_beginnings() {
    let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
    let mut open = 0;
    while producer.push(open, b"deeper") {
        open += 1;
    }
    assert!(open > 100);
    (0..open).for_each(|i| producer.pop(i));
    let events = drained(&mut consumer);
    assert_eq!(events.len() as i64, 2 * open);
    let header = consumer.header().unwrap();
    assert_eq!(header.drops(DropCause::RingFull, DroppedKind::Range), 1);
}

#[test]
fn names_of_any_length_come_out_whole() {
    let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
    for length in 0..100 {
        let name: Vec<u8> = (0..length).map(|i| 255 - i).collect();
        assert!(producer.mark(1, &name) && producer.range_start(2, 3, &name));
        assert_eq!(drained(&mut consumer), [Event::Mark(1, name.clone()), Event::Start(2, 3, name)]);
    }
}

#[test]
fn without_memory_for_a_ring_everything_is_counted() {
    let (mut producer, mut consumer) = ring(0);
    assert!(!producer.push(1, b"a") && !producer.push(2, b"b") && !producer.mark(3, b"c"));
    assert!(!producer.mpi_enter(4, &MpiCall::default()));
    assert_eq!(drained(&mut consumer), []);
    let header = consumer.header().unwrap();
    let drops = |what| header.drops(DropCause::NoMemory, what);
    assert_eq!((drops(DroppedKind::Range), drops(DroppedKind::Mark), drops(DroppedKind::MpiCall)), (2, 1, 1));
}

#[test]
fn a_ring_that_nobody_wants_counts_nothing() {
    let (mut producer, consumer) = ring(MIN_RING_BYTES);
    consumer.header().unwrap().close();
    while producer.mark(1, b"unread") {}
    assert!(!producer.mark(2, b"unread"));
    assert_eq!(consumer.header().unwrap().drops(DropCause::RingFull, DroppedKind::Mark), 0);
}

#[test]
fn a_producer_calls_a_consumer_that_sleeps_once_an_eighth_is_written() {
    let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
    // Bytes of a record at the time of the record before it, and of an eighth.
    const RECORD: usize = 14;
    const EIGHTH: usize = MIN_RING_BYTES / 8;
    // Twelve eighths in total: the consumer has freed space.
    let mut write = |bytes: usize| {
        let records = bytes.div_ceil(RECORD);
        (0..records).for_each(|_| assert!(producer.communicator_freed(1, RecordedLibrary::Mpi, 5)));
    };
    let read = |consumer: &mut RingConsumer| {
        while !consumer.drain(u64::MAX, |_| ()).unwrap().is_empty {}
    };
    write(EIGHTH);
    read(&mut consumer);
    assert!(!consumer.wake_up(), "it was awake");
    for _ in 0..5 {
        assert!(consumer.fall_asleep() && !consumer.wakeup().state().is_called());
        write(EIGHTH);
        assert!(consumer.wakeup().state().is_called() && consumer.wake_up());
        read(&mut consumer);
        write(EIGHTH);
        assert!(!consumer.wake_up(), "it is awake");
        read(&mut consumer);
    }
    // With more than that in the ring before, there would be no call in time. A change of the segment takes a few bytes.
    write(EIGHTH - 4 * RECORD);
    assert!(consumer.fall_asleep());
    write(5 * RECORD);
    assert!(!consumer.fall_asleep());
}

/// A producer and a consumer run at the same time: dropped records are counted, and the rest is in order.
#[test]
fn recorded_and_dropped_are_what_was_emitted() {
    let emitted: i64 = if cfg!(miri) { 300 } else { 300_000 };
    let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
    let thread = std::thread::spawn(move || {
        for i in 0..emitted {
            let name = vec![b'n'; (i % 90) as usize];
            if producer.push(i, &name) {
                producer.mark(i, b"inside");
                producer.pop(i);
            } else {
                std::thread::yield_now();
            }
        }
        producer.header().unwrap().end();
    });
    let (mut pushes, mut pops, mut last) = (0, 0, -1);
    loop {
        let ended = consumer.header().unwrap().ended();
        let drained = consumer
            .drain(4096, |RingRecord { time, event, .. }| match event {
                RingEvent::Push(name) => {
                    assert!(time > last && name.len() as i64 == time % 90);
                    (last, pushes) = (time, pushes + 1);
                }
                RingEvent::Pop => {
                    assert_eq!(time, last);
                    pops += 1;
                }
                other => assert_eq!((time, other), (last, RingEvent::Mark(b"inside"))),
            })
            .unwrap();
        if ended && drained.is_empty {
            break;
        }
    }
    thread.join().unwrap();
    let dropped = consumer.header().unwrap().drops(DropCause::RingFull, DroppedKind::Range) as i64;
    assert_eq!((pushes + dropped, pops), (emitted, pushes));
}

#[test]
fn an_identity_keeps_to_the_allow_list() {
    let command = b"python3\0train.py\0--lr\0\0";
    let environment =
        b"SLURM_JOB_ID=7\0HOME=/root\0SLURM_JWT=secret\0ROCM_API_KEY=x\0RANK=1\0EMPTY\0OMP_CUT=";
    let mut place = vec![0; 4096];
    let used = identity::encode(command, environment, &mut place);
    let identity = identity::decode(&place[..used]);
    assert_eq!(identity.arguments, ["python3", "train.py", "--lr", ""]);
    let expected = [("SLURM_JOB_ID", "7"), ("RANK", "1")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(identity.environment, expected);
    // Values that do not fit are omitted completely.
    assert_eq!(
        identity::encode(command, environment, &mut place[..4 + command.len() + 5]),
        4 + command.len()
    );
    assert_eq!(identity::encode(command, environment, &mut place[..10]), 0);
}

#[test]
fn a_header_that_makes_no_sense_is_refused() {
    let (left, right) = RingMemory::heap(HEADER_BYTES + MIN_RING_BYTES);
    assert!(RingConsumer::new(right).is_none(), "no magic");
    for wrong in [3, MIN_RING_BYTES / 2, MIN_RING_BYTES * 2, usize::MAX] {
        RingHeader::new(&left).unwrap().write(&ThreadFacts::default(), &[], wrong, wrong);
        assert!(RingHeader::new(&left).unwrap().ring().is_none(), "{wrong}");
    }
    let (small, _) = RingMemory::heap(100);
    assert!(RingHeader::new(&small).is_none());
}

/// From one event to the next, ns: of any magnitude, rarely back.
fn time_step() -> impl Strategy<Value = i64> {
    prop_oneof![8 => (0..50, any::<i64>()).prop_map(|(bits, value)| value & (i64::MAX >> (63 - bits))), 1 => any::<i64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn facts_survive(pid in any::<i32>(), tid in any::<i32>(), ppid in any::<i32>(), ticks in any::<u64>(),
                     start_ns in any::<i64>(), name in any::<[u8; 32]>(), is_forked in any::<bool>(),
                     identity in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let mut thread_name = ThreadName::default();
        thread_name.0[..32].copy_from_slice(&name);
        let facts = ThreadFacts { pid, tid, ppid, start_ticks: ticks, start_ns, thread_name,
                                  time_namespace: ticks ^ 1, is_forked, has_ticks: !is_forked };
        let bytes = HEADER_BYTES + identity_bytes(identity.len()) + MIN_RING_BYTES;
        let (left, right) = RingMemory::heap(bytes);
        RingHeader::new(&left).unwrap().write(&facts, &identity, MIN_RING_BYTES, MIN_RING_BYTES);
        let consumer = RingConsumer::new(right).unwrap();
        let header = consumer.header().unwrap();
        prop_assert_eq!(header.facts(), facts);
        prop_assert_eq!(header.identity(), identity);
    }

    /// Rounds of events, each drained: everything that was accepted is read, across the ends of segments, with texts that are
    /// new or were there before, and times that go back or far ahead.
    #[test]
    fn accepted_events_come_out_in_order(
        rounds in proptest::collection::vec(
            proptest::collection::vec((0u8..9, 0usize..5000, time_step()), 0..60), 1..20),
    ) {
        let (mut producer, mut consumer) = ring(MIN_RING_BYTES);
        let (mut time, mut open) = (0i64, 0);
        for round in rounds {
            let mut expected = Vec::new();
            for (kind, length, step) in round {
                time = time.wrapping_add(step);
                // Most are from a few short texts.
                let (length, first) = if length < 4500 { (length % 300 / (1 + length % 7), 0) } else { (length, time as u8) };
                let name: Vec<u8> = (0..length).map(|i| ((i as u8).wrapping_mul(31) ^ first) & 0x7f).collect();
                let cut = cut(&name);
                let call = MpiCall { comm: Some(time as u64), bytes: Some(step), ..MpiCall::default() };
                match kind {
                    0 | 1 => if producer.push(time, &name) {
                        open += 1;
                        expected.push(Event::Push(time, cut));
                    },
                    2 | 3 => if open > 0 {
                        open -= 1;
                        producer.pop(time);
                        expected.push(Event::Pop(time));
                    },
                    4 => if producer.mark(time, &name) { expected.push(Event::Mark(time, cut)) },
                    5 => if producer.range_start(time, time as u64, &name) {
                        expected.push(Event::Start(time, time as u64, cut));
                    },
                    6 => if producer.range_stop(time, 5) { expected.push(Event::Stop(time, 5)) },
                    7 => if producer.communicator_name(time, RecordedLibrary::Mpi, 6, &name) {
                        expected.push(Event::Named(time, RecordedLibrary::Mpi, 6, cut));
                    },
                    _ => if producer.mpi_enter(time, &call) {
                        producer.mpi_exit(time);
                        expected.extend([Event::Enter(time, call), Event::Exit(time)]);
                    },
                }
            }
            prop_assert_eq!(drained(&mut consumer), expected);
        }
    }

    /// Random content of the whole ring: an end or an error, never a panic, and never more records than fit.
    #[test]
    fn nonsense_is_survived(words in proptest::collection::vec(any::<u64>(), MIN_RING_BYTES / 8), head in any::<u64>(),
                            plausible in any::<bool>()) {
        let (left, right) = RingMemory::heap(HEADER_BYTES + MIN_RING_BYTES);
        RingHeader::new(&left).unwrap().write(&ThreadFacts::default(), &[], MIN_RING_BYTES, MIN_RING_BYTES);
        for (i, word) in words.iter().enumerate() {
            // Records that look valid at first are parsed further.
            let word = if plausible { word & 0x2017_0117_000f_0037 } else { *word };
            left[HEADER_BYTES / 8 + i].store(word, Relaxed);
        }
        left[16].store(if plausible { MIN_RING_BYTES as u64 } else { head }, Relaxed);
        let mut consumer = RingConsumer::new(right).unwrap();
        let mut records = 0usize;
        let _ = consumer.drain(u64::MAX, |_| records += 1);
        prop_assert!(records <= MIN_RING_BYTES);
    }

    #[test]
    fn messages_and_identities_survive_nonsense(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = LibraryMessage::decode(&bytes);
        let _ = identity::decode(&bytes);
    }

    #[test]
    fn a_ring_size_is_a_power_of_two(wanted in any::<usize>()) {
        prop_assert!(ring_bytes(wanted).is_power_of_two());
    }
}

#[test]
fn messages_come_back() {
    for message in [
        LibraryMessage::Ring { tid: 5, cut: None },
        LibraryMessage::Ring { tid: 5, cut: Some(RingObstacle::OpenFiles) },
        LibraryMessage::Untraced { tid: -1, why: RingObstacle::NoMemory },
        LibraryMessage::Untraced { tid: 1, why: RingObstacle::FileLimit },
        LibraryMessage::Lost { events: u64::MAX },
        LibraryMessage::Ended { pid: 7, status: 0x8b },
    ] {
        assert_eq!(LibraryMessage::decode(&message.encode()), Some(message));
    }
}

#[test]
fn functions_have_their_names() {
    assert_eq!(mpi::name(mpi::MpiFunction::MPI_Allreduce as u32), Some("MPI_Allreduce"));
    assert_eq!(mpi::name(u32::MAX), None);
    assert!(mpi::is_collective(mpi::MpiFunction::MPI_Ineighbor_alltoallw as u32));
    assert!(!mpi::is_collective(mpi::MpiFunction::MPI_Waitsome as u32));
}
