//! Waits for the end of a process that is not a child.

use crate::host::poll::wait_readable;
use crate::host::process;
use rustix::fd::OwnedFd;
use rustix::process::{Signal, pidfd_send_signal};
use std::time::{Duration, Instant};

/// Interval at which a process is checked if the kernel cannot report its end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A process that is waited for.
pub(super) struct WatchedProcess {
    pub(super) pid: i32,
    pidfd: Option<OwnedFd>,
    /// The process had ended before, and another process may have its number.
    is_gone: bool,
}

impl WatchedProcess {
    pub(super) fn of(pid: i32) -> WatchedProcess {
        WatchedProcess { pid, pidfd: process::open_pidfd(pid), is_gone: false }
    }

    /// A process that has ended.
    pub(super) fn gone(pid: i32) -> WatchedProcess {
        WatchedProcess { pid, pidfd: None, is_gone: true }
    }

    /// Sends a signal if the process still runs and a pidfd identifies it.
    pub(super) fn send(&self, signal: Signal) {
        if let Some(pidfd) = &self.pidfd {
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }

    /// Waits for the end of the process, with an optional time limit. Returns whether it has ended.
    pub(super) fn wait(&self, most: Option<Duration>) -> bool {
        let until = most.map(|most| Instant::now() + most);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.has_ended(left) {
                return true;
            }
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
        }
    }

    fn has_ended(&self, wait: Option<Duration>) -> bool {
        if self.is_gone {
            return true;
        }
        let Some(pidfd) = &self.pidfd else {
            std::thread::sleep(wait.unwrap_or(LOOK_EVERY).min(LOOK_EVERY));
            return process::stat(self.pid).is_none();
        };
        wait_readable(pidfd, wait).unwrap_or(false)
    }
}
