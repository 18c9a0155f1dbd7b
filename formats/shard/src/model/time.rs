//! Separate types for times before and after the clock fit, so that they cannot be confused.

use serde::{Deserialize, Serialize};

/// Recorded nanoseconds in the clock domain of one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LocalNs(pub i64);

/// Nanoseconds on the clock of the job: `CLOCK_BOOTTIME` of the reference node. Only a clock fit produces such times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobNs(i64);

impl JobNs {
    /// Wraps the result of a clock fit. Only the crate rpd-clocks calls this.
    pub fn from_fit(ns: i64) -> JobNs {
        JobNs(ns)
    }

    /// Returns the value for an output, ns.
    pub fn ns(self) -> i64 {
        self.0
    }
}
