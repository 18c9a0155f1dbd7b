use super::random::RandomSource;
use rpd_shard::record::{ClockDomain, ClockSet};

/// True job time at which runs begin, ns.
pub const RUN_START: i64 = 1_000_000_000_000;
/// `CLOCK_REALTIME` at true time 0 on a node with an exact anchor.
const WALL_AT_ZERO: i64 = 1_760_000_000_000_000_000;
/// Time between two clock sets.
const SET_PERIOD: i64 = 5_000_000_000;
/// How long every node has slept before the run: what BOOTTIME is ahead of MONOTONIC, ns.
const SUSPENDED: i64 = 7_000_000_000;
/// What MONOTONIC is ahead of RAW, ns.
const SINCE_BOOT: i64 = 1_234;

/// The clocks of one node, against the true time of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelClock {
    /// `CLOCK_BOOTTIME` minus true time when the run starts, ns.
    pub offset: i64,
    /// How much faster than true time `CLOCK_BOOTTIME` is, in 1e-9 (1000 = 1 ppm).
    pub drift_ppb: i64,
    /// Error of `CLOCK_REALTIME`, ns.
    pub anchor_error: i64,
    /// `boot_id` and time namespace.
    pub domain: ClockDomain,
}

impl ModelClock {
    /// `CLOCK_BOOTTIME` of the node at a true time.
    pub fn local(&self, true_ns: i64) -> i64 {
        let since = i128::from(true_ns - RUN_START);
        let drift = since * i128::from(self.drift_ppb) / 1_000_000_000;
        true_ns + self.offset + drift as i64
    }

    /// `CLOCK_MONOTONIC_RAW` of the node at a true time: without the time that it slept, else as fast.
    pub fn raw(&self, true_ns: i64) -> i64 {
        self.local(true_ns) - SUSPENDED - SINCE_BOOT
    }

    /// The true time at which `CLOCK_MONOTONIC_RAW` shows this, to 1 ns.
    #[cfg(test)]
    pub(super) fn at_raw(&self, raw: i64) -> i64 {
        let guess = |at: i64| at + raw - self.raw(at);
        guess(guess(guess(RUN_START)))
    }

    /// `CLOCK_REALTIME` of the node at a true time.
    pub fn wall(&self, true_ns: i64) -> i64 {
        WALL_AT_ZERO + true_ns + self.anchor_error
    }

    /// What a collector records from `from` to `to` (true times): a set at the start, every 5 s, at the end.
    pub fn sets(&self, from: i64, to: i64, random: &mut RandomSource) -> Vec<ClockSet> {
        let mut at = from;
        let mut sets = Vec::new();
        while at < to {
            sets.push(self.set(at, random));
            at += SET_PERIOD;
        }
        sets.push(self.set(to, random));
        sets
    }

    fn set(&self, at: i64, random: &mut RandomSource) -> ClockSet {
        let boottime = self.local(at);
        ClockSet {
            domain: self.domain.clone(),
            boottime,
            monotonic_raw: self.raw(at),
            monotonic: boottime - SUSPENDED,
            realtime: self.wall(at),
            // Few different ones, so that several sets are equally good now and then.
            bracket: random.between(2, 12) * 50,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_of_one_ppm_is_a_microsecond_in_a_second() {
        let domain = ClockDomain { boot_id: "b".into(), time_namespace: 0 };
        let clock = ModelClock { offset: 5, drift_ppb: 1_000, anchor_error: 0, domain };
        assert_eq!(clock.local(RUN_START), RUN_START + 5);
        assert_eq!(clock.local(RUN_START + 1_000_000_000) - clock.local(RUN_START), 1_000_001_000);
    }
}
