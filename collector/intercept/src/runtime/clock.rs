//! Time stamps.

/// Reads `CLOCK_BOOTTIME` in ns, through the vDSO. Uses libc, so that a clock that is replaced for the whole
/// job is replaced here as well.
#[inline]
pub(crate) fn boottime() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. It cannot fail for a clock that exists, and if it
    // does, the time is 0.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}
