//! Converts the kernel's receive times of packets to the clock of the records.
//!
//! ```text
//! packet arrives: the kernel notes CLOCK_REALTIME          (stamp)
//!   ... the agent waits for a core ...
//! agent: recvmsg -> RAW, REALTIME, RAW                     (bracket)
//! receive time = RAW of the bracket - (REALTIME of the bracket - stamp) * rate of RAW against REALTIME
//! ```
//!
//! [`KernelTimes`] uses a kernel time only if it is consistent: the program and the kernel read the same
//! REALTIME, no step occurred since the socket was empty, and the stamp lies within the time in which the
//! packet can have arrived. Otherwise the time that the program read after the receive counts.

use super::packet::ReceiveTime;
use super::sockets::{ProbeSockets, enable_stamps, receive_stamp};
use crate::host::machine;
use crate::log::warn;
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::net::UnixDatagram;

/// Number of readings of a bracket, of which the narrowest counts: the program may lose its core in between.
const READINGS: usize = 4;
/// Width of a bracket, ns, that needs no second reading.
const NARROW_NS: i64 = 1_000;
/// Maximum width of a bracket, ns: its error is up to half of that.
const MAX_BRACKET_NS: i64 = 5_000;
/// Maximum difference of two readings of one clock by different ways, ns.
const MAX_SLACK_NS: i64 = 1_000;
/// Maximum time, ns, from the stamp of a packet to its arrival in the queue of the socket. On a busy core
/// another thread may run in between, so that a read of the socket finds nothing although the packet has its
/// stamp.
const MAX_QUEUEING_NS: i64 = 1_000_000;
/// Maximum age of a stamp, ns. An older one would be too inaccurate if the rate is not known well.
const MAX_DELAY_NS: i64 = 100_000_000;
/// Minimum distance of two brackets, ns, for a measurement of the rate: its error is then at most 1e-6.
const MIN_RATE_DISTANCE_NS: i64 = 500_000_000;
/// Maximum difference of the rates of REALTIME and RAW. Above it REALTIME is being slewed, and no rate holds
/// for long.
const MAX_RATE_DIFFERENCE: f64 = 1e-3;
/// Maximum change of a stamp by slewing, ns.
const MAX_SLEW_CHANGE_NS: f64 = 100.0;
/// Maximum rate of slewing: a faster change of REALTIME is a step.
const SLEWING_DIVISOR: i64 = 10;
/// Number of disagreements between the program's and the kernel's REALTIME that count: a single one may be
/// due to a step at that moment.
const COMPARISONS: usize = 3;
/// Expiry of the timer that detects steps of REALTIME, s since 1970: long after every job.
const TIMER_S: i64 = 1 << 33;

/// The clocks that a node reads, ns: the real ones, or those of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock {
    /// The clock of the records, `CLOCK_MONOTONIC_RAW`.
    pub raw: fn() -> i64,
    /// `CLOCK_REALTIME`.
    pub realtime: fn() -> i64,
    /// Converts a stamp of the machine's kernel to that of the node's kernel: `CLOCK_REALTIME`, or `None` if
    /// it gives no stamps.
    pub stamp: fn(i64) -> Option<i64>,
}

impl NodeClock {
    /// The clocks of this machine.
    pub(crate) const REAL: NodeClock =
        NodeClock { raw: machine::monotonic_raw, realtime: machine::realtime, stamp: Some };

    /// Returns the narrowest of a few brackets. The first one begins with `raw`, which was just read.
    fn bracket(&self, raw: i64) -> Bracket {
        let read = |before: i64| {
            let realtime = (self.realtime)();
            let width = (self.raw)().saturating_sub(before).max(0);
            Bracket { raw: before.saturating_add(width / 2), realtime, width }
        };
        let mut best = read(raw);
        for _ in 1..READINGS {
            if best.width <= NARROW_NS {
                break;
            }
            let next = read((self.raw)());
            if next.width < best.width {
                best = next;
            }
        }
        best
    }
}

/// REALTIME and the clock of the records at one moment, ns.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    raw: i64,
    realtime: i64,
    width: i64,
}

impl Bracket {
    /// Returns the time since an earlier bracket by the clock of the records, and how much more REALTIME has
    /// advanced.
    fn since(&self, earlier: &Bracket) -> (i64, i64) {
        let passed = self.raw.saturating_sub(earlier.raw);
        (passed, self.realtime.saturating_sub(earlier.realtime).saturating_sub(passed))
    }
}

/// Features of the kernel, while the agent uses its times.
struct KernelClock {
    /// A pair of sockets: the kernel stamps what one end sends to the other one.
    ends: (UnixDatagram, UnixDatagram),
    /// A timer that detects steps of REALTIME.
    was_set: Box<dyn FnMut() -> bool + Send>,
}

impl KernelClock {
    fn open() -> io::Result<KernelClock> {
        let ends = UnixDatagram::pair()?;
        ends.0.set_nonblocking(true)?;
        ends.1.set_nonblocking(true)?;
        enable_stamps(&ends.1)?;
        let timer = set_timer()?;
        let was_set =
            move || matches!(rustix::io::read(&timer, &mut [0u8; 8]), Err(rustix::io::Errno::CANCELED));
        Ok(KernelClock { ends, was_set: Box::new(was_set) })
    }

    /// Whether the kernel's REALTIME lies between two readings of the program's. It does not if a library
    /// replaces the clocks of the program.
    fn agrees(&self, clock: &NodeClock) -> bool {
        let before = (clock.realtime)();
        let sent = self.ends.0.send(&[0]);
        let after = (clock.realtime)();
        let stamp = receive_stamp(&self.ends.1).and_then(clock.stamp);
        let fits = |stamp| {
            (before.saturating_sub(MAX_SLACK_NS)..=after.saturating_add(MAX_SLACK_NS)).contains(&stamp)
        };
        sent.is_ok() && stamp.is_some_and(fits)
    }
}

/// A timer that fails with `ECANCELED` at the first reading after each step of REALTIME. The timer stays armed.
fn set_timer() -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let far = Timespec { tv_sec: TIMER_S, tv_nsec: 0 };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(&timer, flags, &Itimerspec { it_interval: never, it_value: far })?;
    Ok(timer)
}

/// Converts stamps of packets to receive times, or detects that they cannot be used.
pub(super) struct KernelTimes {
    clock: NodeClock,
    /// `None` once the agent has switched permanently to the program's times.
    kernel: Option<KernelClock>,
    /// For each socket: REALTIME before the last read that found nothing, and both clocks after it. Stamps
    /// are not used without it.
    empty_at: Vec<Option<(i64, Bracket)>>,
    last: Option<Bracket>,
    /// Start of the measurement of the rate.
    anchor: Option<Bracket>,
    /// Difference of the rates of REALTIME and the clock of the records; 0 until it is known.
    rate: f64,
    has_stepped: bool,
}

impl KernelTimes {
    /// Prepares the sockets. Warns if the kernel's times cannot be used.
    pub(super) fn new(clock: NodeClock, sockets: &ProbeSockets) -> KernelTimes {
        let kernel = match sockets.stamp_error() {
            Some(error) => Err(format!("the kernel refuses SO_TIMESTAMPNS ({error})")),
            None => {
                KernelClock::open().map_err(|error| format!("the kernel offers no clock for it ({error})"))
            }
        };
        let kernel = kernel.inspect_err(|reason| warn_of(reason)).ok();
        KernelTimes::with(clock, kernel, sockets.all().count())
    }

    fn with(clock: NodeClock, kernel: Option<KernelClock>, sockets: usize) -> KernelTimes {
        let empty_at = vec![None; sockets];
        let mut times =
            KernelTimes { clock, kernel, empty_at, last: None, anchor: None, rate: 0.0, has_stepped: false };
        times.compare(times.clock.bracket((times.clock.raw)()));
        times
    }

    /// Reads REALTIME before a socket is read: see [`KernelTimes::note_empty`].
    pub(super) fn before_read(&self) -> i64 {
        if self.kernel.is_some() { (self.clock.realtime)() } else { 0 }
    }

    /// Notes that a read of this socket found nothing. `before` was read before that. So a later read finds
    /// only packets that arrived after `before`. A clock that is read after the read of the socket could be
    /// later than the arrival of the next packet.
    pub(super) fn note_empty(&mut self, socket: usize, before: i64) {
        if self.kernel.is_none() {
            return;
        }
        let bracket = self.clock.bracket((self.clock.raw)());
        let is_due = self.anchor.is_none_or(|anchor| bracket.since(&anchor).0 >= MIN_RATE_DISTANCE_NS);
        if self.find_step(&bracket) {
            // `before` may precede a step of REALTIME: the next empty read counts.
            return;
        }
        if is_due {
            self.compare(bracket);
        }
        if let Some(at) = self.empty_at.get_mut(socket) {
            *at = Some((before, bracket));
        }
    }

    /// Returns the receive time of the packet that was just read from this socket with this stamp. Must be
    /// called at once.
    pub(super) fn receive_time(&mut self, socket: usize, stamp: Option<i64>) -> ReceiveTime {
        let program = (self.clock.raw)();
        let delay = if self.kernel.is_some() { self.delay(socket, stamp, program) } else { None };
        ReceiveTime { program, delay }
    }

    fn delay(&mut self, socket: usize, stamp: Option<i64>, program: i64) -> Option<NonZeroU32> {
        let bracket = self.clock.bracket(program);
        let Some(stamp) = stamp.and_then(self.clock.stamp) else {
            self.turn_off("packets come without a time of the kernel");
            return None;
        };
        if self.find_step(&bracket) {
            return None;
        }
        let (empty, since) = self.empty_at.get(socket).copied().flatten()?;
        let earliest = empty.saturating_sub(MAX_QUEUEING_NS);
        let latest = bracket.realtime.saturating_add(bracket.width);
        let is_possible = (earliest..=latest).contains(&stamp);
        if !is_possible || bracket.width > MAX_BRACKET_NS || self.rate.abs() > MAX_RATE_DIFFERENCE {
            return None;
        }
        let by_realtime = bracket.realtime.saturating_sub(stamp);
        if self.may_be_off(&bracket, &since, by_realtime) {
            return None;
        }
        let by_raw = by_realtime.saturating_sub((by_realtime as f64 * self.rate) as i64);
        // The bracket is read after the program's time. Its error may place the stamp after that.
        let delay = program.saturating_sub(bracket.raw.saturating_sub(by_raw)).max(1);
        let delay = u32::try_from(delay).ok().filter(|delay| i64::from(*delay) <= MAX_DELAY_NS)?;
        NonZeroU32::new(delay)
    }

    /// Whether the slewing of REALTIME since the socket was empty may have changed a stamp of this age too
    /// much.
    fn may_be_off(&self, now: &Bracket, empty: &Bracket, age_ns: i64) -> bool {
        let (passed, more) = now.since(empty);
        // All of the change may have happened since the stamp, at the maximum rate.
        let unexplained = (more as f64 - self.rate * passed as f64).abs();
        let off = unexplained.min(age_ns as f64 / SLEWING_DIVISOR as f64);
        let readings = (now.width + empty.width) as f64 / 2.0;
        off > readings + MAX_SLEW_CHANGE_NS + MAX_RATE_DIFFERENCE * age_ns as f64
    }

    /// Takes whether REALTIME was stepped since the last call.
    pub(super) fn take_step(&mut self) -> bool {
        std::mem::take(&mut self.has_stepped)
    }

    /// Whether REALTIME was stepped since the last bracket. The kernel reports a step with a delay, so the
    /// readings are compared as well. Waiting packets may have stamps of either REALTIME: each socket must be
    /// read until it is empty.
    fn find_step(&mut self, bracket: &Bracket) -> bool {
        let moved = self.last.is_some_and(|last| {
            let (passed, more) = bracket.since(&last);
            let most = (passed / SLEWING_DIVISOR).saturating_add(bracket.width + last.width + MAX_SLACK_NS);
            more.saturating_abs() > most
        });
        self.last = Some(*bracket);
        let reported = self.kernel.as_mut().is_some_and(|kernel| (kernel.was_set)());
        if moved || reported {
            self.has_stepped = true;
            self.empty_at.fill(None);
            (self.anchor, self.rate) = (None, 0.0);
        }
        moved || reported
    }

    /// Compares the program's REALTIME with the kernel's, and measures the rate.
    fn compare(&mut self, bracket: Bracket) {
        let Some(kernel) = &self.kernel else { return };
        if !(0..COMPARISONS).any(|_| kernel.agrees(&self.clock)) {
            return self
                .turn_off("CLOCK_REALTIME as the program reads it is not the kernel's, or has no times");
        }
        if bracket.width > MAX_BRACKET_NS {
            return;
        }
        if let Some(anchor) = self.anchor {
            let (passed, more) = bracket.since(&anchor);
            self.rate = more as f64 / passed.max(1) as f64;
        }
        self.anchor = Some(bracket);
        self.last = Some(bracket);
    }

    fn turn_off(&mut self, reason: &str) {
        if self.kernel.take().is_some() {
            warn_of(reason);
        }
    }
}

fn warn_of(reason: &str) {
    warn(format_args!("clock probes take receive times from the program, not from the kernel: {reason}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
    use std::time::Duration;

    const HERE: [std::net::IpAddr; 1] = [std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

    fn sockets() -> ProbeSockets {
        ProbeSockets::bind(&HERE, None, 0).unwrap()
    }

    /// Prepares one socket that was read until it was empty.
    fn times(clock: NodeClock) -> KernelTimes {
        let mut times = KernelTimes::new(clock, &sockets());
        times.note_empty(0, times.before_read());
        times
    }

    /// Returns the kernel's time of a packet with a stamp of this age, relative to the program's. The program
    /// may lose its core between the readings, which increases it.
    fn delay(times: &mut KernelTimes, before_now: i64) -> Option<i64> {
        (0..20)
            .map(|_| {
                let time = times.receive_time(0, Some(machine::realtime() - before_now));
                time.kernel().map(|kernel| time.program - kernel)
            })
            .min_by_key(|delay| delay.unwrap_or(i64::MAX))
            .flatten()
    }

    #[test]
    fn a_stamp_counts_if_the_packet_can_have_arrived_then() {
        let mut times = KernelTimes::new(NodeClock::REAL, &sockets());
        assert_eq!(delay(&mut times, 5_000), None, "the socket was never empty");
        times.note_empty(0, times.before_read());
        let found = delay(&mut times, 5_000).unwrap();
        assert!((4_000..50_000).contains(&found), "{found}");
        assert_eq!(delay(&mut times, 10 * MAX_QUEUEING_NS), None, "the socket was empty after that");
        assert_eq!(delay(&mut times, -1_000_000), None, "a time to come");
        assert!(delay(&mut times, 5_000).is_some() && times.kernel.is_some() && !times.take_step());
        std::thread::sleep(Duration::from_millis(120));
        assert!(delay(&mut times, 90_000_000).is_some());
        assert_eq!(delay(&mut times, 110_000_000), None, "too long ago");
    }

    /// Gains 100 us in a second.
    fn fast_raw() -> i64 {
        let time = machine::monotonic_raw();
        time + time / 10_000
    }

    #[test]
    fn a_stamp_of_some_time_ago_is_brought_to_the_rate_of_the_records() {
        let mut times = times(NodeClock { raw: fast_raw, ..NodeClock::REAL });
        std::thread::sleep(Duration::from_millis(600));
        times.note_empty(0, times.before_read());
        std::thread::sleep(Duration::from_millis(60));
        let found = delay(&mut times, 50_000_000).unwrap();
        // The rate gives 5,000 ns more than the distance; NTP may slew REALTIME in addition.
        let slewing = 50 * 40;
        assert!((50_004_000 - slewing..50_040_000).contains(&found), "{found}");
    }

    /// Time at which a test begins to slew REALTIME, by 5 %.
    static SLEWED_FROM: AtomicI64 = AtomicI64::new(i64::MAX);

    fn slewed(realtime: i64) -> i64 {
        realtime + realtime.saturating_sub(SLEWED_FROM.load(Relaxed)).max(0) / 20
    }

    #[test]
    fn a_stamp_is_not_used_while_realtime_is_slewed_fast() {
        let realtime = || slewed(machine::realtime());
        let mut times = times(NodeClock { realtime, stamp: |stamp| Some(slewed(stamp)), ..NodeClock::REAL });
        std::thread::sleep(Duration::from_millis(600));
        times.note_empty(0, times.before_read());
        std::thread::sleep(Duration::from_millis(5));
        assert!(delay(&mut times, 4_000_000).is_some(), "nothing is slewed");
        times.note_empty(0, times.before_read());
        SLEWED_FROM.store(machine::realtime(), Relaxed);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(delay(&mut times, 4_000_000), None);
        assert!(times.kernel.is_some() && !times.take_step());
    }

    #[test]
    fn a_realtime_that_was_set_is_believed_when_the_socket_was_empty() {
        let flag = Arc::new(AtomicBool::new(false));
        let was_set = flag.clone();
        let mut kernel = KernelClock::open().unwrap();
        kernel.was_set = Box::new(move || was_set.swap(false, Relaxed));
        let mut times = KernelTimes::with(NodeClock::REAL, Some(kernel), 1);
        times.note_empty(0, times.before_read());
        assert!(delay(&mut times, 5_000).is_some() && !times.take_step());
        flag.store(true, Relaxed);
        let at_step = times.receive_time(0, Some(machine::realtime()));
        assert!(at_step.kernel().is_none() && times.take_step() && !times.take_step());
        assert_eq!(delay(&mut times, 5_000), None, "it may have arrived before");
        times.note_empty(0, times.before_read());
        assert!(delay(&mut times, 5_000).is_some() && !times.take_step());
        // Also while nothing is read: the reading before that is of the earlier REALTIME.
        flag.store(true, Relaxed);
        times.note_empty(0, times.before_read());
        assert!(times.take_step());
        assert_eq!(delay(&mut times, 5_000), None);
        times.note_empty(0, times.before_read());
        assert!(delay(&mut times, 5_000).is_some());
    }

    #[test]
    fn the_timer_is_silent_while_the_clock_is_not_set() {
        let mut kernel = KernelClock::open().unwrap();
        assert!(!(kernel.was_set)() && !(kernel.was_set)());
    }

    /// As a library replaces it.
    fn replaced_realtime() -> i64 {
        machine::realtime() + 1_000_000
    }

    #[test]
    fn programs_times_count_where_the_kernels_cannot_be_had() {
        let replaced = NodeClock { realtime: replaced_realtime, ..NodeClock::REAL };
        let silent = NodeClock { stamp: |_| None, ..NodeClock::REAL };
        let refused = KernelTimes::new(NodeClock::REAL, &sockets().without_stamps());
        for mut times in [times(replaced), times(silent), refused] {
            assert!(times.kernel.is_none());
            times.note_empty(0, times.before_read());
            let (before, time) = (machine::monotonic_raw(), times.receive_time(0, Some(machine::realtime())));
            assert!(time.kernel().is_none() && (before..=machine::monotonic_raw()).contains(&time.program));
        }
        let mut times = times(NodeClock::REAL);
        assert_eq!(times.receive_time(0, None).kernel(), None);
        assert!(times.kernel.is_none(), "a packet without a time");
    }
}
