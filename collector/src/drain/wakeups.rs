//! The threads that wait for producers during a long sleep of the collecting thread.
//!
//! ```text
//! producer --futex--> rpd-wakeup --eventfd--> rpd-collect
//!                         '- reads the rings
//! ```
//!
//! The collecting thread waits for descriptors, and a futex has none. One thread waits for all rings. Before
//! Linux 5.16, which cannot wait for several futexes, each of a few threads waits for one ring. The
//! collecting thread must read a ring without such a thread as often as it may fill.
//!
//! The thread that wakes up reads the rings itself: on busy cores a second thread would run late. The
//! collecting thread continues from there.

use super::rings::RingDrain;
use super::thread::lock;
use crate::host::event_flag::EventFlag;
use rpd_ring::wakeup::{self, MAX_RINGS, RingWakeup, WakeupNotice};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Maximum number of threads that wait for one ring each. Every thread counts against the user's process
/// limit.
const MAX_SINGLE_THREADS: usize = 4;
/// Maximum number of threads that wait for [`MAX_RINGS`] rings each.
const MAX_MULTI_THREADS: usize = 8;

/// The waiting threads, started as rings need them.
pub(super) struct WakeupThreads {
    waiters: Vec<Arc<Waiter>>,
    /// The eventfd of the collecting thread.
    wake: EventFlag,
    /// The rings to read.
    drain: Weak<Mutex<RingDrain>>,
    can_wait_for_many: bool,
    /// A thread could not be started. There is no further attempt.
    is_refused: bool,
}

/// State that the collecting thread and a waiting thread share.
struct Waiter {
    rings: Mutex<Vec<RingWakeup>>,
    /// Changes with the rings, and when the thread must look at them again.
    notice: WakeupNotice,
    /// The collecting thread is awake: nothing is waited for until it sleeps again.
    has_reported: AtomicBool,
    is_ended: AtomicBool,
    wake: EventFlag,
    drain: Weak<Mutex<RingDrain>>,
    can_wait_for_many: bool,
}

/// A ring that a thread waits for, until this is dropped.
pub(super) struct WatchedRing {
    waiter: Arc<Waiter>,
    ring: RingWakeup,
}

impl WakeupThreads {
    pub(super) fn new(wake: EventFlag, drain: Weak<Mutex<RingDrain>>) -> WakeupThreads {
        let can_wait_for_many = wakeup::can_wait_for_many();
        WakeupThreads { waiters: Vec::new(), wake, drain, can_wait_for_many, is_refused: false }
    }

    /// Registers a ring with a thread; `None` if there is no thread for it.
    pub(super) fn watch(&mut self, ring: RingWakeup) -> Option<WatchedRing> {
        let (rings, threads) =
            if self.can_wait_for_many { (MAX_RINGS, MAX_MULTI_THREADS) } else { (1, MAX_SINGLE_THREADS) };
        let found = self.waiters.iter().find(|waiter| waiter.rings().len() < rings).cloned();
        let waiter = match found {
            Some(waiter) => waiter,
            None if self.waiters.len() < threads && !self.is_refused => self.start()?,
            None => return None,
        };
        waiter.rings().push(ring.clone());
        waiter.notice.change();
        Some(WatchedRing { waiter, ring })
    }

    fn start(&mut self) -> Option<Arc<Waiter>> {
        let waiter = Arc::new(Waiter {
            rings: Mutex::default(),
            notice: WakeupNotice::default(),
            has_reported: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            wake: self.wake.clone(),
            drain: Weak::clone(&self.drain),
            can_wait_for_many: self.can_wait_for_many,
        });
        let thread = Arc::clone(&waiter);
        let started = std::thread::Builder::new().name("rpd-wakeup".to_owned()).spawn(move || thread.run());
        self.is_refused = started.is_err();
        started.ok()?;
        self.waiters.push(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Starts waiting for calls again. Must be called after the rings record that their consumer sleeps.
    pub(super) fn expect_wakeups(&self) {
        for waiter in &self.waiters {
            if waiter.has_reported.swap(false, AcqRel) {
                waiter.notice.change();
            }
        }
    }
}

impl Drop for WakeupThreads {
    fn drop(&mut self) {
        for waiter in &self.waiters {
            waiter.is_ended.store(true, Release);
            waiter.rings().drain(..).for_each(|ring| ring.close());
            waiter.notice.change();
        }
    }
}

impl Waiter {
    fn rings(&self) -> MutexGuard<'_, Vec<RingWakeup>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            // Read before anything else, so that a later change ends the wait.
            let seen = self.notice.value();
            if self.is_ended.load(Acquire) {
                return;
            }
            if self.has_reported.load(Acquire) {
                self.notice.wait(seen);
                continue;
            }
            let rings = self.rings().clone();
            let states: Vec<_> = rings.into_iter().map(|ring| (ring.state(), ring)).collect();
            if states.iter().any(|(state, _)| state.is_called()) {
                self.has_reported.store(true, Release);
                // Starts the thread first, so that both may begin at once.
                self.wake.set();
                if let Some(drain) = self.drain.upgrade() {
                    lock(&drain).answer_wakeup();
                }
                continue;
            }
            let open = states.into_iter().filter(|(state, _)| !state.is_closed());
            let open: Vec<_> = open.map(|(state, ring)| (ring, state)).collect();
            match open.as_slice() {
                [(ring, state)] if !self.can_wait_for_many => ring.wait(*state),
                [_, ..] if wakeup::wait_for_any(&self.notice, seen, &open) => {}
                _ => self.notice.wait(seen),
            }
        }
    }
}

impl Drop for WatchedRing {
    fn drop(&mut self) {
        self.waiter.rings().retain(|ring| !ring.is_same(&self.ring));
        self.ring.close();
        self.waiter.notice.change();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_ring::header::{RingHeader, ThreadFacts};
    use rpd_ring::layout::{HEADER_BYTES, MIN_RING_BYTES};
    use rpd_ring::memory::RingMemory;
    use rpd_ring::record::RecordedLibrary;
    use rpd_ring::{RingConsumer, RingProducer};
    use std::time::{Duration, Instant};

    fn ring() -> (RingProducer, RingConsumer) {
        let (left, right) = RingMemory::heap(HEADER_BYTES + MIN_RING_BYTES);
        RingHeader::new(&left).unwrap().write(&ThreadFacts::default(), &[], MIN_RING_BYTES, MIN_RING_BYTES);
        (RingProducer::new(left, |_, _, _| false).unwrap(), RingConsumer::new(right).unwrap())
    }

    /// Whether the flag is set within the time. Clears it.
    fn is_woken(wake: &EventFlag, ms: u64) -> bool {
        let is_set = wake.wait(Instant::now() + Duration::from_millis(ms));
        wake.clear();
        is_set
    }

    fn write_an_eighth(producer: &mut RingProducer) {
        // Records of 14 bytes, as their times are alike.
        let records = MIN_RING_BYTES / 8 / 14 + 1;
        (0..records).for_each(|_| assert!(producer.communicator_freed(1, RecordedLibrary::Mpi, 5)));
    }

    fn sleep(threads: &WakeupThreads, rings: &mut [(RingProducer, RingConsumer)]) {
        for (_, consumer) in &mut *rings {
            while !consumer.drain(u64::MAX, |_| ()).unwrap().is_empty {}
            consumer.wake_up();
        }
        assert!(rings.iter().all(|(_, consumer)| consumer.fall_asleep()));
        threads.expect_wakeups();
    }

    /// Every ring wakes the sleeper, once per sleep, while rings come and go in any order.
    #[test]
    fn every_producer_wakes_a_collector_that_sleeps() {
        for can_wait_for_many in [true, false] {
            if can_wait_for_many && !wakeup::can_wait_for_many() {
                eprintln!("skipped: this kernel cannot wait for several futexes");
                continue;
            }
            let wake = EventFlag::new().unwrap();
            let mut threads = WakeupThreads::new(wake.clone(), Weak::new());
            threads.can_wait_for_many = can_wait_for_many;
            let mut rings: Vec<_> = (0..MAX_SINGLE_THREADS).map(|_| ring()).collect();
            let watch = |(_, consumer): &(RingProducer, RingConsumer)| threads.watch(consumer.wakeup());
            let mut watched: Vec<_> = rings.iter().map(watch).collect();
            assert!(watched.iter().all(Option::is_some));
            assert_eq!(threads.watch(ring().1.wakeup()).is_some(), can_wait_for_many);
            for at in [0, 3, 1, 1, 2] {
                sleep(&threads, &mut rings);
                write_an_eighth(&mut rings[at].0);
                assert!(is_woken(&wake, 10_000), "ring {at}, {can_wait_for_many}");
                // No ring wakes it again while it is awake.
                assert_eq!(rings.iter().filter(|(_, consumer)| consumer.wake_up()).count(), 1);
                rings.iter_mut().for_each(|(producer, _)| write_an_eighth(producer));
                assert!(!is_woken(&wake, 20));
            }
            // Without the first ring, and with another ring in its place.
            drop(watched.remove(0));
            drop(rings.remove(0));
            rings.push(ring());
            watched.push(threads.watch(rings[MAX_SINGLE_THREADS - 1].1.wakeup()));
            assert!(watched.iter().all(Option::is_some));
            for at in [MAX_SINGLE_THREADS - 1, 0] {
                sleep(&threads, &mut rings);
                write_an_eighth(&mut rings[at].0);
                assert!(is_woken(&wake, 10_000), "ring {at}, {can_wait_for_many}");
            }
        }
    }

    /// A program that writes invalid values there keeps no thread busy.
    #[test]
    fn a_ring_that_calls_or_closes_by_itself_wakes_once() {
        for nonsense in [2u64, 3, 77, u64::MAX] {
            let wake = EventFlag::new().unwrap();
            let mut threads = WakeupThreads::new(wake.clone(), Weak::new());
            let (producer, consumer) = ring();
            let watched = threads.watch(consumer.wakeup());
            producer.memory()[72].store(nonsense, std::sync::atomic::Ordering::SeqCst);
            threads.expect_wakeups();
            let _ = is_woken(&wake, 50);
            assert!(!is_woken(&wake, 50), "{nonsense}");
            drop(watched);
        }
    }
}
