//! A flag that threads wait for with `poll`. Unlike those of a condition variable, its time-outs are correct
//! even if the clocks of the job are replaced.

use super::poll::wait_readable;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Stays set until it is cleared.
#[derive(Clone, Debug)]
pub(crate) struct EventFlag(Arc<OwnedFd>);

impl EventFlag {
    pub(crate) fn new() -> io::Result<EventFlag> {
        Ok(EventFlag(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(crate) fn set(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.wait(Instant::now())
    }

    /// Waits until the flag is set, at most until `until`. Returns whether it is set.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match wait_readable(&*self.0, Some(left)) {
                Ok(true) => return true,
                Ok(false) if left.is_zero() => return false,
                _ => {}
            }
        }
    }

    /// Waits until one of two flags is set.
    pub(crate) fn wait_for_either(&self, other: &EventFlag) {
        loop {
            let mut both = [PollFd::new(&*self.0, PollFlags::IN), PollFd::new(&*other.0, PollFlags::IN)];
            if poll(&mut both, None).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
