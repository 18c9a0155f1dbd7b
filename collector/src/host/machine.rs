//! This node and its clocks.

use rpd_shard::record::{ClockDomain, ClockSet, Node};
use rustix::time::{ClockId, clock_gettime};

/// Describes the node as `uname` and `/etc/machine-id` do.
pub fn node() -> Node {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Node {
        machine_id: line_of("/etc/machine-id"),
        boot_id: line_of("/proc/sys/kernel/random/boot_id"),
        system_name: text(uname.sysname()),
        hostname: text(uname.nodename()),
        release: text(uname.release()),
        version: text(uname.version()),
        hardware_name: text(uname.machine()),
        domain_name: text(uname.domainname()),
    }
}

/// Returns the clock domain of this process.
pub fn clock_domain() -> ClockDomain {
    let time_namespace = rustix::fs::stat("/proc/self/ns/time").map_or(0, |stat| stat.st_ino);
    ClockDomain { boot_id: line_of("/proc/sys/kernel/random/boot_id"), time_namespace }
}

/// Returns the first two numbers of the version of Linux, zeros where they cannot be read.
pub(crate) fn linux_release() -> (u32, u32) {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether this process is in a time namespace with a `CLOCK_BOOTTIME` of its own.
pub(crate) fn has_shifted_boottime() -> bool {
    // Without time namespaces there is no such file.
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    line.is_some_and(|line| line.split_whitespace().any(|number| number != "0"))
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// `CLOCK_BOOTTIME`, ns.
pub(crate) fn boottime() -> i64 {
    nanoseconds(ClockId::Boottime)
}

/// `CLOCK_MONOTONIC_RAW`, ns: the clock that NTP does not adjust.
pub(crate) fn monotonic_raw() -> i64 {
    nanoseconds(ClockId::MonotonicRaw)
}

/// `CLOCK_REALTIME`, ns since 1970: the clock that administrators and NTP adjust.
pub(crate) fn realtime() -> i64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Number of readings of a clock set, of which the tightest counts. An interrupt during a reading costs
/// thousands of ns; an undisturbed reading takes about a hundred.
const READINGS: usize = 5;

/// Reads all clocks as close together as possible.
pub(crate) fn clock_set(domain: &ClockDomain) -> ClockSet {
    let read = || {
        let before = nanoseconds(ClockId::Boottime);
        let monotonic_raw = nanoseconds(ClockId::MonotonicRaw);
        let monotonic = nanoseconds(ClockId::Monotonic);
        let realtime = nanoseconds(ClockId::Realtime);
        let after = nanoseconds(ClockId::Boottime);
        let bracket = after.saturating_sub(before);
        ClockSet {
            domain: domain.clone(),
            boottime: before + bracket / 2,
            monotonic_raw,
            monotonic,
            realtime,
            bracket,
        }
    };
    (1..READINGS)
        .map(|_| read())
        .fold(read(), |best, set| if set.bracket < best.bracket { set } else { best })
}
