//! How a producer wakes a sleeping consumer.
//!
//! ```text
//! AWAKE --consumer--> ASLEEP --producer--> CALLED     a word of the header, and a futex
//!   ^-----consumer------'-------------------'
//! ```
//!
//! A consumer that will sleep for long notes that in the header. After every part of the ring
//! ([`part_bytes`]) the producer checks that word: one relaxed load. If it is `ASLEEP`, the producer changes it to `CALLED`
//! and wakes the waiting threads by one system call. It makes no further call until the consumer sleeps
//! again.
//!
//! A futex needs no descriptor in the traced program, which could notice or close it. Its call works in
//! signal handlers and never blocks. The consumer also waits for descriptors, so it has a thread that waits
//! with [`wait_for_any`], or, before Linux 5.16, for one ring with [`RingWakeup::wait`].
//!
//! Why no event is lost: the producer publishes the head before it checks the word, and the consumer writes
//! `ASLEEP` before it checks the head ([`crate::RingConsumer::fall_asleep`]). The producer has no fence
//! between the two, which would cost every event. What slips through is noticed one part of the ring later.

use crate::futex;
pub use crate::futex::can_wait_for_many;
use crate::layout::{USUAL_RING_BYTES, word};
use crate::memory::RingMemory;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// Number of parts of a ring of the usual size.
const PARTS_PER_RING: u64 = 8;
/// Maximum number of rings that [`wait_for_any`] waits for, besides a [`WakeupNotice`].
pub const MAX_RINGS: usize = futex::MAX_WORDS - 1;

/// Returns the bytes of a part of a ring. The producer checks after each of them.
pub fn part_bytes(ring_bytes: u64) -> u64 {
    usual_bytes(ring_bytes) / PARTS_PER_RING
}

/// Returns the bytes of a ring that are usually in use.
pub(crate) fn usual_bytes(ring_bytes: u64) -> u64 {
    ring_bytes.min(USUAL_RING_BYTES as u64)
}

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;
const CALLED: u64 = 2;
/// The ring has no consumer.
const GONE: u64 = 3;

/// The producer's side: wakes a sleeping consumer.
pub(crate) fn call(memory: &RingMemory) {
    let Some(word) = memory.get(word::WAKEUP) else { return };
    if word.load(Relaxed) == ASLEEP && word.compare_exchange(ASLEEP, CALLED, AcqRel, Relaxed).is_ok() {
        futex::wake(word);
    }
}

pub(crate) fn set_asleep(memory: &RingMemory) {
    if let Some(word) = memory.get(word::WAKEUP) {
        word.store(ASLEEP, SeqCst);
        fence(SeqCst);
    }
}

/// Whether the producer had called.
pub(crate) fn set_awake(memory: &RingMemory) -> bool {
    memory.get(word::WAKEUP).is_some_and(|word| word.swap(AWAKE, SeqCst) == CALLED)
}

/// Handle by which a thread waits for the call of one producer.
#[derive(Clone, Debug)]
pub struct RingWakeup(Arc<RingMemory>);

/// State of a [`RingWakeup`] at some time. Any value that another process writes is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeupState(u32);

impl WakeupState {
    /// The producer has called since the consumer fell asleep.
    pub fn is_called(self) -> bool {
        u64::from(self.0) == CALLED
    }

    /// The consumer has closed it.
    pub fn is_closed(self) -> bool {
        u64::from(self.0) == GONE
    }
}

impl RingWakeup {
    pub(crate) fn new(memory: Arc<RingMemory>) -> RingWakeup {
        RingWakeup(memory)
    }

    /// Returns the current state.
    pub fn state(&self) -> WakeupState {
        WakeupState(self.0.get(word::WAKEUP).map_or(GONE, |word| word.load(Acquire)) as u32)
    }

    /// Waits for a call while the state is `state`. May return without one.
    pub fn wait(&self, state: WakeupState) {
        if let Some(word) = self.0.get(word::WAKEUP) {
            futex::wait(word, state.0);
        }
    }

    /// Ends the wait of the consumer's thread permanently.
    pub fn close(&self) {
        if let Some(word) = self.0.get(word::WAKEUP) {
            word.store(GONE, SeqCst);
            futex::wake(word);
        }
    }

    /// Whether both belong to the same ring.
    pub fn is_same(&self, other: &RingWakeup) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A number within the consumer, for which its threads can wait together with rings.
#[derive(Debug, Default)]
pub struct WakeupNotice(AtomicU64);

/// Value of a [`WakeupNotice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeupNoticeValue(u32);

impl WakeupNotice {
    /// Returns the current value.
    pub fn value(&self) -> WakeupNoticeValue {
        WakeupNoticeValue(self.0.load(Acquire) as u32)
    }

    /// Changes the value, and wakes the threads that wait for it.
    pub fn change(&self) {
        self.0.fetch_add(1, AcqRel);
        futex::wake(&self.0);
    }

    /// Waits until the value differs. May return earlier.
    pub fn wait(&self, value: WakeupNoticeValue) {
        futex::wait(&self.0, value.0);
    }
}

/// Waits for a change of the notice, or for a call of one of at most [`MAX_RINGS`] producers with these
/// states. May return without either. Returns `false` if the kernel cannot wait for so many.
pub fn wait_for_any(
    notice: &WakeupNotice,
    value: WakeupNoticeValue,
    rings: &[(RingWakeup, WakeupState)],
) -> bool {
    let words = rings.iter().filter_map(|(ring, state)| Some((ring.0.get(word::WAKEUP)?, state.0)));
    futex::wait_for_any(std::iter::once((&notice.0, value.0)).chain(words))
}
