use serde::{Deserialize, Serialize};

/// A Linux clock that times can be stamped with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Clock {
    /// `CLOCK_BOOTTIME`: RocPD, rocprofiler-sdk, rpd.
    Boottime,
    /// `CLOCK_MONOTONIC`: legacy `.rpd`.
    Monotonic,
    /// `CLOCK_REALTIME`: Kineto.
    Realtime,
}

impl Clock {
    /// Name as in `clock_gettime(2)`.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Boottime => "CLOCK_BOOTTIME",
            Clock::Monotonic => "CLOCK_MONOTONIC",
            Clock::Realtime => "CLOCK_REALTIME",
        }
    }
}

/// Processes that read the same clocks: one boot of one node, one time namespace. Never the host name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClockDomain {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/time`, 0 where the kernel has none.
    pub time_namespace: u64,
}

/// The clocks of one domain at one moment, all in ns. Read as BOOTTIME, MONOTONIC_RAW, MONOTONIC,
/// REALTIME, BOOTTIME; the others are taken to be at the middle of the two BOOTTIME readings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockSet {
    /// Whose clocks.
    pub domain: ClockDomain,
    /// Middle of the two readings of `CLOCK_BOOTTIME`.
    pub boottime: i64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw: i64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// `CLOCK_REALTIME`.
    pub realtime: i64,
    /// Distance of the two readings of `CLOCK_BOOTTIME`: the set is exact to half of it.
    pub bracket: i64,
}
