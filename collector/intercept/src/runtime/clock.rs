//! Time stamps.

/// `CLOCK_BOOTTIME` in ns, through the vDSO. Through libc, so that a clock which is replaced for the
/// whole job is replaced for us as well.
#[inline]
pub(crate) fn boottime() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. It cannot fail for a clock that exists, and if it
    // does, the time is 0.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}
