//! Numbers of the calls on a communicator, by which its ranks find each other's calls.
//!
//! They count the calls of the program, on record or not: a full ring in one rank must not shift what
//! follows against the other ranks. Nothing waits or allocates: a table of atomics, by handle.

use rpd_ring::record::{COMM_MADE, COMM_WORLD};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Communicators that are told apart at a time; calls on others have no number.
const SLOTS: usize = 4096;
/// Slots that are looked at for one handle.
const PROBES: usize = 128;
/// A slot that was never used.
const EMPTY: u64 = 0;
/// A slot whose communicator is gone. No handle is this.
const FREED: u64 = 1;

/// What is counted on one communicator.
pub(crate) struct SequenceNumbers {
    /// Collectives.
    pub(crate) collectives: AtomicU32,
    /// Other calls.
    pub(crate) others: AtomicU32,
    /// Communicators made from it.
    pub(crate) made: AtomicU32,
    /// The number by which the ring tells it, 0 if its making was not seen.
    own: AtomicU64,
}

/// The number of the communicator that was made last.
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

/// The next number of a counter, from 1.
#[inline]
pub(crate) fn next(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Numbers by handle. A handle enters when its communicator is made or first used, and leaves when
/// that is freed.
pub(crate) struct CommunicatorTable {
    /// Of `MPI_COMM_WORLD`, which most calls are about.
    world: SequenceNumbers,
    /// There was no slot for a communicator when it was made: what enters the table when it is first
    /// used may be that one, and would count from there.
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

    /// The numbers of a communicator; none if there are too many of them.
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

    /// The communicator as the ring tells it: by its number if its making was seen.
    #[inline]
    pub(crate) fn name(&self, handle: u64) -> u64 {
        if handle >= COMM_MADE {
            return handle;
        }
        let Some((at, found)) = self.search(handle) else { return handle };
        let own = self.numbers.get(at).map_or(0, |numbers| numbers.own.load(Relaxed));
        if found == handle && own != 0 { own } else { handle }
    }

    /// Whether a handle is in the table.
    pub(crate) fn has(&self, handle: u64) -> bool {
        self.search(handle).is_some_and(|(_, found)| found == handle)
    }

    fn other(&self, handle: u64) -> Option<&SequenceNumbers> {
        // Every round that fails is one in which another thread has taken a slot.
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

    /// The slot that has the handle, or the first one that it could have, and what is in it.
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

    /// A communicator was made: what was counted under its handle belongs to another one.
    pub(crate) fn begin(&self, handle: u64) {
        match if handle == COMM_WORLD { Some(&self.world) } else { self.other(handle) } {
            Some(numbers) => numbers.reset(LAST_MADE.fetch_add(1, Relaxed) + 1),
            // A rank that a split leaves out gets no communicator at all.
            None if handle == EMPTY || handle == FREED => {}
            None => self.overflowed.store(true, Relaxed),
        }
    }

    /// A communicator is gone.
    pub(crate) fn end(&self, handle: u64) {
        if handle == COMM_WORLD {
            return;
        }
        if let Some((at, found)) = self.search(handle)
            && found == handle
            && let (Some(slot), Some(numbers)) = (self.handles.get(at), self.numbers.get(at))
        {
            numbers.reset(0);
            // Another thread may have made a communicator with this handle meanwhile and reset it,
            // too; its slot is gone then, and it gets another one at its next call.
            let _ = slot.compare_exchange(handle, FREED, AcqRel, Acquire);
        }
    }
}

/// The slots of a handle, in order.
fn slots(handle: u64) -> impl Iterator<Item = usize> {
    // Handles are addresses, or small numbers below a constant: the product spreads both.
    let first = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (0..PROBES).map(move |step| first.wrapping_add(step) % SLOTS)
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
        assert_eq!(number(&TABLE, 20_000).is_some(), had_room, "who had no slot when made gets none later");
        TABLE.end(20_000);
        for handle in 2..20_000 {
            TABLE.end(handle);
        }
        // Communicators that come and go never fill it.
        for handle in 100_000..200_000 {
            TABLE.begin(handle);
            assert_eq!(number(&TABLE, handle), Some(1));
            TABLE.end(handle);
        }
    }

    #[test]
    fn threads_count_together() {
        static TABLE: CommunicatorTable = CommunicatorTable::new();
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| number(&TABLE, 77).unwrap()).max()))
            .collect();
        let last = threads.into_iter().filter_map(|thread| thread.join().unwrap()).max();
        assert_eq!(last, Some(4000));
    }
}
