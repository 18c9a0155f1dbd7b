//! Times that cannot be mixed up: before and after a clock fit.

/// Nanoseconds in the clock domain of one process, as it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalNs(pub i64);

/// Nanoseconds on the clock of the job: `CLOCK_BOOTTIME` of the reference node. Only a clock fit
/// makes one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobNs(i64);

impl JobNs {
    /// The result of a clock fit. The crate rpd-clocks is its only caller.
    pub fn from_fit(ns: i64) -> JobNs {
        JobNs(ns)
    }

    /// The value for an output.
    pub fn ns(self) -> i64 {
        self.0
    }
}
