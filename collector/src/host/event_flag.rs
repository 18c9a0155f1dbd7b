//! A flag that threads wait for with `poll`. Unlike those of a condition variable, its time-outs are correct
//! even if the clocks of the job are replaced.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Stays set until it is cleared.
#[derive(Clone, Debug)]
pub(super) struct EventFlag(Arc<OwnedFd>);

impl EventFlag {
    pub(super) fn new() -> io::Result<EventFlag> {
        Ok(EventFlag(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(super) fn set(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }

    pub(super) fn is_set(&self) -> bool {
        self.wait(Instant::now())
    }

    /// Waits until the flag is set, at most until `until`. Returns whether it is set.
    pub(super) fn wait(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match poll(&mut [PollFd::new(&*self.0, PollFlags::IN)], Some(&timespec(left))) {
                Ok(ready) if ready > 0 => return true,
                Ok(_) if left.is_zero() => return false,
                _ => {}
            }
        }
    }

    /// Waits until one of two flags is set.
    pub(super) fn wait_for_either(&self, other: &EventFlag) {
        loop {
            let mut both = [PollFd::new(&*self.0, PollFlags::IN), PollFd::new(&*other.0, PollFlags::IN)];
            if poll(&mut both, None).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Converts a duration to a time-out of `poll`.
pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_waited_for_and_stays() {
        let signal = EventFlag::new().unwrap();
        assert!(!signal.is_set() && !signal.wait(Instant::now() + Duration::from_millis(5)));
        let other = signal.clone();
        let thread = std::thread::spawn(move || other.set());
        assert!(signal.wait(Instant::now() + Duration::from_secs(60)) && signal.is_set());
        thread.join().unwrap();
        signal.clear();
        assert!(!signal.is_set());
        let (one, other) = (EventFlag::new().unwrap(), EventFlag::new().unwrap());
        for set in [one.clone(), other.clone()] {
            let thread = std::thread::spawn(move || set.set());
            one.wait_for_either(&other);
            thread.join().unwrap();
            assert_ne!(one.is_set(), other.is_set());
            [&one, &other].iter().for_each(|signal| signal.clear());
        }
    }
}
