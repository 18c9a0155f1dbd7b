//! Time stamps.

use crate::runtime::settings::TraceSettings;
use rpd_ring::ticks;

/// The clock of the events of a thread.
pub(crate) enum EventClock {
    /// ns of `CLOCK_BOOTTIME`, and the second in which it was read last.
    Boottime(ClockSecond),
    /// Ticks of the processor's counter, which the collector converts.
    Ticks,
}

/// The second in which a clock was read last. The next time is nearly always in the same one, and is converted to ns without
/// a multiplication.
pub(crate) struct ClockSecond {
    second: i64,
    /// Time at which it begins.
    begin_ns: i64,
}

impl ClockSecond {
    #[inline(always)]
    fn ns_of(&mut self, time: libc::timespec) -> i64 {
        if time.tv_sec != self.second {
            self.change_to(time.tv_sec);
        }
        self.begin_ns.wrapping_add(time.tv_nsec)
    }

    #[cold]
    fn change_to(&mut self, second: i64) {
        *self = ClockSecond { second, begin_ns: second.wrapping_mul(1_000_000_000) };
    }
}

impl EventClock {
    /// Returns the clock of a ring whose times are ticks or not.
    pub(crate) fn new(has_ticks: bool) -> EventClock {
        match has_ticks {
            true => EventClock::Ticks,
            false => EventClock::Boottime(ClockSecond { second: 0, begin_ns: 0 }),
        }
    }

    /// Reads the clock.
    #[inline(always)]
    pub(crate) fn now(&mut self) -> i64 {
        match self {
            EventClock::Ticks => ticks::now(),
            EventClock::Boottime(second) => second.ns_of(read_boottime()),
        }
    }
}

/// Whether the times of a new ring in this time namespace are ticks.
pub(crate) fn can_use_ticks(settings: &TraceSettings, time_namespace: u64) -> bool {
    settings.ticks_namespace == Some(time_namespace) && ticks::can_be_read()
}

/// Reads `CLOCK_BOOTTIME` through the vDSO. Uses libc, so that a clock that is replaced for the whole job is replaced here as
/// well.
#[inline(always)]
fn read_boottime() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. It cannot fail for a clock that exists, and if it
    // does, the time is 0.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time
}
