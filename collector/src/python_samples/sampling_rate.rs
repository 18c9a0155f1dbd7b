//! How often stacks are read, so that this takes no more CPU time than it may.

use std::time::{Duration, Instant};

/// Time between two samples of a thread, unless that takes too much CPU time: 99 a second, so that it does not keep step
/// with what the program does 100 times a second.
const PERIOD: Duration = Duration::from_nanos(10_101_010);
/// Maximum time between two samples.
const MAX_PERIOD: Duration = Duration::from_secs(1);
/// Share of a core that all collectors of a node may take for samples.
const NODE_BUDGET: f64 = 0.018;
/// Share of a core that samples of one thread may take.
const THREAD_BUDGET: f64 = 0.009;
/// Interval between two decisions on the rate.
const DECIDE_EVERY: Duration = Duration::from_millis(500);
/// Change of the period below which it stays.
const MIN_CHANGE: f64 = 0.1;

/// Decides on the time between samples.
#[derive(Debug)]
pub(super) struct SamplingRate {
    /// Share of a core that this collector may take for all threads.
    budget: f64,
    period: Duration,
    /// Time of the last decision, and CPU time and samples since.
    decided: Instant,
    used: Duration,
    ticks: u32,
}

impl SamplingRate {
    /// `ranks` is the number of ranks of the node, each of which has a collector.
    pub(super) fn new(ranks: u32, now: Instant) -> SamplingRate {
        let budget = NODE_BUDGET / f64::from(ranks.max(1));
        SamplingRate { budget, period: PERIOD, decided: now, used: Duration::ZERO, ticks: 0 }
    }

    /// Returns the time between two samples.
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Adds a tick in which samples of this many threads took this much CPU time.
    pub(super) fn took(&mut self, used: Duration, threads: usize, now: Instant) {
        self.used += used;
        self.ticks += 1;
        if now.duration_since(self.decided) < DECIDE_EVERY {
            return;
        }
        let budget = self.budget.min(THREAD_BUDGET * threads.max(1) as f64);
        let affordable = self.used.as_secs_f64() / f64::from(self.ticks) / budget;
        let period = Duration::from_secs_f64(affordable.min(MAX_PERIOD.as_secs_f64())).max(PERIOD);
        if period.as_secs_f64() > self.period.as_secs_f64()
            || period.as_secs_f64() < self.period.as_secs_f64() * (1.0 - MIN_CHANGE)
        {
            self.period = period;
        }
        (self.decided, self.used, self.ticks) = (now, Duration::ZERO, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_within_their_share_of_the_node() {
        for (ranks, threads, cost_us, expected_us) in [
            (1, 1, 45, 10_101),
            (1, 1, 180, 20_000),
            (1, 2, 180, 10_101),
            (1, 9, 360, 20_000),
            (8, 1, 45, 20_000),
            (8, 4, 900, 400_000),
            (8, 1, 1, 10_101),
            (64, 1, 9000, 1_000_000),
        ] {
            let mut now = Instant::now();
            let mut rate = SamplingRate::new(ranks, now);
            for _ in 0..1000 {
                now += rate.period();
                rate.took(Duration::from_micros(cost_us), threads, now);
            }
            assert_eq!(
                rate.period().as_micros(),
                expected_us,
                "{ranks} ranks, {threads} threads, {cost_us} us"
            );
        }
        let mut now = Instant::now();
        let mut rate = SamplingRate::new(8, now);
        for cost_us in [900, 45] {
            for _ in 0..1000 {
                now += rate.period();
                rate.took(Duration::from_micros(cost_us), 1, now);
            }
        }
        assert_eq!(rate.period().as_micros(), 20_000, "the rate rises again");
    }
}
