//! Sequence numbers of calls on a communicator, by which a merge matches the calls of its ranks.
//!
//! All calls of the program are counted, recorded or not: a full ring in one rank must not shift the later
//! numbers relative to other ranks. The table consists of atomics, indexed by handle; it never blocks or
//! allocates.

use rpd_ring::record::{COMM_MADE, COMM_WORLD};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

/// Maximum number of communicators at a time. Calls on others have no number.
const SLOTS: usize = 4096;
/// Number of slots to search for one handle.
const MAX_PROBES: usize = 128;
/// A slot that was never used.
const EMPTY: u64 = 0;
/// A slot of a freed communicator. No handle has this value.
const FREED: u64 = 1;

/// Counters of one communicator.
pub(crate) struct SequenceNumbers {
    /// Collectives.
    pub(crate) collectives: AtomicU32,
    /// Other calls.
    pub(crate) others: AtomicU32,
    /// Communicators created from it.
    pub(crate) made: AtomicU32,
    /// Number of the communicator in the ring, 0 if its creation was not recorded.
    own: AtomicU64,
}

/// Number of the last communicator that was created.
static LAST_MADE: AtomicU64 = AtomicU64::new(COMM_MADE);

impl SequenceNumbers {
    const fn new() -> SequenceNumbers {
        SequenceNumbers {
            collectives: AtomicU32::new(0),
            others: AtomicU32::new(0),
            made: AtomicU32::new(0),
            own: AtomicU64::new(0),
        }
    }

    fn reset(&self, own: u64) {
        self.own.store(own, Relaxed);
        self.collectives.store(0, Relaxed);
        self.others.store(0, Relaxed);
        self.made.store(0, Relaxed);
    }
}

/// The only thread that has called MPI so far, 0 for none yet, or [`SEVERAL`].
static CALLER: AtomicUsize = AtomicUsize::new(0);
/// Threads may count at the same time. No thread has this number.
const SEVERAL: usize = 1;

/// Notes that several threads may call MPI at the same time.
pub(crate) fn expect_several_threads() {
    CALLER.store(SEVERAL, Relaxed);
}

/// Returns the next number of a counter of MPI, from 1. As long as one thread counts, an addition need not be atomic: that
/// would wait for all stores before it.
#[inline]
pub(crate) fn next_of_mpi(counter: &AtomicU32, thread: usize) -> u32 {
    let caller = CALLER.load(Relaxed);
    if caller == SEVERAL || caller != thread && !is_only_caller(thread) {
        return next(counter);
    }
    let number = counter.load(Relaxed).wrapping_add(1);
    counter.store(number, Relaxed);
    number
}

/// Whether no other thread has called MPI. A program that lets its second thread call in the very moment of a call of its
/// first one has asked MPI for that, see [`expect_several_threads`].
#[cold]
fn is_only_caller(thread: usize) -> bool {
    match CALLER.compare_exchange(0, thread, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(_) => {
            CALLER.store(SEVERAL, Relaxed);
            false
        }
    }
}

/// Returns the next number of a counter, from 1.
#[inline]
pub(crate) fn next(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Counters by handle. A handle is added when its communicator is created or first used, and removed when
/// that is freed.
pub(crate) struct CommunicatorTable {
    /// Counters of `MPI_COMM_WORLD`, which most calls use.
    world: SequenceNumbers,
    /// There was no slot for a new communicator. A handle that is added at its first use may be that one, and
    /// would start to count too late.
    overflowed: AtomicBool,
    handles: [AtomicU64; SLOTS],
    numbers: [SequenceNumbers; SLOTS],
}

impl CommunicatorTable {
    pub(crate) const fn new() -> CommunicatorTable {
        CommunicatorTable {
            world: SequenceNumbers::new(),
            overflowed: AtomicBool::new(false),
            handles: [const { AtomicU64::new(EMPTY) }; SLOTS],
            numbers: [const { SequenceNumbers::new() }; SLOTS],
        }
    }

    /// Returns the counters of a communicator; `None` if there are too many communicators.
    #[inline]
    pub(crate) fn of(&self, handle: u64) -> Option<&SequenceNumbers> {
        if handle == COMM_WORLD {
            return Some(&self.world);
        }
        if self.overflowed.load(Relaxed) && !self.has(handle) {
            return None;
        }
        self.other(handle)
    }

    /// Returns the communicator in its form in the ring: its number if its creation was recorded.
    #[inline]
    pub(crate) fn name(&self, handle: u64) -> u64 {
        if handle >= COMM_MADE {
            return handle;
        }
        let Some((at, found)) = self.search(handle) else { return handle };
        let own = self.numbers.get(at).map_or(0, |numbers| numbers.own.load(Relaxed));
        if found == handle && own != 0 { own } else { handle }
    }

    /// Whether the table has a handle.
    pub(crate) fn has(&self, handle: u64) -> bool {
        self.search(handle).is_some_and(|(_, found)| found == handle)
    }

    fn other(&self, handle: u64) -> Option<&SequenceNumbers> {
        // A failed round means that another thread has taken a slot.
        for _ in 0..SLOTS {
            let (at, found) = self.search(handle)?;
            if found == handle
                || self.handles.get(at)?.compare_exchange(found, handle, AcqRel, Acquire).is_ok()
            {
                return self.numbers.get(at);
            }
        }
        None
    }

    /// Returns the slot of the handle, or the first slot that it could use, and its content.
    fn search(&self, handle: u64) -> Option<(usize, u64)> {
        if handle == EMPTY || handle == FREED {
            return None;
        }
        let mut free = None;
        for at in slots(handle) {
            match self.handles.get(at)?.load(Acquire) {
                EMPTY => return free.or(Some((at, EMPTY))),
                FREED => free = free.or(Some((at, FREED))),
                other if other == handle => return Some((at, handle)),
                _ => {}
            }
        }
        free
    }

    /// Resets the counters of a handle for a new communicator: they belong to another one.
    pub(crate) fn begin(&self, handle: u64) {
        match if handle == COMM_WORLD { Some(&self.world) } else { self.other(handle) } {
            Some(numbers) => numbers.reset(LAST_MADE.fetch_add(1, Relaxed) + 1),
            // A rank that a split excludes gets no communicator.
            None if handle == EMPTY || handle == FREED => {}
            None => self.overflowed.store(true, Relaxed),
        }
    }

    /// Removes the handle of a freed communicator.
    pub(crate) fn end(&self, handle: u64) {
        if handle == COMM_WORLD {
            return;
        }
        if let Some((at, found)) = self.search(handle)
            && found == handle
            && let (Some(slot), Some(numbers)) = (self.handles.get(at), self.numbers.get(at))
        {
            numbers.reset(0);
            // Another thread may meanwhile have created a communicator with this handle and reset the slot.
            // Its slot is lost then, and its next call gets a new one.
            let _ = slot.compare_exchange(handle, FREED, AcqRel, Acquire);
        }
    }
}

/// Returns the slots of a handle, in order.
fn slots(handle: u64) -> impl Iterator<Item = usize> {
    // Handles are addresses, or small numbers below a constant. The multiplication spreads both.
    let first = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (0..MAX_PROBES).map(move |step| first.wrapping_add(step) % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(table: &CommunicatorTable, handle: u64) -> Option<u32> {
        table.of(handle).map(|numbers| next(&numbers.collectives))
    }

    #[test]
    fn each_communicator_counts_for_itself_until_it_is_gone() {
        static TABLE: CommunicatorTable = CommunicatorTable::new();
        let handles = [COMM_WORLD, COMM_WORLD - 1, 0x8400_0001, 0x7fff_1234_5670];
        for n in 1..4 {
            for handle in handles {
                assert_eq!(number(&TABLE, handle), Some(n));
            }
        }
        TABLE.end(0x8400_0001);
        assert_eq!(number(&TABLE, 0x8400_0001), Some(1), "the handle came again");
        assert_eq!(TABLE.name(0x8400_0001), 0x8400_0001, "its making was not seen");
        TABLE.begin(0x8400_0001);
        assert_eq!(number(&TABLE, 0x8400_0001), Some(1), "the handle came again without a free");
        let first = TABLE.name(0x8400_0001);
        TABLE.begin(0x8400_0001);
        assert!(COMM_MADE < first && first < TABLE.name(0x8400_0001), "numbers do not come again");
        assert_eq!(number(&TABLE, 0x7fff_1234_5670), Some(4));
        TABLE.end(0);
        assert!(!TABLE.has(0) && number(&TABLE, 0).is_none(), "no communicator");
    }

    #[test]
    fn a_full_table_has_no_numbers_until_one_is_freed() {
        static TABLE: CommunicatorTable = CommunicatorTable::new();
        let numbered = (2..20_000).filter(|handle| number(&TABLE, *handle).is_some()).count();
        assert!((SLOTS / 2..=SLOTS).contains(&numbered), "{numbered}");
        TABLE.begin(EMPTY);
        assert!(!TABLE.overflowed.load(Relaxed));
        TABLE.begin(20_000);
        let had_room = TABLE.has(20_000);
        (2..20_000).for_each(|handle| TABLE.end(handle));
        assert_eq!(
            number(&TABLE, 20_000).is_some(),
            had_room,
            "without a slot at its creation, it gets none later"
        );
        TABLE.end(20_000);
        for handle in 2..20_000 {
            TABLE.end(handle);
        }
        // A sequence of short-lived communicators never fills the table.
        for handle in 100_000..200_000 {
            TABLE.begin(handle);
            assert_eq!(number(&TABLE, handle), Some(1));
            TABLE.end(handle);
        }
    }

    #[test]
    fn calls_of_several_threads_have_numbers_of_their_own() {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let count = |thread| (0..1000).map(move |_| next_of_mpi(&COUNTER, thread)).collect::<Vec<u32>>();
        assert_eq!(count(64), (1..=1000).collect::<Vec<u32>>());
        // The second thread calls for the first time.
        assert_eq!(next_of_mpi(&COUNTER, 128), 1001);
        let threads: Vec<_> = [64, 128, 192].map(|thread| std::thread::spawn(move || count(thread))).into();
        let mut all: Vec<u32> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (1002..=4001).collect::<Vec<u32>>());
    }

    #[test]
    fn threads_share_one_count() {
        static TABLE: CommunicatorTable = CommunicatorTable::new();
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| number(&TABLE, 77).unwrap()).max()))
            .collect();
        let last = threads.into_iter().filter_map(|thread| thread.join().unwrap()).max();
        assert_eq!(last, Some(4000));
    }
}
