//! Time stamps.

use crate::runtime::settings::TraceSettings;
use rpd_ring::ticks;

/// The clock of the events of a thread.
#[derive(Clone, Copy)]
pub(crate) enum EventClock {
    /// ns of `CLOCK_BOOTTIME`.
    Boottime,
    /// Ticks of the processor's counter, which the collector converts.
    Ticks,
}

impl EventClock {
    /// Chooses the clock of a new ring in this time namespace.
    pub(crate) fn choose(settings: &TraceSettings, time_namespace: u64) -> EventClock {
        match settings.ticks_namespace == Some(time_namespace) && ticks::can_be_read() {
            true => EventClock::Ticks,
            false => EventClock::Boottime,
        }
    }

    /// Whether its times are ticks.
    pub(crate) fn has_ticks(self) -> bool {
        matches!(self, EventClock::Ticks)
    }

    #[inline(always)]
    pub(crate) fn now(self) -> i64 {
        match self {
            EventClock::Ticks => ticks::now(),
            EventClock::Boottime => boottime(),
        }
    }
}

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
