//! How a producer wakes a consumer that sleeps.
//!
//! ```text
//! AWAKE --consumer--> ASLEEP --producer--> CALLED     a word of the header, and a futex
//!   ^-----consumer------'-------------------'
//! ```
//!
//! A consumer that looks seldom says so in the header. After every eighth of the ring ([`PARTS`]) the
//! producer looks at that word: one relaxed load. If it is `ASLEEP`, the producer makes it `CALLED`, and
//! wakes those that wait for it: one system call, and none until the consumer sleeps again.
//!
//! A futex, since it needs no descriptor in the traced program, which could notice or close it, and since the
//! call works in signal handlers and never waits. The consumer, which waits for descriptors as well, has a
//! thread for it that waits with [`wait_for_any`], or, before Linux 5.16, for one ring with [`RingWakeup::wait`].
//!
//! Why no event is lost by it: the producer publishes the head before it looks, and the consumer says
//! `ASLEEP` before it looks at the head ([`crate::RingConsumer::fall_asleep`]). Neither order is fenced in the
//! producer, which would cost every event; what slips through is seen one part of the ring later.

use crate::futex;
use crate::layout::word;
use crate::memory::RingMemory;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// The producer looks after each of so many parts of a ring.
pub const PARTS: u64 = 8;
/// Rings that [`wait_for_any`] waits for at most, beside a [`WakeupNotice`].
pub const MAX_RINGS: usize = futex::MAX_WORDS - 1;

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;
const CALLED: u64 = 2;
/// The ring has no consumer any more.
const GONE: u64 = 3;

/// The producer's side: wakes a consumer that sleeps.
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

/// What a thread waits on for the call of one producer.
#[derive(Clone, Debug)]
pub struct RingWakeup(Arc<RingMemory>);

/// State of a [`RingWakeup`] when it was looked at. Whatever another process writes there is one.
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

    /// The state now.
    pub fn state(&self) -> WakeupState {
        WakeupState(self.0.get(word::WAKEUP).map_or(GONE, |word| word.load(Acquire)) as u32)
    }

    /// Waits for a call, while the state is this one. May return without one.
    pub fn wait(&self, state: WakeupState) {
        if let Some(word) = self.0.get(word::WAKEUP) {
            futex::wait(word, state.0);
        }
    }

    /// Ends the wait of the consumer's own thread for good.
    pub fn close(&self) {
        if let Some(word) = self.0.get(word::WAKEUP) {
            word.store(GONE, SeqCst);
            futex::wake(word);
        }
    }

    /// Whether both are of one ring.
    pub fn is_same(&self, other: &RingWakeup) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A number within the consumer that its threads can wait on together with rings.
#[derive(Debug, Default)]
pub struct WakeupNotice(AtomicU64);

/// Value of a [`WakeupNotice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeupNoticeValue(u32);

impl WakeupNotice {
    /// The value now.
    pub fn value(&self) -> WakeupNoticeValue {
        WakeupNoticeValue(self.0.load(Acquire) as u32)
    }

    /// Changes the value, and wakes those that wait for it.
    pub fn change(&self) {
        self.0.fetch_add(1, AcqRel);
        futex::wake(&self.0);
    }

    /// Waits until the value is another one. May return before.
    pub fn wait(&self, value: WakeupNoticeValue) {
        futex::wait(&self.0, value.0);
    }
}

/// Whether this kernel has what [`wait_for_any`] needs.
pub fn can_wait_for_many() -> bool {
    futex::can_wait_for_many()
}

/// Waits for a change of the notice, or a call of one of at most [`MAX_RINGS`] producers whose states are
/// these. May return without either. False if the kernel does not wait for so many.
pub fn wait_for_any(
    notice: &WakeupNotice,
    value: WakeupNoticeValue,
    rings: &[(RingWakeup, WakeupState)],
) -> bool {
    let words = rings.iter().filter_map(|(ring, state)| Some((ring.0.get(word::WAKEUP)?, state.0)));
    futex::wait_for_any(std::iter::once((&notice.0, value.0)).chain(words))
}
