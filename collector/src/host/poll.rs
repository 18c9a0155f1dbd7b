//! Waits for descriptors.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::time::Duration;

/// Converts a duration to a time-out of `poll`.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Waits until a descriptor is readable, at most `limit`. Returns whether it is. A pidfd is readable when its
/// process has ended.
pub(crate) fn wait_readable(descriptor: &impl AsFd, limit: Option<Duration>) -> rustix::io::Result<bool> {
    let timeout = limit.map(timespec);
    Ok(poll(&mut [PollFd::new(descriptor, PollFlags::IN)], timeout.as_ref())? > 0)
}
